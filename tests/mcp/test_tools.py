"""`callstack mcp` as the official client sees it, on conversations that went through the proxy."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from callstack_proxy.cli.mcp.reach import DistantProxy
from callstack_proxy.mcp.server import OwnUserOnly
from proxy.errors import InvalidConfiguration
from tests.mcp.conftest import (
    ANA,
    BEN,
    Work,
    command,
    environment,
    in_process,
    over_stdio,
    own_proxy,
    refused,
    said,
)

pytestmark = pytest.mark.rows("X-68")


async def test_a_project_is_searched_over_all_its_sessions_with_evidence(work: Work) -> None:
    """By the command itself, over stdio."""
    async with over_stdio("--data", str(work.data), folder=work.shop) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        advice = client.instructions or ""
        found = await said(client, "stack_search", words="rounding totals")
        elsewhere = await said(client, "stack_search", words="rounding interest")
        everywhere = await said(client, "stack_search", words="interest", project="*")
        named = await said(client, "stack_search", words="interest", project=str(work.bank))
        nothing = await said(client, "stack_search", words="xylophone")

    assert set(tools) == {"stack_search", "stack_recall", "stack_tree", "stack_say"}
    assert [name for name, tool in tools.items() if not (tool.annotations and tool.annotations.read_only_hint)] == [
        "stack_say"
    ]
    assert "stack_search" in advice
    assert found.startswith(f"2 finished frames of {work.shop} have all of these words")
    title, ended, *rest = found.split("\n\n")[1].splitlines()
    assert title.endswith("  Fix the rounding of totals")
    assert ended.startswith("  completed 20")
    assert rest == [
        "  came to: Totals are rounded in the last step alone, because each line rounded loses cents.",
        "  changed: shop/totals.py",
        "  ran: `pytest -q tests/test_totals.py` went well; `ruff check shop` failed",
    ]
    assert "Rounding of interest" not in elsewhere
    assert "none has all of these words" in elsewhere
    assert "Rounding of interest" in everywhere
    assert named.split("\n\n")[1] == everywhere.split("\n\n")[1]
    assert nothing.endswith('project="*" looks in all projects.')


async def test_what_was_said_is_read_by_id_title_and_path(work: Work) -> None:
    async with in_process(own_proxy(work.data), work.shop) as client:
        found = await said(client, "stack_search", words="last step alone")
        frame = found.split("\n\n")[1].split()[0]
        by_id = await said(client, "stack_recall", ref=frame)
        by_title = await said(client, "stack_recall", ref="Fix the rounding of totals", query="failed")
        by_path = await said(client, "stack_recall", ref="shop/totals.py")
        missing = await refused(client, "stack_recall", ref="Rounding of interest")
        no_page = await refused(client, "stack_recall", ref=frame, page="9")

    assert by_id.startswith(f"Frame {frame} (Fix the rounding of totals), completed")
    assert "assert 3 == 4" in by_id
    assert "assert 3 == 4" in by_title
    assert "round(total, 2)" in by_path
    assert "Nothing is stored under 'Rounding of interest'" in missing.replace('"', "'")
    assert "there is no page 9" in no_page


async def test_the_tree_tells_the_newest_conversation_and_an_agent_is_spoken_to(work: Work) -> None:
    async with in_process(own_proxy(work.data), work.shop) as client:
        tree = await said(client, "stack_tree")
        newest, other = re.findall(r"^([0-9a-z]{8,})  20", tree, re.MULTILINE)
        older = await said(client, "stack_tree", conversation=other, details=True)
        queued = await said(client, "stack_say", conversation=newest, text="use tabs")
        unknown = await refused(client, "stack_say", conversation="nobody", text="use tabs")
        nowhere = await said(client, "stack_tree", project="/nowhere")

    assert "Speed up the rounding" in tree.split("Frames of ")[1]
    assert "Fix the rounding of totals" in older
    assert queued == "Queued as number 1: the agent is told with its next request."
    assert unknown.endswith("stack_tree lists conversations and frames with their whole ids.")
    assert nowhere.startswith("No agent has worked in /nowhere yet.")


async def test_a_key_shows_what_its_holder_may_see(work: Work) -> None:
    async with in_process(own_proxy(work.data, work.keys[BEN]), work.shop) as client:
        own = await said(client, "stack_search", words="rounding", project="*")
        listed = await said(client, "stack_tree", project="*")
        theirs = await refused(client, "stack_recall", ref="Fix the rounding of totals", project="*")
    async with in_process(DistantProxy(work.served.url, work.keys[ANA]), work.shop) as client:
        distant = await said(client, "stack_search", words="rounding")
        tree = await said(client, "stack_tree")
    async with in_process(DistantProxy(work.served.origin), work.shop) as client:
        without = await refused(client, "stack_search", words="rounding")

    assert "Speed up the rounding" in own
    assert "Fix the rounding" not in own + listed
    assert "Nothing is stored" in theirs
    assert "Fix the rounding of totals" in distant
    assert "Speed up" not in distant + tree
    assert "needs a client key" in without


async def test_without_a_proxy_the_store_is_read_by_its_owner_alone(work: Work, tmp_path: Path) -> None:
    """A copy of it, as it stands when a proxy has been stopped."""
    data = tmp_path / "data"
    data.mkdir()
    for file in work.data.glob("callstack.db*"):
        (data / file.name).write_bytes(file.read_bytes())
    async with in_process(own_proxy(data), work.shop) as client:
        found = await said(client, "stack_search", words="last step alone")
        told = await said(client, "stack_recall", ref="Fix the rounding of totals")
    async with in_process(own_proxy(data, work.keys[BEN]), work.shop) as client:
        whose = await refused(client, "stack_search", words="rounding")
    async with in_process(own_proxy(tmp_path / "none"), work.shop) as client:
        no_store = await refused(client, "stack_tree")

    assert "Fix the rounding of totals" in found
    assert "assert 3 == 4" in told
    assert "only a running one can tell whose key that is" in whose
    assert "run `callstack serve`, or name its directory with --data" in no_store


@contextmanager
def over_http(work: Work) -> Iterator[str]:
    """`callstack mcp --http` until the block ends; its address."""
    words = command("--http", "--port", "0", "--data", str(work.data))
    process = subprocess.Popen(words, cwd=work.shop, env=environment(), stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        yield process.stderr.readline().split()[-1]
    finally:
        process.terminate()
        process.communicate(timeout=30)
    assert process.returncode in (0, -15)


@pytest.mark.long
async def test_over_http_each_caller_is_asked_for_a_key(work: Work) -> None:
    with over_http(work) as url:
        headers = {"x-stack-key": work.keys[BEN]}
        async with httpx2.AsyncClient(headers=headers) as known:
            async with Client(streamable_http_client(url, http_client=known)) as client:
                own = await said(client, "stack_search", words="rounding")
            misled = await known.post(url, json={}, headers={"host": "evil.example"})
        async with Client(url) as client:
            nobody = await refused(client, "stack_search", words="rounding")

    assert "Speed up the rounding" in own
    assert "Fix the rounding" not in own
    assert "needs a client key" in nobody
    assert misled.status_code == 421


async def test_programs_of_other_users_are_refused() -> None:
    async def app(*_: object) -> None:
        raise AssertionError("it came through")

    sent: list[dict[str, object]] = []

    async def send(message: object) -> None:
        assert isinstance(message, dict)
        sent.append(message)

    async def receive() -> dict[str, object]:
        return {"type": "http.request"}

    guarded = OwnUserOnly(app, lambda client, server: (client, server) != (("127.0.0.1", 5), ("127.0.0.1", 6)))
    scope = {"type": "http", "client": ["127.0.0.1", 5], "server": ["127.0.0.1", 6]}
    await guarded(scope, receive, send)

    assert sent[0]["status"] == 403


def test_without_the_sdk_it_is_said_what_to_install(tmp_path: Path) -> None:
    program = (
        "import importlib.util as u, sys; found = u.find_spec\n"
        "u.find_spec = lambda name, *more: None if name == 'mcp' else found(name, *more)\n"
        "from callstack_proxy.cli.main import run_program; sys.argv = ['callstack', 'mcp']; run_program()"
    )
    words = [sys.executable, "-c", program]
    done = subprocess.run(words, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert "pip install 'callstack-proxy[mcp]'" in done.stderr


@pytest.mark.parametrize("url", ["ftp://there", "http://proxy.example.com", "there"])
def test_a_key_travels_by_tls_alone(url: str) -> None:
    with pytest.raises(InvalidConfiguration, match="--url"):
        DistantProxy(url, "csk_key")
