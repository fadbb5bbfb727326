"""The client's plan: what its plan tools say, and what that means for the items mirrored so far (S1-76).

Two forms are known. A tool of the one kind states the whole list each time; a tool of the other creates or changes one
item a call, and the client's own id of a new item stands in the result. The law: **the client's list is mirrored, never
judged**: what a call said is taken as it stands, and a call that failed, or that nobody can read, changes nothing.

What this module does not do: it makes no frames. `reconciled` says what is to happen to which item; whether a frame
is opened, kept waiting or left out is for its caller.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum

import msgspec

from proxy.core.observers.call_outcomes import failed
from proxy.core.observers.step import Done, Step, decoded
from proxy.core.observers.tool_roles import Known, Names, Role

MOST_ITEMS = 300
"""Items of one list that are looked at; who plans more has made a list of data."""
MOST_RENAMED = 40
"""Items of one list that are compared word by word with those they may have been."""
LONGEST_TITLE = 300
"""Characters of a title."""
SIMILAR = 0.5
"""Share of common words from which a changed title is the same item under a new name."""
GOAL_KEY = "goal"
"""The id of what a goal tool sets: there is one."""


class ItemStatus(StrEnum):
    """Where an item of a plan stands."""

    PLANNED = "planned"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    REMOVED = "removed"


LIVE = frozenset({ItemStatus.PLANNED, ItemStatus.IN_PROGRESS})
_WORDS_FOR: Mapping[ItemStatus, str] = {
    ItemStatus.PLANNED: "planned pending todo open notstarted queued waiting blocked paused new",
    ItemStatus.IN_PROGRESS: "inprogress active doing started running current working",
    ItemStatus.COMPLETED: "completed complete done finished closed resolved",
    ItemStatus.REMOVED: "removed deleted cancelled canceled skipped dropped abandoned wontdo invalidated",
}
_STATUS = {word: status for status, words in _WORDS_FOR.items() for word in words.split()}


class Item(msgspec.Struct, frozen=True):
    """One item as the client says it. `key` is the client's id when it gives one, else the title."""

    key: str
    title: str
    status: ItemStatus


class Listed(msgspec.Struct, frozen=True):
    """The whole list as it is from now on, in its order."""

    items: tuple[Item, ...]
    entry: str = ""
    """Id of the result's entry."""


class Changed(msgspec.Struct, frozen=True):
    """One item was created or updated. Title and status are None where the call leaves them as they are."""

    key: str
    title: str | None
    status: ItemStatus | None
    created: bool
    entry: str = ""


PlanSeen = Listed | Changed


def plan_seen(step: Step, names: Names) -> tuple[PlanSeen, ...]:
    """What the calls of a step say of the plan, in their order."""
    return tuple(seen for done in step.done if (seen := _seen(done, names)) is not None)


_JOINTS = re.compile(r"[\W_]+")
_READERS = frozenset({Role.PLAN, Role.ITEM_CREATE, Role.ITEM_UPDATE, Role.GOAL})


def _seen(done: Done, names: Names) -> PlanSeen | None:
    known = names.known(done.call.name)
    if known is None or known.role not in _READERS or failed(done):
        return None
    arguments = decoded(done.call.arguments)
    if not isinstance(arguments, dict):
        return None
    if known.role is Role.PLAN:
        return _listed(arguments, known, done)
    if known.role is Role.ITEM_CREATE:
        return _created(arguments, known, done)
    if known.role is Role.ITEM_UPDATE:
        return _updated(arguments, known, done)
    return _goal(arguments, known, done)


# ---------------------------------------------------------------------------------------------------------- whole lists
_CHECK = re.compile(r"^[ \t]{0,40}(?:[-*+]|\d{1,4}[.)])?[ \t]{0,9}\[(.)\][ \t]{0,9}(\S.*)$", re.MULTILINE)
_CHECKED = {" ": ItemStatus.PLANNED, "x": ItemStatus.COMPLETED, "✓": ItemStatus.COMPLETED, "✔": ItemStatus.COMPLETED}
_UNDER_WAY = frozenset("-~>/.*o")
_LOOKING = frozenset({"view", "list", "get", "read"})


def _listed(arguments: Mapping[str, object], known: Known, done: Done) -> Listed | None:
    """None where the call only looks, or where no part of it can be read as a list."""
    asked = (arguments.get(name) for name in ("command", "action"))
    if any(isinstance(word, str) and word in _LOOKING for word in asked):
        return None
    stated = next((arguments[name] for name in known.arguments if name in arguments), None)
    if isinstance(stated, str):
        stated = _read_again(stated)
    if not isinstance(stated, list):
        return None
    items = tuple(item for part in stated[:MOST_ITEMS] if (item := _item(part)) is not None)
    return Listed(items, done.entry) if items or not stated else None


def _read_again(text: str) -> object:
    """A list that was sent as text: JSON, or a checklist."""
    value = decoded(text)
    if isinstance(value, list):
        return value
    return [{"content": title, "status": _box(mark)} for mark, title in _CHECK.findall(text)] or None


def _box(mark: str) -> ItemStatus:
    return ItemStatus.IN_PROGRESS if mark in _UNDER_WAY else _CHECKED.get(mark.casefold(), ItemStatus.COMPLETED)


_ITEM_TITLES = ("content", "step", "title", "subject", "description", "task", "text", "name")
_ITEM_IDS = ("id", "taskId", "task_id")


def _item(part: object) -> Item | None:
    """None for what has no title; a status nobody knows is a plan still."""
    if isinstance(part, str):
        part = {"content": part}
    if not isinstance(part, dict):
        return None
    title = _first_text(part, _ITEM_TITLES)
    if not title:
        return None
    status = _status(part.get("status", part.get("state")))
    if status is None:
        done = any(part.get(key) is True for key in ("completed", "done", "checked"))
        status = ItemStatus.COMPLETED if done else ItemStatus.PLANNED
    return Item(_id_in(part, _ITEM_IDS) or title, title, status)


def _first_text(fields: Mapping[str, object], names: Iterable[str]) -> str:
    """On one line and within bounds; empty where there is none."""
    texts = (" ".join(value.split()) for name in names if isinstance(value := fields.get(name), str))
    return next((text[:LONGEST_TITLE] for text in texts if text), "")


def _id_in(fields: Mapping[str, object], names: Iterable[str]) -> str:
    for name in names:
        value = fields.get(name)
        if isinstance(value, str | int) and not isinstance(value, bool) and (text := str(value).strip()):
            return text.removeprefix("#")[:LONGEST_TITLE]
    return ""


def _status(value: object) -> ItemStatus | None:
    if not isinstance(value, str):
        return None
    return _STATUS.get(_JOINTS.sub("", value.casefold()))


# ------------------------------------------------------------------------------------------------------------- one item
_NUMBERED = re.compile(r"(?:#|\b(?:task|item|id)\s*[:=#]?\s*)([\w-]*\d[\w-]*)", re.IGNORECASE)
_RESULT_HEAD = 400


def _created(arguments: Mapping[str, object], known: Known, done: Done) -> Changed | None:
    title = _first_text(arguments, known.arguments)
    if not title:
        return None
    key = _id_in(arguments, _ITEM_IDS) or _id_given(done.result) or title
    return Changed(key, title, _status(arguments.get("status")) or ItemStatus.PLANNED, created=True, entry=done.entry)


def _id_given(result: str) -> str:
    """The id a client gave to a new item, from what it answered."""
    value = decoded(result) if result[:1] == "{" else None
    if isinstance(value, dict):
        inner = value.get("task")
        return _id_in(value, _ITEM_IDS) or (_id_in(inner, _ITEM_IDS) if isinstance(inner, dict) else "")
    found = _NUMBERED.search(result[:_RESULT_HEAD])
    return found[1] if found else ""


def _updated(arguments: Mapping[str, object], known: Known, done: Done) -> Changed | None:
    key = _id_in(arguments, known.arguments)
    title = _first_text(arguments, ("subject", "title", "content")) or None
    status = _status(arguments.get("status"))
    return Changed(key, title, status, created=False, entry=done.entry) if key and (title or status) else None


def _goal(arguments: Mapping[str, object], known: Known, done: Done) -> Changed | None:
    title = _first_text(arguments, known.arguments)
    status = _status(arguments.get("status"))
    if title:
        return Changed(GOAL_KEY, title, status or ItemStatus.IN_PROGRESS, created=True, entry=done.entry)
    return Changed(GOAL_KEY, None, status, created=False, entry=done.entry) if status else None


# ----------------------------------------------------------------------------------------------------------- mirroring
class Mirrored(msgspec.Struct, frozen=True):
    """An item as it was mirrored last. `frame` is empty for one that `reconciled` has just found."""

    frame: str
    key: str
    title: str
    status: ItemStatus


class Changes(msgspec.Struct, frozen=True):
    """What is to happen to which item. Each list is in the plan's order; they are to be worked off in this order of
    lists, so that what is new exists before it is entered. New items stand in `planned` with no frame and the status
    they came with, and again, as the same value, in `entered` or `completed` where that applies; no two new items are
    equal. Known items are given as they were."""

    planned: tuple[Mirrored, ...] = ()
    renamed: tuple[tuple[Mirrored, str], ...] = ()
    """With the new title."""
    entered: tuple[Mirrored, ...] = ()
    """In progress now and not before; several at once are all here."""
    paused: tuple[Mirrored, ...] = ()
    """In progress before, only planned now."""
    completed: tuple[Mirrored, ...] = ()
    """Those that never were in progress too."""
    removed: tuple[Mirrored, ...] = ()


def reconciled(known: Sequence[Mirrored], seen: PlanSeen) -> Changes:
    """What `seen` changes of the items mirrored so far, which are given in the order they were planned in.

    An item that is final stays so: seen live again, it is planned anew. What the list no longer names is removed.
    """
    if isinstance(seen, Listed):
        return _of_list(known, seen.items[:MOST_ITEMS])
    return _of_one(known, seen)


def _of_list(known: Sequence[Mirrored], items: Sequence[Item]) -> Changes:
    pairs = _paired(known, items)
    found = set(pairs.values())
    left = [was for at, was in enumerate(known) if at not in found and was.status in LIVE]
    taken = {was.key for was in known if was.status in LIVE}
    moved = []
    for at, item in enumerate(items):
        if at in pairs:
            moved.append((known[pairs[at]], item))
        elif item.status is not ItemStatus.REMOVED:
            moved.append((_new(item, taken), item))
    return _changes(moved, left)


def _new(item: Item, taken: set[str]) -> Mirrored:
    """A new item under a key that no other live one has; `taken` grows by it."""
    key, number = item.key, 1
    while key in taken:
        number += 1
        key = f"{item.key} ({number})"
    taken.add(key)
    return Mirrored("", key, item.title, item.status)


def _changes(moved: Sequence[tuple[Mirrored, Item]], gone: Sequence[Mirrored]) -> Changes:
    """`moved`: each item of the plan as it was (new ones: as they came) and as it is."""

    def those(status: ItemStatus) -> Iterator[Mirrored]:
        return (was for was, now in moved if now.status is status and (not was.frame or was.status is not status))

    return Changes(
        planned=tuple(was for was, _ in moved if not was.frame),
        renamed=tuple((was, now.title) for was, now in moved if was.frame and was.title != now.title),
        entered=tuple(those(ItemStatus.IN_PROGRESS)),
        paused=tuple(was for was in those(ItemStatus.PLANNED) if was.frame),
        completed=tuple(those(ItemStatus.COMPLETED)),
        removed=(*those(ItemStatus.REMOVED), *gone),
    )


def _of_one(known: Sequence[Mirrored], seen: Changed) -> Changes:
    was = _meant(known, seen)
    if was is None or (was.status not in LIVE and seen.status in LIVE):
        title = seen.title or (was.title if was else "")
        if not title or seen.status is ItemStatus.REMOVED:
            return Changes()
        new = Mirrored("", seen.key, title, seen.status or ItemStatus.PLANNED)
        return _changes([(new, Item(new.key, title, new.status))], ())
    if was.status not in LIVE:
        return Changes()
    return _changes([(was, Item(was.key, seen.title or was.title, seen.status or was.status))], ())


def _meant(known: Sequence[Mirrored], seen: Changed) -> Mirrored | None:
    """The item a change is about: by its id, live before final, newest first. A created item is a new one, but for one
    that is live under the same id."""
    under = [was for was in reversed(known) if was.key == seen.key]
    live = [was for was in under if was.status in LIVE]
    return next(iter(live if seen.created else (*live, *under)), None)


# ----------------------------------------------------------------------------------------------------- who is who again
def _paired(known: Sequence[Mirrored], items: Sequence[Item]) -> dict[int, int]:
    """Position in the list -> position among the known ones, each used once.

    First by title and id, then by title, both preferring the same status; what is left over on both sides is the same
    item under a new name where its id, or else its status, is the same and its words are similar.
    """
    pairs: dict[int, int] = {}
    free = dict.fromkeys(range(len(known)))
    same = _by_title(known)
    for with_key in (True, False):
        for at, item in enumerate(items):
            if at in pairs:
                continue
            fitting = [
                k
                for k in same.get(_folded(item.title), ())
                if k in free
                and _may_become(known[k].status, item.status)
                and (known[k].key == item.key or not with_key)
            ]
            if fitting:
                pairs[at] = found = min(fitting, key=lambda k: (known[k].status is not item.status, k))
                del free[found]
                same[_folded(item.title)].remove(found)
    return pairs | _renamed(known, items, [k for k in free if known[k].status in LIVE], pairs)


def _by_title(known: Sequence[Mirrored]) -> dict[str, list[int]]:
    same: dict[str, list[int]] = {}
    for k, was in enumerate(known):
        same.setdefault(_folded(was.title), []).append(k)
    return same


def _renamed(
    known: Sequence[Mirrored], items: Sequence[Item], free: Sequence[int], paired: Mapping[int, int]
) -> dict[int, int]:
    pairs: dict[int, int] = {}
    words = {k: _words(known[k].title) for k in free[:MOST_RENAMED]}
    for at in [at for at in range(len(items)) if at not in paired][:MOST_RENAMED]:
        item = items[at]
        mine = _words(item.title)
        for k, theirs in words.items():
            own_id = known[k].key == item.key != item.title
            if (own_id or _goes_on(known[k].status, item.status)) and _alike(mine, theirs):
                pairs[at] = k
                del words[k]
                break
    return pairs


def _goes_on(was: ItemStatus, now: ItemStatus) -> bool:
    """One under way keeps the name it began with, so it has to be known again when it is done."""
    return was is now or (was is ItemStatus.IN_PROGRESS and now is ItemStatus.COMPLETED)


def _may_become(was: ItemStatus, now: ItemStatus) -> bool:
    """What is final stays as it is."""
    return was in LIVE or was is now


def _folded(title: str) -> str:
    return " ".join(title.split()).casefold()


_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W_]+")


def _words(title: str) -> frozenset[str]:
    """Letters of scripts that set no spaces count as words."""
    return frozenset(_WORD.findall(title.casefold()))


def _alike(mine: frozenset[str], theirs: frozenset[str]) -> bool:
    """Two titles of one item: half of the words of both are the same, or the shorter is part of the longer."""
    common = len(mine & theirs)
    return common >= SIMILAR * len(mine | theirs) or (common > 1 and common == min(len(mine), len(theirs)))
