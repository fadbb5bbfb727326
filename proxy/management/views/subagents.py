"""Conversations that another one began, as they are tracked: since when, how long, with a frame or without, at work or
over (S1-71e, S1-71g, S1-121).

The law: **everything is told from what is stored**, so a list is whole after a restart, and whatever memory forgot. Of
the running process it takes one thing, whether a request is under way.

How subagents are tracked, as people read and set it: the names of the tool, with what was set among them (S1-118).

What this module does not do: it decides nothing (`live_settings` does), and asks nobody who he is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, cast

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt
from typing_extensions import TypedDict

from proxy.config import MAX_COUNT, LiveSettings, SubagentSettings, subagent_rules_of, with_pattern, without_pattern
from proxy.core import safe_regex as rules
from proxy.core.frames import RETURN_STATUSES, Frame
from proxy.core.ledger import Ledger
from proxy.core.text import cut_for_display
from proxy.core.tools import (
    LISTED_TITLE_CHARACTERS,
    SubagentCounts,
    matches_filter,
    setting_values,
    subagents_of,
    was_ended_by_result,
)
from proxy.errors import BadRequest
from proxy.exchange import is_long_enough
from proxy.management.views.conversations import last_active
from proxy.management.views.lookup import (
    ConversationUnreadable,
    TenantScope,
    all_conversations,
    load_ledger,
    newest_path_state,
    root_of,
    translate_read_errors,
)
from proxy.store import Store

MAX_SUBAGENTS = 1_000
"""Tracked conversations that are looked at, the newest."""


class SubagentRow(TypedDict):
    """One of them. `frame` stands for it in the conversation `parent`; `skipped`: it is idle, nobody's call began it,
    and it was too short for a frame. `idle_in`: ms until it counts as idle, null where a request is under way or it
    is."""

    id: str
    parent: str
    title: str
    frame: str | None
    status: str
    created: int
    last_active: int
    messages: int
    has_frame: bool
    is_idle: bool
    idle_in: int | None
    is_completed: bool
    skipped: bool


class SubagentRates(TypedDict):
    """In percent, with one decimal: of those detected, and, for `completed`, of the frames."""

    framed: float
    skipped: float
    completed: float


class SubagentStats(TypedDict):
    """`auto_completed` frames were ended by the result of their call, or by silence; `manually_completed` by somebody.
    `last_reset`: from when on is counted, null for all that is stored. `active` are those at work."""

    detected: int
    frames_created: int
    skipped: int
    auto_completed: int
    manually_completed: int
    rates: SubagentRates
    last_reset: int | None
    active: list[SubagentRow]


@dataclass(frozen=True, slots=True)
class TrackingInput:
    """How it is looked: by these settings, at `now` (ms); `busy` tells whether a request of a conversation is under
    way."""

    settings: SubagentSettings
    now: int
    is_busy: Callable[[str, str], bool]


@dataclass(frozen=True, slots=True)
class TrackedSubagent:
    """One of them, with the frame that stands for it and whether its result ended that."""

    row: SubagentRow
    ended_by_result: bool


async def tracked_subagents(store: Store, scope: TenantScope, watching: TrackingInput) -> list[TrackedSubagent]:
    """Those that the newest of a tenant's conversations are, the newest activity first. One that cannot be read is
    passed over."""
    parents: dict[str, Ledger | None] = {}
    found: list[TrackedSubagent] = []
    async for known in all_conversations(store, scope):
        if not known.parent or len(found) >= MAX_SUBAGENTS:
            continue
        if known.parent not in parents:
            parents[known.parent] = await _load_if_readable(store, known.tenant, known.parent)
        with suppress(ConversationUnreadable):
            child = await load_ledger(store, known)
            if child is not None:
                found.append(_track(child, parents[known.parent], watching))
    return sorted(found, key=lambda each: each.row["last_active"], reverse=True)


async def _load_if_readable(store: Store, tenant: str, conversation: str) -> Ledger | None:
    """None also where it cannot be read: what it began is told of all the same."""
    with suppress(ConversationUnreadable), translate_read_errors(conversation):
        if (ledger := await store.load(tenant, conversation)) is not None:
            newest_path_state(ledger)
            return ledger
    return None


def _track(child: Ledger, parent: Ledger | None, watching: TrackingInput) -> TrackedSubagent:
    about, tree = child.conversation, newest_path_state(child).tree
    frame = _frame_of_subagent(parent, about.id)
    root, last = root_of(tree), last_active(child, _answer_times(child))
    busy = watching.is_busy(about.tenant, about.id)
    left = max(0, watching.settings.idle_delay - (watching.now - last))
    status = frame.status if frame else tree.root.status if root else None
    row: SubagentRow = {
        "id": about.id,
        "parent": about.parent,
        "title": cut_for_display(root.title if root else "", LISTED_TITLE_CHARACTERS),
        "frame": frame.id if frame else None,
        "status": str(status or ""),
        "created": about.created,
        "last_active": last,
        "messages": sum(not entry.is_overlay for entry in child.entries.values()),
        "has_frame": frame is not None,
        "is_idle": not busy and not left,
        "idle_in": left if left and not busy else None,
        "is_completed": status in RETURN_STATUSES,
        "skipped": frame is None and not busy and not left and not is_long_enough(child, watching.settings),
    }
    return TrackedSubagent(row, frame is not None and parent is not None and was_ended_by_result(parent, frame))


def _frame_of_subagent(parent: Ledger | None, conversation: str) -> Frame | None:
    """The frame that stands for a conversation, on the path of its parent that grew last."""
    frames = subagents_of(newest_path_state(parent).tree) if parent else []
    return next((frame for frame in frames if frame.conversation == conversation), None)


def _answer_times(ledger: Ledger) -> Iterable[int]:
    return (done.created for rounds in ledger.rounds.values() for done in rounds)


def filter_subagents(found: Iterable[TrackedSubagent], wanted: str) -> list[SubagentRow]:
    """The rows that a filter names, in their order."""
    rows = [each.row for each in found]
    return [row for row in rows if matches_filter(wanted, ended=row["is_completed"], framed=row["has_frame"])]


def subagent_stats(found: Iterable[TrackedSubagent], since: int | None, *, active: bool) -> SubagentStats:
    """Those begun at `since` (ms) or later, counted."""
    counted = [each for each in found if each.row["created"] >= (since or 0)]
    framed = [each for each in counted if each.row["has_frame"]]
    ended = [each for each in framed if each.row["is_completed"]]
    by_result = sum(each.ended_by_result for each in ended)
    skipped = sum(each.row["skipped"] for each in counted)
    counts = SubagentCounts(len(counted), len(framed), skipped, by_result, len(ended) - by_result)
    rates = counts.rates()
    return {
        "detected": counts.detected,
        "frames_created": counts.framed,
        "skipped": counts.skipped,
        "auto_completed": counts.by_result,
        "manually_completed": counts.by_hand,
        "rates": {"framed": rates["framed"], "skipped": rates["skipped"], "completed": rates["completed"]},
        "last_reset": since,
        "active": filter_subagents(counted, "active") if active else [],
    }


NonNegativeInt = Annotated[StrictInt, Field(ge=0, le=MAX_COUNT)]
TitlePattern = Annotated[str, Field(min_length=1, max_length=rules.MAX_PATTERN_CHARACTERS)]


class TrackingView(TypedDict):
    """Times are milliseconds. `changed` are the names of what was set while a proxy ran."""

    enabled: bool
    minDuration: int
    minMessageCount: int
    autoCompleteOnIdle: bool
    idleCompletionDelay: int
    injectParentContext: bool
    propagateSummaries: bool
    patterns: list[str]
    changed: list[str]


class TrackingBody(BaseModel):
    """What is to hold from now on, for everybody. What is left out stays as it is; null goes back to what the
    configuration says."""

    model_config = ConfigDict(extra="forbid")

    enabled: StrictBool | None = None
    min_duration: NonNegativeInt | None = Field(None, alias="minDuration")
    min_messages: NonNegativeInt | None = Field(None, alias="minMessageCount")
    auto_complete: StrictBool | None = Field(None, alias="autoCompleteOnIdle")
    idle_delay: Annotated[StrictInt, Field(ge=100, le=MAX_COUNT)] | None = Field(None, alias="idleCompletionDelay")
    parent_context: StrictBool | None = Field(None, alias="injectParentContext")
    patterns: Annotated[list[TitlePattern], Field(max_length=rules.MAX_PATTERNS)] | None = None
    add_pattern: TitlePattern | None = Field(None, alias="addPattern")
    remove_pattern: TitlePattern | None = Field(None, alias="removePattern")

    def changes_by_key(self, holds: tuple[str, ...]) -> dict[str, Any]:
        """What was said, by key; `holds` are the patterns now. Raises BadRequest."""
        said = self.model_dump(exclude_unset=True, exclude={"add_pattern", "remove_pattern"})
        if self.add_pattern is None and self.remove_pattern is None:
            return said
        if "patterns" in said:
            raise BadRequest("patterns says all of them; leave out addPattern and removePattern, or patterns.")
        if self.remove_pattern is not None:
            holds = without_pattern(holds, self.remove_pattern)
        if self.add_pattern is not None:
            holds = with_pattern(holds, self.add_pattern)
        return {**said, "patterns": holds}


API_NAMES = {key: field.alias or key for key, field in TrackingBody.model_fields.items()}
"""What each key of `subagent` is called here."""


def tracking_view(live: LiveSettings) -> TrackingView:
    """What holds, and which of it was set."""
    holds = {
        **setting_values(subagent_rules_of(live.subagent)),
        "changed": [API_NAMES[key] for key in live.overridden_keys],
    }
    return cast(TrackingView, holds)
