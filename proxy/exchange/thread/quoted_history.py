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

from proxy.accounting.token_counter import Counter
from proxy.core.context.message_list import assemble
from proxy.core.frames.path_state import Story
from proxy.core.ledger.messages import Message, Request, identity_of
from proxy.core.matching.quotes import Quote, cut, quoted, said_in
from proxy.core.recall.as_text import narrated, parts_of
from proxy.dialects import Dialect
from proxy.dialects import body as texts
from proxy.dialects.compose import Writer
from proxy.errors import StoreError
from proxy.exchange.thread import session_headers as clients
from proxy.store.conversation_cache import Shelf, Shelved

log = logging.getLogger(__name__)

CONVERSATIONS = 4
"""So many are looked at: those of the session that the client names, and the newest at hand."""
PATHS = 3
"""Of a conversation, so many paths: where a request stood when it was taken for its next one, and those before."""
WOKEN = "woken"
"""The kind of the event with which the line of a conversation begins to be ours."""
LEAST = 4_000
"""Tokens of a message that may quote a history."""
ROOM = 500
"""Tokens that must be left for a rendering; in fewer nothing can be told."""
MARKS = 120
"""Tokens of the two lines around it."""
BEGINS = (
    "[callstack: {count:,} characters of a quoted conversation stood here, more than fits. All of it is kept by the "
    "proxy. In its place follow notes on the work that is finished, and the newest messages word for word.]\n\n"
)
ENDS = "\n\n[callstack: here ends what stands for the quoted conversation.]"


class Found(NamedTuple):
    """What is quoted: the place of the message, its text with the quote, as written and as text, and the path."""

    at: int
    written: bytes
    text: str
    quote: Quote
    story: Story


class Means(NamedTuple):
    """What a rendering is made with: the tokens that all messages may have, who writes, who counts."""

    room: int
    writer: Writer
    counter: Counter


class Told(NamedTuple):
    """The messages of a request before the one with a quote, and from that one on, which has a rendering in its place;
    `tokens` of them are ours."""

    before: Sequence[Message]
    behind: Sequence[Message]
    tokens: int


class Quotes:
    """Of one request. Looked for once, and only when somebody asks."""

    def __init__(self, shelf: Shelf, dialect: Dialect, tenant: str, headers: clients.Headers, request: Request) -> None:
        """`request` with its tokens counted."""
        self._shelf, self._dialect, self._tenant = shelf, dialect, tenant
        self._hint, self._messages = clients.session_hint(headers), request.messages
        self._looked = False
        self._found: Found | None = None

    @property
    def possible(self) -> bool:
        """Whether it is worth while to ask: there is a long message, and a conversation that it may quote."""
        return self._place() is not None and (bool(self._hint) or any(map(_is_awake, self._at_hand())))

    async def found(self) -> Found | None:
        """The quote, or None. A fault of ours costs the rendering, not the request."""
        if not self._looked:
            self._looked = True
            try:
                self._found = await self._looked_for()
            except Exception:  # the edge of what looks at whatever a client has written
                log.exception("a quote could not be looked for")
        return self._found

    async def told(self, means: Means) -> Told | None:
        """The messages, with a rendering in the place of the quote; None without one, and where there is no room."""
        if (found := await self.found()) is None:
            return None
        try:
            return await _replaced(found, self._messages, means)
        except Exception:  # the same edge: it is another conversation that cannot be told
            log.exception("a quoted conversation could not be told")
            return None

    def _place(self) -> int | None:
        """Of the longest message of the user, if it is long."""
        theirs = [at for at, message in enumerate(self._messages) if message.role == "user"]
        longest = max(theirs, key=lambda at: self._messages[at].tokens, default=None)
        return longest if longest is not None and self._messages[longest].tokens >= LEAST else None

    def _at_hand(self) -> list[Shelved]:
        return [s for s in reversed(self._shelf.at_hand(self._tenant)) if self._is_ours(s)]

    def _is_ours(self, shelved: Shelved) -> bool:
        """Messages are bytes of one wire format."""
        return shelved.ledger.conversation.dialect == self._dialect.name

    async def _looked_for(self) -> Found | None:
        at = self._place()
        if at is None:
            return None
        candidates = [*await self._named(), *filter(_is_awake, self._at_hand())]
        newest = list({s.ledger.conversation.id: s for s in candidates}.values())[:CONVERSATIONS]
        stories = [story for shelved in newest for story in _stories(shelved)]
        return await asyncio.to_thread(_found_in, at, self._messages[at].wire, stories) if stories else None

    async def _named(self) -> list[Shelved]:
        """Those of the session that the client names. Without the store they are not known."""
        if not self._hint:
            return []
        with suppress(StoreError):
            named = (await self._shelf.sessions(self._tenant, self._hint))[:CONVERSATIONS]
            known = [await self._shelf.get(self._tenant, conversation) for conversation in named]
            return [s for s in known if s is not None and self._is_ours(s) and _is_awake(s)]
        return []


def _is_awake(shelved: Shelved) -> bool:
    events = shelved.ledger.events.values()
    return any(event.kind == WOKEN for some in events for event in some)


def _stories(shelved: Shelved) -> list[Story]:
    """The newest path, and those it went on from, as far as they are awake."""
    ledger = shelved.ledger
    tip = ledger.newest_tip()
    found: list[Story] = []
    while tip is not None and len(found) < PATHS:
        found.append(shelved.story(tip.id))
        adopts = next((entry.adopts for entry in ledger.path(tip.id) if entry.adopts), "")
        tip = ledger.entries.get(adopts)
    return [story for story in found if story.tree.awake]


def _found_in(at: int, wire: bytes, stories: Sequence[Story]) -> Found | None:
    """Half a second for 10 MB of text, in a thread."""
    written = texts.longest(wire)
    text = texts.words_of(written)
    pieces = cut(text)
    if pieces is None:
        return None
    for story in stories:
        if (quote := quoted(pieces, said_in(story))) is not None:
            return Found(at, written, text, quote, story)
    return None


# ------------------------------------------------------------------------------------------------------------- in place
async def _replaced(found: Found, messages: Sequence[Message], means: Means) -> Told | None:
    """None where there is hardly any room for a rendering."""
    message = messages[found.at]
    before, behind = found.text[: found.quote.start], found.text[found.quote.end :]
    around = sum(await means.counter.count_all([before, behind]))
    left = means.room - around - MARKS - sum(m.tokens for at, m in enumerate(messages) if at != found.at)
    if left < ROOM:
        return None
    parts = parts_of(found.story, assemble(found.story, means.writer))
    begins = BEGINS.format(count=found.quote.end - found.quote.start)
    text = f"{before}{begins}{narrated(parts, left)}{ENDS}{behind}"
    (tokens,) = await means.counter.count_all([text])
    wire, identity = texts.exchanged(message.wire, found.written, text), identity_of(message.role, text)
    changed = replace(message, wire=wire, identity=identity, text=text, tokens=tokens)
    return Told(messages[: found.at], (changed, *messages[found.at + 1 :]), max(tokens - around, 0))
