"""What the routes look at: handed in once, when the application is made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from proxy.auth import Headers, Tenant
from proxy.config.model import Config
from proxy.config.runtime import LiveSettings
from proxy.core.ledger.ledger import Event
from proxy.core.text import Count, estimate_tokens
from proxy.exchange.background.inbox import Speaking
from proxy.store import Store
from proxy.telemetry.event_bus import Feed


@dataclass(frozen=True)
class Backstage:
    """`started` is in ms since the epoch; `counter` names what counts tokens.

    `tenant_of` raises Unauthorized. `changed` is called with a tenant and a conversation (None and "" mean all) after
    something there was deleted, so that it is not kept in memory; `mode_set` with a tenant, a conversation and its new
    mode, and `decided` with what was decided about it, after that was stored; `speaking` is where people speak to what
    runs. `operator_token` is a secret of this process that opens everything, or empty; `config` is what conversations
    go by that say nothing else, `live` what is set while the proxy runs.
    """

    store: Store
    tenant_of: Callable[[Headers], Tenant]
    changed: Callable[[str | None, str], None]
    mode_set: Callable[[str, str, str], None]
    decided: Callable[[str, str, Sequence[Event]], None]
    speaking: Speaking
    draining: Callable[[], bool]
    started: int
    live: LiveSettings
    counter: str
    operator_token: str = ""
    config: Config = field(default_factory=Config)
    feed: Feed = field(default_factory=Feed)
    """Where what happens is heard."""
    count: Count = estimate_tokens
    """Tokens of a text."""
    counted_since: dict[str | None, int] = field(default_factory=dict)
    """From when on subagents are counted (ms), by tenant, None for an operator; not there: all that is stored."""
