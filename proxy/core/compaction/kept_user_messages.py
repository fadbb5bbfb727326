"""Finds what the user said inside frames, so that it stays in the context, as a message or as a quotation, when the
frames leave. Instructions that an application inserts in mid-history also stay."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from proxy.core.compaction.facts import frames_opened_in
from proxy.core.context import owner_of
from proxy.core.frames import Frame, PathEntry, PathState, Tree
from proxy.core.ledger import INSTRUCTION_ROLES, EntryKind, Round
from proxy.core.recall import ENTRY_ID_CHARACTERS
from proxy.core.text import TRUNCATION_MARKER, CountTokens, truncate_to_tokens

MAX_QUOTE_TOKENS = 500
"""Maximum tokens of one quoted user message."""


def user_messages(path_state: PathState, frame: Frame) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """User messages inside a frame and its descendants: texts already answered, and path ids of entries that must stay.

    The entries are user messages of the unfinished turn, notes attached to them, and all instructions: these bind later
    work too.
    """
    inside = _with_descendants(path_state.tree, {frame.id})
    answered: list[str] = []
    waiting: list[tuple[str, str]] = []
    staying: list[str] = []
    for path_entry in path_state.entries:
        if path_entry.round and _is_final_round(path_entry.round):
            answered += [text for _, text in waiting if text]
            waiting = []
        message = path_entry.entry.message
        if path_entry.round or message is None:
            continue
        owner = owner_of(path_state, path_entry)
        within = owner.partition("#")[0]
        if owner != frame.owner and (within == frame.id or within not in inside):
            continue  # messages of an earlier attempt were quoted when that ended
        if message.role in INSTRUCTION_ROLES:
            staying.append(path_entry.path_id)
        elif message.role == "user":
            waiting.append((path_entry.path_id, "" if path_entry.entry.kind is EntryKind.OVERLAY else message.text))
    return tuple(answered), (*staying, *(entry for entry, _ in waiting))


def _is_final_round(done: Round) -> bool:
    """The answer is complete, and the client has no call left to run."""
    return done.last and done.spoken.complete and not done.spoken.client_calls


def user_words_inside(path_state: PathState, path_entries: Sequence[PathEntry], count: CountTokens) -> str:
    """What the user said in frames that calls of the span opened, oldest first; long texts are cut and end with their
    ref."""
    opened = frames_opened_in(path_state.tree, path_entries)
    if not opened:
        return ""
    inside = _with_descendants(path_state.tree, opened)
    texts = [
        (message.text, p.entry.id)
        for p in path_state.entries
        if (message := p.entry.message) and message.role == "user" and not message.answers
        if p.entry.kind is not EntryKind.OVERLAY and owner_of(path_state, p).partition("#")[0] in inside
    ]
    return "\n".join(f"The user said there: {_quote_beginning(text, entry, count)}" for text, entry in texts)


def _quote_beginning(text: str, entry: str, count: CountTokens) -> str:
    marker = f"{TRUNCATION_MARKER} All of it: stack_recall with ref {entry[:ENTRY_ID_CHARACTERS]}."
    return truncate_to_tokens(text, MAX_QUOTE_TOKENS, count, marker)


def _with_descendants(tree: Tree, frames: Collection[str]) -> frozenset[str]:
    """Parents are created before their children, so one pass is enough."""
    inside = set(frames)
    for frame in tree.frames.values():
        if frame.parent in inside:
            inside.add(frame.id)
    return frozenset(inside)
