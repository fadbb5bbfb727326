"""What a client's own traffic says of its work: plan, files, commands, decisions, errors, and where a turn begins.

Each observer is a file of its own and a pure function of a step (one call group with its results) and of the table of
tool names, which configuration can extend (X-17). The law: **an observer never fails and never guesses**: whatever a
model or a tool has written, it sees something that is there or it sees nothing, within bounds of time and size.

What this package does not do: it keeps no state, opens no frame and renders no text; `inferring` and `trace` do.
"""

from __future__ import annotations

import msgspec

from proxy.core.observers.commands import CommandRun, observe_commands
from proxy.core.observers.decisions import observe_decisions
from proxy.core.observers.errors import ObservedError, observe_errors
from proxy.core.observers.files import ObservedFile, observe_files
from proxy.core.observers.plan import PlanChange, observe_plan
from proxy.core.observers.step import Step, ToolExecution
from proxy.core.observers.tool_roles import DEFAULT_TOOL_ROLES, ToolRoles

__all__ = ["DEFAULT_TOOL_ROLES", "Step", "StepObservations", "ToolExecution", "ToolRoles", "observe"]


class StepObservations(msgspec.Struct, frozen=True):
    """All that one step tells, each part in the order of its calls."""

    plan: tuple[PlanChange, ...] = ()
    files: tuple[ObservedFile, ...] = ()
    commands: tuple[CommandRun, ...] = ()
    decisions: tuple[str, ...] = ()
    errors: tuple[ObservedError, ...] = ()


def observe(step: Step, names: ToolRoles = DEFAULT_TOOL_ROLES) -> StepObservations:
    """What a step tells."""
    return StepObservations(
        plan=observe_plan(step, names),
        files=observe_files(step, names),
        commands=observe_commands(step, names),
        decisions=observe_decisions(step),
        errors=observe_errors(step, names),
    )
