"""The command `wrap`: reads where the agent points, starts or joins a proxy in front of that, runs the agent with
settings of its own, and says in one line what came of it."""

from __future__ import annotations

import http
import json
import os
import shlex
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from callstack_proxy.cli.context import (
    ConfigFile,
    DataDirectory,
    ServerInfo,
    config_file_of,
    data_flag,
    fetch_page,
    load_settings,
    read_server_file,
)
from callstack_proxy.cli.output import escape_unsafe, one_line, pluralize, print_error, print_line, print_note
from callstack_proxy.cli.wrap.agent_process import run_agent
from callstack_proxy.cli.wrap.agents import Agent, Launch, LaunchSettings, agent_named, known_agents
from callstack_proxy.cli.wrap.explainer import Explainer
from callstack_proxy.cli.wrap.lasting_settings import read_notes
from callstack_proxy.cli.wrap.own_settings import OwnProvider, Surroundings
from callstack_proxy.cli.wrap.shared_proxy import SharedProxy, planned_folder, shared_proxy
from callstack_proxy.config_sources import parse_assignments
from callstack_proxy.management.reports import (
    PaidRequest,
    ReceiptTotals,
    format_amounts,
    percent_saved,
    plan_requests,
    plan_words,
    reason_meaning,
    sum_balances,
)
from callstack_proxy.management.views import help_begins, is_too_short, tells_standing
from proxy.accounting import Receipt
from proxy.config import Config
from proxy.errors import InvalidConfiguration, ProxyError

USAGE_CODE, NOT_EXECUTABLE_CODE, NOT_FOUND_CODE = 2, 126, 127
"""What a shell says of wrong arguments, of a program that cannot run, and of one that is not there."""
NESTED_VARIABLE = "CALLSTACK_WRAPPED"
"""Tells a wrap inside a wrap what the variables were before, as JSON: name -> value or null."""
LISTEN_OPTIONS = {"host": "127.0.0.1", "port": "0", "tenancy": "single"}
"""A proxy for this machine's user alone, on a free port, whatever else is configured."""
DRY_RUN_ORIGIN, DRY_RUN_FOLDER = "http://127.0.0.1:PORT", Path("TEMPORARY")
RECEIPTS_TIMEOUT_S = 2.0
"""A receipt is stored a moment after the answer."""
RECEIPTS_POLL_S = 0.05
MAX_REQUESTS_SUMMED = 1_000
MAX_REQUESTS_REPLAYED = 300
"""A replay of more would keep the user waiting for seconds: `callstack replay` has a progress bar."""
OPTIONS = ("--config", "--upstream", "--data", "--mode", "--set", "--dry-run")
NETWORK_PROXIES = ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")

wrap = typer.Typer(add_completion=False, rich_markup_mode=None)


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that is known before anything is started. `options` make `serve` load the same `settings`."""

    agent: Agent
    program: str
    around: Surroundings
    own: OwnProvider
    settings: Config
    options: Mapping[str, str]
    config_file: Path | None


@wrap.command("wrap", context_settings={"ignore_unknown_options": True})
def run(
    agent: Annotated[str, typer.Argument(help=f"{', '.join(known_agents())}, or any other command.")] = "",
    arguments: Annotated[list[str] | None, typer.Argument(help="The agent's own; behind -- all are.")] = None,
    config: ConfigFile = None,
    upstream: Annotated[
        str | None, typer.Option(help="Base URL of the provider; default: what the agent asks without us.")
    ] = None,
    data: DataDirectory = None,
    mode: Annotated[str | None, typer.Option(help="off, shadow (measures only), passive or active.")] = None,
    assigned: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any key of proxy.yaml.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be set and started.")] = False,
) -> None:
    """Start a coding agent through the proxy; its own settings stay as they are."""
    if not agent:
        print_error(_which_agent_text())
        raise typer.Exit(USAGE_CODE)
    if agent.startswith("-"):
        near = get_close_matches(agent, OPTIONS, n=1)
        raise typer.BadParameter(f"{agent}: there is no such option{f'; did you mean {near[0]}?' if near else ''}")
    found = agent_named(agent)
    program = shutil.which(found.program)
    if program is None:
        print_error(_missing_text(agent, found))
        raise typer.Exit(NOT_FOUND_CODE)
    around = Surroundings(_environ_before(), Path.home(), Path.cwd(), tuple(arguments or ()))
    own = found.own_provider(around)
    named = {"upstream": upstream, "data": str(data.expanduser().absolute()) if data else None, "mode": mode}
    options = parse_assignments(assigned or ()) | {key: value for key, value in named.items() if value is not None}
    settings, completed = _load_settings(config, options, own)
    plan = Plan(found, program, around, own, settings, completed, config_file_of(config))
    if dry_run:
        _print_plan(plan)
    else:
        raise typer.Exit(_run(plan))


def _which_agent_text() -> str:
    known = known_agents()
    installed = [name for name in known if shutil.which(known[name].program)]
    here = f"here are {', '.join(installed)}" if installed else "none of those known is here"
    example = f"callstack wrap {installed[0] if installed else 'claude'}"
    return f"which agent? {here}. Known: {', '.join(known)}; any other command works too. Type: {example}"


def _missing_text(word: str, agent: Agent) -> str:
    if agent.install:
        return f"{agent.program} is not installed, or not on the PATH; to install it: {agent.install}"
    alike = get_close_matches(word, known_agents(), cutoff=0.5)
    near = max(alike, key=lambda known: known[:2] == word[:2], default="")  # "clod" is rather claude than codex
    meant = f"did you mean {near}? " if near else ""
    return f"{word}: there is no such command on the PATH; {meant}known agents: {', '.join(known_agents())}"


def _environ_before() -> dict[str, str]:
    """The environment, without what a wrap around this one has set in it."""
    before = json.loads(os.environ.get(NESTED_VARIABLE) or "{}")
    environ = {name: value for name, value in os.environ.items() if name not in {*before, NESTED_VARIABLE}}
    return environ | {name: value for name, value in before.items() if value is not None}


def _load_settings(
    config: Path | None, options: Mapping[str, str], own: OwnProvider
) -> tuple[Config, Mapping[str, str]]:
    """The proxy's settings, and the options to load them again. Where no upstream is configured, it is what the agent
    asks without us: one for both of OpenAI's APIs, one for Anthropic's. Raises InvalidConfiguration."""
    options = {**options, **LISTEN_OPTIONS}
    settings = load_settings(config, options)
    if not settings.upstreams:
        _refuse_two_proxies(settings, own)
        _refuse_lasting_settings(settings, own)
        openai = {"url": own.openai, "speaks": "chat,responses"}
        anthropic = {"url": own.anthropic, "speaks": "messages"}
        upstreams = {"default": openai, "anthropic": anthropic}
        options |= {f"upstreams.{name}.{key}": value for name, each in upstreams.items() for key, value in each.items()}
        settings = load_settings(config, options)
    return settings, options


def _refuse_two_proxies(settings: Config, own: OwnProvider) -> None:
    """Raises InvalidConfiguration where the upstream would be the proxy that runs on the data directory."""
    server = read_server_file(settings.data)
    if server is not None and any(url.startswith(server.url) for url in (own.openai, own.anthropic)):
        raise InvalidConfiguration(
            f"the agent's own settings name the proxy at {server.url} already; start it without wrap, or take that "
            "address out of them"
        )


def _refuse_lasting_settings(settings: Config, own: OwnProvider) -> None:
    """Raises InvalidConfiguration where the upstream would be the address that `callstack on` has written."""
    for name, note in read_notes(settings.data).items():
        if any(change.value in (own.openai, own.anthropic) for change in note.changes):
            raise InvalidConfiguration(
                f"`callstack on` has set {name} to a proxy for good; start it without wrap, beside `callstack serve`, "
                f"or say `callstack off {name}` first"
            )


def _run(plan: Plan) -> int:
    """The agent's exit code."""
    began_ms = time.time_ns() // 1_000_000
    with _temporary_folder() as folder:
        _configure(plan, DRY_RUN_ORIGIN, folder)  # what the user has to mend is said before anything starts
        with shared_proxy(plan.settings, plan.options, plan.config_file) as running:
            configured = _configure(plan, running.server.url, folder)
            for name, text in configured.files.items():
                _write_private(folder / name, text)
            explainer = Explainer(running.port, running.is_running, lambda: _explanation(plan, running))
            with explainer:
                code = _start_agent(plan, configured)
            with suppress(KeyboardInterrupt):  # one Ctrl-C too many: the exit code is the agent's all the same
                if explainer.proxy_died or not running.is_running():
                    print_error(_death_text(running))
                else:
                    _print_outcome(running, began_ms)
                if running.settings.data != plan.settings.data:
                    look = _look_command(plan.settings, running.settings.data)
                    print_note(f"{_own_folder_text(plan.settings)} Look at them with --data, such as\n{look}")
    return code


def _configure(plan: Plan, origin: str, folder: Path) -> LaunchSettings:
    return plan.agent.configure(Launch(origin, folder, plan.around, plan.own, plan.settings))


def _start_agent(plan: Plan, configured: LaunchSettings) -> int:
    try:
        return run_agent(_command(plan, configured), _environ(plan, configured))
    except OSError as error:
        print_error(f"{plan.program} cannot be started: {error.strerror}")
        return NOT_EXECUTABLE_CODE


def _command(plan: Plan, configured: LaunchSettings) -> list[str]:
    return [plan.program, *configured.arguments, *plan.around.arguments, *configured.last_arguments]


def _environ(plan: Plan, configured: LaunchSettings) -> dict[str, str]:
    """The user's environment with the agent's settings. Where requests leave through a proxy of the network, those to
    this machine must not."""
    before = plan.around.environ
    ours = dict(configured.environ)
    if any(before.get(name) for name in NETWORK_PROXIES):
        for name in ("NO_PROXY", "no_proxy"):
            ours[name] = ",".join(filter(None, (before.get(name, ""), "127.0.0.1")))
    replaced = {name: before.get(name) for name in ours}
    return {**before, **ours, NESTED_VARIABLE: json.dumps(replaced)}


@contextmanager
def _temporary_folder() -> Iterator[Path]:
    """A folder that its owner alone can read."""
    with tempfile.TemporaryDirectory(prefix="callstack-wrap-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _write_private(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text, encoding="utf-8")


# -------------------------------------------------------------------------------------------------------------- output
def _print_plan(plan: Plan) -> None:
    """Prints the program with its arguments, variables and files, and the proxy with its upstreams."""
    configured = _configure(plan, DRY_RUN_ORIGIN, DRY_RUN_FOLDER)
    before = plan.around.environ
    ours = {name: value for name, value in _environ(plan, configured).items() if before.get(name) != value}
    rows = [("run", shlex.join(_command(plan, configured)))]
    rows += [("set", f"{name}={value}") for name, value in ours.items() if name != NESTED_VARIABLE]
    rows += [("file", str(DRY_RUN_FOLDER / name)) for name in configured.files]
    rows += [("upstream", f"{each.url} ({', '.join(each.speaks)})") for each in plan.settings.upstreams.values()]
    folder = planned_folder(plan.settings)
    rows += [("mode", plan.settings.mode), ("data", str(folder))]
    if folder != plan.settings.data:
        rows.append(("look", _look_command(plan.settings, folder)))
    for name, value in rows:
        print_line(f"{name:<10}{one_line(value)}", to_copy=True)
    if folder != plan.settings.data:
        print_line(_own_folder_text(plan.settings))


def _own_folder_text(settings: Config) -> str:
    """Why the sessions are elsewhere."""
    return f"A proxy with another configuration runs on {settings.data}, so this one keeps its sessions elsewhere."


def _look_command(settings: Config, folder: Path) -> str:
    return f"callstack report{data_flag(settings.model_copy(update={'data': folder}))}"


def _explanation(plan: Plan, running: SharedProxy) -> str:
    """What an agent reads instead of an answer once the proxy is dead."""
    return (
        f"callstack: the proxy between this agent and its provider has ended{running.ending()}, so no request can "
        "pass. The conversation is stored. Leave the agent and start it again with "
        f"`callstack wrap {Path(plan.program).name}`; the proxy's log is {running.log}"
    )


def _death_text(running: SharedProxy) -> str:
    return (
        f"the proxy has ended{running.ending()} while the agent ran, and requests were refused from then on; the "
        f"conversation is stored, and the proxy's log is {running.log}"
    )


def _print_outcome(running: SharedProxy, began_ms: int) -> None:
    """One line on stderr, so that the agent's stdout stays its own."""
    try:
        receipts = _receipts_since(running.server, began_ms)
    except ProxyError as error:
        print_note(f"what was saved is not known: {error}")
        return
    flag = data_flag(running.settings)
    forecast = _forecast(running.settings, receipts) if running.settings.mode == "shadow" else None
    text = escape_unsafe(outcome_text(receipts, flag, forecast))
    typer.secho(f"{_line_begin()}{text}", fg="red" if is_failure(receipts) else "cyan", err=True)
    if is_failure(receipts) and (asked := running.settings.upstreams.get(receipts[-1].get("upstream", ""))):
        print_note(f"the provider was asked at {asked.url}")
    if begins := _help_begins(receipts, running.settings.wake_at_tokens):
        print_note(f"too short to help yet: {begins}")


def _line_begin() -> str:
    """What the agent printed last may have no end of line. A terminal is filled up to its width, which goes to the next
    line only if something stands in this one; where both go into one file, a line is begun."""
    if sys.stderr.isatty():
        return " " * (shutil.get_terminal_size().columns - 1) + "\r"
    with suppress(OSError, ValueError):
        if os.path.sameopenfile(sys.stdout.fileno(), sys.stderr.fileno()):
            return "\n"
    return ""


def is_failure(receipts: Sequence[Mapping[str, Any]]) -> bool:
    """Whether not one request was answered, of those that are over."""
    return bool(receipts) and all(map(_failed, receipts))


def _failed(receipt: Mapping[str, Any]) -> bool:
    return receipt.get("status") == "error" or receipt.get("client_status", 0) >= http.HTTPStatus.BAD_REQUEST


def _cause(failed: Sequence[Mapping[str, Any]]) -> str:
    """Why most of them failed."""
    causes = Counter((receipt.get("reason", ""), receipt.get("client_status", 0)) for receipt in failed)
    (reason, status), _ = causes.most_common(1)[0]
    return reason_meaning(reason) if reason else f"status {status}"


def _forecast(settings: Config, receipts: Sequence[Mapping[str, Any]]) -> ReceiptTotals | None:
    """What mode `active` would have made of the conversations of these requests; None if that cannot be said."""
    shadowed = list(dict.fromkeys(receipt["conversation"] for receipt in receipts if receipt.get("conversation")))
    if not shadowed or len(receipts) > MAX_REQUESTS_REPLAYED:
        return None
    from callstack_proxy.cli.wrap.forecast import replay_as_active  # the replay costs 0.2 s, and few runs are shadowed

    try:
        return replay_as_active(settings, shadowed)
    except ProxyError as error:
        print_note(f"what mode active would have cost is not known: {error}")
        return None


def outcome_text(receipts: Sequence[Mapping[str, Any]], flag: str, forecast: ReceiptTotals | None = None) -> str:
    """Requests, what was saved or lost, and where to look, within 80 columns. `flag` names the data directory;
    `forecast` is what mode `active` would have made of what mode `shadow` passed."""
    if not receipts:
        return "callstack: no request of the agent came through the proxy"
    if is_failure(receipts):
        return f"{pluralize(len(receipts), 'request')}, all failed: {_cause(receipts)}"
    more = " or more" if len(receipts) >= MAX_REQUESTS_SUMMED else ""
    count = f"{pluralize(len(receipts), 'request')}{more}"
    if forecast is not None and not any(receipt.get("plan") for receipt in receipts):
        balance = _forecast_text(forecast)
    elif all(receipt.get("status") == "shadow" for receipt in receipts):
        balance = "mode active not measured"
    else:
        balance = _paid_text(receipts)
    failed = sum(map(_failed, receipts))
    return f"{count}, {f'{failed:,} failed, ' if failed else ''}{balance}; look: callstack console{flag}"


def _paid_text(receipts: Sequence[Mapping[str, Any]]) -> str:
    """What was taken of a plan that paid for all, or else what was saved of the dollars paid."""
    requests = msgspec.convert(list(receipts), list[PaidRequest])
    by_plan, paid = plan_requests(requests)
    part = f"{by_plan:,} by a plan; the others: " if 0 < by_plan < paid else ""
    return plan_words(requests) or f"{part}{_balance_text(receipts)}"


def _help_begins(receipts: Sequence[Mapping[str, Any]], wake_at: int | None) -> str:
    """When help begins, where no request was long enough for it; else empty. `receipts` are the newest first."""
    answered = [msgspec.convert(receipt, Receipt, strict=False) for receipt in receipts if receipt]
    work = [receipt for receipt in answered if tells_standing(receipt)]
    return help_begins(work[0], wake_at) if work and all(map(is_too_short, work)) else ""


def _balance_text(receipts: Sequence[Mapping[str, Any]]) -> str:
    total = sum_balances(map(msgspec.json.encode, receipts))
    saved, untouched = total.saved, total.cost_untouched
    amount = _amount_text(saved, untouched)
    return f"{'lost' if saved < 0 else 'saved'} {amount}" if amount else "nothing saved"


def _forecast_text(active: ReceiptTotals) -> str:
    amount = _amount_text(active.saved_after, active.cost_untouched)
    if not amount:
        return "mode active would save nothing"
    return f"mode active would {'lose' if active.saved_after < 0 else 'save'} {amount}"


def _amount_text(saved: float, untouched: float) -> str:
    """With its share of the untouched cost; empty where it is nothing."""
    (amount,) = format_amounts([abs(saved)])
    percent = percent_saved(abs(saved), untouched)
    share = "" if percent is None else f" ({percent:.1f} %)"
    return f"${amount}{share}" if float(amount) else ""


def _receipts_since(server: ServerInfo, began_ms: int) -> list[Mapping[str, Any]]:
    """The receipts of the requests that came since then, those of other agents at this proxy among them; empty ones
    for requests that have none after a while. Raises ProxyError."""
    deadline = time.monotonic() + RECEIPTS_TIMEOUT_S
    while True:
        page = fetch_page(server, f"/stack/requests?limit={MAX_REQUESTS_SUMMED}")
        rows = [row for row in json.loads(page)["requests"] if row["created"] >= began_ms]
        receipts: list[Mapping[str, Any]] = [row["receipt"] for row in rows]
        if all(receipts) or time.monotonic() > deadline:
            return receipts
        time.sleep(RECEIPTS_POLL_S)
