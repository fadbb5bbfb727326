"""Deletes conversations that nobody has continued for the days that are kept (`retention_days`).

Age counts from the newest record and not from the clock, which may be wrong when a machine starts.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from proxy.errors import StoreError
from proxy.store import Store

log = logging.getLogger(__name__)

DAY_MS = 86_400_000
INTERVAL_S = 3600.0
AFTER_PAUSE_INTERVAL_S = 2.0
"""While the newest record is older than what is kept: the next request shows that the clock is right."""


MAX_JUMP_MS = 3_600_000
"""A clock that gains more between two looks than time has passed was set forward, perhaps by mistake, or slept."""
BELIEVED_AFTER_S = 6 * 3600.0


async def delete_expired_forever(
    store: Store, days: int, now_ms: Callable[[], int], elapsed_s: Callable[[], float] = time.monotonic
) -> None:
    """Once an hour, but not for hours behind a jump of the clock: what is written then would make all else look old.
    Ends at once where everything is kept (0 days)."""
    agreed_ms, agreed_s = now_ms(), elapsed_s()
    while days:
        now, elapsed, newest = now_ms(), elapsed_s(), 0
        since_s = elapsed - agreed_s
        if now - agreed_ms - since_s * 1000 <= MAX_JUMP_MS or since_s >= BELIEVED_AFTER_S:
            agreed_ms, agreed_s = now, elapsed
            newest = await delete_expired(store, days, now)
        is_after_pause = 0 < newest < now - days * DAY_MS
        await asyncio.sleep(AFTER_PAUSE_INTERVAL_S if is_after_pause else INTERVAL_S)


async def delete_expired(store: Store, days: int, now: int) -> int:
    """Delete what was last written more than `days` before the newest record, and return the time of that (ms since the
    epoch; 0 where there is none). A store that fails is logged, and asked again at the next time."""
    newest = 0
    try:
        newest = await store.newest_record_time() if days else 0
        if newest:
            await store.delete_conversations(None, before=min(now, newest) - days * DAY_MS)
    except StoreError as error:
        log.warning("retention failed", extra={"reason": error.code})
    return newest
