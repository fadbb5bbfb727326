"""How subagents are tracked, as the model may read it, and set it where it may (S1-118)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from proxy.core.tools.base import SubagentRules, ToolResult, ToolSettings
from proxy.core.tools.stack_tool_list import run
from tests.core.forest import LedgerBuilder, call, rooted

pytestmark = pytest.mark.rows("S1-118")

HOLDS = SubagentRules(min_duration=5_000, min_messages=4, idle_delay=9_000, patterns=("scout$",))
OWN = replace(HOLDS, model_may_configure=True)


def done(holds: SubagentRules, **arguments: object) -> ToolResult:
    talk = LedgerBuilder()
    talk.client("user", "go")
    talk.happens(rooted())
    outcome = run(talk.desk(settings=ToolSettings(subagents=holds)), call("k", "stack_config", **arguments))
    assert outcome.events == ()
    return outcome


def refused(holds: SubagentRules, **arguments: object) -> str:
    outcome = done(holds, **arguments)
    assert outcome.subagent_settings == {}
    assert outcome.text.startswith("Error: ")
    assert len(outcome.text) < 600
    return outcome.text


@pytest.mark.parametrize("holds", [HOLDS, OWN])
def test_it_tells_what_holds(holds: SubagentRules) -> None:
    asked = done(holds)
    assert asked.subagent_settings == {}
    assert asked.text == (
        "enabled: yes\nminDuration: 5000\nminMessageCount: 4\nautoCompleteOnIdle: yes\nidleCompletionDelay: 9000\n"
        "injectParentContext: no\npropagateSummaries: yes\npatterns: 'scout$'"
    )


@pytest.mark.rows("S1-132")
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"minDuration": 1}, "The operator sets subagent.min_duration, by `callstack config`."),
        ({"enabled": False, "idleCompletionDelay": "x"}, "sets subagent.enabled, subagent.idle_delay, by"),
        ({"propagateSummaries": True}, "propagateSummaries cannot be set: it is always as told."),
        ({"addPattern": "([a-z"}, "'([a-z' is no regular expression (unterminated character set at position 1)"),
        ({"addPattern": "@.*subagent"}, "The operator sets subagent.patterns, by `callstack config`."),
        ({"addPattern": "a", "removePattern": "scout$"}, "The operator sets subagent.patterns, by `callstack config`."),
        ({"addPattern": "(" * 100_000}, "a pattern of 100000 characters is too long: give at most 200."),
        ({"removePattern": "x"}, "'x' is none of the patterns."),
    ],
)
def test_the_model_only_reads_and_is_told_who_sets_it(arguments: dict[str, object], says: str) -> None:
    """S1-132: a pattern is looked at first."""
    assert says in refused(HOLDS, **arguments)


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ({"enabled": False, "minDuration": 1}, {"enabled": False, "min_duration": 1}),
        ({"autoCompleteOnIdle": False, "injectParentContext": True}, {"auto_complete": False, "parent_context": True}),
        ({"enabled": "False", "minDuration": "60000"}, {"enabled": False, "min_duration": 60_000}),
        ({"idleCompletionDelay": 1000.0, "minMessageCount": None}, {"idle_delay": 1000}),
        ({"addPattern": "@.*subagent"}, {"patterns": ["scout$", "@.*subagent"]}),
        ({"addPattern": "scout$"}, {"patterns": ["scout$"]}),
        ({"removePattern": "scout$"}, {"patterns": []}),
        ({"removePattern": "scout$", "addPattern": "^probe"}, {"patterns": ["^probe"]}),
    ],
)
def test_where_it_may_the_model_says_which_keys_it_wants(
    arguments: dict[str, object], wanted: dict[str, object]
) -> None:
    outcome = done(OWN, **arguments)
    assert outcome.subagent_settings == wanted
    assert outcome.text.startswith(f"Set, for everybody: {', '.join(wanted)}.")


@pytest.mark.rows("S1-132")
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"minDuration": "soon"}, "minDuration must be a whole number."),
        ({"minMessageCount": True}, "minMessageCount must be a whole number."),
        ({"idleCompletionDelay": 0.5}, "idleCompletionDelay must be a whole number."),
        ({"enabled": 1}, "enabled must be true or false."),
        ({"autoCompleteOnIdle": {"deep": []}}, "autoCompleteOnIdle must be true or false."),
        ({"minDuration": 5, "propagateSummaries": False}, "propagateSummaries cannot be set"),
        ({"minDuration": 5, "addPattern": "(a+)+"}, "could take too long: use at most two repeats"),
    ],
)
def test_what_cannot_be_meant_is_refused_and_nothing_is_wanted(arguments: dict[str, object], says: str) -> None:
    assert says in refused(OWN, **arguments)
