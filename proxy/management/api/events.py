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

from proxy.management.api.base import ERRORS, UNKNOWN, Asked, Backstage, Error
from proxy.management.views import lookup
from proxy.telemetry.event_bus import Listener, Numbered

LOOKED_EVERY_S = 0.5
"""How soon a stream notices that the process drains."""
COMMENT_EVERY_S = 15.0
"""Silence after which a comment keeps the connection open."""
MEDIA = "text/event-stream"
HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}
"""What keeps whoever stands between from holding the stream back."""

router = APIRouter(prefix="/stack", responses=ERRORS)


@router.get(
    "/events",
    response_class=StreamingResponse,
    responses={
        **UNKNOWN,
        200: {"description": "Server-sent events", "content": {MEDIA: {}}},
        429: {"model": Error, "description": "As many listen as may; the message says what to do"},
    },
)
async def stream_events(
    asked: Asked,
    conversation: Annotated[str, Query(description="Only what happens in this conversation")] = "",
    follow: Annotated[bool, Query(description="Stay, and tell what comes; else what is remembered, and an end")] = True,
    last: Annotated[
        str, Header(alias="last-event-id", description="Begin behind this one, as far as it is remembered")
    ] = "",
) -> StreamingResponse:
    """Frames that begin and end, contexts that are sent, folds, summaries and suggestions, as they happen."""
    if conversation:
        await lookup.ledger_of(asked.backstage.store, asked.scope, conversation)
    after = int(last) if last.isascii() and last.isdigit() and len(last) <= len(str(2**53)) else None
    feed, scope = asked.backstage.feed, asked.scope
    if not follow:
        told = list(feed.since(after or 0, Listener(scope, conversation)))
        return StreamingResponse(iter([_written(told, 0)]), media_type=MEDIA, headers=HEADERS)
    feed.refuse_if_full(scope)
    return StreamingResponse(_told(asked.backstage, scope, conversation, after), media_type=MEDIA, headers=HEADERS)


async def _told(backstage: Backstage, scope: str | None, conversation: str, after: int | None) -> AsyncIterator[bytes]:
    """What a listener hears until it leaves or the process drains."""
    with backstage.feed.heard(scope, conversation, after) as listener:
        yield b": listening\n\n"
        spoken = time.monotonic()
        while not backstage.draining():
            told, missed = await listener.news(LOOKED_EVERY_S)
            if told or missed:
                yield _written(told, missed)
            elif time.monotonic() - spoken > COMMENT_EVERY_S:
                yield b": nothing new\n\n"
            else:
                continue
            spoken = time.monotonic()


def _written(told: Sequence[Numbered], missed: int) -> bytes:
    """In the words of server-sent events."""
    pieces = [
        f"id: {each.number}\nevent: {each.happening.type}\ndata: ".encode() + encode(each.happening.told()) + b"\n\n"
        for each in told
    ]
    if missed:
        pieces.append(b"event: missed\ndata: " + encode({"type": "missed", "count": missed}) + b"\n\n")
    return b"".join(pieces)
