"""What may leave the line at all, in segments, and where everything on it stands.

A segment lies between two messages of the user and belongs to one frame: finished, with all that is under it, or going
on, and then it could leave as a part of it. A trace that stands there already is one too, for it could be told with the
rest. Each has its place and its tokens, so that what stands behind it can be counted.

The law: **a call group leaves whole or not at all; the newest one never does**. Nor does what opened a frame on the
path, what was just recalled, or anything in front of an entry that is sealed.

What this module does not do: it weighs no cost and chooses nothing (`folding` does), and it writes no trace.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import msgspec

from proxy.core.compaction.facts import summarized_positions
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
    is_ended_root,
    is_kept,
    path_to,
)
from proxy.core.ledger import EntryKind, Message
from proxy.core.observers import message_of
from proxy.core.recall import recently_recalled_entries
from proxy.core.text import CountTokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """What could leave the line together: groups between two messages of the user that one frame owns, or a trace that
    stands there already and could be told with what leaves. `frame` is the finished frame it belongs to, or the one
    that goes on (`part`); `start` is its place (see `Weights`)."""

    frame: str
    is_part: bool
    start: int
    tokens: int
    path_entries: tuple[PathEntry, ...] = ()
    trace: Removal | None = None
    is_summarized: bool = False
    """Of a part: the model summed it up."""


class TokensByPlace(msgspec.Struct, frozen=True, dict=True):
    """Tokens by place: what stands on the line at the odd places, the traces behind each of them at the even ones, the
    first of which is in front of all. What stands before `sent` had been sent before this request."""

    tokens: tuple[int, ...]
    sent_before: int
    traces: tuple[tuple[int, int, Removal], ...]
    """Place, tokens, trace."""

    @classmethod
    def measure(cls, path_state: PathState, line: Sequence[PathEntry], composer: MessageComposer) -> TokensByPlace:
        last = next((at for at in range(len(line) - 1, -1, -1) if is_assistant(line[at])), len(line))
        tokens = [0] * (2 * len(line) + 1)
        tokens[1::2] = [
            tokens_in_context(path_state, path_entry, lambda text: _composed_tokens(text, composer))
            for path_entry in line
        ]
        traces = []
        for at, trim in _trace_places(path_state, line):
            weight = _composed_tokens(trim.trace, composer)
            tokens[2 * at + 2] += weight
            traces.append((2 * at + 2, weight, trim))
        return cls(tuple(tokens), 2 * last + 1, tuple(traces))

    @cached_property
    def total(self) -> int:
        return sum(self.tokens)

    @cached_property
    def _before(self) -> tuple[int, ...]:
        """By place, the tokens in front of it: every border between segments is asked about."""
        return tuple(accumulate(self.tokens, initial=0))

    def tokens_to_resend(self, start: int, leaving: int) -> int:
        """What had been sent from `start` on and does not leave."""
        return max(0, self._before[max(start, self.sent_before)] - self._before[start] - leaving)


def _trace_places(path_state: PathState, line: Sequence[PathEntry]) -> Iterator[tuple[int, Removal]]:
    """The traces on the line, each with the place of the entry it stands behind or next behind; -1 is in front of
    all."""
    if not path_state.tree.removals:
        return
    order = {p.entry.id: at for at, p in enumerate(path_state.entries)}
    placement = [order[p.entry.id] for p in line]
    for trim in path_state.tree.removals:
        first = min((order[e] for e in trim.entries if e in order), default=None)
        if first is not None:
            yield bisect_right(placement, order.get(trim.at, first)) - 1, trim


def segments_of(path_state: PathState, line: Sequence[PathEntry], weights: TokensByPlace) -> list[Segment]:
    """What could leave: finished frames, each with all that is under it, and long work as a part."""
    tree = path_state.tree
    runs: dict[tuple[str, bool, int, bool], list[int]] = {}
    spoken = 0
    leaving = frozenset(removable_places(path_state, line))
    summed = summarized_positions(path_state, line)
    for at, path_entry in enumerate(line):
        spoken += is_user(path_entry)
        if at in leaving:
            owner = owner_of(path_state, path_entry).partition("#")[0]
            holder = outermost_finished(tree, owner)
            if not is_kept(tree, owner):
                runs.setdefault((holder or owner, not holder, spoken, not holder and at in summed), []).append(at)
    found = [
        Segment(
            frame=frame,
            is_part=part,
            start=2 * places[0] + 1,
            tokens=sum(weights.tokens[2 * at + 1] for at in places),
            path_entries=tuple(line[at] for at in places),
            is_summarized=before,
        )
        for (frame, part, _, before), places in runs.items()
    ]
    border = 2 * newest_sealed_place(path_state, line) + 1
    return [
        *found,
        *(
            told
            for told in _trace_segments(tree, weights, {(s.frame, s.is_part) for s in found})
            if told.start > border
        ),
    ]


def _trace_segments(tree: Tree, weights: TokensByPlace, wanted: Collection[tuple[str, bool]]) -> Iterator[Segment]:
    """Traces on the line that one of the frames in `wanted` could tell with the rest of it: those of frames under it,
    and for work that goes on those of its earlier parts."""
    for at, tokens, trim in weights.traces:
        if trim.frame not in tree.frames or is_kept(tree, trim.frame):
            continue
        frame = tree.frames[trim.frame]
        if (holder := _finished_holder(tree, frame)) and (holder, False) in wanted:
            yield Segment(frame=holder, is_part=False, start=at, tokens=tokens, trace=trim)
        elif not holder and frame.origin == "part" and (frame.parent, True) in wanted:
            summed = frame.parent in tree.interim_summaries
            yield Segment(frame=frame.parent, is_part=True, start=at, tokens=tokens, trace=trim, is_summarized=summed)


def outermost_finished(tree: Tree, frame: str) -> str:
    """The outermost finished frame that `frame` is or is under and that no call opened, or a root that another one has
    followed; empty where the work still goes on."""
    found = ""
    for each in (tree.frames[frame], *ancestors(tree, frame)) if frame in tree.frames else ():
        if each.status is Status.IN_PROGRESS or not (each.has_no_opening_call or is_ended_root(tree, each)):
            break  # an item of a plan may be taken up again after the request it was planned for
        if each.status in FINAL_STATUSES:
            found = each.id
    return found


def _finished_holder(tree: Tree, frame: Frame) -> str:
    """The outermost finished frame it is or is under; a part ends when it is cut, so by itself it says nothing."""
    found = outermost_finished(tree, frame.id)
    return "" if found == frame.id and frame.origin == "part" else found


def removable_places(path_state: PathState, line: Sequence[PathEntry]) -> list[int]:
    """Places of what may leave: call groups and what the assistant said between them, but for the newest group, groups
    that opened a frame on the path, and what was just recalled; behind what is sealed, if anything is."""
    fixed = _pinned_entries(path_state, line) | _mixed_turns(path_state, line)
    calls: dict[str, bool] = {}
    found: list[int] = []
    border = newest_sealed_place(path_state, line) + 1
    for at, path_entry in enumerate(line[border:], border):
        message = message_of(path_entry)
        if message is None:
            continue
        if message.role == "assistant":
            goes = path_entry.entry.id not in fixed and (bool(message.calls) or not _ends_turn(line, at))
            calls.update((c.id, goes) for c in message.calls)
        elif message.answers:
            goes = calls.get(message.answers, False)
        else:
            goes = path_entry.entry.kind is EntryKind.OVERLAY and path_entry.entry.id not in fixed
        if goes:
            found.append(at)
    return found


def newest_sealed_place(path_state: PathState, line: Sequence[PathEntry]) -> int:
    """The place of the newest entry on the line that stands for all before it; -1 where there is none."""
    sealed = path_state.tree.provider_compactions
    return next((at for at in range(len(line) - 1, -1, -1) if line[at].entry.id in sealed), -1) if sealed else -1


def _pinned_entries(path_state: PathState, line: Sequence[PathEntry]) -> frozenset[str]:
    """Entries that stay whatever it costs."""
    tree = path_state.tree
    path = path_to(tree, tree.active) if tree.active else ()
    opened = {frame.opening.turn for frame in path if frame.opening}
    last = next((at for at in range(len(line) - 1, -1, -1) if is_assistant(line[at])), len(line))
    newest = {p.entry.id for p in line[last:]}
    return frozenset(opened | newest) | recently_recalled_entries(line)


def _mixed_turns(path_state: PathState, line: Sequence[PathEntry]) -> frozenset[str]:
    """Turns that cannot leave, because an entry leaves with all of its rounds: of some, one round ends a frame and the
    next one is its parent's; of others, one says the closing words."""
    rounds: dict[str, set[tuple[str, bool]]] = {}
    for at, path_entry in enumerate(line):
        message = message_of(path_entry)
        if path_entry.round and message:
            owner = owner_of(path_state, path_entry).partition("#")[0]
            stays = not message.calls and _ends_turn(line, at)
            rounds.setdefault(path_entry.entry.id, set()).add(
                (outermost_finished(path_state.tree, owner) or owner, stays)
            )
    return frozenset(entry for entry, kinds in rounds.items() if len(kinds) > 1)


def _ends_turn(line: Sequence[PathEntry], at: int) -> bool:
    """Whether an answer without calls ended its turn: the user spoke next."""
    behind = (line[later] for later in range(at + 1, len(line)))
    following = next((p for p in behind if p.entry.kind is not EntryKind.OVERLAY), None)
    message = message_of(following) if following else None
    return message is None or message.role == "user"


def is_assistant(path_entry: PathEntry) -> bool:
    message = message_of(path_entry)
    return message is not None and message.role == "assistant"


def is_user(path_entry: PathEntry) -> bool:
    message = message_of(path_entry)
    return message is not None and message.role == "user"


def tokens_in_context(path_state: PathState, path_entry: PathEntry, count: CountTokens) -> int:
    """Tokens that it takes on the line in the words in which it is told there; `count` is asked for those of ours."""
    if (words := path_state.tree.replaced_results.get(path_entry.entry.id)) is not None:
        return count(words)
    made, told = path_entry.round, path_state.tree.result_texts
    if made is None or not (made.results and told):
        return original_tokens(path_entry)
    by_now = ((r, told.get((path_entry.entry.id, call_key(made.number, r.answers)))) for r in made.results)
    results = (count(text) if text and text != result.text else result.tokens for result, text in by_now)
    return made.spoken.message.tokens + sum(results)


def reasoning_tokens(
    path_entries: Iterable[PathEntry], mute: Container[str], bare: Callable[[Message], Message]
) -> int:
    """Tokens of the reasoning in answers among `path_entry`, but for those in `mute`, about: nobody tells them, and
    what is encrypted cannot be counted, so they are a quarter of its characters. `bare` is a message less its
    reasoning."""
    answers = (m for p in path_entries if p.entry.id not in mute and (m := message_of(p)) and m.role == "assistant")
    return sum(len(message.wire) - len(bare(message).wire) for message in answers) // 4


def _composed_tokens(text: str, composer: MessageComposer) -> int:
    """Tokens of a text of ours; the scribe remembers what it has written."""
    return composer.user_message(text).tokens


def original_tokens(path_entry: PathEntry) -> int:
    """Tokens that it takes on the line as it came, with the results of ours."""
    message = message_of(path_entry)
    own = sum(r.tokens for r in path_entry.round.results) if path_entry.round else 0
    return own + (message.tokens if message else 0)
