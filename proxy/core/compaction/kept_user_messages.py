"""What the user said inside frames, and what stands for it when they leave the line.

The law: **the user's words stay on the line whatever leaves it**, as they were or quoted, and so do instructions that
an application gives in mid-history.

What this module does not do: it quotes nothing (`compaction` does for a pop, `folding` and `trim` for the rest).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from proxy.core.compaction.facts import frames_opened_in
from proxy.core.context import owner_of
from proxy.core.frames import Frame, PathEntry, PathState, Tree
from proxy.core.ledger import INSTRUCTION_ROLES, EntryKind, Round
from proxy.core.recall import ENTRY_ID_CHARACTERS
from proxy.core.text import TRUNCATION_MARKER, CountTokens, truncate_to_tokens

MAX_QUOTE_TOKENS = 500
"""Tokens of one message of the user's in the text that stands for the frame it was said in."""


def user_messages(path_state: PathState, frame: Frame) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What the user said inside a frame and all that is under it: texts already answered by an assistant text, and
    entries of the unfinished turn, with what we told behind them: that is nobody's speech once it is past. Instructions
    that came in mid-history bind whatever work is next, so they are among the entries also when they are past."""
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
            continue  # what was said in an earlier attempt at it was told when that ended
        if message.role in INSTRUCTION_ROLES:
            staying.append(path_entry.path_id)
        elif message.role == "user":
            waiting.append((path_entry.path_id, "" if path_entry.entry.kind is EntryKind.OVERLAY else message.text))
    return tuple(answered), (*staying, *(entry for entry, _ in waiting))


def _is_final_round(done: Round) -> bool:
    """The client was answered, and has nothing to do for the model."""
    return done.last and done.spoken.complete and not done.spoken.client_calls


def user_words_inside(path_state: PathState, path_entries: Sequence[PathEntry], count: CountTokens) -> str:
    """What the user said in frames that calls of a span opened, oldest first. Their results quote it, and the user's
    words stay on the line whatever leaves it; of a long text its beginning does, and where all of it is."""
    opened = frames_opened_in(path_state.tree, path_entries)
    if not opened:
        return ""
    inside = _with_descendants(path_state.tree, opened)
    said = [
        (message.text, p.entry.id)
        for p in path_state.entries
        if (message := p.entry.message) and message.role == "user" and not message.answers
        if p.entry.kind is not EntryKind.OVERLAY and owner_of(path_state, p).partition("#")[0] in inside
    ]
    return "\n".join(f"The user said there: {_quote_beginning(text, entry, count)}" for text, entry in said)


def _quote_beginning(text: str, entry: str, count: CountTokens) -> str:
    marker = f"{TRUNCATION_MARKER} All of it: stack_recall with ref {entry[:ENTRY_ID_CHARACTERS]}."
    return truncate_to_tokens(text, MAX_QUOTE_TOKENS, count, marker)


def _with_descendants(tree: Tree, frames: Collection[str]) -> frozenset[str]:
    """In one pass: a frame is born behind its parent."""
    inside = set(frames)
    for frame in tree.frames.values():
        if frame.parent in inside:
            inside.add(frame.id)
    return frozenset(inside)
