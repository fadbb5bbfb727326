"""Whether requests are welcome, for probes: it tells nothing of anybody.

A failing store is told, and is no reason to stay away: requests pass without us.
"""

from __future__ import annotations

import time

from typing_extensions import TypedDict

from proxy import __version__
from proxy.store import Store


class StoreHealth(TypedDict):
    ok: bool
    reason: str


class Health(TypedDict):
    """Times in ms since the epoch."""

    status: str
    version: str
    started: int
    now: int
    store: StoreHealth
    token_counter: str


def health_view(store: Store, started: int, counter: str, *, draining: bool) -> tuple[Health, int]:
    """What is told, and its HTTP status: 503 while the process drains."""
    found = store.health()
    told: Health = {
        "status": "draining" if draining else "ready",
        "version": __version__,
        "started": started,
        "now": int(time.time() * 1000),
        "store": {"ok": found.ok, "reason": found.reason},
        "token_counter": counter,
    }
    return told, 503 if draining else 200
