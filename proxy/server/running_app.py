"""What the application lends to what stands beside the way of a request, and what it is given of that. `/stack`,
`/console`, `/metrics` and the like are for people and for other programs; the server knows of them only its `Doors`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from starlette.types import ASGIApp

from proxy.auth import Headers, Tenant
from proxy.config import Config, OtelSettings
from proxy.core.context import DrawMap
from proxy.exchange import AppServices, ClientRequest, Reply
from proxy.store import Health
from proxy.telemetry import EventBus, Metrics, Tracer
from proxy.upstream import LearnedTrait


@dataclass(frozen=True)
class RunningApp:
    """An application that has started, as what is mounted on it sees it."""

    services: AppServices
    tenant_of: Callable[[Headers], Tenant]
    """Raises Unauthorized."""
    hash_of_key: Callable[[str], str]
    """The hash of the issued key with a name, empty if there is none."""
    learned_traits: Callable[[], Sequence[LearnedTrait]]
    """What the upstreams' refusals have taught this process."""
    is_draining: Callable[[], bool]
    started: int
    """In ms since the epoch."""
    operator_token: str
    """A secret of this process that grants everything, or empty."""


class Mounted(NamedTuple):
    """What answers below `/stack`, and what answers below `/console`."""

    stack: ASGIApp
    console: ASGIApp


class Endpoints(Protocol):
    """Answers some requests of clients itself, which then go to no upstream."""

    def answers(self, method: str, path: str) -> bool: ...

    async def handle(self, asked: ClientRequest, reply: Reply) -> None:
        """Raises ProxyError before it has begun to answer."""


BuildMounted = Callable[[RunningApp], Mounted]
"""Called in a thread when the first request below one of the two comes."""
RenderMetrics = Callable[[Metrics, Health, int, int], tuple[bytes, bytes]]
"""The content type of `/metrics` and its page, from the figures, the state of the store, the number of conversations in
memory, and the start in ms since the epoch."""


@dataclass(frozen=True)
class Doors:
    """What `build_app` is given of what stands beside the way of a request. What is left out is not found."""

    build_mounted: BuildMounted | None = None
    build_endpoints: Callable[[AppServices], Endpoints] | None = None
    """Called once, when the services are built."""
    draw_map_for: Callable[[Config], DrawMap | None] | None = None
    """What draws a map of the files seen so far into frame blocks; None where the configuration wants none."""
    load_metrics_page: Callable[[], RenderMetrics] | None = None
    """Called in a thread at each `GET /metrics`."""
    open_tracer: Callable[[OtelSettings, Callable[[str, int], None]], Tracer] | None = None
    """Called where `otel.endpoint` is set, with what counts spans by their outcome. Raises InvalidConfiguration."""
    write_events: Callable[[EventBus, Path], Coroutine[None, None, None]] | None = None
    """Writes events below a folder until it is cancelled. Called where `events_file` is set."""
