"""`callstack loops`: what the model was warned of, and counting anew."""

from __future__ import annotations

import asyncio
import json

import pytest

from callstack_proxy.cli.autonomy import loops_text
from callstack_proxy.management import find_by_id
from proxy.core.frames.events import LoopDetected, as_ledger_event
from proxy.core.frames.tree import Loop
from proxy.store.interface import LedgerRecord
from proxy.store.sql import open_store
from tests.cli.conftest import Stocked


async def warned(stock: Stocked) -> None:
    """The newest request of the older conversation closed a loop."""
    store = open_store("sqlite", stock.shell.data)
    await store.start()
    try:
        ledger = await find_by_id.find_ledger(store, None, stock.older.conversation)
        path_state = find_by_id.newest_path_state(ledger)
        loop = Loop("repetition", ("0" * 16,), ("bash: ls\x1b[31m",), 3, path_state.tip)
        rounds = ledger.rounds.get(path_state.tip, ())
        number = rounds[-1].number if rounds else 0
        event = as_ledger_event(
            LoopDetected(path_state.tree.active, loop), path_state.tip, number, ledger.next_seq, 1_700_000_000_000
        )
        await store.wait_until_durable(
            store.write(ledger.conversation.tenant, [LedgerRecord(ledger.conversation.id, event)])
        )
    finally:
        await store.close()


@pytest.mark.rows("S3-25", "S3-26")
def test_loops_are_listed_and_cleared_without_a_proxy(own_stock: Stocked) -> None:
    """S3-25, S3-26: what was warned of stays in the list."""
    asyncio.run(warned(own_stock))
    older = own_stock.older.conversation

    told = own_stock.shell.on_data("loops", older[:8])
    assert "repetition" in told.out
    assert "bash: ls" in told.out
    assert "\x1b" not in told.out
    assert own_stock.shell.on_data("loops", older, "--clear").out.startswith("cleared 1 loop;")
    (row,) = json.loads(own_stock.shell.on_data("loops", older, "--json").out)["loops"]
    assert (row["count"], row["standing"]) == (3, False)
    assert json.loads(own_stock.shell.on_data("loops", older, "--clear", "--json").out) == {"cleared": 0}


def test_to_clear_a_conversation_must_be_named(stocked: Stocked) -> None:
    refused = stocked.shell.on_data("loops", "--clear")

    assert refused.code == 2
    assert "callstack tree" in refused.errors
    assert stocked.shell.on_data("loops", "nothing-here").code == 2


def test_a_conversation_without_loops_says_so(stocked: Stocked) -> None:
    assert stocked.shell.on_data("loops").out == "The model was warned of no loop here.\n"
    assert list(loops_text(())) == ["The model was warned of no loop here."]
