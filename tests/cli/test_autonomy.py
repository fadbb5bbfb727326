"""`callstack autonomy`: how much the proxy decides in a conversation, and changing that."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from callstack_proxy.management import find_by_id
from proxy.core.frames.events import SuggestionMade, as_ledger_event
from proxy.core.frames.suggestion_log import Suggestion
from proxy.store.interface import LedgerRecord
from proxy.store.sql import open_store
from tests.cli.conftest import Shell, Stocked


async def suggested(stock: Stocked) -> None:
    """Something was suggested with the newest request of the older conversation, long ago."""
    store = open_store("sqlite", stock.shell.data)
    await store.start()
    try:
        ledger = await find_by_id.find_ledger(store, None, stock.older.conversation)
        path_state = find_by_id.newest_path_state(ledger)
        text = '[STACK SUGGESTION: Consider pushing a new frame for "x\x1b[31m" - Reason: y (80% confidence)]'
        made = Suggestion("push", path_state.tree.active, 80, "duration", "y", text)
        rounds = ledger.rounds.get(path_state.tip, ())
        number = rounds[-1].number if rounds else 0
        event = as_ledger_event(
            SuggestionMade(made.frame, made), path_state.tip, number, ledger.next_seq, 1_700_000_000_000
        )
        await store.wait_until_durable(
            store.write(ledger.conversation.tenant, [LedgerRecord(ledger.conversation.id, event)])
        )
    finally:
        await store.close()


def told(stock: Stocked, *words: str) -> Any:
    ended = stock.shell.on_data("autonomy", *words, "--json")
    assert ended.code == 0, ended.errors
    return json.loads(ended.out)


@pytest.mark.rows("S1-92", "S1-126")
def test_scores_and_suggestions_are_told_without_a_proxy(own_stock: Stocked) -> None:
    asyncio.run(suggested(own_stock))
    shown = own_stock.shell.on_data("autonomy", own_stock.older.conversation[:8]).out

    assert f"conversation {own_stock.older.conversation}, frame" in shown
    assert re.search(r"^level suggest, combine max$", shown, re.MULTILINE)
    assert re.search(r"^failure_boundary +push +0 ", shown, re.MULTILINE)
    assert re.search(r"expired: \[STACK SUGGESTION: .*80% confidence", " ".join(shown.split()))
    assert "total 1, push 1, pop 0, acted 0, ignored 1" in shown
    assert "\x1b" not in shown


@pytest.mark.rows("S1-84", "S1-126")
def test_what_is_set_for_a_conversation_stays_and_can_be_taken_back(own_stock: Stocked) -> None:
    name = own_stock.older.conversation
    set_now = told(own_stock, name, "--level", "auto", "--push", "150", "--heuristics", "duration,stagnation")

    assert (set_now["level"], set_now["push_threshold"], set_now["pop_threshold"]) == ("auto", 100, 80)
    assert set_now["heuristics"] == ["duration", "stagnation"]
    assert told(own_stock, name, "--listed-only", "--combine", "mean")["chosen"] == [
        "level", "push_threshold", "combine", "suggest_in_context", "heuristics",
    ]  # fmt: skip
    assert told(own_stock, name)["level"] == "auto"
    assert told(own_stock, own_stock.newer.conversation)["chosen"] == []
    assert told(own_stock, name, "--reset")["chosen"] == []
    assert told(own_stock, name, "--heuristics", "none")["heuristics"] == []


@pytest.mark.rows("S1-129")
def test_what_waits_is_taken_back(own_stock: Stocked) -> None:
    """S1-129: one that expired does not wait."""
    asyncio.run(suggested(own_stock))

    assert told(own_stock, own_stock.older.conversation, "--clear")["cleared"] == 0
    assert own_stock.shell.on_data("autonomy", own_stock.older.conversation, "--clear").out.startswith(
        "took back 0 suggestions\n"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--level", "auto"], "callstack tree"),
        (["{}", "--level", "always"], "manual, suggest, auto"),
        (["{}", "--combine", "median"], "max, noisy_or, mean"),
        (["{}", "--heuristics", "intuition"], "failure_boundary"),
        (["{}", "--push", "high"], "--push"),
        (["nothing-here"], "nothing-here"),
    ],
)
def test_what_cannot_be_meant_is_answered_with_what_can(stocked: Stocked, words: list[str], said: str) -> None:
    refused = stocked.shell.on_data("autonomy", *(word.format(stocked.older.conversation) for word in words))

    assert refused.code == 2
    assert said in " ".join(refused.errors.split())


def test_a_running_proxy_is_asked_to_change_it(own_stock: Stocked, started: Callable[..., Any]) -> None:
    """It keeps conversations in memory."""
    shell: Shell = own_stock.shell
    usual = ("--upstream", "http://127.0.0.1:9", "--port", "0", "--data", str(shell.data), "--set", "retention=0")
    assert started("serve", *usual).stdout.readline().startswith("clients")

    assert told(own_stock, own_stock.older.conversation, "--level", "manual")["level"] == "manual"
    assert told(own_stock, own_stock.older.conversation, "--clear")["cleared"] == 0
