"""How much of a tool's outputs is told, by rule: which rule counts, and what it changes (S2-44)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.compaction.one_line_outputs import plan_one_line_outputs
from proxy.core.compaction.truncate_outputs import (
    CLEARED_PREFIX,
    OutputRule,
    OutputRules,
    clear_old_outputs,
    cut_long_outputs,
)
from proxy.core.ledger.messages import Call
from proxy.core.observers.tool_roles import DEFAULT_TOOL_ROLES
from tests.core.compaction.test_one_line_outputs import Weighed, ran
from tests.core.compaction.test_truncate_outputs import line_of, outputs_of, worked
from tests.core.forest import call, count
from tests.core.working import moment

pytestmark = pytest.mark.rows("S2-44")


def rules(*made: OutputRule) -> OutputRules:
    return OutputRules(made)


def calls_of(*tools: str) -> list[Call]:
    return [call(f"c{number}", tool, path=f"src/file{number}.py") for number, tool in enumerate(tools)]


@pytest.mark.parametrize(
    ("tool", "rule"),
    [
        ("grep", "grep"),
        ("mcp__disk__Grep", "grep"),
        ("web_search", "*search*"),
        ("codebase_search", "*search*"),
        ("view", "read"),
        ("mcp__disk__Read_File", "read"),
        ("bash", "shell"),
        ("shell", "shell"),
        ("deploy", "execute"),
        ("unknown", None),
        ("", None),
    ],
)
def test_the_own_name_goes_before_a_pattern_and_that_before_the_role(tool: str, rule: str | None) -> None:
    """Wherever they stand."""
    names = DEFAULT_TOOL_ROLES.with_entries({"deploy": "shell"})
    made = [OutputRule(name, tail=1) for name in ("read", "shell", "*search*", "*re*p", "grep", "execute")]
    own = OutputRules([*made, OutputRule("deploy*", tail=1)] if tool != "deploy" else made, names)

    found = own.rule_for(tool)

    assert (found.name if found else None) == (rule if tool != "deploy" else "shell")


def test_a_new_output_is_cut_at_the_cap_of_its_rule() -> None:
    talk = worked("a " * 3_000, calls=calls_of("bash"), answered=False)

    def tokens(cap: int, most: int, *made: OutputRule) -> list[int]:
        return [count(event.text) for event in cut_long_outputs(talk.story, cap, count, rules(*made), most)]

    assert tokens(0, 0, OutputRule("shell", cap=500)) == [pytest.approx(500, rel=0.1)]
    assert tokens(1_000, 0, OutputRule("shell", cap=2_000)) == [pytest.approx(2_000, rel=0.1)]
    assert tokens(1_000, 0, OutputRule("read", cap=500)) == tokens(1_000, 0) == [pytest.approx(1_000, rel=0.1)]
    assert tokens(1_000, 0, OutputRule("shell", keep_whole=True)) == []
    assert tokens(1_000, 0, OutputRule("shell", tail=5)) == [pytest.approx(1_000, rel=0.1)]


@pytest.mark.parametrize("rule", [OutputRule("shell", keep_whole=True), OutputRule("shell", cap=5_000)])
def test_no_rule_lets_an_output_fill_the_window(rule: OutputRule) -> None:
    talk = worked("a " * 3_000, calls=calls_of("bash"), answered=False)

    (event,) = cut_long_outputs(talk.story, 1_000, count, rules(rule), 1_500)

    assert count(event.text) <= 1_500


def test_what_is_kept_whole_is_not_cleared_and_the_others_are() -> None:
    talk = worked(*outputs_of(25_000, 25_000, 20_000, 19_000), calls=calls_of("read", "bash", "bash", "bash"))
    line = line_of(talk)

    assert len(clear_old_outputs(talk.story, line)) == 2
    (event,) = clear_old_outputs(talk.story, line, rules(OutputRule("read", keep_whole=True)))
    assert "bash" in event.text


def test_beginning_and_end_stay_below_the_breadcrumb() -> None:
    first = "HEAD" * 10 + "middle " * 20_000 + "TAIL" * 20
    talk = worked(first, *outputs_of(19_000, 20_000), calls=calls_of("bash", "read", "read"))
    line = line_of(talk)
    (plain,) = clear_old_outputs(talk.story, line)

    (event,) = clear_old_outputs(talk.story, line, rules(OutputRule("shell", head=10, tail=20)))

    assert plain.text.startswith(CLEARED_PREFIX)
    assert event.text == f"{plain.text}\n[its beginning:]\n{'HEAD' * 10}\n[its end:]\n{'TAIL' * 20}"
    talk.tells(event)
    assert clear_old_outputs(talk.story, line_of(talk), rules(OutputRule("shell", tail=5))) == ()


def test_what_a_rule_leaves_longer_than_it_was_stays_as_it_is() -> None:
    talk = worked(*outputs_of(25_000, 19_000, 20_000), calls=calls_of("bash", "read", "read"))

    assert len(clear_old_outputs(talk.story, line_of(talk))) == 1
    assert clear_old_outputs(talk.story, line_of(talk), rules(OutputRule("shell", head=30_000))) == ()


@given(text=st.text(max_size=200), head=st.integers(0, 60), tail=st.integers(0, 60))
def test_what_stays_is_the_beginning_and_the_end_and_nothing_twice(text: str, head: int, tail: int) -> None:
    begins, ends = OutputRule("x", head=head, tail=tail).head_and_tail(text)

    assert text.startswith(begins)
    assert text.endswith(ends)
    assert len(begins) <= head * 4
    assert len(ends) <= tail * 4
    assert len(begins) + len(ends) <= len(text)


def test_in_a_small_window_what_is_kept_whole_is_not_told_in_a_line() -> None:
    talk = Weighed()
    talk.client("user", "run them all")
    for number in range(5):
        ran(talk, f"step {number}")
    talk.model(("Go on.", ()))

    assert plan_one_line_outputs(talk.story, moment(talk.tip), count, breaks=True).events
    whole = rules(OutputRule("shell", keep_whole=True))
    assert plan_one_line_outputs(talk.story, moment(talk.tip), count, breaks=True, rules=whole).events == ()
