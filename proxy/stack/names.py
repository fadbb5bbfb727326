"""Names: the words of a conversation that later work comes back to, and which of them are worth their tokens.

A name is a path, an identifier, an error, a number or an id: what a summary in prose loses first and what nobody can
guess again. The words of a span are counted in one pass and only the distinct ones are looked at, so that a long span
costs milliseconds.

The law: **the same messages give the same names in the same order**. Nothing here knows a client, a programming
language or a tool; what counts is the shape of a word, who said it, how often, and when last.

What this module does not do: it renders nothing, and it knows no tokenizer; the price of a name is estimated.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from proxy.stack.transcript import Message

LONGEST = 160
"""Characters of a name; what is longer is data."""
SHORTEST = 5
"""Characters of an identifier; a shorter one is as well written again as remembered."""
SHORTEST_WORD = 4
"""Characters of a word that is looked at: four digits are a year, a port or an id."""


class Kind(StrEnum):
    PATH = "path"
    ERROR = "error"
    NUMBER = "number"
    IDENTIFIER = "identifier"


ASSISTANT, USER, TOOL = "assistant", "user", "tool"
SAID_BY: Mapping[str, float] = {ASSISTANT: 3.0, USER: 2.0, TOOL: 0.3}
"""What a mention counts, by who made it: what the assistant used once it uses again; most of an output, never."""
WORTH: Mapping[Kind, float] = {Kind.PATH: 1.0, Kind.ERROR: 1.0, Kind.NUMBER: 0.7, Kind.IDENTIFIER: 1.0}
"""Numbers are many, and most of them are sizes and times."""
SATURATION = 2.0
"""Mentions that give half of what any number of them gives."""
OLDEST = 0.6
"""What a name keeps of its worth when it was last said at the beginning of the span; at its end it keeps all."""

ENDINGS = frozenset(
    [
        "py",
        "pyi",
        "go",
        "ts",
        "tsx",
        "js",
        "jsx",
        "mjs",
        "cjs",
        "rs",
        "java",
        "kt",
        "c",
        "h",
        "cc",
        "cpp",
        "hpp",
        "cs",
        "md",
        "rst",
        "json",
        "jsonl",
        "yaml",
        "yml",
        "toml",
        "sh",
        "bash",
        "sql",
        "ex",
        "exs",
        "eex",
        "heex",
        "erl",
        "hs",
        "ml",
        "txt",
        "cfg",
        "ini",
        "conf",
        "env",
        "html",
        "css",
        "scss",
        "rb",
        "php",
        "pl",
        "lua",
        "swift",
        "ipynb",
        "csv",
        "tsv",
        "xml",
        "svg",
        "png",
        "jpg",
        "gif",
        "pdf",
        "lock",
        "log",
        "gz",
        "zip",
        "tar",
        "proto",
        "vue",
        "svelte",
        "tf",
        "gradle",
        "mod",
        "sum",
        "patch",
        "diff",
        "tmpl",
        "po",
    ]
)
"""What a file name ends in; `os.path` and `self.assertEqual` have a dot as well."""


# -------------------------------------------------------------------------------------------------------------- words
_WORD = re.compile(r"[\w.@+~$/#-]*\w")
_ARGUMENT = re.compile(r"(?:\\[nrt])?[\w.@+~$/#-]*\w")
"""Arguments travel as JSON: a word at the beginning of a line stands behind an escaped tab or line end there."""
_KEY = re.compile(r'"\w+":')
_LINE_NUMBER = re.compile(r"(\.[a-z]{1,4})-\d+$")
"""Behind a path, as searches print it."""
_NUMBER = re.compile(
    r"""[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}     # a UUID
      | (?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,40} # a hash
      | \d{4}-\d\d-\d\d[\w-]*                           # a date, or an id that begins with one
      | v?\d+\.\d+\.\d+[\w.-]*                          # a version
      | [A-Z]{2,}-?\d{2,}                               # a ticket
      | \#?[A-Z]?\d{4,}                                 # an id
      | \$\d[\d.]*                                      # an amount
    """,
    re.VERBOSE,
)
_ERROR = re.compile(r"[A-Z]\w*(?:Error|Exception|Warning|Failure|Fault)")
_IDENTIFIER = re.compile(
    r"[^\W_]+(?:_[^\W_]+)+"  # snake_case
    r"|[A-Za-z][a-z0-9]+(?:[A-Z][A-Za-z0-9]*)+"  # camelCase
)
_PIECE = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d{1,3}|[^A-Za-z\d]")


def names_in_text(text: str) -> frozenset[str]:
    return frozenset(name for word in set(_WORD.findall(text)) for name, _ in names_in_word(word))


def names_in(messages: Iterable[Message]) -> frozenset[str]:
    """Every name that these messages show, whoever said it."""
    words = {word for message in messages for _, said in _words_of(message) for word in said}
    return frozenset(name for word in words for name, _ in names_in_word(word))


def _words_of(message: Message) -> Iterator[tuple[str, list[str]]]:
    """Who says which words: the text of a message, and the arguments of its calls without the names of parameters."""
    if message.text:
        yield message.role, _WORD.findall(message.text)
    for call in message.calls:
        yield ASSISTANT, _ARGUMENT.findall(_KEY.sub(" ", call.arguments))


@lru_cache(maxsize=65_536)
def names_in_word(word: str) -> tuple[tuple[str, Kind], ...]:
    """The names that a run of characters without white space is or holds: a path, a number, the parts of a dotted
    name. One that stood behind an escape keeps it (`\\tsetUp`), since that is how it stands where it is used again."""
    escape, word = (word[:2], word[2:]) if word.startswith("\\") else ("", word)
    word = word.lstrip("-+").rstrip(".-+~$/#")
    if not SHORTEST_WORD <= len(word) <= LONGEST:
        return ()
    if "/" in word.strip("/"):
        path = _LINE_NUMBER.sub(r"\1", word).removeprefix("./")
        return ((path, Kind.PATH),) if any(map(str.isalpha, path)) else ()
    word = word.strip("./@~")
    found = tuple(_plain_names(word))
    if escape and found and word.startswith(found[0][0]):
        return ((escape + found[0][0], found[0][1]), *found[1:])
    return found


def _plain_names(word: str) -> Iterator[tuple[str, Kind]]:
    """The names in a word without slashes."""
    if _NUMBER.fullmatch(word):
        yield word, Kind.NUMBER
        return
    head, dot, ending = word.rpartition(".")
    if dot and head and ending in ENDINGS:
        yield word, Kind.PATH
        return
    for part in word.split("."):
        if _ERROR.fullmatch(part):
            yield part, Kind.ERROR
        elif _NUMBER.fullmatch(part):
            yield part, Kind.NUMBER
        else:
            yield from ((found, Kind.IDENTIFIER) for found in _IDENTIFIER.findall(part) if len(found) >= SHORTEST)


# ------------------------------------------------------------------------------------------------------------- ranking
@dataclass(frozen=True, slots=True)
class Named:
    """A name, and what it is worth over what it costs."""

    name: str
    kind: Kind
    score: float


@dataclass(slots=True)
class _Seen:
    """What is known of one name while a span is counted: mentions by speaker, and the message of the last one."""

    kind: Kind
    by: Counter[str]
    last: int

    def add(self, other: _Seen) -> None:
        self.by += other.by
        self.last = max(self.last, other.last)


def ranked_names(messages: Sequence[Message], known: Collection[str] = ()) -> tuple[Named, ...]:
    """The names that leave with `messages`, the one most worth its tokens first; those in `known` are left out."""
    seen = _whole_paths(_counted(messages))
    last = max(1, len(messages) - 1)
    named = [
        Named(name, s.kind, _worth(s, s.last / last) / price(name)) for name, s in seen.items() if name not in known
    ]
    return tuple(sorted(named, key=lambda one: (-one.score, one.name)))


def price(name: str) -> int:
    """Tokens that a name takes in a list, as an estimate: one for each run of letters of one word, each three digits
    and each sign between them."""
    return len(_PIECE.findall(name))


def _worth(seen: _Seen, recency: float) -> float:
    said = sum(SAID_BY.get(who, SAID_BY[TOOL]) * times / (times + SATURATION) for who, times in seen.by.items())
    return WORTH[seen.kind] * said * (OLDEST + (1 - OLDEST) * recency)


def _counted(messages: Sequence[Message]) -> dict[str, _Seen]:
    seen: dict[str, _Seen] = {}
    for at, message in enumerate(messages):
        for speaker, words in _words_of(message):
            for word, times in Counter(words).items():
                for name, kind in names_in_word(word):
                    if name not in seen:
                        seen[name] = _Seen(kind, Counter(), at)
                    seen[name].by[speaker] += times
                    seen[name].last = at
    return seen


def _whole_paths(seen: dict[str, _Seen]) -> dict[str, _Seen]:
    """A file that is named by its path and by an end of that path is one name, the longest, with all mentions."""
    longest: dict[str, str] = {}
    for name in sorted((n for n, s in seen.items() if s.kind is Kind.PATH), key=lambda n: (-len(n), n)):
        if name in longest:
            seen[longest[name]].add(seen.pop(name))
            continue
        rest = name
        while "/" in rest:
            rest = rest.partition("/")[2]
            longest.setdefault(rest, name)
    return seen
