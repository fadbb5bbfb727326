"""A line as one text: what is told first where there is little room, and in which order."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from proxy.core.context.message_list import build_context
from proxy.core.frames.events import ContextTrimmed, FramePushed, RootStarted
from proxy.core.recall.as_text import ContextPart, PartKind, context_parts, parts_as_text
from proxy.dialects import OPENAI_CHAT
from proxy.dialects.compose import DialectComposer
from tests.core.forest import LedgerBuilder, call, popped

WRITER = DialectComposer(OPENAI_CHAT, len)
PARTS = [
    ContextPart(PartKind.USER, "u1", 10),
    ContextPart(PartKind.TRACE, "t1", 10),
    ContextPart(PartKind.STEP, "s1", 10),
    ContextPart(PartKind.USER, "u2", 10),
    ContextPart(PartKind.STEP, "s2", 10),
    ContextPart(PartKind.STEP, "s3", 10),
]


@pytest.mark.parametrize(
    ("room", "told"),
    [
        (1_000, ["u1", "t1", "s1", "u2", "s2", "s3"]),
        (50, ["u1", "t1", "[1 older part is left out here]", "u2", "s2", "s3"]),
        (40, ["u1", "t1", "[1 older part is left out here]", "u2", "[1 older part is left out here]", "s3"]),
        (30, ["u1", "t1", "[1 older part is left out here]", "u2", "[2 older parts are left out here]"]),
        (15, ["[3 older parts are left out here]", "u2", "[2 older parts are left out here]"]),
        (0, ["[6 older parts are left out here]"]),
    ],
)
def test_the_users_words_go_first_then_what_work_left_then_the_newest_steps(room: int, told: list[str]) -> None:
    assert parts_as_text(PARTS, room).split("\n\n") == told


def test_a_long_step_hides_no_gap_behind_it() -> None:
    """What is newest stands without a gap: an older step that would still fit is left out."""
    parts = [PARTS[2], replace(PARTS[4], tokens=500), PARTS[5]]
    assert parts_as_text(parts, 100).split("\n\n") == ["[2 older parts are left out here]", "s3"]


def test_a_line_is_told_in_its_order_and_without_our_calls() -> None:
    """What a stack call was answered with is told, for it holds what a finished frame left; that it was called is not,
    nor the mark of our own texts."""
    talk = LedgerBuilder()
    talk.client("user", "add a login")
    talk.happens(RootStarted("froot", "Login", "It works."))
    talk.model(("I begin.", (call("p1", "stack_frame_plan"), call("c1", "read", path="a.py"))))
    talk.client("tool", "the whole of a.py", answers="c1")
    early = talk.model(("", (call("c2", "read", path="b.py"),)))
    gone = talk.client("tool", "the whole of b.py", answers="c2")
    last = talk.model(("That is all.", ()))
    talk.happens(
        ContextTrimmed((early, gone), '<stack-context nonce="0a1b">Read b.py.</stack-context>', early), last, 1
    )

    parts = context_parts(talk.story, build_context(talk.story, WRITER))

    assert [(part.kind, part.text) for part in parts] == [
        (PartKind.USER, "[user]\nadd a login"),
        (PartKind.STEP, '[assistant]\nI begin.\n[call of read] {"path": "a.py"}\n[result]\nthe whole of a.py'),
        (PartKind.TRACE, "[note of the proxy]\nanswer to p1"),
        (PartKind.TRACE, "[note of the proxy]\n<stack-context>Read b.py.</stack-context>"),
        (PartKind.STEP, "[assistant]\nThat is all."),
    ]


def test_what_the_user_said_in_finished_work_stands_in_front() -> None:
    """It left the line with its frame; what that left may quote it already."""
    talk = LedgerBuilder()
    talk.client("user", "add a login")
    talk.happens(RootStarted("froot", "Login", "It works."))
    push = talk.model(("", (call("p1", "stack_frame_push"),)))
    talk.happens(FramePushed("fauth", "froot", "Auth", "It works.", push, "p1", ""), push, 1)
    talk.client("user", "with passkeys, please")
    talk.model(("", (call("c1", "read"),)))
    pop = talk.model(("", (call("p2", "stack_frame_pop"),)))
    talk.happens(popped("fauth"), pop, 1)
    path_state = talk.story

    parts = context_parts(path_state, build_context(path_state, WRITER))

    users = [part.text for part in parts if part.kind is PartKind.USER]
    assert users == ["[user]\nwith passkeys, please", "[user]\nadd a login"]
