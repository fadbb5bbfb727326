"""Places a request in three steps: finds its conversation and path, infers frames from what is new and records it, and
decides whether the proxy acts on it. Requests of one scope are placed one at a time, and nothing of them leaves before.
Those that are asleep, side, off or shadow pass as they came: only an awake thread in mode `active` or `passive` is
rendered."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence, Set
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import get_args

from msgspec import Struct
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
from proxy.core.policy import build_root
from proxy.core.recall import is_unchanged_note, restore_file_contents, uncached_entries
from proxy.core.tools import fingerprint_of
from proxy.dialects import Dialect, answers_program
from proxy.errors import BadRequest
from proxy.exchange.background.scheduler import hold, in_own_time, in_slices, is_long, let_others_run
from proxy.exchange.notes.base import Note, NoteWriter, apply_notes
from proxy.exchange.notes.situation import attach_parent_task
from proxy.exchange.notes.suggestions import read_frame_activity
from proxy.exchange.thread import session_headers
from proxy.exchange.thread.choose_thread import changed_thread, head_of, thread_id_for, thread_of_tip, thread_on_branch
from proxy.exchange.thread.context_policy import ContextPolicy, PolicyDecision
from proxy.exchange.thread.conversation_origin import Origin, OriginFinder, fork_point, opening_prompts, prompt_of_fork
from proxy.exchange.thread.follow_path import KEYWORD_SCAN_BATCH, FollowedPath, NewHistory, PathFollower
from proxy.exchange.thread.holdout import HELD_OUT_MODE, HELD_OUT_REASON, HELD_OUT_STATUS, NO_HOLDOUT, Holdout
from proxy.exchange.thread.placement import Headers, ParsedRequest, Placement, policy_input_of
from proxy.store import AnchorRecord, CachedConversation, ConversationCache, ConversationQuery, Record, StoredCandidates

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


NO_ORIGIN = Origin()


class Found(Struct, frozen=True):
    """Where a request was found: in `cached`, None where its conversation begins, at the end of `match`. `hint` and
    `asked_mode` are what its headers name, `candidates` what was read of a shared store."""

    parsed: ParsedRequest
    hint: str
    asked_mode: str
    candidates: StoredCandidates
    cached: CachedConversation | None
    match: Match

    def timed_after_path(self) -> Found:
        if self.cached is None or not self.match.path:
            return self
        return replace(self, parsed=self.parsed.later_than(self.cached.ledger, self.match.path[-1]))

    @property
    def new_messages(self) -> Sequence[Message]:
        return self.parsed.request.messages[len(self.match.path) :]

    def with_request(self, request: Request) -> Found:
        return self if request is self.parsed.request else replace(self, parsed=replace(self.parsed, request=request))


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
        """Find, infer, decide. Raises StoreError when the store cannot be read, BadRequest for an unknown mode."""
        async with self._find(parsed, partial(opening_prompts, parsed.request)) as found:
            await let_others_run(parsed.request)
            found = found.timed_after_path()
            role = await self._role_of(found)
            if role is RequestRole.SIDE and found.cached is not None:
                return self._side_placement(found.parsed, found.cached, found.match)
            found = found.with_request(
                match_history.with_stored_call_ids(found.parsed.request, found.match, self.dialect.with_call_id)
            )
            if decides_off_loop := self._is_long_and_may_wake(found):
                # Their names are asked for at once: collected in slices, they let other requests be served meanwhile.
                await in_slices(cache_names_in_slices(found.new_messages[-MAX_KEYWORD_SCAN:]))
            arrived = await self._infer(found, role)
            await let_others_run(parsed.request)
            placement = await self._decide(arrived, off_loop=decides_off_loop)
            await let_others_run(parsed.request)
            await self.origin_finder.end_returned_subagents(placement)
            return placement

    @asynccontextmanager
    async def _find(self, parsed: ParsedRequest, prompts: Callable[[], Sequence[str]] = tuple) -> AsyncIterator[Found]:
        """Where a request stands, while no other request of its scope is resolved. `prompts` may have been delegated to
        it."""
        query, asked_mode = self._query_of(parsed), _mode_from_header(parsed.headers)
        candidates = await self.conversation_cache.look_up(query, prompts)
        async with hold(self.conversation_cache.lock(parsed.tenant, query.hint)):
            cached, match = await self.conversation_cache.locate(query, candidates)
            yield Found(parsed, query.hint, asked_mode, candidates, cached, match)

    async def _infer(self, found: Found, role: RequestRole) -> Placement:
        """What is new is recorded on its path, with the frames inferred from it; in a new conversation where none was
        found, or where the client forked it."""
        if found.cached is None:
            arrived = await self._begin_conversation(
                found, await self.origin_finder.find(found.parsed, found.candidates)
            )
        elif role is RequestRole.FORK:
            origin = fork_point(found.cached, found.match, found.parsed.request)
            request = self.origin_finder.with_parents_reasoning(found.parsed.request, found.cached, found.match)
            arrived = await self._begin_conversation(found.with_request(request), origin)
        else:
            arrived = await self._record_arrival(found, found.cached)
        if (subagent := self.live_settings.subagent).enabled and subagent.parent_context:
            arrived = await attach_parent_task(arrived, self.conversation_cache, self.note_writer)
        return arrived

    async def _begin_conversation(self, found: Found, known: Origin) -> Placement:
        parsed = found.parsed
        bound = await self.origin_finder.positions_bound_elsewhere(parsed, known)
        origin = known if self.live_settings.subagent.enabled else NO_ORIGIN
        parent = await self.conversation_cache.get(parsed.tenant, known.conversation) if known.conversation else None
        created = self._create_conversation(found, origin, parent)
        arrived = await self._record_arrival(replace(found, match=Match(MatchKind.NEW)), created, known, bound)
        await self.origin_finder.begin_subagent(arrived, origin)
        return arrived

    def _is_long_and_may_wake(self, found: Found) -> bool:
        """Whether a new history is long and its thread may be awake: deciding on it takes long."""
        request, mode = found.parsed.request, self._effective_mode(found.parsed, found.asked_mode, "")
        if len(found.new_messages) <= KEYWORD_SCAN_BATCH or mode == "off":
            return False
        return request.tokens >= self.policy.smallest_awake and bool(request.tool_names)

    async def resolve_command(self, parsed: ParsedRequest) -> tuple[str, Placement | None]:
        """The mode, and the newest known entry of the path at which a slash command was typed; None if no conversation
        has begun. Records nothing, except for an unknown history, which becomes a conversation. Raises as `resolve`
        does."""
        if not parsed.request.messages:
            return self._effective_mode(parsed, _mode_from_header(parsed.headers), ""), None
        async with self._find(parsed) as found:
            match, asked_mode = found.match, found.asked_mode
            if found.cached is None and any(m.role == "assistant" for m in parsed.request.messages):
                opened = self._create_conversation(found, NO_ORIGIN, None)
                placement = await self._record_arrival(found, opened)
                return placement.mode, replace(placement, status=ANSWERED_STATUS)
            if found.cached is None:
                return self._effective_mode(parsed, asked_mode, ""), None
            ledger = found.cached.ledger
            tip = ledger.entries[match.newest_known or match.adopts]
            mode = self._effective_mode(parsed, asked_mode, ledger.conversation.chosen_mode)
            path_state = found.cached.path_state(tip.id)
            return mode, Placement(
                parsed, found.cached, path_state, tip.id, tip.thread, ANSWERED_STATUS, match_kind=match.kind, mode=mode
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
        cached, match = await self.conversation_cache.locate(self._query_of(parsed))
        beside = self._side_placement(parsed, cached, match) if cached is not None else None
        return replace(beside, status="bypass", reason=reason) if beside else None

    async def resolve_beside(self, parsed: ParsedRequest, reason: str) -> Placement | None:
        """Where the whole history of a request stands that is answered from there, `full` if the proxy acts there, but
        leaves nothing on the path; None if its first messages are unknown. Records nothing."""
        async with self._find(parsed) as found:
            if found.cached is None or not found.match.path:
                return None
            beside = self._side_placement(parsed, found.cached, found.match)
            mode = self._effective_mode(parsed, found.asked_mode, found.cached.ledger.conversation.chosen_mode)
            acts = mode in ACTING_MODES and beside.path_state.tree.is_awake
            return replace(beside, mode=mode, status="full") if acts else replace(beside, mode=mode, reason=reason)

    # ------------------------------------------------------------------------------------------------------ identity
    def _query_of(self, parsed: ParsedRequest) -> ConversationQuery:
        hint = session_headers.session_hint(parsed.headers)
        return ConversationQuery(parsed.tenant, hint, parsed.request, parsed.now, self.dialect.name)

    async def _role_of(self, found: Found) -> RequestRole:
        request, cached = found.parsed.request, found.cached
        if cached is None or not any(m.role == "assistant" for m in request.messages):
            return RequestRole.MAIN
        if (thread := match_history.thread_of_request(cached.ledger, request, found.match)) is None:
            return RequestRole.MAIN
        named = bool(cached.ledger.conversation.hint)
        role = match_history.role_of_request(request, thread, named=named)
        if role is not RequestRole.SIDE:
            return role
        as_loop = match_history.role_of_request(request, thread, named=named, holds_own_answers=True)
        is_fork = as_loop is RequestRole.FORK and bool(prompt_of_fork(cached.ledger, found.match, request))
        return as_loop if is_fork or await self._holds_own_answers(found) else role

    async def _holds_own_answers(self, found: Found) -> bool:
        """Whether a request beside its thread is a loop: its history holds an answer that was given to it there."""
        request = found.parsed.request
        if request.tool_names and match_history.count_unknown_answers(request, found.match) >= MIN_UNKNOWN_ANSWERS:
            return True
        answers = [m for m in request.messages[:-1] if m.role == "assistant"]
        keys = lookup_keys.side_answer_anchors(request, answers)
        return await self.conversation_cache.knows_anchor(found.parsed.tenant, found.hint, keys)

    def record_side_answer(self, placement: Placement, answer: Message) -> None:
        """Remember an answer that was given beside a thread: a request that holds it is a loop. Raises StoreError."""
        parsed, conversation = placement.parsed_request, placement.ledger.conversation
        keys = lookup_keys.side_answer_anchors(parsed.request, [answer])
        hint = session_headers.session_hint(parsed.headers)
        record = AnchorRecord(conversation.id, hint, keys, parsed.now)
        self.conversation_cache.record(placement.cached_conversation, [], [record])

    def _side_placement(self, parsed: ParsedRequest, cached: CachedConversation, match: Match) -> Placement:
        """A side request is answered beside the thread; nothing of it is kept on the path."""
        tip, ledger = match.newest_known or match.adopts, cached.ledger
        asked_mode = _mode_from_header(parsed.headers)
        mode = self._effective_mode(parsed, asked_mode, ledger.conversation.chosen_mode)
        group = self._group_of(ledger.conversation, mode, asked_mode)
        path_state, thread = cached.path_state(tip), ledger.entries[tip].thread
        return Placement(parsed, cached, path_state, "", thread, "side", match_kind=match.kind, group=group)

    def _create_conversation(
        self, found: Found, origin: Origin, parent: CachedConversation | None
    ) -> CachedConversation:
        """`parent` decides whether the conversation is held out, else its own key does."""
        parsed, hint, new_id = found.parsed, found.hint, self.new_id()
        if parent is not None:
            held_out = parent.ledger.conversation.chosen_mode == HELD_OUT_MODE
        else:
            usual = self._effective_mode(parsed, found.asked_mode, "")
            key = session_headers.parent_hint(parsed.headers) or hint or new_id
            held_out = usual in ACTING_MODES and self.holdout.is_chosen(parsed.tenant, key)
        tenant, parent_id, turn = parsed.tenant, origin.conversation, origin.turn
        mode = HELD_OUT_MODE if held_out else ""
        created = Conversation(new_id, tenant, hint, parent_id, turn, parsed.now, mode, dialect=self.dialect.name)
        return self.conversation_cache.create(created)

    def _group_of(self, conversation: Conversation, mode: str, asked_mode: str) -> str:
        return self.holdout.group_of(conversation, mode, acts=mode in ACTING_MODES, asked=asked_mode)

    # --------------------------------------------------------------------------------------------------------- record
    async def _record_arrival(
        self, found: Found, cached: CachedConversation, origin: Origin = NO_ORIGIN, bound: Set[int] = frozenset()
    ) -> Placement:
        """Record in `cached` what is new, and replay the path. Reasoning of answers at positions `bound` is bound to
        another context. Plan and requests before a fork's directive were its parent's: they infer no frames."""
        parsed, match = found.parsed, found.match
        ledger, request = cached.ledger, parsed.request
        thread = thread_id_for(ledger, match, request, has_replicas=self.conversation_cache.is_shared)
        new = match_history.new_entries(ledger, request, match, thread, parsed.now)
        events: list[LedgerEvent] = []
        if new and match.kind is MatchKind.NEW:
            events.append(_root_started_event(ledger.conversation, new, origin.directive, parsed.now))
        if bound:
            events.append(_reasoning_removed_event(new, bound, parsed.now))
        tip_thread = thread_of_tip(ledger, match)
        before = ledger.threads.get(thread) or tip_thread
        change = changed_thread(before, thread, request, self.config.upstream_model_of(request.model))
        mode = self._effective_mode(parsed, found.asked_mode, ledger.conversation.chosen_mode)
        may_act = mode in ACTING_MODES and request.choice_count == 1 and not _tool_conflict(request)
        fingerprint = fingerprint_of(before) if new and may_act else None
        history = NewHistory(parsed, cached, match, new, events, change, fingerprint, infers=not origin.directive)
        followed = await in_slices(self.path_follower.follow(history))
        await self._record(history, followed)
        since = before if change else None
        if tip_thread is not None and tip_thread.id != thread and before is not tip_thread:  # the loop changed its mode
            since = tip_thread if head_of(tip_thread) != head_of(change or before) else None
        if any(event.kind == BRANCH_SWITCHED_KIND for event in followed.events):
            since = thread_on_branch(followed.path_state.branches, change or before)
        return Placement(
            parsed,
            cached,
            followed.path_state,
            new[-1].id if new else match.path[-1].id,
            thread,
            "asleep",  # preliminary: `_decide` sets the status
            match_kind=match.kind,
            previous_thread=since,
            mode=mode,
            call_ids=match.call_ids,
            directive_entry=new[origin.directive_at].id if origin.directive else "",
            group=self._group_of(ledger.conversation, mode, found.asked_mode),
        )

    async def _record(self, history: NewHistory, followed: FollowedPath) -> None:
        parsed, cached, kind = history.parsed, history.cached, history.match.kind
        conversation = cached.ledger.conversation
        values: list[Entry | LedgerEvent | Thread] = [*history.entries, *followed.events]
        if history.thread:
            values.append(history.thread)
        others: list[Record] = [conversation] if kind is MatchKind.NEW else []
        if kind in (MatchKind.NEW, MatchKind.COMPACTED):  # both open a history, and may be retried
            anchors = lookup_keys.opening_anchors(parsed.request)
            others.append(AnchorRecord(conversation.id, conversation.hint, anchors, parsed.now))
        await let_others_run(parsed.request)
        if values or others:
            self.conversation_cache.record(cached, values, others)
            await let_others_run(parsed.request)
        if kind is MatchKind.NEW and len(history.entries) > KEYWORD_SCAN_BATCH:
            # Decisions attach to the newest entry: only that is replayed again.
            cached.cache_path_state(followed.before.tip, followed.before)
        if history.entries:
            cached.cache_path_state(history.entries[-1].id, followed.path_state)

    async def _decide(self, placement: Placement, *, off_loop: bool) -> Placement:
        """`off_loop`: a long new history came at once; it is decided in a thread of the system, so that other requests
        are served. So is a known one that is long, and without a limit of time: what has left its context must not come
        back."""
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
        decision = await (asyncio.to_thread(act) if off_loop else in_own_time(request, act))
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
