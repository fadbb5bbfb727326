"""Plans compaction: which finished work leaves the context in this request, and the trace that replaces it.

An inferred frame is folded when it ends: its calls and outputs leave, the user's messages and the closing message of
the assistant stay. Long unfinished work is cut between two call groups and becomes a finished part of its frame: behind
a command rather than between what was read and the edits that it was read for, unless the work grows too long. Every
fold needs a positive verdict of the cost gate, first with estimated and then with written traces, and every verdict is
returned. Between the last tick of the client's plan and the closing words nothing is folded, because these are written
from it, unless the window fills up. What may leave at all is decided in `segments`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice

import msgspec
from msgspec.structs import replace

from proxy.core.compaction.detours import DetourHistory, detour_history
from proxy.core.compaction.facts import (
    UNDONE,
    artifacts_in_facts,
    describe_returned_frames,
    facts_of_span,
    frames_returned_in,
    interim_summary_text,
    summarized_positions,
    texts_of_path,
    with_noted_facts,
)
from proxy.core.compaction.fold_cost import (
    NO_FOLDS,
    PRESSURE_SHARE,
    TAIL_REWRITE_SHARE,
    CachePrices,
    ContextRewrite,
    GateReason,
    GateVerdict,
    evaluate_rewrite,
    within_outlay,
)
from proxy.core.compaction.kept_user_messages import words_inside
from proxy.core.compaction.segments import (
    FoldRules,
    Segment,
    TokensByPlace,
    is_assistant,
    is_user,
    original_tokens,
    outermost_finished,
    reasoning_tokens,
    removable_groups,
    segments_of,
    tokens_in_context,
)
from proxy.core.compaction.trace import (
    MAX_TRACE_TOKENS,
    MIN_TRACE_TOKENS,
    TRACE_SHARE,
    SpanFacts,
    parse_traces,
    trace_text,
)
from proxy.core.context import MessageComposer, context_entries, owner_of
from proxy.core.frames import (
    CONVERSATION,
    FINAL_STATUSES,
    MAX_CRITERION_CHARACTERS,
    PLAN_ORIGIN,
    READ,
    REQUEST_ORIGIN,
    Frame,
    FrameEvent,
    FrameFolded,
    FrameSplit,
    PathEntry,
    PathState,
    Removal,
    Status,
    Tree,
    children,
    frame_id,
    frame_id_of,
    groups_still_needed,
    reduce,
    results_of_item,
    tasks_above,
    title_of,
)
from proxy.core.ledger import INSTRUCTION_ROLES, Message
from proxy.core.observers import (
    ToolRole,
    ToolRoles,
    WrittenText,
    asks_for_summary,
    broken_lines,
    broken_tools,
    ends_with_user_message,
    first_user_text,
    iter_touched_files,
    may_have_side_effects,
    message_of,
    messages_of,
    names_still_visible,
    order_of,
    runs_program,
    steps_of,
    task_text_of,
    written_texts,
)
from proxy.core.text import CountTokens, cut_for_display

MAX_TRACE_RATIO = 0.9
"""A trace longer than this share of what it replaces is not used."""
PLANNING_ROLES = frozenset({ToolRole.PLAN, ToolRole.ITEM_CREATE, ToolRole.ITEM_UPDATE})
REQUEST_ORIGINS = frozenset({REQUEST_ORIGIN, "root"})
"""Origins of frames that are titled by a message of the user."""
MIN_SUMMARY_CHARACTERS, MIN_QUOTE_CHARACTERS = 1_000, 24
"""Of a message that sums up, and of what it quotes."""
PART_NUMBER_BASE = 1_000
"""Added to the order number of a frame that a cut creates, so that its id differs from frames inferred at the same
entry."""


class CompactionInput(msgspec.Struct, frozen=True):
    """What a decision depends on besides the context; `now` is in ms, `window` is 0 if unknown.

    `head` are the tokens of tools and system text, `added_tokens` those that waking adds, which the plan has to pay;
    None where the thread is awake, or wakes without a cost (see `pays_for_waking`). `binds_reasoning`: the model
    refuses or drops reasoning behind a changed prefix. `provider_edits`: the provider edits the context itself, so its
    cache is unknown and nothing is folded to save money. `wake_is_appended`: waking changes no earlier message.
    `voids_reasoning`: waking comes together with a fold, and all earlier reasoning becomes invalid. `paid` is what the
    conversation has cost so far without us, in fresh input tokens, where waking may cost only a share of it. `history`
    says what followed earlier folds.
    """

    newest_entry: str
    now: int
    prices: CachePrices
    requests: int
    cold: bool
    window: int
    rules: FoldRules
    head: int = 0
    added_tokens: int | None = None
    binds_reasoning: bool = False
    provider_edits: bool = False
    wake_is_appended: bool = False
    voids_reasoning: bool = False
    paid: float | None = None
    history: DetourHistory = NO_FOLDS

    @property
    def pays_for_waking(self) -> bool:
        """Whether the thread wakes with this request, at a cost that the folds have to bring in."""
        return self.added_tokens is not None

    def evaluate(self, rewrite: ContextRewrite, *, cold: bool | None = None) -> GateVerdict:
        """What the cost gate says of a rewrite; `cold` where its price is another than the cache tells."""
        is_cold = self.cold if cold is None else cold
        return evaluate_rewrite(
            rewrite, self.prices, self.requests, cold=is_cold, window=self.window, history=self.history
        )

    @property
    def shortest_part(self) -> int:
        """Tokens above which a part may leave: what is cut, less its newest steps."""
        return self.rules.part_tokens - self.rules.newest_tokens

    @property
    def longest_wait(self) -> int:
        """Tokens up to which a part stays while the agent may still need what it read."""
        return self.rules.longest_wait - self.rules.newest_tokens


class TraceWriter(msgspec.Struct, frozen=True):
    """What is needed to write a trace."""

    names: ToolRoles
    count: CountTokens
    nonce: str
    composer: MessageComposer


class CompactionDecision(msgspec.Struct, frozen=True):
    """A verdict of the cost gate. `kind` is wake, fold or unfold; `frames` are the frames concerned (for a part, the
    frame that goes on)."""

    kind: str
    frames: tuple[str, ...]
    verdict: GateVerdict


class CompactionPlan(msgspec.Struct, frozen=True):
    """The events to apply now. Without events nothing changes, and the decisions say why."""

    events: tuple[FrameEvent, ...] = ()
    decisions: tuple[CompactionDecision, ...] = ()


class CompactionCandidate(msgspec.Struct, frozen=True, dict=True):
    """Segments of one frame, or of a part of it, that one trace would replace."""

    frame: str
    is_part: bool
    segments: tuple[Segment, ...]

    @property
    def path_entries(self) -> tuple[PathEntry, ...]:
        return tuple(p for segment in self.segments for p in segment.path_entries)

    @property
    def replaced_traces(self) -> tuple[Removal, ...]:
        """Older traces that the new one replaces, oldest first."""
        return tuple(segment.trace for segment in self.segments if segment.trace)

    @property
    def start(self) -> int:
        return self.segments[0].start

    @cached_property
    def tokens(self) -> int:
        return sum(segment.tokens for segment in self.segments)

    @cached_property
    def shortens_context(self) -> bool:
        """Whether the new trace is shorter; merging older traces alone is not worth it."""
        return any(segment.path_entries for segment in self.segments) and self.tokens > self.estimated_trace_tokens

    @cached_property
    def replaced_trace_tokens(self) -> int:
        return sum(segment.tokens for segment in self.segments if segment.trace)

    @cached_property
    def estimated_trace_tokens(self) -> int:
        return int(
            min(
                MAX_TRACE_TOKENS,
                self.replaced_trace_tokens
                + max(MIN_TRACE_TOKENS, TRACE_SHARE * (self.tokens - self.replaced_trace_tokens)),
            )
        )


# -------------------------------------------------------------------------------------------------------------- decide
def is_compaction_due(path_state: PathState, rules: FoldRules) -> bool:
    """A cheap test before planning: in most requests nothing can be folded."""
    context = context_entries(path_state)
    part_tokens = 0
    summarized = summarized_positions(path_state, context)
    for position in removable_groups(path_state, context, rules):
        frame = frame_id_of(owner_of(path_state, context[position]))
        if position in summarized or outermost_finished(path_state.tree, frame, rules):
            return True
        part_tokens += original_tokens(context[position])
    return part_tokens > rules.part_tokens


def plan_compaction(path_state: PathState, compaction_input: CompactionInput, writer: TraceWriter) -> CompactionPlan:
    """The folds that are due now; for a thread that wakes, if they have to pay for that."""
    context = context_entries(path_state)
    by_place = TokensByPlace.measure(path_state, context, writer.composer)
    segments = segments_of(path_state, context, by_place, compaction_input.rules)
    if awaits_closing_words(path_state) and not _window_fills_up(by_place, compaction_input):
        segments = []
    part_tokens = sum(s.tokens for s in segments if s.path_entries and s.is_part)
    if part_tokens <= compaction_input.shortest_part or (
        part_tokens <= compaction_input.longest_wait
        and not _window_fills_up(by_place, compaction_input)
        and _still_uses_what_it_read(path_state, context, writer.names)
    ):
        early = _may_compact_early(by_place, compaction_input)
        segments = [s for s in segments if not s.is_part or (s.is_summarized and early)]
    if not any(s.path_entries for s in segments) and not compaction_input.pays_for_waking:
        return CompactionPlan()
    chosen, verdict = _choose_segments(segments, by_place, compaction_input)
    # Asked last, because it walks over the whole path. With `folds_items` as much as pays is to leave, whatever the
    # agent reads again.
    if verdict.is_worth_it and path_state.tree.removals and not compaction_input.rules.folds_items:
        compaction_input = replace(compaction_input, history=detour_history(path_state, writer.names))
        chosen, verdict = _choose_segments(segments, by_place, compaction_input)
    if not chosen and not compaction_input.pays_for_waking:
        return CompactionPlan()
    kind = "wake" if compaction_input.pays_for_waking else "fold"
    subjects = tuple(c.frame for c in chosen)
    if not verdict.is_worth_it:
        return CompactionPlan((), (CompactionDecision(kind, subjects, verdict),))
    written: list[_WrittenCandidate] = []
    readings = _readings_that_stay(path_state, context, chosen, writer.names)
    for candidate, names in zip(chosen, _names_still_shown(path_state, context, chosen), strict=True):
        if events := _fold_events(path_state, context, names, readings, candidate, compaction_input, writer):
            written.append(_WrittenCandidate(candidate, events))
    verdict = _evaluate_written(path_state, context, written, by_place, compaction_input, writer.composer)
    if not verdict.is_worth_it:
        return CompactionPlan((), (CompactionDecision(kind, subjects, verdict),))
    frames = tuple(w.candidate.frame for w in written)
    return CompactionPlan(
        tuple(event for w in written for event in w.events), (CompactionDecision(kind, frames, verdict),)
    )


def _may_compact_early(by_place: TokensByPlace, compaction_input: CompactionInput) -> bool:
    """Whether a short, unfinished, summarized part may be folded: nothing is cached, or the window fills up."""
    return compaction_input.cold or _window_fills_up(by_place, compaction_input)


def _window_fills_up(by_place: TokensByPlace, compaction_input: CompactionInput) -> bool:
    return 0 < compaction_input.window * PRESSURE_SHARE < compaction_input.head + by_place.total


def _still_uses_what_it_read(path_state: PathState, context: Sequence[PathEntry], tool_roles: ToolRoles) -> bool:
    """Whether what was read is still being used: the newest step reads or edits, while an agent that runs its tests,
    commits or ticks off its plan has done what it read for. Where the user speaks: nothing was changed since they
    spoke before, so they may ask now for what was only talked about."""
    said = _positions_of_user(context)
    if _positions_of_user(path_state.newest_client_entries):
        before = context[said[-2] if len(said) > 1 else 0 :]
        return not any(may_have_side_effects(e, tool_roles) for step in steps_of(before) for e in step.executions)
    last = next((i for i in range(len(context) - 1, -1, -1) if is_assistant(context[i])), len(context))
    executions = [execution for step in steps_of(context[last:]) for execution in step.executions]
    return bool(executions) and not any(
        runs_program(execution, tool_roles) or tool_roles.role_of(execution.call.name) in PLANNING_ROLES
        for execution in executions
    )


def awaits_closing_words(path_state: PathState) -> bool:
    """Whether the client's plan was ticked off to its last item since the user's newest message, and the assistant has
    yet to say what came of it."""
    if _positions_of_user(path_state.newest_client_entries) or not (said := _positions_of_user(path_state.entries)):
        return False
    newest = path_state.entries[said[-1]]
    plan = [f for f in path_state.tree.frames.values() if f.origin == "plan" and f.status is not Status.INVALIDATED]
    ticked = [f for f in plan if f.status in FINAL_STATUSES and f.updated_at >= newest.entry.created]
    homes = {f.parent for f in ticked}
    return bool(ticked) and all(f.status in FINAL_STATUSES for f in plan if f.parent in homes)


def _choose_segments(
    segments: Sequence[Segment], by_place: TokensByPlace, compaction_input: CompactionInput
) -> tuple[tuple[CompactionCandidate, ...], GateVerdict]:
    """The newest segments, back to the one that gives the best verdict."""
    ordered = sorted(segments, key=lambda s: s.start)
    best_first, best = len(ordered), _evaluate_estimated((), by_place, compaction_input)
    by_frame: dict[tuple[str, bool], CompactionCandidate] = {}
    for first in range(len(ordered) - 1, -1, -1):
        key = (ordered[first].frame, ordered[first].is_part)
        later = by_frame[key].segments if key in by_frame else ()
        by_frame[key] = CompactionCandidate(*key, (ordered[first], *later))
        candidates = [c for c in by_frame.values() if c.shortens_context]
        verdict = _evaluate_estimated(candidates, by_place, compaction_input)
        if candidates and (best_first == len(ordered) or _verdict_rank(verdict) > _verdict_rank(best)):
            best_first, best = first, verdict
    return _group_by_frame(ordered[best_first:]), best


def _verdict_rank(verdict: GateVerdict) -> tuple[bool, float]:
    return verdict.is_worth_it, verdict.gain - verdict.cost


def _group_by_frame(segments: Sequence[Segment]) -> tuple[CompactionCandidate, ...]:
    """One candidate per frame, oldest first."""
    by_frame: dict[tuple[str, bool], list[Segment]] = {}
    for segment in segments:
        by_frame.setdefault((segment.frame, segment.is_part), []).append(segment)
    groups = (CompactionCandidate(*key, tuple(group)) for key, group in by_frame.items())
    return tuple(c for c in groups if c.shortens_context)


def _evaluate_estimated(
    chosen: Sequence[CompactionCandidate], by_place: TokensByPlace, compaction_input: CompactionInput
) -> GateVerdict:
    return _evaluate_candidates(chosen, by_place, compaction_input, sum(c.estimated_trace_tokens for c in chosen), 0)


class _WrittenCandidate(msgspec.Struct, frozen=True):
    candidate: CompactionCandidate
    events: tuple[FrameEvent, ...]


def _evaluate_written(  # noqa: PLR0913  what was weighed before, and what has been written since
    path_state: PathState,
    context: Sequence[PathEntry],
    written: Sequence[_WrittenCandidate],
    by_place: TokensByPlace,
    compaction_input: CompactionInput,
    composer: MessageComposer,
) -> GateVerdict:
    """The final verdict, with the tokens of the written traces and of reasoning that becomes invalid."""
    folds = [event for w in written for event in w.events if isinstance(event, FrameFolded)]
    traces = sum(composer.user_message(fold.trace).tokens for fold in folds)
    leaving = {id(p) for w in written for p in w.candidate.path_entries}
    muted = {turn for fold in folds for turn in fold.muted}
    bare = [p for p in context if id(p) not in leaving and (compaction_input.voids_reasoning or p.entry.id in muted)]
    reasoning = reasoning_tokens(bare, path_state.tree.without_reasoning, composer.without_reasoning)
    return _evaluate_candidates([w.candidate for w in written], by_place, compaction_input, traces, reasoning)


def _evaluate_candidates(
    chosen: Sequence[CompactionCandidate],
    by_place: TokensByPlace,
    compaction_input: CompactionInput,
    compaction: int,
    reasoning: int,
) -> GateVerdict:
    removed = sum(c.tokens for c in chosen)
    start = min((c.start for c in chosen), default=by_place.sent_before)
    breaks_prefix = compaction_input.pays_for_waking and not compaction_input.wake_is_appended
    parts = [s for c in chosen if c.is_part for s in c.segments if s.path_entries]
    part_tokens = sum(s.tokens for s in parts)
    behind = by_place.tokens_to_resend(0 if breaks_prefix else start, removed) + (
        compaction_input.head if breaks_prefix else 0
    )
    rewrite = ContextRewrite(
        removed,
        compaction,
        behind,
        compaction_input.head + by_place.total,
        compaction_input.added_tokens or 0,
        reasoning,
    )
    verdict = compaction_input.evaluate(rewrite)
    if breaks_prefix:
        verdict = within_outlay(verdict, compaction_input.paid, cold=compaction_input.cold)
    if compaction_input.provider_edits:
        return replace(verdict, is_worth_it=False, reason=GateReason.PROVIDER_TRIMMED)
    summarized = all(s.is_summarized for s in parts) and _may_compact_early(by_place, compaction_input)
    too_short = 0 < part_tokens <= compaction_input.shortest_part and not summarized
    resends_much = not breaks_prefix and behind > TAIL_REWRITE_SHARE * (removed - compaction)
    if resends_much and verdict.reason is GateReason.GATE and verdict.band > verdict.cost:
        verdict = replace(verdict, reason=GateReason.BAND)
    if too_short or (verdict.reason is GateReason.GATE and resends_much):
        return replace(verdict, is_worth_it=False, reason=GateReason.NOT_YET)
    return verdict


def _positions_of_user(path_entries: Iterable[PathEntry]) -> list[int]:
    """Positions of the messages that the user wrote."""
    positions, results = list[int](), list[Message]()
    for position, path_entry in enumerate(path_entries):
        message = None if path_entry.entry.is_overlay else path_entry.entry.message
        if message is not None and message.answers:
            results.append(message)
            continue
        if message is not None and ends_with_user_message([*results, message]):
            positions.append(position)
        if message is None or message.role not in INSTRUCTION_ROLES:
            results = []
    return positions


# --------------------------------------------------------------------------------------------------------------- write
class _RemovedSpan(msgspec.Struct, frozen=True):
    """A removed span with what its trace is written from. `noted` is the model's interim summary, `returned_frames` the
    results of frames pushed inside it, `user_words` what the user said in those frames."""

    candidate: CompactionCandidate
    path_entries: tuple[PathEntry, ...]
    messages: tuple[Message, ...]
    facts: SpanFacts
    noted: str
    returned_frames: str
    user_words: str
    broken: tuple[str, ...]
    """Lines about what did not work here and has not been mended."""
    written: tuple[WrittenText, ...]
    """Texts that its edits left in files."""

    @classmethod
    def from_candidate(cls, candidate: CompactionCandidate, writer: TraceWriter, path_state: PathState) -> _RemovedSpan:
        path_entries = candidate.path_entries
        replaced = {entry for trim in candidate.replaced_traces for entry in trim.entries}
        span = [*(p for p in path_state.entries if p.entry.id in replaced), *path_entries] if replaced else path_entries
        texts = texts_of_path(path_state, writer.names)
        facts = facts_of_span(path_state, path_entries, writer.names, texts)
        undone = {item.removesuffix(f" ({UNDONE})") for item in facts.changed if item.endswith(f" ({UNDONE})")}
        return cls(
            candidate,
            path_entries,
            tuple(_removed_messages(path_state, path_entries, writer.count)),
            facts,
            interim_summary_text(path_state, path_entries),
            describe_returned_frames(frames_returned_in(path_state.tree, span), writer.count),
            words_inside(path_state, span, writer.count),
            broken_lines(
                broken_tools(path_state.entries, writer.names), frozenset(p.entry.id for p in (*span, *path_entries))
            ),
            tuple(w for w in written_texts(steps_of(span), writer.names, texts) if w.path not in undone),
        )


def _fold_events(  # noqa: PLR0913  one candidate, and the context it leaves
    path_state: PathState,
    context: Sequence[PathEntry],
    shown_names: Container[str],
    readings: Sequence[tuple[int, str]],
    candidate: CompactionCandidate,
    compaction_input: CompactionInput,
    writer: TraceWriter,
) -> tuple[FrameEvent, ...]:
    """The events that fold one candidate; empty if its trace would save too little. `shown_names` are names
    that the rest of the context shows, `readings` the files read in it."""
    tree, frame = path_state.tree, candidate.frame
    removed = _RemovedSpan.from_candidate(candidate, writer, path_state)
    if compaction_input.rules.folds_items:  # many small folds: what their texts cost would make some of them wait
        removed = replace(removed, written=())
    opened: tuple[FrameSplit, ...] = ()
    if candidate.is_part:
        opened = (_part_event(path_state, removed, compaction_input),)
        tree, frame = reduce(tree, opened[0], compaction_input.now), opened[0].frame
    entries = tuple(
        dict.fromkeys([*(e for t in candidate.replaced_traces for e in sorted(t.entries)), *_entry_ids(candidate)])
    )
    first = candidate.segments[0]
    position = first.trace.at if first.trace else _place_of_trace(context, first)
    orders = _CoveredOrders.of(path_state, position, frozenset(entries))
    newest = max((p.entry.seq for p in candidate.path_entries), default=0)
    read_again = tuple(dict.fromkeys(path for seq, path in readings if seq > newest))
    trace = _write_trace(path_state, shown_names, removed, tree.frames[frame], writer, orders, read_again)
    if writer.composer.user_message(trace).tokens > MAX_TRACE_RATIO * candidate.tokens:
        return ()
    return (
        *opened,
        FrameFolded(
            frame, entries, trace, position, _answers_losing_reasoning(context, candidate, compaction_input, writer)
        ),
    )


def _place_of_trace(context: Sequence[PathEntry], segment: Segment) -> str:
    """The entry behind which the trace of `segment` goes: the first that leaves, or the last one of the tool searches
    that stay among those that leave or right behind them, so that what stands for the work begins with the tools that
    it loaded."""
    leaving = set(map(id, segment.path_entries))
    place = start = segment.start // 2
    searches = groups_still_needed([message_of(path_entry) for path_entry in context[start:]])
    staying = {start + position for search in searches for position in search.positions}
    left = len(leaving)
    for position in range(start, len(context)):
        if id(context[position]) in leaving:
            left -= 1
        elif position in staying:
            place = position
        elif not left:
            break
    return context[place].entry.id


class _CoveredOrders(msgspec.Struct, frozen=True):
    """What the user said that a trace holds work for: the texts of the message above the trace, of which any may have
    begun the frame, and of each message below it."""

    above: tuple[str, ...] = ()
    below: tuple[str, ...] = ()

    @classmethod
    def of(cls, path_state: PathState, place: str, leaving: Container[str]) -> _CoveredOrders:
        above: tuple[str, ...] = ()
        below: list[str] = []
        newest: list[str] = []
        first = ""
        is_behind, is_order_behind, is_answered, is_covered = False, False, True, False
        said = set(_positions_of_user(path_state.entries))
        for position, path_entry in enumerate(path_state.entries):
            message = path_entry.entry.message
            if path_entry.entry.id in leaving:
                if newest and not is_covered:
                    is_covered = True
                    if is_order_behind:
                        below.append(newest[-1])
                    else:
                        above += tuple(newest)
                is_answered = True
            elif message is not None and position in said:
                if newest and _sums_up(message.text, first, newest[-1]):
                    newest.insert(0, message.text)  # the work goes on for what it sums up
                else:
                    if is_answered:
                        newest, is_answered, is_covered = [], False, False
                    newest.append(message.text)
                    first = first or message.text
                    is_order_behind = is_behind
            elif is_assistant(path_entry):
                is_answered = True
            is_behind = is_behind or place in (path_entry.entry.id, path_entry.path_id)
        return cls(above, tuple(below))

    def first_beside(self, title: str) -> str:
        """The title of the message above, where a request of this title was begun by another one."""
        titles = [title_of(task_text_of(first_user_text([text], MAX_CRITERION_CHARACTERS))) for text in self.above]
        return titles[-1] if titles and title not in titles and titles[-1] != CONVERSATION else ""

    @property
    def named_below(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(filter(None, map(order_of, self.below))))


def _sums_up(text: str, first: str, previous: str) -> bool:
    """Whether a client wrote the message, to sum up a conversation that it compacted: it quotes the user."""
    if len(text) < MIN_SUMMARY_CHARACTERS:
        return False
    quoted = (said.strip() for said in (first, previous))
    return asks_for_summary(previous) or any(len(said) >= MIN_QUOTE_CHARACTERS and said in text for said in quoted)


def _entry_ids(candidate: CompactionCandidate) -> tuple[str, ...]:
    return tuple(dict.fromkeys(p.entry.id for p in candidate.path_entries))


def _names_still_shown(
    path_state: PathState, context: Sequence[PathEntry], chosen: Sequence[CompactionCandidate]
) -> list[Container[str]]:
    """For each of `chosen` the names that the rest of the context still shows after it leaves."""
    leaving = {id(p) for c in chosen for p in c.path_entries}
    replaced = {id(trim) for c in chosen for trim in c.replaced_traces}
    staying = _messages_shown(
        (p for p in context if id(p) not in leaving),
        (trim for trim in path_state.tree.removals if id(trim) not in replaced),
    )
    return names_still_visible(staying, [_messages_shown(c.path_entries, c.replaced_traces) for c in chosen])


def _readings_that_stay(
    path_state: PathState, context: Sequence[PathEntry], chosen: Sequence[CompactionCandidate], names: ToolRoles
) -> list[tuple[int, str]]:
    """Files whose text the context still shows after `chosen` leave, each with the sequence number of its reading."""
    leaving = {id(p) for c in chosen for p in c.path_entries}
    replaced = path_state.tree.replaced_results
    staying = [p for p in context if id(p) not in leaving and p.entry.id not in replaced]
    return [(p.entry.seq, file.path) for p, file in iter_touched_files(staying, names) if file.how == READ]


def _messages_shown(path_entries: Iterable[PathEntry], traces: Iterable[Removal]) -> Iterator[Message]:
    yield from filter(None, map(message_of, path_entries))
    yield from (Message("user", b"", "", trim.trace) for trim in traces)


def _write_trace(  # noqa: PLR0913  what is written, and where it will stand
    path_state: PathState,
    shown_names: Container[str],
    removed: _RemovedSpan,
    frame: Frame,
    writer: TraceWriter,
    orders: _CoveredOrders,
    read_again: Sequence[str],
) -> str:
    replaced = removed.candidate.replaced_traces
    tree = path_state.tree
    parent = tree.frames.get(frame.parent) if frame.is_part else next(iter(tasks_above(tree, frame.id)), None)
    whole = parent if frame.is_part and parent else frame
    return trace_text(
        frame,
        parent.title if parent else "",
        removed.messages,
        with_noted_facts(removed.facts, path_state.tree, removed.path_entries),
        nonce=writer.nonce,
        count=writer.count,
        results=_model_summaries(replaced, frame),
        part=removed.candidate.is_part,
        known=shown_names,
        earlier="\n".join(t.trace for t in replaced),
        earlier_tokens=removed.candidate.replaced_trace_tokens,
        planned=_open_plan_items(
            path_state.tree,
            removed.messages,
            writer.names,
            are_ended=frame.origin in REQUEST_ORIGINS and not removed.candidate.is_part,
        ),
        items=_results_of_items(path_state, removed.path_entries, frame),
        noted="\n".join(filter(None, (removed.noted, removed.returned_frames, removed.user_words))),
        broken=removed.broken,
        begun_by=orders.first_beside(whole.title) if whole.origin in REQUEST_ORIGINS else "",
        orders=orders.named_below,
        read_again=read_again,
        written=removed.written,
    )


def _model_summaries(replaced: Sequence[Removal], frame: Frame) -> str:
    """The summaries that models wrote for the replaced traces, with the results of the other traces; empty if there is
    none. The reason of a failed frame goes first."""
    if not any(trim.summary for trim in replaced):
        return ""
    failed = [frame.results.strip()] if frame.status is Status.FAILED else []
    texts = [*failed, *(trim.summary or parse_traces(trim.trace).results for trim in replaced)]
    return "\n".join(dict.fromkeys(text for text in texts if text))


def _results_of_items(path_state: PathState, path_entries: Iterable[PathEntry], frame: Frame) -> tuple[str, ...]:
    """What came of the plan items whose work is removed together with that of `frame` around them."""
    owners = {frame_id_of(owner_of(path_state, path_entry)) for path_entry in path_entries}
    ended = (f for f in path_state.tree.frames.values() if f.id in owners and f.id != frame.id)
    completed = (f for f in ended if f.origin == PLAN_ORIGIN and f.status is Status.COMPLETED and f.results)
    return tuple(f"{cut_for_display(f.title)}: {f.results}" for f in completed)


def _open_plan_items(
    tree: Tree, removed: Iterable[Message], names: ToolRoles, *, are_ended: bool = False
) -> tuple[str, ...]:
    """Open items of the client's newest plan, if calls that listed items are removed. What an earlier request left open
    is no plan any more: each list replaces the one before. With `are_ended` the user has their answer: an item that was
    in progress then was only never ticked off."""
    if not any(names.role_of(call.name) in PLANNING_ROLES for message in removed for call in message.calls):
        return ()
    items = [f for f in tree.frames.values() if f.origin == PLAN_ORIGIN]
    newest = max(items, key=lambda item: (item.updated_at, item.order), default=None)
    home = newest.parent if newest else ""
    ended = {*FINAL_STATUSES, Status.IN_PROGRESS} if are_ended else FINAL_STATUSES
    open_ones = (f for f in items if f.parent == home and f.status not in ended)
    return tuple(f.title if f.client_key in ("", f.title) else f"{f.client_key} {f.title}" for f in open_ones)


def _removed_messages(
    path_state: PathState, path_entries: Iterable[PathEntry], count: CountTokens
) -> Iterator[Message]:
    replaced = path_state.tree.replaced_results
    for path_entry in path_entries:
        for message in messages_of(path_state.tree, (path_entry,)):
            if path_entry.entry.id in replaced:
                yield replace(message, tokens=tokens_in_context(path_state, path_entry, count))
            else:
                is_own_result = path_entry.round is not None and message.answers
                yield replace(message, tokens=count(message.text)) if is_own_result else message


def _part_event(path_state: PathState, removed: _RemovedSpan, compaction_input: CompactionInput) -> FrameSplit:
    candidate = removed.candidate
    parent = path_state.tree.frames[candidate.frame]
    number = 1 + sum(f.origin == "part" for f in children(path_state.tree, parent.id))
    replaced = sorted(entry for trim in candidate.replaced_traces for entry in trim.entries)
    texts = [m.text for m in removed.messages if m.role == "assistant" and m.text.strip()]
    return FrameSplit(
        frame_id(compaction_input.newest_entry, PART_NUMBER_BASE + parent.order),
        parent.id,
        f"Part {number} of: {title_of(parent.title)}",
        removed.noted or results_of_item(texts, changed_files=bool(removed.facts.changed)),
        (*replaced, *_entry_ids(candidate)),
        candidate.tokens,
        tuple(artifacts_in_facts(removed.facts)),
        removed.facts.decisions,
    )


def _answers_losing_reasoning(
    context: Sequence[PathEntry], candidate: CompactionCandidate, compaction_input: CompactionInput, writer: TraceWriter
) -> tuple[str, ...]:
    """Answers that stay but lose their reasoning. If the model binds reasoning to the prefix, all answers behind the
    cut; otherwise the closing messages of the removed work. Messages with calls keep theirs, because some providers
    require it."""
    removed = {id(p) for p in candidate.path_entries}
    positions = (i for i in range(candidate.start // 2, len(context)) if id(context[i]) in removed)
    leaving = list(islice(positions, len(removed)))
    start, end = leaving[0], leaving[-1]
    if compaction_input.binds_reasoning:
        start, last = candidate.start // 2, len(context)
    else:
        last = next((i for i in range(end, len(context)) if is_user(context[i])), end)
    staying = [p for p in context[start:last] if id(p) not in removed and is_assistant(p)]
    if not compaction_input.binds_reasoning:
        calling = {p.entry.id for p in staying if (m := message_of(p)) and m.calls}
        staying = [p for p in staying if p.entry.id not in calling]
    return tuple(dict.fromkeys(p.entry.id for p in staying if _has_reasoning(p, writer.composer)))


def _has_reasoning(path_entry: PathEntry, composer: MessageComposer) -> bool:
    message = message_of(path_entry)
    return message is not None and composer.without_reasoning(message) is not message
