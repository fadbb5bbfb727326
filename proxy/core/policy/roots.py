"""Begins a frame tree from the user's first words, and another one beside it once its root has ended. Only the user's
words begin a root: text that a client adds, and a request for a summary, continue the current tree. A blocked root has
not ended, so the next user words reopen it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from proxy.core.frames import FINAL_STATUSES, MAX_CRITERION_CHARACTERS, Frame, RootStarted, Tree, frame_id, title_of
from proxy.core.ledger import Entry
from proxy.core.observers import asks_for_summary, ends_with_user_message, first_user_text, task_text_of

ROOT_FRAME_NUMBER = 100_000
"""Higher than every number of an inferred frame, part or subagent that begins at the same entry."""
REOPENS_ROOT = "reopens it"
BEGINS_NEW_ROOT = "begins a new root frame beside it"


def build_root(user_texts: Iterable[str], frame: str) -> RootStarted:
    """The root `frame` for the user's words, oldest message first."""
    text = first_user_text(user_texts, MAX_CRITERION_CHARACTERS)
    return RootStarted(frame, title_of(task_text_of(text)), text)


def find_new_root(tree: Tree, new_entries: Sequence[Entry], *, newest: bool = False) -> tuple[str, RootStarted] | None:
    """The root that `new_entries` begins (the client's messages between two assistant turns), and the id of its entry,
    which is the user's first. None where the current tree goes on. `newest`: use only the last user message, because a
    history that the client compacted stands before it."""
    if not is_root_ended(tree):
        return None
    user_messages = [(entry.id, m) for entry in new_entries if (m := entry.message) and m.role == "user"]
    requests = [m for _, m in user_messages if ends_with_user_message([m]) and not asks_for_summary(m.text)]
    if not requests:
        return None
    entry = user_messages[0][0]
    texts = [m.text for m in requests]
    return entry, build_root(texts[-1:] if newest else texts, frame_id(entry, ROOT_FRAME_NUMBER))


def build_root_from_person(tree: Tree, entry: str, text: str) -> RootStarted | None:
    """The root that words from outside the client begin at `entry`; None while the current tree goes on."""
    return build_root([text], frame_id(entry, ROOT_FRAME_NUMBER)) if is_root_ended(tree) else None


def is_root_ended(tree: Tree) -> bool:
    return bool(tree.frames) and tree.root.status in FINAL_STATUSES


def next_message_effect(root: Frame) -> str:
    """In words, what the next user message does after `root` has returned."""
    return BEGINS_NEW_ROOT if root.status in FINAL_STATUSES else REOPENS_ROOT
