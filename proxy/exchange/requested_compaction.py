"""A compaction that the client leaves to its provider, as Codex does: `POST /v1/responses/compact`, or a request whose
input ends in an item `compaction_trigger`.

The client sends its whole history, and believes that it fits, because it was told the size of our contexts. In a
conversation in which the proxy acts, the provider gets the context in its place, and behind it what is new, without
our tools. Nothing is recorded on the path: what comes back stands in the client's next request, behind which the frames
go on. A provider that refuses this gets the client's own request.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from itertools import takewhile
from typing import NamedTuple

from msgspec.structs import replace

from proxy.core.context import build_context, unpaired_calls
from proxy.core.ledger import Request
from proxy.dialects import RenderOptions
from proxy.errors import StoreError, UpstreamError
from proxy.exchange.background.recorder import sent_chain
from proxy.exchange.background.scheduler import with_timeout
from proxy.exchange.client_response import Reply
from proxy.exchange.passthrough_without_turn import PassthroughRequest, bypass, is_success
from proxy.exchange.previous_responses import has_references
from proxy.exchange.relay_unchanged_turn import relay
from proxy.exchange.request_handler import RequestHandler
from proxy.exchange.rounds import count_request_tokens, placement_patience_s
from proxy.exchange.thread.placement import ParsedRequest, Placement
from proxy.upstream import Answer, overflow_errors

log = logging.getLogger(__name__)

ENDPOINT = "/responses/compact"
# Codex's second protocol: exactly one `compaction` item must come back, and the client has no way to do without
# (0.169). Only for providers that it takes for OpenAI or Azure.
TRIGGER = b'"compaction_trigger"'
REASON = "compaction"


class _CompactionInput(NamedTuple):
    """What is sent. `added_tokens` of it are our texts."""

    request: Request
    added_tokens: int


def is_compaction_endpoint(method: str, path: str) -> bool:
    return method == "POST" and path.endswith(ENDPOINT)


def is_requested_compaction(path: str, request: Request) -> bool:
    if path.endswith(ENDPOINT):
        return True
    wire = request.messages[-1].wire if request.messages else b""
    return TRIGGER in wire and not request.messages[-1].text


async def place_requested_compaction(passing: PassthroughRequest, reply: Reply) -> RequestHandler | None:
    """Where the history stands; None if nobody knows it, and then it has gone upstream as it came."""
    placement = None
    try:
        placement = await _find_placement(passing)
    except (StoreError, TimeoutError):
        pass
    except Exception:  # the outermost edge of our bookkeeping: the agent must not notice
        log.exception("a compaction could not be placed", extra={"request": passing.client_request.id})
    if placement is None:
        await bypass(passing, reply, REASON)
        return None
    return RequestHandler(passing.services, passing.client_request, reply, passing.route, placement)


async def _find_placement(passing: PassthroughRequest) -> Placement | None:
    services, incoming, request = passing.services, passing.client_request, passing.request
    if request is None or not request.messages or has_references(services.dialect, request):
        return None
    request = await count_request_tokens(services, request)
    parsed = ParsedRequest(incoming.tenant, incoming.headers, request, services.now(), incoming.mode)
    patience_s = placement_patience_s(services)
    return await with_timeout(patience_s, services.resolver.resolve_beside(parsed, REASON))


async def answer_requested_compaction(handler: RequestHandler) -> None:
    handler.client_response = handler.new_client_response(intercept=False)
    compacted = await _compaction_input(handler) if handler.placement.is_rendered else None
    if compacted is None:
        if handler.placement.is_rendered:
            handler.record.mark_bypassed(REASON)
        await relay(handler, None)
        return
    handler.record.add_sent_round(
        sent_chain(handler.request, "", "", 0, compacted.request.messages),
        (compacted.request.body,),
        added_texts=compacted.added_tokens,
    )
    try:
        got = await handler.round_sender.send_original(compacted.request)
    except UpstreamError as error:
        await handler.fail_turn(error)
        return
    if await _is_refused(got):
        handler.record.add_retry()
        handler.record.mark_bypassed(REASON)
        await relay(handler, None)
        return
    if not is_success(got):
        handler.record.mark_failed("upstream_error")
    _, spoken = await handler.receive_round(None, got)
    handler.record_response(spoken)
    await handler.finish(got.status)


async def _is_refused(got: Answer) -> bool:
    """Whether the provider refuses the request for what it is; its answer is read then."""
    if got.status not in overflow_errors.OVERFLOW_STATUSES or got.status >= 500:
        return False
    async with aclosing(got):
        await got.body()
    return True


async def _compaction_input(handler: RequestHandler) -> _CompactionInput | None:
    """None where the context cannot be sent."""
    try:
        await handler.services.conversation_cache.wait_until_durable(handler.placement.cached_conversation)
        return await asyncio.to_thread(_assemble, handler)
    except StoreError:
        return None
    except Exception:  # assembling failed: the agent must not notice
        log.exception("a compaction could not be assembled", extra={"request": handler.client_request.id})
        return None


def _assemble(handler: RequestHandler) -> _CompactionInput | None:
    services, placement, request = handler.services, handler.placement, handler.request
    story = placement.path_state
    form = replace(services.toolkit.context_form_for(request), guided=False)
    context = build_context(story, services.composer, form)
    known, new = context.messages, request.messages[len(placement.ledger.path(story.tip)) :]
    # The results at the end are told as cancelled where they have not come yet: `new` brings them.
    border = len(known) - len(list(takewhile(lambda message: message.is_result, reversed(known))))
    brought = {message.answers for message in new if message.is_result}
    messages = (*known[:border], *(m for m in known[border:] if m.answers not in brought), *new)
    if unpaired_calls(messages):
        return None
    head = [message.wire for message in request.head]
    body = b"".join(services.dialect.render(request, messages, head, RenderOptions(include_usage=False)))
    return _CompactionInput(replace(request, body=body, messages=messages), context.added_tokens)
