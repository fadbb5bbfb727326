"""Runs every observer over a step. An observer is a pure function of one call group with its results and of the table
of tool roles. It never fails: malformed text yields nothing, within bounds of time and size."""

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
    """What was observed in one step, each part in the order of its calls."""

    plan: tuple[PlanChange, ...] = ()
    files: tuple[ObservedFile, ...] = ()
    commands: tuple[CommandRun, ...] = ()
    decisions: tuple[str, ...] = ()
    errors: tuple[ObservedError, ...] = ()


def observe(step: Step, tool_roles: ToolRoles = DEFAULT_TOOL_ROLES) -> StepObservations:
    return StepObservations(
        plan=observe_plan(step, tool_roles),
        files=observe_files(step, tool_roles),
        commands=observe_commands(step, tool_roles),
        decisions=observe_decisions(step),
        errors=observe_errors(step, tool_roles),
    )
