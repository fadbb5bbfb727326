"""Finds where a request stands (conversation, path, frames) and whether the proxy acts on it. What is new is recorded
before anything leaves; requests of one scope are resolved one at a time. Requests that are asleep, side, off or shadow
pass as they came: only an awake thread in mode `active` or `passive` is rendered."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import NamedTuple, get_args

from msgspec.structs import replace

from proxy.accounting import ANSWERED_STATUS
from proxy.config import Config, Mode
from proxy.config.runtime import LiveSettings
from proxy.core.context import context_entries
from proxy.core.frames import (
    BRANCH_SWITCHED_KIND,
    FrameEvent,
    ReasoningRemoved,
    ResultReplaced,
    ThreadWoken,
    as_ledger_event,
    frame_id,
)
from proxy.core.ledger import (
    REMEMBERED_TOOL_ARRAYS,
    Conversation,
    Entry,
    LedgerEvent,
    Message,
    Request,
    Thread,
    is_stack_tool,
)
from proxy.core.matching import Match, MatchKind, RequestRole, lookup_keys, match_history
from proxy.core.memo import RecentCache
from proxy.core.observers import cache_names_in_slices
from proxy.core.policy import (
    build_root,
)
from proxy.core.recall import is_unchanged_note, restore_file_contents, uncached_entries
from proxy.core.tools import (
    fingerprint_of,
)
from proxy.dialects import Dialect, answers_program
from proxy.errors import BadRequest
from proxy.exchange.background.scheduler import hold, in_own_time, in_slices, is_long, let_others_run
from proxy.exchange.notes.base import Note, NoteWriter, apply_notes
from proxy.exchange.notes.situation import attach_parent_task
from proxy.exchange.notes.suggestions import read_frame_activity
from proxy.exchange.thread import session_headers
from proxy.exchange.thread.choose_thread import (
    changed_thread,
    head_of,
    thread_id_for,
    thread_of_tip,
    thread_on_branch,
)
from proxy.exchange.thread.context_policy import ContextPolicy, PolicyDecision
from proxy.exchange.thread.conversation_origin import Origin, OriginFinder, fork_point, opening_prompts
from proxy.exchange.thread.follow_path import KEYWORD_SCAN_BATCH, NewHistory, PathFollower
from proxy.exchange.thread.holdout import HELD_OUT_MODE, HELD_OUT_REASON, HELD_OUT_STATUS, NO_HOLDOUT, Holdout
from proxy.exchange.thread.placement import Headers, ParsedRequest, Placement, policy_input_of
from proxy.store import AnchorRecord, CachedConversation, ConversationCache, ConversationQuery, Record

log = logging.getLogger(__name__)

MODES = get_args(Mode)
ACTING_MODES = ("passive", "active")
"""Modes in which a thread may wake and slash commands are answered."""
MIN_UNKNOWN_ANSWERS = 2
"""So many answers that nobody here gave, behind the known part of a history with tools, are another loop's: one may be
a notice of the client's own."""
MAX_KEYWORD_SCAN = 2_000
"""Newest messages of a complete new history whose names are collected; more are not remembered."""

MAX_SHADOW_WAKES = 4_000
"""Threads in mode `shadow` of which it is remembered that they would be awake; for others it is decided again."""


class TakenOver(NamedTuple):
    """What a new conversation has from another one. `bound`: positions of answers whose reasoning is bound to that
    one's context. `directive`: a fork's own task, told `at` this position; the plan and the requests before it were its
    parent's, so no frames are inferred from them."""

    bound: Set[int] = frozenset()
    directive: str = ""
    at: int = 0


NOTHING_TAKEN_OVER = TakenOver()


@dataclass(frozen=True)
class Resolver:
    """`policy` decides what is done, `notes` add texts for the model; `new_id` returns 128 random bits in hex."""

    config: Config
    live_settings: LiveSettings
    conversation_cache: ConversationCache
    dialect: Dialect
    policy: ContextPolicy
    note_writer: NoteWriter
    notes: tuple[Note, ...]
    new_id: Callable[[], str]
    holdout: Holdout = NO_HOLDOUT
    passed_notes: tuple[Note, ...] = ()
    """Of `notes`, those that look at requests that pass untouched."""
    has_active: bool = True
    """Whether there is mode `active`, or `passive` instead of it."""

    @cached_property
    def shadow_wakes(self) -> RecentCache[tuple[str, str], ThreadWoken]:
        """By conversation and thread in mode `shadow`: the event that would have woken it."""
        return RecentCache(MAX_SHADOW_WAKES)

    @cached_property
    def origin_finder(self) -> OriginFinder:
        return OriginFinder(self.config, self.live_settings, self.conversation_cache, self.dialect)

    @cached_property
    def path_follower(self) -> PathFollower:
        return PathFollower(self.config, self.policy)

    async def resolve(self, parsed: ParsedRequest) -> Placement:
        """Raises StoreError when the store cannot be read, BadRequest for an unknown mode."""
        asked_mode = _mode_from_header(parsed.headers)
        hint = session_headers.session_hint(parsed.headers)
        query = self._query_of(parsed, hint)
        candidates = await self.conversation_cache.look_up(query, partial(opening_prompts, parsed.request))
        async with hold(self.conversation_cache.lock(parsed.tenant, hint)):
            cached, found = await self.conversation_cache.locate(query, candidates)
            await let_others_run(parsed.request)
            if cached is not None and found.path:
                parsed = parsed.later_than(cached.ledger, found.path[-1])
            role = await self._role_of(parsed, hint, cached, found)
            if role is RequestRole.SIDE and cached is not None:
                return self._side_placement(parsed, cached, found)
            request = match_history.with_stored_call_ids(parsed.request, found, self.dialect.with_call_id)
            parsed = parsed if request is parsed.request else replace(parsed, request=request)
            new = parsed.request.messages[len(found.path) :]
            decides_in_thread = len(new) > KEYWORD_SCAN_BATCH and await self._prescan_keywords(
                parsed, new, self._effective_mode(parsed, asked_mode, "")
            )
            if cached is None or role is RequestRole.FORK:
                origin = (
                    fork_point(cached, found, parsed.request)
                    if cached
                    else await self.origin_finder.find(parsed, candidates)
                )
                if cached is not None:
                    request = self.origin_finder.with_parents_reasoning(parsed.request, cached, found)
                    parsed = replace(parsed, request=request)
                arrived = await self._begin_conversation(parsed, origin, hint, asked_mode)
            else:
                arrived = await self._record_arrival(parsed, cached, found, asked_mode)
            if (subagent := self.live_settings.subagent).enabled and subagent.parent_context:
                arrived = await attach_parent_task(arrived, self.conversation_cache, self.note_writer)
            await let_others_run(request)
            placement = await self._decide(arrived, in_thread=decides_in_thread)
            await let_others_run(request)
            await self.origin_finder.end_returned_subagents(placement)
            return placement

    async def _begin_conversation(self, parsed: ParsedRequest, known: Origin, hint: str, asked_mode: str) -> Placement:
        bound = await self.origin_finder.positions_bound_elsewhere(parsed, known)
        origin = known if self.live_settings.subagent.enabled else Origin()
        parent = await self.conversation_cache.get(parsed.tenant, known.conversation) if known.conversation else None
        arrived = await self._record_arrival(
            parsed,
            self._create_conversation(parsed, hint, origin, parent),
            Match(MatchKind.NEW),
            asked_mode,
            TakenOver(bound, known.directive, known.directive_at),
        )
        await self.origin_finder.begin_subagent(arrived, origin)
        return arrived

    async def _prescan_keywords(self, parsed: ParsedRequest, new: Sequence[Message], mode: str) -> bool:
        """Collect names in a long new history in slices, so that other requests are served meanwhile. Changes nothing
        but caches. False if the thread sleeps."""
        request, new = parsed.request, new[-MAX_KEYWORD_SCAN:]
        if mode == "off" or request.tokens < self.policy.smallest_awake or not request.tool_names:
            return False
        await in_slices(cache_names_in_slices(new))
        return True

    async def resolve_command(self, parsed: ParsedRequest) -> tuple[str, Placement | None]:
        """The mode, and the newest known entry of the path at which a slash command was typed; None if no conversation
        has begun. Records nothing, except for an unknown history, which becomes a conversation. Raises as `resolve`
        does."""
        asked_mode = _mode_from_header(parsed.headers)
        hint, messages = session_headers.session_hint(parsed.headers), parsed.request.messages
        query = self._query_of(parsed, hint)
        candidates = await self.conversation_cache.look_up(query) if messages else None
        async with hold(self.conversation_cache.lock(parsed.tenant, hint)):
            cached, found = None, Match(MatchKind.NEW)
            if messages:
                cached, found = await self.conversation_cache.locate(query, candidates)
            if cached is None and any(m.role == "assistant" for m in messages):
                opened = self._create_conversation(parsed, hint, Origin(), None)
                placement = await self._record_arrival(parsed, opened, found, asked_mode)
                return placement.mode, replace(placement, status=ANSWERED_STATUS)
            if cached is None:
                return self._effective_mode(parsed, asked_mode, ""), None
            ledger = cached.ledger
            tip = ledger.entries[found.path[-1].id if found.path else found.adopts]
            mode = self._effective_mode(parsed, asked_mode, ledger.conversation.chosen_mode)
            path_state = cached.path_state(tip.id)
            return mode, Placement(
                parsed, cached, path_state, tip.id, tip.thread, ANSWERED_STATUS, match_kind=found.kind, mode=mode
            )

    def _effective_mode(self, parsed: ParsedRequest, asked_mode: str, stored_mode: str) -> str:
        """`asked_mode` comes from the request, `stored_mode` from the conversation."""
        mode = asked_mode or stored_mode or parsed.mode or self.config.mode_of(parsed.request.model)
        return mode if self.has_active or mode != "active" else "passive"

    def mode_without_conversation(self, headers: Headers, issued: str, model: str) -> str:
        """The mode as far as it is known without the conversation; `issued` is that of the client key. Raises
        BadRequest."""
        return _mode_from_header(headers) or issued or self.config.mode_of(model)

    async def resolve_bypassed(self, parsed: ParsedRequest, reason: str) -> Placement | None:
        """Where a request stands that passes for this `reason`; None if it has no conversation. Records nothing."""
        hint = session_headers.session_hint(parsed.headers)
        cached, found = await self.conversation_cache.locate(self._query_of(parsed, hint))
        beside = self._side_placement(parsed, cached, found) if cached is not None else None
        return replace(beside, status="bypass", reason=reason) if beside else None

    async def resolve_beside(self, parsed: ParsedRequest, reason: str) -> Placement | None:
        """Where the whole history of a request stands that is answered from there, `full` if the proxy acts there, but
        leaves nothing on the path; None if its first messages are unknown. Records nothing."""
        asked_mode, hint = _mode_from_header(parsed.headers), session_headers.session_hint(parsed.headers)
        query = self._query_of(parsed, hint)
        candidates = await self.conversation_cache.look_up(query)
        async with hold(self.conversation_cache.lock(parsed.tenant, hint)):
            cached, found = await self.conversation_cache.locate(query, candidates)
            if cached is None or not found.path:
                return None
            beside = self._side_placement(parsed, cached, found)
            mode = self._effective_mode(parsed, asked_mode, cached.ledger.conversation.chosen_mode)
            acts = mode in ACTING_MODES and beside.path_state.tree.is_awake
            return replace(beside, mode=mode, status="full") if acts else replace(beside, mode=mode, reason=reason)

    # ------------------------------------------------------------------------------------------------------ identity
    def _query_of(self, parsed: ParsedRequest, hint: str) -> ConversationQuery:
        return ConversationQuery(parsed.tenant, hint, parsed.request, parsed.now, self.dialect.name)

    async def _role_of(
        self, parsed: ParsedRequest, hint: str, cached: CachedConversation | None, found: Match
    ) -> RequestRole:
        request = parsed.request
        if cached is None or not any(m.role == "assistant" for m in request.messages):
            return RequestRole.MAIN
        if (thread := match_history.thread_of_request(cached.ledger, request, found)) is None:
            return RequestRole.MAIN
        named = bool(cached.ledger.conversation.hint)
        role = match_history.role_of_request(request, thread, named=named)
        if role is not RequestRole.SIDE or not await self._holds_own_answers(parsed, hint, found):
            return role
        return match_history.role_of_request(request, thread, named=named, holds_own_answers=True)

    async def _holds_own_answers(self, parsed: ParsedRequest, hint: str, found: Match) -> bool:
        """Whether a request beside its thread is a loop: its history holds an answer that was given to it there."""
        request = parsed.request
        if request.tool_names and match_history.count_unknown_answers(request, found) >= MIN_UNKNOWN_ANSWERS:
            return True
        answers = [m for m in request.messages[:-1] if m.role == "assistant"]
        keys = lookup_keys.side_answer_anchors(request, answers)
        return await self.conversation_cache.knows_anchor(parsed.tenant, hint, keys)

    def record_side_answer(self, placement: Placement, answer: Message) -> None:
        """Remember an answer that was given beside a thread: a request that holds it is a loop. Raises StoreError."""
        parsed, conversation = placement.parsed_request, placement.ledger.conversation
        keys = lookup_keys.side_answer_anchors(parsed.request, [answer])
        hint = session_headers.session_hint(parsed.headers)
        record = AnchorRecord(conversation.id, hint, keys, parsed.now)
        self.conversation_cache.record(placement.cached_conversation, [], [record])

    def _side_placement(self, parsed: ParsedRequest, cached: CachedConversation, found: Match) -> Placement:
        """A side request is answered beside the thread; nothing of it is kept on the path."""
        tip = found.path[-1].id if found.path else found.adopts
        path_state = cached.path_state(tip)
        asked_mode, conversation = _mode_from_header(parsed.headers), cached.ledger.conversation
        return Placement(
            parsed,
            cached,
            path_state,
            "",
            cached.ledger.entries[tip].thread,
            "side",
            match_kind=found.kind,
            group=self._group_of(
                conversation, self._effective_mode(parsed, asked_mode, conversation.chosen_mode), asked_mode
            ),
        )

    def _create_conversation(
        self, parsed: ParsedRequest, hint: str, origin: Origin, parent: CachedConversation | None
    ) -> CachedConversation:
        """`parent` decides whether the conversation is held out, else its own key does."""
        new_id = self.new_id()
        if parent is not None:
            held_out = parent.ledger.conversation.chosen_mode == HELD_OUT_MODE
        else:
            usual = self._effective_mode(parsed, _mode_from_header(parsed.headers), "")
            key = session_headers.parent_hint(parsed.headers) or hint or new_id
            held_out = usual in ACTING_MODES and self.holdout.is_chosen(parsed.tenant, key)
        return self.conversation_cache.create(
            Conversation(
                new_id,
                parsed.tenant,
                hint,
                origin.conversation,
                origin.turn,
                parsed.now,
                HELD_OUT_MODE if held_out else "",
                dialect=self.dialect.name,
            )
        )

    def _group_of(self, conversation: Conversation, mode: str, asked_mode: str) -> str:
        return self.holdout.group_of(conversation, mode, acts=mode in ACTING_MODES, asked=asked_mode)

    # --------------------------------------------------------------------------------------------------------- record
    async def _record_arrival(
        self,
        parsed: ParsedRequest,
        cached: CachedConversation,
        found: Match,
        asked_mode: str,
        taken: TakenOver = NOTHING_TAKEN_OVER,
    ) -> Placement:
        """Record what is new, and replay the path."""
        ledger, request = cached.ledger, parsed.request
        thread = thread_id_for(ledger, found, request, has_replicas=self.conversation_cache.is_shared)
        new = match_history.new_entries(ledger, request, found, thread, parsed.now)
        opening = found.kind is MatchKind.NEW
        events = [_root_started_event(ledger.conversation, new, taken.directive, parsed.now)] if opening and new else []
        if taken.bound:
            events.append(_reasoning_removed_event(new, taken.bound, parsed.now))
        tip_thread = thread_of_tip(ledger, found)
        before = ledger.threads.get(thread) or tip_thread
        change = changed_thread(before, thread, request, self.config.upstream_model_of(request.model))
        mode = self._effective_mode(parsed, asked_mode, ledger.conversation.chosen_mode)
        look = fingerprint_of(before) if new and _may_act(request, mode) else None
        history = NewHistory(parsed, cached, found, new, events, change, look, infers=not taken.directive)
        path_state, earlier, seen = await in_slices(self.path_follower.follow(history))
        values: list[Entry | LedgerEvent | Thread] = [*new, *seen]
        if change:
            values.append(change)
        others: list[Record] = [ledger.conversation] if opening else []
        if opening or found.kind is MatchKind.COMPACTED:  # both open a history, and may be retried
            others.append(_opening_anchor_record(parsed, ledger.conversation))
        await let_others_run(request)
        if values or others:
            self.conversation_cache.record(cached, values, others)
            await let_others_run(request)
        node = new[-1].id if new else found.path[-1].id
        if (
            opening and len(new) > KEYWORD_SCAN_BATCH
        ):  # decisions attach to the newest entry: only that is replayed again
            cached.cache_path_state(earlier.tip, earlier)
        if new:
            cached.cache_path_state(node, path_state)
        since = before if change else None
        if tip_thread is not None and tip_thread.id != thread and before is not tip_thread:  # the loop changed its mode
            since = tip_thread if head_of(tip_thread) != head_of(change or before) else None
        if seen and any(event.kind == BRANCH_SWITCHED_KIND for event in seen):
            since = thread_on_branch(path_state.branches, change or before)
        return Placement(
            parsed,
            cached,
            path_state,
            node,
            thread,
            "asleep",  # preliminary: `_decide` sets the status
            match_kind=found.kind,
            previous_thread=since,
            mode=mode,
            call_ids=found.call_ids,
            directive_entry=new[taken.at].id if taken.directive else "",
            group=self._group_of(ledger.conversation, mode, asked_mode),
        )

    async def _decide(self, placement: Placement, *, in_thread: bool) -> Placement:
        """`in_thread`: a long new history came at once; it is decided in a thread so that other requests are served. So
        is a known one that is long, and without a limit of time: what has left its context must not come back."""
        request = placement.request
        if placement.mode == HELD_OUT_MODE:
            placement = await apply_notes(placement, self.passed_notes)
            return replace(placement, status=HELD_OUT_STATUS, reason=HELD_OUT_REASON)
        if placement.mode not in ACTING_MODES:
            return replace(await apply_notes(placement, self.passed_notes), status=placement.mode)
        if request.choice_count > 1:
            return replace(placement, status="side", reason="several_answers")
        if reason := _tool_conflict(request):
            return replace(placement, status="asleep", reason=reason)
        act = partial(self.policy.decide, policy_input_of(placement))
        decision = await (asyncio.to_thread(act) if in_thread else in_own_time(request, act))
        return await self._apply_decision(placement, decision)

    def preview_wake(self, placement: Placement) -> ThreadWoken | None:
        """Shadow: the event that would wake the thread with this request; None if it would go on sleeping."""
        if _tool_conflict(placement.request) or placement.request.choice_count > 1:
            return None
        # A thread stays awake once it woke; and planning all its compactions with each request takes a second a
        # request in a session of 300, because here nothing ever leaves.
        thread = (placement.conversation, placement.thread)
        if known := self.shadow_wakes.find(thread):
            return known
        acted = self.policy.decide(policy_input_of(placement, "active"))
        woken = next((event for event in acted.events if isinstance(event, ThreadWoken)), None)
        return self.shadow_wakes.keep(thread, woken, 1) if woken else None

    async def _apply_decision(self, placement: Placement, acted: PolicyDecision) -> Placement:
        if acted.decisions:
            placement = replace(placement, decisions=acted.decisions)
        if acted.events:
            placement = self.note_writer.record_events(placement, acted.events)
            await let_others_run(placement.request)
        if not placement.path_state.tree.is_awake:
            return replace(placement, status="asleep", reason=acted.reason)
        placement = replace(self._restore_reread_files(placement, acted.events), status="full")
        if is_long(placement.request):  # what a note would read on the event loop
            roles = self.policy.inference_rules.tool_roles
            await in_own_time(placement.request, partial(read_frame_activity, placement, roles))
        # What runs at the provider takes results alone: 400 for any text in their message. What there is to say waits.
        return placement if answers_program(placement.request.messages) else await apply_notes(placement, self.notes)

    def _restore_reread_files(self, placement: Placement, decided: Sequence[FrameEvent]) -> Placement:
        """Clients answer a second read of a file with "unchanged". If the first read has left the context, its content
        is added to that result; after a decision for older results too, because they are sent anew anyway."""
        messages = placement.request.messages
        # Claude Code says "unchanged since your last Read", Qwen Code "unchanged since last read in this session": both
        # believe that the model still sees the first read. Without its content the model edits from memory.
        spoken = next((at for at in range(len(messages) - 1, -1, -1) if messages[at].role == "assistant"), 0)
        if not any(m.answers and is_unchanged_note(m.text) for m in messages[0 if decided else spoken :]):
            return placement
        shown = {p.path_id for p in context_entries(placement.path_state)}
        new = uncached_entries(placement.path_state, decided)
        means = self.policy.restore_options(policy_input_of(placement))
        given = restore_file_contents(placement.ledger, placement.path_state, shown, new, means)
        if not given:
            return placement
        return self.note_writer.record_events(
            placement, [ResultReplaced(entry, text, "read again") for entry, text in given]
        )


def _tool_conflict(request: Request) -> str:
    """Why our tools cannot stand beside the client's, or empty."""
    if request.rejects_own_tools:
        return "legacy_functions"
    return "name_clash" if _has_name_clash(request.tool_names) else ""


@lru_cache(REMEMBERED_TOOL_ARRAYS)
def _has_name_clash(tool_names: tuple[str, ...]) -> bool:
    return any(map(is_stack_tool, tool_names))


def _opening_anchor_record(parsed: ParsedRequest, opened: Conversation) -> AnchorRecord:
    return AnchorRecord(opened.id, opened.hint, lookup_keys.opening_anchors(parsed.request), parsed.now)


def _may_act(request: Request, mode: str) -> bool:
    return mode in ACTING_MODES and request.choice_count == 1 and not _tool_conflict(request)


def _mode_from_header(headers: Headers) -> str:
    wanted = dict(reversed(headers)).get(b"x-stack-mode", b"").decode("latin-1").strip()
    if wanted and wanted not in MODES:
        raise BadRequest(
            f"x-stack-mode: {wanted[:40]!r} is no mode; use one of {', '.join(MODES)}.", code="unknown_mode"
        )
    return wanted


def _root_started_event(conversation: Conversation, entries: Sequence[Entry], directive: str, now: int) -> LedgerEvent:
    """The root frame, titled by a fork's directive, else by the user's first message."""
    said = [e.message.text for e in entries if e.message and e.message.role == "user"]
    return as_ledger_event(
        build_root([directive] if directive else said, frame_id(conversation.id, 0)),
        entries[0].id,
        0,
        len(entries),
        now,
    )


def _reasoning_removed_event(new: Sequence[Entry], bound: Set[int], now: int) -> LedgerEvent:
    """Removes the reasoning of these answers; attached to the last of them, so every path behind it has the event."""
    event = ReasoningRemoved(tuple(new[at].id for at in sorted(bound)))
    return as_ledger_event(event, new[max(bound)].id, 0, len(new) + 1, now)
