"""The request of a client, and what is needed to answer it. Huge bodies are parsed and counted in a thread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from proxy.accounting import TokenCounterProtocol
from proxy.config import Config
from proxy.core.ledger import Request, Usage
from proxy.dialects import Dialect, DialectComposer, ParseCache, countable_texts, token_count_steps, with_token_counts
from proxy.exchange.background.cache_pings import CacheKeepAlive
from proxy.exchange.background.frame_embedder import FrameEmbedder
from proxy.exchange.background.in_flight import InFlight
from proxy.exchange.background.inbox import Inbox
from proxy.exchange.background.recorder import Recorder
from proxy.exchange.background.scheduler import in_slices
from proxy.exchange.background.summarizer import Summarizer
from proxy.exchange.notes.people_messages import MessageDelivery
from proxy.exchange.resolver import Resolver
from proxy.exchange.rounds.names_in_body import NamesInBody, read_names, read_names_in_child
from proxy.exchange.rounds.provider_turns import ProviderTurns
from proxy.exchange.turn import Toolkit
from proxy.store import ConversationCache
from proxy.upstream import ContextWindows, LearnedForms, LearnedTraits, RawHeaders, Route, Routes

HUGE_BODY_BYTES = 24 << 20
"""Bodies from this size are parsed in a thread and not cached: 60 MiB on the event loop would block everybody for 0.4
s, and two such bodies would push all else out of the cache."""
MAX_MESSAGES = 10_500
"""Messages of a request that is placed. Placing a new message blocks for 40 us, and a body may hold two million; the
longest conversation in a window of a million tokens has 5,000."""
MAX_PLACED_TEXT_BYTES = 8 << 20
"""Text of a request that is placed: two million tokens, and no model reads more. Each step over a text holds up
everybody else for 2 to 8 ms for each MB, and there are dozens."""
MAX_PLACED_BODY_BYTES = 48 << 20
"""Bytes of a request that is placed, files included. Providers take 20 to 50 MB."""
MIN_FILE_BYTES = 1200
FILE_MARKERS = (b";base64,", b'data"')
"""What stands before a file in a body: a data URL, or the name of a member that holds bare base64."""
SHARED_STORE_PATIENCE_S = 2.0
"""Seconds that a request may wait for a store on another machine, beside `assembly_budget_ms` for our own work: a
dozen round trips, of which others may have theirs before."""
SCANNED_BYTES = 2 << 20
"""Bytes searched in one go: 3 ms."""
ROLE_KEY = b'"role"'
HASHED_APART_BYTES = 1 << 20
"""Bodies from this size are hashed in a thread: 40 MiB take 0.1 s."""
MIN_MESSAGE_BYTES = 16
READ_APART_BYTES = 64 << 10
"""Bodies from this size are read for their names in a thread."""
READ_BY_CHILD_BYTES = 4 << 20
"""And from this size in a process: the parser holds the interpreter for up to 2.5 ms for each MB."""
_long_bodies = ThreadPoolExecutor(1, "long-body")
"""One at a time: each takes as much memory again, and there are few threads for all else."""


ReserveRound = Callable[[Sequence[Usage], int], Awaitable[None]]
"""Makes room in the budget of a client key for another round of the same request: given what its rounds used so far,
and how many tokens the next one sends. Raises BudgetSpent, BudgetReserved or BudgetUnknown where it may not be sent."""


class ClientRequest(msgspec.Struct, frozen=True):
    """A client's request with its body. `path` is raw, as the client wrote it."""

    id: str
    tenant: str
    method: str
    path: str
    query: bytes
    headers: RawHeaders
    body: bytes
    mode: str = ""
    """The mode of its client key, or empty."""
    takes_slash_commands: bool = True
    """Whether its client key allows commands in the chat."""
    allowed_models: tuple[str, ...] = ()
    """Names or globs of the models that the client may ask for; empty for all."""
    reserve_round: ReserveRound | None = None
    """None where the client key has no budget."""
    arrived: float = msgspec.field(default_factory=time.perf_counter)


@dataclass(frozen=True, kw_only=True)
class SharedServices:
    """What the exchanges of all dialects share. `now` returns ms since the epoch."""

    config: Config
    conversation_cache: ConversationCache
    routes: Routes
    counter: TokenCounterProtocol
    context_windows: ContextWindows
    now: Callable[[], int]
    in_flight: InFlight = field(default_factory=InFlight)
    summarizer: Summarizer | None = None
    """None if it is off."""
    cache_keep_alive: CacheKeepAlive | None = None
    """None if it is off."""
    frame_embedder: FrameEmbedder | None = None
    """None if it is off."""
    learned_forms: LearnedForms = field(default_factory=LearnedForms)
    """What upstreams accept that refused the full form of a request."""


@dataclass(frozen=True, kw_only=True)
class Services(SharedServices):
    """What an exchange is made of."""

    dialect: Dialect
    composer: DialectComposer
    resolver: Resolver
    toolkit: Toolkit
    recorder: Recorder
    parse_cache: ParseCache
    count_memoized: Callable[[str], int]
    """Tokens of a text that recurs in every request."""
    message_delivery: MessageDelivery
    inbox: Inbox
    learned_traits: LearnedTraits
    provider_turns: ProviderTurns = field(default_factory=ProviderTurns)
    """What providers told of answers that are not in our store."""


def placement_patience_s(services: Services) -> float:
    """Seconds within which a request has to be placed."""
    own = services.config.assembly_budget_ms / 1000
    return own + SHARED_STORE_PATIENCE_S if services.conversation_cache.is_shared else own


async def is_too_long(body: bytes) -> bool:
    """Whether the proxy lets a request pass without reading it, because no model reads so much. Estimated without
    parsing, by what the body holds beside files in base64."""
    if len(body) <= MAX_PLACED_TEXT_BYTES:
        return False
    return len(body) > MAX_PLACED_BODY_BYTES or len(body) - await _file_bytes(body) > MAX_PLACED_TEXT_BYTES


async def _file_bytes(body: bytes) -> int:
    total = 0
    for marker in FILE_MARKERS:
        at = 0
        while at < len(body):
            await asyncio.sleep(0)
            # The windows overlap, because a marker may lie on a border.
            found = body.find(marker, at, at + SCANNED_BYTES + len(marker))
            if found < 0:
                at += SCANNED_BYTES
                continue
            begins = found + len(marker)
            if marker.endswith(b'"'):
                begins = body.find(b'"', begins) + 1 or len(body)
            ends = body.find(b'"', begins)
            at = ends if ends >= 0 else len(body)
            total += at - begins if at - begins >= MIN_FILE_BYTES else 0
    return total


async def names_in(body: bytes) -> NamesInBody:
    """The model and the earlier answer that a body names, read without the rest of it; None and "" where it names
    none."""
    if len(body) < READ_APART_BYTES:
        return read_names(body)
    return await asyncio.get_running_loop().run_in_executor(_long_bodies, _names_in_long, body)


def _names_in_long(body: bytes) -> NamesInBody:
    names = read_names_in_child(body) if len(body) >= READ_BY_CHILD_BYTES else None
    return names or read_names(body)


async def parse_client_request(services: Services, body: bytes) -> Request:
    """The request in a body; its tokens are not counted yet. Raises RequestParseError."""
    # Estimated without parsing: inside a message text the quotes of the key would be escaped.
    are_many = len(body) > MIN_MESSAGE_BYTES * MAX_MESSAGES and body.count(ROLE_KEY) > MAX_MESSAGES
    if len(body) < HUGE_BODY_BYTES and not are_many:
        return await in_slices(services.dialect.parse_in_steps(body, services.parse_cache))
    return await asyncio.to_thread(services.dialect.parse_request, body, ParseCache())


async def count_request_tokens(services: Services, request: Request) -> Request:
    texts = countable_texts(request)
    if not texts:
        return request
    counts = await services.counter.count_all(texts)
    if len(request.body) < HUGE_BODY_BYTES:
        return await in_slices(token_count_steps(request, counts, services.parse_cache))
    return await asyncio.to_thread(with_token_counts, request, counts, ParseCache())


def without_refused_usage(services: Services, route: Route, request: Request) -> Request:
    """The request marked so that we do not ask for usage, if the model's upstream refuses that."""
    refuses = services.learned_traits.has("no_usage", (route.upstream.name, route.model))
    return replace(request, wants_usage=True) if refuses and request.stream else request
