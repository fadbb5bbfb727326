"""How subagents are tracked, as the model may read it (S1-118)."""

from __future__ import annotations

import pytest

from proxy.stack.tools import run
from proxy.stack.tools.desk import Settings, Subagents
from tests.stack.forest import Talk, call, rooted

pytestmark = pytest.mark.rows("S1-118")


def asked(**arguments: object) -> str:
    talk = Talk()
    talk.client("user", "go")
    talk.happens(rooted())
    settings = Settings(subagents=Subagents(enabled=True, min_duration=5_000, min_messages=4, idle_delay=9_000))
    done = run(talk.desk(settings=settings), call("k", "stack_config", **arguments))
    assert done.events == ()
    return done.text


def test_it_tells_what_is_configured() -> None:
    assert asked() == (
        "enabled: yes\nminDuration: 5000\nminMessageCount: 4\nautoCompleteOnIdle: yes\nidleCompletionDelay: 9000\n"
        "injectParentContext: no\npropagateSummaries: yes"
    )


@pytest.mark.rows("S1-132")
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"minDuration": 1}, "The operator sets subagent.min_duration in the configuration."),
        ({"enabled": False, "idleCompletionDelay": "x"}, "sets subagent.enabled, subagent.idle_delay in"),
        ({"injectParentContext": True}, "The operator sets subagent.parent_context in the configuration."),
        ({"propagateSummaries": False}, "propagateSummaries cannot be set: it is always as told."),
        ({"addPattern": "([a-z"}, "'([a-z' is no regular expression (unterminated character set at position 1)"),
        ({"addPattern": "@.*subagent"}, "'@.*subagent' is not needed: a subagent is known by the call that began it"),
        ({"removePattern": "(" * 100_000}, "is no regular expression"),
        ({"removePattern": "x"}, "is not needed"),
    ],
)
def test_the_model_only_reads_and_is_told_who_sets_it(arguments: dict[str, object], says: str) -> None:
    """S1-132: a pattern is looked at first."""
    told = asked(**arguments)
    assert told.startswith("Error: ")
    assert says in told
    assert len(told) < 600
