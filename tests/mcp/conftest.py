"""A store that two people's conversations in one project have made through the proxy, and the SDK's client."""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from callstack_proxy.cli.context import project_folders
from callstack_proxy.cli.mcp.reach import OwnProxy
from callstack_proxy.config_sources import load_config
from callstack_proxy.management.issued_keys import issue_key
from callstack_proxy.mcp.server import Ask, Memory, build_server
from llm_test_provider import ScriptedCall, ScriptedProvider, answers, call, says
from tests.clients.serving import AWAKE, ROOT, Served, serve

FUNCTIONS = ("bash", "write")
TOOLS = [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in FUNCTIONS]
ANA, BEN = "ana", "ben"
FAILED = "FAILED tests/test_totals.py::test_total - assert 3 == 4\n1 failed in 0.02s\n[exit code 1]"
PASSED = "1 passed in 0.02s\n[exit code 0]"


@dataclass(frozen=True)
class Work:
    """`shop` is the project of both; Ana also worked in `bank`. `keys` are client keys by name."""

    served: Served
    provider: ScriptedProvider
    data: Path
    shop: Path
    bank: Path
    keys: dict[str, str]

    def asks(self, who: str, folder: Path) -> Session:
        return Session(self, who, [{"role": "system", "content": f"You help.\n\nWorking directory: {folder}\n"}])


@dataclass
class Session:
    """An agent of one person, over chat completions."""

    work: Work
    who: str
    history: list[dict[str, Any]]
    results: list[str] = field(default_factory=list)

    def does(self, task: str, *results: str) -> None:
        """Sends the task, and a result for each call that comes back."""
        self.history.append({"role": "user", "content": task})
        left = list(results)
        while (message := self._answer()).get("tool_calls"):
            for made in message["tool_calls"]:
                self.history.append({"role": "tool", "tool_call_id": made["id"], "content": left.pop(0)})

    def _answer(self) -> dict[str, Any]:
        body = json.dumps({"model": "gpt-x", "messages": self.history, "tools": TOOLS}).encode()
        headers = {"content-type": "application/json", "authorization": f"Bearer {self.work.keys[self.who]}"}
        request = urllib.request.Request(f"{self.work.served.url}/chat/completions", body, headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            message: dict[str, Any] = json.load(answer)["choices"][0]["message"]
        self.history.append(message)
        return message


def framed(title: str, results: str, *steps: Sequence[ScriptedCall]) -> list[Any]:
    """Answers of a model that does the steps in a frame."""
    pushed = call("stack_frame_push", title=title, criteria="the tests pass")
    popped = call("stack_frame_pop", status="completed", results=results)
    return [answers("", [pushed]), *(answers("", step) for step in steps), answers("", [popped]), says("Done.")]


def told(work: Work) -> None:
    """What the three conversations were about."""
    writes = [call("write", path="shop/totals.py", content="round(total, 2)")]
    work.provider.will(
        *framed(
            "Fix the rounding of totals",
            "Totals are rounded in the last step alone, because each line rounded loses cents.",
            [call("bash", command="pytest -q tests/test_totals.py")],
            writes,
            [call("bash", command="pytest -q tests/test_totals.py"), call("bash", command="ruff check shop")],
        )
    )
    work.asks(ANA, work.shop).does("fix the totals", FAILED, "written", PASSED, "Found 2 errors.\n[exit code 1]")
    work.provider.will(*framed("Speed up the rounding", "Totals are cached by basket.", writes))
    work.asks(BEN, work.shop / "api").does("make totals fast", "written")
    work.provider.will(*framed("Rounding of interest", "Interest is rounded to the cent, as the law says.", writes))
    work.asks(ANA, work.bank).does("round the interest", "written")


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Work]:
    """While its proxy runs. With client keys, so that people see only their own."""
    home = tmp_path_factory.mktemp("work")
    shop, bank = home / "shop", home / "bank"
    shop.mkdir()
    bank.mkdir()
    settings = load_config(
        {"data": str(home / "data"), "tenancy": "key", "upstreams.default.url": "http://127.0.0.1:9"}
    )
    keys = {name: issue_key(settings.keys_path, name) for name in (ANA, BEN)}
    with (
        ScriptedProvider() as provider,
        serve(provider.url, settings.data, "tenancy=key", *AWAKE) as served,
    ):
        made = Work(served, provider, settings.data, shop, bank, keys)
        told(made)
        yield made


def environment(**more: str) -> dict[str, str]:
    return {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"], **more}


def command(*words: str) -> list[str]:
    return [sys.executable, "-W", "error", "-m", "callstack_proxy", "mcp", *words]


def over_stdio(*words: str, folder: Path, **more: str) -> Client:
    """The client of `callstack mcp WORDS`, which starts it in a folder."""
    program, *arguments = command(*words)
    return Client(
        stdio_client(StdioServerParameters(command=program, args=arguments, env=environment(**more), cwd=folder))
    )


def in_process(ask: Ask, folder: Path) -> Client:
    """The client of the same server in this process."""
    return Client(build_server(Memory(ask, lambda named: project_folders(Path(named)), str(folder)), "1.0"))


def own_proxy(data: Path, key: str = "") -> OwnProxy:
    """As the command reaches the proxy of a data directory, or its store."""
    flags = {"data": str(data), "tenancy": "key"}
    return OwnProxy(load_config(flags, asks_upstreams=False), key)


async def said(client: Client, tool: str, **arguments: Any) -> str:
    """The text of a result that must be none of an error."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    return text_of(result)


async def refused(client: Client, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    assert result.is_error, result.content
    return text_of(result)


def text_of(result: Any) -> str:
    (content,) = result.content
    text: str = content.text
    return text
