"""What a conversation costs where the provider caches at markers, with the proxy and without.

The messages API keeps a beginning only where a request has a marker, at most four of them, and looks for one only a few
blocks before a marker. Receipts take every request as cached to its end (`report.prefix_cache`). Here the markers that
really stand in the requests are followed, on both sides: in what was sent, and in what the client sent.

The law: **it stands beside the receipts and is mixed into none of them**, and it counts as they do: a hidden round
costs what it read and what it said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from typing import Any

from llm_test_provider.apis.json import canonical
from llm_test_provider.prompt_cache import HOUR, CacheRule, PromptPart, SimulatedCache, SimulatedCacheUse
from proxy.accounting import Tariff
from proxy.core.ledger import Request, RequestSlice
from proxy.dialects import raw_json as slices
from proxy.dialects.messages import CACHE_CONTROL_BYTES, MEMBER, REASONING, TEXT, split_markers, type_of

MILLION = 1_000_000
HOUR_TTL = b'"1h"'
BLOCK_CACHE_SIZE, ARRAY_CACHE_SIZE = 65_536, 64
"""Messages that are remembered as digests of their blocks, and arrays by their markers."""


@dataclass
class MarkerCostTracker:
    """The account of one recording, in USD. `now` tells ms."""

    now: Callable[[], int]
    tariff_of: Callable[[str], Tariff]
    cost: float = 0.0
    cost_untouched: float = 0.0
    _caches_sent: dict[str, SimulatedCache] = field(default_factory=dict)
    _caches_untouched: dict[str, SimulatedCache] = field(default_factory=dict)

    def add_request(self, client: Request, sent: Sequence[Request], outputs: Sequence[int]) -> None:
        """A request of the client, what was sent for it, and the tokens that answered each of these."""
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
    """Where storing costs nothing extra, a provider stores by itself."""
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


def cached_parts(request: Request) -> Iterator[PromptPart]:
    """System text and tools as one part, then the blocks of the messages, in the order in which a cache sees them."""
    head = sum(message.tokens for message in request.head) + request.tools_tokens
    markers = [
        m for name in ("system", "tools") for found in _markers_by_item(request.fields.get(name, b"")) for m in found
    ]
    yield _part(f"{request.system_hash}{request.tools_hash}".encode(), head, markers)
    sources = request.slices[len(request.head) :]
    whole = (request.fields[MEMBER],) if MEMBER in request.fields else ()
    for source in sources:
        yield from _message_parts(source, whole if source is sources[-1] else ())


def _message_parts(source: RequestSlice, whole: Markers) -> Iterator[PromptPart]:
    """The blocks of a message. `whole`: the marker for the request, where this is its end."""
    marks = (
        _markers_by_item(slices.members(source.raw).get("content", b"")) if CACHE_CONTROL_BYTES in source.raw else ()
    )
    blocks = [
        (digest, tokens)
        for message in source.messages
        for digest, tokens in _block_digests(message.role == "assistant", message.wire, message.tokens)
    ]
    for at, (digest, tokens) in enumerate(blocks):
        own = marks[at] if at < len(marks) else ()
        yield _part(digest, tokens, (*own, *(whole if at + 1 == len(blocks) else ())))


def _part(digest: bytes, tokens: int, markers: Sequence[bytes]) -> PromptPart:
    return PromptPart(digest, tokens, bool(markers), HOUR if any(HOUR_TTL in marker for marker in markers) else None)


@lru_cache(ARRAY_CACHE_SIZE)
def _markers_by_item(array: bytes) -> tuple[Markers, ...]:
    """The markers of each item; nothing where there are none at all."""
    if CACHE_CONTROL_BYTES not in array or not array.startswith(b"["):
        return ()
    return tuple(split_markers(item)[1] for item in slices.items(array))


@lru_cache(BLOCK_CACHE_SIZE)
def _block_digests(assistant: bool, wire: bytes, tokens: int) -> tuple[tuple[bytes, int], ...]:  # noqa: FBT001 - whose it is
    """The blocks of a message less its markers, each by its digest and with its part of the message's tokens, by how
    long it is. A text is a block."""
    content = wire if wire.startswith(b"[") else slices.members(wire).get("content", b"")
    raws = slices.items(content) if content.startswith(b"[") else [b'{"type":"text","text":' + content + b"}"]
    said = [slices.parse(raw) for raw in raws]
    sizes = [_length(block, raw) for block, raw in zip(said, raws, strict=True)]
    borders = [tokens * sum(sizes[:at]) // (sum(sizes) or 1) for at in range(len(sizes) + 1)]
    digests = [sha256(canonical([assistant, block])).digest() for block in said]
    return tuple((digest, borders[at + 1] - borders[at]) for at, digest in enumerate(digests))


def _length(block: Any, raw: bytes) -> int:
    """Thinking has none, as in every count of ours."""
    kind = type_of(block)
    if kind in REASONING:
        return 0
    return len(str(block.get("text", ""))) if kind == TEXT else len(raw)
