"""LiteLLM's own proxy with its guardrail `headroom`, which asks us what to send: the provider gets less, and the client
sees no difference, in three APIs, plain and streamed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from llm_test_provider import ScriptedProvider, calls, says
from tests.clients.conftest import NOWHERE
from tests.clients.serving import serve
from tests.ports import held_port, port_of

Json = dict[str, Any]
LITELLM = "litellm[proxy]==1.108.7"
START_LIMIT_S = 300
"""Its first start after an install takes 15 s of CPU, each later one 8 s: minutes on a machine with much else to do."""
MASTER_KEY = f"sk-{'0123456789abcdef' * 4}"
CONFIGURATION = """\
model_list:
  - model_name: gpt-x
    litellm_params: {{model: openai/gpt-5.4, api_base: "{provider}/v1", api_key: sk-theirs}}
  - model_name: claude-x
    litellm_params: {{model: anthropic/claude-sonnet-4-5, api_base: "{provider}", api_key: sk-theirs}}
guardrails:
  - guardrail_name: callstack
    litellm_params: {{guardrail: headroom, mode: pre_call, api_base: "{ours}", default_on: true}}
"""
OUTPUT = "\n".join(f"line {number}: totals and rounding" for number in range(700))


@pytest.fixture
def asked_through(pip: Callable[..., Path], provider: ScriptedProvider, tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Sends a body to a path of LiteLLM; gives the answer as text."""
    program = pip("litellm-proxy", LITELLM) / "bin" / "litellm"
    with (
        serve(provider.url, tmp_path / "data", "wake_at_tokens=0", "folding=full") as ours,
        running(program, CONFIGURATION.format(provider=provider.url, ours=ours.origin), tmp_path) as origin,
    ):

        def ask(path: str, body: Json) -> str:
            headers = {"content-type": "application/json", "authorization": f"Bearer {MASTER_KEY}"}
            request = urllib.request.Request(f"{origin}{path}", json.dumps(body).encode(), headers)
            with urllib.request.urlopen(request, timeout=START_LIMIT_S) as answer:
                return str(answer.read().decode())

        yield ask


@contextmanager
def running(program: Path, configuration: str, folder: Path) -> Iterator[str]:
    file, place = folder / "litellm.yaml", held_port()
    file.write_text(configuration)
    origin = f"http://127.0.0.1:{port_of(place)}"
    environ = {
        "PATH": f"{program.parent}:{os.environ['PATH']}", "HOME": str(folder), "HTTPS_PROXY": NOWHERE,
        "HTTP_PROXY": NOWHERE, "NO_PROXY": "127.0.0.1,localhost", "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_MASTER_KEY": MASTER_KEY,
    }  # fmt: skip
    words = [str(program), "--config", str(file), "--host", "127.0.0.1", "--port", str(port_of(place))]
    with (folder / "litellm.log").open("wb") as log:
        process = subprocess.Popen(words, env=environ, cwd=folder, stdout=log, stderr=log)
    try:
        until = time.monotonic() + START_LIMIT_S
        while not answers(origin):
            is_hopeful = process.poll() is None and time.monotonic() < until
            assert is_hopeful, (folder / "litellm.log").read_text()[-3000:]
            time.sleep(0.2)
        yield origin
    finally:
        process.terminate()
        process.wait(30)
        place.close()


def answers(origin: str) -> bool:
    try:
        with urllib.request.urlopen(f"{origin}/health/liveliness", timeout=2):
            return True
    except (urllib.error.URLError, OSError):
        return False


@dataclass(frozen=True)
class Api:
    """How a client of LiteLLM writes a conversation in one of its APIs."""

    path: str
    key: str
    settings: Json
    step: Callable[[int], list[Json]]

    def body(self, history: list[Json], *, streamed: bool) -> Json:
        return {**self.settings, self.key: history, "stream": streamed}


def chat_step(number: int) -> list[Json]:
    called = {"name": "read", "arguments": json.dumps({"path": f"f{number}.py"})}
    return [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": f"c{number}", "type": "function", "function": called}],
        },
        {"role": "tool", "tool_call_id": f"c{number}", "content": f"{OUTPUT}\nmarker{number}"},
    ]


def messages_step(number: int) -> list[Json]:
    called = {"type": "tool_use", "id": f"toolu_{number}", "name": "read", "input": {"path": f"f{number}.py"}}
    result = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": f"{OUTPUT}\nmarker{number}"}
    return [{"role": "assistant", "content": [called]}, {"role": "user", "content": [result]}]


def responses_step(number: int) -> list[Json]:
    called = {"name": "read", "arguments": json.dumps({"path": f"f{number}.py"})}
    return [
        {"type": "function_call", "call_id": f"c{number}", **called},
        {"type": "function_call_output", "call_id": f"c{number}", "output": f"{OUTPUT}\nmarker{number}"},
    ]


NOTHING = {"type": "object", "properties": {}}
CHAT_TOOL = {"type": "function", "function": {"name": "read", "parameters": NOTHING}}
APIS = (
    Api("/v1/chat/completions", "messages", {"model": "gpt-x", "tools": [CHAT_TOOL]}, chat_step),
    Api(
        "/v1/messages",
        "messages",
        {"model": "claude-x", "max_tokens": 500, "tools": [{"name": "read", "input_schema": NOTHING}]},
        messages_step,
    ),
    Api(
        "/v1/responses",
        "input",
        {"model": "gpt-x", "tools": [{"type": "function", "name": "read", "parameters": NOTHING}]},
        responses_step,
    ),
)


@pytest.mark.rows("X-66")
def test_the_provider_gets_less_and_the_client_its_answer(
    asked_through: Callable[..., str], provider: ScriptedProvider
) -> None:
    for api in APIS:
        history: list[Json] = []
        for task in ("Fix the rounding in the totals.", "Write a letter to the accountants.", "Migrate the customers."):
            history += [{"role": "user", "content": task}]
            for number in range(4):
                provider.will(says("Good."))
                answer = asked_through(api.path, api.body(history, streamed=number == 1))
                assert "Good." in answer, (api.path, answer)
                history += api.step(10 * len(history) + number)
            history += [{"role": "assistant", "content": "Done."}]
        history += [{"role": "user", "content": "What was in the first file?"}]
        provider.will(says("Good."))
        assert "Good." in asked_through(api.path, api.body(history, streamed=True))
        sent = json.dumps(provider.received[-1].body)
        (digits,) = set(re.findall(r"hash=([0-9a-f]{24})", sent))
        assert len(sent) < len(json.dumps(history)) / 2, api.path
        assert "headroom_retrieve" in sent
        assert "marker10" not in sent

        provider.will(calls("headroom_retrieve", hash=digits, query="marker10"), says("It was the tenth."))
        answer = asked_through(api.path, api.body(history, streamed=False))
        assert "It was the tenth." in answer, api.path
        assert "\\nmarker10" in json.dumps(provider.received[-1].body), api.path
