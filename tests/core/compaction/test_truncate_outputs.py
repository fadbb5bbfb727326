"""Outputs told in fewer words, by values: what may change, what never does, and when nothing does."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.core.compaction.truncate_outputs import (
    CLEARED_PREFIX,
    MIN_SAVED_TOKENS,
    PROTECTED_TOKENS,
    OutputRules,
    clear_old_outputs,
    cut_long_outputs,
    cut_middle,
    estimate_output_tokens,
)
from proxy.core.context.message_list import Context, build_context, unpaired_calls
from proxy.core.frames.events import ContextTrimmed, ResultReplaced, RootStarted
from proxy.core.frames.path_state import PathState
from proxy.core.ledger.messages import Call, Message
from proxy.core.observers.observe_step import DEFAULT_TOOL_ROLES
from proxy.core.tools.stack_tool_list import run
from proxy.dialects import OPENAI_CHAT
from proxy.dialects.compose import DialectComposer
from tests.core.forest import LedgerBuilder, call, count

WRITER = DialectComposer(OPENAI_CHAT, count)
TOKEN = 4
"""Characters, as pruning estimates."""


class Wired(LedgerBuilder):
    """A talk whose results have bytes that a dialect can rewrite."""

    def tells(self, *events: ResultReplaced | ContextTrimmed) -> None:
        """Events at the newest message of the client's: what is decided about a request hangs there."""
        at = next(e.id for e in reversed(self.ledger.path(self.tip)) if e.message)
        for event in events:
            self.happens(event, at)

    def client(self, role: str, text: str, answers: str = "", adopts: str = "") -> str:
        entry = super().client(role, text, answers, adopts)
        known = self.ledger.entries[entry]
        message = OPENAI_CHAT.tool_result(answers, text) if role == "tool" else OPENAI_CHAT.user_message(text)
        weighed = replace(message, tokens=count(text[:10_000]) * max(1, len(text) // 10_000))
        self.ledger.entries[entry] = replace(known, message=weighed)
        return entry


def worked(*outputs: str, calls: list[Call] | None = None, answered: bool = True) -> Wired:
    """A talk in which the model got these outputs, one a turn, and answered to the last."""
    talk = Wired()
    talk.client("user", "read them all")
    talk.happens(RootStarted("froot", "Read", "All are read."))
    for number, text in enumerate(outputs):
        made = calls[number] if calls else call(f"c{number}", "read", path=f"src/file{number}.py")
        talk.model(("", (made,)))
        talk.client("tool", text, answers=made.id)
    if answered:
        talk.model(("I see.", ()))
    return talk


def outputs_of(*tokens: int) -> list[str]:
    return ["word" * n for n in tokens]


def line_of(talk: LedgerBuilder) -> Context:
    return build_context(talk.story, WRITER)


def found_in(talk: LedgerBuilder) -> tuple[ResultReplaced, ...]:
    return clear_old_outputs(talk.story, line_of(talk))


# ------------------------------------------------------------------------------------------------------------ when
def test_what_the_client_sent_last_is_not_old_behind_rounds_that_it_does_not_see() -> None:
    """L4: three results of one message, 90,000 tokens together, while the model recalls something."""
    talk = Wired()
    talk.client("user", "read them all")
    talk.happens(RootStarted("froot", "Read", "All are read."))
    talk.model(("", tuple(call(f"c{n}", "read", path=f"src/file{n}.py") for n in range(3))))
    for number, text in enumerate(outputs_of(30_000, 30_000, 30_000)):
        talk.client("tool", text, answers=f"c{number}")
    talk.begun(("", (call("r", "stack_recall", ref="froot"),)))

    assert found_in(talk) == ()


@pytest.mark.proves("S4-31")
@pytest.mark.rows("S4-30", "S4-31")
def test_the_newest_outputs_are_spared_and_less_than_the_minimum_is_not_worth_it() -> None:
    """S4-30, S4-31: 59,000 tokens of outputs stay as they are, of 61,000 the oldest go."""
    assert found_in(worked(*outputs_of(19_000, 20_000, 20_000))) == ()
    cleared = found_in(worked(*outputs_of(21_500, 19_500, 20_000)))
    assert [e.why for e in cleared] == ["pruned"]
    assert "src/file0.py" in cleared[0].text


@pytest.mark.rows("S4-30")
def test_forty_one_thousand_tokens_of_outputs_make_the_oldest_a_candidate() -> None:
    """S4-30: it is the output that reaches over the border, and it must save enough by itself."""
    [event] = found_in(worked(*outputs_of(PROTECTED_TOKENS + 1_000, 1_000)))
    assert "src/file0.py" in event.text


@pytest.mark.rows("S4-32", "C15")
def test_what_was_cleared_is_passed_over_the_next_time() -> None:
    """S4-32, C15: the walk goes on behind it."""
    talk = worked(*outputs_of(30_000, 30_000, 20_000, 20_000))
    first = {e.entry for e in found_in(talk)}
    talk.tells(*found_in(talk))
    assert found_in(talk) == ()
    for number in (7, 8):
        made = call(f"c{number}", "read", path=f"src/file{number}.py")
        talk.model(("", (made,)))
        talk.client("tool", outputs_of(20_000)[0], answers=made.id)
    talk.model(("I see.", ()))
    again = {e.entry for e in found_in(talk)}
    assert (len(first), len(again), first & again) == (2, 2, set())


@pytest.mark.rows("S4-32")
def test_what_stands_before_a_trace_is_left_alone() -> None:
    """S4-32: a summary is where the walk stops."""
    talk = worked(*outputs_of(30_000, 30_000, 20_000, 20_000))
    third = talk.ledger.path(talk.tip)[6].id
    talk.tells(ContextTrimmed((), "trace", third))
    assert found_in(talk) == ()


def test_an_output_that_the_model_has_not_read_is_never_cleared() -> None:
    talk = worked(*outputs_of(10_000, 90_000), answered=False)
    assert [e.text.count("file1") for e in found_in(talk)] == []


def test_results_of_our_own_tools_are_never_cleared() -> None:
    """H8: what was recalled stays."""
    recalls = [call(f"c{n}", "stack_recall", ref="f1") for n in range(4)]
    assert found_in(worked(*outputs_of(30_000, 30_000, 20_000, 20_000), calls=recalls)) == ()


# ---------------------------------------------------------------------------------------------------------- breadcrumb
@pytest.mark.rows("X-17", "S2-12")
def test_the_path_that_a_configured_tool_read_is_told() -> None:
    """X-17, S2-12: however far back it stands in the arguments."""
    calls = [call(f"c{n}", "fetch_text", reason="because " * 40, target=f"src/file{n}.py") for n in range(4)]
    talk = worked(*outputs_of(30_000, 30_000, 20_000, 20_000), calls=calls)
    names = DEFAULT_TOOL_ROLES.with_entries({"fetch_text": {"role": "read", "arguments": ["target"]}})

    crumbs = [event.text for event in clear_old_outputs(talk.story, line_of(talk), OutputRules((), names))]

    assert len(crumbs) == 2
    assert all(f"fetch_text src/file{n}.py: 1 lines" in crumb for n, crumb in zip((1, 0), crumbs, strict=True))


@pytest.mark.rows("S2-12", "S2-13", "S2-14", "S4-33", "S4-34")
def test_a_breadcrumb_tells_what_was_there_and_recall_gives_it_back() -> None:
    """S2-12 to S2-14, S4-33, S4-34: phrase, tool, path, names, exit code, size, ref; the stored text is untouched."""
    log = "tests/shop/test_cart.py::test_total FAILED\nCartError in add_to_cart\n" + "....\n" * 40_000 + "exit code: 1"
    made = [call("c0", "bash", command="pytest -q"), *(call(f"c{n}", "read", path=f"f{n}.py") for n in (1, 2))]
    talk = worked(log, *outputs_of(20_000, 20_000), calls=made)
    [event] = found_in(talk)
    assert event.text.startswith(CLEARED_PREFIX)
    for word in (
        "bash",
        "pytest -q",
        "tests/shop/test_cart.py",
        "CartError",
        "add_to_cart",
        "exit code 1",
        "40,003 lines",
    ):
        assert word in event.text
    assert estimate_output_tokens(event.text) < 200
    talk.tells(event)
    assert event.text in [m.text for m in line_of(talk).messages]
    ref = event.text.rpartition('ref="')[2].rstrip('"')
    answer = run(talk.desk(line_of(talk).entries), call("r", "stack_recall", ref=ref)).text
    assert "test_total FAILED" in answer


@pytest.mark.rows("S0-55")
def test_a_breadcrumb_says_that_its_file_was_read_again() -> None:
    parts: tuple[dict[str, int], ...] = ({}, {"offset": 5}, {}, {}, {})
    paths = ("src/a.py", "src/a.py", "b.py", "b.py", "/repo/src/a.py")
    made = [call(f"c{n}", "read", path=paths[n], **parts[n]) for n in range(5)]
    talk = worked(*outputs_of(30_000, 30_000, 30_000, 35_000, 1_000), calls=made)

    told = {event.entry: "; read again later; all of it: " in event.text for event in found_in(talk)}

    results = [e.id for e in talk.ledger.entries.values() if e.message and e.message.role == "tool"]
    assert told == dict.fromkeys(results[:3], True)
    for offset in (9, 5):
        again = call("c9", "read", path="src/a.py", offset=offset)
        talk = worked(*outputs_of(30_000, 30_000, 35_000), calls=[made[1], made[2], again])
        said = ["read again" in event.text for event in found_in(talk)]
        assert sorted(said) == [False, offset == 5], "only the same part of a file is a newer copy"


# ----------------------------------------------------------------------------------------------------------------- cut
@pytest.mark.rows("S4-64")
def test_one_output_too_long_for_the_line_keeps_its_ends_and_its_ref() -> None:
    """L4, S4-64: half a megabyte, cut to the cap; what is left out is recalled."""
    text = "BEGINNING\n" + "".join(f"row {n} of the dump\n" for n in range(25_000)) + "the END"
    talk = worked("short", text, answered=False)
    [event] = cut_long_outputs(talk.story, 8_000, count)
    assert event.text.startswith("BEGINNING")
    assert event.text.endswith("the END")
    assert 7_000 < count(event.text) <= 8_000
    head, _, tail = event.text.partition("\n[")
    assert 1.3 < len(head) / len(tail) < 1.7
    assert f"of {len(text):,} characters" in tail
    talk.tells(event)
    assert cut_long_outputs(talk.story, 8_000, count) == ()
    line = line_of(talk)
    assert line.messages[-1].text == event.text
    assert line.messages[-1].answers == "c1"
    tool_context = talk.desk(line.entries)
    ref = tail.partition('ref="')[2].partition('"')[0]
    assert (
        "row 12000 of the dump"
        in run(tool_context, call("r", "stack_recall", ref=ref, query="row 12000 of the dump")).text
    )


def test_only_new_outputs_are_cut_and_only_those_over_the_cap() -> None:
    talk = worked(*outputs_of(9_000), answered=True)
    assert cut_long_outputs(talk.story, 1_000, count) == ()
    waiting = worked("a " * 900, answered=False)
    assert cut_long_outputs(waiting.story, 1_000, count) == ()
    user = Wired()
    user.client("user", "a " * 9_000)
    assert cut_long_outputs(user.story, 1_000, count) == ()


@given(st.text(max_size=3_000), st.integers(1, 400))
def test_a_cut_is_the_same_always_and_never_longer_than_the_cap(text: str, cap: int) -> None:
    once = cut_middle(text, count(text), cap, "ref", count)
    assert once == cut_middle(text, count(text), cap, "ref", count)
    assert count(once) <= cap or once.startswith("\n[") or count(text) <= cap


# ---------------------------------------------------------------------------------------------------------------- laws
sizes = st.lists(st.integers(1, 40_000), min_size=1, max_size=8)


@given(sizes, st.booleans())
def test_nothing_but_old_outputs_changes(tokens: list[int], answered: bool) -> None:
    """L1, L2: the same messages at the same places, calls with their results; what is not cleared is its bytes."""
    talk = worked(*outputs_of(*tokens), answered=answered)
    before = line_of(talk)
    events = found_in(talk)
    for event in events:
        talk.tells(event)
    after = line_of(talk)
    texts = {e.text for e in events}
    assert unpaired_calls(after.messages) == ()
    assert [(m.role, m.answers, m.calls) for m in before.messages] == [
        (m.role, m.answers, m.calls) for m in after.messages
    ]
    changed = [(b, a) for b, a in zip(before.messages, after.messages, strict=True) if a.wire != b.wire]
    assert {a.text for _, a in changed} == texts
    assert all(b.role == "tool" for b, _ in changed)
    assert (
        not events
        or sum(estimate_output_tokens(b.text) - estimate_output_tokens(a.text) for b, a in changed) > MIN_SAVED_TOKENS
    )
    outputs = [(b, a) for b, a in zip(before.messages, after.messages, strict=True) if b.role == "tool"]
    spared = list(accumulate(estimate_output_tokens(b.text) for b, _ in reversed(outputs)))
    for (was, now), newer in zip(reversed(outputs), spared, strict=True):
        assert was.wire == now.wire or newer > PROTECTED_TOKENS


def test_an_empty_talk_has_nothing_to_clear() -> None:
    assert clear_old_outputs(PathState(), Context((Message("user", b"{}", ""),), frozenset(), frozenset())) == ()
