"""Which messages are commands to the proxy, and what they ask for (S0-36)."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.commands.command_values import (
    ActivateCommand,
    FrameSpec,
    InvalidateCommand,
    PlanCommand,
    PopCommand,
    PushCommand,
    RenameCommand,
)
from proxy.core.commands.parse_slash import (
    ANSWER_MARK,
    MAX_COMMAND_CHARACTERS,
    SLASH_COMMANDS,
    CommandPositions,
    InvalidCommand,
    SayCommand,
    command_text,
    find_commands,
    help_text,
    parse,
)
from proxy.core.ledger.messages import Call, Message, identity_of

pytestmark = pytest.mark.rows("S0-36")


def said(text: str, role: str = "user") -> Message:
    return Message(role, b"", identity_of(role, text), text)


def blocks_of(message: Message) -> tuple[str, ...]:
    """Every paragraph is a block."""
    return tuple(message.text.split("\n\n"))


A, B, C = said("build it"), said("done", "assistant"), said("go on")
STATUS, OURS = said("/stack status"), said(f"{ANSWER_MARK} one frame", "assistant")
THEIRS = said("I know no such command", "assistant")
CALLING = Message("assistant", b"", "i", "", (Call("c", "bash", "{}"),))
RESULT = Message("tool", b"", "r", "a.py", (), "c")
REMINDER = said("<system-reminder>the date is today</system-reminder>")


@pytest.mark.parametrize(
    "text",
    [
        "/stack status",
        "  /stack status \n",
        "/stack",
        "/stack\tpush  A",
        "<system-reminder>the date</system-reminder>\n\n/stack status",
        "/stack status\n\n<system-reminder>\nmany\nlines\n</system-reminder>",
        "<system-reminder>a</system-reminder>\n<hook-context>b</hook-context>\n\n/stack status",
        '"/stack status"',
    ],
)
def test_a_whole_line_is_a_command_whatever_blocks_the_client_puts_around_it(text: str) -> None:
    assert command_text(said(text), blocks_of).split()[0] == "/stack"


@pytest.mark.parametrize(
    "text",
    [
        "/stack status\nand more",
        "see /stack status",
        "/stacks status",
        "/ stack status",
        "`/stack status`",
        '"/stack status" and more',
        "/stack push " + "x" * MAX_COMMAND_CHARACTERS,
        "",
        "<system-reminder>the date</system-reminder>\n/stack status",
        "/stack status\n<system-reminder>the date</system-reminder>",
        "<system-reminder>\n\n/stack status",
        "<system-reminder>\n\n/stack status\n\n</system-reminder>",
        "<system-reminder>a</system-reminder> and\n\n/stack status",
        "/stack say a</system-reminder>",
        "/stack say a\n\n/stack say b",
    ],
)
def test_anything_more_is_the_users_text(text: str) -> None:
    assert command_text(said(text), blocks_of) == ""


def test_what_is_not_only_text_is_no_command() -> None:
    assert command_text(said("/stack status"), lambda _: ()) == ""


def test_nobody_else_types_commands() -> None:
    assert command_text(said("/stack status", "assistant"), blocks_of) == ""
    assert command_text(said("/stack status", "system"), blocks_of) == ""
    assert command_text(Message("tool", b"", "i", "/stack status", (), "call_1"), blocks_of) == ""


@pytest.mark.parametrize(
    ("messages", "found"),
    [
        ([A, B, C], CommandPositions(frozenset())),
        ([A, B, STATUS], CommandPositions(frozenset(), 2, 0)),
        ([STATUS], CommandPositions(frozenset(), 0, 0)),
        ([A, B, STATUS, OURS, C], CommandPositions(frozenset({2, 3}))),
        ([A, B, STATUS, OURS, STATUS], CommandPositions(frozenset({2, 3}), 4, 1)),
        ([A, B, STATUS, OURS, C, STATUS], CommandPositions(frozenset({2, 3}), 5, 0)),
        ([A, B, STATUS, STATUS], CommandPositions(frozenset({2}), 3, 1)),
        ([A, B, STATUS, C], CommandPositions(frozenset({2}))),
        ([A, B, STATUS, THEIRS, C], CommandPositions(frozenset())),
        ([A, B, STATUS, REMINDER, OURS, REMINDER, STATUS, REMINDER], CommandPositions(frozenset({2, 4}), 6, 1)),
        ([A, B, STATUS, said("", "assistant"), C], CommandPositions(frozenset({2, 3}))),
        ([A, CALLING, RESULT, STATUS], CommandPositions(frozenset())),
        ([A, CALLING, RESULT, REMINDER, C, STATUS], CommandPositions(frozenset())),
        ([A, CALLING, said("an item of no known kind", "item"), STATUS], CommandPositions(frozenset())),
        ([A, CALLING, RESULT, STATUS, B, STATUS], CommandPositions(frozenset(), 5, 0)),
    ],
)
def test_a_command_goes_with_its_answer_and_the_last_one_waits(
    messages: list[Message], found: CommandPositions
) -> None:
    assert find_commands(messages, blocks_of) == found


def test_an_answer_with_calls_is_the_agents() -> None:
    calling = Message("assistant", b"", "i", f"{ANSWER_MARK} ls", (Call("c", "bash", "{}"),))

    assert find_commands([A, B, STATUS, calling, C], blocks_of) == CommandPositions(frozenset())


READ = {
    "/stack": "help",
    "/stack Status": "status",
    "/stack tree of everything": "tree",
    "/stack push Fix the parser | its tests | pass": PushCommand(FrameSpec("Fix the parser", "its tests | pass")),
    "/stack plan A; B | b works;; C": PlanCommand((FrameSpec("A"), FrameSpec("B", "b works"), FrameSpec("C"))),
    "/stack plan under the parser: A; B": PlanCommand((FrameSpec("A"), FrameSpec("B")), "the parser"),
    "/stack plan understand the code: first": PlanCommand((FrameSpec("understand the code: first"),)),
    "/stack activate the parser": ActivateCommand("the parser"),
    "/stack pop": PopCommand(),
    "/stack pop failed no key": PopCommand(status="failed", results="no key"),
    "/stack pop it works": PopCommand(results="it works"),
    "/stack pop Blocked": PopCommand(status="blocked"),
    "/stack invalidate A | not needed": InvalidateCommand("A", "not needed"),
    "/stack rename A | B": RenameCommand("A", "B"),
    "/stack rename A | | c": RenameCommand("A", "", "c"),
    "/stack say use tabs | --to me; now": SayCommand("use tabs | --to me; now"),
    "/stack say --follow-up\tthen push": SayCommand("then push", is_follow_up=True),
}


@pytest.mark.parametrize("command", READ)
def test_what_is_typed_is_read(command: str) -> None:
    assert parse(command) == READ[command]


@given(st.text())
def test_whatever_is_typed_is_read_or_answered(text: str) -> None:
    command = command_text(said(f"/stack {text}"), blocks_of)
    if not command:
        return
    with suppress(InvalidCommand):
        assert parse(command)


def test_help_names_every_command_and_each_of_them_is_read() -> None:
    for command in SLASH_COMMANDS:
        assert f"/stack {command.usage}" in help_text()
        assert parse(f"/stack {command.usage.replace('STATUS', 'failed')}") is not None
