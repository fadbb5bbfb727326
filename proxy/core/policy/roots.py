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

from proxy.core.frames import FINAL_STATUSES, MAX_CRITERION_CHARACTERS, Frame, RootStarted, Tree, frame_id, title_of
from proxy.core.ledger import Entry, Message
from proxy.core.observers import asks_for_summary, ends_with_user_message, first_user_text

ROOT_FRAME_NUMBER = 100_000
"""The number of a root that begins at an entry; those of frames seen in what the client says, parts and subagents are
lower."""
REOPENS_ROOT = "reopens it"
BEGINS_NEW_ROOT = "begins a new root frame beside it"


def build_root(words: Iterable[str], frame: str) -> RootStarted:
    """The root `frame` of what the user said, the first message first."""
    said = first_user_text(words, MAX_CRITERION_CHARACTERS)
    return RootStarted(frame, title_of(said), said)


def find_new_root(tree: Tree, run: Sequence[Entry], *, newest: bool = False) -> tuple[str, RootStarted] | None:
    """The root that begins with `run`, the client's messages between two assistant turns, and the entry it begins at:
    the first of the user's. None where the tree goes on. `newest`: it is about their last words, for what stands in
    front of them is a history that the client compacted."""
    if not is_root_ended(tree):
        return None
    of_user = [(entry.id, m) for entry in run if (m := entry.message) and m.role == "user"]
    words = [m for _, m in of_user if _is_user_request(m)]
    if not words:
        return None
    entry = of_user[0][0]
    said = [m.text for m in words]
    return entry, build_root(said[-1:] if newest else said, frame_id(entry, ROOT_FRAME_NUMBER))


def build_root_from_person(tree: Tree, entry: str, words: str) -> RootStarted | None:
    """The root that begins with what a person said from beside the client, told as the entry `entry`."""
    return build_root([words], frame_id(entry, ROOT_FRAME_NUMBER)) if is_root_ended(tree) else None


def is_root_ended(tree: Tree) -> bool:
    """Whether the tree that was worked on has ended."""
    return bool(tree.frames) and tree.root.status in FINAL_STATUSES


def next_message_effect(root: Frame) -> str:
    """What the user's next message does, where `root` has returned."""
    return BEGINS_NEW_ROOT if root.status in FINAL_STATUSES else REOPENS_ROOT


def _is_user_request(message: Message) -> bool:
    """Whether the user says something to go on with."""
    return ends_with_user_message([message]) and not asks_for_summary(message.text)
