"""`/console/events`: which conversations changed, for the pages that are open. The pages ask for their content again
then. An event of its own says when the store begins to fail and when it is well again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from msgspec.json import encode
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from callstack_proxy.management.api import EVENT_STREAM_TYPE, STREAM_HEADERS, stream_events_to
from callstack_proxy.management.console.rendering import visitor_of
from callstack_proxy.management.console.store_trouble import store_news
from proxy.telemetry import NumberedEvent

PAUSE_S = 0.5
"""After something was told nothing is told for so long: each event would wake the browser and every page of it while
agents wait. What happened first is told at once."""
EVERYTHING = ""
"""Stands for any conversation."""


async def stream(request: Request) -> Response:
    """Raises TooManyListeners."""
    visitor = visitor_of(request)
    visitor.context.feed.refuse_if_full(visitor.scope)
    return StreamingResponse(_stream(request), media_type=EVENT_STREAM_TYPE, headers=STREAM_HEADERS)


async def _stream(request: Request) -> AsyncIterator[bytes]:
    """Until the visitor leaves or is signed out, which revoking a key does too."""
    context, scope = visitor_of(request).context, visitor_of(request).scope
    tell_of_store = store_news(context)

    def encode_events(events: Sequence[NumberedEvent], missed: int) -> bytes:
        return _changes(events, missed) + tell_of_store()

    is_begun = False
    async for told in stream_events_to(context, scope, "", None, encode_events):
        if not request.state.is_signed_in():
            return
        yield told
        if is_begun:
            await asyncio.sleep(PAUSE_S)
        else:  # a page that was made before the newest event has missed it
            is_begun = True
            yield b'event: at\ndata: {"number": %d}\n\n' % context.feed.newest_number


def _changes(events: Sequence[NumberedEvent], missed: int) -> bytes:
    """One event for all of them; nothing if there are none."""
    if not events:
        return b""
    conversations = {EVERYTHING} if missed else {each.event.conversation for each in events}
    about = {"number": events[-1].number, "conversations": sorted(conversations)}
    return b"event: changed\ndata: " + encode(about) + b"\n\n"


ROUTES = [Route("/console/events", stream)]
