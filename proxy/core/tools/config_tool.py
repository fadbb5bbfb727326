"""`stack_config`: shows how subagents are tracked, and changes it where `subagent.model_may_configure` allows. These
settings hold for every user of the proxy, so without that permission the model only reads and is told what the operator
can set. The tool returns the settings to change; its caller applies them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proxy.core.safe_regex import pattern_error
from proxy.core.tools.base import (
    SubagentRules,
    Tool,
    ToolContext,
    ToolError,
    ToolResult,
    flag_argument,
    integer_argument,
    object_schema,
    text_argument,
)

_DESCRIPTIONS = {
    "enabled": "whether subagents are tracked",
    "minDuration": "ms of work from which one gets a frame",
    "minMessageCount": "messages from which one gets a frame",
    "autoCompleteOnIdle": "whether an idle one is ended",
    "idleCompletionDelay": "ms after which it counts as idle",
    "injectParentContext": "whether it is told its parent's task",
    "propagateSummaries": "always on",
    "addPattern": "regular expression for titles of subagents",
    "removePattern": "a pattern to remove",
}
SETTING_NAMES = {
    "enabled": "enabled",
    "minDuration": "min_duration",
    "minMessageCount": "min_messages",
    "autoCompleteOnIdle": "auto_complete",
    "idleCompletionDelay": "idle_delay",
    "injectParentContext": "parent_context",
    "propagateSummaries": "",
}
"""Argument name of the tool -> key under `subagent`; an empty key cannot be changed."""
PATTERN_ARGUMENTS = ("addPattern", "removePattern")
MAX_ECHOED_CHARACTERS = 60  # of the model's own text that an error repeats

SettingValue = bool | int | list[str]


def configure_subagents(tool_context: ToolContext, arguments: Mapping[str, Any]) -> ToolResult:
    current = tool_context.settings.subagents
    named = [name for name in SETTING_NAMES if arguments.get(name) is not None]
    patterns = _changed_patterns(current, arguments)
    if not named and patterns is None:
        return ToolResult(
            "\n".join(f"{name}: {_render_value(value)}" for name, value in setting_values(current).items())
        )
    if not current.model_may_configure:
        raise ToolError(
            _refusal_text([*named, *(name for name in PATTERN_ARGUMENTS if text_argument(arguments, name))])
        )
    changes: dict[str, object] = {SETTING_NAMES[name]: _read_setting(arguments, name) for name in named}
    changes |= {} if patterns is None else {"patterns": patterns}
    return ToolResult(
        f"Set, for everybody: {', '.join(changes)}. Call this without arguments to see what holds.", (), None, changes
    )


def setting_values(subagents: SubagentRules) -> dict[str, SettingValue]:
    """The settings by argument name; times are milliseconds."""
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


def _render_value(value: SettingValue) -> str:
    if isinstance(value, list):
        return " ".join(map(repr, value)) or "none"
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def _changed_patterns(current: SubagentRules, arguments: Mapping[str, Any]) -> list[str] | None:
    """The changed list of patterns; None where no pattern is added or removed."""
    added, removed = (text_argument(arguments, name) for name in PATTERN_ARGUMENTS)
    if not added and not removed:
        return None
    if added and (fault := pattern_error(added)):
        raise ToolError(f"Error: {fault}")
    if removed and removed not in current.patterns:
        raise ToolError(
            f"Error: {removed[:MAX_ECHOED_CHARACTERS]!r} is none of the patterns. Call this without "
            f"arguments to see them."
        )
    patterns = [pattern for pattern in current.patterns if pattern != removed]
    return list(dict.fromkeys((*patterns, added))) if added else patterns


def _read_setting(arguments: Mapping[str, Any], name: str) -> bool | int | None:
    """A given flag or number. The configuration checks its bounds."""
    if not SETTING_NAMES[name]:
        raise ToolError(f"Error: {name} cannot be set: it is always as told.")
    return integer_argument(arguments, name) if name in _NUMBER_SETTINGS else flag_argument(arguments, name)


def _refusal_text(names: list[str]) -> str:
    keys = [
        f"subagent.{SETTING_NAMES.get(name, 'patterns')}"
        for name in names
        if SETTING_NAMES.get(name, PATTERN_ARGUMENTS)
    ]
    where = f" The operator sets {', '.join(dict.fromkeys(keys))}, by `callstack config`." if keys else ""
    fixed = [name for name in names if not SETTING_NAMES.get(name, PATTERN_ARGUMENTS)]
    always = f" {', '.join(fixed)} cannot be set: it is always as told." if fixed else ""
    return f"Error: you may only read this.{where}{always} Call it without arguments to see what holds."


_NUMBER_SETTINGS = frozenset({"minDuration", "minMessageCount", "idleCompletionDelay"})


def _type_of(name: str) -> str:
    if name in PATTERN_ARGUMENTS:
        return "string"
    return "integer" if name in _NUMBER_SETTINGS else "boolean"


CONFIG = Tool(
    "stack_config",
    "config",
    "How subagents are tracked.",
    object_schema(
        **{name: {"type": _type_of(name), "description": description} for name, description in _DESCRIPTIONS.items()}
    ),
    configure_subagents,
)
