"""Steps to observe, made in a line."""

from __future__ import annotations

import json
from typing import Any

from proxy.core.ledger.messages import Call
from proxy.core.observers.step import Step, ToolExecution


def done(name: str, result: str = "ok", *, answered: bool = True, **arguments: Any) -> ToolExecution:
    return ToolExecution(Call("c1", name, json.dumps(arguments)), result, "e1", answered)


def raw(name: str, arguments: str, result: str = "ok") -> ToolExecution:
    """A call whose arguments are these bytes."""
    return ToolExecution(Call("c1", name, arguments), result, "e1")


def step(*all_done: ToolExecution, said: str = "") -> Step:
    return Step(said, all_done)
