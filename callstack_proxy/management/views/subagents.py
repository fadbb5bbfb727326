"""Lists and counts subagents' conversations, and shows and changes the tracking settings. Everything is computed from
the store, so lists survive a restart; only whether a request is in flight comes from the running process."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, cast

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt
from typing_extensions import TypedDict

from callstack_proxy.management.find_by_id import (
    ConversationUnreadable,
    all_conversations,
    load_ledger,
    newest_path_state,
    root_of,
    translate_read_errors,
)
from callstack_proxy.management.views.conversations import last_active
from proxy.config import MAX_COUNT, SubagentSettings
from proxy.config.runtime import LiveSettings, is_long_enough, subagent_rules_of
from proxy.core import safe_regex
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
from proxy.store import Store, TenantScope

MAX_SUBAGENTS = 1_000
"""The newest tracked conversations that are read."""


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
    """The settings, the time (ms), and whether a conversation (tenant, id) has a request in flight."""

    settings: SubagentSettings
    now: int
    is_busy: Callable[[str, str], bool]


@dataclass(frozen=True, slots=True)
class TrackedSubagent:
    """A row, and whether the result of its call ended its frame."""

    row: SubagentRow
    ended_by_result: bool


async def tracked_subagents(store: Store, scope: TenantScope, watching: TrackingInput) -> list[TrackedSubagent]:
    """Tracked conversations of a scope, most recently active first. Skips unreadable ones."""
    parents: dict[str, Ledger | None] = {}
    tracked: list[TrackedSubagent] = []
    async for conversation in all_conversations(store, scope):
        if not conversation.parent or len(tracked) >= MAX_SUBAGENTS:
            continue
        if conversation.parent not in parents:
            parents[conversation.parent] = await _load_if_readable(store, conversation.tenant, conversation.parent)
        with suppress(ConversationUnreadable):
            child = await load_ledger(store, conversation)
            if child is not None:
                tracked.append(_track(child, parents[conversation.parent], watching))
    return sorted(tracked, key=lambda subagent: subagent.row["last_active"], reverse=True)


async def _load_if_readable(store: Store, tenant: str, conversation: str) -> Ledger | None:
    """None also if unreadable: its subagents are listed all the same."""
    with suppress(ConversationUnreadable), translate_read_errors(conversation):
        if (ledger := await store.load(tenant, conversation)) is not None:
            newest_path_state(ledger)
            return ledger
    return None


def _track(child: Ledger, parent: Ledger | None, watching: TrackingInput) -> TrackedSubagent:
    conversation, tree = child.conversation, newest_path_state(child).tree
    frame = _frame_of_subagent(parent, conversation.id)
    answered = (done.created for rounds in child.rounds.values() for done in rounds)
    root, last_activity = root_of(tree), last_active(child, answered)
    is_busy = watching.is_busy(conversation.tenant, conversation.id)
    idle_in = max(0, watching.settings.idle_delay - (watching.now - last_activity))
    status = frame.status if frame else tree.root.status if root else None
    row: SubagentRow = {
        "id": conversation.id,
        "parent": conversation.parent,
        "title": cut_for_display(root.title if root else "", LISTED_TITLE_CHARACTERS),
        "frame": frame.id if frame else None,
        "status": str(status or ""),
        "created": conversation.created,
        "last_active": last_activity,
        "messages": sum(not entry.is_overlay for entry in child.entries.values()),
        "has_frame": frame is not None,
        "is_idle": not is_busy and not idle_in,
        "idle_in": idle_in if idle_in and not is_busy else None,
        "is_completed": status in RETURN_STATUSES,
        "skipped": frame is None and not is_busy and not idle_in and not is_long_enough(child, watching.settings),
    }
    return TrackedSubagent(row, frame is not None and parent is not None and was_ended_by_result(parent, frame))


def _frame_of_subagent(parent: Ledger | None, conversation: str) -> Frame | None:
    frames = subagents_of(newest_path_state(parent).tree) if parent else []
    return next((frame for frame in frames if frame.conversation == conversation), None)


def filter_subagents(found: Iterable[TrackedSubagent], wanted: str) -> list[SubagentRow]:
    rows = [subagent.row for subagent in found]
    return [row for row in rows if matches_filter(wanted, ended=row["is_completed"], framed=row["has_frame"])]


def subagent_stats(found: Iterable[TrackedSubagent], since: int | None, *, active: bool) -> SubagentStats:
    """Counts subagents created at `since` (ms) or later."""
    counted = [subagent for subagent in found if subagent.row["created"] >= (since or 0)]
    framed = [subagent for subagent in counted if subagent.row["has_frame"]]
    ended = [subagent for subagent in framed if subagent.row["is_completed"]]
    by_result = sum(subagent.ended_by_result for subagent in ended)
    skipped = sum(subagent.row["skipped"] for subagent in counted)
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
TitlePattern = Annotated[str, Field(min_length=1, max_length=safe_regex.MAX_PATTERN_CHARACTERS)]


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
    patterns: Annotated[list[TitlePattern], Field(max_length=safe_regex.MAX_PATTERNS)] | None = None
    add_pattern: TitlePattern | None = Field(None, alias="addPattern")
    remove_pattern: TitlePattern | None = Field(None, alias="removePattern")

    def changes_by_key(self, patterns: tuple[str, ...]) -> dict[str, Any]:
        """The changed settings by key; `patterns` are the current ones. Raises BadRequest."""
        changes = self.model_dump(exclude_unset=True, exclude={"add_pattern", "remove_pattern"})
        if self.add_pattern is None and self.remove_pattern is None:
            return changes
        if "patterns" in changes:
            raise BadRequest("patterns says all of them; leave out addPattern and removePattern, or patterns.")
        if self.remove_pattern is not None:
            patterns = _without_pattern(patterns, self.remove_pattern)
        if self.add_pattern is not None:
            patterns = tuple(dict.fromkeys((*patterns, self.add_pattern)))
        return {**changes, "patterns": patterns}


def _without_pattern(patterns: tuple[str, ...], pattern: str) -> tuple[str, ...]:
    """`patterns` without one of them. Raises BadRequest if it is not among them."""
    if pattern not in patterns:
        known = ", ".join(repr(each[:60]) for each in patterns) or "there is none"
        raise BadRequest(f"subagent.patterns: {pattern[:60]!r} is none of them; known: {known}")
    return tuple(each for each in patterns if each != pattern)


API_NAMES = {key: field.alias or key for key, field in TrackingBody.model_fields.items()}
"""API name of each key of `subagent`."""


def tracking_view(live: LiveSettings) -> TrackingView:
    settings = {
        **setting_values(subagent_rules_of(live.subagent)),
        "changed": [API_NAMES[key] for key in live.overridden_keys],
    }
    return cast(TrackingView, settings)
