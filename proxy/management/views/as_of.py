"""What frames decided and what they made, each with the time from which it held and the time until it did (S2-26).

Two times stand beside each other: `valid_from` is when it became so in the work, which the order of messages tells, and
`recorded_at` when the proxy saw it. `valid_to` is when it stopped being so: a later decision of the same frame took its
place, or the frame was given up. The law: **what no longer holds is told, with its end**, and never dropped.

What this module does not do: it looks at one path; what was decided on branches that were left is theirs.

A conversation as it was: the ledger as far as it was known at a time.

The law: **nothing that came later is looked at**. State is what the events on a path make of it, so a ledger that is
cut off at a time tells everything as it stood then: the tree, the frames, whose the path was that had grown last. What
was said at a time is there from then on; a round of an answer, once it was whole.

What this module does not do: it changes nothing, and folds nothing itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

import msgspec
from msgspec.structs import replace
from typing_extensions import TypedDict

from proxy.core.context import entries_of_frame, with_open_frame_artifacts
from proxy.core.frames import (
    ArtifactAdded,
    DecisionAdded,
    Frame,
    FrameEvent,
    FramePopped,
    FrameSplit,
    PathEntry,
    PathState,
    decode_event,
)
from proxy.core.ledger import Ledger, LedgerEvent, Round
from proxy.core.observers import ToolRoles, iter_touched_files, message_of
from proxy.errors import BadRequest

NOTED = "noted"
CHANGED = "changed"


class DecisionRow(TypedDict):
    """A decision of a frame. It was said at the entry `entry`. `superseded_by`: the words of the decision that took
    its place."""

    frame: str
    title: str
    decision: str
    entry: str
    valid_from: int
    valid_to: int | None
    recorded_at: int
    superseded_by: str | None


class ArtifactRow(TypedDict):
    """What a frame made. `how`: `changed`, a call of the client changed the file; or `noted`, somebody said so."""

    frame: str
    title: str
    artifact: str
    how: str
    entry: str
    valid_from: int
    valid_to: int | None
    recorded_at: int


class _Origin(msgspec.Struct, frozen=True):
    """When something was said, or done: at which entry, when that was, and when the proxy saw it."""

    entry: str
    valid_from: int
    recorded_at: int


class _Decision(msgspec.Struct, frozen=True):
    frame: str
    text: str
    origin: _Origin
    ended: int | None = None
    by: str | None = None


# ----------------------------------------------------------------------------------------------------------- decisions
def decision_rows(
    ledger: Ledger, path_state: PathState, *, frame: str = "", holding: bool = False
) -> list[DecisionRow]:
    """The oldest first; with `frame` those of one, `holding` only what holds."""
    frames = path_state.tree.frames
    found: dict[tuple[str, str], _Decision] = {}
    for event, happened in _events_on_path(ledger, path_state):
        for made in _decisions_in(path_state, event, happened):
            found.setdefault((made.frame, made.text), made)
        if isinstance(happened, DecisionAdded) and (old := found.get((happened.frame, happened.supersedes))):
            found[old.frame, old.text] = replace(old, ended=event.created, by=happened.decision)
    rows = [_decision_row(frames[made.frame], made) for made in found.values() if frame in ("", made.frame)]
    return sorted((r for r in rows if not (holding and r["valid_to"])), key=lambda row: row["valid_from"])


def _decisions_in(path_state: PathState, event: LedgerEvent, happened: FrameEvent) -> Iterator[_Decision]:
    if (
        not isinstance(happened, DecisionAdded | FramePopped | FrameSplit)
        or happened.frame not in path_state.tree.frames
    ):
        return
    at = _Origin(event.entry, event.created, event.created)
    if isinstance(happened, DecisionAdded):
        yield _Decision(happened.frame, happened.decision, at)
        return
    for text in happened.decisions:
        first = _origin_in_answers(path_state, happened.frame, text)
        yield _Decision(happened.frame, text, replace(first, recorded_at=event.created) if first else at)


def _origin_in_answers(path_state: PathState, frame: str, text: str) -> _Origin | None:
    """Where the words of a decision that was seen in what was said stand; None where they are those of the results."""
    for path_entry in entries_of_frame(path_state, frame):
        message = message_of(path_entry)
        if message is not None and message.role == "assistant" and text in " ".join(message.text.split()):
            return _origin_of(path_entry)
    return None


def _decision_row(frame: Frame, made: _Decision) -> DecisionRow:
    ends = [end for end in (made.ended, frame.invalidated_at) if end]
    return {
        "frame": frame.id,
        "title": frame.title,
        "decision": made.text,
        "entry": made.origin.entry,
        "valid_from": made.origin.valid_from,
        "valid_to": min(ends, default=None),
        "recorded_at": made.origin.recorded_at,
        "superseded_by": made.by,
    }


# ----------------------------------------------------------------------------------------------------------- artifacts
def artifact_rows(
    ledger: Ledger, path_state: PathState, names: ToolRoles, *, frame: str = "", holding: bool = False
) -> list[ArtifactRow]:
    """The same of what frames made; files under the frame whose calls changed them."""
    noted = _noted_artifacts(ledger, path_state)
    rows: list[ArtifactRow] = []
    for made in with_open_frame_artifacts(path_state, names).tree.frames.values():
        changed = _changed_files(path_state, made.id, names) if frame in ("", made.id) else {}
        for artifact in made.artifacts if frame in ("", made.id) else ():
            how = CHANGED if artifact in changed else NOTED
            said = changed.get(artifact) or noted.get((made.id, artifact))
            if said is not None:
                rows.append(_artifact_row(made, artifact, how, said))
    return sorted((r for r in rows if not (holding and r["valid_to"])), key=lambda row: row["valid_from"])


def _noted_artifacts(ledger: Ledger, path_state: PathState) -> Mapping[tuple[str, str], _Origin]:
    found: dict[tuple[str, str], _Origin] = {}
    for event, happened in _events_on_path(ledger, path_state):
        told: Sequence[str] = ()
        if isinstance(happened, ArtifactAdded):
            told = (happened.artifact,)
        elif isinstance(happened, FramePopped | FrameSplit):
            told = happened.artifacts
        for artifact in told:
            at = _Origin(event.entry, event.created, event.created)
            found.setdefault((getattr(happened, "frame", ""), artifact), at)
    return found


def _changed_files(path_state: PathState, frame: str, names: ToolRoles) -> Mapping[str, _Origin]:
    """Each file with the call that changed it first."""
    found: dict[str, _Origin] = {}
    for path_entry, touched in iter_touched_files(entries_of_frame(path_state, frame), names):
        if touched.how == CHANGED:
            found.setdefault(touched.path, _origin_of(path_entry))
    return found


def _artifact_row(frame: Frame, artifact: str, how: str, said: _Origin) -> ArtifactRow:
    return {
        "frame": frame.id,
        "title": frame.title,
        "artifact": artifact,
        "how": how,
        "entry": said.entry,
        "valid_from": said.valid_from,
        "valid_to": frame.invalidated_at or None,
        "recorded_at": said.recorded_at,
    }


# ---------------------------------------------------------------------------------------------------------------- path
def _events_on_path(ledger: Ledger, path_state: PathState) -> Iterator[tuple[LedgerEvent, FrameEvent]]:
    """Every event on the path, in the order in which they happened."""
    entries = dict.fromkeys(path_entry.entry.id for path_entry in path_state.entries)
    events = [event for entry in entries for event in ledger.events.get(entry, ())]
    for event in sorted(events, key=lambda each: each.seq):
        yield event, decode_event(event)


def _origin_of(path_entry: PathEntry) -> _Origin:
    at = (path_entry.round.created if path_entry.round else 0) or path_entry.entry.created
    return _Origin(path_entry.entry.id, at, at)


MAX_TIMESTAMP_MS = 2**53
"""ms since the epoch: the largest number that every reader of JSON can say."""


def parse_timestamp(text: str) -> int | None:
    """ms since the epoch of `as_of`: a number of them, or an ISO time, in UTC where it names no zone. None where there
    is no text. Raises BadRequest."""
    told = text.strip()
    if not told:
        return None
    try:
        return _parse_milliseconds(told) if told.lstrip("-").isdigit() else _parse_iso_time(told)
    except (ValueError, OverflowError):
        raise BadRequest(
            "as_of: write ms since the epoch, or an ISO time as 2026-11-22T09:30:00Z (in a query, + is %2B).",
            code="bad_time",
        ) from None


def _parse_milliseconds(told: str) -> int:
    if len(told) > len(str(MAX_TIMESTAMP_MS)) or not 0 <= int(told) <= MAX_TIMESTAMP_MS:
        raise ValueError(told)
    return int(told)


def _parse_iso_time(told: str) -> int:
    found = datetime.fromisoformat(told)
    return int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)


def ledger_at(ledger: Ledger, at: int | None) -> Ledger:
    """What of `ledger` was known at `at` (ms since the epoch), in the order it came; all of it for None."""
    if at is None:
        return ledger
    past = Ledger(ledger.conversation)
    for entry in ledger.entries.values():
        if entry.created <= at:
            past.add_entry(entry)
    for done in _rounds(ledger):
        if done.created <= at:
            past.add_round(done)
    for event in _events(ledger):
        if event.created <= at:
            past.add_event(event)
    past.threads.update(ledger.threads)
    return past


def _rounds(ledger: Ledger) -> Iterator[Round]:
    for rounds in ledger.rounds.values():
        yield from rounds


def _events(ledger: Ledger) -> Iterator[LedgerEvent]:
    for events in ledger.events.values():
        yield from events
