"""The command `autonomy`: how much the proxy decides in a conversation, why, and how a person changes that.

Looking reads the store; changing goes through a running proxy, which keeps conversations in memory.

The command `loops`: what the model was warned of, and counting anew.

Listing reads the store; clearing goes through a running proxy, which keeps conversations in memory.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, get_args

import typer

from proxy.cli.context import AsJson, ConfigFile, DataDirectory, opened_store, run_async, settings_at
from proxy.cli.output import align_columns, one_line, pluralize, print_json, print_line
from proxy.cli.running import ask_proxy, find_running_proxy
from proxy.config import Config
from proxy.core.ledger import Ledger
from proxy.core.policy import HEURISTIC_NAMES, RULE_NAMES, AutonomyLevel, ScoreCombiner, clamp_threshold
from proxy.management.actions import AutonomyView, autonomy_view, change_rules, clear_pending_suggestions
from proxy.management.views import LoopRow, local_time, lookup, loop_rows
from proxy.management.views import clear_loop_warnings as cleared_in
from proxy.store import Store

MAX_SUGGESTIONS_SHOWN = 10
"""Suggestions of the history that are printed; `--json` has all."""


def autonomy(
    conversation: Annotated[
        str, typer.Argument(help="Id, or its beginning (4 characters or more); default: the newest.")
    ] = "",
    level: Annotated[str, typer.Option(help="manual, suggest or auto.")] = "",
    push: Annotated[int | None, typer.Option(help="Confidence from which a push is suggested, 0 to 100.")] = None,
    pop: Annotated[int | None, typer.Option(help="Confidence from which a pop is suggested, 0 to 100.")] = None,
    combine: Annotated[str, typer.Option(help="max, noisy_or or mean.")] = "",
    heuristics: Annotated[str, typer.Option(help="Those that count, with commas between; none: no one.")] = "",
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
    told, cleared = run_async(_apply_changes(settings_at(config, data), conversation, wanted, clear=clear))
    if as_json:
        print_json(told if not clear else {**told, "cleared": cleared})
        return
    if clear:
        print_line(f"took back {pluralize(cleared, 'suggestion')}")
    for line in autonomy_text(told):
        print_line(line)


def _parse_changes(level: str, combine: str, heuristics: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, word, allowed in (
        ("level", level, get_args(AutonomyLevel)),
        ("combine", combine, get_args(ScoreCombiner)),
    ):
        if word and word not in allowed:
            raise typer.BadParameter(f"{name} {word!r}; allowed: {', '.join(allowed)}")
        if word:
            found[name] = word
    if heuristics:
        named = {part.strip() for part in heuristics.split(",") if part.strip()} - {"none"}
        if unknown := sorted(named - set(HEURISTIC_NAMES)):
            raise typer.BadParameter(f"heuristic {unknown[0]!r}; allowed: {', '.join(HEURISTIC_NAMES)}, or none")
        found["heuristics"] = tuple(name for name in HEURISTIC_NAMES if name in named)
    return found


async def _apply_changes(
    settings: Config, reference: str, wanted: Mapping[str, Any], *, clear: bool
) -> tuple[AutonomyView, int]:
    async with opened_store(settings) as store:
        ledger = await lookup.find_ledger(store, None, reference)
        server = find_running_proxy(settings.data)
        cleared = 0
        if server is None:
            cleared = await _apply_in_store(store, ledger, wanted, clear=clear)
        else:
            path = f"/stack/conversations/{ledger.conversation.id}/autonomy"
            if wanted:
                ask_proxy(server, "PATCH", path, dict(wanted))
            if clear:
                cleared = int(ask_proxy(server, "DELETE", f"{path}/suggestions")["cleared"])
            ledger = await lookup.ledger_of(store, None, ledger.conversation.id)
        return autonomy_view(ledger, lookup.newest_path_state(ledger), settings, _now()), cleared


async def _apply_in_store(store: Store, ledger: Ledger, wanted: Mapping[str, Any], *, clear: bool) -> int:
    if wanted:
        await change_rules(store, ledger, wanted, _now())
    return (await clear_pending_suggestions(store, ledger, counts=False, at=_now()))[1] if clear else 0


def _now() -> int:
    return time.time_ns() // 1_000_000


def autonomy_text(told: AutonomyView) -> Iterator[str]:
    """The rules, a line for each heuristic, and the newest suggestions."""
    here = f" (set here: {', '.join(told['chosen'])})" if told["chosen"] else ""
    yield f"conversation {told['conversation']}, frame {told['frame']}"
    yield f"level {told['level']}, combine {told['combine']}{here}"
    for kind, verdict in (("push", told["push"]), ("pop", told["pop"])):
        reached = "reached" if verdict["reached"] else "not reached"
        why = f"; nothing is suggested: {verdict['pointless']}" if verdict["pointless"] else ""
        yield f"{kind}: {verdict['confidence']} of {verdict['threshold']}, {reached}{why}"
    cells = [
        (each["name"], each["type"], str(each["score"]), "" if each["enabled"] else "off", _inputs(each["inputs"]))
        for each in told["scores"]
    ]
    yield from align_columns([("heuristic", "for a", "score", "", "made of"), *cells], right=(2,))
    for each in told["history"][-MAX_SUGGESTIONS_SHOWN:]:
        yield one_line(f"{local_time(each['time'])}  {each['state']}: {each['text']}")
    yield ", ".join(f"{name} {count}" for name, count in told["stats"].items())


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
        count = run_async(_clear_warnings(settings, conversation))
        if as_json:
            print_json({"cleared": count})
        else:
            print_line(f"cleared {pluralize(count, 'loop')}; what is done from now on is counted anew")
        return
    rows = run_async(_load_loops(settings, conversation))
    if as_json:
        print_json({"loops": rows})
        return
    for line in loops_text(rows):
        print_line(line)


async def _load_loops(settings: Config, reference: str) -> list[LoopRow]:
    async with opened_store(settings) as store:
        return loop_rows(await lookup.find_ledger(store, None, reference))


async def _clear_warnings(settings: Config, reference: str) -> int:
    async with opened_store(settings) as store:
        ledger = await lookup.find_ledger(store, None, reference)
        server = find_running_proxy(settings.data)
        if server is None:
            return (await cleared_in(store, ledger, time.time_ns() // 1_000_000)).count
    return int(ask_proxy(server, "DELETE", f"/stack/conversations/{ledger.conversation.id}/loops")["cleared"])


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
