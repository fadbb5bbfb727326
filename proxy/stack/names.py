"""Names: the words of a conversation that later work comes back to, and which of them are worth their tokens.

A name is a path, an identifier, an error, a number or an id: what a summary in prose loses first and what nobody can
guess again. The words of a span are counted in one pass and only the distinct ones are looked at, so that a long span
costs milliseconds.

The law: **the same messages give the same names in the same order**. Nothing here knows a client, a language of
programming or a tool; what counts is the shape of a word, who said it, how often, and when last.

What this module does not do: it renders nothing, and it knows no tokenizer; the price of a name is estimated.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from proxy.stack.transcript import Message

LONGEST = 160
"""Characters of a name; what is longer is data."""
SHORTEST = 5
"""Characters of a name without digits; shorter ones cost as much to write again as to remember."""


class Kind(StrEnum):
    PATH = "path"
    ERROR = "error"
    NUMBER = "number"
    IDENTIFIER = "identifier"


SAID_BY: Mapping[str, float] = {"assistant": 3.0, "call": 3.0, "user": 2.0, "tool": 0.3}
"""Weight of one more mention, by who made it: what the assistant used once it uses again."""
WORTH: Mapping[Kind, float] = {Kind.PATH: 1.0, Kind.ERROR: 1.2, Kind.NUMBER: 1.2, Kind.IDENTIFIER: 1.0}
SATURATION = 2.0
"""Mentions after which further ones add less than half of the first."""
OLDEST = 0.6
"""Worth of a name that was last said at the beginning of the span; at its end it is 1."""


# -------------------------------------------------------------------------------------------------------------- words
_WORD = re.compile(r"[\w.@+~$/#-]*\w")
_ESCAPED = re.compile(r'\\(?:[bfnrt"\\/]|u[0-9a-fA-F]{4})')
_NUMBER = re.compile(
    r"""[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}     # a UUID
      | (?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,40} # a hash
      | \d{4}-\d\d-\d\d\w*                              # a date
      | v?\d+\.\d+\.\d+[\w.-]*                          # a version
      | [A-Z]{2,}-?\d{2,}                               # a ticket
      | \#?[A-Z]?\d{4,}                                 # an id
      | \$\d[\d.]*                                      # an amount
    """,
    re.VERBOSE,
)
_IDENTIFIER = re.compile(
    r"[^\W_]+(?:_[^\W_]+)+"  # snake_case
    r"|[A-Za-z][a-z0-9]+(?:[A-Z][A-Za-z0-9]*)+"  # camelCase
)
_ERROR = re.compile(r"[A-Z]\w*(?:Error|Exception|Warning|Failure|Fault)")
_FILE = re.compile(r"[\w-][\w.-]*\.[a-z][a-z0-9]{0,4}")


def words_of(message: Message) -> Iterable[tuple[str, list[str]]]:
    """Who says what: the words of its text and those of its calls' arguments."""
    if message.text:
        yield message.role, _WORD.findall(message.text)
    for call in message.calls:
        yield "call", _WORD.findall(_ESCAPED.sub(" ", call.arguments))


@lru_cache(maxsize=65_536)
def names_in_word(word: str) -> tuple[tuple[str, Kind], ...]:
    """The names that a run of characters without white space is or holds: a path, or the parts of a dotted name."""
    word = word.strip(".-+#/~" if word.endswith("/") else ".-+~")
    if len(word) < SHORTEST - 1 or len(word) > LONGEST:
        return ()
    if "/" in word.strip("/"):
        return ((word.removeprefix("./"), Kind.PATH),) if any(map(str.isalpha, word)) else ()
    return tuple(_plain_names(word.strip("/@")))


def _plain_names(word: str) -> Iterable[tuple[str, Kind]]:
    if _NUMBER.fullmatch(word):
        yield word, Kind.NUMBER
    elif _ERROR.fullmatch(word):
        yield word, Kind.ERROR
    elif "." in word and _FILE.fullmatch(word) and not _is_dotted_name(word):
        yield word, Kind.PATH
    else:
        for part in word.split(".") if "." in word else (word,):
            if _ERROR.fullmatch(part):
                yield part, Kind.ERROR
            elif _NUMBER.fullmatch(part):
                yield part, Kind.NUMBER
            elif len(part) >= SHORTEST:
                yield from ((found, Kind.IDENTIFIER) for found in _IDENTIFIER.findall(part) if len(found) >= SHORTEST)


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


def _is_dotted_name(word: str) -> bool:
    return word.rpartition(".")[2].casefold() not in ENDINGS


# ------------------------------------------------------------------------------------------------------------- ranking
@dataclass(slots=True)
class _Seen:
    kind: Kind
    by: dict[str, int]
    last: int


@dataclass(frozen=True, slots=True)
class Named:
    """A name, and what it is worth over what it costs."""

    name: str
    kind: Kind
    score: float


def names_in(messages: Iterable[Message]) -> frozenset[str]:
    """Every name that these messages show, whoever said it."""
    words: set[str] = set()
    for message in messages:
        for _, found in words_of(message):
            words.update(found)
    return frozenset(name for word in words for name, _ in names_in_word(word))


def ranked_names(messages: Sequence[Message], known: Collection[str] = ()) -> tuple[Named, ...]:
    """The names that leave with `messages`, the one most worth its tokens first; those in `known` are left out."""
    seen: dict[str, _Seen] = {}
    for at, message in enumerate(messages):
        for speaker, words in words_of(message):
            counted: dict[str, int] = {}
            for word in words:
                counted[word] = counted.get(word, 0) + 1
            for word, times in counted.items():
                for name, kind in names_in_word(word):
                    found = seen.get(name)
                    if found is None:
                        seen[name] = _Seen(kind, {speaker: times}, at)
                    else:
                        found.by[speaker] = found.by.get(speaker, 0) + times
                        found.last = at
    whole = _longest_forms(seen)
    last = max(1, len(messages) - 1)
    scored = [
        Named(name, s.kind, _worth(s, s.last / last) / price(name)) for name, s in whole.items() if name not in known
    ]
    return tuple(sorted(scored, key=lambda named: (-named.score, named.name)))


def _worth(seen: _Seen, recency: float) -> float:
    said = sum(SAID_BY.get(who, SAID_BY["tool"]) * times / (times + SATURATION) for who, times in seen.by.items())
    return WORTH[seen.kind] * said * (OLDEST + (1 - OLDEST) * recency)


def price(name: str) -> float:
    """Tokens that a name takes in a list, as an estimate: letters are cheap, borders and digits are not."""
    return 1.0 + len(name) / 5


def _longest_forms(seen: dict[str, _Seen]) -> dict[str, _Seen]:
    """A file that is named by its path and by its ending alone is one name, the longest one, with all mentions."""
    ends: dict[str, str] = {}
    for name in sorted((n for n, s in seen.items() if s.kind is Kind.PATH), key=len, reverse=True):
        longer = ends.get(name)
        if longer is not None:
            _merge(seen[longer], seen.pop(name))
            continue
        rest = name
        while "/" in rest:
            rest = rest.partition("/")[2]
            ends.setdefault(rest, name)
    return seen


def _merge(into: _Seen, other: _Seen) -> None:
    for who, times in other.by.items():
        into.by[who] = into.by.get(who, 0) + times
    into.last = max(into.last, other.last)
