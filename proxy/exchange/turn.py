"""One turn while it is answered: its rounds, the stack calls run in it, and when they are stored. A finished hidden
round is durable before the next one starts, and all decisions of a turn before the client sees its end, so no visible
byte depends on something that can be lost. Partial output is kept when a client leaves or an upstream dies."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec.structs import replace

from proxy.core import tools
from proxy.core.compaction import CachePrices
from proxy.core.context import (
    BlockFormat,
    Context,
    ContextForm,
    MessageComposer,
    answers_with_stale_reasoning,
    build_client_context,
    build_context,
)
from proxy.core.frames import (
    FrameEvent,
    FrameInvalidated,
    FramePopped,
    PathState,
    ReasoningRemoved,
    as_ledger_event,
    branches,
    call_key,
    decode_event,
    extend,
    reduce,
)
from proxy.core.ledger import (
    ROUND_SEPARATOR,
    Call,
    Entry,
    EntryKind,
    Lane,
    Ledger,
    LedgerEvent,
    Message,
    ModelResponse,
    Request,
    Round,
    with_round,
)
from proxy.core.matching import lookup_keys
from proxy.core.policy import REFUSED_CALL_RESULT
from proxy.core.recall import fit_page_size, is_recall
from proxy.core.tools import (
    UNBOUNDED,
    CallGroup,
    CrossConversationHits,
    SubagentRules,
    ToolContext,
    ToolResult,
    ToolSettings,
)
from proxy.exchange.background.in_flight import Snapshot
from proxy.exchange.notes.people_messages import MessageDelivery
from proxy.exchange.thread.placement import Placement
from proxy.store import AnchorRecord, ConversationCache
from proxy.upstream import RequestForm

log = logging.getLogger(__name__)

NO_OTHER_HITS: Mapping[str, CrossConversationHits] = {}


@dataclass(frozen=True, kw_only=True)
class Toolkit:
    """What running stack calls needs. Models are given by the client's name."""

    composer: MessageComposer
    count_tokens: Callable[[str], int]
    nonce_of: Callable[[str], str]
    settings: ToolSettings
    prices_of: Callable[[str], CachePrices]
    response_ids_in: Callable[[Request, Sequence[Round]], tuple[str, ...]]
    """The ids by which a client may name the answer to a request, or parts of it."""
    round_to_store: Callable[[Placement, Round], Round]
    """A round as it is stored, with what else the client may name."""
    context_form_for: Callable[[Request], ContextForm]
    """What the model of a request accepts."""
    block_format_for: Callable[[str], BlockFormat]
    """How the frame block is written for the model."""
    window_tokens_of: Callable[[str, str], int]
    """The window of a model in a conversation, in tokens; 0 if unknown."""
    subagent_rules: Callable[[], SubagentRules]
    configure: Callable[[Mapping[str, Any]], str]
    """Changes the subagent settings for everybody; returns the error, or empty."""


class Turn(msgspec.Struct, eq=False):
    """The answer to one client request, in progress."""

    placement: Placement
    conversation_cache: ConversationCache
    entry: Entry
    toolkit: Toolkit
    max_recall_tokens: int = UNBOUNDED
    """Tokens that may be recalled in this turn."""
    free_tokens: int = UNBOUNDED
    """Tokens that the results of the next round may take to fit the window."""
    round_number: int = 0
    calls_run: int = 0
    recalled_tokens: int = 0
    is_relayed: bool = False
    """It answers the client's own bytes."""
    is_by_other_maker: bool = False
    """A model of another maker answered in place of the one that was asked: its reasoning goes to nobody else."""
    form: RequestForm = RequestForm.FULL
    """How much of ours its requests carry: less than all where the provider refused that."""

    @classmethod
    def begin(
        cls, placement: Placement, conversations: ConversationCache, kit: Toolkit, *, is_relayed: bool = False
    ) -> Turn:
        """The next attempt at answering this request. Its id is fixed now; it is stored with its first round."""
        cached, node = placement.cached_conversation, placement.entry_id
        turn = cached.next_turn_id(node)
        entry = Entry(
            turn, node, cached.ledger.next_seq, EntryKind.TURN, placement.thread, created=placement.parsed_request.now
        )
        return cls(placement, conversations, entry, kit, is_relayed=is_relayed)

    @property
    def path_state(self) -> PathState:
        """The path up to the newest round of this turn."""
        return (
            extend(self.placement.ledger, self.placement.path_state, [self.entry])
            if self.round_number
            else self.placement.path_state
        )

    def build_context(self) -> Context:
        if self.form is RequestForm.BARE:
            messages = self.placement.request.messages
            return build_client_context(
                self.path_state, messages, self.entry.id, self.toolkit.composer, self._context_form
            )
        return self._context_of(self.path_state)

    def _context_of(self, path_state: PathState) -> Context:
        return build_context(path_state, self.toolkit.composer, self._context_form)

    @property
    def _context_form(self) -> ContextForm:
        form = self.toolkit.context_form_for(self.placement.request)
        alternate = form.alternate or self.form is RequestForm.MILD
        return replace(form, alternate=alternate, guided=self.form is RequestForm.FULL)

    # ---------------------------------------------------------------------------------------------------- stack calls
    def run_stack_calls(
        self,
        spoken: ModelResponse,
        now: int,
        *,
        refuse: bool = False,
        beside: tuple[Ledger, ...] = (),
        elsewhere: Mapping[str, CrossConversationHits] = NO_OTHER_HITS,
    ) -> tuple[tuple[Message, ...], list[LedgerEvent]]:
        """Run the stack calls of a round in order; returns their results and the events. `refuse`: no more calls in
        this turn. `beside`: related conversations to recall from; `elsewhere`: hits of queries in others."""
        path_state, room = self.path_state, self.free_tokens
        group = CallGroup(has_only_stack_calls=not spoken.client_calls, home_frame=path_state.tree.active)
        before = self.build_context()
        visible_entries = before.entries
        results: list[Message] = []
        recalled: list[str] = []
        events: list[LedgerEvent] = []
        for call in spoken.proxy_calls:
            tool_context = replace(
                self._tool_context(path_state, group, call, now, visible_entries),
                recall_tokens_left=self.max_recall_tokens - self.recalled_tokens,
                recalled_beside=tuple(recalled),
                free_tokens=min(room, self.max_recall_tokens),
                related_ledgers=beside,
                cross_conversation_hits=elsewhere,
            )
            outcome = ToolResult(tools.NO_MORE_CALLS) if refuse else self._apply_settings(_run_tool(tool_context, call))
            self.calls_run += 1
            tokens = self.toolkit.count_tokens(outcome.text)
            if is_recall(call):
                recalled.append(outcome.text)
                self.recalled_tokens += tokens
            room -= tokens
            events += self._as_ledger_events(outcome.events, len(events), now)
            path_state = _with_events(path_state, outcome.events, now)
            group = outcome.call_group or group
            results.append(self.toolkit.composer.tool_result(call.id, outcome.text))
        if gone := self._answers_with_stale_reasoning(events, before, path_state):
            events += self._as_ledger_events((ReasoningRemoved(gone),), len(events), now)
        return tuple(results), events

    def _answers_with_stale_reasoning(
        self, events: Sequence[LedgerEvent], before: Context, path_state: PathState
    ) -> tuple[str, ...]:
        """Answers whose bound reasoning is stale after an isolated frame ended whose opening call the client compacted
        away: its content stays, but the words that opened it go. Includes this turn."""
        ended = [e for e in map(decode_event, events) if isinstance(e, FramePopped | FrameInvalidated) and e.stays]
        frames = self.path_state.tree.frames
        openings = (frames[each.frame].opening for each in ended if each.frame in frames)
        isolated = any(opening and opening.view != "fork" for opening in openings)
        if not isolated or not self._context_form.bound:
            return ()
        after = self._context_of(path_state)
        return tuple(
            dict.fromkeys(
                (*answers_with_stale_reasoning(path_state, before, after, self.toolkit.composer), self.entry.id)
            )
        )

    def _apply_settings(self, outcome: ToolResult) -> ToolResult:
        fault = self.toolkit.configure(outcome.subagent_settings) if outcome.subagent_settings else ""
        return ToolResult(f"Error: {fault}") if fault else outcome

    def _tool_context(
        self, path_state: PathState, group: CallGroup, call: Call, now: int, visible_entries: frozenset[str]
    ) -> ToolContext:
        return ToolContext(
            path_state,
            self.placement.ledger,
            group,
            self.entry.id,
            call_key(self.round_number, call.id),
            self.calls_run,
            now,
            self.toolkit.nonce_of(self.placement.conversation),
            self.toolkit.count_tokens,
            replace(
                self.toolkit.settings,
                recall_page_tokens=fit_page_size(self.toolkit.settings.recall_page_tokens, self.max_recall_tokens),
                block_format=self.toolkit.block_format_for(self.placement.request.model),
                subagents=self.toolkit.subagent_rules(),
            ),
            visible_entries,
            prices=self.toolkit.prices_of(self.placement.request.model),
            window_tokens=self.toolkit.window_tokens_of(self.placement.request.model, self.placement.conversation),
        )

    def _as_ledger_events(self, decided: tuple[FrameEvent, ...], before: int, now: int) -> list[LedgerEvent]:
        seq = self.placement.ledger.next_seq + before
        return [as_ledger_event(e, self.entry.id, self.round_number, seq + n, now) for n, e in enumerate(decided)]

    def snapshot(self, said: Message) -> Snapshot:
        """What exists of the answer while `said` arrives of its newest round."""
        before = (r for r in self.placement.ledger.rounds.get(self.entry.id, ()) if r.number < self.round_number)
        texts = (text for text in (*(r.spoken.message.text for r in before), said.text) if text.strip())
        return Snapshot(self.path_state.tree.active, self.round_number, ROUND_SEPARATOR.join(texts), said.calls)

    # ------------------------------------------------------------------------------------------------------- records
    def store_round(
        self, spoken: ModelResponse, results: tuple[Message, ...], events: list[LedgerEvent], now: int, *, last: bool
    ) -> None:
        """Store a round with its results and events. Raises StoreError; then nothing has changed."""
        placement = self.placement
        done = self.toolkit.round_to_store(
            placement, Round(self.entry.id, self.round_number, spoken, results, last, now)
        )
        prompts = lookup_keys.prompt_anchors_in((done,)) if spoken.client_calls else ()
        others = self._anchor_records(done, now) if last else []
        others += self.conversation_cache.prompt_records(placement.cached_conversation, prompts)
        self.conversation_cache.record(placement.cached_conversation, [*self._unwritten_items(), done, *events], others)
        self.conversation_cache.expect_prompts(placement.cached_conversation, prompts)
        self.round_number += 1

    def record_event(self, decided: FrameEvent, now: int) -> None:
        """Record an event that changes the context of this request; it is attached to the request, before the turn."""
        placement = self.placement
        event = as_ledger_event(decided, placement.entry_id, 0, placement.ledger.next_seq, now)
        self.conversation_cache.record(placement.cached_conversation, [event])
        placement.cached_conversation.forget_path_state(placement.entry_id)
        self.placement = replace(placement, path_state=placement.cached_conversation.path_state(placement.entry_id))

    def deliver_messages(self, hearing: MessageDelivery, lane: Lane, now: int) -> list[LedgerEvent]:
        """Put people's waiting messages of this lane behind the newest round. Raises StoreError; then nothing was
        delivered."""
        said = hearing.due_messages(self.placement, self.path_state, lane, now)
        if not said:
            return []
        return hearing.deliver(self.placement, self.path_state, (self.entry.id, self.round_number - 1), said, now)

    def store_draft(self, spoken: ModelResponse, now: int) -> None:
        """Store what has arrived of a round; the complete round replaces it."""
        unfinished = Round(self.entry.id, self.round_number, replace(spoken, complete=False), created=now)
        self.conversation_cache.record(self.placement.cached_conversation, [*self._unwritten_items(), unfinished])

    def _unwritten_items(self) -> list[Entry | LedgerEvent]:
        """The turn's entry, if nothing of it is stored yet: a failed request leaves no turn. A relayed answer of an
        awake thread loses reasoning that the model binds to its prefix, and so does the answer of another maker."""
        ledger, entry, placement = self.placement.ledger, self.entry, self.placement
        if entry.id in ledger.entries:
            return []
        entry = entry if entry.seq == ledger.next_seq else replace(entry, seq=ledger.next_seq)
        does_not_fit = self.is_by_other_maker or (self.is_relayed and self._context_form.bound)
        if not (does_not_fit and placement.path_state.tree.is_awake):
            return [entry]
        return [
            entry,
            as_ledger_event(ReasoningRemoved((entry.id,)), entry.id, 0, entry.seq + 1, placement.parsed_request.now),
        ]

    def _anchor_records(self, done: Round, now: int) -> list[AnchorRecord]:
        """The keys that find the conversation when the client echoes this turn, or names it."""
        ledger, request = self.placement.ledger, self.placement.request
        conversation = ledger.conversation
        rounds = with_round(ledger.rounds.get(self.entry.id, ()), done)
        keys = lookup_keys.anchors_of_turn(request.messages, rounds)
        echoed = AnchorRecord(conversation.id, conversation.hint, keys, now)
        if not (names := self.toolkit.response_ids_in(request, rounds)):
            return [echoed]
        return [echoed, AnchorRecord(conversation.id, "", tuple(map(lookup_keys.response_anchor, names)), now)]

    async def wait_until_durable(self, left_out: Set[str] | None = None) -> None:
        """Wait until the conversation is on disk; with `left_out`, only what a context without these entries depends
        on. Raises StoreError if that fails."""
        await self.conversation_cache.wait_until_durable(self.placement.cached_conversation, left_out)


def _run_tool(tool_context: ToolContext, call: Call) -> ToolResult:
    """A failing tool never fails the client's request. A call that is not ours is here because it runs in a loop."""
    if not call.is_stack_call:
        return ToolResult(REFUSED_CALL_RESULT)
    try:
        return tools.run(tool_context, call)
    except Exception:  # the edge of our own tools: the model is told, the log has the cause
        log.exception("stack call failed", extra={"tool": call.name[:80]})
        return ToolResult("Error: this operation failed inside the proxy and changed nothing. Go on without it.")


def _with_events(path_state: PathState, events: tuple[FrameEvent, ...], now: int) -> PathState:
    tree, branch_state = path_state.tree, path_state.branches
    for event in events:
        tree, branch_state = reduce(tree, event, now), branches.reduce_branches(branch_state, event, now)
    return replace(path_state, tree=tree, branches=branch_state)
