"""Decisions and artifacts of frames with the times for which they held, and the ledger as it was at an earlier time.

`valid_from` is when something became true in the work; `recorded_at` when the proxy saw it; `valid_to` when a later
decision of the frame replaced it or the frame was invalidated.
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
from proxy.core.observers import ToolRoles, iter_touched_files
from proxy.errors import BadRequest

NOTED = "noted"
CHANGED = "changed"


class HeldRow(TypedDict):
    """Something that held in a frame from `valid_from` to `valid_to`, and came with the entry `entry`."""

    frame: str
    title: str
    entry: str
    valid_from: int
    valid_to: int | None
    recorded_at: int


class DecisionRow(HeldRow):
    """A decision of a frame. `superseded_by`: the words of the decision that took its place."""

    decision: str
    superseded_by: str | None


class ArtifactRow(HeldRow):
    """What a frame made. `how`: "changed", a call of the client changed the file; or "noted", somebody said so."""

    artifact: str
    how: str


class _Origin(msgspec.Struct, frozen=True):
    """Where and when something was said or done: the entry, the time, and when the proxy saw it. Times in ms."""

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
    """Oldest first; `frame` selects one frame, `holding` what has not ended."""
    frames = path_state.tree.as_shown.frames
    decisions: dict[tuple[str, str], _Decision] = {}
    for event, decoded in _events_on_path(ledger, path_state):
        for decision in _decisions_in(path_state, event, decoded):
            decisions.setdefault((decision.frame, decision.text), decision)
        if isinstance(decoded, DecisionAdded) and (superseded := decisions.get((decoded.frame, decoded.supersedes))):
            decisions[superseded.frame, superseded.text] = replace(superseded, ended=event.created, by=decoded.decision)
    rows = [
        _decision_row(frames[decision.frame], decision)
        for decision in decisions.values()
        if frame in ("", decision.frame)
    ]
    return sorted((r for r in rows if not (holding and r["valid_to"])), key=lambda row: row["valid_from"])


def _decisions_in(path_state: PathState, event: LedgerEvent, decoded: FrameEvent) -> Iterator[_Decision]:
    if not isinstance(decoded, DecisionAdded | FramePopped | FrameSplit) or decoded.frame not in path_state.tree.frames:
        return
    at = _Origin(event.entry, event.created, event.created)
    if isinstance(decoded, DecisionAdded):
        yield _Decision(decoded.frame, decoded.decision, at)
        return
    for text in decoded.decisions:
        stated = _origin_in_answers(path_state, decoded.frame, text)
        yield _Decision(decoded.frame, text, replace(stated, recorded_at=event.created) if stated else at)


def _origin_in_answers(path_state: PathState, frame: str, text: str) -> _Origin | None:
    """The answer that states a decision; None if only the frame's results do."""
    for path_entry in entries_of_frame(path_state, frame):
        message = path_entry.message
        if message is not None and message.role == "assistant" and text in " ".join(message.text.split()):
            return _origin_of(path_entry)
    return None


def _decision_row(frame: Frame, decision: _Decision) -> DecisionRow:
    ends = [end for end in (decision.ended, frame.invalidated_at) if end]
    return {
        "frame": frame.id,
        "title": frame.title,
        "decision": decision.text,
        "entry": decision.origin.entry,
        "valid_from": decision.origin.valid_from,
        "valid_to": min(ends, default=None),
        "recorded_at": decision.origin.recorded_at,
        "superseded_by": decision.by,
    }


# ----------------------------------------------------------------------------------------------------------- artifacts
def artifact_rows(
    ledger: Ledger, path_state: PathState, names: ToolRoles, *, frame: str = "", holding: bool = False
) -> list[ArtifactRow]:
    """As `decision_rows`; a changed file belongs to the frame whose calls changed it."""
    noted = _noted_artifacts(ledger, path_state)
    rows: list[ArtifactRow] = []
    for owner in with_open_frame_artifacts(path_state, names).tree.as_shown.frames.values():
        changed = _changed_files(path_state, owner.id, names) if frame in ("", owner.id) else {}
        for artifact in owner.artifacts if frame in ("", owner.id) else ():
            how = CHANGED if artifact in changed else NOTED
            origin = changed.get(artifact) or noted.get((owner.id, artifact))
            if origin is not None:
                rows.append(_artifact_row(owner, artifact, how, origin))
    return sorted((r for r in rows if not (holding and r["valid_to"])), key=lambda row: row["valid_from"])


def _noted_artifacts(ledger: Ledger, path_state: PathState) -> Mapping[tuple[str, str], _Origin]:
    origins: dict[tuple[str, str], _Origin] = {}
    for event, decoded in _events_on_path(ledger, path_state):
        artifacts: Sequence[str] = ()
        if isinstance(decoded, ArtifactAdded):
            artifacts = (decoded.artifact,)
        elif isinstance(decoded, FramePopped | FrameSplit):
            artifacts = decoded.artifacts
        for artifact in artifacts:
            at = _Origin(event.entry, event.created, event.created)
            origins.setdefault((getattr(decoded, "frame", ""), artifact), at)
    return origins


def _changed_files(path_state: PathState, frame: str, names: ToolRoles) -> Mapping[str, _Origin]:
    origins: dict[str, _Origin] = {}
    for path_entry, touched in iter_touched_files(entries_of_frame(path_state, frame), names):
        if touched.how == CHANGED:
            origins.setdefault(touched.path, _origin_of(path_entry))
    return origins


def _artifact_row(frame: Frame, artifact: str, how: str, origin: _Origin) -> ArtifactRow:
    return {
        "frame": frame.id,
        "title": frame.title,
        "artifact": artifact,
        "how": how,
        "entry": origin.entry,
        "valid_from": origin.valid_from,
        "valid_to": frame.invalidated_at or None,
        "recorded_at": origin.recorded_at,
    }


# ---------------------------------------------------------------------------------------------------------------- path
def _events_on_path(ledger: Ledger, path_state: PathState) -> Iterator[tuple[LedgerEvent, FrameEvent]]:
    entries = dict.fromkeys(path_entry.entry.id for path_entry in path_state.entries)
    events = [event for entry in entries for event in ledger.events.get(entry, ())]
    for event in sorted(events, key=lambda record: record.seq):
        yield event, decode_event(event)


def _origin_of(path_entry: PathEntry) -> _Origin:
    at = (path_entry.round.created if path_entry.round else 0) or path_entry.entry.created
    return _Origin(path_entry.entry.id, at, at)


MAX_TIMESTAMP_MS = 2**53
"""The largest integer that every JSON reader can represent."""


def parse_timestamp(text: str) -> int | None:
    """ms since the epoch, from a number of ms or an ISO time (UTC without a zone). None for an empty text. Raises
    BadRequest."""
    stripped = text.strip()
    if not stripped:
        return None
    try:
        return _parse_milliseconds(stripped) if stripped.lstrip("-").isdigit() else _parse_iso_time(stripped)
    except (ValueError, OverflowError):
        raise BadRequest(
            "as_of: write ms since the epoch, or an ISO time as 2026-11-22T09:30:00Z (in a query, + is %2B).",
            code="bad_time",
        ) from None


def _parse_milliseconds(text: str) -> int:
    if len(text) > len(str(MAX_TIMESTAMP_MS)) or not 0 <= int(text) <= MAX_TIMESTAMP_MS:
        raise ValueError(text)
    return int(text)


def _parse_iso_time(text: str) -> int:
    parsed = datetime.fromisoformat(text)
    return int((parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp() * 1000)


def ledger_at(ledger: Ledger, at: int | None) -> Ledger:
    """The part of `ledger` that was known at `at` (ms since the epoch); all of it for None."""
    if at is None:
        return ledger
    past = Ledger(ledger.conversation)
    for entry in ledger.entries.values():
        if entry.created <= at:
            past.add_entry(entry)
    for round_ in _rounds(ledger):
        if round_.created <= at:
            past.add_round(round_)
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
