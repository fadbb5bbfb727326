"""Tells what a text says came of the work from what it announces or asks, by the form of its sentences.

An announcement is in the future ("I'll", "let me"), in the progressive ("Marking it now"), an order to oneself ("Now
check the callers"), or a line that introduces the calls behind it ("The tests:"). A sentence may hold both: "It is a
cache, so I'll clear it". What stays is always the text as it was said.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

FORM_CHARACTERS = 400
"""Characters of a sentence by which its form is known."""
_SENTENCE = re.compile(r".+?(?:[.!?](?=\s|$)|:(?=\s*\n|\s*\Z)|\n|\Z)", re.DOTALL)
_OPENING = (
    r"(?:(?:ok(?:ay)?|good|great|perfect|excellent|nice|alright|all\sright|right|interesting|sure|yes|no|well|ah|oh|hm+"
    r"|wait|actually|so|and|but|also|now|next|then|first|finally|instead)\b[,.!:;\s—\u2013-]*)*"
)
_ADVERBS = r"(?:(?:also|still|now|just|first|next|then|only|quickly)\s){0,3}"
_WILL = r"(?:let\sme|let's|let\sus|(?:I|we)(?:'ll|\swill|'d\slike\sto|(?:'m|'re|\sam|\sare)\s(?:now\s)?going\sto))\b"
_ANNOUNCEMENT = re.compile(
    rf"""^\W*{_OPENING}(?: {_WILL}
        | (?:(?:I|we)(?:'m|'re|\sam|\sare)?\s)?{_ADVERBS}(?:need|have|want|going|about|plan|ready)\sto\b
        | (?:I|we)\s{_ADVERBS}(?:should|must|can\snow)\b
        | (?:I'm|I\sam|we're|we\sare)\s{_ADVERBS}(?!(?:see|gett|find|notic|miss|wonder|guess)ing)[a-z]+ing\b
        | (?:moving|time|on|back)\s(?:on\s|over\s)?to\b )""",
    re.IGNORECASE | re.VERBOSE,
)
_JOINED = r"(?:(?:and|so|but|then|now)\s){0,3}"
_CLAUSE_BREAK = re.compile(
    rf"(?:\s{{0,3}}[,;:—\u2013]\s{{0,3}}{_JOINED}|\s-\s{_JOINED}|\s(?:and|so|but)\s(?:now\s)?)(?={_WILL})",
    re.IGNORECASE,
)
_SUBORDINATE = re.compile(
    r"^\W*(?:since|because|as|to|in\sorder|before|after|once|if|when|for|given|based|with|while|although|until|instead|"
    r"rather|now\s(?:that|for)|first|next|then|finally)\b",
    re.IGNORECASE,
)
"""Begins a clause that says nothing without the one behind it."""
_BASE_VERBS = (
    r"(?:(?:re-?)?(?:run|check|build|test|read|write|create|make|start)|update|add|fix|look|implement|verify|commit|"
    r"remove|refactor|use|wire|replace|move|document|do|handle|extend|adjust|rename|mark|push|continue|install|clean|"
    r"find|get|try|change|set|apply|delete|drop|open|search|review|finish|port|convert|integrate)\b"
)
_BEGINS_NEXT = re.compile(
    r"^\W*next\s*(?:up|steps?)?\s*[:,]|^\W*(?:now|next|then|finally|first)\b[,:\s]+(?:to|the|for|on|i|we)\b",
    re.IGNORECASE,
)
_FINITE = (
    r"(?:is|are|was|were|has|have|had|does|do|pass(?:es)?|works?|fails?|returns?|gives?|makes|means|needs|uses|"
    r"can|could|would|will|may|might|[a-z]{2,}s(?=\s(?:it|the|an?|that|this|them|\d+)\b)|"
    r"(?:fixed|failed|solved|broke|made|gave)(?=\s(?:it|the|that|this|all|them|with)\b|\W*$))\b"
)
_SAYS_HOW_IT_IS = re.compile(rf"\b(?:{_FINITE}|(?:passed|failed|fixed|added|done)\b)", re.IGNORECASE)
_ORDER = re.compile(
    rf"^\W*{_OPENING}\b(?:now|next|then|finally|first|also)\b[,:\s]+{_BASE_VERBS}"
    rf"(?!(?:\W+\w+){{0,2}}?\W+(?:{_FINITE}|passed|failed)\b)",
    re.IGNORECASE,
)
"""An order to oneself: "now check the callers", but not "now check 6 passes"."""
_PROGRESSIVE = re.compile(
    rf"^\W*{_OPENING}(?!(?:\w*th|miss|exist|remain|follow|dur|accord|interest|includ|warn|str|hav|be)ing\b)[a-z]+ing\b"
    rf"(?!.*\b{_FINITE})",
    re.IGNORECASE | re.DOTALL,
)
_BLANK_LINES = re.compile(r"\n\s*\n")
_WORDLESS = re.compile(
    rf"^\W*(?:{_OPENING}|(?:good|great|nice|fair|perfect|excellent)(?:\s[a-z]+){{1,2}})\W*$", re.IGNORECASE
)


def outcome_part(text: str) -> str:
    """The sentences that say what came of the work, without announcements of the next step and without questions."""
    return _joined(part for part, is_outcome in _parts(text) if is_outcome is not False)


def announced_part(text: str) -> str:
    """The other sentences: what was asked, or announced as the next step."""
    return _joined(part for part, is_outcome in _parts(text) if not is_outcome)


def _joined(parts: Iterable[str]) -> str:
    return _BLANK_LINES.sub("\n\n", "".join(parts)).strip()


def _parts(text: str) -> Iterator[tuple[str, bool | None]]:
    """The text in pieces, each with whether it says an outcome; of line ends nobody asks."""
    sentences = [match[0] for match in _SENTENCE.finditer(text.strip())]
    for at, sentence in enumerate(sentences):
        if not sentence.strip():
            yield sentence, None
            continue
        if clause := _CLAUSE_BREAK.search(sentence):
            before, behind = sentence[: clause.start()], sentence[clause.start() :]
            is_outcome = not _SUBORDINATE.match(before) and _says_an_outcome(before)
            yield (before, True) if is_outcome else (sentence, False)
            if is_outcome:
                yield behind.lstrip(" \t,;:—\u2013-"), False
            continue
        is_last = at == len(sentences) - 1
        is_outcome = _says_an_outcome(sentence) and not (is_last and _introduces_calls(sentence))
        yield sentence, is_outcome


def _introduces_calls(last_sentence: str) -> bool:
    """Whether the end of a text is only the heading of what comes behind it."""
    return last_sentence.rstrip().endswith(":") and not _SAYS_HOW_IT_IS.search(last_sentence)


def _says_an_outcome(sentence: str) -> bool:
    stripped = sentence.strip()
    is_question = stripped.endswith("?")
    stripped = stripped[:FORM_CHARACTERS]
    if not stripped or is_question or _WORDLESS.match(stripped) or _ANNOUNCEMENT.match(stripped):
        return False
    if _PROGRESSIVE.match(stripped) or _ORDER.match(stripped):
        return False
    return not (_BEGINS_NEXT.match(stripped) and not _SAYS_HOW_IT_IS.search(stripped))
