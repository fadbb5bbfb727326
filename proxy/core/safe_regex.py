"""Checks the regular expressions that an operator gives for titles, so that no search can take long.

`re` backtracks: a pattern of twenty characters can have more ways to match than there is time. So the ways are counted
before a pattern is accepted: the repetitions of each repeat plus the alternatives, multiplied along the pattern and by
the number of starting positions. A pattern with too many ways is refused, and so are look-arounds, back references and
flags. Case does not count, and only the start of a text is searched.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from functools import lru_cache

MAX_TEXT_CHARACTERS = 120
"""A search reads only so many characters of a text."""
MAX_PATTERN_CHARACTERS = 200
MAX_PATTERNS = 20
"""The most patterns of one setting."""
MAX_MATCH_PATHS = 2_000_000
"""Ways to match one text: two `.*` are accepted, three are not. A search takes at most about 10 ms."""

_REPEAT = re.compile(r"(?:[*+?]|\{(?:(\d+)|(\d*),(\d*))\})[?+]?")
_CLASS = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)


class PatternRefused(Exception):
    """The message says what is wrong with a pattern, and what to do."""


def pattern_error(pattern: str) -> str:
    """A sentence that says why a pattern is refused; empty if it is accepted."""
    try:
        _compile(pattern)
    except PatternRefused as refused:
        return str(refused)
    return ""


def matches_any(patterns: Iterable[str], text: str) -> bool:
    """Whether one of these accepted patterns matches in the first `MAX_TEXT_CHARACTERS` of a text."""
    return any(_compile(pattern).search(text[:MAX_TEXT_CHARACTERS]) for pattern in patterns)


@lru_cache(MAX_PATTERNS * 4)
def _compile(pattern: str) -> re.Pattern[str]:
    shown = repr(pattern[:60])
    if len(pattern) > MAX_PATTERN_CHARACTERS:
        raise PatternRefused(
            f"a pattern of {len(pattern)} characters is too long: give at most {MAX_PATTERN_CHARACTERS}."
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # what a later Python would read otherwise
            compiled = re.compile(pattern, re.IGNORECASE)
    except (re.error, RecursionError, OverflowError, Warning) as error:
        raise PatternRefused(f"{shown} is no regular expression ({str(error)[:80]}); mend it.") from None
    if _MatchPathCounter(pattern).count_alternatives() * MAX_TEXT_CHARACTERS > MAX_MATCH_PATHS:
        raise PatternRefused(f"{shown} could take too long: {_SIMPLER_ADVICE}")
    if compiled.search(""):
        raise PatternRefused(f"{shown} fits an empty text, and with it every title; say what must be there.")
    return compiled


_SIMPLER_ADVICE = "use at most two repeats (* + ? {}), no repeat inside another one, and few alternatives."


class _MatchPathCounter:
    """Parses a pattern that compiles, once from left to right, and counts its ways to match at one position."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0

    def count_alternatives(self) -> int:
        """Ways from the current position to the end or to the closing bracket."""
        total = self._sequence()
        while self._pattern.startswith("|", self._at):
            self._at += 1
            total += self._sequence()
        return total

    def _sequence(self) -> int:
        ways = 1
        while self._at < len(self._pattern) and self._pattern[self._at] not in "|)":
            grouped = self._pattern[self._at] == "("
            ways = min(ways * self._count_repeat(self._piece(), grouped=grouped), MAX_MATCH_PATHS)
        return ways

    def _piece(self) -> int:
        character = self._pattern[self._at]
        if character == "(":
            return self._group()
        in_class = _CLASS.match(self._pattern, self._at) if character == "[" else None
        self._at = in_class.end() if in_class else self._at + 1 + (character == "\\")
        if character == "\\" and self._pattern[self._at - 1].isdigit():
            raise PatternRefused(f"{self._pattern[:60]!r} names a group or a character by number; write what is meant.")
        return 1

    def _group(self) -> int:
        self._at += 1
        if self._pattern.startswith("?", self._at):
            if not self._pattern.startswith("?:", self._at):
                raise PatternRefused(
                    f"{self._pattern[:60]!r} has a group with (? that is none of (?:...); leave it out."
                )
            self._at += 2
        ways = self.count_alternatives()
        self._at += 1  # the bracket that closes it
        return ways

    def _count_repeat(self, ways: int, *, grouped: bool) -> int:
        """Ways of a piece together with the repeat behind it. A group may match nothing and is repeated even then, so
        nested repeats multiply too."""
        repeat = _REPEAT.match(self._pattern, self._at)
        if repeat is None:
            return ways
        self._at = repeat.end()
        low, high = _repeat_bounds(repeat)
        total = 0
        for times in range(low, high + 1):
            total = min(total + ways**times, MAX_MATCH_PATHS)
        return max(total, high if grouped else 1)


def _repeat_bounds(repeat: re.Match[str]) -> tuple[int, int]:
    """The fewest and most repetitions; no more than a text has characters."""
    sign, exact = repeat[0][0], repeat[1]
    if sign != "{":
        return (1 if sign == "+" else 0), (1 if sign == "?" else MAX_TEXT_CHARACTERS)
    least, most = (exact, exact) if exact else (repeat[2], repeat[3])
    return min(int(least or 0), MAX_TEXT_CHARACTERS), min(int(most or MAX_TEXT_CHARACTERS), MAX_TEXT_CHARACTERS)
