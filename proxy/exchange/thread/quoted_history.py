"""Replaces the history that a client quotes in its own compaction prompt with our rendering, if the prompt is too long.

Clients see a short context and let their history grow past the window. The rendering holds the newest messages and the
summaries of finished work; the instruction around the quote is kept. Only awake conversations of the same tenant are
searched. In doubt the request stays unchanged (`stack.quoted`), and nothing is recorded on the quoted conversation.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from msgspec.structs import replace

from proxy.accounting import TokenCounterProtocol
from proxy.core.context import build_context
from proxy.core.frames import PathState
from proxy.core.ledger import Message, Request, identity_of
from proxy.core.matching import Quote, find_quote, message_texts_of, split_into_pieces
from proxy.core.recall import context_parts, parts_as_text
from proxy.dialects import Dialect, DialectComposer, body
from proxy.errors import StoreError
from proxy.exchange.thread import session_headers
from proxy.store import CachedConversation, ConversationCache

log = logging.getLogger(__name__)

MAX_CONVERSATIONS = 4
"""Conversations searched: those of the client's session, and the newest cached ones."""
MAX_PATHS = 3
"""Paths searched per conversation: the newest, and those it continued."""
WOKEN_KIND = "woken"
MIN_QUOTING_TOKENS = 4_000
"""A shorter message is not searched for a quote."""
MIN_RENDERING_TOKENS = 500
"""With less room, nothing is rendered."""
QUOTE_MARKER_TOKENS = 120
"""Tokens of the two lines around the rendering."""
RENDERING_START = (
    "[callstack: {count:,} characters of a quoted conversation stood here, more than fits. All of it is kept by the "
    "proxy. In its place follow notes on the work that is finished, and the newest messages word for word.]\n\n"
)
RENDERING_END = "\n\n[callstack: here ends what stands for the quoted conversation.]"


class FoundQuote(NamedTuple):
    """The message's position, its text as written and as text, and the quoted path."""

    position: int
    raw_text: bytes
    text: str
    quote: Quote
    path_state: PathState


class QuoteRenderOptions(NamedTuple):
    """`max_tokens` is the limit for all messages together."""

    max_tokens: int
    composer: DialectComposer
    counter: TokenCounterProtocol


class ReplacedMessages(NamedTuple):
    """The messages before the one with the quote, and from it on, with the rendering in place; `tokens` of them are
    ours."""

    before: Sequence[Message]
    after: Sequence[Message]
    added_tokens: int


class QuoteFinder:
    """Searches one request, once, and only on demand."""

    def __init__(
        self,
        conversations: ConversationCache,
        dialect: Dialect,
        tenant: str,
        headers: session_headers.Headers,
        request: Request,
    ) -> None:
        """`request` has its tokens counted."""
        self._conversation_cache, self._dialect, self._tenant = conversations, dialect, tenant
        self._hint, self._messages = session_headers.session_hint(headers), request.messages
        self._has_searched = False
        self._found_quote: FoundQuote | None = None

    @property
    def is_possible(self) -> bool:
        """Whether there is a long message and a conversation that it may quote."""
        return self._longest_message_position() is not None and (
            bool(self._hint) or any(map(_has_woken, self._recent_conversations()))
        )

    async def find(self) -> FoundQuote | None:
        """The quote, or None; a failure of ours gives None."""
        if not self._has_searched:
            self._has_searched = True
            try:
                self._found_quote = await self._search()
            except Exception:  # the edge of what looks at whatever a client has written
                log.exception("a quote could not be looked for")
        return self._found_quote

    async def replace_quote(self, means: QuoteRenderOptions) -> ReplacedMessages | None:
        """The messages with a rendering in place of the quote; None without a quote or without room."""
        if (found := await self.find()) is None:
            return None
        try:
            return await _replace_quote(found, self._messages, means)
        except Exception:  # the same edge: it is another conversation that cannot be told
            log.exception("a quoted conversation could not be told")
            return None

    def _longest_message_position(self) -> int | None:
        theirs = [at for at, message in enumerate(self._messages) if message.role == "user"]
        longest = max(theirs, key=lambda at: self._messages[at].tokens, default=None)
        return longest if longest is not None and self._messages[longest].tokens >= MIN_QUOTING_TOKENS else None

    def _recent_conversations(self) -> list[CachedConversation]:
        return [
            s
            for s in reversed(self._conversation_cache.recent_conversations(self._tenant))
            if self._has_same_dialect(s)
        ]

    def _has_same_dialect(self, cached: CachedConversation) -> bool:
        """Messages are bytes of one wire format."""
        return cached.ledger.conversation.dialect == self._dialect.name

    async def _search(self) -> FoundQuote | None:
        at = self._longest_message_position()
        if at is None:
            return None
        candidates = [*await self._session_conversations(), *filter(_has_woken, self._recent_conversations())]
        newest = list({s.ledger.conversation.id: s for s in candidates}.values())[:MAX_CONVERSATIONS]
        stories = [story for cached in newest for story in _awake_path_states(cached)]
        return await asyncio.to_thread(_search_path_states, at, self._messages[at].wire, stories) if stories else None

    async def _session_conversations(self) -> list[CachedConversation]:
        if not self._hint:
            return []
        with suppress(StoreError):
            named = (await self._conversation_cache.conversations_in_session(self._tenant, self._hint))[
                :MAX_CONVERSATIONS
            ]
            known = [await self._conversation_cache.get(self._tenant, conversation) for conversation in named]
            return [s for s in known if s is not None and self._has_same_dialect(s) and _has_woken(s)]
        return []


def _has_woken(cached: CachedConversation) -> bool:
    events = cached.ledger.events.values()
    return any(event.kind == WOKEN_KIND for some in events for event in some)


def _awake_path_states(cached: CachedConversation) -> list[PathState]:
    ledger = cached.ledger
    tip = ledger.newest_tip()
    found: list[PathState] = []
    while tip is not None and len(found) < MAX_PATHS:
        found.append(cached.path_state(tip.id))
        adopts = next((entry.adopts for entry in ledger.path(tip.id) if entry.adopts), "")
        tip = ledger.entries.get(adopts)
    return [story for story in found if story.tree.is_awake]


def _search_path_states(at: int, wire: bytes, stories: Sequence[PathState]) -> FoundQuote | None:
    """Takes half a second for 10 MB of text, in a thread."""
    written = body.longest_text(wire)
    text = body.decode_text(written)
    pieces = split_into_pieces(text)
    if pieces is None:
        return None
    for story in stories:
        if (quote := find_quote(pieces, message_texts_of(story))) is not None:
            return FoundQuote(at, written, text, quote, story)
    return None


# ------------------------------------------------------------------------------------------------------------- in place
async def _replace_quote(
    found: FoundQuote, messages: Sequence[Message], means: QuoteRenderOptions
) -> ReplacedMessages | None:
    message = messages[found.position]
    before, behind = found.text[: found.quote.start], found.text[found.quote.end :]
    around = sum(await means.counter.count_all([before, behind]))
    left = (
        means.max_tokens
        - around
        - QUOTE_MARKER_TOKENS
        - sum(m.tokens for at, m in enumerate(messages) if at != found.position)
    )
    if left < MIN_RENDERING_TOKENS:
        return None
    pieces = context_parts(found.path_state, build_context(found.path_state, means.composer))
    begins = RENDERING_START.format(count=found.quote.end - found.quote.start)
    text = f"{before}{begins}{parts_as_text(pieces, left)}{RENDERING_END}{behind}"
    (tokens,) = await means.counter.count_all([text])
    wire, identity = body.replace_text(message.wire, found.raw_text, text), identity_of(message.role, text)
    changed = replace(message, wire=wire, identity=identity, text=text, tokens=tokens)
    return ReplacedMessages(
        messages[: found.position], (changed, *messages[found.position + 1 :]), max(tokens - around, 0)
    )
