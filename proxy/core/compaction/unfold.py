"""Taking a fold back: what a person asks for, and when it comes.

A fold can have been wrong; only a person sees that. What is asked for comes back where it stood, byte for byte, at the
next moment that is cheap: nothing of the line is cached any more, or another rewrite breaks the cache with the same
request. The laws: **what was asked back is never folded again**, and **nobody's cache is broken for it unasked**: "at
once, whatever it costs" has to be said.

What this module does not do: it chooses no folds (`folding` does), and it neither stores nor sends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set

import msgspec
from msgspec.structs import replace

from proxy.core.compaction.compaction_plan import Decision, Folding, Moment
from proxy.core.compaction.cost_gate import Reason, Rewrite, Verdict, weighed
from proxy.core.compaction.segments import told_tokens
from proxy.core.context.message_list import Scribe, on_line, owner_of
from proxy.core.frames.events import Folded, FrameEvent, ReasoningRemoved, Unfolded, read_event
from proxy.core.frames.path_state import Placed, Story
from proxy.core.frames.reducer import apply
from proxy.core.frames.tree import Tree, is_kept
from proxy.core.ledger.ledger import Ledger
from proxy.core.observers.step import said_by
from proxy.errors import NotAllowed


# ----------------------------------------------------------------------------------------------------------------- ask
class Wish(msgspec.Struct, frozen=True):
    """What asking for a frame comes to: the fold of `frame` is taken back, and every path has to know that has one of
    `entries` on it, where it was folded. `is_new` is False where the same was asked before."""

    frame: str
    entries: tuple[str, ...]
    is_new: bool


def wish(ledger: Ledger, story: Story, frame: str, *, now: bool = False) -> Wish:
    """What it takes to bring back `frame`, a frame of `story`: its own fold, or the one that holds what it did.

    Raises NotAllowed where there is nothing to bring back; the message says why, and what to do instead.
    """
    holder = holders(ledger, story).get(frame)
    if not holder:
        raise NotAllowed(_why_not(story, frame), code="not_folded")
    entries = tuple(fold_at for fold_at, folded in _folds(ledger) if folded.frame == holder)
    asked = story.tree.kept.get(holder)
    return Wish(holder, entries, is_new=asked is None or (now and not asked))


def holders(ledger: Ledger, story: Story) -> Mapping[str, str]:
    """Every frame of `story` that can be asked back, with the frame whose fold is taken back for it: the one for which
    the trace stands that stands for what it did. A trace may have taken the place of an earlier one."""
    held = {trim.frame: trim.entries for trim in story.tree.trims if trim.frame}
    if not held:
        return {}
    did: dict[str, set[str]] = {}
    for placed in story.placed:
        did.setdefault(owner_of(story, placed).partition("#")[0], set()).add(placed.entry.id)
    for _, folded in _folds(ledger):
        did.setdefault(folded.frame, set()).update(folded.entries)
    found = ((frame, _holder(frame, did.get(frame, set()), held)) for frame in story.tree.frames)
    return {frame: holder for frame, holder in found if holder}


def _holder(frame: str, own: Set[str], held: Mapping[str, frozenset[str]]) -> str:
    """The frame in `held` that holds `own`, what `frame` did; empty where none does."""
    return frame if frame in held else next((of for of, entries in held.items() if entries & own), "")


def _folds(ledger: Ledger) -> Iterable[tuple[str, Folded]]:
    """Every fold of the conversation, with the entry it was decided at."""
    for entry, events in ledger.events.items():
        for event in events:
            if event.kind == "folded" and isinstance(folded := read_event(event), Folded):
                yield entry, folded


def _own(story: Story, frame: str) -> frozenset[str]:
    return frozenset(p.entry.id for p in story.placed if owner_of(story, p).partition("#")[0] == frame)


def _why_not(story: Story, frame: str) -> str:
    tree = story.tree
    found = tree.frames[frame]
    elsewhere = f"`callstack log {frame}` shows all of it, and the model recalls it with stack_recall ref={frame}."
    if is_kept(tree, frame):
        return f"Frame {frame} is on the line again since it was unfolded, and is not folded any more."
    if found.parent and not found.is_uncalled:
        return f"Frame {frame} was pushed by the model and leaves the line when it returns, not by a fold. {elsewhere}"
    if any(not trim.frame and trim.entries & _own(story, frame) for trim in tree.trims):
        return f"Frame {frame} was not folded: it left because the line did not fit the model's window. {elsewhere}"
    return f"Frame {frame} was never folded: what it did stands on the line. `callstack tree` shows the other frames."


# ---------------------------------------------------------------------------------------------------------------- come
def unfolding(story: Story, moment: Moment, done: Folding, scribe: Scribe) -> Folding:
    """`done`, with what a person wants back and comes at this moment; what has to wait is a decision too."""
    tree = story.tree
    asked = tuple(dict.fromkeys(trim.frame for trim in tree.trims if trim.frame in tree.kept))
    cheap = _is_cold(moment) or bool(done.events)
    come = tuple(frame for frame in asked if cheap or tree.kept[frame])
    wait = tuple(frame for frame in asked if frame not in come)
    events: tuple[FrameEvent, ...] = tuple(map(Unfolded, come))
    if moment.binds and (muted := _bound(story, come, scribe)):
        events = (*events, ReasoningRemoved(muted))
    decisions = tuple(
        Decision("unfold", frames, _verdict(story, frames, moment, scribe, worth=frames is come))
        for frames in (come, wait)
        if frames
    )
    return Folding((*events, *done.events), (*done.decisions, *decisions))


def _is_cold(moment: Moment) -> bool:
    """Nothing is cached, or a cached token costs as much as one that has to be written: no rewrite costs more."""
    return moment.cold or moment.prices.read >= moment.prices.write


def _without_traces(tree: Tree, frames: Sequence[str], now: int) -> Tree:
    for frame in frames:
        tree = apply(tree, Unfolded(frame), now)
    return tree


def _returned(story: Story, frames: Sequence[str]) -> tuple[list[Placed], int, set[int]]:
    """The line with these frames back on it, the place of the first that comes back, and what comes back."""
    standing = {id(placed) for placed in on_line(story)}
    after = on_line(replace(story, tree=_without_traces(story.tree, frames, 0)))
    back = {id(placed) for placed in after} - standing
    first = next((at for at, placed in enumerate(after) if id(placed) in back), len(after))
    return after, first, back


def _verdict(story: Story, frames: Sequence[str], moment: Moment, scribe: Scribe, *, worth: bool) -> Verdict:
    """The figures of bringing them back: nothing is removed, so it never pays. A person wants it."""
    after, first, back = _returned(story, frames)
    tokens = [told_tokens(story, placed, lambda text: scribe.user_message(text).tokens) for placed in after]
    added = sum(n for n, placed in zip(tokens, after, strict=True) if id(placed) in back)
    rewrite = Rewrite(0, 0, sum(tokens[first:]) - added, moment.head + sum(tokens), added)
    verdict = weighed(rewrite, moment.prices, moment.requests, cold=moment.cold)
    reason = Reason.NOT_YET if not worth else Reason.COLD if _is_cold(moment) else Reason.ASKED
    return replace(verdict, worth=worth, reason=reason)


def _bound(story: Story, frames: Sequence[str], scribe: Scribe) -> tuple[str, ...]:
    """L8: answers from the first place on that changes whose reasoning no longer fits what stands before it."""
    after, first, _ = _returned(story, frames)
    said = ((placed.entry.id, said_by(placed)) for placed in after[first:])
    reasoning = (entry for entry, m in said if m and m.role == "assistant" and scribe.without_reasoning(m) is not m)
    return tuple(dict.fromkeys(entry for entry in reasoning if entry not in story.tree.mute))
