"""Tells what a text says came of the work from what it announces or asks, by the form of its sentences.

An announcement is in the future ("I'll", "let me"), in the present ("I check the callers"), in the progressive
("Marking it now"), an order to oneself ("Now check the callers"), what is left to do ("Next the docs", "a.py has to be
read again"), or a line that introduces the calls behind it ("The tests:"). A sentence may hold both: "It is a cache, so
I'll clear it". What stays is always the text as it was said.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice

import msgspec

from proxy.core.memo import late_pattern
from proxy.core.word_lists import PhraseList, any_of, read_table

FORM_CHARACTERS = 400
"""Characters of a sentence by which its form is known."""
MAX_CLAUSES = 40
"""Clauses of a sentence that are looked at."""
_SENTENCE = late_pattern(r".+?(?:[.!?](?=\s|$)|[\u3002\uff01\uff1f]|[:\uff1a](?=\s*\n|\s*\Z)|\n|\Z)", re.DOTALL)
_OPENING = (
    r"(?:(?:ok(?:ay)?|good|great|perfect|excellent|nice|alright|all\sright|right|interesting|sure|yes|no|well|ah|oh|hm+"
    r"|wait|actually|so|and|but|also|now|next|then|first|finally|instead)\b[,.!:;\s—\u2013-]*)*"
)
_ADVERBS = r"(?:(?:also|still|now|just|first|next|then|only|quickly)\s){0,3}"
_WILL = r"(?:let\sme|let's|let\sus|(?:I|we)(?:'ll|\swill|'d\slike\sto|(?:'m|'re|\sam|\sare)\s(?:now\s)?going\sto))\b"
_ANNOUNCEMENT = late_pattern(
    rf"""^\W*{_OPENING}(?: {_WILL}
        | (?:(?:I|we)(?:'m|'re|\sam|\sare)?\s)?{_ADVERBS}(?:need|have|want|going|about|plan|ready)\sto\b
        | (?:I|we)\s{_ADVERBS}(?:should|must|can\snow)\b
        | (?:I|we)\scan\s(?:edit|write|add|create|update|fix|make|run|start|begin|use|do|go|implement|move|remove)\b
        | (?:I'm|I\sam|we're|we\sare)\s{_ADVERBS}(?!(?:see|gett|find|notic|miss|wonder|guess)ing)[a-z]+ing\b
        | (?:moving|time|on|back)\s(?:on\s|over\s)?to\b )""",
    re.IGNORECASE | re.VERBOSE,
)


class _AnnouncingPhrases(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The lists of `announcing_phrases.toml`: what stands in front of an announcement, how it begins, how it ends."""

    openings: PhraseList
    announcements: PhraseList
    endings: PhraseList


_ABROAD = read_table(__package__, "announcing_phrases.toml", _AnnouncingPhrases)
_FUTURE = r"(?:j['\u2019]|je\s)?[^\W\dé]{2,}(?:[aei]ré|rai|rò|rei)"
"""A verb in the future of the first person, where its ending says so."""
_IN_OTHER_LANGUAGES = late_pattern(
    rf"""^\W*(?:(?:(?:{any_of(_ABROAD.openings.spaced)})\b[,.!:;\s—\u2013-]*)*
          (?:{any_of(_ABROAD.announcements.spaced)}|{_FUTURE})(?!\w)
        | (?:{any_of(_ABROAD.announcements.unspaced)}) )""",
    re.IGNORECASE | re.VERBOSE,
)
_OPENING_IN_OTHER_LANGUAGES = late_pattern(rf"\W*(?:(?:{any_of(_ABROAD.openings.spaced)})\b\W*)+\Z", re.IGNORECASE)
_ENDING_IN_OTHER_LANGUAGES = late_pattern(rf"(?:{any_of(_ABROAD.endings.unspaced)})\W*\Z")
_JOINED = r"(?:(?:and|so|but)\s){0,2}"
_CLAUSE_BREAK = late_pattern(
    rf"\s{{0,3}}[,;:—\u2013]\s{{1,3}}{_JOINED}|\s-\s{_JOINED}|\s(?:and|so|but)\s|[\uff0c\uff1b]", re.IGNORECASE
)
_ACTS = late_pattern(
    rf"^\W*{_OPENING}(?:I|we)\s{_ADVERBS}(?:(?:re-?)?(?:run|check|build|test|try|write|start|begin|make)|recall|look|verify|"
    r"update|mend|fix|go|continue|search|review|inspect|compare|measure|commit|add|remove|rename|replace|move|extend|"
    r"adjust|rewrite|take\sa\slook)\b",
    re.IGNORECASE,
)
"""What "I" do in the present. Verbs that say the same of what was done ("I read", "I put") are not among them."""
_ENDS_A_TASK = late_pattern(
    rf"^\W*{_OPENING}(?:I|we)\s{_ADVERBS}(?:(?:close|finish|end|complete|tick|mark|check|take|note)\s"
    r"(?:off\s)?(?:(?:this|that|the|it|them|these|those|my|our)\s)?(?:(?:first|second|third|last|next|current)\s)?"
    r"(?:task|item|todo|step|point|plan|frame|phase|part|off|done|as|down|first|and)s?\b|move\son\b|"
    r"(?:turn|proceed|return|get\sback|hand\s(?:it\s)?over)\sto\b)",
    re.IGNORECASE,
)
"""What "I" do with the plan in the present: "I close this task", "I note them and take the parser first"."""
_AND_ACTS = late_pattern(
    rf"^\W*{_OPENING}(?:I|we)\s{_ADVERBS}(?!have\b|had\b|\w+ed\b)[^.!?;]{{1,200}}?,?\s(?:and|then)\s(?:then\s)?"
    r"(?:(?:re-?)?(?:run|check|build|read|try|start|write)|verify|look|mend|fix|continue|go|turn|commit|update)\s"
    r"(?:the|it|its|them|this|that|these|all|every|each|on|at|for|to|over|again|once|both|my|our)\b",
    re.IGNORECASE,
)
"""Of two verbs the second one tells that the first is no past: "I read it and run the suite"."""
_WILL_ACT = late_pattern(rf"^(?:(?:now|then)\s){{0,2}}{_WILL}", re.IGNORECASE)
_LEFT_TO_DO = late_pattern(
    r"^\W*(?:[^\s,;:]+\s){1,6}?(?:(?:still|also|now)\s)?(?:has|have|needs?)\s(?:(?:still|also|now)\s)?to\sbe\s(?:re-?)?"
    r"(?:read|run|checked|built|tested|written|updated|fixed|mended|looked|verified|committed|documented|adjusted|"
    r"reviewed|extended|renamed|moved|removed|added|replaced|changed|done)\b(?!.*\bby\b)",
    re.IGNORECASE,
)
_CONNECTIVES = r"(?:and|or|of|in|for|with|on|at|from|to|then)"
_DETERMINED = r"(?:the|an?|its|my|our|this|that|these|those|their)"
_WORD = rf"(?!{_CONNECTIVES}\b|{_DETERMINED}\b|(?:it|them|us|me|you)\b)[\w`\"'./()<>*+-]{{1,80}}(?<![.:])"
_THINGS = rf"(?:{_DETERMINED}\s(?:{_WORD}\s){{0,2}}{_WORD}|{_WORD})"
_ONLY_THINGS = late_pattern(
    rf"^\W*(?P<when>next|then|now|finally|first)\b[,:]?\s(?P<things>{_THINGS}"
    rf"(?:(?:[,:;]\s(?:{_CONNECTIVES}\s){{0,2}}|\s(?:{_CONNECTIVES}\s){{1,2}}){_THINGS}){{0,7}})[.!…]*\s*$",
    re.IGNORECASE,
)
"""A clause without a verb: "next the docs", "now README and the list"."""
_NAMES_A_THING = late_pattern(rf"\b(?i:{_DETERMINED})\s|[A-Z0-9_`]|\w\.\w")
_SUBORDINATE = late_pattern(
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
_BEGINS_NEXT = late_pattern(
    r"^\W*next\s*(?:up|steps?)?\s*[:,]|^\W*(?:now|next|then|finally|first)\b[,:\s]+(?:to|the|for|on|i|we)\b",
    re.IGNORECASE,
)
_FINITE = (
    r"(?:is|are|was|were|has|have|had|does|do|pass(?:es)?|works?|fails?|returns?|gives?|makes|means|needs|uses|"
    r"can|could|would|will|may|might|[a-z]{2,}s(?=\s(?:it|the|an?|that|this|them|\d+)\b)|"
    r"(?:fixed|failed|solved|broke|made|gave)(?=\s(?:it|the|that|this|all|them|with)\b|\W*$))\b"
)
_SAYS_HOW_IT_IS = late_pattern(rf"\b(?:{_FINITE}|(?:passed|failed|fixed|added|done)\b)", re.IGNORECASE)
_ORDER = late_pattern(
    rf"^\W*{_OPENING}\b(?:now|next|then|finally|first|also)\b[,:\s]+{_BASE_VERBS}"
    rf"(?!(?:\W+\w+){{0,2}}?\W+(?:{_FINITE}|passed|failed)\b)",
    re.IGNORECASE,
)
"""An order to oneself: "now check the callers", but not "now check 6 passes"."""
_SUBORDINATOR = r"(?:which|what|where|how|who|whether|if|as\s(?:they|it|he|she|I|we|the))\b"
_PROGRESSIVE = late_pattern(
    rf"^\W*{_OPENING}(?!(?:\w*th|miss|exist|remain|follow|dur|accord|interest|includ|warn|str|hav|be)ing\b)[a-z]+ing\b"
    rf"(?!(?:(?!\b{_SUBORDINATOR}).)*\b{_FINITE})",
    re.IGNORECASE | re.DOTALL,
)
_BLANK_LINES = late_pattern(r"\n\s*\n")
_WORDLESS = late_pattern(
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
        if border := _begin_of_announcing_clause(sentence):
            before, behind = sentence[:border], sentence[border:]
            is_outcome = not _SUBORDINATE.match(before) and _says_an_outcome(before)
            yield (before, True) if is_outcome else (sentence, False)
            if is_outcome:
                yield behind.lstrip(" \t,;:—\u2013-\uff0c\uff1b"), False
            continue
        is_last = at == len(sentences) - 1
        is_heading = is_last and sentence.rstrip().endswith((":", "\uff1a")) and not _SAYS_HOW_IT_IS.search(sentence)
        yield sentence, _says_an_outcome(sentence) and not is_heading


def _begin_of_announcing_clause(sentence: str) -> int:
    """Where a clause of the sentence begins that announces, with what joins it to the one before; 0 if none does."""
    for clause in islice(_CLAUSE_BREAK.finditer(sentence), MAX_CLAUSES):
        rest = sentence[clause.end() : clause.end() + FORM_CHARACTERS]
        starts_anew = clause[0].lstrip()[:1] in (";", "—", "\u2013", ":", ",") or clause[0].startswith(" - ")
        if _WILL_ACT.match(rest) or _ACTS.match(rest) or _IN_OTHER_LANGUAGES.match(rest):
            return clause.start()
        if starts_anew and (_names_what_is_next(rest) or _LEFT_TO_DO.match(rest)):
            return clause.start()
        if clause[0].lstrip().startswith(";") and _PROGRESSIVE.match(rest):
            return clause.start()
    return 0


def _names_what_is_next(clause: str) -> bool:
    """Whether a clause only names things for a later step. "Now clean." tells how it is, "Now README." does not."""
    match = _ONLY_THINGS.match(clause)
    if match is None or _SAYS_HOW_IT_IS.search(clause):
        return False
    return match["when"].lower() in ("next", "then") or _NAMES_A_THING.search(match["things"]) is not None


def _says_an_outcome(sentence: str) -> bool:
    stripped = sentence.strip()
    is_question = stripped.endswith(("?", "\uff1f"))
    if _ENDING_IN_OTHER_LANGUAGES.search(stripped[-FORM_CHARACTERS:]):
        return False
    stripped = stripped[:FORM_CHARACTERS]
    if _OPENING_IN_OTHER_LANGUAGES.match(stripped):
        return False
    if not stripped or is_question or _WORDLESS.match(stripped) or _ANNOUNCEMENT.match(stripped):
        return False
    forms = (_PROGRESSIVE, _ORDER, _ACTS, _ENDS_A_TASK, _AND_ACTS, _LEFT_TO_DO, _IN_OTHER_LANGUAGES)
    if any(form.match(stripped) for form in forms) or _names_what_is_next(stripped):
        return False
    return not (_BEGINS_NEXT.match(stripped) and not _SAYS_HOW_IT_IS.search(stripped))
