"""What the work of the active frame shows: errors, a new goal, files, length, checks that passed, turns without news.

A `Reading` is what a path showed up to one place, and goes on from there: with each request only what is new is
looked at. `signals` makes of it, with what the provider reported last, the figures that the heuristics score (D2:
nobody has to supply them).

The law: **the same path gives the same signals**, whether it was read in one go or message by message. A reading
belongs to one frame as it is owned now; where another frame is active, or older messages changed hands, it is begun
anew.

What this module does not do: it scores nothing, and it asks no model.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from proxy.core.compaction.segments import tokens_of
from proxy.core.context.message_list import owner_of
from proxy.core.frames.path_state import Placed, Story
from proxy.core.frames.tree import Frame
from proxy.core.ledger.ledger import Kind
from proxy.core.ledger.messages import Call, Message
from proxy.core.observers.call_outcomes import failed
from proxy.core.observers.commands import State, commands_seen
from proxy.core.observers.files import How, files_seen
from proxy.core.observers.plan import Changed, ItemStatus, Listed, plan_seen
from proxy.core.observers.step import Done, Step, said_by
from proxy.core.observers.tool_roles import Names, Role
from proxy.core.observers.turns import continues, keywords

RECENT = 10
"""Turns whose changed files count as recent: a turn is a message of the assistant (S1-86)."""
DEFAULT_LIMIT = 100_000
"""Tokens that stand for the window of a model nobody knows (S1-91)."""
LONGEST = 16_000
"""Characters of the user's words that are looked at, tags of clients included."""
LONGEST_CLOSING = 3_000
"""Characters of what the assistant said last that are looked at: its end."""
ANSWERED = "answered without a call"
"""The sign of success that is no check."""
_PLANNING = frozenset({Role.PLAN, Role.ITEM_UPDATE, Role.GOAL})
_CHANGING = frozenset({Role.WRITE, Role.EDIT, Role.DELETE, Role.MOVE, Role.EDITOR, Role.PATCH, None})
"""Roles of tools that change files for sure; what a command line says of files is not sure, but for a patch in it."""
_PATCHED = "*** "


class Signals(msgspec.Struct, frozen=True):
    """What the heuristics look at. `errors` are those since the last success; `goal` is a new one, told apart from what
    the frame is for, or empty. `aims` and `wanted` are the keywords of the frame and of that goal. `files` were changed
    in the newest turns, `artifacts` anywhere in the frame. `covered` and `usage` are shares: of the frame's keywords
    that were spoken of last, of the model's window."""

    errors: int = 0
    goal: str = ""
    aims: frozenset[str] = frozenset()
    wanted: frozenset[str] = frozenset()
    messages: int = 0
    files: int = 0
    tokens: int = 0
    successes: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    artifacts: int = 0
    covered: float = 0.0
    idle: int = 0
    usage: float = 0.0


@dataclass(slots=True)
class Reading:
    """What a path showed of one frame's own messages, up to the place `upto`, at the entry `at`.

    `failures` counts, by what was tried (a kind of check, else a tool), what failed and has not succeeded since;
    `successes` are checks by their kind, as they were run. `idle` are turns in a row that gave nothing new: each call
    gave what it gave before, and no file was changed.
    """

    owner: str
    carried: Mapping[str, str]
    """Whose messages were handed on, when it was read."""
    upto: int = 0
    at: str = ""
    messages: int = 0
    tokens: int = 0
    spent: int = 0
    """Tokens of the newest round that the provider reported, whoever's it was."""
    waiting: dict[str, Call] = field(default_factory=dict)
    recent: deque[set[str]] = field(default_factory=lambda: deque(maxlen=RECENT))
    artifacts: set[str] = field(default_factory=set)
    failures: dict[str, int] = field(default_factory=dict)
    successes: dict[str, str] = field(default_factory=dict)
    results: set[int] = field(default_factory=set)
    idle: int = 0
    progressed: bool = False
    acting: bool = False
    worked: bool = False
    said: str = ""
    before: str = ""
    asked: str = ""
    stated: str = ""
    begun: str = ""

    aims: frozenset[str] | None = None
    spoken: tuple[str, frozenset[str]] = ("", frozenset())
    """What was spoken of when that was last asked, and its keywords."""

    @property
    def at_rest(self) -> bool:
        """Every call of the frame has its result."""
        return not self.waiting

    def aims_of(self, frame: Frame) -> frozenset[str]:
        """The keywords of what the frame is for; that never changes."""
        if self.aims is None:
            self.aims = keywords(f"{frame.title}\n{frame.criteria}")
        return self.aims

    def covered(self, aims: frozenset[str], successes: Sequence[str]) -> float:
        """The share of `aims` that was spoken of last, by the assistant, in what it changed, or in its signs of
        success; 0 where there are none."""
        if not successes:
            return 0.0
        text = "\n".join((*successes, self.said, *sorted(self.artifacts)))
        if text != self.spoken[0]:
            self.spoken = (text, keywords(text))
        return len(aims & self.spoken[1]) / len(aims) if aims else 0.0

    def feed(self, placed: Placed, names: Names) -> None:
        """One more message of the frame."""
        message = said_by(placed)
        if message is None or placed.entry.kind is Kind.OVERLAY:
            return
        self.messages += 1
        self.tokens += tokens_of(placed)
        if message.role == "assistant":
            self._turn(message)
        elif message.answers:
            self._result(message, placed.entry.id, names)
        elif message.role == "user" and message.text.strip():
            self.asked = f"{self.asked}\n{message.text}".strip()[:LONGEST]

    def _turn(self, message: Message) -> None:
        self._settle()
        self.worked = True
        if self.asked:
            self.before, self.asked = self.asked, ""
        self.begun = ""
        self.waiting = {call.id: call for call in message.calls if not call.is_ours}
        self.acting, self.progressed = bool(self.waiting), False
        self.recent.append(set())
        if message.text.strip():
            self.said = message.text[-LONGEST_CLOSING:]
        if message.calls:
            self.successes.pop(ANSWERED, None)
        elif message.text.strip():
            self.successes[ANSWERED] = ANSWERED

    def _settle(self) -> None:
        """The turn before is over: did it give anything new?"""
        if self.acting:
            self.idle = 0 if self.progressed else self.idle + 1
        self.acting = False

    def _result(self, message: Message, entry: str, names: Names) -> None:
        call = self.waiting.pop(message.answers, None)
        if call is None:
            return
        done = Done(call, message.text, entry, failed=message.failed)
        role = names.role(call.name)
        went_wrong = self._judge(done, role, names)
        if not went_wrong and (role in _CHANGING or _PATCHED in call.arguments):
            self._changed(done, names)
        if role in _PLANNING:
            self._planned(done, names)
        given = hash((call.name, call.arguments, message.text))
        self.progressed |= given not in self.results
        self.results.add(given)
        if not self.waiting:
            self._settle()

    def _judge(self, done: Done, role: Role | None, names: Names) -> bool:
        """Note whether the call, or each check it ran, went well. Whether the call as such failed."""
        ran = commands_seen(Step("", (done,)), names) if role is Role.SHELL else ()
        checks = [each for each in ran if each.kind and each.state is not State.UNKNOWN]
        for check in checks:
            self._ended(check.kind, well=check.state is State.OK)
            if check.state is State.OK:
                self.successes[check.kind] = check.command
        wrong = failed(done)
        if not checks:
            self._ended(done.call.name, well=not wrong)
        return wrong

    def _ended(self, what: str, *, well: bool) -> None:
        if well:
            self.failures.pop(what, None)
        else:
            self.failures[what] = self.failures.get(what, 0) + 1
            self.successes.pop(what, None)

    def _changed(self, done: Done, names: Names) -> None:
        files = {seen.path for seen in files_seen(Step("", (done,)), names) if seen.sure and seen.how is not How.READ}
        if files:
            self.recent[-1].update(files)
            self.artifacts |= files
            self.progressed = True

    def _planned(self, done: Done, names: Names) -> None:
        """An item of the client's plan that begins is a goal, where another one was under way."""
        for seen in plan_seen(Step("", (done,)), names):
            title = _under_way(seen)
            if title and title != self.stated:
                self.begun = title if self.stated else ""
                self.stated = title


def _under_way(seen: Listed | Changed) -> str:
    if isinstance(seen, Changed):
        return seen.title or "" if seen.status is ItemStatus.IN_PROGRESS else ""
    return next((item.title for item in seen.items if item.status is ItemStatus.IN_PROGRESS), "")


def read(story: Story, names: Names, known: Reading | None = None) -> Reading:
    """What the path shows of its active frame. `known` is gone on from, and changed, where it is of this path."""
    owner = story.tree.current.owner
    if known is None or not _goes_on(story, owner, known):
        known = Reading(owner, story.tree.carried)
    for placed in story.placed[known.upto :]:
        if placed.round and placed.round.spoken.usage:
            known.spent = placed.round.spoken.usage.input + placed.round.spoken.usage.output
        if owner_of(story, placed) == owner:
            known.feed(placed, names)
    known.upto = len(story.placed)
    known.at = story.placed[-1].at if story.placed else ""
    return known


def _goes_on(story: Story, owner: str, known: Reading) -> bool:
    if known.owner != owner or known.carried != story.tree.carried or known.upto > len(story.placed):
        return False
    return not known.upto or story.placed[known.upto - 1].at == known.at


# -------------------------------------------------------------------------------------------------------- the figures
def signals(reading: Reading, frame: Frame, window: int) -> Signals:
    """The figures of a frame; `window` is what the model holds, in tokens, 0 where nobody knows."""
    goal = _new_goal(reading, frame)
    aims = reading.aims_of(frame)
    successes = tuple(reading.successes.values())
    return Signals(
        errors=sum(reading.failures.values()),
        goal=goal,
        aims=aims,
        wanted=keywords(goal) if goal else frozenset(),
        messages=reading.messages,
        files=len(set().union(*reading.recent)),
        tokens=reading.tokens,
        successes=successes,
        failures=tuple(what for what, times in reading.failures.items() for _ in range(times)),
        artifacts=len(reading.artifacts | set(frame.artifacts)),
        covered=reading.covered(aims, successes),
        idle=reading.idle,
        usage=reading.spent / (window or DEFAULT_LIMIT),
    )


def _new_goal(reading: Reading, frame: Frame) -> str:
    """What the user said last, where it starts something else than was said before or than the frame is for; or the
    item of the plan that just began. What is said before any work is what the frame is for."""
    if not reading.asked:
        return reading.begun
    before = reading.before or f"{frame.title}\n{frame.criteria}"
    return reading.asked if reading.worked and not continues(before, reading.said, reading.asked) else ""
