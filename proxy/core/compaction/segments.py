"""Finds what may leave the context, in segments, with the place and tokens of each.

A segment lies between two user messages and belongs to one frame: a finished frame with its descendants, or a frame
that goes on, whose segment can leave as a part. An item of the client's plan leaves with its request or with a part
(`FoldRules`): what was read for it is read for the items behind it too. An existing trace is a segment, because it can
be merged. What stays: the newest group, groups that opened a frame on the path, tool searches whose tools are in use,
recently recalled texts, everything before a compaction of the provider, and the newest steps of unfinished work.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Literal

import msgspec

from proxy.core.compaction.facts import summarized_positions
from proxy.core.compaction.message_groups import NO_GROUP, group_numbers, is_needed_without, notes_beside
from proxy.core.context import MessageComposer, owner_of
from proxy.core.frames import (
    FINAL_STATUSES,
    Frame,
    PathEntry,
    PathState,
    Removal,
    Status,
    Tree,
    ancestors,
    call_key,
    children,
    frame_id_of,
    groups_still_needed,
    is_ended_root,
    is_kept,
    path_to,
)
from proxy.core.ledger import EntryKind, Message
from proxy.core.observers import message_after
from proxy.core.recall import recently_recalled_entries
from proxy.core.text import CountTokens

FoldingLevel = Literal["requests", "careful", "full"]


class FoldRules(msgspec.Struct, frozen=True):
    """Unfinished work of more than `part_tokens` is cut; of what is cut, the newest call groups of at most
    `newest_tokens` stay. Up to `longest_wait` tokens it waits for a command of the agent. `folds_items`: an item of the
    client's plan leaves when it ends, also while its request goes on."""

    part_tokens: int
    newest_tokens: int = 0
    longest_wait: int = 0
    folds_items: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Call groups of one frame between two user messages, or an existing trace that can be merged with them. `frame` is
    the finished frame, or with `is_part` the one that goes on; `start` is a place of `TokensByPlace`."""

    frame: str
    is_part: bool
    start: int
    tokens: int
    path_entries: tuple[PathEntry, ...] = ()
    trace: Removal | None = None
    is_summarized: bool = False
    """The model summarized this part."""


class TokensByPlace(msgspec.Struct, frozen=True, dict=True):
    """Tokens by place: entries of the context at odd places, the traces behind each at even ones; place 0 is in front
    of everything. Places before `sent_before` were part of an earlier request."""

    tokens: tuple[int, ...]
    sent_before: int
    traces: tuple[tuple[int, int, Removal], ...]
    """Place, tokens and trace."""

    @classmethod
    def measure(cls, path_state: PathState, context: Sequence[PathEntry], composer: MessageComposer) -> TokensByPlace:
        last = newest_answer_position(context)
        tokens = [0] * (2 * len(context) + 1)
        tokens[1::2] = [
            tokens_in_context(path_state, path_entry, lambda text: _composed_tokens(text, composer))
            for path_entry in context
        ]
        traces = []
        for position, trim in _trace_places(path_state, context):
            trace_tokens = _composed_tokens(trim.trace, composer)
            tokens[2 * position + 2] += trace_tokens
            traces.append((2 * position + 2, trace_tokens, trim))
        return cls(tuple(tokens), 2 * last + 1, tuple(traces))

    @cached_property
    def total(self) -> int:
        return sum(self.tokens)

    @cached_property
    def _before(self) -> tuple[int, ...]:
        """Prefix sums; they are needed for every border between segments."""
        return tuple(accumulate(self.tokens, initial=0))

    def tokens_to_resend(self, start: int, leaving: int) -> int:
        """Tokens from `start` on that were sent before and stay."""
        return max(0, self._before[max(start, self.sent_before)] - self._before[start] - leaving)


def _trace_places(path_state: PathState, context: Sequence[PathEntry]) -> Iterator[tuple[int, Removal]]:
    """Each trace with the position of the entry it follows; -1 is in front of everything."""
    if not path_state.tree.removals:
        return
    order = {p.entry.id: position for position, p in enumerate(path_state.entries)}
    orders = [order[p.entry.id] for p in context]
    for trim in path_state.tree.removals:
        first = min((order[e] for e in trim.entries if e in order), default=None)
        if first is not None:
            yield bisect_right(orders, order.get(trim.at, first)) - 1, trim


def segments_of(
    path_state: PathState, context: Sequence[PathEntry], by_place: TokensByPlace, rules: FoldRules
) -> list[Segment]:
    """Everything that could leave: finished frames with their descendants, and long work as a part."""
    tree = path_state.tree
    runs: dict[_RunKey, list[int]] = {}
    run_of_group: dict[int, _RunKey] = {}
    notes: set[int] = set()
    """Positions of what a client notes beside the groups."""
    torn: set[int] = set()
    """Groups that no segment holds whole."""
    spoken = 0
    leaving = removable_groups(path_state, context, rules)
    answer_of = {group: at for at, group in reversed(leaving.items()) if is_assistant(context[at])}
    summarized = summarized_positions(path_state, context)
    newest = _newest_steps(path_state, context, by_place, leaving.keys() - summarized, rules)
    for position, path_entry in enumerate(context):
        is_note = leaving.get(position, NO_GROUP) != NO_GROUP and _is_beside_calls(path_entry)
        spoken += is_user(path_entry) and not is_note
        if is_note:
            notes.add(position)
        if position in leaving:
            answer = answer_of[leaving[position]] if is_note else position  # a note leaves from the frame of its group
            owner = frame_id_of(owner_of(path_state, context[answer]))
            holder = outermost_finished(tree, owner, rules)
            frame = holder or _frame_of_part(tree, owner, rules)
            key = (frame, not holder, spoken, not holder and position in summarized)
            if is_kept(tree, owner) or position in newest:
                torn.add(leaving[position])
            else:
                runs.setdefault(key, []).append(position)
            if run_of_group.setdefault(leaving[position], key) != key:
                torn.add(leaving[position])
    if torn := torn - {NO_GROUP}:
        whole = ((key, [at for at in positions if leaving[at] not in torn]) for key, positions in runs.items())
        runs = {key: positions for key, positions in whole if positions}
    if notes:
        runs = _without_needed_notes(runs, notes, [path_entry.message for path_entry in context])
    segments = [
        Segment(
            frame=frame,
            is_part=is_part,
            start=2 * positions[0] + 1,
            tokens=sum(by_place.tokens[2 * position + 1] for position in positions),
            path_entries=tuple(context[position] for position in positions),
            is_summarized=is_summarized,
        )
        for (frame, is_part, _, is_summarized), positions in runs.items()
    ]
    border = 2 * newest_sealed_place(path_state, context) + 1
    return [
        *segments,
        *(
            segment
            for segment in _trace_segments(tree, by_place, {(s.frame, s.is_part) for s in segments}, rules)
            if segment.start > border
        ),
    ]


_RunKey = tuple[str, bool, int, bool]


def _without_needed_notes(
    runs: Mapping[_RunKey, list[int]], notes: Collection[int], messages: Sequence[Message | None]
) -> dict[_RunKey, list[int]]:
    """The runs without the client's notes on a text that stays when the work of the same frame leaves."""
    of_frame: dict[tuple[str, bool], set[int]] = {}
    for (frame, is_part, *_), positions in runs.items():
        of_frame.setdefault((frame, is_part), set()).update(positions)
    return {
        key: [at for at in positions if at not in notes or not is_needed_without(messages, at, of_frame[key[:2]])]
        for key, positions in runs.items()
    }


def _newest_steps(
    path_state: PathState,
    context: Sequence[PathEntry],
    by_place: TokensByPlace,
    leaving: Collection[int],
    rules: FoldRules,
) -> frozenset[int]:
    """Positions of the newest call groups of unfinished work that stay when it is cut."""
    newest: list[int] = []
    group: list[int] = []
    tokens = 0
    for position in sorted(leaving, reverse=True):
        if outermost_finished(path_state.tree, frame_id_of(owner_of(path_state, context[position])), rules):
            break
        group.append(position)
        tokens += by_place.tokens[2 * position + 1]
        if tokens > rules.newest_tokens:
            break
        if is_assistant(context[position]):
            newest += group
            group = []
    return frozenset(newest)


def _frame_of_part(tree: Tree, owner: str, rules: FoldRules) -> str:
    """The frame that a part of `owner`'s work is cut from: the request of a plan item, since its items do not leave by
    themselves."""
    frame = tree.frames[owner]
    while not rules.folds_items and frame.origin == "plan" and frame.parent in tree.frames:
        frame = tree.frames[frame.parent]
    return frame.id


def _trace_segments(
    tree: Tree, by_place: TokensByPlace, wanted: Collection[tuple[str, bool]], rules: FoldRules
) -> Iterator[Segment]:
    """Existing traces that can be merged into a trace of one of the frames in `wanted`: those of descendants, or of
    earlier parts of the same frame."""
    for place, tokens, trim in by_place.traces:
        if trim.frame not in tree.frames or is_kept(tree, trim.frame):
            continue
        frame = tree.frames[trim.frame]
        if (holder := _finished_holder(tree, frame, rules)) and (holder, False) in wanted:
            yield Segment(frame=holder, is_part=False, start=place, tokens=tokens, trace=trim)
        elif not holder and frame.origin == "part" and (frame.parent, True) in wanted:
            summarized = frame.parent in tree.interim_summaries
            yield Segment(
                frame=frame.parent, is_part=True, start=place, tokens=tokens, trace=trim, is_summarized=summarized
            )


def outermost_finished(tree: Tree, frame: str, rules: FoldRules) -> str:
    """The outermost finished frame among `frame` and its ancestors that no call opened, or a root that another root has
    followed; empty while the work goes on. An item of a plan alone does not count, unless the rules fold items."""
    outermost = ""
    for current in (tree.frames[frame], *ancestors(tree, frame)) if frame in tree.frames else ():
        if current.status is Status.IN_PROGRESS or not (current.leaves_only_by_fold or is_ended_root(tree, current)):
            break  # an item of a plan may be taken up again after the request it was planned for
        if current.status in FINAL_STATUSES:
            is_item = current.origin == "plan" and not rules.folds_items
            outermost = _ended_request_of(tree, current) or outermost if is_item else current.id
    return outermost


def _ended_request_of(tree: Tree, item: Frame) -> str:
    """The ended request that a plan item was done for, where it stands beside it: the first request of a conversation
    gets its frame when it ends, after its items."""
    later = (f for f in children(tree, item.parent) if f.origin == "request" and f.order > item.order)
    request = next(later, None)
    return request.id if request and request.status in FINAL_STATUSES else ""


def _finished_holder(tree: Tree, frame: Frame, rules: FoldRules) -> str:
    """As `outermost_finished`, but a part alone does not count: it is finished as soon as it is cut."""
    holder = outermost_finished(tree, frame.id, rules)
    return "" if holder == frame.id and frame.origin == "part" else holder


def removable_groups(path_state: PathState, context: Sequence[PathEntry], rules: FoldRules) -> dict[int, int]:
    """Positions of call groups, intermediate messages and texts of ours that may leave, in order, each with the number
    of its group."""
    fixed = _pinned_entries(path_state, context) | searches_that_stay(context)
    fixed |= _mixed_turns(path_state, context, rules)
    if outliving := path_state.outliving_entries:
        fixed |= {path_entry.entry.id for path_entry in context if id(path_entry) in outliving}
    first = newest_sealed_place(path_state, context) + 1
    messages = [path_entry.message for path_entry in context]
    turns = [path_entry.entry.id for path_entry in context]
    groups = group_numbers(messages, turns)
    staying = {NO_GROUP}
    for position, (message, group) in enumerate(zip(messages, groups, strict=True)):
        if message is not None and message.role == "assistant":
            is_closing = not message.calls and _ends_turn(context, position)
            if position < first or turns[position] in fixed or is_closing:
                staying.add(group)
    leaving = {
        position: group
        for position, (path_entry, group) in enumerate(zip(context, groups, strict=True))
        if position >= first
        and (group not in staying or (path_entry.entry.kind is EntryKind.OVERLAY and turns[position] not in fixed))
    }
    notes = notes_beside(messages, {at: group for at, group in leaving.items() if group != NO_GROUP})
    return leaving | notes


def searches_that_stay(context: Sequence[PathEntry]) -> frozenset[str]:
    """Ids of the answers that loaded tools which no later one of the context loaded: the provider offers these tools
    only while the search that found them is in the prompt."""
    groups = groups_still_needed([path_entry.message for path_entry in context])
    return frozenset(context[group.positions[0]].entry.id for group in groups)


def newest_sealed_place(path_state: PathState, context: Sequence[PathEntry]) -> int:
    """The position of the newest compaction made by the provider; -1 if there is none."""
    sealed = path_state.tree.provider_compactions
    return next((i for i in range(len(context) - 1, -1, -1) if context[i].entry.id in sealed), -1) if sealed else -1


def _pinned_entries(path_state: PathState, context: Sequence[PathEntry]) -> frozenset[str]:
    tree = path_state.tree
    path = path_to(tree, tree.active) if tree.active else ()
    opened = {frame.opening.turn for frame in path if frame.opening}
    last = newest_answer_position(context)
    newest = {p.entry.id for p in context[last:]}
    return frozenset(opened | newest) | recently_recalled_entries(context)


def _mixed_turns(path_state: PathState, context: Sequence[PathEntry], rules: FoldRules) -> frozenset[str]:
    """Turns whose rounds belong to different frames, or include a closing message that stays. An entry leaves with all
    its rounds, so these turns stay."""
    rounds: dict[str, set[tuple[str, bool]]] = {}
    for position, path_entry in enumerate(context):
        message = path_entry.message
        if path_entry.round and message:
            owner = frame_id_of(owner_of(path_state, path_entry))
            stays = not message.calls and _ends_turn(context, position)
            rounds.setdefault(path_entry.entry.id, set()).add(
                (outermost_finished(path_state.tree, owner, rules) or owner, stays)
            )
    return frozenset(entry for entry, kinds in rounds.items() if len(kinds) > 1)


def _ends_turn(context: Sequence[PathEntry], position: int) -> bool:
    """Whether the user spoke next."""
    message = message_after(context, position)
    return message is None or message.role == "user"


def _is_beside_calls(path_entry: PathEntry) -> bool:
    """Whether it is neither an answer nor the result of a call."""
    message = path_entry.message
    return message is not None and message.role != "assistant" and not message.answers


def is_assistant(path_entry: PathEntry) -> bool:
    message = path_entry.message
    return message is not None and message.role == "assistant"


def newest_answer_position(context: Sequence[PathEntry]) -> int:
    """Where the assistant's newest message stands; behind the end if there is none."""
    return next((i for i in range(len(context) - 1, -1, -1) if is_assistant(context[i])), len(context))


def is_user(path_entry: PathEntry) -> bool:
    message = path_entry.message
    return message is not None and message.role == "user"


def tokens_in_context(path_state: PathState, path_entry: PathEntry, count: CountTokens) -> int:
    """Tokens of an entry in its present wording; `count` is used for texts of the proxy."""
    if (words := path_state.tree.replaced_results.get(path_entry.entry.id)) is not None:
        return count(words)
    stack_round, texts = path_entry.round, path_state.tree.result_texts
    if stack_round is None or not (stack_round.results and texts):
        return original_tokens(path_entry)
    by_now = (
        (r, texts.get((path_entry.entry.id, call_key(stack_round.number, r.answers)))) for r in stack_round.results
    )
    results = (count(text) if text and text != result.text else result.tokens for result, text in by_now)
    return stack_round.spoken.message.tokens + sum(results)


def reasoning_tokens(
    path_entries: Iterable[PathEntry], mute: Container[str], bare: Callable[[Message], Message]
) -> int:
    """Estimated reasoning tokens of the answers outside `mute`: a quarter of the characters, since encrypted reasoning
    cannot be counted. `bare` removes the reasoning of a message."""
    answers = (m for p in path_entries if p.entry.id not in mute and (m := p.message) and m.role == "assistant")
    return sum(len(message.wire) - len(bare(message).wire) for message in answers) // 4


def _composed_tokens(text: str, composer: MessageComposer) -> int:
    """The composer caches its messages, so this is cheap."""
    return composer.user_message(text).tokens


def original_tokens(path_entry: PathEntry) -> int:
    """Tokens of an entry and its stack results in their original wording."""
    message = path_entry.message
    own = sum(r.tokens for r in path_entry.round.results) if path_entry.round else 0
    return own + (message.tokens if message else 0)
