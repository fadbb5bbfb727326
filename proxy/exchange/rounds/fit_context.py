"""Builds the context of a round in the form and length that its provider takes.

What a context leaves out, and what was decided about it, is on disk before the request leaves. One that does not fit is
shortened: old outputs are cleared, then the oldest groups are dropped.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cached_property

from proxy.core.compaction import (
    KEPT_WINDOW_SHARE,
    OverflowNotes,
    clear_old_outputs,
    cut_long_outputs,
    drop_oldest,
    drop_oldest_messages,
    droppable_tokens,
    leave_out_repeats,
    tell_whole_again,
    tidy_outputs,
    withhold_results,
)
from proxy.core.context import Context, answers_with_stale_reasoning, unpaired_calls
from proxy.core.frames import FrameEvent, PathEntry, ReasoningRemoved
from proxy.core.ledger import ModelResponse, Request
from proxy.core.tools import UNBOUNDED
from proxy.dialects import holds_text_alone
from proxy.errors import ProxyError, StoreError
from proxy.exchange.background.recorder import RequestRecordBuilder
from proxy.exchange.background.scheduler import let_others_run
from proxy.exchange.rounds.client_request import ClientRequest, Services
from proxy.exchange.rounds.form_ladder import FormLadder, Refusal
from proxy.exchange.rounds.shorten_request import quotes_of, shortened_prompt_tokens
from proxy.exchange.thread.bound_reasoning import binds_reasoning, must_open_with_reasoning, newest_assistant_entry
from proxy.exchange.thread.context_policy import NO_TOOLS
from proxy.exchange.thread.quoted_history import QuoteFinder
from proxy.exchange.turn import Turn
from proxy.upstream import ContextWindow, RequestForm, Route

log = logging.getLogger(__name__)

SUSPECT_WINDOW_SHARE = 0.5
"""Share of a known window from which our additions may have made a request too long."""
AMPLE_ROOM_SHARE = 0.5
"""Share of a window that no results of a round fill; with so much room, droppable tokens are not counted."""
COUNT_ERROR_SHARE = 0.02
"""Share of a window by which our token count may be off."""
SMALL_RESULT_TOKENS = 400
"""Tokens of a stack result that may use half of the room reserved for the model's answer."""


class ContextRejected(ProxyError):
    """A context that may not leave; `code` says why. The client's own bytes go instead."""

    code = "internal"


class ContextFitter:
    """Fits the contexts of one request. `request` has the upstream's name for the model."""

    def __init__(
        self,
        services: Services,
        client_request: ClientRequest,
        route: Route,
        request: Request,
        record: RequestRecordBuilder,
    ) -> None:
        self.services = services
        self._client_request = client_request
        self.model = (route.upstream.name, route.model)
        self.request = request
        self._record = record
        conversation = record.placement.conversation if record.placement else ""
        self._window_key = (*self.model, conversation)
        self.forms = FormLadder(services, route, request, record)

    def window(self) -> ContextWindow:
        return self.services.context_windows.window(*self._window_key)

    @cached_property
    def quotes(self) -> QuoteFinder:
        return quotes_of(self.services, self._client_request, self.request)

    async def build(self, turn: Turn) -> Context:
        """The context of the active frame: calls paired, within the window, what it leaves out on disk.

        Raises ContextRejected when it cannot be sent, StoreError when what it leaves out cannot be made durable. A
        hidden round has no client body to fall back to: it is shortened as far as possible, and the provider decides.
        """
        is_first = not turn.round_number
        if is_first:
            self._use_learned_form(turn)
        context = turn.build_context()
        await let_others_run(self.request)
        await turn.wait_until_durable(context.left_out if is_first else None)
        window = self.window()
        if turn.form is not RequestForm.BARE:
            context = await self._truncate_outputs(turn, context, window)
        if unpaired_calls(context.messages):
            raise ContextRejected("a call on the line has no result", code="law_pairing")
        tokens = self.request_tokens(turn, context)
        if window.holds(tokens):
            return context
        if turn.form is RequestForm.BARE or (is_first and self.request.tokens <= window.limit):
            # A bare form has nothing that can leave here. Else the client's body fits, and bypassing is no loss, but
            # there is no reason for it while our additions only use room reserved for the answer.
            if is_first and tokens > window.tokens:
                raise ContextRejected("the line does not fit the window, the client's body does", code="window")
            return context
        shorter = await self._shorten(turn, context, window.limit, shortened_prompt_tokens(window))
        if is_first and shorter is None and self.request.tokens <= window.tokens:
            raise ContextRejected("the line does not fit the window, the client's body may", code="window")
        left = shorter or context
        left = await self._drop_stack_results(turn, left, int(window.tokens * (1 - COUNT_ERROR_SHARE))) or left
        tokens = self.request_tokens(turn, left)
        if is_first and tokens > window.tokens and await self._original_may_fit(tokens):
            raise ContextRejected(
                "the line does not fit the window, what is left of the client's body may", code="window"
            )
        return left

    def request_tokens(self, turn: Turn, context: Context) -> int:
        """Tokens of a request with this context: head, tools and messages."""
        request = self.forms.with_offered_tools(turn, self.request).request
        fixed = request.fixed_tokens
        loaded = request.loaded_tokens(context.messages)
        return fixed + loaded + sum(self.stack_tokens(turn)) + context.tokens

    def stack_tokens(self, turn: Turn) -> tuple[int, int]:
        """Tokens of our tools, and of our guidance."""
        weigh = self.services.count_memoized
        tools, guidance = self.forms.offer(turn)
        return weigh(tools), weigh(guidance)

    def room_for_results(self, turn: Turn, spoken: ModelResponse, sent_tokens: int) -> int:
        """Tokens that the results of a round, for which so many were sent, may take for the next round to fit, after
        all droppable content has left."""
        window = self.window()
        if not window.is_binding:
            return UNBOUNDED
        left = window.limit - sent_tokens - spoken.message.tokens - int(window.tokens * COUNT_ERROR_SHARE)
        if left < window.tokens * AMPLE_ROOM_SHARE:
            left += droppable_tokens(turn.path_state, turn.build_context(), self._overflow_notes(turn))
        return max(left, min(SMALL_RESULT_TOKENS, left + (window.tokens - window.limit) // 2))

    def estimate_active_tokens(self, turn: Turn) -> int:
        """Shadow: tokens of the first round in mode active; 0 if unknown."""
        try:
            if turn.path_state.tree.is_awake:
                return self.request_tokens(turn, turn.build_context())
            given = self.services.resolver.preview_wake(turn.placement)
        except Exception:  # only a statistic: the request passes unchanged
            log.exception("what would be sent cannot be told", extra={"request": self._client_request.id})
            return 0
        ours = sum(map(self.services.count_memoized, given.texts)) if given else 0
        return self.request.tokens + ours

    # -------------------------------------------------------------------------------------------------------- refusals
    def learn_if_too_long(self, refused: Refusal) -> bool:
        """Whether the provider refused a round for its length; if so, the window limit is learned from it."""
        if not refused.is_too_long:
            return False
        self.services.context_windows.learn_from_refusal(*self._window_key, refused.sent_tokens, refused.body)
        return True

    def learn_from_response(self, spoken: ModelResponse, sent_tokens: int) -> None:
        """Learn from the provider's count of so many tokens how much fits, and which form it accepts."""
        self.services.context_windows.learn_from_usage(*self._window_key, sent_tokens, spoken.usage)
        self.forms.learn(complete=spoken.complete)

    async def shorten_refused(self, turn: Turn, context: Context, refused: Refusal) -> Context | None:
        """A context that fits, if this one was refused for its length; the limit is remembered."""
        if not self.learn_if_too_long(refused):
            return None
        return await self.shorten_below(turn, context, self.request_tokens(turn, context))

    async def shorten_below(self, turn: Turn, context: Context, refused_tokens: int) -> Context | None:
        if turn.form is RequestForm.BARE and not self._lacks_room_for_recall(turn):
            return None
        left = context
        if turn.form is RequestForm.BARE:  # what was refused unfolded goes as it was folded
            turn.form, self._record.form = RequestForm.FULL, ""
            left = turn.build_context()
        window, enough = self.window(), int(refused_tokens * KEPT_WINDOW_SHARE)
        room = min(enough, shortened_prompt_tokens(window)) if window.is_binding else enough
        fits = int(window.tokens * (1 - COUNT_ERROR_SHARE))
        most = fits if window.source in ("table", "named") and fits < refused_tokens else enough
        enough = min(enough, window.limit) if window.is_binding else enough
        try:
            left = await self._truncate_outputs(turn, left, window)
            if self.request_tokens(turn, left) > enough:
                left = await self._shorten(turn, left, enough, room) or left
            left = await self._drop_stack_results(turn, left, most) or left
        except StoreError:
            return None  # nothing may leave the context that is not on disk: pass the refusal
        return left if left is not context else None

    def in_milder_form(self, turn: Turn, refused: Refusal) -> Context | None:
        """The context in a milder form, if this one was refused for its form and there is one."""
        form = self.forms.form_after(turn, refused)
        if form is None:
            return None
        before = turn.build_context()
        turn.form = self._record.form = form
        after = turn.build_context()
        same = [message.wire for message in before.messages] == [message.wire for message in after.messages]
        if form is not RequestForm.BARE or same or not self._binds_reasoning:
            return after
        # What was folded is back, in front of reasoning that was made without it.
        without, gone = self.services.dialect.without_reasoning, turn.path_state.tree.without_reasoning
        spoken = ((p.entry.id, p.message) for p in turn.path_state.entries)
        answers = (entry for entry, said in spoken if said and said.role == "assistant" and without(said) is not said)
        stale = [entry for entry in dict.fromkeys(answers) if entry not in gone]
        return turn.build_context() if self._remove_reasoning(turn, stale) else after

    async def original_may_pass(self, refused: Refusal, *, again: bool) -> bool:
        """Whether the refused request may fit without our additions. If it is far from filling the window, they are not
        the cause and the refusal passes; likewise if a shorter context was refused `again`. A quote may still be
        replaced then."""
        if not refused.is_too_long:
            return False
        if again or refused.sent_tokens < self.window().known_tokens * SUSPECT_WINDOW_SHARE:
            return await self.quotes.find() is not None
        return await self._original_may_fit(refused.sent_tokens)

    async def _original_may_fit(self, refused_tokens: int) -> bool:
        """Whether the client's own request, or what can be left of it, is below so many tokens."""
        request = self.request
        if self.services.config.fail_policy == "closed":
            return False
        if request.tokens < refused_tokens or drop_oldest_messages(
            request.messages, 0, self.services.dialect.holds_compaction
        ):
            return True
        return await self.quotes.find() is not None

    # ------------------------------------------------------------------------------------------------------------ form
    def _use_learned_form(self, turn: Turn) -> None:
        """Raises ContextRejected where only the client's own request is accepted."""
        answer = self._open_loop_answer(turn)
        said = answer.message if answer else None
        reasons = said is not None and self.services.dialect.without_reasoning(said) is not said
        if answer and reasons and answer.entry.id in turn.path_state.tree.without_reasoning:
            raise ContextRejected(
                "the tool loop opens with reasoning that no line of ours was there for", code="in_loop"
            )
        form = self.forms.learned_form()
        holds_all = self._lacks_room_for_recall(turn) and self.window().holds(self.request.tokens)
        if holds_all and form is not RequestForm.CLIENT:
            form = RequestForm.BARE
        if form is RequestForm.FULL:
            return
        self._record.form = form
        if form is RequestForm.CLIENT:
            raise ContextRejected("the provider refuses every form but the client's own", code="form")
        turn.form = form

    def _lacks_room_for_recall(self, turn: Turn) -> bool:
        """Whether the client's tools are as many as the model takes: what is folded cannot be asked for."""
        waking = turn.path_state.tree.wake_state
        return waking is not None and waking.tools == NO_TOOLS

    @property
    def _binds_reasoning(self) -> bool:
        return binds_reasoning(self.services.config, self.services.dialect, self.model[1])

    def _open_loop_answer(self, turn: Turn) -> PathEntry | None:
        """The last answer of a running tool loop that must open with its reasoning."""
        config, dialect = self.services.config, self.services.dialect
        must_open = must_open_with_reasoning(config, dialect, self.request, self.model[1])
        return newest_assistant_entry(turn.path_state.entries) if must_open else None

    def _remove_reasoning(self, turn: Turn, stale: Sequence[str]) -> bool:
        """Whether any of these answers loses its reasoning: all do but one that opens a running loop."""
        answer = self._open_loop_answer(turn)
        removed = tuple(entry for entry in stale if answer is None or entry != answer.entry.id)
        if removed:
            turn.record_event(ReasoningRemoved(removed), self.services.now())
        return bool(removed)

    # ---------------------------------------------------------------------------------------------------------- length
    async def _truncate_outputs(self, turn: Turn, context: Context, window: ContextWindow) -> Context:
        """The context with new outputs tidied where that is configured, and long ones cut to `output_cap` or by their
        rule; an unknown window has no default cap."""
        config, most = self.services.config, window.max_output_tokens
        count, cap, rules = self.services.counter.count, config.output_cap or most, config.output_rules
        is_recallable = self.forms.offers_recall(turn)
        context = await self._tell_whole_again(turn, context) or context
        if config.tidy_outputs != "off" and is_recallable:
            tidied = tidy_outputs(turn.path_state, holds_text_alone, count, rules, cap)
            context = await self._apply_events(turn, context, tidied) or context
        events = cut_long_outputs(turn.path_state, cap, count, rules, most) if cap or rules else ()
        context = await self._apply_events(turn, context, events) or context
        # In a request that may have to be shortened, the earlier copy of a block could leave.
        if config.tidy_outputs == "repeats" and is_recallable and self.request_tokens(turn, context) <= window.limit:
            repeats = leave_out_repeats(turn.path_state, context.entries, holds_text_alone, count, rules)
            context = await self._apply_events(turn, context, repeats) or context
        return context

    async def _shorten(self, turn: Turn, context: Context, enough: int, room: int) -> Context | None:
        """A shorter context: old outputs cleared and, if it is still above `enough` tokens, the oldest groups dropped
        down to `room`. None if nothing can go."""
        cleared = await self._apply_events(
            turn, context, clear_old_outputs(turn.path_state, context, self.services.config.output_rules)
        )
        if cleared is not None:
            cleared = await self._tell_whole_again(turn, cleared) or cleared
        if cleared is not None and self.request_tokens(turn, cleared) <= enough:
            return cleared
        left = cleared or context
        fixed = self.request_tokens(turn, left) - left.tokens
        event = drop_oldest(turn.path_state, left, room - fixed, self._overflow_notes(turn))
        dropped = await self._apply_events(turn, left, (event,) if event else ())
        whole = await self._tell_whole_again(turn, dropped) if dropped else None
        if whole is not None and self.request_tokens(turn, whole) > enough:
            return await self._shorten(turn, whole, enough, room) or whole
        return whole or dropped or cleared

    async def _tell_whole_again(self, turn: Turn, context: Context) -> Context | None:
        """The context with outputs whole that refer to what is not in it as it came. None if there are none."""
        return await self._apply_events(turn, context, tell_whole_again(turn.path_state, context.entries))

    def _overflow_notes(self, turn: Turn) -> OverflowNotes:
        kit = self.services.toolkit
        return OverflowNotes(kit.settings.tool_roles, kit.nonce_of(turn.placement.conversation))

    async def _drop_stack_results(self, turn: Turn, context: Context, most: int) -> Context | None:
        """The context without stack results, as far as it is above `most` tokens. None if nothing can go."""
        event = withhold_results(turn.path_state, context, self.request_tokens(turn, context) - most)
        return await self._apply_events(turn, context, (event,) if event else ())

    async def _apply_events(self, turn: Turn, context: Context, events: Sequence[FrameEvent]) -> Context | None:
        """The context after these events, which are durable then; None without events. Reasoning that its provider
        binds to a changed prefix is removed."""
        if not events:
            return None
        for event in events:
            turn.record_event(event, self.services.now())
        changed = turn.build_context()
        if self._binds_reasoning and self._remove_reasoning(
            turn, answers_with_stale_reasoning(turn.path_state, context, changed, self.services.composer)
        ):
            changed = turn.build_context()
        await turn.wait_until_durable()
        return changed
