"""Reads the client's plan tools and reconciles the plan with the items known so far. One kind of tool states the whole
list each time; the other creates or updates one item per call, and returns the id of a new item in its result. The
client's list is taken as stated; a failed or unreadable call changes nothing. `reconcile_plan` says what changed, and
its caller changes the frames."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from proxy.core.observers.call_outcomes import call_failed
from proxy.core.observers.step import Step, ToolExecution, decode_json_or_text
from proxy.core.observers.tool_roles import ToolRole, ToolRoles, ToolSpec
from proxy.core.observers.turns import bare_task
from proxy.core.text import without_escaped_quotes

MAX_PLAN_ITEMS = 300  # of one list; a longer one is data
MAX_RENAME_CANDIDATES = 40  # items of one list that are compared word by word
MAX_TITLE_LENGTH = 300
MIN_TITLE_SIMILARITY = 0.5  # share of common words from which a changed title is the same item renamed
GOAL_KEY = "goal"  # a goal tool has one item


class ItemStatus(StrEnum):
    PLANNED = "planned"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    REMOVED = "removed"


OPEN_STATUSES = frozenset({ItemStatus.PLANNED, ItemStatus.IN_PROGRESS})
_STATUS_WORDS: Mapping[ItemStatus, str] = {
    ItemStatus.PLANNED: "planned pending todo open notstarted queued waiting blocked paused new",
    ItemStatus.IN_PROGRESS: "inprogress active doing started running current working",
    ItemStatus.COMPLETED: "completed complete done finished closed resolved",
    ItemStatus.REMOVED: "removed deleted cancelled canceled skipped dropped abandoned wontdo invalidated",
}
_STATUS_BY_WORD = {word: status for status, words in _STATUS_WORDS.items() for word in words.split()}


class PlanItem(msgspec.Struct, frozen=True):
    """An item as the client states it. `key` is the client's id if there is one, else the title."""

    key: str
    title: str
    status: ItemStatus


class PlanReplaced(msgspec.Struct, frozen=True):
    """The whole new list, in its order."""

    items: tuple[PlanItem, ...]
    entry: str = ""  # of the result


class PlanItemChanged(msgspec.Struct, frozen=True):
    """One item was created or updated. None means that the call leaves title or status unchanged."""

    key: str
    title: str | None
    status: ItemStatus | None
    created: bool
    entry: str = ""


PlanChange = PlanReplaced | PlanItemChanged


def observe_plan(step: Step, tool_roles: ToolRoles) -> tuple[PlanChange, ...]:
    """What the calls of a step change in the plan, in order."""
    return tuple(
        change for execution in step.executions if (change := _plan_change_of_call(execution, tool_roles)) is not None
    )


_SEPARATORS = re.compile(r"[\W_]+")
_PLAN_ROLES = frozenset({ToolRole.PLAN, ToolRole.ITEM_CREATE, ToolRole.ITEM_UPDATE, ToolRole.GOAL})


def _plan_change_of_call(execution: ToolExecution, tool_roles: ToolRoles) -> PlanChange | None:
    spec = tool_roles.spec_of(execution.call.name)
    if spec is None or spec.role not in _PLAN_ROLES or call_failed(execution):
        return None
    arguments = decode_json_or_text(execution.call.arguments)
    if not isinstance(arguments, dict):
        return None
    if spec.role is ToolRole.PLAN:
        return _parse_list(arguments, spec, execution)
    if spec.role is ToolRole.ITEM_CREATE:
        return _parse_creation(arguments, spec, execution)
    if spec.role is ToolRole.ITEM_UPDATE:
        return _parse_update(arguments, spec, execution)
    return _parse_goal(arguments, spec, execution)


_CHECKLIST_LINE = re.compile(r"^[ \t]{0,40}(?:[-*+]|\d{1,4}[.)])?[ \t]{0,9}\[(.)\][ \t]{0,9}(\S.*)$", re.MULTILINE)
_STATUS_BY_MARK = {
    " ": ItemStatus.PLANNED,
    "x": ItemStatus.COMPLETED,
    "✓": ItemStatus.COMPLETED,
    "✔": ItemStatus.COMPLETED,
}
_IN_PROGRESS_MARKS = frozenset("-~>/.*o")
_READ_ONLY_ACTIONS = frozenset({"view", "list", "get", "read"})


def _parse_list(arguments: Mapping[str, object], spec: ToolSpec, execution: ToolExecution) -> PlanReplaced | None:
    """None where the call only reads, or no part of it is a list."""
    actions = (arguments.get(name) for name in ("command", "action"))
    if any(isinstance(word, str) and word in _READ_ONLY_ACTIONS for word in actions):
        return None
    stated = next((arguments[name] for name in spec.arguments if name in arguments), None)
    if isinstance(stated, str):
        stated = _parse_list_text(stated)
    if not isinstance(stated, list):
        return None
    items = tuple(item for part in stated[:MAX_PLAN_ITEMS] if (item := _parse_item(part)) is not None)
    return PlanReplaced(items, execution.entry) if items or not stated else None


def _parse_list_text(text: str) -> object:
    """A list sent as text: JSON, or a checklist."""
    value = decode_json_or_text(text)
    if isinstance(value, list):
        return value
    return [
        {"content": title, "status": _status_of_mark(mark)} for mark, title in _CHECKLIST_LINE.findall(text)
    ] or None


def _status_of_mark(mark: str) -> ItemStatus:
    return (
        ItemStatus.IN_PROGRESS
        if mark in _IN_PROGRESS_MARKS
        else _STATUS_BY_MARK.get(mark.casefold(), ItemStatus.COMPLETED)
    )


_ITEM_TITLES = ("content", "step", "title", "subject", "description", "task", "text", "name")
_ITEM_IDS = ("id", "taskId", "task_id")


def _parse_item(part: object) -> PlanItem | None:
    """None without a title; an unknown status counts as planned."""
    if isinstance(part, str):
        part = {"content": part}
    if not isinstance(part, dict):
        return None
    title = _first_text(part, _ITEM_TITLES)
    if not title:
        return None
    status = _parse_status(part.get("status", part.get("state")))
    if status is None:
        is_done = any(part.get(key) is True for key in ("completed", "done", "checked"))
        status = ItemStatus.COMPLETED if is_done else ItemStatus.PLANNED
    return PlanItem(_id_in(part, _ITEM_IDS) or title, title, status)


def _first_text(fields: Mapping[str, object], names: Iterable[str]) -> str:
    """On one line and within bounds; empty without any."""
    texts = (
        without_escaped_quotes(" ".join(value.split())) for name in names if isinstance(value := fields.get(name), str)
    )
    return next((text[:MAX_TITLE_LENGTH] for text in texts if text), "")


def _id_in(fields: Mapping[str, object], names: Iterable[str]) -> str:
    for name in names:
        value = fields.get(name)
        if isinstance(value, str | int) and not isinstance(value, bool) and (text := str(value).strip()):
            return text.removeprefix("#")[:MAX_TITLE_LENGTH]
    return ""


def _parse_status(value: object) -> ItemStatus | None:
    if not isinstance(value, str):
        return None
    return _STATUS_BY_WORD.get(_SEPARATORS.sub("", value.casefold()))


_ITEM_ID_IN_TEXT = re.compile(r"(?:#|\b(?:task|item|id)\s*[:=#]?\s*)([\w-]*\d[\w-]*)", re.IGNORECASE)
_RESULT_HEAD = 400


def _parse_creation(
    arguments: Mapping[str, object], spec: ToolSpec, execution: ToolExecution
) -> PlanItemChanged | None:
    title = _first_text(arguments, spec.arguments)
    if not title:
        return None
    key = _id_in(arguments, _ITEM_IDS) or _id_in_result(execution.result) or title
    return PlanItemChanged(
        key, title, _parse_status(arguments.get("status")) or ItemStatus.PLANNED, created=True, entry=execution.entry
    )


def _id_in_result(result: str) -> str:
    """The id that the client gave to a new item, from its answer."""
    value = decode_json_or_text(result) if result[:1] == "{" else None
    if isinstance(value, dict):
        inner = value.get("task")
        return _id_in(value, _ITEM_IDS) or (_id_in(inner, _ITEM_IDS) if isinstance(inner, dict) else "")
    match = _ITEM_ID_IN_TEXT.search(result[:_RESULT_HEAD])
    return match[1] if match else ""


def _parse_update(arguments: Mapping[str, object], spec: ToolSpec, execution: ToolExecution) -> PlanItemChanged | None:
    key = _id_in(arguments, spec.arguments)
    title = _first_text(arguments, ("subject", "title", "content")) or None
    status = _parse_status(arguments.get("status"))
    return (
        PlanItemChanged(key, title, status, created=False, entry=execution.entry) if key and (title or status) else None
    )


def _parse_goal(arguments: Mapping[str, object], spec: ToolSpec, execution: ToolExecution) -> PlanItemChanged | None:
    title = _first_text(arguments, spec.arguments)
    status = _parse_status(arguments.get("status"))
    if title:
        return PlanItemChanged(GOAL_KEY, title, status or ItemStatus.IN_PROGRESS, created=True, entry=execution.entry)
    return PlanItemChanged(GOAL_KEY, None, status, created=False, entry=execution.entry) if status else None


class MirroredItem(msgspec.Struct, frozen=True):
    """A known plan item and its frame. `frame` is empty for an item that `reconcile_plan` just found."""

    frame: str
    key: str
    title: str
    status: ItemStatus


class PlanDiff(msgspec.Struct, frozen=True):
    """What happens to which item. The lists are to be applied in this order, so that new items exist before they are
    entered; each is in plan order. A new item is in `planned` without a frame and with its initial status, and as an
    equal value in `entered` or `completed` where that applies; no two new items are equal."""

    planned: tuple[MirroredItem, ...] = ()
    renamed: tuple[tuple[MirroredItem, str], ...] = ()  # with the new title
    entered: tuple[MirroredItem, ...] = ()  # newly in progress; several at once are all listed
    paused: tuple[MirroredItem, ...] = ()  # in progress before, only planned now
    completed: tuple[MirroredItem, ...] = ()  # also those never in progress
    removed: tuple[MirroredItem, ...] = ()


def reconcile_plan(known: Sequence[MirroredItem], change: PlanChange) -> PlanDiff:
    """The difference that `change` makes to the `known` items, which are in plan order. A final item stays final: seen
    again as open, it is planned anew. Items that the new list lacks are removed."""
    if isinstance(change, PlanReplaced):
        return _diff_list(known, change.items[:MAX_PLAN_ITEMS])
    return _diff_item(known, change)


def without_task_itself(change: PlanChange, task: Container[str]) -> PlanChange:
    """The change without an item in the words of the `task` that the plan is for (`bare_task`): it is the task."""
    if isinstance(change, PlanReplaced):
        return replace(change, items=tuple(item for item in change.items if bare_task(item.title) not in task))
    return replace(change, title=None) if change.created and bare_task(change.title or "") in task else change


def _diff_list(known: Sequence[MirroredItem], items: Sequence[PlanItem]) -> PlanDiff:
    pairs = _match_items(known, items)
    matched = set(pairs.values())
    dropped = [was for index, was in enumerate(known) if index not in matched and was.status in OPEN_STATUSES]
    used_keys = {was.key for was in known if was.status in OPEN_STATUSES}
    transitions = []
    for index, item in enumerate(items):
        if index in pairs:
            transitions.append((known[pairs[index]], item))
        elif item.status is not ItemStatus.REMOVED:
            transitions.append((_new_item(item, used_keys), item))
    return _build_diff(transitions, dropped)


def _new_item(item: PlanItem, used_keys: set[str]) -> MirroredItem:
    """A new item under an unused key, which is added to `used_keys`."""
    key, number = item.key, 1
    while key in used_keys:
        number += 1
        key = f"{item.key} ({number})"
    used_keys.add(key)
    return MirroredItem("", key, item.title, item.status)


def _build_diff(transitions: Sequence[tuple[MirroredItem, PlanItem]], removed: Sequence[MirroredItem]) -> PlanDiff:
    """`transitions` pairs each item as it was (new ones: as they came) with its new state."""

    def items_turned(status: ItemStatus) -> Iterator[MirroredItem]:
        return (was for was, now in transitions if now.status is status and (not was.frame or was.status is not status))

    return PlanDiff(
        planned=tuple(was for was, _ in transitions if not was.frame),
        renamed=tuple((was, now.title) for was, now in transitions if was.frame and was.title != now.title),
        entered=tuple(items_turned(ItemStatus.IN_PROGRESS)),
        paused=tuple(was for was in items_turned(ItemStatus.PLANNED) if was.frame),
        completed=tuple(items_turned(ItemStatus.COMPLETED)),
        removed=(*items_turned(ItemStatus.REMOVED), *removed),
    )


def _diff_item(known: Sequence[MirroredItem], change: PlanItemChanged) -> PlanDiff:
    was = _find_target(known, change)
    if was is None or (was.status not in OPEN_STATUSES and change.status in OPEN_STATUSES):
        title = change.title or (was.title if was else "")
        if not title or change.status is ItemStatus.REMOVED:
            return PlanDiff()
        new = MirroredItem("", change.key, title, change.status or ItemStatus.PLANNED)
        return _build_diff([(new, PlanItem(new.key, title, new.status))], ())
    if was.status not in OPEN_STATUSES:
        return PlanDiff()
    return _build_diff([(was, PlanItem(was.key, change.title or was.title, change.status or was.status))], ())


def _find_target(known: Sequence[MirroredItem], change: PlanItemChanged) -> MirroredItem | None:
    """The item that a change is about: by id, open ones before final, newest first. Creating an item gives a new one
    unless an open one has that id."""
    matching = [was for was in reversed(known) if was.key == change.key]
    open_items = [was for was in matching if was.status in OPEN_STATUSES]
    return next(iter(open_items if change.created else (*open_items, *matching)), None)


def _match_items(known: Sequence[MirroredItem], items: Sequence[PlanItem]) -> dict[int, int]:
    """Index in the new list -> index among the known items, each used once. Items match by title and id, then by title,
    preferring equal status. The rest match as renamed where the id is equal, or else the status, and the titles are
    similar."""
    pairs: dict[int, int] = {}
    free = dict.fromkeys(range(len(known)))
    positions = _positions_by_title(known)
    for with_key in (True, False):
        for index, item in enumerate(items):
            if index in pairs:
                continue
            candidates = [
                k
                for k in positions.get(_normalize_title(item.title), ())
                if k in free
                and known[k].status in (*OPEN_STATUSES, item.status)
                and (known[k].key == item.key or not with_key)
            ]
            if candidates:
                pairs[index] = best = min(candidates, key=lambda k: (known[k].status is not item.status, k))
                del free[best]
                positions[_normalize_title(item.title)].remove(best)
    return pairs | _match_renamed(known, items, [k for k in free if known[k].status in OPEN_STATUSES], pairs)


def _positions_by_title(known: Sequence[MirroredItem]) -> dict[str, list[int]]:
    positions: dict[str, list[int]] = {}
    for k, was in enumerate(known):
        positions.setdefault(_normalize_title(was.title), []).append(k)
    return positions


def _match_renamed(
    known: Sequence[MirroredItem], items: Sequence[PlanItem], free: Sequence[int], paired: Mapping[int, int]
) -> dict[int, int]:
    pairs: dict[int, int] = {}
    words_by_index = {k: _title_words(known[k].title) for k in free[:MAX_RENAME_CANDIDATES]}
    for index in [index for index in range(len(items)) if index not in paired][:MAX_RENAME_CANDIDATES]:
        item = items[index]
        words = _title_words(item.title)
        for k, known_words in words_by_index.items():
            own_id = known[k].key == item.key != item.title
            # One in progress keeps its first name, so it must be recognised again when it is done.
            is_done_now = (known[k].status, item.status) == (ItemStatus.IN_PROGRESS, ItemStatus.COMPLETED)
            fits = own_id or is_done_now or known[k].status is item.status
            if fits and _are_similar_titles(words, known_words):
                pairs[index] = k
                del words_by_index[k]
                break
    return pairs


def _normalize_title(title: str) -> str:
    return " ".join(title.split()).casefold()


_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W_]+")


def _title_words(title: str) -> frozenset[str]:
    """In scripts without spaces every letter counts as a word."""
    return frozenset(_WORD.findall(title.casefold()))


def _are_similar_titles(first: frozenset[str], second: frozenset[str]) -> bool:
    """Half of all words are shared, or the shorter title is part of the longer."""
    common = len(first & second)
    return common >= MIN_TITLE_SIMILARITY * len(first | second) or (
        common > 1 and common == min(len(first), len(second))
    )
