"""Recognises what a client notes beside the agent's work of the state of things: which files somebody changed, what a
language server says of them, what is in the todo list. It was true at that moment, and is stale once the work that it
stands in has left."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import NamedTuple

import msgspec

from proxy.core.ledger import INSTRUCTION_ROLES, Message
from proxy.core.memo import RecentCache, late_pattern
from proxy.core.observers import is_client_elements, queued_words
from proxy.core.word_lists import read_table, with_parts

MAX_NOTE_LENGTH = 20_000  # a longer text is looked at no further
MAX_CACHED_CHARACTERS = 1 << 20  # of all texts whose files are cached: each is asked for with every request
MAX_FILES = 50  # of a note on more of them nobody searches where each was named
_CLIENT_TAGS = late_pattern(r"(?:</?(?:system|environment|ide|new|file|todo)[-_][a-z_-]+>\s*)+")
_TAGS = late_pattern(r"\A(?:\s*<[\w-]{1,40}>)+|(?:</[\w-]{1,40}>\s*){1,4}\Z")


class _Wording(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The expressions of `client_notes.toml`, which says of each what it is for."""

    note: str
    further_sentence: str
    todo_note: str
    quoted_line: str
    words: str
    parts: dict[str, str]


_WORDING = read_table(__package__, "client_notes.toml", _Wording)
_NOTE, _FURTHER_SENTENCE, _TODO_NOTE, _QUOTED_LINE = (
    late_pattern(with_parts(expression, _WORDING.parts), re.IGNORECASE | re.VERBOSE)
    for expression in (_WORDING.note, _WORDING.further_sentence, _WORDING.todo_note, _WORDING.quoted_line)
)
_WORDS_OF_NOTES = frozenset(_WORDING.words.split())
_WORDS_OF_LISTS = frozenset(["and", "file", "files"])
_WHEN_READ = late_pattern(
    r"\b(?:since|after|that|which)?\s?(?:you(?:'ve|\shave)?|your)\s(?:last\s|previously\s)?read(?:\s(?:it|them))?\b",
    re.IGNORECASE,
)
_SENTENCE_END = late_pattern(r"(?<!\bie\.)(?<!\bi\.e\.)(?<!\be\.g\.)(?<=[.!?])[ \t]+")
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
