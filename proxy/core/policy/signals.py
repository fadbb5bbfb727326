"""Figures about the work of the active frame, for the heuristics: errors, a new goal, files, length, passed checks,
turns without news.

`FrameActivity` accumulates what a path shows, so each request reads only the new messages. The same path gives the same
signals, read at once or message by message. An activity belongs to one frame and one assignment of messages to frames;
if another frame becomes active or older messages change owner, it is read anew.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from proxy.core.compaction import original_tokens
from proxy.core.context import owner_of
from proxy.core.frames import Frame, PathEntry, PathState
from proxy.core.ledger import Call, EntryKind, Message, OpenCalls
from proxy.core.observers import (
    CommandOutcome,
    FileAction,
    ItemStatus,
    PlanItemChanged,
    PlanReplaced,
    Step,
    ToolExecution,
    ToolRole,
    ToolRoles,
    call_failed,
    continues_turn,
    observe_commands,
    observe_files,
    observe_plan,
    topic_keywords,
)

RECENT_TURNS = 10  # assistant messages within which changed files count as recent
DEFAULT_CONTEXT_WINDOW = 100_000  # tokens; for a model whose window is unknown (S1-91)
MAX_USER_TEXT_LENGTH = 16_000  # characters of user text examined, client tags included
MAX_CLOSING_TEXT_LENGTH = 3_000  # characters examined at the end of the assistant's last text
ANSWERED_WITHOUT_CALL = "answered without a call"  # a sign of success that is no check
_PLAN_ROLES = frozenset({ToolRole.PLAN, ToolRole.ITEM_UPDATE, ToolRole.GOAL})
# These change files for certain; a command line does not, except by a patch in it.
_FILE_CHANGING_ROLES = frozenset(
    {ToolRole.WRITE, ToolRole.EDIT, ToolRole.DELETE, ToolRole.MOVE, ToolRole.EDITOR, ToolRole.PATCH, None}
)
_PATCH_MARK = "*** "


class FrameSignals(msgspec.Struct, frozen=True):
    """What the heuristics examine. `errors` are those since the last success; `goal` is a new goal that differs from
    the frame's, or empty. The keywords are those of the frame and of that goal. `files` were changed in
    the newest turns, `artifacts` anywhere in the frame. `goal_coverage` and `usage` are shares: of the frame's keywords
    mentioned last, and of the model's window."""

    errors: int = 0
    goal: str = ""
    frame_keywords: frozenset[str] = frozenset()
    goal_keywords: frozenset[str] = frozenset()
    messages: int = 0
    files: int = 0
    tokens: int = 0
    successes: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    artifacts: int = 0
    goal_coverage: float = 0.0
    idle_turns: int = 0
    usage: float = 0.0


@dataclass(slots=True)
class FrameActivity:
    """The messages of one frame, read up to position `entries_read` and entry `last_entry`. `failures_by_check` counts
    failures without a later success, by what was tried (kind of check, else tool); `successes_by_check` has the
    commands that passed. `idle_turns` counts consecutive turns without news: unchanged results and no changed file."""

    owner: str
    carried: Mapping[str, str]
    """Owners of handed-on messages at the time of reading."""
    entries_read: int = 0
    last_entry: str = ""
    messages: int = 0
    tokens: int = 0
    reported_tokens: int = 0
    """From the newest round of any frame."""
    pending_calls: OpenCalls[Call] = field(default_factory=OpenCalls)
    changed_files_by_turn: deque[set[str]] = field(default_factory=lambda: deque(maxlen=RECENT_TURNS))
    artifacts: set[str] = field(default_factory=set)
    failures_by_check: dict[str, int] = field(default_factory=dict)
    successes_by_check: dict[str, str] = field(default_factory=dict)
    seen_results: set[int] = field(default_factory=set)
    idle_turns: int = 0
    has_progressed: bool = False
    has_open_turn: bool = False
    has_worked: bool = False
    last_assistant_text: str = ""
    previous_user_text: str = ""
    user_text: str = ""
    current_plan_item: str = ""
    new_plan_item: str = ""

    frame_keywords: frozenset[str] | None = None
    coverage_cache: tuple[str, frozenset[str]] = ("", frozenset())
    """The last examined text and its keywords."""

    @property
    def has_all_results(self) -> bool:
        return not self.pending_calls

    def keywords_of(self, frame: Frame) -> frozenset[str]:
        """Keywords of the frame's title and criteria, which never change."""
        if self.frame_keywords is None:
            self.frame_keywords = topic_keywords(f"{frame.title}\n{frame.criteria}")
        return self.frame_keywords

    def coverage_of(self, keywords: frozenset[str], successes: Sequence[str]) -> float:
        """The share of `keywords` in the assistant's last text, its changes, or its signs of success; 0 without
        aims."""
        if not successes:
            return 0.0
        text = "\n".join((*successes, self.last_assistant_text, *sorted(self.artifacts)))
        if text != self.coverage_cache[0]:
            self.coverage_cache = (text, topic_keywords(text))
        return len(keywords & self.coverage_cache[1]) / len(keywords) if keywords else 0.0

    def add_message(self, path_entry: PathEntry, tool_roles: ToolRoles) -> None:
        message = path_entry.message
        if message is None or path_entry.entry.kind is EntryKind.OVERLAY:
            return
        self.messages += 1
        self.tokens += original_tokens(path_entry)
        if message.role == "assistant":
            self._add_assistant_message(message)
        elif message.answers:
            self._add_result(message, path_entry.entry.id, tool_roles)
        elif message.role == "user" and message.text.strip():
            added = message.text[: 2 * MAX_USER_TEXT_LENGTH]  # a picture is a text of megabytes
            self.user_text = f"{self.user_text}\n{added}".strip()[:MAX_USER_TEXT_LENGTH]

    def _add_assistant_message(self, message: Message) -> None:
        self._finish_turn()
        self.has_worked = True
        if self.user_text:
            self.previous_user_text, self.user_text = self.user_text, ""
        self.new_plan_item = ""
        self.pending_calls = OpenCalls()
        self.pending_calls.add((call.id, call) for call in message.calls if not call.is_stack_call)
        self.has_open_turn, self.has_progressed = bool(self.pending_calls), False
        self.changed_files_by_turn.append(set())
        if message.text.strip():
            self.last_assistant_text = message.text[-MAX_CLOSING_TEXT_LENGTH:]
        if message.calls:
            self.successes_by_check.pop(ANSWERED_WITHOUT_CALL, None)
        elif message.text.strip():
            self.successes_by_check[ANSWERED_WITHOUT_CALL] = ANSWERED_WITHOUT_CALL

    def _finish_turn(self) -> None:
        """Count the finished turn as idle, or reset the count."""
        if self.has_open_turn:
            self.idle_turns = 0 if self.has_progressed else self.idle_turns + 1
        self.has_open_turn = False

    def _add_result(self, message: Message, entry: str, tool_roles: ToolRoles) -> None:
        call = self.pending_calls.take(message.answers)
        if call is None:
            return
        execution = ToolExecution(call, message.text, entry, failed=message.failed)
        role = tool_roles.role_of(call.name)
        failed = self._record_outcome(execution, role, tool_roles)
        if not failed and (role in _FILE_CHANGING_ROLES or _PATCH_MARK in call.arguments):
            self._record_changed_files(execution, tool_roles)
        if role in _PLAN_ROLES:
            self._record_plan(execution, tool_roles)
        fingerprint = hash((call.name, call.arguments, message.text))
        self.has_progressed |= fingerprint not in self.seen_results
        self.seen_results.add(fingerprint)
        if not self.pending_calls:
            self._finish_turn()

    def _record_outcome(self, execution: ToolExecution, role: ToolRole | None, tool_roles: ToolRoles) -> bool:
        """Record whether the call, or each check it ran, succeeded. Returns whether the call as such failed."""
        runs = observe_commands(Step("", (execution,)), tool_roles) if role is ToolRole.SHELL else ()
        checks = [e for e in runs if e.kind and e.outcome is not CommandOutcome.UNKNOWN and not e.on_stash]
        for check in checks:
            self._record_check(check.kind, well=check.outcome is CommandOutcome.OK)
            if check.outcome is CommandOutcome.OK:
                self.successes_by_check[check.kind] = check.command
        failed = call_failed(execution)
        if not checks:
            self._record_check(execution.call.name, well=not failed)
        return failed

    def _record_check(self, name: str, *, well: bool) -> None:
        if well:
            self.failures_by_check.pop(name, None)
        else:
            self.failures_by_check[name] = self.failures_by_check.get(name, 0) + 1
            self.successes_by_check.pop(name, None)

    def _record_changed_files(self, execution: ToolExecution, tool_roles: ToolRoles) -> None:
        files = {
            file.path
            for file in observe_files(Step("", (execution,)), tool_roles)
            if file.is_certain and file.action is not FileAction.READ
        }
        if files:
            self.changed_files_by_turn[-1].update(files)
            self.artifacts |= files
            self.has_progressed = True

    def _record_plan(self, execution: ToolExecution, tool_roles: ToolRoles) -> None:
        """A plan item that begins while another one is in progress is a new goal."""
        for change in observe_plan(Step("", (execution,)), tool_roles):
            title = _item_in_progress(change)
            if title and title != self.current_plan_item:
                self.new_plan_item = title if self.current_plan_item else ""
                self.current_plan_item = title


def _item_in_progress(change: PlanReplaced | PlanItemChanged) -> str:
    if isinstance(change, PlanItemChanged):
        return change.title or "" if change.status is ItemStatus.IN_PROGRESS else ""
    return next((item.title for item in change.items if item.status is ItemStatus.IN_PROGRESS), "")


def read_activity(path_state: PathState, tool_roles: ToolRoles, activity: FrameActivity | None = None) -> FrameActivity:
    """The activity of the path's active frame. A matching `activity` is continued and changed in place."""
    owner = path_state.tree.active_frame.owner
    if activity is None or not _can_continue(path_state, owner, activity):
        activity = FrameActivity(owner, path_state.tree.carried_owners)
    for path_entry in path_state.entries[activity.entries_read :]:
        if path_entry.round and path_entry.round.spoken.usage:
            activity.reported_tokens = path_entry.round.spoken.usage.input + path_entry.round.spoken.usage.output
        if owner_of(path_state, path_entry) == owner:
            activity.add_message(path_entry, tool_roles)
    activity.entries_read = len(path_state.entries)
    activity.last_entry = path_state.entries[-1].path_id if path_state.entries else ""
    return activity


def _can_continue(path_state: PathState, owner: str, activity: FrameActivity) -> bool:
    if (
        activity.owner != owner
        or activity.carried != path_state.tree.carried_owners
        or activity.entries_read > len(path_state.entries)
    ):
        return False
    return not activity.entries_read or path_state.entries[activity.entries_read - 1].path_id == activity.last_entry


def signals_of(activity: FrameActivity, frame: Frame, window: int) -> FrameSignals:
    """The figures of a frame; `window` is the model's context window in tokens, 0 where unknown."""
    goal = _find_new_goal(activity, frame)
    keywords = activity.keywords_of(frame)
    successes = tuple(activity.successes_by_check.values())
    return FrameSignals(
        errors=sum(activity.failures_by_check.values()),
        goal=goal,
        frame_keywords=keywords,
        goal_keywords=topic_keywords(goal) if goal else frozenset(),
        messages=activity.messages,
        files=len(set().union(*activity.changed_files_by_turn)),
        tokens=activity.tokens,
        successes=successes,
        failures=tuple(what for what, times in activity.failures_by_check.items() for _ in range(times)),
        artifacts=len(activity.artifacts | set(frame.artifacts)),
        goal_coverage=activity.coverage_of(keywords, successes),
        idle_turns=activity.idle_turns,
        usage=activity.reported_tokens / (window or DEFAULT_CONTEXT_WINDOW),
    )


def _find_new_goal(activity: FrameActivity, frame: Frame) -> str:
    """The last user text where it starts something new, or the plan item that just began. What is said before any work
    is the frame's own goal, not a new one."""
    if not activity.user_text:
        return activity.new_plan_item
    previous_text = activity.previous_user_text or f"{frame.title}\n{frame.criteria}"
    return (
        activity.user_text
        if activity.has_worked and not continues_turn(previous_text, activity.last_assistant_text, activity.user_text)
        else ""
    )
