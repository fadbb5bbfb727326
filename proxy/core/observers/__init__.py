"""What a client's own traffic says of its work: plan, files, commands, decisions, errors, and where a turn begins.

Each observer is a file of its own and a pure function of a step (one call group with its results) and of the table of
tool names, which configuration can extend (X-17). The law: **an observer never fails and never guesses**: whatever a
model or a tool has written, it sees something that is there or it sees nothing, within bounds of time and size.

What this package does not do: it keeps no state, opens no frame and renders no text; `inferring` and `trace` do.
"""

from __future__ import annotations

import msgspec

from proxy.core.observers.commands import Ran, commands_seen
from proxy.core.observers.decisions import decisions_seen
from proxy.core.observers.errors import ErrorSeen, errors_seen
from proxy.core.observers.files import FileSeen, files_seen
from proxy.core.observers.plan import PlanSeen, plan_seen
from proxy.core.observers.step import Done, Step
from proxy.core.observers.tool_roles import NAMES, Names

__all__ = ["NAMES", "Done", "Names", "Seen", "Step", "observe"]


class Seen(msgspec.Struct, frozen=True):
    """All that one step tells, each part in the order of its calls."""

    plan: tuple[PlanSeen, ...] = ()
    files: tuple[FileSeen, ...] = ()
    commands: tuple[Ran, ...] = ()
    decisions: tuple[str, ...] = ()
    errors: tuple[ErrorSeen, ...] = ()


def observe(step: Step, names: Names = NAMES) -> Seen:
    """What a step tells."""
    return Seen(
        plan=plan_seen(step, names),
        files=files_seen(step, names),
        commands=commands_seen(step, names),
        decisions=decisions_seen(step),
        errors=errors_seen(step, names),
    )
