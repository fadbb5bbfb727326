"""What a person does to the tree by hand: push, plan, activate, pop, invalidate, rename.

    did(hand, deed)    what comes of it, as events and in words
    hung(hand, done)   the same as the ledger keeps it, behind the newest entry of the path
    note(tree, nonce)  what the model is told of it with the next request

The laws: **a person may do what the model may, by the same rules** (`tools.moves`, `tools.plans`), and **nothing a
person does takes a word off a line by itself**: a frame begun by hand has no call that opened it, so it is on the line
like an inferred one, and leaves it by a fold. Only where the model opened the frame with a call does ending it by hand
end its line too, as the model's own pop would; so that waits until nothing is under way in it.

What cannot be done is told in a sentence that says what to do instead.

What this module does not do: it reads no command (`typed` does) and stores nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import structs
from msgspec.structs import replace

from proxy.core.commands.command_values import Activate, Deed, Invalidate, Plan, Pop, Push, Rename, Step
from proxy.core.context.message_list import owner_of
from proxy.core.frames.events import (
    Activated,
    ByHand,
    Entered,
    FrameEvent,
    Invalidated,
    Planned,
    Popped,
    Pushed,
    Replanned,
    read_event,
    recorded,
)
from proxy.core.frames.path_state import Story
from proxy.core.frames.reducer import apply, way_back
from proxy.core.frames.results import returned_by
from proxy.core.frames.tree import BY_HAND, RETURNED, Frame, Status, Tree, ancestors, children, find
from proxy.core.ledger.ledger import Event, Kind, Ledger
from proxy.core.observers.step import said_by
from proxy.core.policy.roots import following
from proxy.core.text import clean, cut_for_display, element, escape_xml
from proxy.core.tools import frame_tools as moves
from proxy.core.tools import plan_tools as plans
from proxy.core.tools.base import Desk, Group, Mistake, Outcome, Settings
from proxy.core.tools.inspect_tools import known_frames
from proxy.errors import NotAllowed, UnknownFrame

RESULTS_KEPT = 1_200
"""Characters of the closing words that stand for results where a person gives none, and of a lesson that is told."""
CRITERIA_SHOWN = 600
DEEDS_TOLD = 30
"""The newest deeds that one note tells of."""
PLANNED_TOLD = 12
"""Planned frames that one note names."""
NO_RESULTS = "Ended by the user."


class Hand(msgspec.Struct, frozen=True):
    """What a deed is done with. `story` is the path, without anything under way that is not in it; `key` tells the deed
    from every other one; `now` is in ms. `suffixed`: the model takes no user message behind a result."""

    story: Story
    ledger: Ledger
    key: str
    now: int
    count: Callable[[str], int]
    settings: Settings
    suffixed: bool = False

    @property
    def tree(self) -> Tree:
        return self.story.tree

    @property
    def desk(self) -> Desk:
        """What the tools work with. A person who wants a checkpoint sets one: there is no turn to set it before."""
        group = Group(alone=True, home=self.tree.active)
        settings = replace(self.settings, checkpoint_at_push=False)
        return Desk(self.story, self.ledger, group, self.key, "", 0, self.now, "", self.count, settings)


class Done(msgspec.Struct, frozen=True):
    """What came of a deed: events in the order they happen, the tree after them, the frames it was about, `words` for
    the model and what the person is `told`."""

    events: tuple[FrameEvent, ...]
    tree: Tree
    frames: tuple[str, ...]
    words: str
    told: str


def did(hand: Hand, deed: Deed) -> Done:
    """What comes of a deed. Raises UnknownFrame and NotAllowed, whose messages say what to do."""
    if not hand.tree.active:
        raise NotAllowed("There is no frame here yet: the first message to the agent begins one.", code="no_frames")
    try:
        match deed:
            case Push():
                return _pushed(hand, deed)
            case Plan():
                return _planned(hand, deed)
            case Activate():
                return _activated(hand, deed)
            case Pop():
                return _popped(hand, deed)
            case Invalidate():
                return _invalidated(hand, deed)
            case Rename():
                return _renamed(hand, deed)
    except Mistake as mistake:
        raise NotAllowed(str(mistake).removeprefix("Error: "), code="not_allowed") from None


def hung(hand: Hand, done: Done) -> list[Event]:
    """The events as the ledger keeps them: behind the newest entry of the path, where that is a turn behind its last
    round. A frame is born under its own name; whatever else may happen once more at this entry."""
    tip = hand.story.tip
    rounds = hand.ledger.rounds.get(tip, ())
    number = rounds[-1].number if rounds else 0
    said = (*done.events, ByHand(hand.key, done.words, done.told))
    found = [recorded(event, tip, number, hand.ledger.seq + n, hand.now) for n, event in enumerate(said)]
    return [
        event if isinstance(what, Planned | Entered) and what.frame not in hand.tree.frames else _named(event, hand.key)
        for what, event in zip(said, found, strict=True)
    ]


def _named(event: Event, key: str) -> Event:
    return replace(event, subject=f"{event.subject.partition('/')[0]}/{key}")


def answered(ledger: Ledger, entry: str, key: str) -> str | None:
    """What a person was told of the deed with this key at an entry; None where it was not done yet."""
    events = (e for e in ledger.events.get(entry, ()) if e.kind == "by hand" and e.subject == f"/{key}")
    return next((read.told for e in events if isinstance(read := read_event(e), ByHand)), None)


# ---------------------------------------------------------------------------------------------------------------- push
def _pushed(hand: Hand, deed: Push) -> Done:
    tree = hand.tree
    _refuse_over(tree)
    if deed.parent and (parent := _frame(tree, deed.parent)).id != tree.active:
        raise NotAllowed(
            f"A frame begins under the active one, which is {_called(tree.current)}. Plan it under {_called(parent)} "
            "and activate it, or leave the parent away."
        )
    return _done(hand, moves.push(hand.desk, _step(deed.step)))


def _activated(hand: Hand, deed: Activate) -> Done:
    tree = hand.tree
    _refuse_over(tree)
    frame = _frame(tree, deed.frame)
    if frame.status is not Status.FAILED:
        return _done(hand, moves.activate(hand.desk, {"sessionID": frame.id}))
    if frame.parent != tree.active:
        raise NotAllowed(
            f"{_called(frame)} failed; another attempt begins beside it, under {frame.parent}. "
            f"The active frame is {_called(tree.current)}: pop it first."
        )
    return _done(hand, moves.push(hand.desk, {**_step(Step(frame.title, frame.criteria)), "retry_of": frame.id}))


# ---------------------------------------------------------------------------------------------------------------- plan
def _planned(hand: Hand, deed: Plan) -> Done:
    parent = _frame(hand.tree, deed.parent).id if deed.parent else hand.tree.active
    steps = [_step(step) for step in deed.steps]
    return _done(hand, plans.plan(hand.desk, {"parentSessionID": parent, "children": steps}))


def _step(step: Step) -> dict[str, Any]:
    below = [_step(child) for child in step.children]
    title = clean(step.title).strip()
    return {"title": title, "successCriteria": clean(step.criteria).strip() or title, "children": below}


def _renamed(hand: Hand, deed: Rename) -> Done:
    frame = _frame(hand.tree, deed.frame)
    if not deed.title and not deed.criteria:
        raise NotAllowed(f"Say what is to change of {_called(frame)}: its title, its criteria, or both.")
    return _done(hand, plans.plan(hand.desk, {"frameID": frame.id, **_given(title=deed.title, criteria=deed.criteria)}))


def _given(*, title: str, criteria: str) -> Mapping[str, str]:
    return {name: clean(text) for name, text in (("title", title), ("successCriteria", criteria)) if text}


# ----------------------------------------------------------------------------------------------------------------- end
def _popped(hand: Hand, deed: Pop) -> Done:
    tree = hand.tree
    _refuse_over(tree)
    frame = _frame(tree, deed.frame) if deed.frame else tree.current
    open_ones = (tree.current, *ancestors(tree, tree.active))
    below = [f for f in open_ones if frame.id in {a.id for a in ancestors(tree, f.id)}]
    _refuse_busy(hand, [*below, *way_back(tree, frame.id)])
    results = clean(deed.results).strip() or _last_words(hand.story, frame) or NO_RESULTS
    return _done(hand, moves.pop(hand.desk, {"frameID": frame.id, "status": deed.status, "results": results}))


def _last_words(story: Story, frame: Frame) -> str:
    """What the assistant said in a frame, as what it returns."""
    own = (placed for placed in story.placed if owner_of(story, placed) == frame.owner)
    said = [m.text for p in own if (m := said_by(p)) is not None and m.role == "assistant"]
    return returned_by(said)[:RESULTS_KEPT]


def _invalidated(hand: Hand, deed: Invalidate) -> Done:
    tree = hand.tree
    frame = _frame(tree, deed.frame)
    if frame.id == tree.active and frame.parent:
        _refuse_over(tree)
        _refuse_busy(hand, way_back(tree, frame.id))
    return _done(hand, plans.invalidate(hand.desk, {"frameID": frame.id, "reason": clean(deed.reason)}))


def _refuse_over(tree: Tree) -> None:
    if tree.root.status in RETURNED:
        raise NotAllowed(f"The root frame is {tree.root.status}. {_then(tree.root)}")


def _refuse_busy(hand: Hand, left: Sequence[Frame]) -> None:
    """A frame that the model opened with a call takes its line along: not while something is under way there, and not
    for a model that would have to read the user's next words behind a result."""
    called = next((frame for frame in left if frame.opening is not None), None)
    if called is None:
        return
    if not _at_rest(hand):
        raise NotAllowed(
            f"The agent is at work in {_called(called)}, which it opened itself. Wait until it has answered, then do "
            "this again; or tell the agent to end the frame."
        )
    if hand.suffixed:
        raise NotAllowed(
            f"The agent opened {_called(called)} itself, and its model cannot go on behind a frame that somebody else "
            "ended. Tell the agent to end it."
        )


def _at_rest(hand: Hand) -> bool:
    """Whether the path ends with an answer that waits for nothing."""
    entry = hand.ledger.entries.get(hand.story.tip)
    if entry is None:
        return False
    if entry.kind is Kind.TURN:
        last = hand.ledger.rounds.get(entry.id, ())[-1:]
        return any(done.last and done.spoken.complete and not done.spoken.client_calls for done in last)
    return entry.message is not None and entry.message.role == "assistant" and not entry.message.calls


# --------------------------------------------------------------------------------------------------------------- words
def _done(hand: Hand, outcome: Outcome) -> Done:
    events = tuple(own for event in outcome.events for own in _own(hand.tree, event))
    tree = hand.tree
    lines: list[str] = []
    for event in events:
        after = apply(tree, event, hand.now)
        lines += _told(tree, after, event)
        tree = after
    about = tuple(dict.fromkeys(frame for event in events if (frame := getattr(event, "frame", ""))))
    words = "\n".join(lines)
    return Done(events, tree, about, words, f"{words}\n{_where(tree)}")


def _where(tree: Tree) -> str:
    """What is active now, for the person."""
    if tree.root.status in RETURNED:
        return _then(tree.root)
    return f"Active: {_called(tree.current)}."


def _then(root: Frame) -> str:
    return f"Your next message to the agent {following(root)}."


def _own(tree: Tree, event: FrameEvent) -> Iterator[FrameEvent]:
    """What the tools decided, as a person decides it: without a call whose result would stand for it."""
    match event:
        case Pushed():
            words = (event.frame, event.parent, event.title, event.criteria)
            yield Entered(*words, BY_HAND, retry_of=event.retry_of)
        case Activated():
            for frame in (tree.frames[f] for f in (*event.through, event.frame)):
                yield Entered(frame.id, frame.parent, frame.title, frame.criteria, BY_HAND)
        case Planned():
            yield structs.replace(event, origin=BY_HAND)
        case _:
            yield event


def _told(tree: Tree, after: Tree, event: FrameEvent) -> Iterator[str]:
    """What happened, in a line, for the model and for the person."""
    match event:
        case Entered():
            known = tree.frames.get(event.frame)
            how = "Begun" if known is None or known.status is Status.PLANNED else "Resumed"
            yield f"{how}: {_with_criteria(after.frames[event.frame])}"
            yield from _lesson(after, after.frames[event.frame])
        case Planned():
            yield f"Planned under {event.parent}: {_with_criteria(after.frames[event.frame])}"
        case Replanned():
            yield f"Changed: {_with_criteria(after.frames[event.frame])}"
        case Popped():
            yield f"Ended as {event.status}: {_called(after.frames[event.frame])}."
        case Invalidated():
            yield f"Invalidated: {_called(after.frames[event.frame])}. Reason: {cut_for_display(event.reason)}"
            if event.cascade:
                gone = "; ".join(_called(after.frames[frame]) for frame in event.cascade)
                yield f"Invalidated with it: {gone}."
        case _:
            return


def _lesson(tree: Tree, frame: Frame) -> Iterator[str]:
    """What an attempt before this one came to."""
    before = tree.frames.get(frame.retry_of)
    if before is not None:
        yield f"It was tried before, as {before.id}, which {before.status}: {before.results[:RESULTS_KEPT]}"
    elif frame.results:
        yield f"What came of it so far: {frame.results[:RESULTS_KEPT]}"


def _with_criteria(frame: Frame) -> str:
    criteria = frame.criteria.strip()
    done_when = f" Done when: {criteria[:CRITERIA_SHOWN]}" if criteria != frame.title.strip() else ""
    return f"{_called(frame)}.{done_when}"


def _called(frame: Frame) -> str:
    return f"{frame.id} ({cut_for_display(frame.title)})"


def _frame(tree: Tree, reference: str) -> Frame:
    frame = find(tree, reference.strip().strip("\"'"))
    if frame is None:
        shown = cut_for_display(reference)
        raise UnknownFrame(f"No frame, or more than one, is called {shown!r}. {known_frames(tree)}")
    return frame


# ---------------------------------------------------------------------------------------------------------------- note
def note(tree: Tree, nonce: str) -> str:
    """What the model is told of what a person did since it was told last. No text of a tool can forge it, for none
    knows the nonce."""
    said = [line for words in tree.by_hand[-DEEDS_TOLD:] for line in words.splitlines()]
    lines = ["The user changed the frames by hand:", *(f"- {line}" for line in said), *_going_on(tree)]
    return element("stack-context", {"note": "by hand", "nonce": nonce}, escape_xml("\n".join(lines)))


def _going_on(tree: Tree) -> Iterator[str]:
    """Where the work stands now, and what comes next."""
    yield f"The active frame is {_called(tree.current)}."
    waiting = [frame for frame in children(tree, tree.active) if frame.status is Status.PLANNED]
    if waiting:
        named = "; ".join(map(_called, waiting[:PLANNED_TOLD]))
        more = f"; +{len(waiting) - PLANNED_TOLD} more" if len(waiting) > PLANNED_TOLD else ""
        yield f"Planned under it, in this order: {named}{more}."
        yield f"Work through them one by one: begin each with stack_frame_activate, the first is {waiting[0].id}."
    elif tree.current.parent:
        yield "When its criteria are met, pop it with results."
