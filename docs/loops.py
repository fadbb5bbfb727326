"""How often the proxy warns of loops in recorded conversations, and what it warns of.

    python docs/loops.py FILE...                        recordings, or folders; what `callstack replay` reads
    python docs/loops.py FOLDER --write docs/loops.md   put the counts between the two marks of that page
    python docs/loops.py FILE --details                 each loop with its calls

A recording goes through the product offline, as `callstack replay` plays it. The proxy acts from the first request.
The table also counts ordinary cycles: the same test, linter or build run again after a file had changed. The proxy must
warn of none of them. Whether a reported loop is one is for a person to judge, with `--details`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from printing import Script, ledgers_after  # beside this file, which is run as a script

from callstack_proxy.management.find_by_id import newest_path_state
from callstack_proxy.replay.recording import Recording
from callstack_proxy.replay.services import build_replay
from proxy.config.model import Config
from proxy.core.frames.events import LoopDetected, decode_event
from proxy.core.frames.path_state import PathEntry
from proxy.core.frames.tree import Loop
from proxy.core.ledger.ledger import Ledger
from proxy.core.observers import observe
from proxy.core.observers.files import FileAction
from proxy.core.observers.observe_step import ToolRoles
from proxy.core.observers.step import steps_of
from proxy.core.policy.loop_detection import LOOP_KINDS

EVERYTHING = {"wake_at_tokens": "0"}


@dataclass(frozen=True)
class Watched:
    """The outcome of one recording: requests, calls of the client's tools, cycles of a change and a check, and the
    loops with a warning, in order. `in_cycle` are the loops whose call was the check of a cycle."""

    name: str
    requests: int
    calls: int
    cycles: int
    loops: tuple[Loop, ...]
    in_cycle: tuple[Loop, ...]


async def watched(recording: Recording, config: Config) -> Watched:
    """Play a recording to its end."""
    replay = build_replay(config)
    return watched_in(recording, await ledgers_after(recording, replay, replay.services), config)


def watched_in(recording: Recording, ledgers: Sequence[Ledger], config: Config) -> Watched:
    """The outcome of a recording that was played and left these ledgers."""
    loops = tuple(loop for ledger in ledgers for loop in loops_of(ledger))
    calls, checks = 0, list[str]()
    for ledger in ledgers:
        path_entry = newest_path_state(ledger).entries
        calls += sum(len(step.executions) for step in steps_of(path_entry))
        checks += cycles_in(path_entry, config.observed_tools)
    in_cycle = tuple(loop for loop in loops if any(check in shown for check in checks for shown in loop.shown))
    return Watched(recording.name, len(recording.steps), calls, len(checks), loops, in_cycle)


def loops_of(ledger: Ledger) -> Iterator[Loop]:
    """The loops with a warning, on all paths."""
    for events in ledger.events.values():
        for event in events:
            read = decode_event(event)
            if isinstance(read, LoopDetected):
                yield read.loop


def cycles_in(path_entry: Iterable[PathEntry], names: ToolRoles) -> Iterator[str]:
    """The check of each ordinary cycle: a test, linter, build or type check, run again after a file had changed."""
    ran: dict[str, bool] = {}
    for step in steps_of(path_entry):
        seen = observe(step, names)
        if any(file.action is not FileAction.READ for file in seen.files):
            ran = dict.fromkeys(ran, True)
        for check in (one.command for one in seen.commands if one.kind):
            if ran.get(check):
                yield check
            ran[check] = False


def table(done: Sequence[Watched]) -> Iterator[str]:
    """One line for each recording with a loop, and one for all."""
    yield "| recording | requests | calls | cycles of change and check | " + " | ".join(LOOP_KINDS) + " |"
    yield "|---|---:|---:|---:|" + "---:|" * len(LOOP_KINDS)
    for one in sorted((each for each in done if each.loops), key=lambda each: each.name):
        yield _row(one.name, [one])
    yield _row(f"all {len(done)}", done)
    yield ""
    yield f"{sum(len(one.in_cycle) for one in done)} of these loops are made of the check of an ordinary cycle."


def _row(name: str, done: Sequence[Watched]) -> str:
    kinds = [sum(loop.kind == kind for one in done for loop in one.loops) for kind in LOOP_KINDS]
    figures = [sum(one.requests for one in done), sum(one.calls for one in done), sum(one.cycles for one in done)]
    return f"| {name} | " + " | ".join(f"{figure:,}" for figure in (*figures, *kinds)) + " |"


def details(done: Iterable[Watched]) -> Iterator[str]:
    """Each loop with its calls."""
    for one in done:
        for loop in one.loops:
            yield f"{one.name}: {loop.kind}, {loop.count} times"
            yield from (f"    {shown}" for shown in loop.shown)


SCRIPT = Script(
    "docs/loops.py",
    "How often the proxy warns of loops in recorded conversations, and what it warns of.",
    watched,
    table,
    details,
    "each loop with its calls",
    EVERYTHING,
)

if __name__ == "__main__":
    sys.exit(SCRIPT.run(sys.argv[1:]))
