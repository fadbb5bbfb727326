"""The parts of a replay, put together as a running proxy puts them together.

The law: **what decides is the product's own**. The provider, the clock and the store are others, because a replay has
no network, lives in the recorded time, and leaves nothing behind.
"""

from __future__ import annotations

import hmac
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256

from proxy.acting import Actor
from proxy.asking import Parts
from proxy.bookkeeping import Bookkeeper
from proxy.config import Config
from proxy.dialects import OPENAI_CHAT, Dialect
from proxy.dialects.openai_chat import Known
from proxy.limits import Limits
from proxy.replaying.provider import NAME, RecordedProvider
from proxy.report import Accountant
from proxy.scribe import Writer
from proxy.shelf import Shelf
from proxy.stack import tools
from proxy.stack.inferring import Watch
from proxy.standing import Reception, tool_settings
from proxy.store.memory import MemoryStore
from proxy.tokens import TokenCounter
from proxy.turn import Toolkit
from proxy.upstream import Routes

TENANT = "replay"
PATH = "/v1/chat/completions"
BEGINNING_MS = 1_767_225_600_000
"""When a replay begins, for whoever looks at a clock: the same moment every time, so that a replay repeats."""
ASSEMBLY_MS = 60_000
"""Instead of the budget of a proxy that somebody waits for: a replay beside other work must not decide otherwise."""
SECRET = b"a replay has nothing to hide"
NONCE = 12


class RecordedClock:
    """ms since the epoch, as the recording went on."""

    def __init__(self) -> None:
        self._now = BEGINNING_MS

    def __call__(self) -> int:
        return self._now

    def to(self, since_ms: int) -> None:
        """`since_ms` after the first request."""
        self._now = BEGINNING_MS + since_ms


@dataclass(frozen=True)
class Backstage:
    """What a request is served with, and what stands behind it."""

    parts: Parts
    provider: RecordedProvider
    clock: RecordedClock
    store: MemoryStore


def wired(config: Config) -> Backstage:
    """A proxy of this configuration that nobody used before. Where its upstreams point does not matter."""
    config = config.model_copy(update={"assembly_budget_ms": max(config.assembly_budget_ms, ASSEMBLY_MS)})
    clock, counter, store, dialect = RecordedClock(), TokenCounter(), MemoryStore(), OPENAI_CHAT
    provider = RecordedProvider(counter.count, clock, config.tariff_of)
    shelf = Shelf(store)
    writer = Writer(dialect, counter.count)
    kit = Toolkit(writer, counter.count, _nonce, tool_settings(config), config.prices_of)
    actor = _actor(config, dialect, writer, kit, counter.count)
    numbers = itertools.count(1)
    reception = Reception(config, shelf, dialect, actor, lambda: f"{next(numbers):032x}")
    keeper = Bookkeeper(store, Accountant(clock, counter.name, config.tariff_of), dialect, clock)
    routes = _routes(config, provider)
    limits = Limits(lambda: clock() / 1000, config.tariff_of)
    known = Known()
    parts = Parts(
        config, dialect, shelf, routes, counter, writer, reception, kit, keeper, known, actor.weigh, clock, limits
    )
    return Backstage(parts, provider, clock, store)


def _actor(config: Config, dialect: Dialect, writer: Writer, kit: Toolkit, count: Callable[[str], int]) -> Actor:
    """What decides when to act."""
    offered = {
        mode: dialect.tools_json(tools.definitions(profile)).decode()
        for mode, profile in (("active", config.tools), ("passive", "passive"))
    }
    watch = Watch(config.observed_tools, config.mirror_plans, config.infer_requests)
    return Actor(config, dialect, writer, offered, watch, kit.settings, count, lru_cache(1024)(count), kit.nonce)


def _routes(config: Config, provider: RecordedProvider) -> Routes:
    """Every model goes to the recorded provider, under the name it was asked for."""
    routes = Routes(config)
    routes.upstreams = dict.fromkeys((*config.upstreams, "default", NAME), provider)
    return routes


def _nonce(conversation: str) -> str:
    return hmac.new(SECRET, conversation.encode(), sha256).hexdigest()[:NONCE]
