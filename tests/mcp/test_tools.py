"""`callstack mcp` as the official client sees it, over stdio, on conversations that went through the proxy."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from proxy.cli.mcp.reach import DistantProxy
from proxy.errors import InvalidConfiguration
from tests.clients.serving import ROOT
from tests.mcp.conftest import ANA, BEN, Work, connected, refused, said

pytestmark = pytest.mark.rows("X-68")


async def test_a_project_is_searched_over_all_its_sessions_with_evidence(work: Work) -> None:
    async with connected("--data", str(work.data), folder=work.shop) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        found = await said(client, "stack_search", words="rounding totals")
        elsewhere = await said(client, "stack_search", words="rounding interest")
        everywhere = await said(client, "stack_search", words="interest", project="*")
        named = await said(client, "stack_search", words="interest", project=str(work.bank))
        nothing = await said(client, "stack_search", words="xylophone")

    assert set(tools) == {"stack_search", "stack_recall", "stack_tree", "stack_say"}
    assert "stack_search" in (client.instructions or "")
    assert found.startswith(f"2 finished frames of {work.shop} have all of these words")
    first = found.split("\n\n")[1].splitlines()
    assert first[0].endswith("  Fix the rounding of totals")
    assert "completed" in first[1]
    assert first[2].startswith("  came to: Totals are rounded in the last step alone")
    assert first[3] == "  changed: shop/totals.py"
    assert first[4] == "  ran: `pytest -q tests/test_totals.py` went well; `ruff check shop` failed"
    assert "Rounding of interest" not in elsewhere
    assert "none has all of these words" in elsewhere
    assert "Rounding of interest" in everywhere
    assert named.split("\n\n")[1] == everywhere.split("\n\n")[1]
    assert nothing.endswith('project="*" looks in all projects.')


async def test_what_was_said_is_read_by_id_title_and_path(work: Work) -> None:
    async with connected("--data", str(work.data), folder=work.shop) as client:
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
    assert missing.startswith("Nothing is stored under 'Rounding of interest'") or "Nothing is stored" in missing
    assert "there is no page 9" in no_page


async def test_the_tree_tells_the_newest_conversation_and_an_agent_is_spoken_to(work: Work) -> None:
    async with connected("--data", str(work.data), folder=work.shop) as client:
        tree = await said(client, "stack_tree")
        listed = re.findall(r"^([0-9a-z]{8,})  20", tree, re.MULTILINE)
        older = await said(client, "stack_tree", conversation=listed[1], details=True)
        queued = await said(client, "stack_say", conversation=listed[0], text="use tabs")
        unknown = await refused(client, "stack_say", conversation="nobody", text="use tabs")

    assert len(listed) == 2
    assert "Speed up the rounding" in tree.split("Frames of ")[1]
    assert "Fix the rounding of totals" in older
    assert queued == "Queued as number 1: the agent is told with its next request."
    assert unknown.endswith("stack_tree lists conversations and frames with their whole ids.")


async def test_a_key_shows_what_its_holder_may_see(work: Work) -> None:
    place = ("--data", str(work.data))
    async with connected(*place, folder=work.shop, CALLSTACK_KEY=work.keys[BEN]) as client:
        own = await said(client, "stack_search", words="rounding", project="*")
        listed = await said(client, "stack_tree", project="*")
        theirs = await refused(client, "stack_recall", ref="Fix the rounding of totals", project="*")
    async with connected("--url", work.served.origin, folder=work.shop, CALLSTACK_KEY=work.keys[ANA]) as client:
        distant = await said(client, "stack_search", words="rounding")
    async with connected("--url", work.served.origin, folder=work.shop) as client:
        without = await refused(client, "stack_search", words="rounding")

    assert "Speed up the rounding" in own
    assert "Fix the rounding" not in own + listed
    assert "Nothing is stored" in theirs
    assert "Fix the rounding of totals" in distant
    assert "Speed up" not in distant
    assert "needs a client key" in without


async def test_without_a_proxy_the_store_is_read_by_its_owner_alone(work: Work, tmp_path: Path) -> None:
    """A copy of it, as it stands when a proxy has been stopped."""
    data = tmp_path / "data"
    data.mkdir()
    for file in work.data.glob("callstack.db*"):
        (data / file.name).write_bytes(file.read_bytes())
    async with connected("--data", str(data), folder=work.shop) as client:
        found = await said(client, "stack_search", words="last step alone")
        told = await said(client, "stack_recall", ref="Fix the rounding of totals")
    settings = {"CALLSTACK_KEY": work.keys[BEN], "STACK_TENANCY": "key"}
    async with connected("--data", str(data), folder=work.shop, **settings) as client:
        whose = await refused(client, "stack_search", words="rounding")
    async with connected("--data", str(tmp_path / "none"), folder=work.shop) as client:
        no_store = await refused(client, "stack_tree")

    assert "Fix the rounding of totals" in found
    assert "assert 3 == 4" in told
    assert "only a running one can tell whose key that is" in whose
    assert "run `callstack serve`, or name its directory with --data" in no_store


def test_without_the_sdk_it_is_said_what_to_install(tmp_path: Path) -> None:
    program = (
        "import importlib.util as u, sys; found = u.find_spec\n"
        "u.find_spec = lambda name, *more: None if name == 'mcp' else found(name, *more)\n"
        "from proxy.cli.main import run_program; sys.argv = ['callstack', 'mcp']; run_program()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )

    assert done.returncode == 2
    assert "pip install 'callstack-proxy[mcp]'" in done.stderr


@pytest.mark.parametrize("url", ["ftp://there", "http://proxy.example.com", "there"])
def test_a_key_travels_by_tls_alone(url: str) -> None:
    with pytest.raises(InvalidConfiguration, match="--url"):
        DistantProxy(url, "csk_key")
