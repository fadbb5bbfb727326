"""The health of the process, for probes, without any data of tenants. A failing store is reported but not unhealthy:
requests still pass upstream."""

from __future__ import annotations

import time

from typing_extensions import TypedDict

from proxy import __version__
from proxy.store import Store


class StoreHealth(TypedDict):
    ok: bool
    reason: str
    damaged: int
    """How often a damaged record was read since the start; the conversation it belongs to goes around us."""


class Health(TypedDict):
    """Times in ms since the epoch."""

    status: str
    version: str
    started: int
    now: int
    store: StoreHealth
    token_counter: str


def health_view(store: Store, started: int, counter: str, *, draining: bool) -> tuple[Health, int]:
    """The view, and its HTTP status: 503 while the process drains."""
    store_health = store.health()
    view: Health = {
        "status": "draining" if draining else "ready",
        "version": __version__,
        "started": started,
        "now": int(time.time() * 1000),
        "store": {"ok": store_health.ok, "reason": store_health.reason, "damaged": store_health.damaged},
        "token_counter": counter,
    }
    return view, 503 if draining else 200
