"""The command `loops`: what the model was warned of, and counting anew.

Listing reads the store; clearing goes through a running proxy, which keeps conversations in memory.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from proxy.cli.context import AsJson, ConfigFile, DataDirectory, at, opened, run
from proxy.cli.output import columns, counted, say, say_json
from proxy.cli.running import ask, running
from proxy.config.model import Config
from proxy.management.views import lookup
from proxy.management.views.loops import clear as cleared_in
from proxy.management.views.loops import loop_rows
from proxy.management.views.schemas import LoopRow
from proxy.management.views.totals import moment


def loops(
    conversation: Annotated[
        str, typer.Argument(help="Id, or its beginning (4 characters or more); default: the newest.")
    ] = "",
    clear: Annotated[bool, typer.Option("--clear", help="What was done up to now is no part of a loop.")] = False,
    config: ConfigFile = None,
    data: DataDirectory = None,
    as_json: AsJson = False,
) -> None:
    """Loops that the model of a conversation was warned of, the oldest first."""
    settings = at(config, data)
    if clear:
        if not conversation:
            raise typer.BadParameter("name the conversation to clear; `callstack tree` shows their ids")
        count = run(_clear(settings, conversation))
        if as_json:
            say_json({"cleared": count})
        else:
            say(f"cleared {counted(count, 'loop')}; what is done from now on is counted anew")
        return
    rows = run(_listed(settings, conversation))
    if as_json:
        say_json({"loops": rows})
        return
    for line in loops_text(rows):
        say(line)


async def _listed(settings: Config, reference: str) -> list[LoopRow]:
    async with opened(settings) as store:
        return loop_rows(await lookup.ledger_named(store, None, reference))


async def _clear(settings: Config, reference: str) -> int:
    async with opened(settings) as store:
        ledger = await lookup.ledger_named(store, None, reference)
        server = running(settings.data)
        if server is None:
            return (await cleared_in(store, ledger, time.time_ns() // 1_000_000)).loops
    return int(ask(server, "DELETE", f"/stack/conversations/{ledger.conversation.id}/loops")["cleared"])


def loops_text(rows: Sequence[LoopRow]) -> Iterator[str]:
    """One line for each loop, with its calls in the last column."""
    if not rows:
        yield "The model was warned of no loop here."
        return
    cells = [
        (
            moment(row["created"]),
            row["kind"],
            str(row["count"]),
            "yes" if row["standing"] else "no",
            row["frame"],
            " | ".join(row["calls"]),
        )
        for row in rows
    ]
    yield from columns([("when", "kind", "times", "standing", "frame", "calls"), *cells], right=(2,))
