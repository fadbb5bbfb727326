"""Timeouts, cooperative slices, and deferred work.

Deferred work (receipts, log lines) runs after the answer, in order, at most `MAX_DELAY_S` late; call `run_pending`
before reading its results or closing the process. Use on the event loop's thread only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from proxy.core.ledger import Request

Found = TypeVar("Found")

LONG_REQUEST_PARTS = 500
"""Messages and tools of a request from which work on all of them pauses for others, or runs in a thread. Each step over
so many takes up to 2 ms, and a decision over calls that are looked at for the first time 200."""
LONG_REQUEST_BYTES = 1 << 20
"""The same for the bytes of its body: what is read of one call with 300,000 arguments takes 2 s."""
_limit: ContextVar[asyncio.Timeout | None] = ContextVar("_limit", default=None)
"""That of `with_timeout`, while it waits."""
_held: ContextVar[asyncio.Lock | None] = ContextVar("_held", default=None)
_own_work: WeakKeyDictionary[asyncio.Lock, asyncio.Event] = WeakKeyDictionary()
"""By the lock under which it runs, the end of what runs `in_own_time`."""


async def with_timeout(seconds: float, work: Coroutine[Any, Any, Found]) -> Found:
    """What `work` returns. Raises what it raises, and TimeoutError after `seconds` of waiting; `work` is then
    cancelled."""
    async with asyncio.timeout(seconds) as limit:
        known = _limit.set(limit)
        try:
            return await work
        finally:
            _limit.reset(known)


async def in_own_time(request: Request, work: Callable[[], Found]) -> Found:
    """What `work` over all of a request returns. For a long one it runs in a thread, and its time does not count for
    `with_timeout` around it, nor around those who wait to `hold` the same lock."""
    if not is_long(request):
        return work()
    lock, is_over = _held.get(), asyncio.Event()
    if lock is not None:
        _own_work[lock] = is_over
    try:
        return await _uncounted(asyncio.to_thread(work))
    finally:
        if lock is not None:
            del _own_work[lock]
        is_over.set()


@asynccontextmanager
async def hold(lock: asyncio.Lock) -> AsyncGenerator[None, None]:
    """Holds `lock`, waiting first for what its holder runs `in_own_time`."""
    while (is_over := _own_work.get(lock)) is not None:
        await _uncounted(is_over.wait())
    async with lock:
        known = _held.set(lock)
        try:
            yield
        finally:
            _held.reset(known)


async def _uncounted(work: Coroutine[Any, Any, Found]) -> Found:
    """What `work` returns; its time does not count for `with_timeout` around it."""
    limit, clock = _limit.get(), asyncio.get_running_loop().time
    if limit is None or (ends := limit.when()) is None or limit.expired():
        return await work
    left_s = ends - clock()
    limit.reschedule(None)
    try:
        return await work
    finally:
        limit.reschedule(clock() + left_s)


def is_long(request: Request) -> bool:
    """Whether a step over all messages or tools of a request would make others wait."""
    parts = len(request.messages) + len(request.tool_names)
    return parts > LONG_REQUEST_PARTS or len(request.body) > LONG_REQUEST_BYTES


async def let_others_run(request: Request) -> None:
    """Let others have their turn behind a step over all of a long request."""
    if is_long(request):
        await pause()


async def pause() -> None:
    """Let others have their turn: at the first, uvloop finds what has come."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def in_slices(work: Generator[Callable[[], Any] | None, Any, Found]) -> Found:
    """Run `work` to its end, yielding to the event loop between its steps. A function that it yields runs in a thread,
    and its result is sent back. Raises what `work` raises."""
    answer: Any = None
    failure: Exception | None = None
    while True:
        try:
            step = work.throw(failure) if failure is not None else work.send(answer)
        except StopIteration as ended:
            found: Found = ended.value
            return found
        answer = failure = None
        if step is None:
            await asyncio.sleep(0)
            continue
        try:
            answer = await asyncio.to_thread(step)
        except Exception as error:  # what it means is for `work` to say
            failure = error


log = logging.getLogger(__name__)

MAX_DELAY_S = 0.005
"""Seconds: longer than a local agent takes to send its next request; at 1,700 requests a second, 0.5 ms of work in a
row."""

DeferredTask = Callable[[], None]


class DeferredTasks:
    """One per process. `wait_s` 0 runs work at once, such as for a replay."""

    def __init__(self, wait_s: float = MAX_DELAY_S) -> None:
        self._delay_s = wait_s
        self._pending: list[DeferredTask] = []

    def add(self, work: DeferredTask, *, now: bool = False) -> None:
        """Run `work` soon; with `now` at once, after all earlier work."""
        self._pending.append(work)
        if now or not self._delay_s:
            self.run_pending()
        elif len(self._pending) == 1:
            asyncio.get_running_loop().call_later(self._delay_s, self.run_pending)

    def run_pending(self) -> None:
        waiting, self._pending = self._pending, []
        for work in waiting:
            try:
                work()
            except Exception:  # the edge of our own books: what comes behind has nothing to do with it
                log.exception("what a request leaves behind could not be booked")
