"""Rebuilds a ledger from an imported layout.

A layout has the state of frames but no events, so each path ends with invented ones. The result has the same state, ids
and logs. Contexts, folds and client views are not in a layout and are lost; a repeated decision comes back once.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from msgspec.structs import replace

from proxy.core.frames import (
    RETURN_STATUSES,
    ArtifactAdded,
    DecisionAdded,
    Frame,
    FrameActivated,
    FrameEntered,
    FrameEvent,
    FrameInvalidated,
    FramePlanned,
    FramePopped,
    FrameReplanned,
    NoteKept,
    Status,
    as_ledger_event,
)
from proxy.core.ledger import Conversation, Entry, EntryKind, LedgerEvent, Message, ModelResponse, Round, Thread
from proxy.errors import BadRequest
from proxy.store import LedgerRecord, Record

IMPORTED_THREAD = "imported"
ENDED_STATUSES = (*RETURN_STATUSES, Status.INVALIDATED)


@dataclass(frozen=True, slots=True)
class ImportedMessage:
    """A message of a log. Its `entry` still has the names of the log, and in a turn too the message."""

    entry: Entry
    frame: str
    round_number: int = -1
    results: tuple[Message, ...] = ()
    finish_reason: str = ""
    is_complete: bool = True


def imported_message(  # noqa: PLR0913 - where it stands, and when
    name: str, previous: str, seq: int, message: Message, frame: str, created: int
) -> ImportedMessage:
    """A message of a log that knows neither turns nor threads. `previous` names the one before it on its path."""
    entry = Entry(name, previous, seq, EntryKind.MESSAGE, IMPORTED_THREAD, message, created=created)
    return ImportedMessage(entry, frame)


@dataclass(frozen=True)
class ImportedConversation:
    """Everything in a layout. `frames` have parents before children; messages are in order of creation."""

    conversation: str
    dialect: str
    created: int
    frames: tuple[Frame, ...]
    active_frame: str
    messages: tuple[ImportedMessage, ...]


def rebuild_records(imported: ImportedConversation) -> tuple[Conversation, list[Record]]:
    """The conversation without an owner, and its records in writing order."""
    entries, rounds = _make_entries(imported.messages)
    parents = {entry.parent for entry in entries.values()}
    tips = [e for e in entries.values() if e.id not in parents and not e.is_overlay]
    owned: dict[str, list[str]] = defaultdict(list)
    for message in imported.messages:
        owned[message.frame].append(entries[message.entry.id].id)
    events = list(
        _make_events(imported.frames, imported.active_frame, {frame: tuple(ids) for frame, ids in owned.items()})
    )
    seq = max((entry.seq for entry in entries.values()), default=-1) + 1
    threads = dict.fromkeys(message.entry.thread for message in imported.messages)
    values: list[Entry | Round | LedgerEvent | Thread] = [Thread(name) for name in threads]
    for entry in entries.values():
        values += [entry, *rounds.get(entry.id, ())]
    for tip in tips:
        number = rounds[tip.id][0].number if tip.id in rounds else 0
        values += [as_ledger_event(event, tip.id, number, seq + at, when) for at, (event, when) in enumerate(events)]
        seq += len(events)
    conversation = Conversation(imported.conversation, "", created=imported.created, dialect=imported.dialect)
    return conversation, [LedgerRecord(conversation.id, value) for value in values]


def _make_entries(messages: Iterable[ImportedMessage]) -> tuple[Mapping[str, Entry], Mapping[str, tuple[Round]]]:
    """Entries by their names in the log, and rounds by turn. Each message becomes an entry: rounds may belong to
    different frames."""
    entries: dict[str, Entry] = {}
    rounds: dict[str, tuple[Round]] = {}
    taken: set[str] = set()
    for imported in messages:
        logged = imported.entry
        name = logged.id.partition("/")[0]
        if name in taken:
            name = sha256(logged.id.encode()).hexdigest()[:32]
        taken.add(name)
        parent = entries[logged.parent].id if logged.parent in entries else ""
        entries[logged.id] = replace(logged, id=name, parent=parent)
        if logged.kind is EntryKind.TURN and logged.message is not None:
            entries[logged.id] = replace(entries[logged.id], message=None)
            spoken = ModelResponse(logged.message, imported.finish_reason, complete=imported.is_complete)
            number = max(0, imported.round_number)
            rounds[name] = (Round(name, number, spoken, imported.results, last=True, created=logged.created),)
    return entries, rounds


# --------------------------------------------------------------------------------------------------------------- frames
def parents_first(frames: Iterable[Frame]) -> tuple[Frame, ...]:
    """Parents before children, otherwise in the given order. Raises BadRequest for a repeated id or a cycle."""
    waiting = list(frames)
    names = [frame.id for frame in waiting]
    if twice := next((name for name, count in Counter(names).items() if count > 1), ""):
        raise BadRequest(
            f"Two frames have the id {twice[:64]!r}. Nothing was imported; export it anew.", code="not_importable"
        )
    placed_ids = set(names)
    path_entries: dict[str, Frame] = {}
    while waiting:
        remaining = []
        for frame in waiting:
            if not frame.parent or frame.parent in path_entries or frame.parent not in placed_ids:
                path_entries[frame.id] = frame
            else:
                remaining.append(frame)
        if len(remaining) == len(waiting):
            raise BadRequest(
                f"The frame {waiting[0].id[:64]!r} is above itself. Nothing was imported.", code="not_importable"
            )
        waiting = remaining
    return tuple(path_entries.values())


def _make_events(
    frames: Sequence[Frame], active: str, owned: Mapping[str, tuple[str, ...]]
) -> Iterator[tuple[FrameEvent, int]]:
    """Events that lead to the state of the frames: plan all, enter those that began, end those that ended. The active
    frame comes last, unless work returned to it from a child, which then ends last."""
    for frame in frames:
        yield _planned_event(frame), frame.created_at
        if frame.status is Status.PLANNED and frame.updated_at != frame.created_at:
            words = (frame.id, frame.title, frame.criteria, frame.criteria_compacted)
            yield FrameReplanned(*words), frame.updated_at
    last = [*(f for f in frames if f.id == active), *_returned_to_active(frames, active)]
    others = [f for f in frames if f not in last]
    for frame in others:
        yield from _begin_events(frame, owned)
    for frame in reversed(others):
        yield from _end_events(frame)
    for frame in last:
        yield from _begin_events(frame, owned, surely=frame.id != active)
        yield from _end_events(frame)


def _returned_to_active(frames: Sequence[Frame], active: str) -> list[Frame]:
    """A child of the active frame that ended while the active frame was at work."""
    under_way = any(f.id == active and f.status is Status.IN_PROGRESS for f in frames)
    ended = [f for f in frames if f.parent == active and f.status in ENDED_STATUSES]
    return [] if under_way else ended[-1:]


def _planned_event(frame: Frame) -> FramePlanned:
    words = (frame.id, frame.parent, frame.title, frame.criteria, frame.criteria_compacted)
    return FramePlanned(*words, frame.origin)


def _begin_events(
    frame: Frame, owned: Mapping[str, tuple[str, ...]], *, surely: bool = False
) -> Iterator[tuple[FrameEvent, int]]:
    """Events that enter a frame and record its work. A frame invalidated before it began is entered only if it
    `surely` did work."""
    at = frame.updated_at
    if frame.results and frame.status not in RETURN_STATUSES:
        yield FrameActivated(frame.id, "", "", ""), at
        yield (
            FramePopped(frame.id, Status.BLOCKED, frame.results, frame.results_compacted, tokens=frame.tokens),
            at,
        )
    given_up = frame.status is Status.INVALIDATED and frame.id not in owned and not surely
    if frame.status is Status.PLANNED or given_up:
        return
    words = (frame.id, frame.parent, frame.title, frame.criteria, frame.origin)
    yield FrameEntered(*words, owned.get(frame.id, ())), at


def _end_events(frame: Frame) -> Iterator[tuple[FrameEvent, int]]:
    at, left = frame.updated_at, (frame.artifacts, frame.decisions)
    yield from ((NoteKept(frame.id, note.kind, note.text), at) for note in frame.kept_notes)
    if frame.status in RETURN_STATUSES:
        words = (frame.results, frame.results_compacted)
        yield FramePopped(frame.id, frame.status, *words, "", (), frame.tokens, *left), at
        return
    yield from ((ArtifactAdded(frame.id, artifact), at) for artifact in left[0])
    yield from ((DecisionAdded(frame.id, decision), at) for decision in left[1])
    if frame.status is Status.INVALIDATED:
        yield FrameInvalidated(frame.id, frame.invalidation_reason), frame.invalidated_at or at
