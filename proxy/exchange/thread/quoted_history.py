"""A client's own compaction that quotes the history as text, and no longer fits: the quote is replaced by our
rendering.

Clients see how short the line is and let their history grow past the window; one that then writes all of it into one
prompt would be refused. What is quoted is a conversation that is kept: so its newest messages and what its finished
work left stand in the place of the quote, between two lines that say so, and the instruction around it stays as it is.

The laws: only a conversation **of the same tenant** is looked at, and only one whose line was kept short (it is
awake); **in doubt the request stays as it is** (`stack.quoted` says when); nothing of this is kept on the path of that
conversation, whose frames go on.

What this module does not do: it does not find out that a request is too long, and asks no provider.
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
from proxy.dialects import Dialect, DialectComposer
from proxy.dialects import body as texts
from proxy.errors import StoreError
from proxy.exchange.thread import session_headers as clients
from proxy.store import CachedConversation, ConversationCache

log = logging.getLogger(__name__)

MAX_CONVERSATIONS = 4
"""So many are looked at: those of the session that the client names, and the newest at hand."""
MAX_PATHS = 3
"""Of a conversation, so many paths: where a request stood when it was taken for its next one, and those before."""
WOKEN_KIND = "woken"
"""The kind of the event with which the line of a conversation begins to be ours."""
MIN_QUOTING_TOKENS = 4_000
"""Tokens of a message that may quote a history."""
MIN_RENDERING_TOKENS = 500
"""Tokens that must be left for a rendering; in fewer nothing can be told."""
QUOTE_MARKER_TOKENS = 120
"""Tokens of the two lines around it."""
RENDERING_START = (
    "[callstack: {count:,} characters of a quoted conversation stood here, more than fits. All of it is kept by the "
    "proxy. In its place follow notes on the work that is finished, and the newest messages word for word.]\n\n"
)
RENDERING_END = "\n\n[callstack: here ends what stands for the quoted conversation.]"


class FoundQuote(NamedTuple):
    """What is quoted: the place of the message, its text with the quote, as written and as text, and the path."""

    position: int
    raw_text: bytes
    text: str
    quote: Quote
    path_state: PathState


class QuoteRenderOptions(NamedTuple):
    """What a rendering is made with: the tokens that all messages may have, who writes, who counts."""

    max_tokens: int
    composer: DialectComposer
    counter: TokenCounterProtocol


class ReplacedMessages(NamedTuple):
    """The messages of a request before the one with a quote, and from that one on, which has a rendering in its place;
    `tokens` of them are ours."""

    before: Sequence[Message]
    after: Sequence[Message]
    own_tokens: int


class QuoteFinder:
    """Of one request. Looked for once, and only when somebody asks."""

    def __init__(
        self,
        conversations: ConversationCache,
        dialect: Dialect,
        tenant: str,
        headers: clients.Headers,
        request: Request,
    ) -> None:
        """`request` with its tokens counted."""
        self._conversation_cache, self._dialect, self._tenant = conversations, dialect, tenant
        self._hint, self._messages = clients.session_hint(headers), request.messages
        self._has_searched = False
        self._found_quote: FoundQuote | None = None

    @property
    def is_possible(self) -> bool:
        """Whether it is worth while to ask: there is a long message, and a conversation that it may quote."""
        return self._longest_message_position() is not None and (
            bool(self._hint) or any(map(_has_woken, self._recent_conversations()))
        )

    async def find(self) -> FoundQuote | None:
        """The quote, or None. A fault of ours costs the rendering, not the request."""
        if not self._has_searched:
            self._has_searched = True
            try:
                self._found_quote = await self._search()
            except Exception:  # the edge of what looks at whatever a client has written
                log.exception("a quote could not be looked for")
        return self._found_quote

    async def replace_quote(self, means: QuoteRenderOptions) -> ReplacedMessages | None:
        """The messages, with a rendering in the place of the quote; None without one, and where there is no room."""
        if (found := await self.find()) is None:
            return None
        try:
            return await _replace_quote(found, self._messages, means)
        except Exception:  # the same edge: it is another conversation that cannot be told
            log.exception("a quoted conversation could not be told")
            return None

    def _longest_message_position(self) -> int | None:
        """Of the longest message of the user, if it is long."""
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
        """Those of the session that the client names. Without the store they are not known."""
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
    """The newest path, and those it went on from, as far as they are awake."""
    ledger = cached.ledger
    tip = ledger.newest_tip()
    found: list[PathState] = []
    while tip is not None and len(found) < MAX_PATHS:
        found.append(cached.path_state(tip.id))
        adopts = next((entry.adopts for entry in ledger.path(tip.id) if entry.adopts), "")
        tip = ledger.entries.get(adopts)
    return [story for story in found if story.tree.is_awake]


def _search_path_states(at: int, wire: bytes, stories: Sequence[PathState]) -> FoundQuote | None:
    """Half a second for 10 MB of text, in a thread."""
    written = texts.longest_text(wire)
    text = texts.decode_text(written)
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
    """None where there is hardly any room for a rendering."""
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
    parts = context_parts(found.path_state, build_context(found.path_state, means.composer))
    begins = RENDERING_START.format(count=found.quote.end - found.quote.start)
    text = f"{before}{begins}{parts_as_text(parts, left)}{RENDERING_END}{behind}"
    (tokens,) = await means.counter.count_all([text])
    wire, identity = texts.replace_text(message.wire, found.raw_text, text), identity_of(message.role, text)
    changed = replace(message, wire=wire, identity=identity, text=text, tokens=tokens)
    return ReplacedMessages(
        messages[: found.position], (changed, *messages[found.position + 1 :]), max(tokens - around, 0)
    )
