"""What happens, as it happens: `GET /stack/events`, a stream of server-sent events (S1-162).

Each has an id, the name of its type, and a JSON object of ids and figures; no word of a message stands in it. A client
that comes back names the id it heard last, as browsers do by themselves, and is given what it missed as far as that is
remembered.

The law: **an end is an end**: a stream ends when its client leaves or the process drains, and holds nothing else up.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from typing import Annotated

from fastapi import APIRouter, Header, Query
from fastapi.responses import StreamingResponse
from msgspec.json import encode

from proxy.management.api.base import ERROR_RESPONSES, NOT_FOUND_RESPONSE, ApiContext, CurrentCaller, Error
from proxy.management.views import lookup
from proxy.telemetry import EventListener, NumberedEvent

DRAIN_CHECK_INTERVAL_S = 0.5
"""How soon a stream notices that the process drains."""
KEEPALIVE_INTERVAL_S = 15.0
"""Silence after which a comment keeps the connection open."""
EVENT_STREAM_TYPE = "text/event-stream"
STREAM_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}
"""What keeps whoever stands between from holding the stream back."""

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
    asked: CurrentCaller,
    conversation: Annotated[str, Query(description="Only what happens in this conversation")] = "",
    follow: Annotated[bool, Query(description="Stay, and tell what comes; else what is remembered, and an end")] = True,
    last: Annotated[
        str, Header(alias="last-event-id", description="Begin behind this one, as far as it is remembered")
    ] = "",
) -> StreamingResponse:
    """Frames that begin and end, contexts that are sent, folds, summaries and suggestions, as they happen."""
    if conversation:
        await lookup.ledger_of(asked.context.store, asked.scope, conversation)
    after = int(last) if last.isascii() and last.isdigit() and len(last) <= len(str(2**53)) else None
    feed, scope = asked.context.feed, asked.scope
    if not follow:
        told = list(feed.events_since(after or 0, EventListener(scope, conversation)))
        return StreamingResponse(iter([_encode_events(told, 0)]), media_type=EVENT_STREAM_TYPE, headers=STREAM_HEADERS)
    feed.refuse_if_full(scope)
    return StreamingResponse(
        _stream_events_to(asked.context, scope, conversation, after),
        media_type=EVENT_STREAM_TYPE,
        headers=STREAM_HEADERS,
    )


async def _stream_events_to(
    backstage: ApiContext, scope: str | None, conversation: str, after: int | None
) -> AsyncIterator[bytes]:
    """What a listener hears until it leaves or the process drains."""
    with backstage.feed.listen(scope, conversation, after) as listener:
        yield b": listening\n\n"
        spoken = time.monotonic()
        while not backstage.is_draining():
            told, missed = await listener.wait_for_events(DRAIN_CHECK_INTERVAL_S)
            if told or missed:
                yield _encode_events(told, missed)
            elif time.monotonic() - spoken > KEEPALIVE_INTERVAL_S:
                yield b": nothing new\n\n"
            else:
                continue
            spoken = time.monotonic()


def _encode_events(told: Sequence[NumberedEvent], missed: int) -> bytes:
    """In the words of server-sent events."""
    pieces = [
        f"id: {each.number}\nevent: {each.event.type}\ndata: ".encode() + encode(each.event.as_dict()) + b"\n\n"
        for each in told
    ]
    if missed:
        pieces.append(b"event: missed\ndata: " + encode({"type": "missed", "count": missed}) + b"\n\n")
    return b"".join(pieces)
