"""`callstack replay`: recorded conversations through the proxy, without a network: would this have saved money, and
what would have been lost.

Progress goes to stderr and only where somebody watches. The exit code is 0 where everything was replayed, 1 where some
file could not be, 2 where nothing was.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from proxy.cli.context import AsJson, ConfigFile, DataDirectory, at, configuration, opened, run
from proxy.cli.output import complain, harmless, say, say_json
from proxy.cli.replay import LIMITS, details_of, story_of, tables
from proxy.config.model import Config
from proxy.config.sources import parse_assignments
from proxy.replay.files import files_in
from proxy.replay.outcome import Failed, Played, by_markers_of_all, needs_of_all, row_of_all
from proxy.replay.recording import Recording
from proxy.replay.stored import stored_recording
from proxy.replay.workers import Result, Task, cores, of_recording, played


class ClockChoice(StrEnum):
    RECORDED = "recorded"
    FAST = "fast"


class DialectChoice(StrEnum):
    CHAT = "chat"
    MESSAGES = "messages"
    RESPONSES = "responses"


def replay(
    files: Annotated[list[Path] | None, typer.Argument(help="Recordings, or directories of them.")] = None,
    mode: Annotated[str | None, typer.Option(help="off, shadow, passive or active.")] = None,
    assigned: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any key of proxy.yaml.")
    ] = None,
    model: Annotated[
        str, typer.Option("--model", "--tariff", help="As if it were this model: its prices, cache and window.")
    ] = "",
    clock: Annotated[
        ClockChoice, typer.Option(help="recorded: pauses let the provider's cache go cold; fast: one second a request.")
    ] = ClockChoice.RECORDED,
    dialect: Annotated[
        DialectChoice | None, typer.Option(help="The API to play it in; default: the one the recording is in.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Files played at once; default: one for each core.")] = cores(),
    details: Annotated[bool, typer.Option("--details", help="What left, and the worst of what was missed.")] = False,
    quiet: Annotated[bool, typer.Option("--no-progress", help="No progress bar.")] = False,
    conversation: Annotated[str, typer.Option(help="A conversation of the store: its id, or the beginning.")] = "",
    config: ConfigFile = None,
    data: DataDirectory = None,
    as_json: AsJson = False,
) -> None:
    """Replay recorded conversations offline: cost, savings, what would have left the context, what was needed."""
    if data is not None and not conversation:
        raise typer.BadParameter("--data says where the store lies; name one of its conversations with --conversation")
    flags: dict[str, object] = {**parse_assignments(assigned or ()), **({"mode": mode} if mode else {})}
    settings = configuration(config, flags, asks_upstreams=False)
    task = Task(settings, model, clock.value, dialect.value if dialect else "")
    named = files_in(files or ())
    if not named and not conversation:
        where = "these directories hold no file" if files else "name recordings, or a --conversation of the store"
        raise typer.BadParameter(f"there is nothing to replay: {where}")
    with _progress(shown=not quiet and sys.stderr.isatty()) as told:
        results = [*_from_store(at(config, data), conversation, task, told)] if conversation else []
        results += played(named, task, jobs, told) if named else []
    done = [result for result in results if isinstance(result, Played)]
    failed = [result for result in results if isinstance(result, Failed)]
    beside = [one for one in failed if one.foreign and Path(one.file) not in (files or ())] if done else []
    _tell(done, [one for one in failed if one not in beside], task, details=details, as_json=as_json)
    for one in beside:
        typer.echo(harmless(f"left out: {one.error}"), err=True)
    if len(failed) > len(beside):
        raise typer.Exit(1 if done else 2)


def _from_store(where: Config, conversation: str, task: Task, told: Callable[[float], None]) -> Iterator[Result]:
    recording = run(_stored(where, conversation, task))
    yield of_recording(recording, task, f"{where.data}", told)


async def _stored(where: Config, conversation: str, task: Task) -> Recording:
    async with opened(where) as store:
        return await stored_recording(store, conversation, model=task.model, clock=task.clock, dialect=task.dialect)


@contextmanager
def _progress(*, shown: bool) -> Iterator[Callable[[float], None]]:
    """A bar on stderr that goes when it is full."""
    if not shown:
        yield lambda share: None
        return
    columns = (TextColumn("replaying"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=1.0)
        yield lambda share: bar.update(task, completed=share)


def _tell(done: Sequence[Played], failed: Sequence[Failed], task: Task, *, details: bool, as_json: bool) -> None:
    if as_json:
        say_json(_as_json(done, failed, task))
    elif done:
        for line in (*tables(done, _width()), "", *story_of(done, details=details)):
            say(line)
        for line in details_of(done) if details else ():
            say(line)
    for one in failed:
        complain(one.error)


def _width() -> int | None:
    """Of the terminal; None where somebody else reads on."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _as_json(done: Sequence[Played], failed: Sequence[Failed], task: Task) -> dict[str, Any]:
    return {
        "mode": task.config.mode,
        "model": task.model or None,
        "clock": task.clock,
        "dialect": task.dialect or None,
        "recordings": msgspec.to_builtins(done),
        "total": msgspec.to_builtins(
            {"row": row_of_all(done), "by_markers": by_markers_of_all(done), "needs": needs_of_all(done)}
        ),
        "failed": msgspec.to_builtins(failed),
        "limits": LIMITS,
    }
