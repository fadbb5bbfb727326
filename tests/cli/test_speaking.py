"""`callstack say` and `callstack cancel`, without a proxy and through one that runs."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

from callstack_proxy.cli.context import ServerInfo, write_server_file
from callstack_proxy.cli.messages import cancelled_text, queued_messages_text
from llm_test_provider import ScriptedProvider, says
from tests.cli.conftest import Shell, Stocked
from tests.crash.killable import KillableProxy
from tests.harness import bash, does, running_stage
from tests.scenarios.speaking import told_in, words


@pytest.mark.rows("S4-40", "S4-43")
def test_without_a_proxy_it_waits_in_the_store(own_stock: Stocked) -> None:
    older = own_stock.older.conversation
    on = own_stock.shell.on_data

    assert on("say", older[:8], "use \x1b[31mtabs").out.startswith("queued as number 1;")
    second = json.loads(on("say", older, "then push", "--follow-up", "--json").out)
    assert (second["queued"], second["position"]) == (True, 2)
    told = on("say", older, "--list")
    assert "use" in told.out
    assert "\x1b" not in told.out
    rows = json.loads(on("say", older, "--list", "--json").out)["messages"]
    assert [(row["lane"], row["state"]) for row in rows] == [("steer", "waiting"), ("follow_up", "waiting")]
    assert on("say", older, "--clear").out == "took back 2 messages\n"
    assert on("say", older, "--list").out == "Nothing was said here from beside the client.\n"


@pytest.mark.rows("S4-50", "S1-166")
def test_without_a_proxy_to_cancel_takes_back_what_waits_and_stops_the_frames(own_stock: Stocked) -> None:
    older = own_stock.older.conversation
    on = own_stock.shell.on_data
    on("say", older, "use tabs")

    assert on("cancel", older).out == "stopped 0 requests, took back 1 message\n"
    stopped = json.loads(on("cancel", older, "--tree", "--json").out)["tree"]
    assert stopped["invalidated"] == [own_stock.older.planned]
    assert own_stock.older.planned in on("tree", older).out


def test_what_cannot_be_meant_is_answered_with_what_to_do(stocked: Stocked) -> None:
    older, on = stocked.older.conversation, stocked.shell.on_data

    assert on("say", older).code == 2
    assert on("say", "nothing-here", "use tabs").code == 2
    assert on("say", older, " ").code == 2
    assert on("say", older, "use tabs", "--clear").code == 2
    assert on("say", older, "--list", "--clear").code == 2
    assert on("say", older, "x", "--thread", "nobody").code == 2
    assert on("cancel", "nothing-here").code == 2


def test_a_proxy_that_is_silent_is_not_gone_behind(own_stock: Stocked) -> None:
    """It has conversations in memory: what is written to the store meanwhile would be unknown to it."""
    older, shell = own_stock.older.conversation, own_stock.shell
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        write_server_file(shell.data, ServerInfo(url, "token", os.getpid()))
        refused = shell.on_data("push", "Lexer", "--in", older)
        assert "does not answer" in shell.on_data("doctor").out

    assert refused.code == 1
    assert f"the proxy at {url} (process {os.getpid()}) does not answer" in refused.errors
    assert "Lexer" not in shell.on_data("tree", older).out


def test_a_running_proxy_tells_its_agent(tmp_path: Path) -> None:
    """Over its own API: it keeps conversations in memory."""
    with ScriptedProvider() as provider, running_stage(provider, tmp_path, streamed=True) as stage:
        chat = stage.chat(KillableProxy(stage, wake_at_tokens=0).start())
        shell = Shell(tmp_path, tmp_path / "data")
        provider.will(does(bash("ls")), says("done"))
        chat.says("Look around.")
        at = chat.proxy.conversations[0]["id"]
        assert shell.on_data("say", at, "use tabs").out.startswith("queued as number 1;")
        chat.returns("a.py")

        assert told_in(provider.received[-1].messages) == [words("use tabs")]
        assert json.loads(shell.on_data("say", at, "--list", "--json").out)["messages"][0]["state"] == "delivered"
        assert shell.on_data("cancel", at, "--tree").out.startswith(
            "stopped 0 requests, took back 0 messages\nblocked:"
        )


def test_lists_are_text_that_can_be_read() -> None:
    told = {"requests": 1, "messages": 0, "tree": {"blocked": ["f1", "f2"], "invalidated": [], "left": ["f3"]}}

    assert list(queued_messages_text(())) == ["Nothing was said here from beside the client."]
    assert list(cancelled_text(told)) == [
        "stopped 1 request, took back 0 messages",
        "blocked: f1, f2",
        "still under way: f3",
    ]
