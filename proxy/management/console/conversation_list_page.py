"""`/console/conversations`: the conversations, most recent first, and a search through what finished frames said."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from proxy.errors import BadRequest
from proxy.management.console.rendering import Visitor, render, visitor_of
from proxy.management.views import ConversationRow, conversation_rows_of, search_frames

ROWS_PER_PAGE = 40
MAX_SEARCH_RESULTS = 50
SORTS = {
    "recent": "last active first",
    "saved": "most saved first",
    "lost": "most lost first",
    "requests": "most requests first",
}
STATES = ("all", "acting", "asleep")


async def show(request: Request) -> Response:
    visitor = visitor_of(request)
    params = request.query_params
    words, sort, state = params.get("q", "").strip(), params.get("sort", "recent"), params.get("state", "all")
    page = _page_number(params.get("page", "1"))
    if sort not in SORTS or state not in STATES:
        raise BadRequest("There is no such order or filter; choose one of those in the lists of the page.")
    rows, has_more = await _rows(visitor, page)
    found = await search_frames(visitor.context.store, visitor.scope, words, MAX_SEARCH_RESULTS) if words else None
    return render(
        request,
        "conversations.html",
        rows=_arranged(rows, sort, state),
        found=found,
        words=words,
        sort=sort,
        sorts=SORTS,
        state=state,
        states=STATES,
        page=page,
        has_more=has_more,
        wake_at=visitor.context.config.wake_at_tokens,
    )


def _page_number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 6 and int(text) > 0):
        raise BadRequest("A page is a number from 1.")
    return int(text)


async def _rows(visitor: Visitor, page: int) -> tuple[Sequence[ConversationRow], bool]:
    """One page, the most recently active first, and whether there is another."""
    store = visitor.context.store
    wanted = page * ROWS_PER_PAGE
    known = await store.recently_active(visitor.scope, wanted + 1)
    chosen = known[wanted - ROWS_PER_PAGE : wanted]
    return await conversation_rows_of(store, chosen), len(known) > wanted


def _arranged(rows: Sequence[ConversationRow], sort: str, state: str) -> list[ConversationRow]:
    chosen = [row for row in rows if state == "all" or row["awake"] is (state == "acting")]
    keys: dict[str, Any] = {
        "recent": lambda row: -row["last_active"],
        "saved": lambda row: -row["saved"],
        "lost": lambda row: row["saved"],
        "requests": lambda row: -row["requests"],
    }
    return sorted(chosen, key=keys[sort])


ROUTES = [Route("/console/conversations", show)]
