"""Records a request: the `x-stack-*` headers, the receipt, the stored bodies, and one line in the log.

Recording never fails or delays a request: what cannot be stored is counted and logged. Neither content nor keys are
logged.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from hashlib import sha256
from itertools import islice, takewhile
from operator import attrgetter
from time import perf_counter

import msgspec

from proxy.accounting import (
    NOTHING_SENT,
    Accountant,
    AnsweredRound,
    GateDecision,
    HashedChain,
    KnownHistory,
    PromptChain,
    Receipt,
    RequestAccount,
    RequestOutcome,
    WindowReading,
    hash_chain,
    list_use,
    read_windows,
    response_headers,
)
from proxy.core import tools
from proxy.core.compaction import compaction_plan, reasoning_tokens
from proxy.core.context import context_entries
from proxy.core.frames import REASONING_REMOVED, FrameFolded, ReasoningRemoved, ThreadWoken, decode_event
from proxy.core.ledger import PROVIDER_COMPACTIONS_KEY, LedgerEvent, Message, ModelResponse, Request, Usage
from proxy.dialects import (
    Dialect,
    compaction_usages,
    cost_of_usage,
    object_in,
    replace_surrogates,
    tells_cached_tokens,
    without_secrets,
)
from proxy.errors import StoreError
from proxy.exchange.background.own_requests import request_record_of
from proxy.exchange.background.scheduler import DeferredTasks
from proxy.exchange.background.stored_plans import store_plan
from proxy.exchange.thread.placement import Placement
from proxy.exchange.thread.session_headers import client_name
from proxy.exchange.thread.working_folder import working_folder
from proxy.store import Body, SentRecord, Store, UsageRecord
from proxy.telemetry import MAX_FIELD_CHARS, EventBus, LogFields, Metrics, log_field, truncate_field
from proxy.upstream import RawHeaders, Route

log = logging.getLogger(__name__)

LOOPING_CALL = "looping"
"""The name under which a refused looping call is counted."""
COUNTED_TOOL_NAMES = frozenset(
    {LOOPING_CALL, tools.DISPATCHER, *(t.name for t in tools.TOOLS), *(f"stack_{t.op}" for t in tools.TOOLS)}
)
DAY_MS = 86_400_000
MAX_FIRST_MESSAGES = 4
"""Messages before the first answer in which a client may tell where it works."""
HEAD_CACHE_SIZE = 256
"""Request heads whose identity is cached: an agent sends the same one each time."""
REASONING_REMOVAL_KINDS = frozenset({"folded", REASONING_REMOVED})
UNKNOWN_TOOL = "unknown"
"""Stands for a tool that does not exist: the model made up its name, so it is neither logged nor counted."""
ASLEEP_REASONS_IN_HEADER = frozenset({"name_clash", "legacy_functions", "too_many_tools"})
"""The header tells only reasons that somebody must fix; others change from request to request, and clients compare the
word `asleep`."""


@dataclass
class Recorder:
    """One per process. `now` returns ms since the epoch."""

    store: Store
    accountant: Accountant
    dialect: Dialect
    now: Callable[[], int]
    metrics: Metrics = field(default_factory=Metrics)
    event_bus: EventBus = field(default_factory=EventBus)
    deferred_tasks: DeferredTasks = field(default_factory=lambda: DeferredTasks(0))
    counts_usage: bool = False
    """Whether what each tenant uses is added up, by the day."""


class RequestRecordBuilder(msgspec.Struct):
    """Collects one request's record. `arrived` is a `perf_counter` value."""

    recorder: Recorder
    id: str
    tenant: str
    arrived: float
    upstream: str
    model: str
    status: str
    """Empty for an endpoint that is not ours."""
    reason: str = ""
    placement: Placement | None = None
    account: RequestAccount | None = None
    overhead_ms: float = 0.0
    hidden_calls: int = 0
    recalls: int = 0
    calls_by_name: dict[str, int] = {}
    """Hidden calls."""
    retries: int = 0
    """Rounds without an answer that were sent again."""
    events: list[LedgerEvent] = []
    decisions: list[GateDecision] = []
    usages: list[Usage | None] = []
    unreported_outputs: dict[int, int] = {}
    """Tokens of ours of the answers whose usage was not reported, by the number of the round."""
    bills: dict[int, float] = {}
    """What answers named as their cost (USD), by the number of the round."""
    header_cost: float | None = None
    """The same from the header of the answer that is read now."""
    payer: RawHeaders = []
    """What of the request's headers says who pays: as they leave for the first upstream."""
    windows: dict[int, tuple[WindowReading, ...]] = {}
    """What answers told of the windows of a plan, by the number of the round."""
    organization: bytes = b""
    """What an answer named as the account."""
    sent_bodies: list[SentRecord] = []
    finish_reason: str = ""
    upstream_status: int = 0
    """The provider's last status; 0 before any."""
    tokens_would_send: int = 0
    """Shadow mode: tokens that would have been sent; else 0."""
    outcome: RequestOutcome | None = None
    final_receipt: Receipt | None = None
    form: str = ""
    """The form of the request where it is not the full one: "strict", "mild", "bare" or "own"."""
    brief_tools: int = 0
    """Tokens of descriptions of the client's tools that the last round was sent without."""

    def set_placement(self, placement: Placement) -> RequestRecordBuilder:
        """Open the account with what the client sent."""
        self.status, self.reason, self.placement = placement.status, placement.reason, placement
        new = self.recorder.accountant.meets_first(self.tenant, placement.conversation)
        history = KnownHistory(
            begins=new,
            goes_on=new and not placement.begins,
            elsewhere_at=placement.cached_conversation.take_elsewhere_time(),
            is_stored=placement.ledger.conversation.created < placement.parsed_request.now,
        )
        self.account = self._open_account(self.hash_chain(client_chain(placement.request), placement.request), history)
        self.decisions += map(receipt_decision, placement.decisions)
        if placement.rereads.count.of_removed:
            self.account.add_rereads(placement.rereads.gone_tokens, nothing_else=placement.rereads.nothing_else)
        return self

    def set_command_placement(self, placement: Placement) -> RequestRecordBuilder:
        """Record a command to the proxy itself. The account is empty: without the proxy nothing would have been
        sent."""
        self.placement = placement
        self.account = self._open_account((), NOTHING_SENT)
        self.overhead_ms = (perf_counter() - self.arrived) * 1000
        return self

    def _open_account(self, chain: PromptChain | HashedChain, history: KnownHistory) -> RequestAccount:
        return self.recorder.accountant.open(chain, (self.tenant, self.upstream, self.model), history)

    def hash_chain(
        self, chain: PromptChain, request: Request, context_messages: Sequence[Message] | None = None
    ) -> HashedChain:
        """The chain of the client's request, or of the context that is sent for it, with what of it no cache holds."""
        is_marked = self.recorder.accountant.caches_at_markers(self.model)
        return hash_chain(chain, self.recorder.dialect.unmarked_tokens(request, context_messages) if is_marked else 0)

    # ---------------------------------------------------------------------------------------------------------- note
    def add_sent_round(
        self,
        chain: PromptChain | HashedChain,
        body: Body | None,
        *,
        added_tools: int = 0,
        added_texts: int = 0,
        brief_tools: int = 0,
    ) -> None:
        """A round is sent; `body` None: the client's own bytes. Figures are tokens of ours in `chain`; `brief_tools`
        are missing in the client's tools."""
        self.brief_tools = brief_tools
        if not self.overhead_ms:
            self.overhead_ms = (perf_counter() - self.arrived) * 1000
        if self.account:
            if self.account.is_taken_as_warm and any(map(_puts_our_tools_in_front, self._arrival_events())):
                self.account.take_as_cold()
            self.account.add_round(chain, added_tools=added_tools, added_texts=added_texts, brief_tools=brief_tools)
        if body is not None:
            self.sent_bodies.append(SentRecord(self.id, len(self.usages), body, self.recorder.now()))

    def add_relayed_round(self, own: Request) -> None:
        """The client's own request is sent unchanged."""
        chain_of_request = (
            self.account.chain if self.account and self.placement and own is self.placement.request else None
        )
        self.add_sent_round(
            self.hash_chain(client_chain(own), own) if chain_of_request is None else chain_of_request, None
        )

    def add_response(self, spoken: ModelResponse, unreported_output: int = 0) -> None:
        """`unreported_output`: our tokens of an answer whose usage the provider did not report."""
        if unreported_output:
            self.unreported_outputs[len(self.usages)] = unreported_output
        account, reported = self.account, object_in(spoken.extra, "usage")
        billed = cost_of_usage(reported)
        if billed is None:
            billed = self.header_cost
        if billed is not None:
            self.bills[len(self.usages)] = billed
        self.usages.append(spoken.usage)
        self.finish_reason = spoken.finish
        if account and not account.is_cache_reported and tells_cached_tokens(reported):
            account.note_cache_reported()
        # An answer that is a compaction and nothing else tells no figures besides: then we go by what was sent.
        if PROVIDER_COMPACTIONS_KEY in spoken.extra and spoken.usage and spoken.usage.input and self.account:
            usage = object_in(spoken.extra, "usage")
            self.account.add_compactions(compaction_usages(usage))

    def add_retry(self, usage: Usage | None = None) -> None:
        """`usage`: what the provider charges for the failed round."""
        self.usages.append(usage)
        self.retries += 1
        if self.account and not (usage and usage.input):
            self.account.mark_round_refused()

    def add_windows(self, headers: RawHeaders, organization: bytes) -> None:
        """The headers of an answer, which may tell of a plan's windows."""
        if found := read_windows(headers, self.recorder.now() / 1000):
            self.windows[len(self.usages)] = found
            self.organization = organization or self.organization

    def add_stack_calls(self, calls: Sequence[str], events: Sequence[LedgerEvent]) -> None:
        """Names of answered stack calls, and the events they made."""
        self.hidden_calls += len(calls)
        self.recalls += sum(name == "stack_recall" for name in calls)
        for name in (name if name in COUNTED_TOOL_NAMES else UNKNOWN_TOOL for name in calls):
            self.calls_by_name[name] = self.calls_by_name.get(name, 0) + 1
        self.events += events

    def switch_route(self, route: Route) -> None:
        """Another model answers in place of the one that was asked, at its own price."""
        self.upstream, self.model, self.payer = route.upstream.name, route.model, []
        if self.account:
            self.account.switch_model((self.tenant, self.upstream, self.model))

    def mark_bypassed(self, reason: str) -> None:
        """The client's request is sent unchanged, from now on or for all of it."""
        self.status, self.reason = "bypass", reason

    def mark_stateless(self, reason: str = "") -> None:
        """The client's own request is sent, less what does not fit; without a `reason`, the one of the bypass."""
        self.status, self.reason = "stateless", reason or self.reason

    def mark_failed(self, reason: str) -> None:
        """The client gets an error or a broken connection."""
        self.status, self.reason = "error", reason

    # ---------------------------------------------------------------------------------------------------------- tell
    def headers(self) -> RawHeaders:
        """`x-stack-*` headers; money only after the last round."""
        reason = self.reason if self.status != "asleep" or self.reason in ASLEEP_REASONS_IN_HEADER else ""
        status = f"{self.status}; reason={reason}" if reason else self.status
        status = f"{status}; form={self.form}" if status and self.form else status
        headers = [(b"x-stack-status", status.encode())] if status else []
        headers.append((b"x-stack-request-id", self.id.encode()))
        if (placement := self.placement) is not None:
            headers += [
                (b"x-stack-conversation", placement.conversation.encode()),
                (b"x-stack-thread", placement.thread.encode()),
                (b"x-stack-frame", placement.frame.encode()),
            ]
        if told_of := self.receipt() or self.account:
            headers += response_headers(told_of, self.overhead_ms)
        if self.tokens_would_send:
            headers.append((b"x-stack-tokens-would-send", b"%d" % self.tokens_would_send))
        return headers

    def finish(self, client_status: int) -> None:
        """End the record, once; the log line, receipt and bodies are stored afterwards. `client_status` is 0 where the
        client left first."""
        if self.outcome is not None:
            return
        self.outcome = outcome = self._build_outcome(client_status)
        trouble = self.status in ("bypass", "error")
        level = logging.WARNING if trouble else logging.INFO
        self.recorder.deferred_tasks.add(partial(self._publish, outcome, level), now=trouble)

    def receipt(self) -> Receipt | None:
        """None before the end, or where nothing was charged. Computed on demand: only a plain answer's headers need it
        early."""
        if self.final_receipt is None and self.account is not None and self.outcome is not None:
            plans = self.recorder.accountant.plans
            plan = plans.paying(self.payer, self.organization, tells_windows=any(self.windows.values()))
            self.final_receipt = self.account.settle(
                self.outcome, self.usages, self.unreported_outputs, self.bills, plan
            )
        return self.final_receipt

    def _learn_plan(self) -> None:
        """Take in what the answers told of the windows of a plan. A round that was refused took nothing of them."""
        if not self.payer or not any(self.windows.values()):
            return
        tariff = self.recorder.accountant.tariff_of(self.model)
        answered: list[AnsweredRound] = []
        for number, usage in enumerate(self.usages):
            is_refused = usage is None and number + 1 < len(self.usages)
            used = list_use(usage or Usage(), tariff) if usage or is_refused else None
            answered.append((used, self.windows.get(number, ())))
        plans = self.recorder.accountant.plans
        if account := plans.learn(self.payer, self.organization, answered):
            store_plan(self.recorder.store, plans, account, self.recorder.now())

    def _publish(self, outcome: RequestOutcome, level: int) -> None:
        if (receipt := self.receipt()) is not None:
            self._learn_plan()
            self.recorder.event_bus.publish_receipt(self.tenant, receipt)
        summary = receipt or outcome
        self.recorder.metrics.count_request(summary, self.calls_by_name, self.retries)
        log.log(level, "request", extra={"stack": _log_fields(summary, self.calls_by_name, self.retries)})
        self._store()

    def _build_outcome(self, client_status: int) -> RequestOutcome:
        placement = self.placement
        events = (*self._arrival_events(), *self.events)
        return RequestOutcome(
            id=self.id,
            conversation=placement.conversation if placement else "",
            thread=placement.thread if placement else "",
            frame=placement.frame if placement else "",
            model=replace_surrogates(self.model),
            upstream=self.upstream,
            mode=placement.mode if placement else "",
            status=self.status,
            reason=self.reason,
            created=placement.parsed_request.now if placement else self.recorder.now(),
            duration_ms=(perf_counter() - self.arrived) * 1000,
            overhead_ms=self.overhead_ms,
            stream=bool(placement and placement.request.stream),
            hidden_calls=self.hidden_calls,
            recalls=self.recalls,
            rereads=placement.rereads.count.total if placement else 0,
            rereads_gone=placement.rereads.count.of_removed if placement else 0,
            events=tuple(f"{event.kind} {event.subject.partition('/')[0]}".rstrip() for event in events),
            client_status=client_status,
            upstream_status=self.upstream_status,
            finish_reason=replace_surrogates(self.finish_reason),
            would_send=self.tokens_would_send,
            decisions=tuple(self.decisions),
            form=self.form,
            brief_tools=self.brief_tools,
            client=client_name(placement.parsed_request.headers) if placement else "",
            project=_project_of(placement.request) if placement else "",
            group=placement.group if placement else "",
            lost_reasoning=self._lost_reasoning_tokens(events) if events else 0,
        )

    def _arrival_events(self) -> list[LedgerEvent]:
        """Events of the request's arrival, not of a round."""
        placement = self.placement
        if placement is None or not placement.ledger.events:
            return []
        ledger, since = placement.ledger, placement.parsed_request.now
        new, entry = [placement.entry_id], ledger.entries.get(placement.entry_id)
        while entry is not None and entry.created >= since:
            new.append(entry.parent)
            entry = ledger.entries.get(entry.parent)
        events = ledger.events
        return [event for node in reversed(new) for event in events.get(node, ()) if event.created >= since]

    def _lost_reasoning_tokens(self, events: Iterable[LedgerEvent]) -> int:
        """About the tokens of reasoning that these events drop for good."""
        placement, muted = self.placement, set(_answers_without_reasoning(events))
        if placement is None or not muted:
            return 0
        ledger, since = placement.ledger, placement.parsed_request.now
        hanging = (event for entry in ledger.path(placement.entry_id) for event in ledger.events.get(entry.id, ()))
        before = set(_answers_without_reasoning(event for event in hanging if event.created < since))
        answers = [path_entry for path_entry in context_entries(placement.path_state) if path_entry.entry.id in muted]
        return reasoning_tokens(answers, before, self.recorder.dialect.without_reasoning)

    def _store(self) -> None:
        placement, receipt = self.placement, self.final_receipt
        if placement is None or receipt is None:
            return
        fields = placement.request.fields
        body = without_secrets(body_to_store(placement, self.recorder.dialect.client_body(placement.request)), fields)
        row = request_record_of(receipt, placement.entry_id, body)
        sent = (msgspec.structs.replace(sent, body=without_secrets(sent.body, fields)) for sent in self.sent_bodies)
        untold = sum(self.unreported_outputs.values())
        used = (usage_record_of(receipt, untold),) if self.recorder.counts_usage else ()
        try:
            self.recorder.store.write(self.tenant, (row, *sent, *used))
        except StoreError as error:
            log.warning("receipt not kept", extra={"request": self.id, "reason": error.code})


def body_to_store(placement: Placement, body: Body) -> Body:
    """The client's body, with the stored ids of known calls where the client makes them anew with each request: else
    each request would add the whole history to the store."""
    if not placement.call_ids:
        return body
    known = {_as_bytes(theirs): _as_bytes(ours) for theirs, ours in placement.call_ids.items()}
    changed: dict[bytes, bytes] = {}
    for source in placement.request.slices:
        ids = {_as_bytes(i) for m in source.messages for i in (m.answers, *[c.id for c in m.calls])} & known.keys()
        own = {theirs: known[theirs] for theirs in ids}
        # A run of items stands in the body without the brackets of its array.
        for piece in (source.raw, source.raw[1:-1].strip()) if own else ():
            # Each id stands between two quotes; a pattern of a thousand ids would take 30 ms to compile.
            changed[piece] = b'"'.join([own.get(part, part) for part in piece.split(b'"')])
    return tuple(changed.get(piece, piece) for piece in body)


def _as_bytes(call_id: str) -> bytes:
    return call_id.encode("utf-8", "surrogatepass")


def receipt_decision(decided: compaction_plan.CompactionDecision) -> GateDecision:
    """The gate's decision, flattened for a receipt."""
    verdict = decided.verdict
    rewrite, prices = verdict.rewrite, verdict.prices
    return GateDecision(
        decided.kind,
        ", ".join(decided.frames),
        verdict.is_worth_it,
        verdict.reason.value,
        rewrite.removed,
        rewrite.compaction,
        rewrite.behind,
        verdict.requests,
        prices.read,
        prices.write,
        verdict.cost,
        verdict.gain,
        rewrite.added,
        rewrite.reasoning,
        verdict.band,
    )


def client_chain(request: Request) -> PromptChain:
    """What the client sent: head and tools as one piece, then the messages."""
    return [_head_piece(request, "", "", 0), *_message_pieces(request, request.messages)]


def sent_chain(
    request: Request, guidance: str, tool_array: str, added_tokens: int, context_messages: Sequence[Message]
) -> PromptChain:
    """What is sent for an awake thread; `added_tokens` are those of our guidance and tools (`tool_array`)."""
    return [_head_piece(request, guidance, tool_array, added_tokens), *_message_pieces(request, context_messages)]


def _message_pieces(request: Request, context_messages: Sequence[Message]) -> PromptChain:
    """A deferred tool is paid where a message loads it first."""
    pieces = [(m.identity, m.tokens) for m in context_messages]
    for position, loaded in request.loaded_tokens_by_message(context_messages).items():
        identity, tokens = pieces[position]
        pieces[position] = identity, tokens + loaded
    return pieces


def _head_piece(request: Request, guidance: str, tool_array: str, added_tokens: int) -> tuple[str, int]:
    identity = _head_identity(request.system_hash, _names_in_front(request), guidance, tool_array)
    return identity, request.fixed_tokens + added_tokens


def _names_in_front(request: Request) -> tuple[str, ...]:
    """The names of the tools that stand in the prompt before the messages."""
    if not request.deferred_tools:
        return request.tool_names
    return tuple(name for name in request.tool_names if name not in request.deferred_tools)


@lru_cache(HEAD_CACHE_SIZE)
def _head_identity(system_hash: str, tool_names: tuple[str, ...], guidance: str, tool_array: str) -> str:
    said = "\n".join([system_hash, *tool_names, guidance, tool_array])
    return sha256(said.encode()).hexdigest()[:32]


def _puts_our_tools_in_front(event: LedgerEvent) -> bool:
    woken = decode_event(event) if event.kind == "woken" else None
    return isinstance(woken, ThreadWoken) and not woken.appended


def _answers_without_reasoning(events: Iterable[LedgerEvent]) -> Iterator[str]:
    for event in events:
        said = decode_event(event) if event.kind in REASONING_REMOVAL_KINDS else None
        if isinstance(said, ReasoningRemoved):
            yield from said.turns
        elif isinstance(said, FrameFolded):
            yield from said.muted


def usage_record_of(receipt: Receipt, untold: int = 0) -> UsageRecord:
    """Tokens are the provider's figures; where it answered and told none, those that we sent. `untold`: tokens of
    answers that broke off before their figures."""
    is_answered = 200 <= receipt.upstream_status < 300
    tokens = (receipt.usage.input + receipt.usage.output or (receipt.tokens_sent if is_answered else 0)) + untold
    return UsageRecord(receipt.created // DAY_MS, 1, tokens, receipt.cost, receipt.cost_untouched)


_IDS = ("id", "conversation", "thread", "frame", "model", "upstream", "mode", "status", "reason")
_TEXT_FIELDS = (*_IDS, "finish_reason")
_ALWAYS_LOGGED = (*_IDS, "client_status", "upstream_status", "finish_reason", "stream")
_OPTIONAL_FIELDS = ("recalls", "would_send", "lost_reasoning")
_get_text_fields = attrgetter(*_TEXT_FIELDS)
_get_always_logged = attrgetter(*_ALWAYS_LOGGED)


def _log_fields(outcome: RequestOutcome, calls: Mapping[str, int], tries: int) -> LogFields:
    """Ids, figures and names of ours; rare fields only when they apply."""
    fields = LogFields(zip(_ALWAYS_LOGGED, _get_always_logged(outcome), strict=True))
    if isinstance(outcome, Receipt):
        fields["rounds"] = outcome.rounds
    fields["hidden_calls"] = outcome.hidden_calls
    fields["duration_ms"], fields["overhead_ms"] = log_field(outcome.duration_ms), log_field(outcome.overhead_ms)
    if isinstance(outcome, Receipt):
        fields["tokens_in"], fields["tokens_sent"] = outcome.tokens_in, outcome.tokens_sent
        fields["tokens_saved"] = outcome.tokens_saved
        fields["cost"], fields["cost_untouched"] = log_field(outcome.cost), log_field(outcome.cost_untouched)
        fields["saved"], fields["basis"] = log_field(outcome.saved), outcome.basis
        if outcome.plan is not None:
            fields["paid_by"] = "plan"
        if (usage := outcome.usage).input:
            fields["reported_input"], fields["reported_cached"] = usage.input, usage.cached
            fields["reported_written"], fields["reported_output"] = usage.written, usage.output
    if max(map(len, _get_text_fields(outcome))) > MAX_FIELD_CHARS:
        fields |= {name: truncate_field(fields[name]) for name in _TEXT_FIELDS}
    for name in _OPTIONAL_FIELDS:
        if figure := getattr(outcome, name):
            fields[name] = figure
    if tries:
        fields["tries"] = tries
    if calls:
        fields["calls"] = dict(calls)
    if outcome.events:
        fields["events"] = list(map(truncate_field, outcome.events))
    if outcome.decisions:
        asked = (f"{d.kind} {'done' if d.done else 'not now'} {d.reason}".rstrip() for d in outcome.decisions)
        fields["decisions"] = dict(Counter(asked))
    return fields


def _project_of(request: Request) -> str:
    """From the head, and from what stands before the first answer."""
    first = takewhile(lambda message: message.role != "assistant", request.messages)
    texts = (message.text for message in (*request.head, *islice(first, MAX_FIRST_MESSAGES)))
    return replace_surrogates(working_folder(texts))
