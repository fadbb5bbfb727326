"""Wires the parts of an exchange together, the same way for a running proxy and for a replay. `AppServices` exists once
per process; `build_services` adds the parts of one dialect. Opens nothing, starts nothing and reads no clock."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from hashlib import sha256

from proxy.accounting import Accountant
from proxy.config.for_core import block_format_for, forbids_user_after_result, tool_settings
from proxy.config.runtime import LiveSettings, subagent_rules_of
from proxy.core import tools
from proxy.core.context import DrawMap
from proxy.core.ledger import Request, Round, response_id_of
from proxy.core.memo import TextCache
from proxy.core.policy import InferenceRules
from proxy.dialects import DIALECTS, Dialect, DialectComposer, ParseCache, SliceCache
from proxy.exchange.background.inbox import Inbox
from proxy.exchange.background.recorder import Recorder
from proxy.exchange.background.scheduler import DeferredTasks
from proxy.exchange.notes.base import NoteWriter
from proxy.exchange.notes.note_list import build_notes
from proxy.exchange.notes.people_messages import MessageDelivery
from proxy.exchange.notes.reread_counts import RereadCounter
from proxy.exchange.previous_responses import round_to_store
from proxy.exchange.resolver import Resolver
from proxy.exchange.rounds import Services, SharedServices
from proxy.exchange.thread.context_policy import ContextPolicy, context_form_for
from proxy.exchange.thread.gate_prices import PlanPrices
from proxy.exchange.thread.holdout import Holdout
from proxy.exchange.turn import Toolkit
from proxy.store import Store
from proxy.telemetry import EventBus, Metrics
from proxy.upstream import FORMS_WITHOUT_RECALL, ContextWindow, LearnedTrait, LearnedTraits, UnknownModel

NONCE_DIGITS = 12
"""Hex digits."""
MAX_COUNTED_CHARACTERS = 1 << 20
"""Characters of all texts (tools, guidance, traces) whose token counts are remembered."""


@dataclass(frozen=True, kw_only=True)
class AppServices(SharedServices):
    """One per process. `new_id` returns 128 random bits in hex; `secret` is the store's."""

    live_settings: LiveSettings
    store: Store
    accountant: Accountant
    secret: bytes
    new_id: Callable[[], str]
    metrics: Metrics = field(default_factory=Metrics)
    event_bus: EventBus = field(default_factory=EventBus)
    deferred_tasks: DeferredTasks = field(default_factory=lambda: DeferredTasks(0))
    parsed_slices: SliceCache = field(default_factory=SliceCache)
    draw_map: DrawMap | None = None
    """Draws a map of the files seen so far into frame blocks; without it there is none."""

    @cached_property
    def inbox(self) -> Inbox:
        hours = self.config.queue_hours
        return Inbox(
            self.store,
            self.conversation_cache,
            hours,
            self.now,
            self.new_id,
            self.in_flight,
            self.metrics,
            self.event_bus,
        )

    def nonce_of(self, conversation: str) -> str:
        """A nonce that tool output cannot forge: HMAC(store secret, conversation id)."""
        return hmac.new(self.secret, conversation.encode(), sha256).hexdigest()[:NONCE_DIGITS]

    def window_of(self, model: str, conversation: str) -> ContextWindow:
        """The window for this conversation, by the client's name for the model; from the tariff alone if no upstream
        serves it."""
        try:
            route = self.routes.choose(model)
        except UnknownModel:
            return self.context_windows.window("", self.config.upstream_model_of(model), conversation)
        return self.context_windows.window(route.upstream.name, route.model, conversation)


def learned_traits(process: AppServices, services: Iterable[Services]) -> list[LearnedTrait]:
    """What this process has learned of its upstreams from refusals and still goes by: by upstream and model, newest
    first."""
    now = process.now()
    found = [*process.learned_forms.traits(now), *process.context_windows.traits(now)]
    for of_dialect in services:
        found += of_dialect.learned_traits.traits()
    return sorted(set(found), key=lambda trait: (trait.upstream, trait.model, -trait.since))


def build_services(process: AppServices, dialect: Dialect) -> Services:
    config, counter = process.config, process.counter
    writer = DialectComposer(dialect, counter.count)
    toolkit = _build_toolkit(process, dialect, writer)
    policy = build_policy(process, dialect, writer, toolkit)
    note_writer = NoteWriter(config, process.conversation_cache, writer)
    message_delivery = MessageDelivery(
        process.conversation_cache,
        process.in_flight,
        writer,
        process.metrics,
        partial(forbids_user_after_result, config),
    )
    notes = build_notes(note_writer, policy, config, process.metrics, message_delivery)
    resolver = Resolver(
        config,
        process.live_settings,
        process.conversation_cache,
        dialect,
        policy,
        note_writer,
        notes,
        process.new_id,
        Holdout(config.holdout, process.secret),
        tuple(note for note in notes if isinstance(note, RereadCounter)),
    )
    recorder = Recorder(
        process.store,
        process.accountant,
        dialect,
        process.now,
        process.metrics,
        process.event_bus,
        process.deferred_tasks,
        counts_usage=config.tenancy != "single",
    )
    return Services(
        config=config,
        dialect=dialect,
        conversation_cache=process.conversation_cache,
        routes=process.routes,
        counter=counter,
        composer=writer,
        resolver=resolver,
        toolkit=toolkit,
        recorder=recorder,
        parse_cache=ParseCache(process.parsed_slices, dialect.name),
        count_memoized=policy.count_memoized,
        now=process.now,
        context_windows=process.context_windows,
        message_delivery=message_delivery,
        inbox=process.inbox,
        learned_traits=LearnedTraits(process.now),
        in_flight=process.in_flight,
        summarizer=process.summarizer,
        cache_keep_alive=process.cache_keep_alive,
        frame_embedder=process.frame_embedder,
        learned_forms=process.learned_forms,
    )


def _build_toolkit(process: AppServices, dialect: Dialect, writer: DialectComposer) -> Toolkit:
    config = process.config
    return Toolkit(
        composer=writer,
        count_tokens=process.counter.count,
        nonce_of=process.nonce_of,
        settings=tool_settings(config),
        prices_of=config.prices_of,
        response_ids_in=partial(response_ids_of, dialect),
        round_to_store=partial(round_to_store, dialect),
        context_form_for=partial(context_form_for, config, dialect),
        block_format_for=partial(block_format_for, config, draw_map=process.draw_map),
        window_tokens_of=lambda model, conversation: process.window_of(model, conversation).known_tokens,
        subagent_rules=lambda: subagent_rules_of(process.live_settings.subagent),
        configure=process.live_settings.try_change,
    )


def response_ids_of(dialect: Dialect, request: Request, rounds: Sequence[Round]) -> tuple[str, ...]:
    """The ids by which a client may name this answer or parts of it."""
    references = dialect.references
    if references is None or not references.is_answer_stored(request):
        return ()
    items = (name for done in rounds for name in references.items_by_id(done.spoken.message))
    return tuple(name for name in dict.fromkeys((response_id_of(rounds), *items)) if name)


def build_policy(process: AppServices, dialect: Dialect, writer: DialectComposer, toolkit: Toolkit) -> ContextPolicy:
    config = process.config
    offered = {
        mode: dialect.tools_json(tools.tool_definitions(profile)).decode()
        for mode, profile in (
            ("active", config.tools),
            ("frames", "frames" if config.tools == "core" else config.tools),
            ("passive", "passive"),
        )
    }
    return ContextPolicy(
        config=config,
        dialect=dialect,
        composer=writer,
        tools_by_mode=offered,
        inference_rules=InferenceRules(config.observed_tools, config.mirror_plans, config.infer_requests),
        settings=toolkit.settings,
        count_tokens=toolkit.count_tokens,
        count_memoized=TextCache(toolkit.count_tokens, MAX_COUNTED_CHARACTERS),
        nonce_of=toolkit.nonce_of,
        window_of=process.window_of,
        plan_row=PlanPrices(process.accountant.plans, process.routes.choose).row,
        accepts_recall=partial(_accepts_recall, process, dialect),
        draw_map=process.draw_map,
    )


def _accepts_recall(process: AppServices, dialect: Dialect, model: str) -> bool:
    """Whether the provider of a client's model takes our tools, as far as its refusals have told."""
    path = next((path for path, spoken in DIALECTS.items() if spoken is dialect), "")
    try:
        route = process.routes.choose(model, path)
    except UnknownModel:
        return True
    return process.learned_forms.form_for(route.upstream.name, route.model) not in FORMS_WITHOUT_RECALL
