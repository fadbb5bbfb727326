"""The tool that tells how subagents are tracked (S1-118).

    stack_config     what is configured, under the names of its arguments

The law: **the model only reads**: how subagents are tracked holds for everybody who uses this proxy, so it is the
operator's, in the configuration. Asked to change something, the tool says where that is done; a pattern is looked at
first, so that whoever passes it on passes on one that works.

What this module does not do: it knows no patterns. A subagent is known by the call that began it, or by the parent that
its session names, and no title has to look like one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from proxy.stack.tools.desk import Desk, Mistake, Outcome, Subagents, Tool, text_of

SETTINGS = {
    "enabled": "enabled",
    "minDuration": "min_duration",
    "minMessageCount": "min_messages",
    "autoCompleteOnIdle": "",
    "idleCompletionDelay": "idle_delay",
    "injectParentContext": "parent_context",
    "propagateSummaries": "",
}
"""The tool's names, and the operator's under `subagent`; empty: fixed here."""
PATTERNS = ("addPattern", "removePattern")
LONGEST_PATTERN = 500


def config(desk: Desk, arguments: Mapping[str, Any]) -> Outcome:
    """Tell what is configured; refuse to change it."""
    for name in PATTERNS:
        if pattern := text_of(arguments, name):
            raise Mistake(_about_pattern(pattern))
    if wanted := [name for name in SETTINGS if arguments.get(name) is not None]:
        raise Mistake(_refused(wanted))
    told = values(desk.settings.subagents)
    return Outcome("\n".join(f"{name}: {_word(value)}" for name, value in told.items()))


def values(subagents: Subagents) -> dict[str, bool | int]:
    """What is configured, by the tool's names; times are milliseconds."""
    return {
        "enabled": subagents.enabled,
        "minDuration": subagents.min_duration,
        "minMessageCount": subagents.min_messages,
        "autoCompleteOnIdle": subagents.enabled,
        "idleCompletionDelay": subagents.idle_delay,
        "injectParentContext": subagents.parent_context,
        "propagateSummaries": True,
    }


def _word(value: bool | int) -> str:  # noqa: FBT001  a setting's value
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def _refused(wanted: list[str]) -> str:
    keys = [f"subagent.{SETTINGS[name]}" for name in wanted if SETTINGS[name]]
    where = f" The operator sets {', '.join(keys)} in the configuration." if keys else ""
    fixed = [name for name in wanted if not SETTINGS[name]]
    always = f" {', '.join(fixed)} cannot be set: it is always as told." if fixed else ""
    return f"Error: you may only read this.{where}{always} Call it without arguments to see what holds."


def _about_pattern(pattern: str) -> str:
    shown = repr(pattern[:80])
    try:
        re.compile(pattern[:LONGEST_PATTERN])
    except (re.error, RecursionError, OverflowError) as error:
        return f"Error: {shown} is no regular expression ({str(error)[:80]}). Mend it; but see stack_config first."
    return (
        f"Error: {shown} is not needed: a subagent is known by the call that began it or by the parent its session "
        "names, whatever its title. Call it without arguments to see what holds."
    )


_FLAG, _NUMBER, _STRING = {"type": "boolean"}, {"type": "integer"}, {"type": "string"}
TOOLS = (
    Tool(
        "stack_config",
        "config",
        "How subagents are tracked.",
        {
            "type": "object",
            "properties": {
                **{name: _NUMBER if name.startswith(("min", "idle")) else _FLAG for name in SETTINGS},
                **dict.fromkeys(PATTERNS, _STRING),
            },
        },
        config,
        listed=False,
    ),
)
