"""A12: the clock of the machine jumps, and what happened before stays before."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from llm_test_provider import ScriptedProvider, says
from tests.clocks import HOUR_MS, Clock, set_clock
from tests.harness import Stage, bash, does, pop, push
from tests.scenarios.test_branches import NOTE, does_ask, newest, says_to

DAY_MS = 24 * HOUR_MS


@pytest.fixture
def clock() -> Iterator[Clock]:
    with set_clock() as clock:
        yield clock


@pytest.mark.parametrize("jump", [-HOUR_MS, DAY_MS])
def test_what_was_decided_before_a_jump_is_told_with_no_later_request(
    clock: Clock, stage: Stage, provider: ScriptedProvider, jump: int
) -> None:
    chat = stage.chat(stage.proxy())
    provider.will(does(push("Round", "once")), does(bash("a")), does(pop("rounded")), says("Done."))
    chat.says("round it")
    chat.returns("OUTPUT")
    clock.set_by += jump
    for number in range(2):
        says_to(chat, provider, f"look {number}", f"cat {number}", answer="Seen.")

    told = [receipt["events"] for receipt in chat.proxy.receipts()]
    assert sum(event.startswith("pushed") for events in told for event in events) == 1
    assert sum(event.startswith("popped") for events in told for event in events) == 1


def test_the_turn_of_a_branch_is_told_once_though_the_clock_is_set_back(
    clock: Clock, stage: Stage, provider: ScriptedProvider
) -> None:
    chat = stage.chat(stage.proxy())
    says_to(chat, provider, "look at the parser", "cat parser.py", answer="PARSER seen.")
    does_ask(chat.proxy, "checkpoints", name="start")
    does_ask(chat.proxy, "branches", name="grammar")
    clock.set_by += DAY_MS
    says_to(chat, provider, "write a grammar instead", "edit GRAMMAR", answer="GRAMMAR done.")
    clock.set_by -= DAY_MS
    for number in range(2):
        says_to(chat, provider, f"go on {number}", f"run {number}", answer="Ran.")

    assert newest(provider).count(NOTE) == 1
    assert sum("switched grammar" in receipt["events"] for receipt in chat.proxy.receipts()) == 1
