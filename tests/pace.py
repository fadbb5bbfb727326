"""How slow the machine is while a test measures: one figure for CPU time that holds on slow ones and beside others.

A CPU second says as much of the machine, and of who shares its cores, as of the code. So a figure is given as it was
measured where nothing else ran, and grows with what a piece of work that is always the same takes in the same moment.

What this does not do: speed is measured by `bench/`. Here stand bounds that only work which grows wrongly can miss.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from time import thread_time

YARD_S = 0.0105
"""CPU time of `_yard` on the machine on which the figures were measured."""


def slowness() -> float:
    """How many times longer than there work takes now; at least 1."""
    return max(1.0, median(_yard() for _ in range(3)) / YARD_S)


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """What is done inside takes this thread at most so much CPU time."""
    began = thread_time()
    yield
    took = thread_time() - began
    assert took <= seconds or took <= seconds * slowness()


def _yard() -> float:
    began = thread_time()
    seen: dict[int, str] = {}
    for number in range(50_000):
        seen[number & 1023] = f"{number:x}"
    return thread_time() - began
