"""The client's tools with brief descriptions, as they are sent for threads that began so (`client_tools: brief`).

A tool stays whole where its role is known: files, commands and plans are what agents work with all the time. So does
one whose description may list what can be called through it: a search for tools, agents, skills. All others are cut,
and what was cut is a function of the client's array alone, so that it stays the same in every request.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from proxy.core.ledger import Request
from proxy.core.memo import RecentCache
from proxy.core.observers import ToolRoles, normalize_name
from proxy.dialects import BriefTools, brief_tools

MAX_ARRAY_BYTES = 4 * 1024 * 1024
"""Bytes of the arrays that are remembered; an agent sends the same one with every request."""
CATALOGUE_NAMES = ("agent", "skill", "toolsearch", "searchtool", "findtool", "listtool", "delegate", "subtask")
"""Parts of normalized names of tools through which others are called."""
DELEGATING_TOOL = "task"
NOTHING_CUT = BriefTools(b"", {})
TOOLS = "tools"


class BriefRequest(msgspec.Struct, frozen=True):
    """A request whose `tools` are brief, and the tokens that are not sent for that."""

    request: Request
    saved_tokens: int = 0


class BriefToolArrays:
    """Makes them, and remembers what it made."""

    def __init__(self, roles: ToolRoles, count_tokens: Callable[[str], int]) -> None:
        self._roles = roles
        self._count_tokens = count_tokens
        self._known = RecentCache[bytes, tuple[BriefTools, int]](MAX_ARRAY_BYTES)

    def descriptions_cut(self, request: Request) -> BriefTools:
        """The brief array of a request, with the whole descriptions of the tools that are cut in it."""
        return self._brief(request)[0]

    def shorten(self, request: Request) -> BriefRequest:
        """The request with brief tools; itself where nothing is to be cut."""
        brief, saved = self._brief(request)
        if not brief.descriptions:
            return BriefRequest(request)
        shorter = replace(
            request,
            fields={**request.fields, TOOLS: brief.array},
            raw_tools=request.raw_tools.replace(request.fields[TOOLS].strip(), brief.array, 1),
            tools_tokens=max(0, request.tools_tokens - saved),
        )
        return BriefRequest(shorter, saved)

    def _brief(self, request: Request) -> tuple[BriefTools, int]:
        array = request.fields.get(TOOLS, b"").strip()
        if not array.startswith(b"["):
            return NOTHING_CUT, 0
        if (known := self._known.find(array)) is not None:
            return known
        made = brief_tools(array, self._is_known)
        count = self._count_tokens
        saved = count(_as_text(array)) - count(_as_text(made.array)) if made.descriptions else 0
        return self._known.keep(array, (made, max(0, saved)), 2 * len(array))

    def _is_known(self, name: str) -> bool:
        plain = normalize_name(name)
        is_catalogue = plain == DELEGATING_TOOL or any(part in plain for part in CATALOGUE_NAMES)
        return is_catalogue or self._roles.role_of(name) is not None


def _as_text(array: bytes) -> str:
    return array.decode("utf-8", "replace")
