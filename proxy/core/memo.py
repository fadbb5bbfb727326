"""Caches results of pure functions of strings, so that no client can fill the memory. `memoize` is for short ones, such
as paths, hosts and model names: longer arguments are computed each time. `TextCache` is for texts of messages, and
bounded by their characters; `RecentCache` is for anything that has a size; `keep_newest` bounds a dictionary by its
length. `late_pattern` compiles a regular expression once it is needed."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Generic, ParamSpec, TypeVar, cast

MAX_MEMOIZED_LENGTH = 1_024
"""Longest argument, in bytes or characters, whose result is cached."""

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Key = TypeVar("Key")
Value = TypeVar("Value")


def memoize(
    most: int, longest: int = MAX_MEMOIZED_LENGTH
) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Caches the `most` newest results of a pure function whose arguments are strings or bytes."""

    def decorate(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        cached = cast("Callable[Parameters, Result]", lru_cache(most)(function))

        @wraps(function)
        def wrapper(*arguments: Parameters.args, **keywords: Parameters.kwargs) -> Result:
            for argument in arguments:
                if isinstance(argument, (str, bytes)) and len(argument) > longest:
                    return function(*arguments, **keywords)
            return cached(*arguments, **keywords)

        return wrapper

    return decorate


def keep_newest(known: OrderedDict[Key, Value], key: Key, value: Value, most: int) -> None:
    """Set a value as the newest of `known`, whose oldest leaves where there are more than `most`."""
    known[key] = value
    known.move_to_end(key)
    if len(known) > most:
        known.popitem(last=False)


class RecentCache(Generic[Key, Value]):
    """Values used lately, in two generations of up to half of `max_size` each: when the newer one is full, the older
    one goes. The size of a value is what its keeper says. Any thread may use it: a race costs an entry at most."""

    def __init__(self, max_size: int) -> None:
        self._half = max_size // 2
        self._newer: dict[Key, tuple[Value, int]] = {}
        self._older: dict[Key, tuple[Value, int]] = {}
        self._newer_size = 0

    def find(self, key: Key) -> Value | None:
        if (found := self._newer.get(key)) is not None:
            return found[0]
        return None if (old := self._older.pop(key, None)) is None else self.keep(key, *old)

    def keep(self, key: Key, value: Value, size: int) -> Value:
        """Returns `value`."""
        if self._newer_size + size > self._half:
            self._older, self._newer, self._newer_size = self._newer, {}, 0
        self._newer[key] = (value, size)
        self._newer_size += size
        return value

    def __len__(self) -> int:
        return len(self._newer) + len(self._older)


class TextCache(Generic[Value]):
    """The results of a pure function of a text, which is never None. All cached texts together have about
    `max_characters` at most. Any thread may ask; two may compute the same result."""

    def __init__(self, function: Callable[[str], Value], max_characters: int) -> None:
        self._function = function
        self._results = RecentCache[str, Value](max_characters)
        self.misses = 0
        """How often the function was called."""

    def __call__(self, text: str) -> Value:
        if (known := self._results.find(text)) is not None:
            return known
        self.misses += 1
        return self._results.keep(text, self._function(text), len(text))

    def __len__(self) -> int:
        return len(self._results)


class _LatePattern:
    """The methods of a compiled expression, which is compiled as the first of them is looked up."""

    def __init__(self, expression: str, flags: int) -> None:
        self._source = expression, flags

    def __getattr__(self, name: str) -> object:
        method = getattr(re.compile(*self._source), name)
        setattr(self, name, method)  # the next look-up finds it without this function
        return method


def late_pattern(expression: str, flags: int = 0) -> re.Pattern[str]:
    """For the large expressions of the engine, of which a command that imports them uses few or none. A match names the
    compiled one as its `re`, not this."""
    return cast("re.Pattern[str]", _LatePattern(expression, flags))
