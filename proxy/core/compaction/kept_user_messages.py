"""Finds what the user said inside frames, so that it stays in the context, as a message or as a quotation, when the
frames leave. The closing words that the user read there before their next message stay as a quotation, and instructions
that an application inserts in mid-history as messages."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from proxy.core.compaction.client_notes import files_noted_in
from proxy.core.compaction.facts import frames_opened_in
from proxy.core.context import holder_of, owner_of
from proxy.core.frames import Frame, PastSpeech, PathEntry, PathState, Tree, frame_id_of
from proxy.core.ledger import INSTRUCTION_ROLES, Call, EntryKind, Message, Round
from proxy.core.observers import asked_in, is_closing_message, queued_words
from proxy.core.recall import ENTRY_ID_CHARACTERS
from proxy.core.text import TRUNCATION_MARKER, CountTokens, truncate_to_tokens

MAX_QUOTE_TOKENS = 500
"""Maximum tokens of one quoted user message."""
MAX_CALLS_BEFORE_A_NOTE = 200
"""Calls in front of a client's note in which its files are looked for."""


def user_messages(path_state: PathState, frame: Frame) -> tuple[tuple[PastSpeech, ...], tuple[str, ...]]:
    """What was said inside a frame and its descendants: user messages already answered with the closing words that the
    user read, in order, and path ids of entries that must stay.

    The entries are user messages of the unfinished turn, notes attached to them, and instructions, which bind later
    work too. What the user typed while the agent worked is the user's, in whatever message the client hands it over.
    A client's note on files that calls inside the frame named leaves with these.
    """
    inside = _with_descendants(path_state.tree, {frame.id})
    answered: list[PastSpeech] = []
    waiting: list[tuple[str, str]] = []
    staying: list[str] = []
    calls: list[Call] = []
    named: set[str] = set()
    for position, path_entry in enumerate(path_state.entries):
        message = path_entry.message
        if _ends_turn(path_entry.round, message):
            answered += [PastSpeech(text) for _, text in waiting if text]
            waiting = []
        is_answer = message is not None and message.role == "assistant"
        is_closing = is_answer and is_closing_message(path_state.entries, position)
        if message is None or (is_answer and not (message.calls or is_closing)):
            continue
        owner = owner_of(path_state, path_entry)
        is_other_attempt = owner != frame.owner and frame_id_of(owner) == frame.id
        if is_other_attempt or holder_of(path_state, path_entry) not in inside:
            continue  # messages of an earlier attempt were quoted when that ended
        if is_answer:
            calls += message.calls
            answered += [PastSpeech(message.text.strip(), is_users=False)] if is_closing else []
        elif _is_note_on_named_files(message, calls, named):
            continue
        elif path_entry.entry.kind is not EntryKind.OVERLAY and queued_words(message):
            waiting.append((path_entry.path_id, asked_in(message)))
        elif message.role in INSTRUCTION_ROLES:
            staying.append(path_entry.path_id)
        elif message.role == "user":
            waiting.append((path_entry.path_id, "" if path_entry.entry.kind is EntryKind.OVERLAY else message.text))
    return tuple(answered), (*staying, *(entry for entry, _ in waiting))


def _is_note_on_named_files(message: Message, calls: Sequence[Call], named: set[str]) -> bool:
    """Whether each file of a client's note was named by one of the newest calls, or is in `named`, which collects those
    that were found."""
    files = files_noted_in(message)
    if files is None:
        return False
    newest = calls[-MAX_CALLS_BEFORE_A_NOTE:]
    for file in files:
        if file not in named and not any(file in call.arguments for call in newest):
            return False
        named.add(file)
    return True


def _ends_turn(done: Round | None, message: Message | None) -> bool:
    """The answer is complete, and the client has no call left to run. One that we only know from the client, because
    its rounds were lost or never ours, is as complete as it will be."""
    if done is not None:
        return done.last and done.spoken.complete and not done.spoken.client_calls
    return message is not None and message.role == "assistant" and not message.calls


def words_inside(path_state: PathState, path_entries: Sequence[PathEntry], count: CountTokens) -> str:
    """What was said in frames that calls of the span opened, oldest first: by the user, whose long texts are cut and
    end with their ref, and the closing words that the user read there."""
    opened = frames_opened_in(path_state.tree, path_entries)
    if not opened:
        return ""
    inside = _with_descendants(path_state.tree, opened)
    lines: list[str] = []
    for position, path_entry in enumerate(path_state.entries):
        message = path_entry.message
        if message is None or path_entry.entry.kind is EntryKind.OVERLAY or message.answers:
            continue
        if holder_of(path_state, path_entry) not in inside:
            continue
        if message.role == "user":
            marker = (
                f"{TRUNCATION_MARKER} All of it: stack_recall with ref {path_entry.entry.id[:ENTRY_ID_CHARACTERS]}."
            )
            said = truncate_to_tokens(message.text, MAX_QUOTE_TOKENS, count, marker)
            lines.append(f"The user said there: {said}")
        elif is_closing_message(path_state.entries, position):
            lines.append(f"You answered there: {message.text.strip()}")
    return "\n".join(lines)


def _with_descendants(tree: Tree, frames: Collection[str]) -> frozenset[str]:
    """Parents are created before their children, so one pass is enough."""
    inside = set(frames)
    for frame in tree.frames.values():
        if frame.parent in inside:
            inside.add(frame.id)
    return frozenset(inside)
