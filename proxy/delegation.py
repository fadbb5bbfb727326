"""Subagents: a conversation that a call of another one began, and the frame that stands for it there.

A client that delegates work opens a conversation of its own for it, whose first words are the prompt of a call that
still waits for its result. The law: **the call that delegated it begins the frame, the result of that call ends it**;
nothing is guessed from silence, because models think for minutes.

What this module does not do: it finds no conversation for a request (`reception`), and puts nothing on any line: parent
and subagent see what their client shows them.
"""

from __future__ import annotations

from proxy.shelf import Shelf, Shelved
from proxy.stack import matching
from proxy.stack.compaction import CRITERION, title_of
from proxy.stack.events import Delegated, FrameEvent, Popped, frame_id, read_event, recorded
from proxy.stack.frames import FINAL, RETURNED, Tree
from proxy.stack.ledger import Ledger, seen_calls
from proxy.stack.ranking import cut_for_display

FRAMES = 10_000
"""Numbers of subagents' frames in their turn; those of pushed ones count its calls."""


async def begun(  # noqa: PLR0913  who delegated what to whom, and when
    shelf: Shelf, tenant: str, origin: tuple[str, str], child: str, prompt: str, now: int
) -> None:
    """Tell the conversation that delegated `child` of it: a frame under the one in which the call was made. `origin` is
    that conversation and the turn of the call; where no call says so there is no frame (a fork, a session's parent)."""
    parent = await shelf.get(tenant, origin[0]) if all(origin) else None
    rounds = parent.ledger.rounds.get(origin[1], ()) if parent else ()
    call = matching.delegating_call(rounds, prompt)
    if parent is None or call is None:
        return
    tree, turn = parent.story(origin[1]).tree, origin[1]
    number = FRAMES + [c.id for c in seen_calls(rounds)].index(call.id)
    frame = frame_id(turn, number)
    if tree.active:
        title, criterion = title_of(prompt), prompt.strip()[:CRITERION]
        _record(shelf, parent, Delegated(frame, tree.active, title, criterion, child, call.id), turn, now)


async def returned(shelf: Shelf, ledger: Ledger, known: Tree, node: str, now: int) -> None:
    """Where results that came with the request at `node` ended subagents, their own conversations are done too: the
    root of each ends as the frame did, with the result (S1-71f). A further message reopens it. `known` are the frames
    there."""
    for event in ledger.events.get(node, ()):
        ended = read_event(event) if event.kind == "popped" else None
        frame = known.frames.get(ended.frame) if isinstance(ended, Popped) else None
        does = frame.conversation if frame else ""
        child = await shelf.get(ledger.conversation.tenant, does) if does else None
        tip = child.ledger.newest_tip() if child else None
        if child is None or tip is None or not isinstance(ended, Popped):
            continue
        tree = child.story(tip.id).tree
        if tree.frames and tree.root.status not in FINAL | RETURNED:
            words = (ended.results, cut_for_display(ended.results))
            _record(shelf, child, Popped(tree.root.id, ended.status, *words), tip.id, now)


def _record(shelf: Shelf, shelved: Shelved, event: FrameEvent, entry: str, now: int) -> None:
    """What was decided beside the requests of a conversation hangs on an entry of it; its paths are folded anew."""
    ledger = shelved.ledger
    shelf.record(shelved, [recorded(event, entry, ledger.newest_round(entry), ledger.seq, now)])
    shelved.stories.clear()
