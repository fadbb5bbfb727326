"""Recognises what a client notes beside the agent's work of the state of things: which files somebody changed, what a
language server says of them, what is in the todo list. It was true at that moment, and is stale once the work that it
stands in has left."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import NamedTuple

from proxy.core.ledger import INSTRUCTION_ROLES, Message
from proxy.core.memo import RecentCache, late_pattern
from proxy.core.observers import is_client_elements, queued_words

MAX_NOTE_LENGTH = 20_000  # a longer text is looked at no further
MAX_CACHED_CHARACTERS = 1 << 20  # of all texts whose files are cached: each is asked for with every request
MAX_FILES = 50  # of a note on more of them nobody searches where each was named
_CLIENT_TAGS = late_pattern(r"(?:</?(?:system|environment|ide|new|file|todo)[-_][a-z_-]+>\s*)+")
_TAGS = late_pattern(r"\A(?:\s*<[\w-]{1,40}>)+|(?:</[\w-]{1,40}>\s*){1,4}\Z")
_CHANGED = (
    r"(?:was|were|has|have|had)\s(?:\w+\s)?(?:been\s)?"
    r"(?:modified|changed|edited|updated|deleted|removed|renamed|moved|reformatted|formatted|reverted|overwritten)\b"
)
_DID = r"(?:modified|changed|edited|updated|deleted|removed|renamed|moved|reformatted|reverted)"
_PATH = r"[`'\"]?[^\s`'\"<>]{0,300}[\w)-]\.\w{1,8}[`'\"]?"
_NOTE = late_pattern(
    rf"""(?:(?:note|notice|reminder|warning|heads\sup)\s*[:,]\s*)?
      (?: (?:the\s)?(?:file\s)?{_PATH}\s(?:\([^)\n]{{0,60}}\)\s)?{_CHANGED}
        | (?:the\s(?:following\s|contents?\sof\s)?|some\s|these\s|\d+\s)?files?(?:\(s\))?\s[^\n.]{{0,200}}?{_CHANGED}
        | \d+\sfiles?\s(?:changed|modified)\b
        | the\suser\s(?:has\s|just\s|manually\s){{0,2}}{_DID}\s(?:the\s)?(?:file\s)?{_PATH}
        | this\scommand\s(?:modified|changed|created|deleted)\s\d+\sfiles?\b
        | (?:the\sfollowing\s)?new\sdiagnostic )""",
    re.IGNORECASE | re.VERBOSE,
)
_WORDS_OF_NOTES_TEXT = (
    "note notice reminder warning heads up the file files file(s following content contents of some these was were has "
    "have had been modified changed edited updated deleted removed renamed moved reformatted formatted reverted "
    "overwritten created by a an and or either user linter formatter editor agent tool command this their "
    "another on disk in since your recently just manually externally automatically also outside session conversation "
    "new diagnostic diagnostics issue issues found detected ide git"
)
_WORDS_OF_NOTES = frozenset(_WORDS_OF_NOTES_TEXT.split())
"""All words of a sentence that says which files changed: one with any other word says more than that."""
_WORDS_OF_LISTS = frozenset(["and", "file", "files"])
_WHEN_READ = late_pattern(
    r"\b(?:since|after|that|which)?\s?(?:you(?:'ve|\shave)?|your)\s(?:last\s|previously\s)?read(?:\s(?:it|them))?\b",
    re.IGNORECASE,
)
_FURTHER_SENTENCE = late_pattern(
    r"""(?: (?:this|these)\schanges?\s(?:was|were)\sintentional(?:,\sso\smake\ssure\sto\stake\s(?:it|them)\sinto
            \saccount\sas\syou\sproceed)?(?:\s\((?:i\.?e\.?\s)?don't\srevert\s(?:it|them)\sunless\sthe\suser\sasks\syou\sto\))?
        | (?:don't|do\snot)\stell\sthe\suser\s(?:about\s)?this(?:,\s(?:since|because|as)\sthey\sare\salready\saware)?
        | (?:so\sthat\syou\sdon't\sneed\sto\sre-?read\sthe\sfile,\s)?here(?:'s|\sis|\sare)\s(?:its|the|your)\s(?:\w+\s)?
          (?:changes?|contents?|diff|lines|result|snippet)(?:\sof\s(?:running\s`cat\s-n`\son\s)?(?:the|your|a)(?:\s(?:\w+\s)?
          (?:file|list|snippet\sof\sthe\sedited\sfile))?)?(?:\s\(shown\swith\sline\snumbers\))?
        | (?:please\s)?(?:(?:call|use)\s(?:the\s)?`?read`?(?:\stool)?|(?:re-?)?read\s(?:it|them|the\sfiles?))
          (?:\sagain)?\sbefore\s(?:editing|you\sedit)(?:\s(?:it|them))?
        | do\snot\smention\sthis(?:\smessage)?(?:\sexplicitly)?\sto\sthe\suser(?:\sexplicitly)?
          (?:\sbecause\sthey\sare\salready\saware)?
        | again\sdo\snot\smention\sthis\smessage\sto\sthe\suser
        | if\syou(?:'re|\sare)\sworking\son\stasks\sthat\swould\sbenefit\sfrom\s(?:a\stodo\slist|tracking\sprogress),?
          \s(?:please\suse|consider\susing)\s(?:the\s)?\w+(?:\stool)?\sto\s(?:create\sone|track\sprogress|add\snew\stasks)
          (?:\sand\s\w+\sto\supdate\stask\sstatus(?:\s\(set\sto\sin_progress\swhen\sstarting,\scompleted\swhen\sdone\))?)?
        | if\snot,\splease\sfeel\sfree\sto\signore
        | also\sconsider\scleaning\sup\sthe\s(?:todo|task)\slist\sif\s(?:it\s)?has\sbecome\sstale
          (?:\sand\sno\slonger\smatches\swhat\syou\sare\sworking\son)?
        | only\suse\s(?:it|these)\sif\s(?:it's\s)?relevant\sto\sthe\scurrent\swork
        | this\sis\sjust\sa\sgentle\sreminder\s-\signore\sif\snot\sapplicable
        | make\ssure\sthat\syou\snever\smention\sthis\sreminder\sto\sthe\suser
        | continue\son\swith\sthe\stasks\sat\shand\sif\sapplicable ) [.!:\s\[\]]*\Z""",
    re.IGNORECASE | re.VERBOSE,
)
"""What clients write behind the first sentence of their notes, or words close to it."""
_TODO_NOTE = late_pattern(
    r"""(?: (?:this\sis\sa\sreminder\sthat\s)?(?:your|the)\s(?:to-?do|task)\s?(?:list|write\stool|tools?)?s?\s
            (?:has\schanged|was\schanged|is\s(?:currently\s|still\s)?empty|ha(?:s|ve)(?:n't|\snot)\sbeen\sused)
        | the\s\w{0,12}todo\w{0,12}\stool\shas(?:n't|\snot)\sbeen\sused ) (?:\srecently|\syet)?[.!:\s]*\Z""",
    re.IGNORECASE | re.VERBOSE,
)
_SENTENCE_END = late_pattern(r"(?<!\bie\.)(?<!\bi\.e\.)(?<!\be\.g\.)(?<=[.!?])[ \t]+")
_QUOTED_LINE = late_pattern(
    r"""\d+\s*[\t\u2192|]  |  \W{0,4}\d+\.\s\[\w+\]  |  \W*\d+\s(?:more\s)?lines?\s(?:truncated|omitted)\W*\Z
      | (?:[^\s\w]{1,3}\s*)?(?:(?:error|warn(?:ing)?|info|hint)\W{1,3})?
        (?:[^\s:(]{1,200}[:(]\d+[:,]\d+ | \[(?:line\s)?\d+[:,]\d+\])""",
    re.IGNORECASE | re.VERBOSE,
)
"""A line of a file with its number, an item of a list with its status, a complaint with its place."""
_WORD = late_pattern(r"\w")
_DIFF_START = late_pattern(r"(?:@@ -\d|--- \S|diff --)")
_DIFF_LINE = late_pattern(r"(?:[-+ @\\]|diff --|index )")
_FILE = late_pattern(r"[\w.~+@-]*[\w-]\.[A-Za-z]\w{0,7}\b")
MAX_NAME_LENGTH = 300
_MARKS = "\"'`,;:()[].-*\u2022"


def files_noted_in(message: Message) -> tuple[str, ...] | None:
    """Names of the files that a client's note on the state of things tells of, without folders; None for any other
    message. A message with anything else in it is none: an order may stand behind a note."""
    if message.answers or message.role not in ("user", *INSTRUCTION_ROLES) or len(message.text) > MAX_NOTE_LENGTH:
        return None
    key = message.role, message.text
    if (known := _known_notes.find(key)) is None:
        known = _known_notes.keep(key, _Noted(_files_noted(message)), len(message.text))
    return known.files


class _Noted(NamedTuple):
    files: tuple[str, ...] | None


_known_notes = RecentCache[tuple[str, str], _Noted](MAX_CACHED_CHARACTERS)


def _files_noted(message: Message) -> tuple[str, ...] | None:
    text = message.text.strip().replace("\u2019", "'")
    if message.role == "user" and not (_is_bracketed(text) or (text.startswith("<") and is_client_elements(text))):
        return None
    if queued_words(message):
        return None
    files: dict[str, None] = {}
    parts = [part.strip() for part in _CLIENT_TAGS.split(text) if part.strip()]
    for part in parts:
        found = _files_in_note(_TAGS.sub("", part).strip())
        if found is None:
            return None
        files |= dict.fromkeys(found)
    return tuple(files) if parts and len(files) <= MAX_FILES else None


def _files_in_note(text: str) -> list[str] | None:
    """The files that one note names, none for a note on the todo list; None for a text that says anything else too."""
    sentences = _sentences(text[1:-1] if _is_bracketed(text) else text)
    first = next(sentences, "")
    is_on_files = not _TODO_NOTE.match(first)
    if is_on_files and not (_NOTE.match(first) and _says_only(first, _WORDS_OF_NOTES)):
        return None
    files = _FILE.findall(first) if is_on_files else []
    for sentence in sentences:
        if _FURTHER_SENTENCE.match(sentence):
            continue
        words = _WORDS_OF_NOTES if _NOTE.match(sentence) else _WORDS_OF_LISTS
        if not (is_on_files and _says_only(sentence, words)):
            return None
        files += _FILE.findall(sentence)
    return files if files or not is_on_files else None


def _is_bracketed(text: str) -> bool:
    return text.startswith("[") and text.endswith("]")


def _sentences(text: str) -> Iterator[str]:
    """The sentences of a note, without the lines of files and lists that it shows."""
    is_fenced = is_diff = False
    for line in text.split("\n"):
        if line.startswith("```"):
            is_fenced = not is_fenced
            continue
        is_diff = bool(_DIFF_START.match(line)) or (is_diff and bool(_DIFF_LINE.match(line)))
        if not (is_fenced or is_diff or _QUOTED_LINE.match(line.lstrip())):
            yield from filter(_WORD.search, map(str.strip, _SENTENCE_END.split(_without_json_list(line))))
    if is_fenced:
        yield text  # it is not known what belongs to the file


def _without_json_list(line: str) -> str:
    start, end = line.find("[{"), line.rfind("}]")
    return line[:start] + line[end + 2 :] if 0 <= start < end else line


def _says_only(sentence: str, words: Collection[str]) -> bool:
    """Whether a sentence has no words but these, numbers and names of files."""
    found = (word.strip(_MARKS).casefold() for word in _WHEN_READ.sub("", sentence).split())
    return all(
        not word or word in words or (len(word) <= MAX_NAME_LENGTH and (word.isdigit() or _FILE.search(word)))
        for word in found
    )
