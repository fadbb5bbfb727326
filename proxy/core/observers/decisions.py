"""Decisions, in what the assistant said beside its calls (S0-17).

A line that begins with "decision:" is one. Beyond that only sentences that say outright what was chosen, and against
what or why. The law: **rather none than a wrong one**: a question, a condition or a proposal is no decision.

What this module does not do: it looks into no result and no code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from proxy.core.frames.results import decisions_in
from proxy.core.observers.step import Step, ends_of, lines_with

MOST = 5
"""Decisions of one step."""
LONGEST = 240
"""Characters of a sentence that still is one decision."""

_FENCED = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")
_MARKS = ("decided", "chose", "opted", "instead of", "rather than", "in favor of", "in favour of", " over ")
_WE = r"\b(?:I|we)(?:'ve|'ll|'m|'re|\shave|\swill|\sam|\sare)?\s"
_CHOSEN = re.compile(
    rf"""{_WE}(?:decided|chose|opted)\s(?:to|on|for|against|not|that)\b
       | {_WE}(?:\w+\s)?(?:us(?:e|ing)|keep(?:ing)?|(?:go|stick)(?:ing)?\swith|switch(?:ing)?\sto|choos(?:e|ing)|chose|
          replac(?:e|ing)|drop(?:ping)?|pick(?:ed|ing)?)\b.*
          \b(?:instead\sof|rather\sthan|in\sfavou?r\sof|over)\s
       | ^\W*(?:let's\s)?(?:use|using|(?:go|stick)(?:ing)?\swith)\b.*
          \b(?:instead\sof|rather\sthan)\s.*\b(?:because|since|as)\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
_OPEN = re.compile(
    r"\?|\b(?:if|whether|should|could|might|would|may|maybe|perhaps|either|try|trying|let me (?:check|see|know)|"
    r"you (?:can|want|prefer|decide)|not sure|alternatively|option)\b",
    re.IGNORECASE,
)


def decisions_seen(step: Step) -> tuple[str, ...]:
    """The decisions the assistant told in this step, in order, each once and on one line."""
    said = ends_of(step.said)
    found = (*decisions_in(lines_with(said, ("decision",))), *_chosen(_FENCED.sub("\n", said)))
    return tuple(dict.fromkeys(" ".join(text.split())[:LONGEST] for text in found))[:MOST]


def _chosen(said: str) -> Iterator[str]:
    for sentence in _SENTENCE_END.split(lines_with(said, _MARKS)):
        text = sentence.strip(" \t-*>#_`")
        if len(text) <= LONGEST and _CHOSEN.search(text) and not _OPEN.search(text) and not decisions_in(text):
            yield text
