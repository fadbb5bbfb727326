"""Reads from the provider what came before a request that goes on from an answer which is not in our store: one made
before this proxy, or at another machine. The provider tells a stored response and the items of its input; the walk goes
from answer to answer until one is known here, or none is before it. What cannot be read, or not in time, is relayed as
it came, and the provider says what it says."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from itertools import chain
from urllib.parse import quote, urlencode

from msgspec.structs import replace

from proxy.core.ledger import Message, Request
from proxy.dialects import ResponseReferences, raw_json
from proxy.dialects.responses import provider_turn
from proxy.errors import StoreError, UpstreamError
from proxy.exchange.passthrough_without_turn import is_success
from proxy.exchange.previous_responses import find_turn_by_id, messages_up_to
from proxy.exchange.rounds import ClientRequest, ProviderTurn, Services, count_request_tokens, parse_client_request
from proxy.upstream import RawHeaders, Upstream, outgoing_headers

READ_SECONDS = 4.0
"""How long a request waits while its history is read. What was read by then shortens the next attempt."""
MAX_TURNS = 2_000
MAX_HISTORY_BYTES = 32 << 20
PAGE_ITEMS = 100
"""Items of a page of an input: the most that the API gives."""
BODY_HEADERS = (b"content-type", b"content-encoding", b"idempotency-key")
"""Headers of a request with a body that a GET has not."""


async def read_provider_history(
    services: Services, client_request: ClientRequest, request: Request
) -> tuple[Message, ...]:
    """The messages before `request`, oldest first, with their tokens counted; empty if they cannot be read."""
    references = services.dialect.references
    if references is None or not _is_of_use(services, references, client_request, request):
        return ()
    upstream = services.routes.choose(request.model, client_request.path).upstream
    if services.provider_turns.refuses((client_request.tenant, upstream.name), time.monotonic()):
        return ()
    sent_headers = [header for header in client_request.headers if header[0].lower() not in BODY_HEADERS]
    headers = outgoing_headers(sent_headers, upstream.settings, readable=True)
    try:
        async with asyncio.timeout(READ_SECONDS):
            return await HistoryReader(services, references, client_request, upstream, headers).messages_before(request)
    except (TimeoutError, StoreError, UpstreamError):
        return ()


def _is_of_use(
    services: Services, references: ResponseReferences, client_request: ClientRequest, request: Request
) -> bool:
    """Not where the proxy stays out of the conversation, and not where its provider keeps more than answers."""
    mode = services.resolver.mode_without_conversation(client_request.headers, client_request.mode, request.model or "")
    return mode != "off" and not references.unresolvable_reason(replace(request, messages=()), ())


@dataclass
class HistoryReader:
    """Walks from answer to answer at one provider, with the credentials of the client."""

    services: Services
    references: ResponseReferences
    client_request: ClientRequest
    upstream: Upstream
    headers: RawHeaders
    left_bytes: int = MAX_HISTORY_BYTES

    async def messages_before(self, request: Request) -> tuple[Message, ...]:
        """Raises StoreError and UpstreamError."""
        name = self.references.previous_response_id(request)
        known: Sequence[Message] = ()
        newest_first: list[ProviderTurn] = []
        while name:
            if newest_first and (known := await self._messages_known_up_to(name)):
                known_ids = frozenset(self.references.items_by_id(known[-1]))
                known = () if newest_first[-1].input_holds(known_ids) else known
                break
            turn = await self._turn(name)
            if turn is None or self.left_bytes < 0 or len(newest_first) >= MAX_TURNS:
                return ()
            if newest_first and newest_first[-1].input_holds(turn.output_ids):
                break
            newest_first.append(turn)
            name = turn.previous
        items = chain.from_iterable((*turn.input, *turn.output) for turn in reversed(newest_first))
        return (*known, *await self._as_messages(provider_turn.as_client_sends(list(items)), request))

    async def _messages_known_up_to(self, name: str) -> tuple[Message, ...]:
        found = await find_turn_by_id(self.services, self.client_request.tenant, name)
        return messages_up_to(self.services, self.references, *found)[0] if found else ()

    async def _as_messages(self, items: Sequence[bytes], request: Request) -> tuple[Message, ...]:
        fields = {"model": raw_json.encode(request.model or ""), "input": raw_json.join_array(list(items))}
        read = await parse_client_request(self.services, raw_json.join_object(fields))
        read = await count_request_tokens(self.services, read)
        return (*read.head, *read.messages)

    # ------------------------------------------------------------------------------------------------------- one answer
    async def _turn(self, name: str) -> ProviderTurn | None:
        turns, owner = self.services.provider_turns, (self.client_request.tenant, self.upstream.name)
        turn = turns.get(owner, name)
        if turn is None:
            turn = await self._read_turn(name)
            if turn is None:
                turns.note_refusal(owner, time.monotonic())
                return None
            turns.add(owner, name, turn)
        self.left_bytes -= turn.size
        return turn

    async def _read_turn(self, name: str) -> ProviderTurn | None:
        path = f"{self.client_request.path.rstrip('/')}/{quote(name, safe='')}"
        if (body := await self._get(path)) is None or (stored := provider_turn.read_stored_response(body)) is None:
            return None
        if (asked := await self._read_input(f"{path}/input_items")) is None:
            return None
        ids_of = provider_turn.item_ids
        return ProviderTurn(stored.previous, asked, stored.output, ids_of(asked), ids_of(stored.output))

    async def _read_input(self, path: str) -> tuple[bytes, ...] | None:
        items: list[bytes] = []
        after: dict[str, str] = {}
        while True:
            body = await self._get(path, limit=str(PAGE_ITEMS), order="asc", **after)
            if body is None or (page := provider_turn.read_input_page(body)) is None:
                return None
            items += page.items
            if not page.next:
                return tuple(items)
            if not page.items or sum(map(len, items)) > self.left_bytes:
                return None
            after = {"after": page.next}

    async def _get(self, path: str, **members: str) -> bytes | None:
        """The body of a successful answer of bearable length."""
        query = b"&".join(filter(None, [self.client_request.query, urlencode(members).encode()]))
        got = await self.upstream.send("GET", path, query, self.headers, b"")
        body = bytearray()
        async with aclosing(got):
            if not is_success(got):
                return None
            async for chunk in got.chunks():
                body += chunk
                if len(body) > self.left_bytes:
                    return None
        return bytes(body)
