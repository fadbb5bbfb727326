"""What a conversation costs where the provider caches only at cache markers, with the proxy and without.

The messages API caches a prefix only at a marker, at most four in a request, and looks for a cached one only a few
blocks before a marker. Receipts take every request as cached to its last marker; here all markers in the requests are
followed, both in what the client sent and in what was sent upstream. The figures stand beside those of the receipts,
and count alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from typing import Any

from llm_test_provider.apis.json import canonical
from llm_test_provider.prompt_cache import HOUR, CacheRule, PromptPart, SimulatedCache, SimulatedCacheUse
from proxy.accounting import PromptChain, Tariff
from proxy.core.ledger import Request, RequestSlice
from proxy.dialects import raw_json
from proxy.dialects.messages import CACHE_CONTROL_BYTES, MEMBER, REASONING, TEXT, split_markers, type_of

MILLION = 1_000_000
HOUR_TTL = b'"1h"'
BLOCK_CACHE_SIZE, ARRAY_CACHE_SIZE = 8_192, 64
"""Entries of the caches of block digests (messages, whose bytes are kept) and of markers (arrays)."""


@dataclass
class MarkerCostTracker:
    """Costs of one recording in USD. `now` returns ms."""

    now: Callable[[], int]
    tariff_of: Callable[[str], Tariff]
    cost: float = 0.0
    cost_untouched: float = 0.0
    _caches_sent: dict[str, SimulatedCache] = field(default_factory=dict)
    _caches_untouched: dict[str, SimulatedCache] = field(default_factory=dict)

    def add_request(self, client: Request, sent: Sequence[Request], outputs: Sequence[int]) -> None:
        """Add a request of the client, the requests sent for it, and the output tokens of each of those."""
        tariff = self.tariff_of(client.model)
        self.cost_untouched += self._price(self._caches_untouched, client, tariff, outputs[-1])
        self.cost += sum(
            self._price(self._caches_sent, one, tariff, out) for one, out in zip(sent, outputs, strict=True)
        )

    def _price(self, caches: dict[str, SimulatedCache], request: Request, tariff: Tariff, output: int) -> float:
        if request.model not in caches:
            caches[request.model] = SimulatedCache(_cache_rule(tariff), lambda: self.now() / 1000)
        use = caches[request.model].use(tuple(cached_parts(request)))
        tariff = tariff.for_input(use.cached + use.written + use.uncached)
        return (_input_price(use, tariff) * tariff.input + output * (tariff.output or 0.0)) / MILLION


def _cache_rule(tariff: Tariff) -> CacheRule:
    """A provider whose cache writes cost nothing extra caches without markers."""
    return CacheRule(
        tariff.names[0],
        tariff.read,
        tariff.write,
        tariff.minimum,
        tariff.step,
        tariff.ttl_s,
        marked=tariff.write != 1,
    )


def _input_price(use: SimulatedCacheUse, tariff: Tariff) -> float:
    """In input tokens that are paid in full."""
    written = tariff.write * (use.written - use.written_long) + tariff.write_long * use.written_long
    return use.uncached + tariff.read * use.cached + written


# --------------------------------------------------------------------------------------------------------------- parts
Markers = tuple[bytes, ...]


def cache_pieces(request: Request) -> PromptChain:
    """System text and tools as one piece, then the blocks of the messages, without markers. By blocks, because texts
    of the proxy may join a user message later."""
    pieces = [_head_piece(request)]
    loading = request.loaded_tokens_by_message(request.messages)
    for position, message in enumerate(request.messages):
        tokens = message.tokens + loading.get(position, 0)
        pieces += _blocks_of(message.role == "assistant", message.wire, tokens)
    return [(digest.hex(), tokens) for digest, tokens in pieces]


def _head_piece(request: Request) -> tuple[bytes, int]:
    return f"{request.system_hash}{request.tools_hash}".encode(), request.fixed_tokens


def cached_parts(request: Request) -> Iterator[PromptPart]:
    """System text and tools as one part, then the blocks of the messages, in the order of the prompt."""
    markers = [
        m for name in ("system", "tools") for found in _markers_by_item(request.fields.get(name, b"")) for m in found
    ]
    yield _part(*_head_piece(request), markers)
    sources = request.slices[len(request.head) :]
    whole = (request.fields[MEMBER],) if MEMBER in request.fields else ()
    loading = request.loaded_tokens_by_message(request.messages).items()
    loaded = {id(request.messages[position]): tokens for position, tokens in loading}
    for source in sources:
        yield from _message_parts(source, whole if source is sources[-1] else (), loaded)


def _message_parts(source: RequestSlice, whole: Markers, loaded: Mapping[int, int]) -> Iterator[PromptPart]:
    """The blocks of a message. `whole`: the marker of the whole request, for its last message. `loaded`: tokens of the
    tools that a message loads, by its Python id."""
    marks = (
        _markers_by_item(raw_json.members(source.raw).get("content", b"")) if CACHE_CONTROL_BYTES in source.raw else ()
    )
    blocks = [
        (digest, tokens)
        for message in source.messages
        for digest, tokens in _blocks_of(
            message.role == "assistant", message.wire, message.tokens + loaded.get(id(message), 0)
        )
    ]
    for at, (digest, tokens) in enumerate(blocks):
        own = marks[at] if at < len(marks) else ()
        yield _part(digest, tokens, (*own, *(whole if at + 1 == len(blocks) else ())))


def _part(digest: bytes, tokens: int, markers: Sequence[bytes]) -> PromptPart:
    return PromptPart(digest, tokens, bool(markers), HOUR if any(HOUR_TTL in marker for marker in markers) else None)


@lru_cache(ARRAY_CACHE_SIZE)
def _markers_by_item(array: bytes) -> tuple[Markers, ...]:
    """The markers of each item; empty where no item has one."""
    if CACHE_CONTROL_BYTES not in array or not array.startswith(b"["):
        return ()
    return tuple(split_markers(item)[1] for item in raw_json.items(array))


@lru_cache(BLOCK_CACHE_SIZE)
def _blocks_of(assistant: bool, wire: bytes, tokens: int) -> tuple[tuple[bytes, int], ...]:  # noqa: FBT001 - whose it is
    """Digest and tokens of each block of a message, without markers. The tokens of the message are split by length of
    the blocks. A plain text is one block."""
    content = wire if wire.startswith(b"[") else raw_json.members(wire).get("content", b"")
    raws = raw_json.items(content) if content.startswith(b"[") else [b'{"type":"text","text":' + content + b"}"]
    said = [raw_json.parse(raw) for raw in raws]
    sizes = [_length(block, raw) for block, raw in zip(said, raws, strict=True)]
    borders = [tokens * sum(sizes[:at]) // (sum(sizes) or 1) for at in range(len(sizes) + 1)]
    digests = [sha256(canonical([assistant, block])).digest() for block in said]
    return tuple((digest, borders[at + 1] - borders[at]) for at, digest in enumerate(digests))


def _length(block: Any, raw: bytes) -> int:
    """0 for thinking, which no token count includes."""
    kind = type_of(block)
    if kind in REASONING:
        return 0
    return len(str(block.get("text", ""))) if kind == TEXT else len(raw)
