"""The command `savings`: what the proxy would have saved in the sessions that agents on this machine have written.

It finds their logs, replays them with the product itself, and adds up. Nothing leaves the machine.
"""

from __future__ import annotations

import math
import re
import shutil
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from callstack_proxy.cli.context import AsJson, ConfigFile, load_settings, one_of, project_folders
from callstack_proxy.cli.output import (
    align_columns,
    escape_unsafe,
    one_line,
    pluralize,
    print_error,
    print_json,
    print_line,
    progress_bar,
)
from callstack_proxy.cli.savings.page import savings_page
from callstack_proxy.cli.savings.plan import READ_WEIGHTS, TariffOf, plan_detail_lines, window_use
from callstack_proxy.cli.savings.running_sum import RunningSum, is_newer
from callstack_proxy.cli.savings.summary import (
    GROUPINGS,
    Grouping,
    assumption_lines,
    client_of,
    detail_lines,
    group_lines,
    group_sessions,
    summary_lines,
)
from callstack_proxy.management.reports import is_dearer
from callstack_proxy.replay import (
    FoundLogs,
    ReplayFailure,
    ReplayOptions,
    ReplayResult,
    cpu_count,
    find_logs,
    newest_first,
    replay_logs,
    session_formats,
    sum_needs,
    sum_rows,
    total_size,
)

LIMITS = (
    "A replay shows money and context, not whether the agent would have worked better or worse: its recorded steps are "
    "fixed. Prices are list prices, tokens are counted here, the provider's cache is simulated."
)
PLAN_LIMITS = (
    "A replay shows windows and context, not whether the agent would have worked better or worse: its recorded steps "
    "are fixed. Written and answered tokens weigh what the list says, the provider's cache is simulated."
)
UNITS_S = {"h": 3600, "d": 86_400, "w": 7 * 86_400}
MANY_MB = 100
"""For each process: with more the whole takes longer than two minutes, and a sample is advised."""
MAX_LEFT_OUT_SHOWN = 5
MIN_WIDTH, MAX_WIDTH = 60, 120


def savings(
    paths: Annotated[list[Path] | None, typer.Argument(help="Session logs or folders; default: of all agents.")] = None,
    since: Annotated[str, typer.Option(help="Only newer ones: 36h, 30d, 4w or 2026-10-01.")] = "",
    client: Annotated[
        list[str] | None,
        typer.Option(help=f"Only this agent: {', '.join(one.key for one in session_formats())}. Repeatable."),
    ] = None,
    project: Annotated[Path | None, typer.Option(help="Only sessions that worked in this folder, or below it.")] = None,
    model: Annotated[str, typer.Option(help="As if all had used it: its prices and window.")] = "",
    by: Annotated[str, typer.Option(help=f"A line for each: {', '.join(GROUPINGS)}.", show_default=False)] = GROUPINGS[
        0
    ],
    jobs: Annotated[
        int, typer.Option(min=1, show_default=False, help="Sessions replayed at once; default: one a core.")
    ] = cpu_count(),
    plan: Annotated[bool, typer.Option("--plan", help="For who pays by window: shares of it, no dollars.")] = False,
    sample: Annotated[
        int, typer.Option(min=1, metavar="N", show_default=False, help="Only every N-th file, by age.")
    ] = 1,
    details: Annotated[bool, typer.Option("--details", help="A line for each session.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write a page to look at; it needs no network.")] = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """What the proxy would have saved in your agents' sessions. Asks no network."""
    if plan and html is not None:
        raise typer.BadParameter("--html shows dollars; with --plan there is no page")
    named, grouping = _checked_clients(client or ()), one_of(GROUPINGS, by, param_hint="--by")
    oldest_s = _oldest(since)
    settings = load_settings(config, {}, asks_upstreams=False)
    found = find_logs(Path.home(), paths or (), named, oldest_s)
    if not found.files:
        _explain_nothing(found, paths or ())
        raise typer.Exit(1)
    files = {path: found.files[path] for path in newest_first(found.files)[::sample]} if sample > 1 else found.files
    size, whole = total_size(files) / 1e6, total_size(found.files) / 1e6
    typer.echo(f"Replaying {pluralize(len(files), 'session file')} ({size:,.1f} MB) ...", err=True)
    if sample == 1 and size > MANY_MB * jobs:
        advised = math.ceil(size / (MANY_MB * jobs))
        typer.echo(f"That takes minutes; --sample {advised} replays a part of them, and says so.", err=True)
    sampled = _sample_text(sample, len(files), len(found.files), size, whole) if sample > 1 else ""
    folders = project_folders(project)
    by_plan = settings.tariff_of if plan else None
    options = ReplayOptions(settings, model, on_plan=plan)
    running = RunningSum(len(files), oldest_s, by_plan)
    with running, progress_bar("replaying", wanted=not running.is_shown) as progress:
        outcomes = replay_logs(files, options, jobs, progress, running.add, folders)
    played = [one for one in outcomes if isinstance(one, ReplayResult) and is_newer(one, oldest_s)]
    done, copies = [one for one in played if one.row.requests or not one.copied], sum(one.copied for one in played)
    left_out = {str(path): reason for path, reason in found.others.items()}
    left_out |= {
        one.file: one.error.removeprefix(f"{one.file}: ") for one in outcomes if isinstance(one, ReplayFailure)
    }
    if html is not None and done:
        html.write_text(
            savings_page(done, [*([sampled] if sampled else ()), *summary_lines(done, copies)], LIMITS),
            encoding="utf-8",
        )
    _print_results(
        done, copies, left_out, by=grouping, details=details, as_json=as_json, by_plan=by_plan, sampled=sampled
    )
    if html is not None and done:
        typer.echo(f"The page is at {html}.", err=True)
    if not done:
        raise typer.Exit(1)


def _sample_text(sample: int, files: int, of: int, size: float, whole: float) -> str:
    part = f"{files:,} of {of:,} ({size:,.1f} of {whole:,.1f} MB)"
    return f"A sample: every {sample}. file by age, {part}. All sums are those of the sample."


def _checked_clients(named: Sequence[str]) -> Sequence[str]:
    known = [one.key for one in session_formats()]
    for key in named:
        if key not in known:
            raise typer.BadParameter(f"{key!r} is no agent whose sessions are known; known are {', '.join(known)}")
    return named


def _oldest(since: str) -> float:
    """The moment that `--since` names, in seconds since the epoch."""
    if not since:
        return 0.0
    if span := re.fullmatch(r"(\d+)([hdw])", since.strip()):
        return time.time() - int(span[1]) * UNITS_S[span[2]]
    try:
        return datetime.fromisoformat(since).astimezone().timestamp()
    except (ValueError, OverflowError):
        raise typer.BadParameter(
            f"--since {since!r} is no span and no date; write 36h, 30d, 4w or 2026-10-01"
        ) from None


def _explain_nothing(found: FoundLogs, paths: Sequence[Path]) -> None:
    for path, reason in list(found.others.items())[:MAX_LEFT_OUT_SHOWN]:
        typer.echo(escape_unsafe(f"left out: {path}: {reason}"), err=True)
    if paths:
        print_error(f"no session of a known agent lies in {', '.join(map(str, paths))}")
        return
    print_error("no session of an agent was found on this machine; looked for")
    rows = [(one.name, ", ".join(f"~/{place}" for place in one.places)) for one in session_formats()]
    for line in align_columns(rows):
        typer.echo(line, err=True)
    typer.echo("Name files or folders, or see a made-up session with `callstack demo`.", err=True)


def _print_results(
    done: Sequence[ReplayResult],
    copies: int,
    left_out: Mapping[str, str],
    *,
    by: Grouping,
    details: bool,
    as_json: bool,
    by_plan: TariffOf | None,
    sampled: str,
) -> None:
    """`by_plan`: the rows of prices, for who pays by window; None for who pays by the token. `sampled` says which part
    of the logs was replayed, empty for all."""
    if as_json:
        plan = {"plan": _plan_as_json(done, by_plan)} if by_plan else {}
        print_json({**_as_json(done, copies, left_out, by), **plan, **({"sample": sampled} if sampled else {})})
        return
    width = max(MIN_WIDTH, min(MAX_WIDTH, shutil.get_terminal_size().columns))
    if sampled:
        print_line(textwrap.fill(sampled, width, subsequent_indent="  "))
    for line in summary_lines(done, copies, by_plan) if done else ():
        print_line(textwrap.fill(line, width, subsequent_indent="  "))
    for line in () if by_plan else group_lines(done, by):
        print_line(line)
    if details and done:
        for line in plan_detail_lines(done, by_plan) if by_plan else detail_lines(done):
            print_line(line)
    if done:
        print_line(textwrap.fill(PLAN_LIMITS if by_plan else LIMITS, width, subsequent_indent="  "))
    shown = list(left_out.items())[: None if details else MAX_LEFT_OUT_SHOWN]
    for path, reason in shown:
        typer.echo(one_line(f"left out: {path}: {reason}"), err=True)
    if len(left_out) > len(shown):
        typer.echo(f"left out: {len(left_out) - len(shown):,} more; --details names them", err=True)
    if done and not details and sys.stdout.isatty():
        page = "" if by_plan else ", --html FILE writes a page to look at"
        print_line(f"--details shows each session{page}.")


def _plan_as_json(done: Sequence[ReplayResult], tariff_of: TariffOf) -> list[dict[str, float]]:
    """For each weight of a cached token what was taken, in USD of fresh input that weigh as much in the window."""
    return [{"read": read, **window_use(done, read, tariff_of)._asdict()} for _, read in READ_WEIGHTS]


def _as_json(done: Sequence[ReplayResult], copies: int, left_out: Mapping[str, str], by: Grouping) -> dict[str, Any]:
    row = sum_rows(done)
    key = "folder" if by == "project" else by
    return {
        "sessions": msgspec.to_builtins(done),
        "total": {
            "sessions": len(done),
            "clients": dict(Counter(map(client_of, done))),
            "dearer": sum(is_dearer(one.row) for one in done),
            "row": msgspec.to_builtins(row),
            "needs": msgspec.to_builtins(sum_needs(done)),
            "copied": copies,
            "unpriced_tokens": sum(one.unpriced_tokens for one in done),
        },
        f"{by}s": [
            {key: name, "sessions": len(of), "row": msgspec.to_builtins(sum_rows(of))}
            for name, of in group_sessions(done, by).items()
        ],
        "assumed": list(assumption_lines(done)),
        "left_out": dict(left_out),
        "limits": LIMITS,
    }
