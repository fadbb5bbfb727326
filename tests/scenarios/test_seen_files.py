"""The map of seen files in the block of a frame, and for people (S2-23, S2-25)."""

from __future__ import annotations

import pytest

from llm_test_provider import ScriptedProvider, call, says
from tests.harness import Json, Stage, does, pop, push
from tests.scenarios.test_small_windows import blocks

TOOLS = ("read", "edit")
PRICES = "     1→def price_of(item):\n     2→    return 1"
CART = "     1→class Cart:\n     2→    def total(self):\n     3→        return price_of(1)"


def reads(provider: ScriptedProvider, stage: Stage, **settings: object) -> tuple[list[str], Json, Json]:
    """The maps of the blocks on the line in the end, and what people see as a map; the second one in fewer tokens. In
    a first frame two files are read, in a second one is edited."""
    proxy = stage.proxy(**settings)
    chat = stage.chat(proxy, tools=TOOLS)
    provider.will(
        does(push("Look")),
        does(call("read", path="src/prices.py"), call("read", path="src/cart.py")),
        does(pop("It is about prices.")),
        does(push("Fix the Cart")),
        does(call("edit", path="src/cart.py", oldString="def total", newString="def total_price")),
        says("Fixed."),
    )
    chat.says("The total is wrong.")
    chat.returns(PRICES, CART)
    chat.returns("The file was edited.")
    maps = [found.text or "" for block in blocks(provider.received[-1].messages) for found in block.iter("seen-files")]
    at = f"/stack/conversations/{proxy.conversations[0]['id']}/map"
    return maps, proxy.get(at), proxy.get(f"{at}?tokens=100")


@pytest.mark.rows("S2-25")
def test_a_frame_is_told_what_the_files_define_that_were_seen(stage: Stage, provider: ScriptedProvider) -> None:
    """S2-25: once, as it is entered: the file that was edited later stands in it as it was."""
    maps, _, _ = reads(provider, stage, budgets__map=1024)

    assert maps == ["\ncart.py\n  1 class Cart\n  2 def total(self)\nprices.py\n  1 def price_of(item)\n"]


@pytest.mark.proves("S2-25")
@pytest.mark.rows("S2-23", "S2-25")
def test_people_see_it_whether_a_model_is_told_or_not(stage: Stage, provider: ScriptedProvider) -> None:
    maps, told, short = reads(provider, stage)

    assert maps == []
    assert told["seen"] == 2
    assert [(f["path"], [s["name"] for s in f["symbols"]]) for f in told["files"]] == [
        ("src/cart.py", ["Cart", "total_price"]),
        ("src/prices.py", ["price_of"]),
    ]
    assert told["tokens"] <= told["budget"] == 1024
    assert short["tokens"] <= short["budget"] == 100
