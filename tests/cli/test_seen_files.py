"""`callstack map`: what the files define that a conversation has seen (S2-23, S2-25)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from proxy.core.frames.events import RootStarted
from proxy.core.ledger.ledger import EntryKind
from proxy.core.ledger.messages import Call
from proxy.store.sql import open_store
from tests.cli.conftest import Shell, Stocked
from tests.management.api.small_ledger import Writing, message

PRICES = "def price_of(item):\n    return 1"
CART = "class Cart:\n    def total(self):\n        return price_of(1)\n\x1b[31mdef red(): pass"


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """A store with one conversation that read two files."""
    at = Writing("t", "files")
    at.entry(EntryKind.MESSAGE, message("user", "fix the cart"))
    at.event(RootStarted("froot", "Fix the cart", "it is fixed"))
    for n, (path, text) in enumerate((("src/prices.py", PRICES), ("src/cart.py", CART))):
        at.entry(EntryKind.TURN)
        at.round(0, message("assistant", "", (Call(f"c{n}", "read", json.dumps({"path": path})),)), last=True)
        at.entry(EntryKind.MESSAGE, message("tool", text, answers=f"c{n}"))
    at.thread()

    async def write() -> None:
        store = open_store("sqlite", tmp_path)
        await store.start()
        await store.wait_until_durable(store.write("t", at.records))
        await store.close()

    asyncio.run(write())
    return Shell(tmp_path, tmp_path)


@pytest.mark.rows("S2-23")
def test_the_files_are_listed_with_what_they_define(shell: Shell) -> None:
    told = shell.on_data("map")

    assert told.code == 0
    lines = told.out.splitlines()
    assert lines[:2] == ["src/prices.py", "     1 def price_of(item)"]
    assert lines[2:5] == ["src/cart.py", "     1 class Cart", "     2 def total(self)"]
    assert lines[-1].endswith("2 files seen in all")
    assert "\x1b" not in told.out


@pytest.mark.rows("S2-25")
def test_as_json_within_a_budget(shell: Shell) -> None:
    told = json.loads(shell.on_data("map", "files", "--tokens", "100", "--json").out)

    assert told["budget"] == 100
    assert 0 < told["tokens"] <= 100
    assert told["text"].startswith('<seen-files of="2" in="src">\nprices.py\n')
    assert told["files"][0]["symbols"][0]["name"] == "price_of"


def test_a_conversation_that_saw_no_code_says_so(stocked: Stocked) -> None:
    assert "No file" in stocked.shell.on_data("map", stocked.newer.conversation).out


@pytest.mark.parametrize("words", [("nobody",), ("--tokens", "1"), ("--tokens", "many"), ("--tokens", "99999")])
def test_a_wrong_argument_is_told(shell: Shell, words: tuple[str, ...]) -> None:
    refused = shell.on_data("map", *words)

    assert refused.code == 2
    assert refused.errors
    assert not refused.out
