"""Shortens a client's own request that does not fit the window of its model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from proxy.core.compaction import KEPT_WINDOW_SHARE, drop_oldest_messages
from proxy.core.context import AnswersLeftOut, alternate_roles
from proxy.core.ledger import Message, Request
from proxy.dialects import RenderOptions
from proxy.exchange.rounds.client_request import ClientRequest, Services
from proxy.exchange.thread.bound_reasoning import binds_reasoning, strip_client_reasoning
from proxy.exchange.thread.quoted_history import QuoteFinder, QuoteRenderOptions
from proxy.upstream import ContextWindow, Route

SHORTENED_PROMPT_SHARE = 0.75
"""Share of the prompt limit that a shortened prompt may fill: one that just fits would be shortened every time."""


class OversizedRequest(NamedTuple):
    """A client's own request that does not fit, under the upstream's name for the model, and what it may quote.
    `can_shorten_history`: the client let it grow because it saw our short context."""

    request: Request
    quotes: QuoteFinder
    conversation: str = ""
    can_shorten_history: bool = True


class ShortenedRequest(NamedTuple):
    """A shortened client request, and how many of its tokens are ours."""

    request: Request
    added_tokens: int


def quotes_of(services: Services, client_request: ClientRequest, request: Request) -> QuoteFinder:
    """The quotes in this request; its tokens must be counted."""
    return QuoteFinder(
        services.conversation_cache, services.dialect, client_request.tenant, client_request.headers, request
    )


async def shorten_request(services: Services, route: Route, overlong: OversizedRequest) -> ShortenedRequest | None:
    """A client's own request, shortened to fit the window and to well below its size: its oldest messages are dropped
    or, if that is not allowed or not enough, a quoted history is replaced by a summary. None if nothing can go.
    Reasoning bound to what left goes too."""
    request, dialect = overlong.request, services.dialect
    window = services.context_windows.window(route.upstream.name, route.model, overlong.conversation)
    room = min(
        int(request.tokens * KEPT_WINDOW_SHARE),
        shortened_prompt_tokens(window) if window.is_binding else request.tokens,
    )
    room -= request.fixed_tokens
    kept_messages = (
        drop_oldest_messages(request.messages, room, dialect.holds_compaction) if overlong.can_shorten_history else None
    )
    is_too_long = kept_messages is None or sum(m.tokens for m in (*kept_messages.before, *kept_messages.after)) > room
    if is_too_long and (
        shortened := await overlong.quotes.replace_quote(QuoteRenderOptions(room, services.composer, services.counter))
    ):
        return ShortenedRequest(
            _with_messages(services, route, request, shortened.before, shortened.after), shortened.added_tokens
        )
    if kept_messages is None:
        return None
    trace = replace(dialect.user_message(kept_messages.trace), tokens=services.count_memoized(kept_messages.trace))
    before, after = (*kept_messages.before, trace), tuple(kept_messages.after)
    if services.config.tariff_of(route.model).roles == "alternate":
        left_out = AnswersLeftOut(request.messages)
        before, after = (), alternate_roles((*before, *after), {id(trace)}, services.composer, left_out)
    return ShortenedRequest(_with_messages(services, route, request, before, after), trace.tokens)


def _with_messages(
    services: Services, route: Route, request: Request, before: Sequence[Message], behind: Sequence[Message]
) -> Request:
    """The request with these messages; bound reasoning `behind` the change is removed."""
    dialect = services.dialect
    if binds_reasoning(services.config, dialect, route.model):
        behind = strip_client_reasoning(services.config, dialect, request, route.model, behind)
    messages = (*before, *behind)
    body = dialect.render(request, messages, [m.wire for m in request.head], RenderOptions(include_usage=False))
    return replace(request, body=b"".join(body), messages=messages)


def shortened_prompt_tokens(window: ContextWindow) -> int:
    """Most tokens of a shortened prompt."""
    return min(int(window.tokens * KEPT_WINDOW_SHARE), int(window.limit * SHORTENED_PROMPT_SHARE))
