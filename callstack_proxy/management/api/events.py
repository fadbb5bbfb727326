"""`GET /stack/events`: what happens, as server-sent events of ids and figures, without message content.

A client that reconnects with the last event id receives the events that it missed, as far as they are remembered. A
stream ends when its client leaves or the process drains.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Annotated

from fastapi import APIRouter, Header, Query
from fastapi.responses import StreamingResponse
from msgspec.json import encode

from callstack_proxy.management import find_by_id
from callstack_proxy.management.api.base import ERROR_RESPONSES, NOT_FOUND_RESPONSE, ApiContext, CurrentCaller, Error
from proxy.telemetry import EventListener, NumberedEvent

DRAIN_CHECK_INTERVAL_S = 0.5
"""A stream notices within this time that the process drains."""
KEEPALIVE_INTERVAL_S = 15.0
"""After this silence a comment keeps the connection open."""
EVENT_STREAM_TYPE = "text/event-stream"
STREAM_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}
"""Keep intermediaries from buffering the stream."""

router = APIRouter(prefix="/stack", responses=ERROR_RESPONSES)


@router.get(
    "/events",
    response_class=StreamingResponse,
    responses={
        **NOT_FOUND_RESPONSE,
        200: {"description": "Server-sent events", "content": {EVENT_STREAM_TYPE: {}}},
        429: {"model": Error, "description": "As many listen as may; the message says what to do"},
    },
)
async def stream_events(
    caller: CurrentCaller,
    conversation: Annotated[str, Query(description="Only what happens in this conversation")] = "",
    follow: Annotated[bool, Query(description="Stay, and tell what comes; else what is remembered, and an end")] = True,
    last: Annotated[
        str, Header(alias="last-event-id", description="Begin behind this one, as far as it is remembered")
    ] = "",
) -> StreamingResponse:
    """Frames that begin and end, contexts that are sent, folds, summaries and suggestions, as they happen."""
    if conversation:
        await find_by_id.ledger_of(caller.context.store, caller.scope, conversation)
    after = int(last) if last.isascii() and last.isdigit() and len(last) <= len(str(2**53)) else None
    feed, scope = caller.context.feed, caller.scope
    if not follow:
        past_events = list(feed.events_since(after or 0, EventListener(scope, conversation)))
        return StreamingResponse(
            iter([_encode_events(past_events, 0)]), media_type=EVENT_STREAM_TYPE, headers=STREAM_HEADERS
        )
    feed.refuse_if_full(scope)
    return StreamingResponse(
        stream_events_to(caller.context, scope, conversation, after, _encode_events),
        media_type=EVENT_STREAM_TYPE,
        headers=STREAM_HEADERS,
    )


async def stream_events_to(
    context: ApiContext,
    scope: str | None,
    conversation: str,
    after: int | None,
    encode_events: Callable[[Sequence[NumberedEvent], int], bytes],
) -> AsyncIterator[bytes]:
    """Events for one listener until it leaves or the process drains. `encode_events` gets new events, oldest first, and
    the number of those missed; it is asked twice a second where there are none."""
    with context.feed.listen(scope, conversation, after) as listener:
        yield b": listening\n\n"
        last_sent = time.monotonic()
        while not context.is_draining():
            events, missed = await listener.wait_for_events(DRAIN_CHECK_INTERVAL_S)
            if told := encode_events(events, missed):
                yield told
            elif time.monotonic() - last_sent > KEEPALIVE_INTERVAL_S:
                yield b": nothing new\n\n"
            else:
                continue
            last_sent = time.monotonic()


def _encode_events(events: Sequence[NumberedEvent], missed: int) -> bytes:
    chunks = [
        f"id: {numbered.number}\nevent: {numbered.event.type}\ndata: ".encode()
        + encode(numbered.event.as_dict())
        + b"\n\n"
        for numbered in events
    ]
    if missed:
        chunks.append(b"event: missed\ndata: " + encode({"type": "missed", "count": missed}) + b"\n\n")
    return b"".join(chunks)
