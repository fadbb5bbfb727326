"""Finds decisions in the assistant's text beside its calls: lines that begin with "decision:", and sentences that say
outright what was chosen, against what or why. Questions, conditions and proposals are skipped; a missed decision is
better than a wrong one."""

from __future__ import annotations

import re
from collections.abc import Iterator

from proxy.core.frames import decisions_in
from proxy.core.observers.step import Step, head_and_tail_of, lines_containing
from proxy.core.text import cut_for_display

MAX_DECISIONS_PER_STEP = 5
MAX_DECISION_LENGTH = 240  # characters of a sentence

_FENCED_CODE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")
_DECISION_WORDS = ("decided", "chose", "opted", "instead of", "rather than", "in favor of", "in favour of", " over ")
_FIRST_PERSON = r"\b(?:I|we)(?:'ve|'ll|'m|'re|\shave|\swill|\sam|\sare)?\s"
_DECISION = re.compile(
    rf"""{_FIRST_PERSON}(?:decided|chose|opted)\s(?:to|on|for|against|not|that)\b
       | {_FIRST_PERSON}(?:\w+\s)?(?:us(?:e|ing)|keep(?:ing)?|(?:go|stick)(?:ing)?\swith|switch(?:ing)?\sto|
          choos(?:e|ing)|chose|replac(?:e|ing)|drop(?:ping)?|pick(?:ed|ing)?)\b.*
          \b(?:instead\sof|rather\sthan|in\sfavou?r\sof|over)\s
       | ^\W*(?:let's\s)?(?:use|using|(?:go|stick)(?:ing)?\swith)\b.*
          \b(?:instead\sof|rather\sthan)\s.*\b(?:because|since|as)\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
_UNDECIDED = re.compile(
    r"\?|\b(?:if|whether|should|could|might|would|may|maybe|perhaps|either|try|trying|let me (?:check|see|know)|"
    r"you (?:can|want|prefer|decide)|not sure|alternatively|option)\b",
    re.IGNORECASE,
)


def observe_decisions(step: Step) -> tuple[str, ...]:
    """Distinct decisions, in order, each on one line."""
    said = head_and_tail_of(step.assistant_text)
    decisions = (*decisions_in(lines_containing(said, ("decision",))), *_find_decisions(_FENCED_CODE.sub("\n", said)))
    return tuple(dict.fromkeys(cut_for_display(text, MAX_DECISION_LENGTH) for text in decisions))[
        :MAX_DECISIONS_PER_STEP
    ]


def _find_decisions(full_text: str) -> Iterator[str]:
    for sentence in _SENTENCE_END.split(lines_containing(full_text, _DECISION_WORDS)):
        text = sentence.strip(" \t-*>#_`")
        if (
            len(text) <= MAX_DECISION_LENGTH
            and _DECISION.search(text)
            and not _UNDECIDED.search(text)
            and not decisions_in(text)
        ):
            yield text
