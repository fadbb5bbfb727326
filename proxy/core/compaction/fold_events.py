"""Writes a fold: the events that take one candidate out of the context, and from what its trace is written: facts,
interim summaries, results of frames that returned inside, what the user said, and the orders that it covers."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice

import msgspec
from msgspec.structs import replace

from proxy.core.compaction.facts import (
    UNDONE,
    artifacts_in_facts,
    describe_returned_frames,
    facts_of_span,
    frames_returned_in,
    interim_summary_text,
    with_noted_facts,
)
from proxy.core.compaction.fold_cost import CompactionInput
from proxy.core.compaction.kept_user_messages import words_inside
from proxy.core.compaction.segments import Segment, is_assistant, is_user, tokens_in_context
from proxy.core.compaction.trace import (
    MAX_TRACE_TOKENS,
    MIN_TRACE_TOKENS,
    TRACE_SHARE,
    SpanFacts,
    parse_traces,
    trace_text,
)
from proxy.core.compaction.truncate_outputs import clear_results_beside
from proxy.core.context import MessageComposer, owner_of
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
    LoadingGroup,
    PathEntry,
    PathState,
    Removal,
    Status,
    Tree,
    children,
    descendants,
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
    NO_TEXTS,
    FileTexts,
    ToolRoles,
    WrittenText,
    asks_for_summary,
    broken_lines,
    broken_tools,
    ends_with_user_message,
    first_user_text,
    iter_touched_files,
    messages_of,
    names_still_visible,
    order_of,
    steps_of,
    task_text_of,
    written_texts,
)
from proxy.core.text import CountTokens, cut_for_display

MAX_TRACE_RATIO = 0.9
"""A trace longer than this share of what it replaces is not used."""
REQUEST_ORIGINS = frozenset({REQUEST_ORIGIN, "root"})
"""Origins of frames that are titled by a message of the user."""
MIN_SUMMARY_CHARACTERS, MIN_QUOTE_CHARACTERS = 1_000, 24
"""Of a message that sums up, and of what it quotes."""
PART_NUMBER_BASE = 1_000
"""Added to the order number of a frame that a cut creates, so that its id differs from frames inferred at the same
entry."""


class TraceWriter(msgspec.Struct, frozen=True):
    """What is needed to write a trace."""

    names: ToolRoles
    count: CountTokens
    nonce: str
    composer: MessageComposer
    texts: FileTexts = NO_TEXTS
    """What the path tells of its files: read once for all traces of a plan."""


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


def positions_of_user(path_entries: Iterable[PathEntry]) -> list[int]:
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
        returned = frames_returned_in(path_state.tree, span)
        below = {f.id for frame in returned for f in (frame, *descendants(path_state.tree, frame.id))}
        inside = path_state.entries_of(lambda owner: frame_id_of(owner) in below) if below else ()
        facts = facts_of_span(path_state, path_entries, writer.names, writer.texts)
        undone = {item.removesuffix(f" ({UNDONE})") for item in facts.changed if item.endswith(f" ({UNDONE})")}
        return cls(
            candidate,
            path_entries,
            tuple(_removed_messages(path_state, path_entries, writer.count)),
            facts,
            interim_summary_text(path_state, path_entries),
            describe_returned_frames(returned, writer.count),
            words_inside(path_state, span, writer.count),
            broken_lines(
                broken_tools(path_state.entries, writer.names), frozenset(p.entry.id for p in (*span, *inside))
            ),
            tuple(w for w in written_texts(steps_of(span), writer.names, writer.texts) if w.path not in undone),
        )


def fold_events(  # noqa: PLR0913  one candidate, and the context it leaves
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
    beside = dict.fromkeys(search for segment in candidate.segments for search in _searches_beside(context, segment))
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
        *clear_results_beside(path_state, context, beside, writer.names),
    )


def _place_of_trace(context: Sequence[PathEntry], segment: Segment) -> str:
    """The entry behind which the trace of `segment` goes: the first that leaves, or the last one of the tool searches
    that stay among those that leave or right behind them, so that what stands for the work begins with the tools that
    it loaded."""
    beside = _searches_beside(context, segment)
    return context[max([segment.start // 2, *(search.positions[-1] for search in beside)])].entry.id


def _searches_beside(context: Sequence[PathEntry], segment: Segment) -> list[LoadingGroup]:
    """The tool searches that stay in the answer before what leaves, among it, or right behind it."""
    leaving = set(map(id, segment.path_entries))
    start = segment.start // 2
    answer = next((at for at in range(start - 1, -1, -1) if is_assistant(context[at])), start)
    staying = groups_still_needed([path_entry.message for path_entry in context])
    positions = {position for search in staying for position in search.positions}
    left, end = len(leaving), start
    while end < len(context) and (left or end in positions):
        left -= id(context[end]) in leaving
        end += 1
    return [search for search in staying if answer <= search.positions[0] < end]


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
        said = set(positions_of_user(path_state.entries))
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


def _sums_up(text: str, first: str, previous: str) -> bool:
    """Whether a client wrote the message, to sum up a conversation that it compacted: it quotes the user."""
    if len(text) < MIN_SUMMARY_CHARACTERS:
        return False
    quoted = (said.strip() for said in (first, previous))
    return asks_for_summary(previous) or any(len(said) >= MIN_QUOTE_CHARACTERS and said in text for said in quoted)


def _entry_ids(candidate: CompactionCandidate) -> tuple[str, ...]:
    return tuple(dict.fromkeys(p.entry.id for p in candidate.path_entries))


def names_still_shown(
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


def readings_that_stay(
    path_state: PathState, context: Sequence[PathEntry], chosen: Sequence[CompactionCandidate], names: ToolRoles
) -> list[tuple[int, str]]:
    """Files whose text the context still shows after `chosen` leave, each with the sequence number of its reading."""
    leaving = {id(p) for c in chosen for p in c.path_entries}
    replaced = path_state.tree.replaced_results
    staying = [p for p in context if id(p) not in leaving and p.entry.id not in replaced]
    touched = iter_touched_files(staying, names, shown=True)
    return [(path_entry.entry.seq, file.path) for path_entry, file in touched if file.how == READ]


def _messages_shown(path_entries: Iterable[PathEntry], traces: Iterable[Removal]) -> Iterator[Message]:
    yield from filter(None, (path_entry.message for path_entry in path_entries))
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
        orders=tuple(dict.fromkeys(filter(None, map(order_of, orders.below)))),
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
    if not any(names.is_plan_tool(call.name) for message in removed for call in message.calls):
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
        calling = {p.entry.id for p in staying if (m := p.message) and m.calls}
        staying = [p for p in staying if p.entry.id not in calling]
    return tuple(dict.fromkeys(p.entry.id for p in staying if _has_reasoning(p, writer.composer)))


def _has_reasoning(path_entry: PathEntry, composer: MessageComposer) -> bool:
    message = path_entry.message
    return message is not None and composer.without_reasoning(message) is not message
