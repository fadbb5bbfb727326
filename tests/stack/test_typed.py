"""Which messages are commands to the proxy, and what they ask for (S0-36)."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.commands.command_values import Activate, Invalidate, Plan, Pop, Push, Rename, Step
from proxy.core.commands.parse_slash import HOW, LONGEST, MARK, Heard, Say, Unclear, command_in, heard, help_text, read
from proxy.core.ledger.messages import Call, Message, identity_of

pytestmark = pytest.mark.rows("S0-36")


def said(text: str, role: str = "user") -> Message:
    return Message(role, b"", identity_of(role, text), text)


A, B, C = said("build it"), said("done", "assistant"), said("go on")
STATUS, OURS = said("/stack status"), said(f"{MARK} one frame", "assistant")
THEIRS = said("I know no such command", "assistant")
REMINDER = said("<system-reminder>the date is today</system-reminder>")


@pytest.mark.parametrize(
    "text",
    [
        "/stack status",
        "  /stack status \n",
        "/stack",
        "/stack\tpush  A",
        "<system-reminder>the date</system-reminder>\n/stack status",
        "/stack status\n<system-reminder>\nmany\nlines\n</system-reminder>",
    ],
)
def test_a_whole_line_is_a_command_whatever_the_client_puts_around_it(text: str) -> None:
    assert command_in(said(text)).split()[0] == "/stack"


@pytest.mark.parametrize(
    "text",
    [
        "/stack status\nand more",
        "see /stack status",
        "/stacks status",
        "/ stack status",
        "`/stack status`",
        "/stack push " + "x" * LONGEST,
        '/stack push A{"image_url":{"url":"data:"},"type":"image_url"}',
        "",
    ],
)
def test_anything_more_is_the_users_text(text: str) -> None:
    assert command_in(said(text)) == ""


def test_nobody_else_types_commands() -> None:
    assert command_in(said("/stack status", "assistant")) == ""
    assert command_in(said("/stack status", "system")) == ""
    assert command_in(Message("tool", b"", "i", "/stack status", (), "call_1")) == ""


@pytest.mark.parametrize(
    ("messages", "found"),
    [
        ([A, B, C], Heard(frozenset())),
        ([A, B, STATUS], Heard(frozenset(), 2, 0)),
        ([STATUS], Heard(frozenset(), 0, 0)),
        ([A, B, STATUS, OURS, C], Heard(frozenset({2, 3}))),
        ([A, B, STATUS, OURS, STATUS], Heard(frozenset({2, 3}), 4, 1)),
        ([A, B, STATUS, OURS, C, STATUS], Heard(frozenset({2, 3}), 5, 0)),
        ([A, B, STATUS, STATUS], Heard(frozenset({2}), 3, 1)),
        ([A, B, STATUS, C], Heard(frozenset({2}))),
        ([A, B, STATUS, THEIRS, C], Heard(frozenset())),
        ([A, B, STATUS, REMINDER, OURS, REMINDER, STATUS, REMINDER], Heard(frozenset({2, 4}), 6, 1)),
        ([A, B, STATUS, said("", "assistant"), C], Heard(frozenset({2, 3}))),
    ],
)
def test_a_command_goes_with_its_answer_and_the_last_one_waits(messages: list[Message], found: Heard) -> None:
    assert heard(messages) == found


def test_an_answer_with_calls_is_the_agents() -> None:
    calling = Message("assistant", b"", "i", f"{MARK} ls", (Call("c", "bash", "{}"),))

    assert heard([A, B, STATUS, calling, C]) == Heard(frozenset())


READ = {
    "/stack": "help",
    "/stack Status": "status",
    "/stack tree of everything": "tree",
    "/stack push Fix the parser | its tests | pass": Push(Step("Fix the parser", "its tests | pass")),
    "/stack plan A; B | b works;; C": Plan((Step("A"), Step("B", "b works"), Step("C"))),
    "/stack plan under the parser: A; B": Plan((Step("A"), Step("B")), "the parser"),
    "/stack plan understand the code: first": Plan((Step("understand the code: first"),)),
    "/stack activate the parser": Activate("the parser"),
    "/stack pop": Pop(),
    "/stack pop failed no key": Pop(status="failed", results="no key"),
    "/stack pop it works": Pop(results="it works"),
    "/stack pop Blocked": Pop(status="blocked"),
    "/stack invalidate A | not needed": Invalidate("A", "not needed"),
    "/stack rename A | B": Rename("A", "B"),
    "/stack rename A | | c": Rename("A", "", "c"),
    "/stack say use tabs | --to me; now": Say("use tabs | --to me; now"),
    "/stack say --to c0ffee use tabs": Say("use tabs", "c0ffee"),
    "/stack say --follow-up\tthen push": Say("then push", follow_up=True),
    "/stack say --follow-up --to c0ffee then push": Say("then push", "c0ffee", follow_up=True),
}


@pytest.mark.parametrize("command", READ)
def test_what_is_typed_is_read(command: str) -> None:
    assert read(command) == READ[command]


@given(st.text())
def test_whatever_is_typed_is_read_or_answered(text: str) -> None:
    command = command_in(said(f"/stack {text}"))
    if not command:
        return
    with suppress(Unclear):
        assert read(command)


def test_help_names_every_command_and_each_of_them_is_read() -> None:
    for how in HOW:
        assert f"/stack {how}" in help_text()
        assert read(f"/stack {how.replace('STATUS', 'failed')}") is not None
