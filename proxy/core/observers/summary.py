"""Does this message ask for a summary of the conversation it stands in? Clients do, and people, before they go on with
the summary alone.

The law: **only who asks for all of it counts**: a word for a summary near a word for the whole conversation. A summary
of a file or of a change is work like any other, a message that brings a summary asks for none, and what stands between
fences was pasted: agents without calls get their commands' output as a user message.

What this module does not do: it decides nothing. Whoever is told a little more than was needed takes no harm.
"""

from __future__ import annotations

import re
from itertools import islice

from proxy.core.observers.turns import untagged

LOOKED_AT = 3_000
"""Characters of its beginning, and of its end: there the order stands, whatever is quoted between."""
NEAR = 140
"""Characters between the two words, on one line."""
WORDS = 40
"""Words for a summary that are looked at."""
_STEMS = ("summar", "compact", "handoff", "hand-off", "handover", "hand-over", "recap", "condens")
"""Looked for first: nearly every message has none of them."""
_SUMMARY = re.compile(
    r"\b(?:summar(?:y|ies|i[sz]e|i[sz]ing)|compact(?:ion|ing)?|hand-?(?:off|over)|recap(?:itulate)?|condense)\b",
    re.IGNORECASE,
)
_WHOLE = re.compile(
    r"""
    \b(?:this|the|our|your|whole|entire|full|above|previous|prior|earlier)\s(?:\w+\s){0,2}
      (?:conversation|chat|dialogue?|discussion|transcript|message\shistory|session)\b
      (?=\s*(?:[^\w\s]|\Z)|\s+(?:so|up|until|to|till|above|and|or|as|for|in|into|that|which|before|with|from|we|you|i|now)\b)
  | \b(?:conversation|chat|session|work|everything)\s(?:so\sfar|up\sto\s(?:now|this\spoint)|until\snow|to\sdate|above)\b
  | \banother\s(?:llm|language\smodel|model|agent|assistant)\b
  | \bcontext\s(?:window|checkpoint)\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
_BRINGS = re.compile(
    r"""\A\W{0,3}(?:(?:here\sis|below\sis|the\sfollowing\sis|this\sis)\s(?:a|the)\s(?:\w+\s){0,2}summary
      | (?:this|the)\s(?:session|conversation)\s(?:is\sbeing|was|has\sbeen)\s
      | another\s(?:language\smodel|llm|model|agent)\s(?:started|began|worked|has)\b)""",
    re.IGNORECASE | re.VERBOSE,
)
_FENCE = re.compile(r"^[ \t]{0,9}(```|~~~)[`~]{0,9}(.*)$", re.MULTILINE)


def asks_for_summary(text: str) -> bool:
    """Whether `text`, words of the user or of their client, asks for a summary of the conversation."""
    if not _asks(text) or _BRINGS.match(untagged(text, LOOKED_AT)):
        return False
    said = _unfenced(text)
    return len(said) == len(text) or _asks(said)


def _unfenced(text: str) -> str:
    """Without what stands between fences. One that is open to the end is none: an order may follow what was quoted
    badly."""
    kept, at, opened = [], 0, None
    for fence in _FENCE.finditer(text):
        if opened is None:
            opened = fence
        elif fence[1] == opened[1] and not fence[2].strip():
            kept.append(text[at : opened.start()])
            at, opened = fence.end(), None
    return "".join([*kept, text[at:]])


def _asks(text: str) -> bool:
    ends = (text,) if len(text) <= 2 * LOOKED_AT else (text[:LOOKED_AT], text[-LOOKED_AT:])
    return any(map(_speaks_of_both, ends))


def _speaks_of_both(text: str) -> bool:
    low = text.lower()
    if not any(stem in low for stem in _STEMS):
        return False
    for word in islice(_SUMMARY.finditer(text), WORDS):
        start = max(word.start() - NEAR, text.rfind("\n", 0, word.start()) + 1)
        line_end = text.find("\n", word.end())
        end = min(word.end() + NEAR, line_end if line_end >= 0 else len(text))
        if _WHOLE.search(text, start, end):
            return True
    return False
