"""What the agent read a second time, and whether it had to: as `/stack/totals` and `callstack report` tell it."""

from __future__ import annotations

import pytest

from llm_test_provider import ScriptedProvider, call, says
from tests.harness import Json, RunningProxy, Stage, does
from tests.scenarios.sessions import TOOLS, Session


def told(proxy: RunningProxy, by: str) -> Json:
    """Re-reads by title, those of what had left behind them, and under `total` those of all."""
    sums = proxy.get(f"/stack/totals?by={by}")
    rows = {row["title"] or row["key"]: row for row in [*sums["rows"], sums["total"]]}
    return {title: (row["rereads"], row["rereads_gone"]) for title, row in rows.items()}


def regrets(proxy: RunningProxy) -> dict[str, int]:
    """As `/metrics` counts them, by tool."""
    return proxy.counted("callstack_regrets_total", "tool")


TWO_TASKS = """
    user: Fix the title of the handbook.
    read handbook.md
    run make docs
    says: The title of the handbook is right now.
    user: Implement a rate limiter for the public API.
    read src/limit.py
    read src/limit.py
    run pytest -q
    says: There is a token bucket in src/limit.py.
"""
AGAIN = """
    user: Say in the handbook how many are allowed.
    read handbook.md
    edit handbook.md
    says: It is in the handbook.
"""


@pytest.mark.rows("S2-15", "X-64")
def test_a_file_read_again_after_its_fold_is_told_as_our_cost(stage: Stage, provider: ScriptedProvider) -> None:
    """S2-15: per finished frame and per conversation, apart from what was read again while it still stood there."""
    session = Session(stage.chat(tools=TOOLS), provider)

    session.plays(TWO_TASKS + AGAIN)

    proxy = session.chat.proxy
    frames = told(proxy, "frame")
    assert frames.pop("total") == (2, 1)
    assert {title: reads for title, reads in frames.items() if reads != (0, 0)} == {
        "Implement a rate limiter for the public API.": (1, 0),
        "Say in the handbook how many are allowed.": (1, 1),
    }
    (conversation,) = (reads for title, reads in told(proxy, "conversation").items() if title != "total")
    assert conversation == (2, 1)
    assert told(proxy, "day")["total"] == (None, None)

    total = proxy.get("/stack/totals?by=day")["total"]
    again = total["read_again"]
    assert (again["rereads"], again["gone"], again["passed"]) == (2, 1, 0)
    assert 0 < total["cost_caused"] <= again["cost"] < total["cost_untouched"]
    assert total["saved_after"] == pytest.approx(total["saved"] - total["cost_caused"])


@pytest.mark.rows("X-64")
def test_what_is_read_again_in_shadow_tells_what_is_usual(stage: Stage, provider: ScriptedProvider) -> None:
    session = Session(stage.chat(stage.proxy(mode="shadow"), tools=TOOLS), provider)

    session.plays(TWO_TASKS + AGAIN)

    total = session.chat.proxy.get("/stack/totals?by=day")["total"]
    again = total["read_again"]
    assert (again["passed_rereads"], again["gone"], total["cost_caused"]) == (2, 0, 0)


@pytest.mark.one_process("each counts, and tells, what it does itself")
@pytest.mark.rows("S2-44")
def test_a_file_read_again_for_want_of_it_is_counted_by_tool(stage: Stage, provider: ScriptedProvider) -> None:
    """S2-44: in the report, and along the way among the figures of the process."""
    session = Session(stage.chat(tools=TOOLS), provider)
    session.plays(TWO_TASKS + AGAIN)

    proxy = session.chat.proxy
    assert proxy.get("/stack/totals?by=conversation")["total"]["rereads_gone_by"] == {"read": 1}
    assert regrets(proxy) == {"read": 1}


@pytest.mark.rows("S2-44")
@pytest.mark.parametrize("settings", [{"view": "minimal"}, {}])
def test_an_output_told_in_a_line_is_one_that_left(
    stage: Stage, provider: ScriptedProvider, settings: dict[str, object]
) -> None:
    """S2-44: what stands there in other words is read again at our cost; what stands as it was is not."""
    chat = stage.chat(stage.proxy(**settings), tools=TOOLS)
    paths = [f"src/part_{n}.py" for n in range(12)]
    provider.will(*(does(call("read", filePath=path)) for path in (*paths, paths[0])), says("Done."))
    chat.says("Read all of it.")
    for path in (*paths, paths[0]):
        chat.returns(f"the text of {path}\n" * 40)

    assert regrets(chat.proxy) == ({"read": 1} if settings else {})


@pytest.mark.rows("X-17", "S2-15", "S2-44")
@pytest.mark.parametrize(
    ("tool", "settings", "counted"),
    [
        ("fetch_text", {"observe__fetch_text__role": "read"}, {"fetch_text": 1}),
        ("read", {"observe__read__role": "none"}, {}),
    ],
    ids=["one of their own", "one that only sounds like it"],
)
def test_which_tool_reads_is_as_it_is_configured(
    stage: Stage, provider: ScriptedProvider, tool: str, settings: dict[str, object], counted: dict[str, int]
) -> None:
    """X-17, S2-15, S2-44: among the figures of the process, and in what is told of the conversation."""
    chat = stage.chat(stage.proxy(view="minimal", **settings), tools=(tool,))
    paths = [f"src/part_{n}.py" for n in range(12)]
    provider.will(*(does(call(tool, path=path)) for path in (*paths, paths[0])), says("Done."))
    chat.says("Read all of it.")
    for path in (*paths, paths[0]):
        chat.returns(f"the text of {path}\n" * 40)

    told = chat.proxy.get("/stack/totals?by=conversation")["total"]
    assert regrets(chat.proxy) == counted
    assert (told["rereads_gone_by"] or {}) == counted


@pytest.mark.rows("S2-15")
def test_what_went_up_as_the_client_sent_it_lacked_nothing(stage: Stage, provider: ScriptedProvider) -> None:
    """S2-15: the file had been folded, and then the client asked without us."""
    session = Session(stage.chat(tools=TOOLS), provider)
    session.plays(TWO_TASKS)
    session.chat.headers = {"x-stack-mode": "off"}

    session.plays(AGAIN)

    assert told(session.chat.proxy, "conversation")["total"] == (2, 0)
