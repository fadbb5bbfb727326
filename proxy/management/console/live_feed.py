"""`/console/events`: what happens, for the pages that are open. The pages ask for their content again when something
happened; the events themselves hold ids and figures only. An event of its own says when the store begins to fail and
when it is well again."""

from __future__ import annotations

from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from proxy.management.api import EVENT_STREAM_TYPE, STREAM_HEADERS, stream_events_to
from proxy.management.console.rendering import visitor_of
from proxy.management.console.store_trouble import store_news


async def stream(request: Request) -> Response:
    """Raises TooManyListeners."""
    visitor = visitor_of(request)
    visitor.context.feed.refuse_if_full(visitor.scope)
    return StreamingResponse(_stream(request), media_type=EVENT_STREAM_TYPE, headers=STREAM_HEADERS)


async def _stream(request: Request) -> AsyncIterator[bytes]:
    """Until the visitor leaves or is signed out, which revoking a key does too."""
    context, scope = visitor_of(request).context, visitor_of(request).scope
    is_begun = False
    async for events in stream_events_to(context, scope, "", None, store_news(context)):
        if not request.state.is_signed_in():
            return
        yield events
        if not is_begun:  # a page that was made before the newest event has missed it
            is_begun = True
            yield b'event: at\ndata: {"number": %d}\n\n' % context.feed.newest_number


ROUTES = [Route("/console/events", stream)]
