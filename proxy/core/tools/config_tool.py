"""The tool that tells how subagents are tracked (S1-118).

    stack_config     what holds, under the names of its arguments; sets it, where the operator lets the model

The law: **the model only reads** unless the configuration says otherwise (`subagent.model_may_configure`): how
subagents are tracked holds for everybody who uses this proxy, so it is the operator's. Asked to change something, the
tool says who does that; a pattern is looked at first, so that whoever passes it on passes on one that works.

What this module does not do: it sets nothing by itself. It says which keys are wanted, and whoever runs the call sets
them, or tells the model why they cannot be set.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proxy.core.safe_regex import fault_of
from proxy.core.tools.base import Desk, Mistake, Outcome, Subagents, Tool, flag_of, text_of, whole_of

SETTINGS = {
    "enabled": "enabled",
    "minDuration": "min_duration",
    "minMessageCount": "min_messages",
    "autoCompleteOnIdle": "auto_complete",
    "idleCompletionDelay": "idle_delay",
    "injectParentContext": "parent_context",
    "propagateSummaries": "",
}
"""The names of the tool, and the operator's under `subagent`; empty: fixed here."""
PATTERNS = ("addPattern", "removePattern")
SHOWN = 60
"""Characters of a word of the model's that are said again."""

Value = bool | int | list[str]


def config(desk: Desk, arguments: Mapping[str, Any]) -> Outcome:
    """Tell what holds; set what is wanted, where the model may."""
    holds = desk.settings.subagents
    named = [name for name in SETTINGS if arguments.get(name) is not None]
    patterns = _patterns(holds, arguments)
    if not named and patterns is None:
        return Outcome(_told(holds))
    if not holds.model_may_configure:
        raise Mistake(_refused([*named, *(name for name in PATTERNS if text_of(arguments, name))]))
    wanted: dict[str, object] = {SETTINGS[name]: _checked(arguments, name) for name in named}
    wanted |= {} if patterns is None else {"patterns": patterns}
    return Outcome(
        f"Set, for everybody: {', '.join(wanted)}. Call this without arguments to see what holds.", (), None, wanted
    )


def values(subagents: Subagents) -> dict[str, Value]:
    """What holds, by the tool's names; times are milliseconds."""
    return {
        "enabled": subagents.enabled,
        "minDuration": subagents.min_duration,
        "minMessageCount": subagents.min_messages,
        "autoCompleteOnIdle": subagents.auto_complete,
        "idleCompletionDelay": subagents.idle_delay,
        "injectParentContext": subagents.parent_context,
        "propagateSummaries": True,
        "patterns": list(subagents.patterns),
    }


def _told(subagents: Subagents) -> str:
    return "\n".join(f"{name}: {_word(value)}" for name, value in values(subagents).items())


def _word(value: Value) -> str:
    if isinstance(value, list):
        return " ".join(map(repr, value)) or "none"
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def _patterns(holds: Subagents, arguments: Mapping[str, Any]) -> list[str] | None:
    """The patterns as they are wanted; None where nothing is said of them."""
    added, removed = (text_of(arguments, name) for name in PATTERNS)
    if not added and not removed:
        return None
    if added and (fault := fault_of(added)):
        raise Mistake(f"Error: {fault}")
    if removed and removed not in holds.patterns:
        raise Mistake(f"Error: {removed[:SHOWN]!r} is none of the patterns. Call this without arguments to see them.")
    kept = [pattern for pattern in holds.patterns if pattern != removed]
    return list(dict.fromkeys((*kept, added))) if added else kept


def _checked(arguments: Mapping[str, Any], name: str) -> bool | int | None:
    """A flag or a number that is given. What is out of bounds is refused where it is set."""
    if not SETTINGS[name]:
        raise Mistake(f"Error: {name} cannot be set: it is always as told.")
    return whole_of(arguments, name) if name in _NUMBERS else flag_of(arguments, name)


def _refused(wanted: list[str]) -> str:
    keys = [f"subagent.{SETTINGS.get(name, 'patterns')}" for name in wanted if SETTINGS.get(name, PATTERNS)]
    where = f" The operator sets {', '.join(dict.fromkeys(keys))}, by `callstack config`." if keys else ""
    fixed = [name for name in wanted if not SETTINGS.get(name, PATTERNS)]
    always = f" {', '.join(fixed)} cannot be set: it is always as told." if fixed else ""
    return f"Error: you may only read this.{where}{always} Call it without arguments to see what holds."


_FLAG, _NUMBER, _STRING = {"type": "boolean"}, {"type": "integer"}, {"type": "string"}
_NUMBERS = frozenset({"minDuration", "minMessageCount", "idleCompletionDelay"})
TOOLS = (
    Tool(
        "stack_config",
        "config",
        "How subagents are tracked.",
        {
            "type": "object",
            "properties": {
                **{name: _NUMBER if name in _NUMBERS else _FLAG for name in SETTINGS},
                **dict.fromkeys(PATTERNS, _STRING),
            },
        },
        config,
        listed=False,
    ),
)
