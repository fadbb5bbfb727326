"""The commands `autonomy` and `loops`.

`autonomy` shows how much the proxy decides about frames in a conversation, and why, and changes it there. `loops` lists
the loops that the model was warned of. Both read the store, and change it through the management API.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, get_args

import typer
from msgspec.structs import asdict

from callstack_proxy.cli.api_client import call, conversation_path
from callstack_proxy.cli.context import AsJson, ConfigFile, DataDirectory, settings_at
from callstack_proxy.cli.output import align_columns, one_line, pluralize, print_json, print_line
from callstack_proxy.cli.store_access import opened_store
from callstack_proxy.management import find_by_id
from callstack_proxy.management.operations import AutonomyView, autonomy_view
from callstack_proxy.management.views import LoopRow, local_time, loop_rows
from proxy.config import Config
from proxy.core.policy import HEURISTIC_NAMES, RULE_NAMES, AutonomyLevel, ScoreCombiner, clamp_threshold

MAX_SUGGESTIONS_SHOWN = 10
"""Suggestions of the history that are printed; `--json` has all."""


def autonomy(
    conversation: Annotated[
        str, typer.Argument(help="Id, or its beginning (4 characters or more); default: the newest.")
    ] = "",
    level: Annotated[str, typer.Option(help="manual, suggest or auto.")] = "",
    push: Annotated[int | None, typer.Option(help="From which score a push is suggested.")] = None,
    pop: Annotated[int | None, typer.Option(help="From which score a pop is suggested.")] = None,
    combine: Annotated[str, typer.Option(help="max, noisy_or or mean.")] = "",
    heuristics: Annotated[str, typer.Option(help="Those that count: a,b; none for none.")] = "",
    in_context: Annotated[
        bool | None, typer.Option("--in-context/--listed-only", help="Whether the model reads suggestions.")
    ] = None,
    reset: Annotated[bool, typer.Option("--reset", help="Back to what the configuration says.")] = False,
    clear: Annotated[bool, typer.Option("--clear", help="Take back what waits.")] = False,
    config: ConfigFile = None,
    data: DataDirectory = None,
    as_json: AsJson = False,
) -> None:
    """How much the proxy decides about frames in a conversation: the rules, the scores, what was suggested."""
    wanted: dict[str, Any] = dict.fromkeys(RULE_NAMES) if reset else {}
    wanted |= _parse_changes(level, combine, heuristics)
    wanted |= {
        name: clamp_threshold(v) for name, v in (("push_threshold", push), ("pop_threshold", pop)) if v is not None
    }
    if in_context is not None:
        wanted["suggest_in_context"] = in_context
    if (wanted or clear) and not conversation:
        raise typer.BadParameter("name the conversation to change; `callstack tree` shows their ids")
    settings, cleared = settings_at(config, data), 0
    if wanted or clear:
        path = f"{conversation_path(settings, conversation)}/autonomy"
        if wanted:
            call(settings, "PATCH", path, wanted)
        if clear:
            cleared = call(settings, "DELETE", f"{path}/suggestions")["cleared"]
    view = asyncio.run(_load_autonomy(settings, conversation))
    if as_json:
        print_json(view if not clear else {**asdict(view), "cleared": cleared})
        return
    if clear:
        print_line(f"took back {pluralize(cleared, 'suggestion')}")
    for line in autonomy_text(view):
        print_line(line)


def _parse_changes(level: str, combine: str, heuristics: str) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    for name, word, allowed in (
        ("level", level, get_args(AutonomyLevel)),
        ("combine", combine, get_args(ScoreCombiner)),
    ):
        if word and word not in allowed:
            raise typer.BadParameter(f"{name} {word!r}; allowed: {', '.join(allowed)}")
        if word:
            changes[name] = word
    if heuristics:
        named = {part.strip() for part in heuristics.split(",") if part.strip()} - {"none"}
        if unknown := sorted(named - set(HEURISTIC_NAMES)):
            raise typer.BadParameter(f"heuristic {unknown[0]!r}; allowed: {', '.join(HEURISTIC_NAMES)}, or none")
        changes["heuristics"] = tuple(name for name in HEURISTIC_NAMES if name in named)
    return changes


async def _load_autonomy(settings: Config, reference: str) -> AutonomyView:
    async with opened_store(settings) as store:
        ledger = await find_by_id.find_ledger(store, None, reference)
        return autonomy_view(ledger, find_by_id.newest_path_state(ledger), settings, time.time_ns() // 1_000_000)


def autonomy_text(view: AutonomyView) -> Iterator[str]:
    """The rules, a line for each heuristic, and the newest suggestions."""
    chosen = f" (set here: {', '.join(view.chosen)})" if view.chosen else ""
    yield f"conversation {view.conversation}, frame {view.frame}"
    yield f"level {view.level}, combine {view.combine}{chosen}"
    for kind, verdict in (("push", view.push), ("pop", view.pop)):
        reached = "reached" if verdict["reached"] else "not reached"
        why = f"; nothing is suggested: {verdict['pointless']}" if verdict["pointless"] else ""
        yield f"{kind}: {verdict['confidence']} of {verdict['threshold']}, {reached}{why}"
    cells = [
        (row["name"], row["type"], str(row["score"]), "" if row["enabled"] else "off", _inputs(row["inputs"]))
        for row in view.scores
    ]
    yield from align_columns([("heuristic", "for a", "score", "", "made of"), *cells], right=(2,))
    for row in view.history[-MAX_SUGGESTIONS_SHOWN:]:
        yield one_line(f"{local_time(row['time'])}  {row['state']}: {row['text']}")
    counts = asdict(view.stats)
    yield "suggestions: " + ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in counts.items())


def _inputs(inputs: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in inputs.items())


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
    settings = settings_at(config, data)
    if clear:
        if not conversation:
            raise typer.BadParameter("name the conversation to clear; `callstack tree` shows their ids")
        count = call(settings, "DELETE", f"{conversation_path(settings, conversation)}/loops")["cleared"]
        if as_json:
            print_json({"cleared": count})
        else:
            print_line(f"cleared {pluralize(count, 'loop')}; what is done from now on is counted anew")
        return
    rows = asyncio.run(_load_loops(settings, conversation))
    if as_json:
        print_json({"loops": rows})
        return
    for line in loops_text(rows):
        print_line(line)


async def _load_loops(settings: Config, reference: str) -> list[LoopRow]:
    async with opened_store(settings) as store:
        return loop_rows(await find_by_id.find_ledger(store, None, reference))


def loops_text(rows: Sequence[LoopRow]) -> Iterator[str]:
    """One line for each loop, with its calls in the last column."""
    if not rows:
        yield "The model was warned of no loop here."
        return
    cells = [
        (
            local_time(row["created"]),
            row["kind"],
            str(row["count"]),
            "yes" if row["standing"] else "no",
            row["frame"],
            " | ".join(row["calls"]),
        )
        for row in rows
    ]
    yield from align_columns([("when", "kind", "times", "standing", "frame", "calls"), *cells], right=(2,))
