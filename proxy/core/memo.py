"""What was worked out before for the same words, so that it is not worked out again.

The law: **nobody fills the memory with long words**. Paths, queries, hosts and names of models are a client's own; they
are short, and the same ones come all day. So it is enough to remember that of short ones; what is longer is worked out
each time it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import ParamSpec, TypeVar, cast

MAX_MEMOIZED_LENGTH = 1_024
"""Bytes, or characters, of each word up to which what was found for it is remembered."""

Asked = ParamSpec("Asked")
Found = TypeVar("Found")


def memoize(
    most: int, longest: int = MAX_MEMOIZED_LENGTH
) -> Callable[[Callable[Asked, Found]], Callable[Asked, Found]]:
    """Wraps a function of words whose answer never changes: what it found for the `most` asked lately is remembered."""

    def wrapped(look: Callable[Asked, Found]) -> Callable[Asked, Found]:
        known = cast("Callable[Asked, Found]", lru_cache(most)(look))

        @wraps(look)
        def found(*asked: Asked.args, **named: Asked.kwargs) -> Found:
            for word in asked:
                if isinstance(word, (str, bytes)) and len(word) > longest:
                    return look(*asked, **named)
            return known(*asked, **named)

        return found

    return wrapped
