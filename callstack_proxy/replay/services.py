"""Builds the services of a replay with `build_services`, as for a running proxy.

Only the provider, the clock and the store are replaced: a replay has no network, lives in the recorded time, and leaves
nothing behind.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from callstack_proxy.filemap import draw_map_for
from callstack_proxy.replay.api.base import ReplayApi
from callstack_proxy.replay.api.chat import CHAT
from callstack_proxy.replay.recorded_provider import UPSTREAM_NAME, RecordedProvider
from callstack_proxy.replay.token_counts import load_memoized_o200k
from proxy.accounting import Accountant, TokenCounter
from proxy.config import Config
from proxy.config.runtime import LiveSettings
from proxy.dialects import SliceCache
from proxy.exchange import AppServices, Services, build_services
from proxy.store import ConversationCache
from proxy.store.memory import MemoryStore
from proxy.upstream import ContextWindows, Routes

TENANT = "replay"
PATH = CHAT.path
START_MS = 1_767_225_600_000
"""When a replay begins, in ms since the epoch: always the same moment, so that a replay is repeatable."""
MIN_ASSEMBLY_BUDGET_MS = 60_000
"""Replaces a smaller budget of the configuration: a slow machine must not change what a replay decides."""
SECRET = b"a replay has nothing to hide"


class RecordedClock:
    """Returns the time of the recording in ms since the epoch."""

    def __init__(self) -> None:
        self._now = START_MS

    def __call__(self) -> int:
        return self._now

    def advance_to(self, since_ms: int) -> None:
        """Set the clock to `since_ms` after the first request."""
        self._now = START_MS + since_ms


@dataclass(frozen=True)
class ReplayServices:
    """What serves a request, and the replaced parts behind it."""

    services: Services
    provider: RecordedProvider
    clock: RecordedClock
    store: MemoryStore


def build_replay(config: Config, api: ReplayApi = CHAT) -> ReplayServices:
    """A fresh proxy with this configuration, for one API. Its upstreams are never contacted."""
    patience_ms = max(config.assembly_budget_ms, MIN_ASSEMBLY_BUDGET_MS)
    config = config.model_copy(update={"assembly_budget_ms": patience_ms, "holdout": 0.0})
    clock, counter, store = RecordedClock(), TokenCounter(load_memoized_o200k), MemoryStore()
    slices = SliceCache()
    provider = RecordedProvider(api, counter.count, clock, slices, config.tariff_of)
    numbers = itertools.count(1)
    process = AppServices(
        config=config,
        live_settings=LiveSettings(config.subagent),
        store=store,
        conversation_cache=ConversationCache(store),
        routes=_routes(config, provider),
        counter=counter,
        context_windows=ContextWindows(lambda: clock() / 1000, config.tariff_of),
        accountant=Accountant(clock, counter.name, config.tariff_of),
        secret=SECRET,
        now=clock,
        new_id=lambda: f"{next(numbers):032x}",
        parsed_slices=slices,
        draw_map=draw_map_for(config),
    )
    return ReplayServices(build_services(process, api.dialect), provider, clock, store)


def _routes(config: Config, provider: RecordedProvider) -> Routes:
    """Every model goes to the recorded provider, under the name it was asked for."""
    routes = Routes(config)
    routes.upstreams = dict.fromkeys((*config.upstreams, "default", UPSTREAM_NAME), provider)
    return routes
