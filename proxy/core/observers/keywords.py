"""Extracts names from messages (paths, identifiers, errors, numbers, ids) and ranks them by their worth per token, for
the trace that replaces finished work.

Ranking uses only the shape of a word, who said it, how often, and its length; recency, kind and document frequency made
no difference on recordings. The same messages give the same names in the same order. Names of each text are cached
(`cache_names` fills the cache while a text is new), so a trace of a long span takes about a millisecond.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Container, Generator, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TypeVar

import msgspec

from proxy.core.ledger import Call, Message
from proxy.core.memo import TextCache

CachedValue = TypeVar("CachedValue")

CACHED_WORDS = 16_384  # cached words and prices: work repeats the same words
MAX_CACHED_CHARACTERS = 4 << 20
"""Characters of all texts whose names are cached, which is as much memory again for the names: six large conversations.
Long texts are not cached at all."""
MAX_CACHED_ARGUMENT_CHARACTERS = 1 << 20
"""The same for arguments of calls."""
MAX_CACHED_TEXT_LENGTH = 32_768
SLICE_LENGTH = 32_768  # characters per slice: 1 ms where most words are new
MAX_NAME_LENGTH = 160  # characters; longer ones are data
MIN_IDENTIFIER_LENGTH = 5  # a shorter identifier costs as little to write again
MIN_WORD_LENGTH = 4  # four digits are a year, a port or an id

ASSISTANT, USER, TOOL = "assistant", "user", "tool"
SPEAKER_WEIGHTS: Mapping[str, float] = {ASSISTANT: 3.0, USER: 2.0, TOOL: 0.3}
"""Weight of a mention: the assistant uses its own words again; most of an output is never used."""
OFTEN = 4
"""Mentions from which on a name that only outputs have is one of the work."""
MENTION_SATURATION = 2.0  # mentions that give half of the maximum weight

_FILE_EXTENSIONS = (
    "py pyi go ts tsx js jsx mjs cjs rs java kt c h cc cpp hpp cs md rst json jsonl yaml yml toml sh bash sql ex exs "
    "eex heex erl hs ml txt cfg ini conf env html css scss rb php pl lua swift ipynb csv tsv xml svg png jpg gif pdf "
    "lock log gz zip tar proto vue svelte tf gradle mod sum patch diff tmpl po"
)
FILE_EXTENSIONS = frozenset(_FILE_EXTENSIONS.split())  # a dot alone is no file name: `os.path`


_LAST_CHARACTER = r"[A-Za-z0-9_\w]"
_WORD_CHARACTER = r"[A-Za-z0-9_.@+~$/#\w-]"
r"""ASCII is spelled out beside `\w`, which is faster, and a lookahead avoids trying both on white space: together a
third less time."""
_WORD = re.compile(rf"(?={_WORD_CHARACTER})(?:\$[\d,]*\d[\d.]*|{_WORD_CHARACTER}*{_LAST_CHARACTER})")
_SEPARATORS_TO_SPACES = {code: " " for code in range(128) if not re.match(_WORD_CHARACTER, chr(code))}
_PARAMETER_WORD = re.compile(r"\w+")
_PARAMETER_NAME = re.compile(r'"\w+":')
_LINE_NUMBER_SUFFIX = re.compile(r"(\.[a-z]{1,4})-\d+$")  # searches print it behind a path
_NUMBER_OR_ID = re.compile(
    r"""[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}     # a UUID
      | (?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,40} # a hash
      | \d{4}-\d\d-\d\d[\w-]*                           # a date, or an id that begins with one
      | v?\d+\.\d+\.\d+[\w.-]*                          # a version
      | [A-Z]{2,}-?\d{2,}                               # a ticket
      | \#?[A-Z]?\d{4,}                                 # an id
      | \$[\d,.]+                                       # an amount
      | [\w.+-]+@[\w-]+\.[\w.-]+                        # an address
    """,
    re.VERBOSE,
)
_IDENTIFIER = re.compile(
    r"(?<![^\W_])(?:(?<!\w)__?)?(?:"  # from the beginning of its word, with the underscores of a private name
    r"[A-Z]\w*(?:Error|Exception|Warning|Failure|Fault)\b"
    r"|[^\W_]+(?:_[^\W_]+)+(?:__\b)?"  # snake_case
    r"|[A-Za-z][A-Za-z0-9]*[a-z0-9][A-Z][A-Za-z0-9]*)"  # camelCase
)
_TOKEN_PIECE = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d{1,3}|[^A-Za-z\d]")


_LEADING_ESCAPE = re.compile(r"\\[nrt]")
_ESCAPE_IN_TEXT = re.compile(r"\b([A-Za-z]:(?:\\[\w.~-]+)+)|(?:\x1b|\\u001b|\\x1b|\\033)\[[\d;]{0,20}[A-Za-z]|\\[nrt]")
"""Of a line end, a tab or a color. In a path of Windows a backslash escapes nothing."""
_CUT_WORDS = re.compile(rf"(?:(?<!{_WORD_CHARACTER}){_WORD_CHARACTER}+)?…{_WORD_CHARACTER}*")
_CUT_BY_DOTS = re.compile(rf"(?<!{_WORD_CHARACTER}){_WORD_CHARACTER}*\w\.\.\.(?!{_WORD_CHARACTER}|\))")
"""What a text was cut to has no whole word beside the sign for it. `more...)` passes a list on."""
_FORMATTED = re.compile(rf"%[dfiqrsvx]{_WORD_CHARACTER}*")
"""`%s.json` is no file: a program puts something in its place."""
_JOINED_WORD = r"(?:[A-Za-z]?[a-z]+|[A-Z]+)(?:-[a-z]+)*"
_NOISE = re.compile(
    r"""\W*\d[\d\W]*                                    # line numbers, sizes, times
      | (?=[0-9a-f]*\d)[0-9a-f]{7,40}(?:/\d+)? | [0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}  # hashes
      | \d{4}-\d\d-\d\d\S*                             # dates, and ids that begin with one
      | 0x[0-9a-f]+ | arg_?\d+ | in_progress | is_error | exit_code | tool_use_error | files_with_matches | agentId
      | f[a-z2-7]{8} | toolu_\w+ | (?:call|msg|resp|chatcmpl|run)_\w{6,} # frames and calls
      | (?-i:[a-z]{2,8}_(?=\w*[a-z])(?=\w*[A-Z])(?=\w*\d)[A-Za-z\d]{8,}) # and what else has a random id
      | (?-i:test_\w+ | Test\w*[_/]\S+ | Test(?:[A-Z][a-z\d]+){2,}) # functions that test
      | \S+@\S+\.\w+                                   # addresses of people
      | (?-i:WORD(?:/WORD){1,2}) # "and/or": a path has a sign of one, or more parts
      | /?(?:foo|ba[rz])(?:/(?:foo|ba[rz]))*             # names of nothing
      | s/\S+/\S* | /?\w+/[dgimpsuy]{1,3}  # replacements, and what follows one
      | (?:https?:)?//\S* | (?:www\.)?[\w-]+(?:\.[\w-]+)*\.(?:com|org|io|net|dev)(?:/\S*)?  # of pages and packages
    """.replace("WORD", _JOINED_WORD),
    re.VERBOSE | re.IGNORECASE,
)


def clean_name(name: str) -> str:
    """The name without what its text had around it; empty if it means nothing without that text."""
    plain = _LEADING_ESCAPE.sub("", name, count=1)
    return "" if len(plain) < MIN_WORD_LENGTH or _NOISE.fullmatch(plain) else plain


def names_in_word(word: str) -> tuple[str, ...]:
    """The names in a run of characters without white space: a path, a number, parts of a dotted name."""
    if word[1:].islower() and word.isalpha():
        return ()  # nearly every word, and no name
    if word.isdecimal():
        return (word,) if MIN_WORD_LENGTH <= len(word) <= MAX_NAME_LENGTH else ()
    word = word.lstrip("-+").rstrip(".-+~$/#@")
    if not MIN_WORD_LENGTH <= len(word) <= MAX_NAME_LENGTH:
        return ()
    if "/" in word.strip("/"):
        path = _LINE_NUMBER_SUFFIX.sub(r"\1", word).removeprefix("./")
        return (path,) if any(map(str.isalpha, path)) else ()
    return _names_without_slashes(word.strip("./@~"))


def _names_without_slashes(word: str) -> tuple[str, ...]:
    pieces = word.split(".")
    if len(pieces) == 1:
        return _names_in_part(word)
    if pieces[-1] in FILE_EXTENSIONS or _NUMBER_OR_ID.fullmatch(word):
        return (word,)
    return tuple(chain.from_iterable(map(_names_in_part, pieces)))


def _names_in_part(part: str) -> tuple[str, ...]:
    """The names between two dots. Lowercase words have none; the pre-check saves 1 to 3 us."""
    is_lowercase = part.islower()
    if is_lowercase and part.isalpha():
        return ()
    if _NUMBER_OR_ID.fullmatch(part):
        return (part,)
    if is_lowercase and "_" not in part:
        return ()
    return tuple([found for found in _IDENTIFIER.findall(part) if len(found) >= MIN_IDENTIFIER_LENGTH])


class _BoundedCache(dict[str, CachedValue]):
    """A cache that is emptied when full: tracking recency would take as long again as a lookup."""

    def __init__(self, compute: Callable[[str], CachedValue]) -> None:
        super().__init__()
        self._compute = compute

    def __missing__(self, word: str) -> CachedValue:
        if len(self) >= CACHED_WORDS:
            self.clear()
        value = self[word] = self._compute(word)
        return value


def _names_of_new_word(word: str) -> tuple[str, ...]:
    """The names in a new word, priced at once, because a ranking asks for all prices together."""
    names = names_in_word(word)
    for name in names:
        _token_estimates[name]
    return names


_names_by_word = _BoundedCache(_names_of_new_word)


def names_in_text(text: str) -> frozenset[str]:
    return frozenset(chain.from_iterable(map(_names_by_word.__getitem__, set(_split_words(_without_cut_words(text))))))


def names_in_arguments(call: Call) -> frozenset[str]:
    return frozenset(_cached_names_of_arguments(call.arguments))


def names_in_messages(messages: Iterable[Message]) -> frozenset[str]:
    """Every name in the messages, whoever said it."""
    return frozenset().union(*(names for message in messages for _, names in _names_by_speaker(message)))


def names_still_visible(staying: Iterable[Message], parts: Sequence[Iterable[Message]]) -> list[Container[str]]:
    """For each of `parts`, the names still visible if that part alone leaves: those of `staying` and of the other
    parts. Each message is read once; those of an only part not at all."""
    if len(parts) < 2:
        return [names_in_messages(staying) for _ in parts]
    names_by_part = [names_in_messages(part) for part in parts]
    counts = Counter(chain(names_in_messages(staying), *names_by_part))
    return [_NamesShownElsewhere(counts, part_names) for part_names in names_by_part]


class _NamesShownElsewhere(msgspec.Struct, frozen=True):
    """Counts of places per name, without the one place that leaves."""

    count_by_name: Mapping[str, int]
    own_names: Container[str]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.count_by_name.get(name, 0) > (name in self.own_names)


def cache_names(messages: Iterable[Message]) -> None:
    """Fill the cache with new messages, before their names are asked for all at once."""
    for message in messages:
        if len(message.text) <= MAX_CACHED_TEXT_LENGTH:
            _cached_names_of_text(message.text)
        if message.role == TOOL:
            _cached_definitions(message.text)
        for call in message.calls:
            if len(call.arguments) <= MAX_CACHED_TEXT_LENGTH:
                _cached_names_of_arguments(call.arguments)


def cache_names_in_slices(messages: Iterable[Message]) -> Generator[None, None, None]:
    """The same in slices, with a pause after each one and after the last."""
    size = 0
    for message in messages:
        cache_names((message,))
        size += len(message.text)
        if size >= SLICE_LENGTH:
            size = 0
            yield
    yield


def _names_by_speaker(message: Message) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Names by speaker, repeated as often as said: from the text, and from call arguments without parameter names."""
    if text := message.text:
        yield (
            message.role,
            _cached_names_of_text(text) if len(text) <= MAX_CACHED_TEXT_LENGTH else _names_in_order(text),
        )
    for call in message.calls:
        arguments = call.arguments
        yield (
            ASSISTANT,
            _cached_names_of_arguments(arguments)
            if len(arguments) <= MAX_CACHED_TEXT_LENGTH
            else _names_in_arguments(arguments),
        )


def _split_words(text: str) -> list[str]:
    """Words of a text, in order. In ASCII text splitting at the other characters takes a quarter of the time. A comma
    may stand inside an amount."""
    if text.isascii() and "$" not in text:
        return text.translate(_SEPARATORS_TO_SPACES).split()
    return _WORD.findall(text)


def _names_in_arguments(arguments: str) -> tuple[str, ...]:
    try:
        decoded = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, RecursionError):
        decoded = arguments  # a free form, or an answer that broke off
    return _names_in_order("\n".join(_texts_of_value(decoded)))


def _texts_of_value(value: object) -> Iterator[str]:
    """The values in decoded arguments as texts, in order, and keys that are no names of parameters."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            for key, inner in reversed(item.items()):
                waiting.append(inner)
                if not _PARAMETER_WORD.fullmatch(key):
                    waiting.append(key)
        elif isinstance(item, list):
            waiting.extend(reversed(item))
        elif item is not None:
            yield str(item)


_DIFF_LINE = re.compile(
    r"(?:(?<=\n)|(?<=\\n)|\A)(?P<both>diff --git) [a-z]/(?P<old>\S+) [a-z]/(?=\S)"
    r"|(?:(?<=\n)|(?<=\\n)|\A)(?P<side>---|\+\+\+) [a-z]/(?=\S)"
)


def _without_diff_prefixes(text: str) -> str:
    """The text without the `a/` and `b/` that a diff sets before its paths."""
    if not any(sign in text for sign in ("+++ ", "--- a/", "diff --git ")):
        return text
    return _DIFF_LINE.sub(lambda line: f"{line['side']} " if line["side"] else f"{line['both']} {line['old']} ", text)


def _without_cut_words(text: str) -> str:
    text = _CUT_WORDS.sub(" ", text) if "…" in text else text
    text = _CUT_BY_DOTS.sub(" ", text) if "..." in text else text
    return _FORMATTED.sub(" ", text) if "%" in text else text


def _without_escapes(text: str) -> str:
    is_plain = "\\" not in text and "\x1b" not in text
    return text if is_plain else _ESCAPE_IN_TEXT.sub(lambda escape: escape[1] or " ", text)


def _names_in_order(text: str) -> tuple[str, ...]:
    """An escaped line end or tab in an output is no letter of the word behind it, and a key of JSON is no name."""
    text = _without_escapes(_without_diff_prefixes(text))
    if text[:1] in ("{", "["):
        text = _PARAMETER_NAME.sub(" ", text)
    return tuple(chain.from_iterable(map(_names_by_word.__getitem__, _split_words(_without_cut_words(text)))))


_cached_names_of_text = TextCache(_names_in_order, MAX_CACHED_CHARACTERS)
_cached_names_of_arguments = TextCache(_names_in_arguments, MAX_CACHED_ARGUMENT_CHARACTERS)


_ERROR_ENDINGS = ("Error", "Exception", "Warning")
_DEFINITION = re.compile(
    r"\b(?:class|defmodule|defp?|enum|fn|func|function|interface|module|struct|trait|type)\s+"
    r"(?:\([^)\n]{0,80}\)\s*)?(\w{5,80})"
)


_cached_definitions = TextCache(lambda text: tuple(_DEFINITION.findall(_without_escapes(text))), MAX_CACHED_CHARACTERS)


def passing_names(messages: Sequence[Message]) -> frozenset[str]:
    """Words that only outputs have, that these do not define, and have seldom: mostly what a language and its libraries
    bring. Paths, files, errors and data are none."""
    by_speaker = _mentions_by_speaker(messages)
    defined = frozenset().union(*(_cached_definitions(m.text) for m in messages if m.role == TOOL))
    seldom = (name for name, times in by_speaker.pop(TOOL, Counter()).items() if times < OFTEN and name not in defined)
    words = (name for name in seldom if name.replace("_", "").isalpha() and not name.endswith(_ERROR_ENDINGS))
    return frozenset(words).difference(*by_speaker.values())


def rank_names(messages: Iterable[Message], known: Container[str] = ()) -> tuple[str, ...]:
    """Names in `messages` that are not in `known`, highest worth per token first, ties in order of appearance."""
    worths: dict[str, float] = {}
    for speaker, mentions in _mentions_by_speaker(messages).items():
        by_times = {times: mention_weight(speaker, times) for times in set(mentions.values())}
        for name, times in mentions.items():
            worths[name] = worths.get(name, 0.0) + by_times[times]
    scores = {name: total / _token_estimates[name] for name, total in worths.items() if name not in known}
    return tuple(sorted(scores, key=scores.__getitem__, reverse=True))


def mention_weight(speaker: str, times: int) -> float:
    return SPEAKER_WEIGHTS.get(speaker, SPEAKER_WEIGHTS[TOOL]) * times / (times + MENTION_SATURATION)


def estimated_tokens(name: str) -> int:
    """An estimate: one token per run of letters of one case, per three digits, and per sign between."""
    return max(1, len(_TOKEN_PIECE.findall(name)))


_token_estimates = _BoundedCache(estimated_tokens)


def _mentions_by_speaker(messages: Iterable[Message]) -> dict[str, Counter[str]]:
    names_by_speaker: dict[str, list[tuple[str, ...]]] = {}
    for message in messages:
        for speaker, names in _names_by_speaker(message):
            names_by_speaker.setdefault(speaker, []).append(names)
    return {speaker: Counter(chain.from_iterable(name_lists)) for speaker, name_lists in names_by_speaker.items()}
