"""`callstack push`, `plan`, `activate`, `pop`, `invalidate`, `rename`: on the store, and by a running proxy (S0-36)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.conftest import Stocked

pytestmark = pytest.mark.rows("S0-36")


def frames(stock: Stocked) -> dict[str, Any]:
    """Of the older conversation, by title."""
    told = json.loads(stock.shell.on_data("tree", stock.older.conversation, "--json").out)
    return {frame["title"]: frame for frame in told["state"]["frames"].values()}


def test_a_person_plans_works_through_and_gives_up_without_a_proxy(own_stock: Stocked) -> None:
    shell, where = own_stock.shell, ("--in", own_stock.older.conversation[:8])

    assert "Planned under" in shell.on_data("plan", "Lexer", "Printer", *where).out
    assert "Planned under" in shell.on_data("plan", "Tokens", "--under", "Lexer", "--criteria", "they come", *where).out
    assert "Changed" in shell.on_data("rename", "Tokens", "--title", "Words").out
    assert "Begun" in shell.on_data("activate", "Lexer").out
    assert "Begun" in shell.on_data("push", "Numbers", "--criteria", "they are read", *where).out
    assert "Ended as failed" in shell.on_data("pop", "Numbers", "--status", "failed", "--results", "no").out
    assert "Invalidated with it" in shell.on_data("invalidate", "Lexer", "--reason", "not now").out

    found = frames(own_stock)
    assert {title: found[title]["status"] for title in ("Lexer", "Words", "Numbers", "Printer")} == {
        "Lexer": "invalidated",
        "Words": "invalidated",
        "Numbers": "failed",
        "Printer": "planned",
    }
    assert found["Words"]["successCriteria"] == "they come"


def test_without_a_name_the_newest_conversation_is_meant(own_stock: Stocked) -> None:
    told = json.loads(own_stock.shell.on_data("push", "Lexer", "--json").out)

    assert told["conversation"] == own_stock.newer.conversation
    assert told["frames"][0]["status"] == "in_progress"


def test_the_newest_conversation_is_the_one_worked_in_last(own_stock: Stocked) -> None:
    """Whichever began first: a title that was asked for beside the work is begun after it."""
    shell, older = own_stock.shell, own_stock.older
    shell.on_data("push", "Lexer", "--in", older.conversation)

    shown = shell.on_data("tree")

    assert json.loads(shell.on_data("push", "Parser", "--json").out)["conversation"] == older.conversation
    assert shown.out.splitlines()[1].startswith(older.conversation[:12])
    assert f"{older.conversation}  1 request" in shown.out


def test_without_a_frame_a_pop_ends_the_active_one(own_stock: Stocked) -> None:
    shell, where = own_stock.shell, ("--in", own_stock.older.conversation)
    shell.on_data("push", "Lexer", *where)
    shell.on_data("push", "Parser", "--in", own_stock.newer.conversation)

    assert "(Parser)" in shell.on_data("pop").out
    assert "(Lexer)" in shell.on_data("pop", *where, "--results", "it reads").out
    assert frames(own_stock)["Lexer"]["results"] == "it reads"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["push"], 2, "title"),
        (["push", " "], 1, "title is missing"),
        (["push", "A", "--in", "nothing-here"], 2, "callstack tree"),
        (["plan", "A", "B", "--criteria", "c"], 2, "one title"),
        (["plan", "A", "--under", "nowhere"], 2, "nowhere"),
        (["activate", "nowhere"], 2, "callstack tree"),
        (["pop", "Make the suite green", "--status", "planned"], 2, "allowed: completed"),
        (["pop", "Make the suite green", "--in", "abcd"], 2, "a frame that is named needs none"),
        (["pop", "--in", "nothing-here"], 2, "callstack tree"),
        (["invalidate", "Make the suite green", "--reason", "no"], 1, "root frame cannot be invalidated"),
        (["invalidate", "Make the suite green"], 2, "--reason"),
        (["rename", "Make the suite green", "--title", "B"], 1, "only while a frame is planned"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else "",
)
def test_what_cannot_be_done_is_told_in_a_sentence(own_stock: Stocked, words: list[str], code: int, said: str) -> None:
    refused = own_stock.shell.on_data(*words)

    assert refused.code == code, refused
    assert said in refused.errors
    assert "Traceback" not in refused.errors
