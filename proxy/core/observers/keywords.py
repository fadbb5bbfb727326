"""Names: the words of a conversation that later work comes back to, and which of them are worth their tokens.

A name is a path, an identifier, an error, a number or an id: what a summary in prose loses first and what nobody can
guess again. What a text names is remembered, and whoever expects to ask for it later asks when the text is new
(`remember`): so a trace of a long span only adds up, and costs a millisecond.

The law: **the same messages give the same names in the same order**. Nothing here knows a client, a programming
language or a tool; what counts is the shape of a word, who said it, how often, and how long it is. (When it was said
last, its kind, and how many messages say it were tried on the recordings and made no difference.)

What this module does not do: it renders nothing, and it knows no tokenizer; the price of a name is estimated.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Container, Generator, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import TypeVar

import msgspec

from proxy.core.ledger import Message

CachedValue = TypeVar("CachedValue")

CACHED_WORDS = 16_384
"""Words whose names are remembered, and names whose price is: work comes back to the same words."""
CACHED_TEXTS = 2_048
"""Texts whose names are remembered, about 4 KB each; of longer ones than `LONG` (characters) they are not, so that no
forgotten conversation is held by them."""
MAX_CACHED_TEXT_LENGTH = 32_768
SLICE_LENGTH = 32_768
"""Characters looked at in one go: 1 ms where most words are new."""
MAX_NAME_LENGTH = 160
"""Characters of a name; what is longer is data."""
MIN_IDENTIFIER_LENGTH = 5
"""Characters of an identifier; a shorter one is as well written again as remembered."""
MIN_WORD_LENGTH = 4
"""Characters of a word that is looked at: four digits are a year, a port or an id."""

ASSISTANT, USER, TOOL = "assistant", "user", "tool"
SPEAKER_WEIGHTS: Mapping[str, float] = {ASSISTANT: 3.0, USER: 2.0, TOOL: 0.3}
"""What a mention counts, by who made it: what the assistant used once it uses again; most of an output, never."""
MENTION_SATURATION = 2.0
"""Mentions that give half of what any number of them gives."""

_FILE_EXTENSIONS = (
    "py pyi go ts tsx js jsx mjs cjs rs java kt c h cc cpp hpp cs md rst json jsonl yaml yml toml sh bash sql ex exs "
    "eex heex erl hs ml txt cfg ini conf env html css scss rb php pl lua swift ipynb csv tsv xml svg png jpg gif pdf "
    "lock log gz zip tar proto vue svelte tf gradle mod sum patch diff tmpl po"
)
FILE_EXTENSIONS = frozenset(_FILE_EXTENSIONS.split())
"""What a file name ends in; `os.path` and `self.assertEqual` have a dot as well."""


# -------------------------------------------------------------------------------------------------------------- shapes
_LAST_CHARACTER = r"[A-Za-z0-9_\w]"
_WORD_CHARACTER = r"[A-Za-z0-9_.@+~$/#\w-]"
"""What a word ends in and is made of. ASCII is spelled out beside `\\w`, for it is found sooner so; and a look ahead
spares the white space both attempts. Both together take a third of the time away."""
_WORD = re.compile(rf"(?={_WORD_CHARACTER})(?:\$[\d,]*\d[\d.]*|{_WORD_CHARACTER}*{_LAST_CHARACTER})")
_SEPARATORS_TO_SPACES = {code: " " for code in range(128) if not re.match(_WORD_CHARACTER, chr(code))}
_ARGUMENT_WORD = re.compile(rf"(?:\\[nrt])?{_WORD_CHARACTER}*{_LAST_CHARACTER}")
"""Arguments travel as JSON: a word at the beginning of a line stands behind an escaped tab or line end there."""
_PARAMETER_NAME = re.compile(r'"\w+":')
_LINE_NUMBER_SUFFIX = re.compile(r"(\.[a-z]{1,4})-\d+$")
"""Behind a path, as searches print it."""
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
    r"[A-Z]\w*(?:Error|Exception|Warning|Failure|Fault)\b"
    r"|[^\W_]+(?:_[^\W_]+)+"  # snake_case
    r"|[A-Za-z][a-z0-9]+(?:[A-Z][A-Za-z0-9]*)+"  # camelCase
)
_TOKEN_PIECE = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d{1,3}|[^A-Za-z\d]")


def names_in_word(word: str) -> tuple[str, ...]:
    """The names that a run of characters without white space is or holds: a path, a number, the parts of a dotted
    name. One that stood behind an escape keeps it (`\\tsetUp`), since that is how it stands where it is used again."""
    if word[1:].islower() and word.isalpha():
        return ()  # nearly every word, and no name
    if word.isdecimal():
        return (word,) if MIN_WORD_LENGTH <= len(word) <= MAX_NAME_LENGTH else ()
    escape, word = (word[:2], word[2:]) if word.startswith("\\") else ("", word)
    word = word.lstrip("-+").rstrip(".-+~$/#@")
    if not MIN_WORD_LENGTH <= len(word) <= MAX_NAME_LENGTH:
        return ()
    if "/" in word.strip("/"):
        path = _LINE_NUMBER_SUFFIX.sub(r"\1", word).removeprefix("./")
        return (path,) if any(map(str.isalpha, path)) else ()
    word = word.strip("./@~")
    found = _names_without_slashes(word)
    if escape and found and word.startswith(found[0]):
        return (escape + found[0], *found[1:])
    return found


def _names_without_slashes(word: str) -> tuple[str, ...]:
    parts = word.split(".")
    if len(parts) == 1:
        return _names_in_part(word)
    if parts[-1] in FILE_EXTENSIONS or _NUMBER_OR_ID.fullmatch(word):
        return (word,)
    return tuple(chain.from_iterable(map(_names_in_part, parts)))


def _names_in_part(part: str) -> tuple[str, ...]:
    """The names in what stands between two dots. Small letters alone hold none, and to look takes 1 to 3 us."""
    small = part.islower()
    if small and part.isalpha():
        return ()
    if _NUMBER_OR_ID.fullmatch(part):
        return (part,)
    if small and "_" not in part:
        return ()
    return tuple([found for found in _IDENTIFIER.findall(part) if len(found) >= MIN_IDENTIFIER_LENGTH])


class _BoundedCache(dict[str, CachedValue]):
    """What a look at words found; where there are too many, all is forgotten at once. To know which was asked for
    longest ago would take as long again as to look it up."""

    def __init__(self, look: Callable[[str], CachedValue]) -> None:
        super().__init__()
        self._compute = look

    def __missing__(self, word: str) -> CachedValue:
        if len(self) >= CACHED_WORDS:
            self.clear()
        found = self[word] = self._compute(word)
        return found


def _names_of_new_word(word: str) -> tuple[str, ...]:
    """The names in a word that is new. They are priced with it: a ranking asks for the prices of all at once."""
    found = names_in_word(word)
    for name in found:
        _token_estimates[name]
    return found


_names_by_word = _BoundedCache(_names_of_new_word)


# --------------------------------------------------------------------------------------------------------------- texts
def names_in_text(text: str) -> frozenset[str]:
    """Every name that a text shows."""
    return frozenset(chain.from_iterable(map(_names_by_word.__getitem__, set(_split_words(text)))))


def names_in_messages(messages: Iterable[Message]) -> frozenset[str]:
    """Every name that messages show, whoever said it."""
    return frozenset().union(*(names for message in messages for _, names in _names_by_speaker(message)))


def names_still_visible(staying: Iterable[Message], parts: Sequence[Iterable[Message]]) -> list[Container[str]]:
    """For each of `parts` the names that are still shown where it alone leaves: by what stays anyway, and by the other
    parts. Each message is looked at once, and those of a part that is the only one not at all."""
    if len(parts) < 2:
        return [names_in_messages(staying) for _ in parts]
    named = [names_in_messages(part) for part in parts]
    by = Counter(chain(names_in_messages(staying), *named))
    return [_NamesShownElsewhere(by, own) for own in named]


class _NamesShownElsewhere(msgspec.Struct, frozen=True):
    """Names by in how many places they are shown, and those of one of the places, which does not count."""

    count_by_name: Mapping[str, int]
    own_names: Container[str]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.count_by_name.get(name, 0) > (name in self.own_names)


def cache_names(messages: Iterable[Message]) -> None:
    """Look at messages now, while they are few, because their names are going to be asked for when they are many."""
    for message in messages:
        if len(message.text) <= MAX_CACHED_TEXT_LENGTH:
            _cached_names_of_text(message.text)
        for call in message.calls:
            if len(call.arguments) <= MAX_CACHED_TEXT_LENGTH:
                _cached_names_of_arguments(call.arguments)


def cache_names_in_slices(messages: Iterable[Message]) -> Generator[None, None, None]:
    """The same bit by bit, where they are many. It gives way behind the last bit too, for then they are put to use."""
    size = 0
    for message in messages:
        cache_names((message,))
        size += len(message.text)
        if size >= SLICE_LENGTH:
            size = 0
            yield
    yield


def _names_by_speaker(message: Message) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Who says which names, each as often as it is said: the text of a message, and the arguments of its calls without
    the names of parameters."""
    if text := message.text:
        yield (
            message.role,
            _cached_names_of_text(text) if len(text) <= MAX_CACHED_TEXT_LENGTH else _names_of_words(_split_words(text)),
        )
    for call in message.calls:
        given = call.arguments
        yield (
            ASSISTANT,
            _cached_names_of_arguments(given) if len(given) <= MAX_CACHED_TEXT_LENGTH else _names_in_arguments(given),
        )


def _split_words(text: str) -> list[str]:
    """The runs of signs and letters in a text, in order. In ASCII they are what stands between the other characters:
    found so in a quarter of the time. An amount may hold a comma."""
    if text.isascii() and "$" not in text:
        return text.translate(_SEPARATORS_TO_SPACES).split()
    return _WORD.findall(text)


def _names_of_words(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(chain.from_iterable(map(_names_by_word.__getitem__, words)))


def _names_in_arguments(arguments: str) -> tuple[str, ...]:
    return _names_of_words(_ARGUMENT_WORD.findall(_PARAMETER_NAME.sub(" ", arguments)))


@lru_cache(maxsize=CACHED_TEXTS)
def _cached_names_of_text(text: str) -> tuple[str, ...]:
    return _names_of_words(_split_words(text))


@lru_cache(maxsize=CACHED_TEXTS)
def _cached_names_of_arguments(arguments: str) -> tuple[str, ...]:
    return _names_in_arguments(arguments)


# ------------------------------------------------------------------------------------------------------------- ranking
def rank_names(messages: Iterable[Message], known: Container[str] = ()) -> tuple[str, ...]:
    """The names that leave with `messages`, the one most worth its tokens first, of equals the one said first; those in
    `known` are left out."""
    worths: dict[str, float] = {}
    for speaker, mentions in _mentions_by_speaker(messages).items():
        by_times = {times: mention_weight(speaker, times) for times in set(mentions.values())}
        for name, times in mentions.items():
            worths[name] = worths.get(name, 0.0) + by_times[times]
    scores = {name: total / _token_estimates[name] for name, total in worths.items() if name not in known}
    return tuple(sorted(scores, key=scores.__getitem__, reverse=True))


def mention_weight(speaker: str, times: int) -> float:
    """What it adds to a name that this speaker said it so often."""
    return SPEAKER_WEIGHTS.get(speaker, SPEAKER_WEIGHTS[TOOL]) * times / (times + MENTION_SATURATION)


def estimated_tokens(name: str) -> int:
    """Tokens that a name takes in a list, as an estimate: one for each run of letters of one word, each three digits
    and each sign between them."""
    return max(1, len(_TOKEN_PIECE.findall(name)))


_token_estimates = _BoundedCache(estimated_tokens)


def _mentions_by_speaker(messages: Iterable[Message]) -> dict[str, Counter[str]]:
    """By speaker, how often each name was said."""
    said: dict[str, list[tuple[str, ...]]] = {}
    for message in messages:
        for speaker, names in _names_by_speaker(message):
            said.setdefault(speaker, []).append(names)
    return {speaker: Counter(chain.from_iterable(of_all)) for speaker, of_all in said.items()}
