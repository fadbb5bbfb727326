"""Which call somebody may have come from whom only a title shows to be a subagent (S1-71a, S1-71b)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from proxy.core.frames.events import SubagentStarted
from proxy.core.matching.guess_subagent_parent import guess_parent_call
from tests.core.forest import LedgerBuilder, call, rooted

pytestmark = pytest.mark.rows("S1-71a", "S1-71b")

AT = 5_000
READ, TASK = call("r", "read", path="a.py"), call("t", "task", prompt="Find the tests that fail now and then.")


def waits(*calls_made: str) -> tuple[LedgerBuilder, str]:
    """A conversation that waits for both calls since `AT`, and its turn."""
    talk = LedgerBuilder()
    talk.client("user", "Make the build green.")
    talk.happens(rooted())
    turn = talk.model(("", (READ, TASK)))
    talk.ledger.rounds[turn] = tuple(replace(done, created=AT) for done in talk.ledger.rounds[turn])
    for made in calls_made:
        talk.happens(SubagentStarted(f"f{made}", "froot", "Look", "", "c", made), turn, 1)
    return talk, turn


def test_the_call_that_says_most_is_meant_and_then_the_others() -> None:
    for claimed, meant in (((), TASK), (("t",), READ), (("r",), TASK)):
        talk, turn = waits(*claimed)
        found = guess_parent_call(talk.ledger, AT)
        assert found == (turn, meant, AT)


def test_nobody_waits_who_has_the_result_or_waits_too_long_or_whose_calls_all_began_somebody() -> None:
    assert guess_parent_call(waits()[0].ledger, AT + 1) is None
    assert guess_parent_call(waits("r", "t")[0].ledger, AT) is None
    assert guess_parent_call(LedgerBuilder().ledger, 0) is None
    answered = waits()[0]
    answered.client("tool", "Two: a and b.", answers="t")
    assert guess_parent_call(answered.ledger, AT) is None
