"""The guidance on task frames that a model gets with the stack tools. It says nothing that can become false: no frame,
position, plan or next step. Wording `mirror` lets the model keep the client's plan tools, whose items become frames;
`replace` tells it to use the stack tools only. The wording is chosen once, and no client tool is removed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from proxy.core.observers import ToolRoles

GuidanceWording = Literal["mirror", "replace"]

_GUIDANCE_TEMPLATE = """\
# Task frames

Work in a frame leaves your context when it returns; its results stay, unseen by the user.
Push for many steps of which you keep little, if ten more will follow and the next needs other files. {planning}
"""
_STACK_PLANNING = "Steps you know ahead: stack_frame_plan, then push each by its title."
_CLIENT_PLANNING = "Keep using your todo or plan tool."
_MIRRORED_ITEMS = "Todo items are frames: tick one off with what came out."
_REPLACE_PLANNING = "Plan with stack_frame_plan alone, then push each step by its title. NEVER use {others}."
_ANY_OTHER_PLAN_TOOL = "any other todo or plan tool"

PLAN_TOOL_NAMES_CHARACTERS = 160
_TOOL_NAME = re.compile(r"[\w.:/-]{1,64}")
"""Tool names as the provider APIs allow them."""


def guidance_text(
    wording: GuidanceWording,
    offered: Iterable[str],
    names: ToolRoles,
    *,
    mirrors_plans: bool = True,
    offers_plan: bool = True,
) -> str:
    """`offered` are the names of the client's tools, in its order; `names` give their roles. `mirrors_plans`: items of
    the client's plan become frames. `offers_plan`: `stack_frame_plan` is among our tools, and may be advised."""
    plan_tools = [name for name in offered if names.is_plan_tool(name)]
    planning = _planning_text(wording, plan_tools, mirrors_plans=mirrors_plans, offers_plan=offers_plan)
    return f"{_GUIDANCE_TEMPLATE.format(planning=planning).rstrip()}\n"


def _planning_text(
    wording: GuidanceWording, plan_tools: Sequence[str], *, mirrors_plans: bool, offers_plan: bool
) -> str:
    if wording == "replace" and offers_plan:
        named = ", ".join(_names_that_fit(plan_tools))
        others = f"{named} or {_ANY_OTHER_PLAN_TOOL}" if named else _ANY_OTHER_PLAN_TOOL
        return _REPLACE_PLANNING.format(others=others)
    if not plan_tools:
        return _STACK_PLANNING if offers_plan else ""
    return _MIRRORED_ITEMS if mirrors_plans else _CLIENT_PLANNING


def _names_that_fit(names: Iterable[str]) -> Iterator[str]:
    room = PLAN_TOOL_NAMES_CHARACTERS
    for name in dict.fromkeys(names):
        if _TOOL_NAME.fullmatch(name) and (room := room - len(name)) >= 0:
            yield name
