"""The parts of an exchange, put together: once, for a proxy that runs and for one that replays.

A process has some things once (`Process`: store, shelf, routes, limits); each dialect gets parts of its own over them
(`parts_for`). The law: **what decides is wired here and nowhere else**, so a replay decides as a running proxy does.

What this module does not do: it opens nothing, starts nothing and reads no clock; who calls it brings all of that.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from hashlib import sha256

from proxy.accounting import Accountant
from proxy.accounting.token_counter import Counter
from proxy.config.model import Config
from proxy.config.runtime import LiveSettings, tracking
from proxy.core import tools
from proxy.core.ledger.ledger import Round, answer_of
from proxy.core.ledger.messages import Request
from proxy.core.policy.infer_frames import Watch
from proxy.dialects import Dialect, Known
from proxy.dialects.compose import Writer
from proxy.exchange.background.in_flight import Flights
from proxy.exchange.background.inbox import Speaking
from proxy.exchange.background.recorder import Bookkeeper
from proxy.exchange.background.scheduling import Afterwards
from proxy.exchange.background.summarizer import Summaries
from proxy.exchange.notes.note_writer import Introduction, Note, Teller
from proxy.exchange.notes.people_messages import Hearing
from proxy.exchange.notes.reread_counts import Regret
from proxy.exchange.notes.situation import BranchNote, CompactionNote, HandNote, InjectionNote, ParentsNote, RootNote
from proxy.exchange.notes.suggestions import Suggesting
from proxy.exchange.notes.warnings import Blocking, LoopWarning
from proxy.exchange.notes.window_pressure import PressureWarning
from proxy.exchange.previous_responses import remembered
from proxy.exchange.resolver import Reception, tool_settings
from proxy.exchange.rounds import Parts
from proxy.exchange.thread.activation import Actor, binds_by_name, suffixed
from proxy.exchange.thread.block_format import form_of
from proxy.exchange.turn import Toolkit
from proxy.store import Store
from proxy.store.conversation_cache import Shelf
from proxy.telemetry.event_bus import Feed
from proxy.telemetry.metrics import Metrics
from proxy.upstream.context_windows import Limits, Window
from proxy.upstream.routing import Routes, UnknownModel

NONCE = 12
"""Hex digits of a conversation's nonce."""
WEIGHED = 1024
"""Texts that are asked for with every request (tools, guidance), whose tokens are remembered."""


@dataclass(frozen=True, kw_only=True)
class Process:
    """What there is once, whatever dialect is spoken. `now` tells ms since the epoch; `fresh_id` makes an id of 128
    random bits, hex; `secret` is the store's."""

    config: Config
    live: LiveSettings
    store: Store
    shelf: Shelf
    routes: Routes
    counter: Counter
    limits: Limits
    accountant: Accountant
    secret: bytes
    now: Callable[[], int]
    fresh_id: Callable[[], str]
    metrics: Metrics = field(default_factory=Metrics)
    feed: Feed = field(default_factory=Feed)
    flights: Flights = field(default_factory=Flights)
    afterwards: Afterwards = field(default_factory=lambda: Afterwards(0))
    summaries: Summaries | None = None
    """None where it is off."""

    @cached_property
    def speaking(self) -> Speaking:
        """What takes in the words of people."""
        hours = self.config.queue_hours
        return Speaking(self.store, self.shelf, hours, self.now, self.fresh_id, self.flights, self.metrics, self.feed)

    def nonce(self, conversation: str) -> str:
        """Marks of ours that no text from a tool can forge: HMAC(store secret, conversation id)."""
        return hmac.new(self.secret, conversation.encode(), sha256).hexdigest()[:NONCE]

    def window(self, model: str, conversation: str) -> Window:
        """What fits a request of this conversation, by the client's name for the model: as the upstream it goes to
        has taught, or by the tariff alone where no upstream serves it."""
        try:
            route = self.routes.choose(model)
        except UnknownModel:
            return self.limits.window("", self.config.sent_as(model), conversation)
        return self.limits.window(route.upstream.name, route.model, conversation)


def parts_for(process: Process, dialect: Dialect) -> Parts:
    """What a request in this dialect is served with."""
    config, counter = process.config, process.counter
    writer = Writer(dialect, counter.count)
    kit = Toolkit(
        writer,
        counter.count,
        process.nonce,
        tool_settings(config),
        config.prices_of,
        named=partial(names_in, dialect),
        remembered=partial(remembered, dialect),
        suffixed=partial(suffixed, config),
        bound=partial(binds_by_name, config, dialect),
        form=partial(form_of, config),
        subagents=lambda: tracking(process.live.subagent),
        configure=process.live.try_change,
    )
    actor = actor_for(process, dialect, writer, kit)
    teller = Teller(config, process.shelf, writer)
    hearing = Hearing(process.shelf, process.flights, writer, process.metrics, kit.suffixed)
    return Parts(
        config=config,
        dialect=dialect,
        shelf=process.shelf,
        routes=process.routes,
        counter=counter,
        writer=writer,
        reception=Reception(
            config,
            process.live,
            process.shelf,
            dialect,
            actor,
            teller,
            notes_for(process, actor, teller, hearing),
            process.fresh_id,
        ),
        kit=kit,
        keeper=Bookkeeper(
            process.store,
            process.accountant,
            dialect,
            process.now,
            process.metrics,
            process.feed,
            process.afterwards,
        ),
        known=Known(),
        weigh=actor.weigh,
        now=process.now,
        limits=process.limits,
        hearing=hearing,
        speaking=process.speaking,
        flights=process.flights,
        summaries=process.summaries,
    )


def notes_for(process: Process, actor: Actor, teller: Teller, hearing: Hearing) -> tuple[Note, ...]:
    """Who is asked, in this order, for words to the model of an awake thread. What a person said stands last."""
    return (
        Introduction(teller, actor),
        RootNote(teller, actor),
        ParentsNote(teller, actor),
        CompactionNote(teller, actor),
        HandNote(teller, actor),
        BranchNote(teller, actor),
        InjectionNote(teller, actor),
        LoopWarning(teller, actor, process.config),
        Blocking(teller, actor, process.config),
        PressureWarning(teller, actor, process.config),
        Regret(process.metrics, process.config.output_rules),
        Suggesting(teller, actor, process.config),
        hearing,
    )


def names_in(dialect: Dialect, request: Request, rounds: Sequence[Round]) -> tuple[str, ...]:
    """The ids by which a client may name this answer to its request, or parts of it."""
    references = dialect.references
    if references is None or not references.kept(request):
        return ()
    items = (name for done in rounds for name in references.items(done.spoken.message))
    return tuple(name for name in dict.fromkeys((answer_of(rounds), *items)) if name)


def actor_for(process: Process, dialect: Dialect, writer: Writer, kit: Toolkit) -> Actor:
    """What decides when to act on a thread of this dialect."""
    config = process.config
    offered = {
        mode: dialect.tools_json(tools.definitions(profile)).decode()
        for mode, profile in (("active", config.tools), ("passive", "passive"))
    }
    return Actor(
        config=config,
        dialect=dialect,
        scribe=writer,
        tools=offered,
        watch=Watch(config.observed_tools, config.mirror_plans, config.infer_requests),
        settings=kit.settings,
        count=kit.count,
        weigh=lru_cache(WEIGHED)(kit.count),
        nonce=kit.nonce,
        window=process.window,
    )
