"""Caches results of functions of short strings, such as paths, queries, hosts and model names. Longer arguments are
computed each time, so that no client can fill the memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import ParamSpec, TypeVar, cast

MAX_MEMOIZED_LENGTH = 1_024
"""Longest argument, in bytes or characters, whose result is cached."""

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


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
