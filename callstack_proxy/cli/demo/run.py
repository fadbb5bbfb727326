"""The demo from beginning to end: starts the parts, lets the agent work, checks every answer, prints what it cost.

    agent -> proxy (a process of its own) -> scripted provider (a thread of this one), over HTTP

Every answer must be the one the model gave, must hold no trace of the proxy, and a recall must return what was read.
`run_demo` returns the exit code: 0 when every check held, 1 when one did not, 130 after Ctrl-C.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from callstack_proxy.cli.demo.agent import Agent, AgentAnswer, AgentError, number_lines
from callstack_proxy.cli.demo.model import DemoModel
from callstack_proxy.cli.demo.project import read_project_file, write_project
from callstack_proxy.cli.demo.proxy_process import LOG_NAME, ProxyFailed, ProxyProcess
from callstack_proxy.cli.demo.screen import WIDE, DemoRow, Screen
from callstack_proxy.cli.demo.session import SYSTEM, DemoTask, tasks
from callstack_proxy.cli.output import output_width
from callstack_proxy.management.reports import sum_receipts
from llm_test_provider import Model, ScriptedProvider
from proxy.accounting import Receipt
from proxy.core.ledger import STACK_PREFIX

MODEL = "gpt-5.4"
"""A model in the price table, with a prompt cache that the scripted provider simulates."""
SETTINGS: Mapping[str, object] = {"drain_s": 2, "folding": "full", "frame_max_tokens": 16_000}
"""As much leaves as can: a session that somebody watches for a minute shows more of it."""
FIRST_RECALLED_LOG, RECALLED_LOG = "logs/nightly-2026-11-18.log", "logs/nightly-2026-11-19.log"
"""The logs of one frame, of which the model recalls the first page at the end, and a line of the second log."""
PROXY_MARKERS = (STACK_PREFIX, "stack-context", "frame-results")
"""Texts that no answer may contain."""
RECEIPT_TIMEOUT_S = 5.0
FAILED, INTERRUPTED = 1, 130


class DemoFailed(Exception):
    """A check did not hold; the message says which."""


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """`data` is kept where it is given, else everything is removed. `delay_s` is the pause between two
    requests; `shows_all` prints a row for each."""

    data: Path | None = None
    delay_s: float = 0.1
    as_json: bool = False
    shows_all: bool = False


@dataclass(slots=True)
class DemoProgress:
    """The requests so far, and the ids of the conversation and of the newest request."""

    rows: list[DemoRow] = field(default_factory=list)
    conversation: str = ""
    request: str = ""


def run_demo(options: DemoOptions | None = None) -> int:
    options = options or DemoOptions()
    width = WIDE if options.shows_all and output_width() is None else None
    screen = Screen(None if options.as_json else Console(highlight=False, width=width), shows_all=options.shows_all)
    # SIGTERM ends the demo as Ctrl-C does, so that no process stays behind.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with _folders(options.data) as (data, work):
            _run(options, screen, data, work)
    except KeyboardInterrupt:
        screen.say("\nInterrupted.", "bold")
        return INTERRUPTED
    except (DemoFailed, AgentError, ProxyFailed, OSError) as error:
        screen.show_failure(str(error))
        where = options.data or "the folder given by --data DIR, in another run"
        screen.say(f"The proxy's log is {LOG_NAME} in {where}.")
        if options.as_json:
            _write_json({"ok": False, "error": str(error)})
        return FAILED
    finally:
        screen.close()
        signal.signal(signal.SIGTERM, before)
    return 0


@contextlib.contextmanager
def _folders(kept: Path | None) -> Iterator[tuple[Path, Path]]:
    """The folder of the proxy's data, and the folder in which the agent works."""
    scratch = Path(tempfile.mkdtemp(prefix="callstack-demo-"))
    try:
        data = (kept or scratch / "data").expanduser().resolve()
        data.mkdir(parents=True, exist_ok=True, mode=0o700)
        work = scratch / "ledgerline"
        work.mkdir()
        yield data, work
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _run(options: DemoOptions, screen: Screen, data: Path, work: Path) -> None:
    write_project(work)
    script = demo_script()
    model = DemoModel(script)
    with provider_for(model) as provider, ProxyProcess(provider.url, data, SETTINGS) as proxy:
        screen.show_start(proxy.clients, data, SETTINGS)
        with contextlib.closing(Agent(proxy.clients, work, model=MODEL, system=SYSTEM)) as agent:
            played = _play_session(options, screen, script, agent, model, proxy)
        tree = proxy.tree(played.conversation)
    receipts = [row.receipt for row in played.rows]
    whole = sum_receipts(receipts)
    _check_session(model, receipts)
    screen.close()
    screen.show_summary(whole, receipts[-1], tree, model.hidden_calls)
    screen.show_next_commands(data if options.data else None, played.conversation, played.request)
    if options.as_json:
        kept = {"data": str(data) if options.data else None, "conversation": played.conversation}
        _write_json(
            {"ok": True, "total": whole, "requests": receipts, "tree": tree, "hidden": model.hidden_calls, **kept}
        )


def demo_script() -> tuple[DemoTask, ...]:
    """The tasks, with the log lines that the model recalls: the first eight of the frame, and a warning."""
    log = read_project_file(RECALLED_LOG)
    warning = next(line for line in log.splitlines() if "WARNING" in line)
    number = warning.partition("ledger: ")[2].partition(" ")[0]
    old_lines = "\n".join(number_lines(read_project_file(FIRST_RECALLED_LOG)).splitlines()[:8])
    return tasks(old_lines, warning, number)


def provider_for(model: DemoModel) -> ScriptedProvider:
    """A provider that answers every request with the demo model."""
    provider = ScriptedProvider(models=[Model(MODEL, cache="openai")])
    provider.when(lambda _: True, model.answer, loop=True)
    return provider


def _play_session(
    options: DemoOptions,
    screen: Screen,
    script: tuple[DemoTask, ...],
    agent: Agent,
    model: DemoModel,
    proxy: ProxyProcess,
) -> DemoProgress:
    played = DemoProgress()
    for task in script:
        screen.show_user_message(task.user)
        for reply in work_on(agent, model, task):
            row = _record_request(played, reply, model, proxy)
            screen.show_row(row)
            time.sleep(options.delay_s)
    return played


def work_on(agent: Agent, model: DemoModel, task: DemoTask) -> Iterator[AgentAnswer]:
    """The agent works on a task until the model has no more calls. Raises DemoFailed, AgentError."""
    agent.add_user_message(task.user)
    while True:
        model.begin_request()
        reply = agent.ask()
        check_answer(agent.requests, reply, model)
        yield reply
        if not reply.calls:
            return
        agent.run_calls(reply)


def check_answer(number: int, reply: AgentAnswer, model: DemoModel) -> None:
    """Checks that the agent got exactly what the model answered. Raises DemoFailed."""
    text, calls = model.expected_answer
    got = tuple((call.name, dict(call.arguments)) for call in reply.calls)
    if reply.text != text:
        raise DemoFailed(f"request {number}: the agent was told {reply.text[:200]!r}, the model said {text[:200]!r}")
    if got != calls:
        raise DemoFailed(f"request {number}: the agent was given {got}, the model made {calls}"[:600])
    for trace in PROXY_MARKERS:
        if trace.encode() in reply.raw:
            raise DemoFailed(f"request {number}: {trace!r} has leaked to the agent")
    if model.faults:
        raise DemoFailed(f"request {number}: {model.faults[0]}")


def _record_request(played: DemoProgress, reply: AgentAnswer, model: DemoModel, proxy: ProxyProcess) -> DemoRow:
    played.conversation = reply.headers.get("x-stack-conversation", played.conversation)
    played.request = reply.headers.get("x-stack-request-id", "")
    if not played.conversation or not played.request:
        raise DemoFailed(f"the proxy named no conversation: {reply.headers.get('x-stack-status', 'no x-stack-status')}")
    receipt = _wait_for_receipt(proxy, played)
    titles = {frame: title for title, frame in model.frames.items()}
    frame = titles.get(receipt.frame, "root" if receipt.frame else "-")
    shown = DemoRow(len(played.rows) + 1, _activity_text(reply), frame, receipt)
    played.rows.append(shown)
    return shown


def _wait_for_receipt(proxy: ProxyProcess, played: DemoProgress) -> Receipt:
    """Waits for the receipt, which is stored a moment after the answer."""
    deadline = time.monotonic() + RECEIPT_TIMEOUT_S
    while True:
        found = proxy.receipt(played.request, played.conversation)
        if found:
            return msgspec.convert(found, Receipt)
        if time.monotonic() > deadline:
            raise DemoFailed(f"request {played.request} has no receipt after {RECEIPT_TIMEOUT_S:.0f} s")
        time.sleep(0.01)


def _activity_text(reply: AgentAnswer) -> str:
    """What the agent does after an answer, in a few words."""
    if not reply.calls:
        return "answers the user"
    return ", ".join(_call_in_words(call.name, call.arguments) for call in reply.calls)


def _call_in_words(name: str, arguments: Mapping[str, Any]) -> str:
    verb = {"read_file": "reads", "write_file": "writes", "edit_file": "edits", "search": "searches"}.get(name)
    if verb:
        return f"{verb} {arguments['path']}"
    command = str(arguments.get("command", ""))
    return f"runs {command}" if command else {"todo_write": "updates its list", "list_files": "lists files"}[name]


def _check_session(model: DemoModel, receipts: list[Receipt]) -> None:
    """Checks on the whole session. Raises DemoFailed."""
    if any(receipt.status in ("bypass", "error", "stateless") for receipt in receipts):
        reasons = sorted({f"{receipt.status} ({receipt.reason})" for receipt in receipts if receipt.reason})
        raise DemoFailed(f"the proxy stepped aside: {', '.join(reasons)}")
    if not model.frames:
        raise DemoFailed("the conversation never woke, no frame was opened")
    if not model.recalled:
        raise DemoFailed("nothing was recalled")


def _write_json(value: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(msgspec.to_builtins(value)) + "\n")
