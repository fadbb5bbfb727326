"""What the tree of frames must be: the same rules as the product's, told a second time and as simply as possible.

A frame is known by its title here, because the programs never use one twice; where one that failed is tried again,
the newest attempt has the title and those before it a number, and nobody can name any of them by it. So it is with the
roots, of which the newest is the one that the work goes on in. There are no
events, no fold and no store: calls change dictionaries in place, and a client that goes back takes an older copy. The
law: **nothing of the proxy is imported**, so the two cannot share a mistake.

What it does not do: it knows no lines and no texts; the laws judge those.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field

ROOT = "(root)"
ATTEMPT = "~"
"""What stands before the number of an attempt."""
OPEN = ("in_progress",)
ENDED = ("completed", "failed", "invalidated")
MOST_OPEN = 10
"""Frames on one path, as the proxy is configured."""


@dataclass(frozen=True, slots=True)
class Op:
    """A stack call: push, pop, plan, activate, invalidate, recall. `title` is the frame it names, empty for the
    active one."""

    name: str
    title: str = ""
    status: str = "completed"
    children: tuple[str, ...] = ()


def earlier(title: str, attempt: int | str) -> str:
    """The name of an attempt that was not the last."""
    return f"{title}{ATTEMPT}{attempt}"


def named(titles: Mapping[str, str]) -> dict[str, str]:
    """Frames by id, in the order of their birth, with the names they have here instead of their titles."""
    found: dict[str, str] = {}
    for number, (frame, title) in enumerate(titles.items()):
        of_it = [at for at, each in enumerate(titles.values()) if each == title]
        found[frame] = title if number == of_it[-1] else earlier(title, of_it.index(number) + 1)
    return found


@dataclass
class Oracle:
    """The tree at one point of a conversation: titles to parents and to statuses."""

    parents: dict[str, str] = field(default_factory=lambda: {ROOT: ""})
    statuses: dict[str, str] = field(default_factory=lambda: {ROOT: "in_progress"})
    active: str = ROOT
    refused: dict[str, str] = field(default_factory=dict)
    """Pops of this turn that stood beside calls of the client's, with their statuses."""
    refused_before: dict[str, str] = field(default_factory=dict)
    due: dict[str, str] = field(default_factory=dict)
    """Those that count as soon as the user speaks."""

    def copy(self) -> Oracle:
        return deepcopy(self)

    # -------------------------------------------------------------------------------------------------------- what is
    def path(self) -> list[str]:
        """The active frame first, the root last."""
        return [self.active, *self._above(self.active)]

    def planned_here(self) -> list[str]:
        return [t for t in self._below(self.active) if self.statuses[t] == "planned" and self.parents[t] == self.active]

    def _above(self, title: str) -> Iterator[str]:
        while title := self.parents[title]:
            yield title

    def _below(self, title: str) -> list[str]:
        return [t for t in self.parents if title in self._above(t)]

    @property
    def frames(self) -> dict[str, tuple[str, str]]:
        """Parent and status of each."""
        return {title: (self.parents[title], status) for title, status in self.statuses.items()}

    @property
    def is_over(self) -> bool:
        """The root was popped: nothing goes on until the user speaks."""
        return self.statuses[ROOT] != "in_progress"

    # --------------------------------------------------------------------------------------------------- what happens
    def user_speaks(self) -> None:
        """A blocked root goes on; behind one that has ended another one begins beside it. Pops that are due take
        effect, and so end the frames inside them."""
        pushed = [t for t in self.path() if t != ROOT and self.statuses[t] == "in_progress"]
        for title in pushed[: max((n for n, t in enumerate(pushed) if t in self.due), default=-1) + 1]:
            self._pop(title, self.due.get(title, "completed"))
        self.due = {}
        if not self.is_over or self.active != ROOT:
            return
        if self.statuses[ROOT] != "blocked":
            self._becomes_earlier(ROOT)
            self._born(ROOT, "", "")
        self.statuses[ROOT] = "in_progress"

    def turn_ends(self, *, answered: bool) -> None:
        """`answered`: in words, without a call of the client's. What was refused in the turn before is due then."""
        self.due = self.refused_before if answered else {}
        self.refused_before, self.refused = self.refused, {}

    def group(self, ops: Sequence[Op], *, alone: bool) -> None:
        """The stack calls of one round. `alone`: no call of the client's stands beside them."""
        opened = ""
        for op in ops:
            opened = self.one(op, opened, alone=alone)

    def one(self, op: Op, opened: str, *, alone: bool) -> str:
        """One call; the frame this group opened, where it did."""
        if op.name != "push" and (ATTEMPT in op.title or earlier(op.title, 1) in self.parents):
            return opened
        match op.name:
            case "push" if op.title in self.planned_here() and not opened:
                return self._activate(op.title, opened)
            case "push":
                return self._push(op.title, opened)
            case "activate":
                return self._activate(op.title, opened)
            case "pop" if alone:
                self._pop(op.title or self.active, op.status)
            case "pop" if (title := op.title or self.active) in self.path() and self.statuses[title] == "in_progress":
                self.refused[title] = op.status
            case "plan":
                self._plan(op.title or self.active, op.children)
            case "invalidate":
                self._invalidate(op.title or self.active, alone=alone)
            case _:
                pass
        return opened

    def _push(self, title: str, opened: str) -> str:
        if self.is_over:
            return opened
        if opened:
            around = self.parents[opened] or opened
            self._born(title, around if self.statuses[around] == "in_progress" else self.active, "planned")
            return opened
        if len(self.path()) >= MOST_OPEN:
            return opened
        self._born(title, self.active, "in_progress")
        self.active = title
        return title

    def _born(self, title: str, parent: str, status: str) -> None:
        self.parents[title], self.statuses[title] = parent, status

    def _activate(self, title: str, opened: str) -> str:
        known = self.statuses.get(title)
        if known == "failed" and title in self._below(self.active) and not self.is_over:
            return self._again(title, opened)
        if self.is_over or opened or known not in ("planned", "blocked") or title not in self._below(self.active):
            return opened
        between = [t for t in self._above(title) if t in self._below(self.active)]
        if any(self.statuses[t] in ENDED for t in between):
            return opened
        for each in (title, *between):
            self.statuses[each] = "in_progress"
        self.active = title
        return title

    def _again(self, title: str, opened: str) -> str:
        """Another attempt at what failed: a frame of its own, pushed by the same title."""
        if not opened and len(self.path()) >= MOST_OPEN:
            return opened
        before = self._becomes_earlier(title)
        return self._push(title, before if opened == title else opened)

    def _becomes_earlier(self, title: str) -> str:
        before = earlier(title, sum(each.startswith(earlier(title, "")) for each in self.parents) + 1)
        self.parents = {before if t == title else t: before if p == title else p for t, p in self.parents.items()}
        self.statuses = {before if t == title else t: status for t, status in self.statuses.items()}
        return before

    def _pop(self, title: str, status: str) -> None:
        if title not in self.path() or self.statuses[title] != "in_progress":
            return
        for below in self.path()[: self.path().index(title)]:
            if self.statuses[below] == "in_progress":
                self.statuses[below] = "blocked"
        self.statuses[title] = status
        self._return_from(title)

    def _return_from(self, title: str) -> None:
        """Back to the nearest frame above that goes on; the root is never left."""
        self.active = next((t for t in self._above(title) if self.statuses[t] in OPEN), ROOT)

    def _plan(self, parent: str, children: Sequence[str]) -> None:
        if self.statuses.get(parent, ENDED[0]) not in ENDED:
            for child in children:
                self._born(child, parent, "planned")

    def _invalidate(self, title: str, *, alone: bool) -> None:
        if title == ROOT or self.statuses.get(title, ENDED[0]) in ENDED or (title == self.active and not alone):
            return
        for below in self._below(title):
            if self.statuses[below] == "planned":
                self.statuses[below] = "invalidated"
        self.statuses[title] = "invalidated"
        if title == self.active:
            self._return_from(title)
