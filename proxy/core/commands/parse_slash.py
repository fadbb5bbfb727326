"""Finds and parses the commands that a person types as a message, such as `/stack push Fix the parser`.

Tool outputs, files and web pages are data, and must never speak as the person. So a command is a whole text block of
one line, in a message that holds nothing else but whole elements of the client (`<system-reminder>` and the like), and
no tool result may stand between it and the last assistant message. Quotes around it are the client's. Any other text
belongs to the agent. Answers of the proxy are recognised by `ANSWER_MARK`, because clients send them back with every
later request.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import msgspec

from proxy.core.commands.command_values import (
    ActivateCommand,
    FrameCommand,
    FrameSpec,
    InvalidateCommand,
    PlanCommand,
    PopCommand,
    PushCommand,
    RenameCommand,
)
from proxy.core.frames import RETURN_STATUSES
from proxy.core.ledger import INSTRUCTION_ROLES, Message
from proxy.core.observers import has_client_tag, is_client_elements, without_client_elements, without_quotes_around

COMMAND_WORD = "/stack"
ANSWER_MARK = "[callstack]"  # begins each answer to a command
MAX_COMMAND_CHARACTERS = 4_000  # a longer text is no command
MAX_MESSAGE_CHARACTERS = 200_000  # of a message, client additions included; longer ones are not searched

_COMMAND = re.compile(rf"{COMMAND_WORD}(?:[ \t]+(?P<verb>\S+)(?:[ \t]+(?P<rest>\S.*))?)?[ \t]*")
_POSSIBLE_COMMAND = re.compile(rf"{COMMAND_WORD}(?=[\s<]|\Z)")
"""Cheap pre-check, because every request carries its whole history; paths contain the word too."""
_SAY_ARGUMENTS = re.compile(r"(?P<options>(?:--follow-up[ \t]+)*)(?P<text>\S.*)")
_SAY_TARGET = re.compile(r"(?:--follow-up[ \t]+)*--to(?:[ \t]|\Z)")
OTHER_CONVERSATION_TEXT = (
    "A chat reaches only its own agent: a text that another agent reads could otherwise send words in your name. "
    "Say it in a terminal: `callstack say CONVERSATION TEXT`."
)
BlocksOf = Callable[[Message], Sequence[str]]
"""The text blocks of a client's message; none where something else than text stands in it or beside it."""


class SayCommand(msgspec.Struct, frozen=True):
    """Words for the agent of this conversation. A follow-up waits until the model has finished."""

    text: str
    is_follow_up: bool = False


class InvalidCommand(Exception):
    """The command cannot be understood; the message shows its usage."""


class CommandPositions(msgspec.Struct, frozen=True):
    """Positions of commands and their answers; `pending` is the unanswered command at the end, or -1, and
    `preceding_count` counts the commands between that one and the last message that belongs to the agent."""

    handled: frozenset[int]
    pending: int = -1
    preceding_count: int = 0


def command_text(message: Message, blocks_of: BlocksOf) -> str:
    """The command in a message, on one line; empty without one."""
    text = message.text
    if message.role != "user" or message.answers or len(text) > MAX_MESSAGE_CHARACTERS:
        return ""
    if COMMAND_WORD not in text or not _POSSIBLE_COMMAND.search(text):  # the first is faster, and mostly enough
        return ""
    own_blocks = [block for block in map(str.strip, blocks_of(message)) if block and not is_client_elements(block)]
    if len(own_blocks) != 1:
        return ""
    command = without_quotes_around(own_blocks[0])
    is_command = (
        len(command) <= MAX_COMMAND_CHARACTERS
        and _COMMAND.fullmatch(command) is not None
        and not has_client_tag(command)
    )
    return command if is_command else ""


def find_commands(messages: Sequence[Message], blocks_of: BlocksOf) -> CommandPositions:
    """The commands in a client's messages, oldest first. A command that the agent answered (the proxy was off) is not
    counted."""
    handled: set[int] = set()
    preceding_count = 0
    behind_results = False
    for index, message in enumerate(messages):
        # Whatever neither a person, the model nor the client says counts as a result.
        is_result = message.answers or message.role not in ("assistant", "user", *INSTRUCTION_ROLES)
        behind_results = message.role != "assistant" and bool(behind_results or is_result)
        if behind_results or not command_text(message, blocks_of):
            if preceding_count and index not in handled and not _is_added_by_client(message):
                preceding_count = 0
            continue
        next_index = next(
            (n for n in range(index + 1, len(messages)) if not _is_added_by_client(messages[n])), len(messages)
        )
        if next_index == len(messages):
            return CommandPositions(frozenset(handled), index, preceding_count)
        if messages[next_index].role == "assistant" and _is_proxy_answer(messages[next_index]):
            handled |= {index, next_index}
            preceding_count += 1
        elif messages[next_index].role == "user":  # its answer never came
            handled.add(index)
            preceding_count += 1
    return CommandPositions(frozenset(handled))


def _is_proxy_answer(message: Message) -> bool:
    text = message.text.strip()
    return not message.calls and (text.startswith(ANSWER_MARK) or not text)


def _is_added_by_client(message: Message) -> bool:
    return message.role in INSTRUCTION_ROLES or (
        message.role == "user" and "<" in message.text and not without_client_elements(message.text, 4096)
    )


HELP = "help"
Reading = FrameCommand | SayCommand | None
"""What the text behind the name of a command asks for; None where something is missing."""


class SlashCommand(msgspec.Struct, frozen=True):
    """One command: how it is written, what it does, and how the text behind its name is read. Without `read` it only
    looks."""

    usage: str
    purpose: str
    read: Callable[[str], Reading] | None = None


def help_text() -> str:
    width = max(len(row.usage) for row in SLASH_COMMANDS)
    rows = "\n".join(f"{COMMAND_WORD} {row.usage.ljust(width)}  {row.purpose}" for row in SLASH_COMMANDS)
    ending = "CRITERIA, STATUS and RESULTS may be left away. FRAME is an id, its beginning, or a title."
    return f"Commands to the proxy. The agent does not see them:\n\n```\n{rows}\n```\n\n{ending}"


def parse(command: str) -> FrameCommand | SayCommand | str:
    """The command in a text: a frame command, words for an agent, or the name of a command that only looks. Raises
    InvalidCommand."""
    match = _COMMAND.fullmatch(command)
    verb = (match["verb"] or HELP).lower() if match else HELP
    rest = (match["rest"] or "").strip() if match else ""
    if (row := _COMMANDS_BY_NAME.get(verb)) is None:
        raise InvalidCommand(f"There is no command {verb[:40]!r}. {help_text()}")
    if row.read is None:
        return verb
    if (asked := row.read(rest)) is None:
        raise InvalidCommand(f"Write it as `{COMMAND_WORD} {row.usage}`. `{COMMAND_WORD} {HELP}` lists all commands.")
    return asked


def _parse_push(rest: str) -> Reading:
    title, criteria = _split_fields(rest, 2)
    return PushCommand(FrameSpec(title, criteria)) if title else None


def _parse_plan(rest: str) -> Reading:
    parent = ""
    if under := re.match(r"under\s+(?P<frame>[^:]+):(?P<steps>.*)", rest, re.IGNORECASE):
        parent, rest = under["frame"].strip(), under["steps"]
    fields = (_split_fields(part, 2) for part in rest.split(";") if part.strip())
    steps = tuple(FrameSpec(title, criteria) for title, criteria in fields)
    return PlanCommand(steps, parent) if steps and all(step.title for step in steps) else None


def _parse_pop(rest: str) -> Reading:
    first, _, results = rest.partition(" ")
    if first.lower() in tuple(RETURN_STATUSES):
        return PopCommand(status=first.lower(), results=results.strip())
    return PopCommand(results=rest)


def _parse_invalidate(rest: str) -> Reading:
    frame, reason = _split_fields(rest, 2)
    return InvalidateCommand(frame, reason) if frame and reason else None


def _parse_rename(rest: str) -> Reading:
    frame, title, criteria = _split_fields(rest, 3)
    return RenameCommand(frame, title, criteria) if frame and (title or criteria) else None


def _parse_say(rest: str) -> Reading:
    """Raises InvalidCommand where another conversation is meant."""
    if _SAY_TARGET.match(rest):
        raise InvalidCommand(OTHER_CONVERSATION_TEXT)
    match = _SAY_ARGUMENTS.fullmatch(rest)
    if match is None or match["text"].startswith("--"):
        return None
    return SayCommand(match["text"], "--follow-up" in match["options"].split())


def _split_fields(rest: str, count: int) -> list[str]:
    """The parts between bars, padded with empty ones."""
    fields = [part.strip() for part in rest.split("|", count - 1)]
    return fields + [""] * (count - len(fields))


SLASH_COMMANDS = (
    SlashCommand("status", "what is active and what is planned"),
    SlashCommand("tree", "all frames, drawn"),
    SlashCommand("push TITLE | CRITERIA", "begin a frame under the active one", _parse_push),
    SlashCommand(
        "plan TITLE; TITLE | CRITERIA; ...",
        "plan frames under the active one; `under FRAME: TITLE; ...` elsewhere",
        _parse_plan,
    ),
    SlashCommand(
        "activate FRAME",
        "begin a planned frame, resume a blocked one, try a failed one again",
        lambda rest: ActivateCommand(rest) if rest else None,
    ),
    SlashCommand("pop STATUS RESULTS", "end the active frame as completed, failed or blocked", _parse_pop),
    SlashCommand(
        "invalidate FRAME | REASON", "a frame is no longer wanted, nor what is planned below it", _parse_invalidate
    ),
    SlashCommand("rename FRAME | TITLE | CRITERIA", "other words for a planned frame", _parse_rename),
    SlashCommand(
        "say TEXT",
        "tell the agent with its next request; `--follow-up TEXT` when it has nothing more to do",
        _parse_say,
    ),
    SlashCommand(HELP, "this text"),
)
_COMMANDS_BY_NAME = {row.usage.partition(" ")[0]: row for row in SLASH_COMMANDS}
