"""Commands that a person types to the proxy, as a message to the agent: `/stack push Fix the parser`.

    heard(messages)    which of a client's messages are such commands, and answers of ours to them
    read(said)         what a command asks for

The laws: **only a whole message is a command**, one line and nothing else, beside what clients put around a user's
words by themselves; anything more is the user's text to the agent. **An answer is ours by its mark** (`MARK`), for it
comes back with every later request, also where nobody remembers it. So neither stands on a line: both are taken off a
request before anything else looks at it.

What this module does not do: it does nothing that a command asks for (`by_hand` does).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import msgspec

from proxy.core.commands.command_values import Activate, Deed, Invalidate, Plan, Pop, Push, Rename, Step
from proxy.core.frames.tree import RETURNED
from proxy.core.ledger.messages import HEAD_ROLES, Message
from proxy.core.observers.turns import untagged

WORD = "/stack"
MARK = "[callstack]"
"""What each answer of ours to a command begins with."""
LONGEST = 4_000
"""Characters of a command; what is longer is a text."""
LOOKED_AT = 200_000
"""Characters of a message, with what the client put around the words, in which a command is looked for."""

_COMMAND = re.compile(rf"{WORD}(?:[ \t]+(?P<verb>\S+)(?:[ \t]+(?P<rest>\S.*))?)?[ \t]*")
_MAYBE = re.compile(rf"{WORD}(?=[\s<]|\Z)")
"""What every message has that may be one. Paths have the word too, and a whole history is asked with every request."""
_SAID = re.compile(r"(?P<options>(?:(?:--follow-up|--to[ \t]+[^\s-]\S*)[ \t]+)*)(?P<text>\S.*)")
_PART = re.compile(r'\{.*"type"\s*:')
"""A picture or a file beside the words, as the text of a message tells it."""


class Say(msgspec.Struct, frozen=True):
    """Words for a running agent: that of this conversation, or of the one whose id begins with `to`. With `follow_up`
    they wait until the model has nothing more to do."""

    text: str
    to: str = ""
    follow_up: bool = False


class Unclear(Exception):
    """A command that asks for nothing that can be done; the message says how it is written."""


class Heard(msgspec.Struct, frozen=True):
    """Positions of messages that are between a person and the proxy: commands with their answers, and `waiting`, the
    command at the end that waits for one, or -1. `before`: how many commands stand between it and the last message
    that is none of ours."""

    past: frozenset[int]
    waiting: int = -1
    before: int = 0


def command_in(message: Message) -> str:
    """The command that a message is, on one line; empty where it is none."""
    text = message.text
    if message.role != "user" or message.answers or len(text) > LOOKED_AT:
        return ""
    if WORD not in text or not _MAYBE.search(text):  # the first is the faster one, and enough for nearly all
        return ""
    said = untagged(text, LOOKED_AT)
    is_command = len(said) <= LONGEST and _COMMAND.fullmatch(said) is not None and not _PART.search(said)
    return said if is_command else ""


def heard(messages: Sequence[Message]) -> Heard:
    """The commands in what a client sent, oldest first. One that the agent answered, because the proxy was off then,
    is none."""
    past: set[int] = set()
    before = 0
    for at, message in enumerate(messages):
        if not command_in(message):
            if before and at not in past and not _is_added(message):
                before = 0
            continue
        behind = next((n for n in range(at + 1, len(messages)) if not _is_added(messages[n])), len(messages))
        if behind == len(messages):
            return Heard(frozenset(past), at, before)
        if messages[behind].role == "assistant" and _is_ours(messages[behind]):
            past |= {at, behind}
            before += 1
        elif messages[behind].role == "user":  # its answer never came
            past.add(at)
            before += 1
    return Heard(frozenset(past))


def _is_ours(message: Message) -> bool:
    said = message.text.strip()
    return not message.calls and (said.startswith(MARK) or not said)


def _is_added(message: Message) -> bool:
    """Whether the client added it to the user's words by itself."""
    return message.role in HEAD_ROLES or (
        message.role == "user" and "<" in message.text and not untagged(message.text, 4096)
    )


# ---------------------------------------------------------------------------------------------------------------- read
HELP = "help"
LOOKS = ("status", "tree", HELP)
"""What is only looked at."""

HOW: Mapping[str, str] = {
    "status": "what is active and what is planned",
    "tree": "all frames, drawn",
    "push TITLE | CRITERIA": "begin a frame under the active one",
    "plan TITLE; TITLE | CRITERIA; ...": "plan frames under the active one; `under FRAME: TITLE; ...` elsewhere",
    "activate FRAME": "begin a planned frame, resume a blocked one, try a failed one again",
    "pop STATUS RESULTS": "end the active frame as completed, failed or blocked",
    "invalidate FRAME | REASON": "a frame is no longer wanted, nor what is planned below it",
    "rename FRAME | TITLE | CRITERIA": "other words for a planned frame",
    "say TEXT": "tell the agent with its next request; `--to CONVERSATION TEXT` another one, `--follow-up` at its end",
    HELP: "this text",
}
"""How each command is written, and what it does."""


def help_text() -> str:
    """All commands, one a line."""
    width = max(map(len, HOW))
    rows = "\n".join(f"{WORD} {how.ljust(width)}  {what}" for how, what in HOW.items())
    ending = "CRITERIA, STATUS and RESULTS may be left away. FRAME is an id, its beginning, or a title."
    return f"Commands to the proxy. The agent does not see them:\n\n```\n{rows}\n```\n\n{ending}"


def read(said: str) -> Deed | Say | str:
    """What a command asks for: a deed, words for an agent, or one of `LOOKS`. Raises Unclear."""
    found = _COMMAND.fullmatch(said)
    verb = (found["verb"] or HELP).lower() if found else HELP
    rest = (found["rest"] or "").strip() if found else ""
    if verb in LOOKS:
        return verb
    if (reader := _READERS.get(verb)) is None:
        raise Unclear(f"There is no command {verb[:40]!r}. {help_text()}")
    return reader(rest)


def _push(rest: str) -> Deed:
    title, criteria = _split(rest, 2)
    return Push(Step(_needed(title, "push"), criteria))


def _plan(rest: str) -> Deed:
    parent = ""
    if under := re.match(r"under\s+(?P<frame>[^:]+):(?P<steps>.*)", rest, re.IGNORECASE):
        parent, rest = under["frame"].strip(), under["steps"]
    parts = (_split(part, 2) for part in rest.split(";") if part.strip())
    steps = tuple(Step(_needed(title, "plan"), criteria) for title, criteria in parts)
    if not steps:
        raise _unclear("plan")
    return Plan(steps, parent)


def _activate(rest: str) -> Deed:
    return Activate(_needed(rest, "activate"))


def _pop(rest: str) -> Deed:
    first, _, results = rest.partition(" ")
    if first.lower() in tuple(RETURNED):
        return Pop(status=first.lower(), results=results.strip())
    return Pop(results=rest)


def _invalidate(rest: str) -> Deed:
    frame, reason = _split(rest, 2)
    return Invalidate(_needed(frame, "invalidate"), _needed(reason, "invalidate"))


def _rename(rest: str) -> Deed:
    frame, title, criteria = _split(rest, 3)
    if not title and not criteria:
        raise _unclear("rename")
    return Rename(_needed(frame, "rename"), title, criteria)


def _say(rest: str) -> Say:
    found = _SAID.fullmatch(rest)
    if found is None or found["text"].startswith("--"):
        raise _unclear("say")
    options = found["options"].split()
    named = [after for option, after in pairwise(options) if option == "--to"]
    if len(named) > 1:
        raise _unclear("say")
    return Say(found["text"], "".join(named), "--follow-up" in options)


def _split(rest: str, most: int) -> list[str]:
    """What stands between bars; empty for what is not there."""
    parts = [part.strip() for part in rest.split("|", most - 1)]
    return parts + [""] * (most - len(parts))


def _needed(text: str, verb: str) -> str:
    if not text:
        raise _unclear(verb)
    return text


def _unclear(verb: str) -> Unclear:
    how = next(how for how in HOW if how.split()[0] == verb)
    return Unclear(f"Write it as `{WORD} {how}`. `{WORD} {HELP}` lists all commands.")


_READERS: Mapping[str, Callable[[str], Deed | Say]] = {
    "push": _push,
    "plan": _plan,
    "activate": _activate,
    "pop": _pop,
    "invalidate": _invalidate,
    "rename": _rename,
    "say": _say,
}
