"""How a tree of frames begins, and the next one beside it once its root has ended (S1-36, S1-106, C20).

    begun(words, frame)        the root that the user's first words begin
    begun_beside(tree, run)    the root that their words begin when the tree before has ended
    begun_by(tree, entry, ..)  the same, said from beside the client
    following(root)            what their next message does, in words

What a user says first is the title of a root and its criterion. The laws: **only the user's words begin a root**: what
a client adds in its own name goes on with the tree that is there, and so does one that asks for a summary. And **a root
that is blocked has not ended**: the words it waited for open it again.

Where a store knows nothing of a new root, the words behind an ended one opened that again: so they did once, and the
lines of then have to stay as they are (`applying.reopened`).

What this module does not do: it takes nothing off a line. A root that has ended stays on it until a fold takes it
(`segments`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from proxy.core.frames.events import Rooted, frame_id
from proxy.core.frames.results import CRITERION, title_of
from proxy.core.frames.tree import FINAL, Frame, Tree
from proxy.core.ledger.ledger import Entry
from proxy.core.ledger.messages import Message
from proxy.core.observers.turns import asks_for_summary, first_said, user_spoke_last

ROOT = 100_000
"""The number of a root that begins at an entry; those of frames seen in what the client says, parts and subagents are
lower."""
REOPENS = "reopens it"
BEGINS = "begins a new root frame beside it"


def begun(words: Iterable[str], frame: str) -> Rooted:
    """The root `frame` of what the user said, the first message first."""
    said = first_said(words, CRITERION)
    return Rooted(frame, title_of(said), said)


def begun_beside(tree: Tree, run: Sequence[Entry], *, newest: bool = False) -> tuple[str, Rooted] | None:
    """The root that begins with `run`, the client's messages between two assistant turns, and the entry it begins at:
    the first of the user's. None where the tree goes on. `newest`: it is about their last words, for what stands in
    front of them is a history that the client compacted."""
    if not is_over(tree):
        return None
    of_user = [(entry.id, m) for entry in run if (m := entry.message) and m.role == "user"]
    words = [m for _, m in of_user if _is_word(m)]
    if not words:
        return None
    entry = of_user[0][0]
    said = [m.text for m in words]
    return entry, begun(said[-1:] if newest else said, frame_id(entry, ROOT))


def begun_by(tree: Tree, entry: str, words: str) -> Rooted | None:
    """The root that begins with what a person said from beside the client, told as the entry `entry`."""
    return begun([words], frame_id(entry, ROOT)) if is_over(tree) else None


def is_over(tree: Tree) -> bool:
    """Whether the tree that was worked on has ended."""
    return bool(tree.frames) and tree.root.status in FINAL


def following(root: Frame) -> str:
    """What the user's next message does, where `root` has returned."""
    return BEGINS if root.status in FINAL else REOPENS


def _is_word(message: Message) -> bool:
    """Whether the user says something to go on with."""
    return user_spoke_last([message]) and not asks_for_summary(message.text)
