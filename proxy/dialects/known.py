"""What was read before: messages by the bytes they came as, tool arrays by theirs.

Clients resend everything with every request. The law: **a message is read and counted once**, when its bytes are first
seen; from then on it is known by them. The cache is bounded and may forget anything at any time; then a message is
read and counted again.

What this module does not do: it knows no wire format. How bytes become messages is handed in.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import takewhile
from typing import NamedTuple

from msgspec.structs import replace

from proxy.dialects import slices
from proxy.dialects.grown import Bodies
from proxy.stack.transcript import Message, Request, Source, digest_of_tools

KNOWN_MESSAGES = 65_536
KNOWN_BYTES = 48 * 1024 * 1024
"""Of the messages that are known: as many as the conversations at hand have (`proxy.shelf`). As much again of those by
whose order a request is told, which mostly are the same ones."""
KNOWN_ORDERS = 32
"""Requests of which is remembered how their messages stood."""
OPENING = 256
"""Bytes of each of the first two messages by which the request before is looked for."""
KNOWN_TOOLS = 1024
"""Tool arrays kept by their names and tokens."""
ENTRY = 300
"""Bytes a known message costs beside itself: its hash, and its places here."""


class Unreadable(ValueError):
    """The body cannot be taken apart, which says nothing about whether the provider takes it: pass it on as it is."""


@dataclass(frozen=True, slots=True)
class Tools:
    """What a request offers: names in order, and their tokens as JSON; 0 while they are not counted."""

    names: tuple[str, ...]
    tokens: int


class _Order(NamedTuple):
    """What a request consisted of, and the bytes that takes, about."""

    sources: tuple[Source, ...] = ()
    size: int = 0


class Known:
    """Messages that were read before, by the hash of their bytes: bounded, least recently used goes first."""

    def __init__(self, messages: int = KNOWN_MESSAGES, size: int = KNOWN_BYTES) -> None:
        self.bodies = Bodies()
        self._bounds = (messages, size)
        self._seen: OrderedDict[bytes, Source] = OrderedDict()
        self._tools: OrderedDict[bytes, Tools] = OrderedDict()
        self._lately: OrderedDict[tuple[bytes, ...], _Order] = OrderedDict()
        self._ordered = 0
        """Bytes of `_lately`."""
        self.size = 0
        """Bytes of the messages by their hash."""

    def __len__(self) -> int:
        return len(self._seen)

    def read(self, raws: Sequence[bytes], reader: Callable[[bytes], tuple[Message, ...]]) -> list[Source]:
        """Each of `raws` as it was read before, or by `reader`.

        What stands as it stood in the request before is told by comparing the bytes, a tenth of the cost of their
        hashes. The rest is looked up by hash.
        """
        opening = tuple(raw[:OPENING] for raw in raws[:2])
        seen: list[Source] = []
        before = self._lately.get(opening, _Order())
        for raw, source in zip(raws, before.sources, strict=False):
            if raw != source.raw:
                break
            seen.append(source)
        new = [self._one(raw, reader) for raw in raws[len(seen) :]]
        self._order(opening, before, seen, tuple(takewhile(lambda source: source.weighed, new)))
        return [*seen, *new]

    def _order(
        self, opening: tuple[bytes, ...], before: _Order, seen: Sequence[Source], behind: tuple[Source, ...]
    ) -> None:
        """`seen` and `behind` it is how the newest request stood, instead of `before`."""
        size = before.size if len(seen) == len(before.sources) else sum(map(_size, seen))
        self._lately[opening] = now = _Order((*seen, *behind), size + sum(map(_size, behind)))
        self._lately.move_to_end(opening)
        self._ordered += now.size - before.size
        while len(self._lately) > KNOWN_ORDERS or (self._ordered > self._bounds[1] and len(self._lately) > 1):
            _, gone = self._lately.popitem(last=False)
            self._ordered -= gone.size

    def _one(self, raw: bytes, reader: Callable[[bytes], tuple[Message, ...]]) -> Source:
        key = sha256(raw).digest()
        found = self._seen.get(key)
        if found is None:
            found = Source(raw, reader(raw), weighed=False)
            self._keep(key, found)
        else:
            self._seen.move_to_end(key)
        return found

    def keep(self, source: Source) -> None:
        """Remember how it was read, in the place of what was remembered of the same bytes."""
        self._keep(sha256(source.raw).digest(), source)

    def _keep(self, key: bytes, source: Source) -> None:
        if old := self._seen.pop(key, None):
            self.size -= _size(old)
        self._seen[key] = source
        self.size += _size(source)
        messages, size = self._bounds
        while self._seen and (len(self._seen) > messages or self.size > size):
            _, gone = self._seen.popitem(last=False)
            self.size -= _size(gone)

    def tools(self, offered: bytes, reader: Callable[[], tuple[str, ...]]) -> Tools:
        """The tools in these bytes; none where there are none."""
        if not offered:
            return Tools((), 0)
        return self._tools.get(digest_of_tools(offered)) or Tools(reader(), 0)

    def keep_tools(self, offered: bytes, tools: Tools) -> None:
        key = digest_of_tools(offered)
        self._tools[key] = tools
        self._tools.move_to_end(key)
        if len(self._tools) > KNOWN_TOOLS:
            self._tools.popitem(last=False)


def _size(source: Source) -> int:
    held = sum(m.weight for m in source.messages)
    return held + ENTRY + (0 if any(m.wire is source.raw for m in source.messages) else len(source.raw))


# ------------------------------------------------------------------------------------------------------------- weigh
def countable(message: Message) -> str:
    """The words whose tokens a message is counted by: content, names and arguments of its calls, no reasoning."""
    said = [message.text, *(f"\n{c.name} {c.arguments}" for c in message.calls)]
    return "".join(said) if len(said) > 1 else message.text


def countables(request: Request) -> list[str]:
    """The texts whose tokens are wanted: of every message of every source not weighed, in order, then the tools if
    they are new."""
    texts = [countable(m) for source in request.sources if not source.weighed for m in source.messages]
    if request.tool_names and not request.tools_tokens:
        texts.append(slices.mended(request.offered.decode("utf-8", "replace")))
    return texts


def weighed(request: Request, counts: Sequence[int], known: Known) -> Request:
    """`request` with the tokens of `countables(request)` filled in and remembered."""
    left = iter(counts)
    sources = tuple(s if s.weighed else _weighed(s, [next(left) for _ in s.messages]) for s in request.sources)
    for before, now in zip(request.sources, sources, strict=True):
        if now is not before:
            known.keep(now)
    tools = request.tools_tokens
    if request.tool_names and not tools:
        tools = next(left)
        known.keep_tools(request.offered, Tools(request.tool_names, tools))
    messages = [m for source in sources for m in source.messages]
    first = len(request.head)
    return replace(
        request,
        sources=sources,
        head=tuple(messages[:first]),
        messages=tuple(messages[first:]),
        tools_tokens=tools,
    )


def _weighed(source: Source, counts: Sequence[int]) -> Source:
    counted = (replace(m, tokens=tokens) for m, tokens in zip(source.messages, counts, strict=True))
    return Source(source.raw, tuple(counted), weighed=True)
