"""Branching: what it takes to name a point, to begin a line there, to change lines, and to copy from one to another.

    checkpoint   a name for a point of the current line; it never changes what is sent
    branch       a new line that begins at a checkpoint
    switch       back to a line that was left, as it stood
    inject       messages of another line, or what a frame of it returned, copied once to the end of one

The laws: **lines turn where the user speaks**, and nowhere else: whatever is wanted waits for a request that brings
nothing but words of the user, so no call group is cut through and every result stands where its call does. And **only
what is copied crosses over**: a line knows nothing of what was done on another.

What this module does not do: it changes nothing and stores nothing. It gives events and words, and refuses with
NotAllowed, whose message says what to do instead. What stands on a line is `story`'s to say.

The tools that branch: checkpoint, branch, switch, inject.

The law: **nothing turns in the middle of a turn**. A branch or a switch that the model asks for begins with the user's
next message; what is copied is the result of the call that asks for it, so it stands at the end of the line, once.

What this module does not do: it says what may be done nowhere (`branching` does); here is only how a model asks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from itertools import count
from typing import Any

import msgspec

from proxy.core.context.message_list import on_line
from proxy.core.frames.branches import MAIN, Checkpoint, Lines, Look
from proxy.core.frames.events import CheckpointSet, Copied, InjectionWanted, LineWanted, Switched
from proxy.core.frames.path_state import Placed, Story
from proxy.core.frames.tree import find
from proxy.core.ledger.ledger import Entry, Kind, Ledger, Thread
from proxy.core.ledger.messages import Request
from proxy.core.observers.step import said_by
from proxy.core.recall.stored_texts import Piece, between_markers, pieces_of
from proxy.core.text import cut_for_display, element, escape_xml
from proxy.core.tools.base import Desk, Mistake, Outcome, Tool, text_of
from proxy.errors import NotAllowed

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""Of a checkpoint or a line: it stands in paths and on markers."""
MOST_CHECKPOINTS = 64
"""Of one path, named by somebody."""
MOST_LINES = 32
MOST_COPIED = 60_000
"""Characters that are copied at once."""
REASON_SHOWN = 400


# --------------------------------------------------------------------------------------------------------- checkpoints
def checkpoint_at(
    story: Story, ledger: Ledger, entry: str, name: str = "", *, automatic: bool = False
) -> CheckpointSet:
    """A name for the point behind `entry`, or where that leaves calls without results, before it. Without a name it is
    given one. Raises NotAllowed."""
    lines = story.lines
    chosen = _checked(name) if name else _fresh("c", lines.checkpoints)
    if chosen in lines.checkpoints:
        raise NotAllowed(f"There is a checkpoint {chosen!r} already. Choose another name.", code="name_taken")
    if not automatic and sum(not each.automatic for each in lines.checkpoints.values()) >= MOST_CHECKPOINTS:
        raise NotAllowed(f"There are {MOST_CHECKPOINTS} checkpoints here already; no more fit.", code="too_many")
    at = closed(ledger, entry)
    return CheckpointSet(chosen, at, lines.current, automatic, look_at(ledger.threads.get(ledger.entries[at].thread)))


def closed(ledger: Ledger, entry: str) -> str:
    """The newest entry of the path to `entry` behind which the user could speak: no call before it waits for a
    result."""
    at = ledger.entries[entry]
    while at.parent and _is_open(ledger, at):
        at = ledger.entries[at.parent]
    return at.id


def _is_open(ledger: Ledger, entry: Entry) -> bool:
    if entry.kind is not Kind.TURN:
        return entry.message is not None and bool(entry.message.calls)
    rounds = ledger.rounds.get(entry.id, ())
    return not (rounds and rounds[-1].last and rounds[-1].spoken.complete) or bool(rounds[-1].spoken.client_calls)


def look_at(thread: Thread | None) -> Look:
    """How the newest request of a thread looked."""
    return (thread.system_hash, thread.tools_hash, thread.model) if thread else ("", "", "")


def _checked(name: str) -> str:
    if not NAME.fullmatch(name):
        raise NotAllowed(
            f"{cut_for_display(name, 40)!r} is no name: use up to 64 letters, digits, dots, dashes and underscores.",
            code="bad_name",
        )
    return name


def _fresh(letter: str, taken: Mapping[str, object]) -> str:
    return next(name for number in count(1) if (name := f"{letter}{number}") not in taken)


# ----------------------------------------------------------------------------------------------------- branch, switch
def branch_from(lines: Lines, checkpoint: str = "", name: str = "", reason: str = "") -> LineWanted:
    """A new line that begins at a checkpoint; without its name, at the newest one. Raises NotAllowed."""
    if not lines.checkpoints:
        raise NotAllowed("There is no checkpoint to begin a branch at. Set one first.", code="no_checkpoint")
    point = lines.checkpoints.get(checkpoint) if checkpoint else newest(lines)
    if point is None:
        raise NotAllowed(
            f"There is no checkpoint {cut_for_display(checkpoint, 40)!r}. {_known('Checkpoints', lines.checkpoints)}",
            code="no_checkpoint",
        )
    chosen = _checked(name) if name else _fresh("b", lines.begun)
    if chosen in lines.begun:
        raise NotAllowed(
            f"There is a branch {chosen!r} already: switch to it, or choose another name.", code="name_taken"
        )
    if len(lines.begun) >= MOST_LINES:
        raise NotAllowed(f"There are {MOST_LINES} branches here already; no more fit.", code="too_many")
    return LineWanted(chosen, point.at, point.name, reason)


def newest(lines: Lines) -> Checkpoint:
    """The checkpoint that was set last; there is one."""
    return lines.checkpoints[next(reversed(tuple(lines.checkpoints)))]


def switch_to(lines: Lines, name: str, reason: str = "") -> LineWanted:
    """Another line, as it was left. Raises NotAllowed."""
    if name not in lines.begun:
        raise NotAllowed(
            f"There is no branch {cut_for_display(name, 40)!r}. {_known('Branches', lines.begun)}", code="no_branch"
        )
    if name == lines.current and lines.wanted is None:
        raise NotAllowed(f"The work is on {name!r} already.", code="already_there")
    return LineWanted(name, reason=reason)


def _known(what: str, names: Mapping[str, object]) -> str:
    return f"{what}: {', '.join(names)}."


def turning(story: Story, ledger: Ledger, run: Sequence[Entry], request: Request, look: Look) -> Switched | None:
    """What becomes of a wish at these new messages, the newest of `request`: the lines turn before the first of them;
    None where nothing is wanted, or has to wait. `look` is of the request before."""
    wanted = story.lines.wanted
    if wanted is None or not _is_safe(run, request):
        return None
    if wanted.line not in story.aside and wanted.at not in ledger.entries:
        return None  # what it is to begin at was lost
    return Switched(wanted.line, wanted.at, wanted.checkpoint, wanted.reason, look)


def _is_safe(run: Sequence[Entry], request: Request) -> bool:
    """Whether the user speaks, and a line other than the client's history may be sent at all."""
    spoken = all(entry.message is not None and entry.message.role == "user" for entry in run)
    offers = bool(request.tool_names) and request.choice in ("auto", "required") and not request.structured
    return bool(run) and spoken and offers


def ends_in_results(line: Story) -> bool:
    """Whether the last on a line is the result of a call."""
    last = next((message for placed in reversed(on_line(line)) if (message := said_by(placed))), None)
    return last is not None and bool(last.answers)


# -------------------------------------------------------------------------------------------------------------- inject
class Numbered(msgspec.Struct, frozen=True):
    """A message of a line, as it is counted there from 1."""

    number: int
    role: str
    text: str


def line_named(story: Story, name: str) -> Story:
    """The story of one of the lines, as it stands or was left. Raises NotAllowed."""
    if name == story.lines.current:
        return story
    if name not in story.aside:
        raise NotAllowed(
            f"There is no branch {cut_for_display(name, 40)!r}. {_known('Branches', story.lines.begun)}",
            code="no_branch",
        )
    return story.aside[name]


def spoken(line: Story) -> list[Placed]:
    """What stands on a line and can be copied: everything but our own words, oldest first."""
    return [p for p in on_line(line) if p.entry.kind is not Kind.OVERLAY and said_by(p) is not None]


def numbered(line: Story) -> tuple[Numbered, ...]:
    """The messages that stand on a line, oldest first."""
    texts = ((said_by(p), "\n\n".join(map(_shown, pieces_of(line, [p])))) for p in spoken(line))
    return tuple(Numbered(n, m.role, text) for n, (m, text) in enumerate(texts, 1) if m is not None)


def _shown(piece: Piece) -> str:
    """A text as it is, a call with the name of its tool."""
    return f"{piece.call.name}({piece.text})" if piece.call and piece.is_call else piece.text


def copied(story: Story, source: str, numbers: Sequence[int], frame: str) -> tuple[Copied, ...]:
    """Messages of the line `source`, by their numbers on it, or what a frame of it returned. Raises NotAllowed."""
    if bool(numbers) is bool(frame):
        raise NotAllowed("Name what to copy: message numbers, or one frame.", code="nothing_chosen")
    line = line_named(story, source)
    texts = (_returned_by(line, frame, source),) if frame else _messages_of(line, numbers, source)
    if (size := sum(len(each.text) for each in texts)) > MOST_COPIED:
        raise NotAllowed(
            f"These are {size:,} characters; {MOST_COPIED:,} at most are copied at once. Choose fewer messages.",
            code="too_long",
        )
    return texts


def _messages_of(line: Story, numbers: Sequence[int], source: str) -> tuple[Copied, ...]:
    placed = spoken(line)
    if wrong := [number for number in numbers if not 1 <= number <= len(placed)]:
        raise NotAllowed(f"{source!r} has no message {wrong[0]}: it has 1 to {len(placed)}.", code="no_message")
    chosen = ((number, piece) for number in dict.fromkeys(numbers) for piece in pieces_of(line, [placed[number - 1]]))
    return tuple(Copied(piece.ref, piece.role, piece.source, piece.text, number) for number, piece in chosen)


def _returned_by(line: Story, reference: str, source: str) -> Copied:
    frame = find(line.tree, reference)
    if frame is None or not frame.results:
        known = ", ".join(f"{f.id} ({cut_for_display(f.title)})" for f in line.tree.frames.values() if f.results)
        raise NotAllowed(
            f"No frame {cut_for_display(reference, 40)!r} on {source!r} has results. With results: {known or 'none'}.",
            code="no_results",
        )
    return Copied(frame.id, "results", frame.title, frame.results)


def wanted_on(lines: Lines, target: str, source: str, texts: Sequence[Copied]) -> InjectionWanted:
    """These texts are to be copied to the line `target`; without a name, to the one the next request stands on. Raises
    NotAllowed."""
    coming = lines.wanted.line if lines.wanted else lines.current
    to = target or coming
    if to not in (*lines.begun, coming):
        raise NotAllowed(
            f"There is no branch {cut_for_display(to, 40)!r}. {_known('Branches', lines.begun)}", code="no_branch"
        )
    if to == source:
        raise NotAllowed(f"That stands on {to!r} already; name another branch to copy to.", code="same_line")
    return InjectionWanted(to, source, tuple(texts))


# --------------------------------------------------------------------------------------------------------------- words
UNTOUCHED = (
    "Only the conversation changed: files and whatever else was changed outside of it are as they were left, so look "
    "before you rely on what you read earlier."
)


def turned_words(event: Switched, nonce: str) -> str:
    """What the model is told where a line begins or is taken up again."""
    if event.at:
        what = (
            f"A branch begins here: {event.line}, at the checkpoint {event.checkpoint}. The work goes on from that "
            "point; what was done after it stands on another branch."
        )
    elif event.line == MAIN:
        what = "The work goes on here, on the main line, where it was left. What was done meanwhile stands on a branch."
    else:
        what = f"The work goes on here, on the branch {event.line}, where it was left."
    why = f" Reason: {escape_xml(cut_for_display(event.reason, REASON_SHOWN))}" if event.reason else ""
    return element("stack-context", {"branch": event.line, "nonce": nonce}, f"{what} {UNTOUCHED}{why}")


def injected_words(lines: Lines, nonce: str) -> str:
    """What waits for the current line, for the model; empty where nothing does."""
    waiting = [each for each in lines.injections if each.line == lines.current]
    if not waiting:
        return ""
    sources = ", ".join(dict.fromkeys(each.source for each in waiting))
    head = f"Copied from {sources}. What stands between the markers below is stored data."
    texts = (copied_words(each.source, each.texts, nonce) for each in waiting)
    return "\n".join((element("stack-context", {"copied-from": sources, "nonce": nonce}, head), *texts))


def copied_words(source: str, texts: Sequence[Copied], nonce: str) -> str:
    """Texts of another line between the markers of stored data."""
    return "\n".join(
        between_markers(
            Piece(each.ref, "", "", "", each.role, each.source, each.text),
            each.text,
            nonce,
            branch=source,
            message=str(each.number or ""),
        )
        for each in texts
    )


Run = Callable[[Desk, Mapping[str, Any]], Outcome]
BRANCH_MISSING = "Error: branch is missing: the name of the branch to go to; main is the line it all began on."
SOURCE_MISSING = "Error: branch is missing: the name of the branch to copy from."
CHOICE_MISSING = (
    "Error: say what to copy: messages (numbers such as 3 or [3, 4]), or frameID for what a frame returned."
)


def _told(run: Run) -> Run:
    """What is refused is a mistake of the model's, told as text."""

    @wraps(run)
    def answering(desk: Desk, arguments: Mapping[str, Any]) -> Outcome:
        try:
            return run(desk, arguments)
        except NotAllowed as refused:
            raise Mistake(f"Error: {refused}") from None

    return answering


@_told
def checkpoint(desk: Desk, arguments: Mapping[str, Any]) -> Outcome:
    """Name the point before this turn's calls (S2-01)."""
    event = checkpoint_at(desk.story, desk.ledger, before(desk), text_of(arguments, "name"))
    return Outcome(
        f"Checkpoint {event.name} is set: the conversation up to this turn. A branch can begin there.", (event,)
    )


def before(desk: Desk) -> str:
    """The entry of the request that is being answered."""
    turn = desk.ledger.entries.get(desk.turn)
    return turn.parent if turn else desk.story.tip


def at_push(desk: Desk, frame: str) -> tuple[CheckpointSet, ...]:
    """The point before a frame is pushed, where the configuration wants one."""
    if not desk.settings.checkpoint_at_push:
        return ()
    return (checkpoint_at(desk.story, desk.ledger, before(desk), f"before-{frame}", automatic=True),)


@_told
def branch(desk: Desk, arguments: Mapping[str, Any]) -> Outcome:
    """Begin a line at a checkpoint (S2-02)."""
    reason, point = text_of(arguments, "reason"), text_of(arguments, "checkpoint")
    event = branch_from(desk.story.lines, point, text_of(arguments, "name", "branch"), reason)
    return Outcome(
        f"Branch {event.line} begins at checkpoint {event.checkpoint} with the user's next message. It will know "
        "nothing of what was done since. Until then you are where you were: finish this turn.",
        (event,),
    )


@_told
def switch(desk: Desk, arguments: Mapping[str, Any]) -> Outcome:
    """Go on with a line that was left (S2-03)."""
    event = switch_to(
        desk.story.lines, text_of(arguments, "branch", "name", required=BRANCH_MISSING), text_of(arguments, "reason")
    )
    return Outcome(f"The user's next message goes to {event.line}. Until then you are where you were.", (event,))


@_told
def inject(desk: Desk, arguments: Mapping[str, Any]) -> Outcome:
    """Copy from another line (S2-04)."""
    source = text_of(arguments, "branch", required=SOURCE_MISSING)
    frame = text_of(arguments, "frameID", "frame_id", "frame")
    texts = copied(desk.story, source, _numbers(arguments), frame)
    return Outcome(copied_words(source, texts, desk.nonce))


def _numbers(arguments: Mapping[str, Any]) -> list[int]:
    """Message numbers as models write them: 3, "3", [3, "4"]."""
    given = arguments.get("messages", arguments.get("message"))
    found: list[int] = []
    for each in given if isinstance(given, list) else [] if given is None else [given]:
        if isinstance(each, bool) or not str(each).strip().isdecimal() or len(str(each)) > len("1000000"):
            raise Mistake(CHOICE_MISSING)
        found.append(int(each))
    return found


_STRING = {"type": "string"}
CHECKPOINT = Tool(
    "stack_checkpoint",
    "checkpoint",
    "Name this point of the conversation, so that a branch can begin here.",
    {"type": "object", "properties": {"name": _STRING}},
    checkpoint,
    listed=False,
)
BRANCH = Tool(
    "stack_branch",
    "branch",
    "Begin a new line of work at a checkpoint, with the user's next message; it knows nothing of what came after.",
    {"type": "object", "properties": {"checkpoint": _STRING, "name": _STRING}},
    branch,
    listed=False,
)
SWITCH = Tool(
    "stack_switch",
    "switch",
    "Go on with another branch (main is the first), with the user's next message.",
    {"type": "object", "properties": {"branch": _STRING}, "required": ["branch"]},
    switch,
    listed=False,
)
INJECT = Tool(
    "stack_inject",
    "inject",
    "Copy messages of another branch, by number, or what a frame of it returned.",
    {
        "type": "object",
        "properties": {
            "branch": _STRING,
            "messages": {"type": "array", "items": {"type": "integer"}},
            "frameID": _STRING,
        },
        "required": ["branch"],
    },
    inject,
    listed=False,
)
TOOLS = (CHECKPOINT, BRANCH, SWITCH, INJECT)
