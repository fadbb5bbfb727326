"""Which finished work leaves the line now, and what stands for it.

A frame that nobody pushed is folded where it ends: what its calls did leaves the line, the words of the user and the
closing words of the assistant stay, and one trace stands for the rest. Work that grows long without an end is cut at a
border between two call groups and becomes a part of its own.

The law: **no fold without a reason that the figures give** (`economics`), and every reason is handed out.

What this module does not do: what may leave at all is told by `segments`; it opens no frame but parts (`inferring`
does), and it neither stores nor sends.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice

import msgspec
from msgspec.structs import replace

from proxy.core.compaction.cost_gate import (
    PRESSURE_SHARE,
    TAIL_REWRITE_SHARE,
    CachePrices,
    ContextRewrite,
    GateReason,
    GateVerdict,
    evaluate_rewrite,
)
from proxy.core.compaction.facts import (
    artifacts_in_facts,
    describe_returned_frames,
    facts_of,
    frames_returned_in,
    interim_summary_text,
    summarized_positions,
    with_noted_facts,
)
from proxy.core.compaction.kept_user_messages import user_words_inside
from proxy.core.compaction.segments import (
    Segment,
    TokensByPlace,
    is_assistant,
    is_user,
    original_tokens,
    outermost_finished,
    reasoning_tokens,
    removable_places,
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
    FINAL_STATUSES,
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
    reduce,
    title_of,
)
from proxy.core.ledger import Message
from proxy.core.observers import ToolRole, ToolRoles, message_of, messages_of, names_still_visible
from proxy.core.text import CountTokens

MAX_TRACE_RATIO = 0.9
"""A trace that takes more than this share of what it stands for is not worth writing (S4-65)."""
PLANNING_ROLES = frozenset({ToolRole.PLAN, ToolRole.ITEM_CREATE, ToolRole.ITEM_UPDATE})
PART_NUMBER_BASE = 1_000
"""Numbers of frames that begin at an entry by a cut; those seen in what the client says count from 0."""


class CompactionInput(msgspec.Struct, frozen=True):
    """What a decision depends on besides the line. `node` is the newest entry, `now` is in ms. `head` are the tokens of
    tools and system text; `added` those that waking brings, where it is asked for; `window` is 0 where it is not known.
    `binds`: the model refuses or drops reasoning behind a changed prefix. `edited`: the provider edits by itself what
    it is sent, so what it has cached is not known, and nothing is folded for its price. `appended`: waking changes
    nothing of what stands there already. `voids`: it comes with a fold alone, and no reasoning so far outlives it."""

    newest_entry: str
    now: int
    prices: CachePrices
    requests: int
    cold: bool
    window: int
    frame_max: int
    head: int = 0
    added_tokens: int | None = None
    binds_reasoning: bool = False
    provider_edits: bool = False
    wake_is_appended: bool = False
    voids_reasoning: bool = False


class TraceWriter(msgspec.Struct, frozen=True):
    """What writing a trace takes."""

    names: ToolRoles
    count: CountTokens
    nonce: str
    composer: MessageComposer


class CompactionDecision(msgspec.Struct, frozen=True):
    """What was weighed and came of it. `kind` is wake, fold or unfold; `subjects` are frames: the one that goes on
    where a part of it was weighed."""

    kind: str
    frames: tuple[str, ...]
    verdict: GateVerdict


class CompactionPlan(msgspec.Struct, frozen=True):
    """What happens to the line now. Without events nothing does, and the decisions say why not."""

    events: tuple[FrameEvent, ...] = ()
    decisions: tuple[CompactionDecision, ...] = ()


class CompactionCandidate(msgspec.Struct, frozen=True, dict=True):
    """What leaves the line for one trace of `frame`, or of a part of it."""

    frame: str
    is_part: bool
    segments: tuple[Segment, ...]

    @property
    def path_entries(self) -> tuple[PathEntry, ...]:
        return tuple(p for segment in self.segments for p in segment.path_entries)

    @property
    def replaced_traces(self) -> tuple[Removal, ...]:
        """The traces that the new one takes the place of, oldest first."""
        return tuple(segment.trace for segment in self.segments if segment.trace)

    @property
    def start(self) -> int:
        return self.segments[0].start

    @cached_property
    def tokens(self) -> int:
        return sum(segment.tokens for segment in self.segments)

    @cached_property
    def shortens_context(self) -> bool:
        """Whether it makes the line shorter; a trace alone is no reason to write another one."""
        return any(segment.path_entries for segment in self.segments) and self.tokens > self.estimated_trace_tokens

    @cached_property
    def replaced_trace_tokens(self) -> int:
        """Tokens of the traces that the new one takes the place of."""
        return sum(segment.tokens for segment in self.segments if segment.trace)

    @cached_property
    def estimated_trace_tokens(self) -> int:
        """Tokens that its trace will take, about."""
        return int(
            min(
                MAX_TRACE_TOKENS,
                self.replaced_trace_tokens
                + max(MIN_TRACE_TOKENS, TRACE_SHARE * (self.tokens - self.replaced_trace_tokens)),
            )
        )


# -------------------------------------------------------------------------------------------------------------- decide
def is_compaction_due(path_state: PathState, frame_max: int) -> bool:
    """Whether anything could be folded: mostly nothing can, and nothing has to be weighed."""
    line = context_entries(path_state)
    under_way = 0
    summed = summarized_positions(path_state, line)
    for at in removable_places(path_state, line):
        if at in summed or outermost_finished(path_state.tree, owner_of(path_state, line[at]).partition("#")[0]):
            return True
        under_way += original_tokens(line[at])
    return under_way > frame_max


def plan_compaction(path_state: PathState, compaction_input: CompactionInput, pen: TraceWriter) -> CompactionPlan:
    """The folds that are due at this moment, with waking where `moment.added` says that it comes with them."""
    line = context_entries(path_state)
    weights = TokensByPlace.measure(path_state, line, pen.composer)
    found = segments_of(path_state, line, weights)
    if not sum(s.tokens for s in found if s.path_entries and s.is_part) > compaction_input.frame_max:
        relieved = _may_compact_early(weights, compaction_input)
        found = [s for s in found if not s.is_part or (s.is_summarized and relieved)]
    if not any(s.path_entries for s in found) and compaction_input.added_tokens is None:
        return CompactionPlan()
    chosen, verdict = _choose_segments(found, weights, compaction_input)
    if not chosen and compaction_input.added_tokens is None:
        return CompactionPlan()
    kind = "fold" if compaction_input.added_tokens is None else "wake"
    subjects = tuple(c.frame for c in chosen)
    if not verdict.is_worth_it:
        return CompactionPlan((), (CompactionDecision(kind, subjects, verdict),))
    written = [
        _WrittenCandidate(candidate, made)
        for candidate, known in zip(chosen, _names_still_shown(path_state, line, chosen), strict=True)
        if (made := _fold_events(path_state, line, known, candidate, compaction_input, pen))
    ]
    verdict = _evaluate_written(path_state, line, written, weights, compaction_input, pen.composer)
    if not verdict.is_worth_it:
        return CompactionPlan((), (CompactionDecision(kind, subjects, verdict),))
    events = tuple(event for each in written for event in each.events)
    return CompactionPlan(events, (CompactionDecision(kind, tuple(each.candidate.frame for each in written), verdict),))


def _may_compact_early(weights: TokensByPlace, compaction_input: CompactionInput) -> bool:
    """Whether work that goes on, and was summed up, may leave however short it is: nothing of the line is cached, or
    the window fills up (S1-65)."""
    return compaction_input.cold or 0 < compaction_input.window * PRESSURE_SHARE < compaction_input.head + weights.total


def _choose_segments(
    found: Sequence[Segment], weights: TokensByPlace, compaction_input: CompactionInput
) -> tuple[tuple[CompactionCandidate, ...], GateVerdict]:
    """The newest segments, back to the one at which the sum is worth most."""
    ordered = sorted(found, key=lambda s: s.start)
    begins, best = len(ordered), _evaluate_estimated((), weights, compaction_input)
    by_frame: dict[tuple[str, bool], CompactionCandidate] = {}
    for first in range(len(ordered) - 1, -1, -1):
        of = (ordered[first].frame, ordered[first].is_part)
        behind = by_frame[of].segments if of in by_frame else ()
        by_frame[of] = CompactionCandidate(*of, (ordered[first], *behind))
        candidates = [c for c in by_frame.values() if c.shortens_context]
        verdict = _evaluate_estimated(candidates, weights, compaction_input)
        if candidates and (begins == len(ordered) or _verdict_rank(verdict) > _verdict_rank(best)):
            begins, best = first, verdict
    return _group_by_frame(ordered[begins:]), best


def _verdict_rank(verdict: GateVerdict) -> tuple[bool, float]:
    return verdict.is_worth_it, verdict.gain - verdict.cost


def _group_by_frame(segments: Sequence[Segment]) -> tuple[CompactionCandidate, ...]:
    """One candidate a frame, the oldest first."""
    by_frame: dict[tuple[str, bool], list[Segment]] = {}
    for segment in segments:
        by_frame.setdefault((segment.frame, segment.is_part), []).append(segment)
    groups = (CompactionCandidate(*of, tuple(some)) for of, some in by_frame.items())
    return tuple(c for c in groups if c.shortens_context)


def _evaluate_estimated(
    chosen: Sequence[CompactionCandidate], weights: TokensByPlace, compaction_input: CompactionInput
) -> GateVerdict:
    """With what the traces will take, about."""
    return _evaluate_candidates(chosen, weights, compaction_input, sum(c.estimated_trace_tokens for c in chosen), 0)


class _WrittenCandidate(msgspec.Struct, frozen=True):
    """A candidate, and the events by which it leaves."""

    candidate: CompactionCandidate
    events: tuple[FrameEvent, ...]


def _evaluate_written(  # noqa: PLR0913  what was weighed before, and what has been written since
    path_state: PathState,
    line: Sequence[PathEntry],
    written: Sequence[_WrittenCandidate],
    weights: TokensByPlace,
    compaction_input: CompactionInput,
    scribe: MessageComposer,
) -> GateVerdict:
    """Only now it is known what the traces take, with all that was noted and returned, and which reasoning can no
    longer be sent."""
    folds = [event for each in written for event in each.events if isinstance(event, FrameFolded)]
    traces = sum(scribe.user_message(fold.trace).tokens for fold in folds)
    leaving = {id(p) for each in written for p in each.candidate.path_entries}
    muted = {turn for fold in folds for turn in fold.muted}
    bare = [p for p in line if id(p) not in leaving and (compaction_input.voids_reasoning or p.entry.id in muted)]
    reasoning = reasoning_tokens(bare, path_state.tree.without_reasoning, scribe.without_reasoning)
    return _evaluate_candidates([each.candidate for each in written], weights, compaction_input, traces, reasoning)


def _evaluate_candidates(
    chosen: Sequence[CompactionCandidate],
    weights: TokensByPlace,
    compaction_input: CompactionInput,
    compaction: int,
    reasoning: int,
) -> GateVerdict:
    removed = sum(c.tokens for c in chosen)
    start = min((c.start for c in chosen), default=weights.sent_before)
    waking = compaction_input.added_tokens is not None and not compaction_input.wake_is_appended
    parts = [s for c in chosen if c.is_part for s in c.segments if s.path_entries]
    part = sum(s.tokens for s in parts)
    behind = weights.tokens_to_resend(0 if waking else start, removed) + (compaction_input.head if waking else 0)
    rewrite = ContextRewrite(
        removed,
        compaction,
        behind,
        compaction_input.head + weights.total,
        compaction_input.added_tokens or 0,
        reasoning,
    )
    verdict = evaluate_rewrite(
        rewrite,
        compaction_input.prices,
        compaction_input.requests,
        cold=compaction_input.cold,
        window=compaction_input.window,
    )
    if compaction_input.provider_edits:
        return replace(verdict, is_worth_it=False, reason=GateReason.PROVIDER_TRIMMED)
    summed = all(s.is_summarized for s in parts) and _may_compact_early(weights, compaction_input)
    short = 0 < part <= compaction_input.frame_max and not summed
    if short or (
        verdict.reason is GateReason.GATE and not waking and behind > TAIL_REWRITE_SHARE * (removed - compaction)
    ):
        return replace(verdict, is_worth_it=False, reason=GateReason.NOT_YET)
    return verdict


# --------------------------------------------------------------------------------------------------------------- write
class _RemovedSpan(msgspec.Struct, frozen=True):
    """What leaves, as its trace and its frame are written from: messages, with the tokens that they took on the line,
    results of ours behind their calls as they are told by now, what is known of them, and what the model `noted` of it.
    `returned` is what frames came to that were pushed in it, or in what the traces stand for that go with it, and
    `said` what the user said in them."""

    candidate: CompactionCandidate
    path_entries: tuple[PathEntry, ...]
    messages: tuple[Message, ...]
    facts: SpanFacts
    noted: str
    returned_frames: str
    user_words: str

    @classmethod
    def from_candidate(cls, candidate: CompactionCandidate, pen: TraceWriter, path_state: PathState) -> _RemovedSpan:
        path_entries = candidate.path_entries
        before = {entry for trim in candidate.replaced_traces for entry in trim.entries}
        span = [*(p for p in path_state.entries if p.entry.id in before), *path_entries] if before else path_entries
        return cls(
            candidate,
            path_entries,
            tuple(_removed_messages(path_state, path_entries, pen.count)),
            facts_of(path_entries, pen.names),
            interim_summary_text(path_state, path_entries),
            describe_returned_frames(frames_returned_in(path_state.tree, span), pen.count),
            user_words_inside(path_state, span, pen.count),
        )


def _fold_events(  # noqa: PLR0913  one candidate, and the line it leaves
    path_state: PathState,
    line: Sequence[PathEntry],
    known: Container[str],
    candidate: CompactionCandidate,
    compaction_input: CompactionInput,
    pen: TraceWriter,
) -> tuple[FrameEvent, ...]:
    """The events by which one candidate leaves; none where its trace would not be smaller. `known` are the names that
    the rest of the line shows."""
    tree, frame = path_state.tree, candidate.frame
    gone = _RemovedSpan.from_candidate(candidate, pen, path_state)
    opened: tuple[FrameSplit, ...] = ()
    if candidate.is_part:
        opened = (_part_event(path_state, gone, compaction_input),)
        tree, frame = reduce(tree, opened[0], compaction_input.now), opened[0].frame
    trace = _write_trace(path_state, known, gone, tree.frames[frame], pen)
    if pen.composer.user_message(trace).tokens > MAX_TRACE_RATIO * candidate.tokens:
        return ()
    entries = tuple(
        dict.fromkeys([*(e for t in candidate.replaced_traces for e in sorted(t.entries)), *_entry_ids(candidate)])
    )
    first = candidate.segments[0]
    at = first.trace.at if first.trace else first.path_entries[0].entry.id
    return (
        *opened,
        FrameFolded(frame, entries, trace, at, _answers_losing_reasoning(line, candidate, compaction_input, pen)),
    )


def _entry_ids(candidate: CompactionCandidate) -> tuple[str, ...]:
    return tuple(dict.fromkeys(p.entry.id for p in candidate.path_entries))


def _names_still_shown(
    path_state: PathState, line: Sequence[PathEntry], chosen: Sequence[CompactionCandidate]
) -> list[Container[str]]:
    """The names that the rest of the line shows where one of `chosen` leaves, for each of them."""
    leaving = {id(p) for c in chosen for p in c.path_entries}
    told = {id(trim) for c in chosen for trim in c.replaced_traces}
    staying = _messages_shown(
        (p for p in line if id(p) not in leaving), (trim for trim in path_state.tree.removals if id(trim) not in told)
    )
    return names_still_visible(staying, [_messages_shown(c.path_entries, c.replaced_traces) for c in chosen])


def _messages_shown(path_entries: Iterable[PathEntry], traces: Iterable[Removal]) -> Iterator[Message]:
    """What tells the model something there: what is said, and the traces."""
    yield from filter(None, map(message_of, path_entries))
    yield from (Message("user", b"", "", trim.trace) for trim in traces)


def _write_trace(
    path_state: PathState, known: Container[str], gone: _RemovedSpan, frame: Frame, pen: TraceWriter
) -> str:
    told = gone.candidate.replaced_traces
    parent = path_state.tree.frames.get(frame.parent)
    return trace_text(
        frame,
        parent.title if parent else "",
        gone.messages,
        with_noted_facts(gone.facts, path_state.tree, gone.path_entries),
        nonce=pen.nonce,
        count=pen.count,
        results=_model_summaries(told, frame),
        part=gone.candidate.is_part,
        known=known,
        earlier="\n".join(t.trace for t in told),
        earlier_tokens=gone.candidate.replaced_trace_tokens,
        planned=_open_plan_items(path_state.tree, gone.messages, pen.names),
        noted="\n".join(filter(None, (gone.noted, gone.returned_frames, gone.user_words))),
    )


def _model_summaries(told: Sequence[Removal], frame: Frame) -> str:
    """What models wrote of the spans that the trace takes over, with what stands for those nobody wrote of; empty
    where nobody wrote of any. Why a frame failed goes before it."""
    if not any(trim.summary for trim in told):
        return ""
    failed = [frame.results.strip()] if frame.status is Status.FAILED else []
    texts = [*failed, *(trim.summary or parse_traces(trim.trace).results for trim in told)]
    return "\n".join(dict.fromkeys(text for text in texts if text))


def _open_plan_items(tree: Tree, gone: Iterable[Message], names: ToolRoles) -> tuple[str, ...]:
    """Items of the client's plan that are still open, where the calls that told of them leave."""
    if not any(names.role_of(call.name) in PLANNING_ROLES for message in gone for call in message.calls):
        return ()
    open_ones = (f for f in tree.frames.values() if f.origin == "plan" and f.status not in FINAL_STATUSES)
    return tuple(f.title if f.client_key in ("", f.title) else f"{f.client_key} {f.title}" for f in open_ones)


def _removed_messages(
    path_state: PathState, path_entries: Iterable[PathEntry], count: CountTokens
) -> Iterator[Message]:
    replaced = path_state.tree.replaced_results
    for placement in path_entries:
        for message in messages_of(path_state.tree, (placement,)):
            if placement.entry.id in replaced:
                yield replace(message, tokens=tokens_in_context(path_state, placement, count))
            else:
                ours = placement.round is not None and message.answers
                yield replace(message, tokens=count(message.text)) if ours else message


def _part_event(path_state: PathState, gone: _RemovedSpan, compaction_input: CompactionInput) -> FrameSplit:
    """What leaves, as a finished frame under the one that goes on."""
    candidate = gone.candidate
    parent = path_state.tree.frames[candidate.frame]
    number = 1 + sum(f.origin == "part" for f in children(path_state.tree, parent.id))
    told = sorted(entry for trim in candidate.replaced_traces for entry in trim.entries)
    said = [m.text for m in gone.messages if m.role == "assistant" and m.text.strip()]
    return FrameSplit(
        frame_id(compaction_input.newest_entry, PART_NUMBER_BASE + parent.order),
        parent.id,
        f"Part {number} of: {title_of(parent.title)}",
        gone.noted or (said[-1] if said else ""),
        (*told, *_entry_ids(candidate)),
        candidate.tokens,
        tuple(artifacts_in_facts(gone.facts)),
        gone.facts.decisions,
    )


def _answers_losing_reasoning(
    line: Sequence[PathEntry], candidate: CompactionCandidate, compaction_input: CompactionInput, pen: TraceWriter
) -> tuple[str, ...]:
    """Answers behind the cut that stay without their reasoning: closing words of what left, and where the model binds
    reasoning to what stands before it, all of them; the cut is where the first trace stood that is written anew. Else
    calls that stay keep theirs, for some providers want it back with every call."""
    gone = {id(p) for p in candidate.path_entries}
    places = (at for at in range(candidate.start // 2, len(line)) if id(line[at]) in gone)
    leaving = list(islice(places, len(gone)))
    start, end = leaving[0], leaving[-1]
    if compaction_input.binds_reasoning:
        start, last = candidate.start // 2, len(line)
    else:
        last = next((at for at in range(end, len(line)) if is_user(line[at])), end)
    staying = [p for p in line[start:last] if id(p) not in gone and is_assistant(p)]
    if not compaction_input.binds_reasoning:
        calling = {p.entry.id for p in staying if (m := message_of(p)) and m.calls}
        staying = [p for p in staying if p.entry.id not in calling]
    return tuple(dict.fromkeys(p.entry.id for p in staying if _has_reasoning(p, pen.composer)))


def _has_reasoning(path_entry: PathEntry, scribe: MessageComposer) -> bool:
    message = message_of(path_entry)
    return message is not None and scribe.without_reasoning(message) is not message
