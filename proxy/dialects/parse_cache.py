"""Caches parsed messages and tool arrays by their bytes, and parses only what a growing body adds.

Clients resend their history with every request. A message is parsed and counted once, then found by its bytes.
A body is split from the last message of the body before it that carries no cache marker, if the bytes before that are
equal; otherwise the whole body is split, with the same result. The cache is bounded, and a forgotten message is parsed
again.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from hashlib import sha256
from itertools import chain, filterfalse, takewhile
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import replace

from proxy.core.ledger import Message, Request, RequestSlice, deferred_tools_in, digest_of_tools, without_deferred_tools
from proxy.core.memo import keep_newest
from proxy.dialects import raw_json

MAX_BODIES = 32
"""Bodies that are remembered, the newest of each conversation."""
MAX_BODY_BYTES = 6 * 1024 * 1024
"""Bytes of all of them together."""
MARKER_KEY = b'"cache_control"'
"""What clients write into the last messages, to be cached up to there, and leave out there in the next request."""
READ_APART_BYTES = 256 * 1024
"""Bodies from this size are read in a thread: where the fast reader refuses one, the scanner takes 0.1 s for a MB."""
MAX_MARKED_AT_END = 6
"""Messages at the end of a body in which such markers are looked for."""
PLACEHOLDER = b"0"
"""What stands for the known items while the rest is read: no API takes a number for a message."""

SplitBody = tuple[dict[str, bytes], list[bytes]]
"""The members of a body, and the items of its array."""


@dataclass(frozen=True, slots=True, eq=False)
class _CachedBody:
    """What a later body may begin with: all up to the end of the last of `items`. The array begins at `array_start`;
    `leading_members` are the members before it."""

    prefix: bytes
    array_start: int
    leading_members: dict[str, bytes]
    items: list[bytes]


class BodyCache:
    """Bodies taken apart lately. Each has one array that grows, by its name."""

    def __init__(self, most_bytes: int = MAX_BODY_BYTES) -> None:
        self._max_bytes = most_bytes
        self._known: deque[_CachedBody] = deque()
        self.size = 0
        """Bytes held."""

    def split(self, body: bytes, name: str) -> SplitBody:
        """`body` taken apart; no items where it has no member `name`. Raises JsonSplitError."""
        return self._keep(_split_body(body, name, tuple(self._known)))

    def split_in_steps(self, body: bytes, name: str) -> ParseSteps[SplitBody]:
        """As `split`. Others may have their turn while a large body is read, and between the two readings of one that
        is too large to be kept."""
        if len(body) <= READ_APART_BYTES:
            return self.split(body, name)
        if len(body) <= self._max_bytes:
            read: _ReadBody = yield partial(_split_body, body, name, tuple(self._known))
            return self._keep(read)
        fields = yield partial(raw_json.body_members, body)
        items = yield partial(raw_json.items, fields.get(name, b""))
        return fields, items

    def _keep(self, read: _ReadBody) -> SplitBody:
        """Keep what was read, the newest first."""
        known, later = read.known, read.later
        if later is None or len(later.prefix) > self._max_bytes or (self._known and later is self._known[0]):
            return read.opened
        if known is not None and known in self._known:  # others may have pushed it out meanwhile
            self._known.remove(known)
            self.size -= len(known.prefix)
        self._known.appendleft(later)
        self.size += len(later.prefix)
        while len(self._known) > MAX_BODIES or (self._known and self.size > self._max_bytes):
            self.size -= len(self._known.pop().prefix)
        return read.opened


class _ReadBody(NamedTuple):
    """A body taken apart, the known one from which it goes on, and what is to be kept in place of that."""

    opened: SplitBody
    known: _CachedBody | None = None
    later: _CachedBody | None = None


def _split_body(body: bytes, name: str, cached: Sequence[_CachedBody]) -> _ReadBody:
    """Reads a body, in whichever thread. Raises JsonSplitError."""
    for known in cached:
        if body.startswith(known.prefix) and (grown := _split_grown_body(known, body, name)):
            return _ReadBody(grown[0], known, grown[1])
    fields = raw_json.body_members(body)
    items = raw_json.items(fields.get(name, b""))
    return _ReadBody((fields, items), later=_cacheable(body, name, fields[name], items) if items else None)


def _split_grown_body(known: _CachedBody, body: bytes, name: str) -> tuple[SplitBody, _CachedBody] | None:
    """`body`, which begins as `known`, read from there on; None where something else is there than more items."""
    border, opening = len(known.prefix), _object_start(name)
    rest = opening + b"[" + PLACEHOLDER + body[border:]
    try:
        behind = raw_json.body_members(rest)
        array = behind.pop(name)
        items = raw_json.items(array)
    except raw_json.JsonSplitError:
        return None
    if items[:1] != [PLACEHOLDER] or not rest.startswith(array, len(opening)):
        return None  # no border of items, or the member is there twice
    end = border + len(array) - len(b"[" + PLACEHOLDER)
    fields = {**known.leading_members, name: body[known.array_start : end], **behind}
    if len(items) == 1:
        return (fields, known.items), known
    items = [*known.items, *items[1:]]
    kept = max(len(known.items), _steady_count(items))
    if kept == len(known.items):
        return (fields, items), known
    prefix = body[: _end_of_item(body, end, items[kept:])]
    return (fields, items), _CachedBody(prefix, known.array_start, known.leading_members, items[:kept])


@lru_cache
def _object_start(name: str) -> bytes:
    """An object up to the value of its first member."""
    return b"{" + raw_json.encode(name) + b":"


def _cacheable(body: bytes, name: str, array: bytes, items: list[bytes]) -> _CachedBody | None:
    """`body` for those that go on from it; None where it cannot be told that the array stands where it seems to."""
    if (start := raw_json.find_slice(body, array)) < 0:
        return None
    try:
        front = raw_json.members(body[:start] + b"[]}")
    except raw_json.JsonSplitError:
        return None
    if next(reversed(front)) != name or front.pop(name) != b"[]":
        return None
    if not (kept := _steady_count(items)):
        return None
    return _CachedBody(body[: _end_of_item(body, start + len(array), items[kept:])], start, front, items[:kept])


def _steady_count(items: Sequence[bytes]) -> int:
    """How many items stand before those at the end that carry a cache marker, which will be gone from there."""
    first = max(0, len(items) - MAX_MARKED_AT_END)
    return next((at for at in range(first, len(items)) if MARKER_KEY in items[at]), len(items))


def _end_of_item(body: bytes, end: int, behind: Sequence[bytes]) -> int:
    """Where the last item before `behind` ends, in an array that ends at `end` with these."""
    end -= 1
    while body[end - 1] in raw_json.SPACE:
        end -= 1
    for item in reversed(behind):
        end -= len(item)
        while body[end - 1] in raw_json.BETWEEN_ITEMS:
            end -= 1
    return end


MAX_MESSAGES = 65_536
MAX_MESSAGE_BYTES = 32 * 1024 * 1024
"""Of the messages that are known: as many as the cached conversations have (`store.conversation_cache`), which mostly
are the same ones. As much again of those by whose order a request is told."""
MAX_RECENT_REQUESTS = 32
"""Requests of which is remembered how their messages stood."""
CONVERSATION_KEY_BYTES = 256
"""Bytes of each of the first two messages by which the request before is looked for."""
MAX_TOOL_ARRAYS = 1024
"""Tool arrays kept by their names and tokens."""
MAX_SYSTEM_HASHES = 1024
"""System texts kept by their hash."""
ENTRY_OVERHEAD_BYTES = 380
"""Bytes a known message costs beside itself: its hash, its key, and its places here."""
COUNTED_PER_STEP = 256
"""New messages whose tokens are filled in in one go: about 3 ms."""
HEAVY_BYTES = 512 * 1024
"""A message from this size is hashed and read in a thread, and so are tools."""
STEP_BYTES = 64 * 1024
"""Bytes of messages that are read in one go: 1 to 2 ms."""
MESSAGE_STEP_BYTES = 512
"""To read a message takes as long, beside what it holds, as so many bytes."""

Found = TypeVar("Found")
ParseSteps = Generator[Callable[[], Any] | None, Any, Found]
"""Something that is read bit by bit; between two of them others may have their turn. A function that it yields is work
for a thread: it has no side effects, and its result, or what it raises, is sent back."""


def run_steps(reading: ParseSteps[Found]) -> Found:
    """What it comes to, without a break."""
    answer: Any = None
    try:
        while True:
            work = reading.send(answer)
            answer = None
            while work is not None:
                try:
                    answer = work()
                except ValueError as refused:
                    work = reading.throw(refused)
                else:
                    break
    except StopIteration as ended:
        found: Found = ended.value
        return found


class RequestParseError(ValueError):
    """The body cannot be taken apart, which says nothing about whether the provider takes it: pass it on as it is."""


@dataclass(frozen=True, slots=True)
class OfferedTools:
    """What a request offers: names in order, and their tokens as JSON; 0 while they are not counted."""

    names: tuple[str, ...]
    tokens: int
    deferred: Mapping[str, int] = field(default_factory=dict)
    """Tokens of the tools that a message has to load first, by name; `tokens` are those of the others."""


class _RecentRequest(NamedTuple):
    """What a request consisted of, and the bytes that takes, about."""

    raws: list[bytes]
    sources: tuple[RequestSlice, ...]
    size: int


_NO_REQUEST = _RecentRequest([], (), 0)
_NO_TOOLS = OfferedTools((), 0)
raw_of = attrgetter("raw")
"""The bytes of a source."""
_get_messages = attrgetter("messages")
_has_token_counts = attrgetter("has_token_counts")


class SliceCache:
    """Slices of requests that were read before, by dialect and hash of their bytes: bounded, least recently used goes
    first. All dialects of a process share one, so that those that nobody uses take no room."""

    def __init__(self, messages: int = MAX_MESSAGES, size: int = MAX_MESSAGE_BYTES) -> None:
        self.bounds = (messages, size)
        self._slices: OrderedDict[bytes, RequestSlice] = OrderedDict()
        self.size = 0
        """Bytes of the messages, about."""

    def __len__(self) -> int:
        return len(self._slices)

    def find(self, key: bytes) -> RequestSlice | None:
        found = self._slices.get(key)
        if found is not None:
            self._slices.move_to_end(key)
        return found

    def keep(self, key: bytes, source: RequestSlice) -> None:
        """In the place of what was kept under this key."""
        if old := self._slices.pop(key, None):
            self.size -= _size(old)
        self._slices[key] = source
        self.size += _size(source)
        messages, size = self.bounds
        while self._slices and (len(self._slices) > messages or self.size > size):
            _, gone = self._slices.popitem(last=False)
            self.size -= _size(gone)


class ParseCache:
    """What a dialect has read. Its messages are in `slice_cache`, which may be shared; keys begin with `dialect`."""

    def __init__(self, slice_cache: SliceCache | None = None, dialect: str = "") -> None:
        self.bodies = BodyCache()
        self._slices = SliceCache() if slice_cache is None else slice_cache
        self._dialect = dialect.encode()
        self._tools: OrderedDict[bytes, OfferedTools] = OrderedDict()
        self._system_hashes: OrderedDict[tuple[str, ...], str] = OrderedDict()
        self._recent_requests: OrderedDict[tuple[bytes, ...], _RecentRequest] = OrderedDict()
        self._recent_bytes = 0
        """Bytes of `_recent_requests`."""

    def parse_messages(
        self, raws: list[bytes], reader: Callable[[bytes], tuple[Message, ...]]
    ) -> ParseSteps[tuple[RequestSlice, ...]]:
        """Each of `raws` as it was read before, or by `reader`.

        What stands as it stood in the request before is told by comparing the bytes, a tenth of the cost of their
        hashes. The rest is looked up by hash.
        """
        opening = tuple([raw[:CONVERSATION_KEY_BYTES] for raw in raws[:2]])
        before = self._recent_requests.get(opening, _NO_REQUEST)
        alike = _common_prefix_length(raws, before.raws)
        if 0 < alike == len(raws) == len(before.raws):
            self._recent_requests.move_to_end(opening)
            return before.sources
        seen = before.sources[:alike]
        new: list[RequestSlice] = []
        size = 0
        for raw in raws[alike:]:
            if len(raw) >= HEAVY_BYTES:
                key = yield partial(_digest_of, raw)
                known = self._find(key)
                new.append(known or self._add(key, raw, (yield partial(reader, raw))))
                continue
            new.append(self._find_or_parse(raw, reader))
            size += len(raw) + MESSAGE_STEP_BYTES
            if size >= STEP_BYTES:
                size = 0
                yield None
        behind = tuple(takewhile(_has_token_counts, new))
        size = before.size - sum(map(_size, before.sources[alike:])) + sum(map(_size, behind))
        now = _RecentRequest(raws[: alike + len(behind)], (*seen, *behind), size)
        self._store_request(opening, now)
        return (*seen, *new)

    def _store_request(self, opening: tuple[bytes, ...], now: _RecentRequest) -> None:
        """`now` is how the newest request stood."""
        self._recent_bytes += now.size - self._recent_requests.get(opening, _NO_REQUEST).size
        self._recent_requests[opening] = now
        self._recent_requests.move_to_end(opening)
        while len(self._recent_requests) > MAX_RECENT_REQUESTS or (
            self._recent_bytes > self._slices.bounds[1] and len(self._recent_requests) > 1
        ):
            _, gone = self._recent_requests.popitem(last=False)
            self._recent_bytes -= gone.size

    def _find_or_parse(self, raw: bytes, reader: Callable[[bytes], tuple[Message, ...]]) -> RequestSlice:
        key = _digest_of(raw)
        return self._find(key) or self._add(key, raw, reader(raw))

    def _find(self, digest: bytes) -> RequestSlice | None:
        return self._slices.find(self._dialect + digest)

    def _add(self, digest: bytes, raw: bytes, messages: tuple[Message, ...]) -> RequestSlice:
        found = RequestSlice(raw, messages, has_token_counts=False, digest=digest, has_marker_key=MARKER_KEY in raw)
        self.store(found)
        return found

    def store(self, source: RequestSlice) -> None:
        """Remember how it was read, in the place of what was remembered of the same bytes."""
        self._slices.keep(self._dialect + (source.digest or _digest_of(source.raw)), source)

    def tools(self, offered: bytes, reader: Callable[[], tuple[str, ...]]) -> ParseSteps[OfferedTools]:
        """The tools in these bytes; none where there are none."""
        if not offered:
            return _NO_TOOLS
        if (found := self._tools.get(digest_of_tools(offered))) is not None:
            return found
        return OfferedTools((yield reader) if len(offered) >= HEAVY_BYTES else reader(), 0)

    def keep_tools(self, offered: bytes, tools: OfferedTools) -> None:
        keep_newest(self._tools, digest_of_tools(offered), tools, MAX_TOOL_ARRAYS)

    def system_hash(self, head: Sequence[Message], hashed: Callable[[Sequence[Message]], str]) -> str:
        """What `hashed` makes of the texts of `head`, less the space around each, which are equal where the identities
        are. An agent has the same system text with every request, and the hash of one that long lets go of the
        interpreter: under load that costs 50 us more than hashing."""
        key = tuple([m.identity for m in head])
        found = self._system_hashes.get(key)
        if found is None:
            found = hashed(head)
            keep_newest(self._system_hashes, key, found, MAX_SYSTEM_HASHES)
        return found


def _digest_of(raw: bytes) -> bytes:
    return sha256(raw).digest()


def _common_prefix_length(raws: list[bytes], before: list[bytes]) -> int:
    """How many of `raws` are, from the first one on, what stood there `before`."""
    most = min(len(raws), len(before))
    if raws[:most] == before[:most]:
        return most
    return next(at for at in range(most) if raws[at] != before[at])


def messages_of(sources: Iterable[RequestSlice]) -> tuple[Message, ...]:
    """What `sources` were read as, in order."""
    return tuple(chain.from_iterable(map(_get_messages, sources)))


def _size(source: RequestSlice) -> int:
    held, apart = ENTRY_OVERHEAD_BYTES, len(source.raw)
    for message in source.messages:
        held += message.memory_bytes
        if message.wire is source.raw:
            apart = 0
    return held + apart


# ------------------------------------------------------------------------------------------------------------- weigh
def countable_text(message: Message) -> str:
    """The words whose tokens a message is counted by: content, names and arguments of its calls, no reasoning."""
    if not message.calls:
        return message.text
    return "".join([message.text, *(f"\n{c.name} {c.arguments}" for c in message.calls)])


def countable_texts(request: Request) -> list[str]:
    """The texts whose tokens are wanted: of every message of every source not weighed, in order, then the tools if
    they are new, and each deferred one by itself."""
    texts = [countable_text(m) for m in messages_of(filterfalse(_has_token_counts, request.slices))]
    if request.tool_names and not request.tools_tokens:
        offered = (without_deferred_tools(request.raw_tools), *deferred_tools_in(request.raw_tools).values())
        texts += [raw_json.replace_surrogates(tools.decode("utf-8", "replace")) for tools in offered]
    return texts


def with_token_counts(request: Request, counts: Sequence[int], known: ParseCache) -> Request:
    """`request` with the tokens of `countables(request)` filled in and remembered, at once."""
    return run_steps(token_count_steps(request, counts, known))


def token_count_steps(request: Request, counts: Sequence[int], known: ParseCache) -> ParseSteps[Request]:
    """The same, bit by bit."""
    left = iter(counts)
    sources: list[RequestSlice] = []
    new = 0
    for source in request.slices:
        if not source.has_token_counts:
            source = _with_counts(source, [next(left) for _ in source.messages])
            known.store(source)
            new += 1
            if new % COUNTED_PER_STEP == 0:
                yield None
        sources.append(source)
    tools, deferred = request.tools_tokens, request.deferred_tools
    if request.tool_names and not tools:
        tools = next(left)
        deferred = {name: next(left) for name in deferred_tools_in(request.raw_tools)}
        known.keep_tools(request.raw_tools, OfferedTools(request.tool_names, tools, deferred))
    messages = messages_of(sources)
    first = len(request.head)
    return replace(
        request,
        slices=tuple(sources),
        head=messages[:first],
        messages=messages[first:],
        tools_tokens=tools,
        deferred_tools=deferred,
    )


def _with_counts(source: RequestSlice, counts: Sequence[int]) -> RequestSlice:
    counted = (replace(m, tokens=tokens) for m, tokens in zip(source.messages, counts, strict=True))
    return replace(source, messages=tuple(counted), has_token_counts=True)
