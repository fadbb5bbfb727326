"""`/console/events`: what happens, for the pages that are open. The pages ask for their content again when something
happened; the events themselves hold ids and figures only."""

from __future__ import annotations

from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from proxy.management.api import EVENT_STREAM_TYPE, STREAM_HEADERS, stream_events_to
from proxy.management.console.rendering import visitor_of
from proxy.management.views import lookup


async def stream(request: Request) -> Response:
    """Raises NotFound for an unknown conversation, TooManyListeners."""
    visitor = visitor_of(request)
    context, scope = visitor.context, visitor.scope
    conversation = request.query_params.get("conversation", "")
    if conversation:
        await lookup.ledger_of(context.store, scope, conversation)
    context.feed.refuse_if_full(scope)
    return StreamingResponse(_stream(request, conversation), media_type=EVENT_STREAM_TYPE, headers=STREAM_HEADERS)


async def _stream(request: Request, conversation: str) -> AsyncIterator[bytes]:
    """Until the visitor leaves or is signed out, which revoking a key does too."""
    visitor = visitor_of(request)
    async for events in stream_events_to(visitor.context, visitor.scope, conversation, None):
        if not request.state.is_signed_in():
            return
        yield events


ROUTES = [Route("/console/events", stream)]
