"""A session of several requests of a user, done by a real agent: once directly at the scripted provider, once by
`callstack wrap`. The provider has a prompt cache and charges as its model's does, so both runs have a bill.

`python -m tests.clients.session claude 20` plays one and prints what it cost (agents: claude, codex, opencode, pi).
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llm_test_provider import Model, ReceivedRequest, ScriptedAnswer, ScriptedProvider, calls, says
from proxy.accounting.model_prices import tariff_for
from tests.bill import sum_charged
from tests.clients import installing
from tests.clients.conftest import make_repository, run_client
from tests.clients.serving import ROOT
from tests.clients.test_wrap import AGENTS, KEY, PROMPT

MODULES = 40
"""Files of the repository. The agent reads them, each once, so that every request brings something new."""
PROMPTS = (
    "Find out why the import of invoices stops at the second file.",
    "Now write down which modules round amounts, and how.",
    "Another thing: are the names in the reports in the same order everywhere?",
    "Look through the checks that run at night, and list what they do not cover.",
    "Next: the printer module is to be removed. What else uses it?",
    "At last, say what a newcomer should read first.",
)
REQUESTS_BY_PROMPT = {20: (8, 7, 5), 60: (10,) * 6}
"""Requests of the agent for each request of the user: its commands, and its closing words."""


@dataclass(frozen=True)
class SessionAgent:
    """How an agent in the table of `test_wrap` is asked again in the same session, and runs a command."""

    runs: Callable[[str], ScriptedAnswer]
    again: tuple[str, ...]
    """Its arguments from the second request on; `{prompt}` is what the user says."""
    cache: str = "openai"


SESSION_AGENTS = {
    "claude": SessionAgent(
        lambda command: calls("Bash", command=command, description="Look"),
        ("-p", "{prompt}", "--continue", "--dangerously-skip-permissions", "--model", "claude-opus-5-5"),
        "anthropic",
    ),
    "codex": SessionAgent(
        lambda command: calls("exec_command", cmd=command),
        ("exec", "--dangerously-bypass-approvals-and-sandbox", "resume", "--last", "{prompt}"),
    ),
    "opencode": SessionAgent(
        lambda command: calls("bash", command=command, description="Look"), ("run", "--continue", "{prompt}")
    ),
    "pi": SessionAgent(lambda command: calls("bash", command=command), ("--continue", "-p", "{prompt}")),
}


@dataclass(frozen=True)
class PlayedSession:
    """Bills in USD: what the provider charged. `told` is the total of `callstack report`. `first_line` is what `wrap`
    said after the first request of the user, and `first_saved` what that one saved by the bills."""

    requests: int
    direct: float
    proxied: float
    told: dict[str, Any]
    first_line: str
    first_saved: float

    @property
    def share(self) -> float:
        return self.proxied / self.direct


def write_modules(repository: Path) -> None:
    """Always the same ones: about 1,500 tokens each."""
    for number in range(MODULES):
        drawn = random.Random(number)
        lines = [
            f"def step_{number}_{line}(amount, rate={drawn.randint(2, 99)}):\n"
            f"    return round(amount * {drawn.randint(100, 999)} / rate, {drawn.randint(0, 4)})\n"
            for line in range(38)
        ]
        (repository / f"module{number:02}.py").write_text("\n".join(lines))


def answers_to(agent: SessionAgent, requests: int) -> Iterator[list[ScriptedAnswer]]:
    """The model's answers, by the request of the user."""
    number = 0
    for prompt, count in zip(PROMPTS, REQUESTS_BY_PROMPT[requests], strict=False):
        looks = []
        for _ in range(count - 1):
            looks.append(agent.runs(f"cat module{number % MODULES:02}.py"))
            number += 1
        yield [*looks, says(f"I looked at {count - 1} modules. {prompt.rstrip('.?')}: it is in the last of them.")]


def play_session(name: str, program: Path, requests: int, folder: Path) -> PlayedSession:
    real = AGENTS[name]
    wrap = [sys.executable, "-P", "-m", "callstack_proxy", "wrap", "--data", str(folder / "data"), str(program), "--"]
    direct, before, _ = _play(name, [str(program)], requests, folder / "direct")
    proxied, after, first_line = _play(name, wrap, requests, folder / "proxied")
    report = subprocess.run(
        [sys.executable, "-m", "callstack_proxy", "report", "--json", "--data", str(folder / "data")],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    row = tariff_for(real.model)
    told = json.loads(report.stdout)["total"]
    first_saved = sum_charged(direct[:before], row) - sum_charged(proxied[:after], row)
    bills = sum_charged(direct, row), sum_charged(proxied, row)
    return PlayedSession(len(main(direct)), *bills, told, first_line, first_saved)


def main(asked: Sequence[ReceivedRequest]) -> list[ReceivedRequest]:
    """Those of the session, without side requests for a title."""
    return [each for each in asked if each.tool_names]


def _play(name: str, command: Sequence[str], requests: int, kept: Path) -> tuple[list[ReceivedRequest], int, str]:
    """What a provider received, whose cache is cold at first; how much of that came for the first request of the user,
    and the last line that stood on the screen then. Always in the same place, which then becomes the folder `kept`:
    paths stand in what an agent sends."""
    real, agent = AGENTS[name], SESSION_AGENTS[name]
    with ScriptedProvider(models=[Model(real.model, cache=agent.cache)]) as provider:
        provider.when(lambda received: not received.tool_names, says("Invoices"), loop=True)
        count, line = _play_at(provider, name, command, requests, kept)
        return list(provider.asked), count, line


def _play_at(
    provider: ScriptedProvider, name: str, command: Sequence[str], requests: int, kept: Path
) -> tuple[int, str]:
    real, agent = AGENTS[name], SESSION_AGENTS[name]
    here = kept.parent / "here"
    repository, home = make_repository(here / "repository"), here / "home"
    home.mkdir()
    write_modules(repository)
    real.settle(home, repository, provider.url)
    for settings in repository.glob("opencode.json"):  # it names a model of its own, which has no price
        settings.write_text(settings.read_text().replace("scripted", real.model).replace(f"sk-{real.model}", KEY))
    urls = {"url": provider.url, "origin": provider.url.removesuffix("/v1")}
    environ = {key: value.format(**urls) for key, value in real.environ.items()}
    first_count, first_line = 0, ""
    for number, answers in enumerate(answers_to(agent, requests)):
        provider.will(*answers)
        first = [PROMPTS[0] if word == PROMPT else word for word in real.words]
        words = [word.format(prompt=PROMPTS[number]) for word in agent.again] if number else first
        done = run_client(home, [*command, *words], repository, PYTHONPATH=str(ROOT), **environ)
        assert done.returncode == 0, done.stdout
        assert provider.script.left == 0, done.stdout
        if not number:
            lines = [line for line in done.stdout.splitlines() if not line.startswith("note: ")]
            first_count, first_line = len(provider.asked), lines[-1] if lines else ""
    here.rename(kept)
    return first_count, first_line


def print_session(name: str, requests: int) -> None:
    clients = Path(os.environ.get("CALLSTACK_CLIENTS") or Path.home() / ".cache" / "callstack-clients")
    program = installing.npm(clients / (AGENTS[name].folder or name), AGENTS[name].packages)
    with tempfile.TemporaryDirectory() as folder:
        played = play_session(name, program / "node_modules" / ".bin" / name, requests, Path(folder))
    sys.stdout.write(
        f"{name}, {played.requests} requests: ${played.direct:.4f} without the proxy, ${played.proxied:.4f} with it "
        f"({100 * (1 - played.share):+.1f} % saved); callstack report says ${played.told['cost']:.4f}, and "
        f"${played.told['cost_untouched']:.4f} untouched\n"
    )


if __name__ == "__main__":
    print_session(sys.argv[1], int(sys.argv[2]))
