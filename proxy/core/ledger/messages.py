"""The words of a conversation as values: calls, messages, requests, answers.

A client's message is opaque here: its role, its identity, the calls in it, its text, and the bytes it travels as. The
law: **select and insert, never edit**. Nothing in the core looks into `wire`, so a field nobody has heard of
survives. How bytes become these values, and how an answer is written, is the business of `proxy.dialects`.

None of them can be part of a cycle, so the collector neither looks through them nor keeps a list of them (`gc=False`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from operator import attrgetter

import msgspec
from msgspec.structs import replace

from proxy.core.memo import memoize

REMEMBERED_TOOL_ARRAYS = 64
"""Arrays of tools whose digest is remembered."""
MAX_REMEMBERED_TOOLS_BYTES = 256 * 1024
"""Of each of them; the tools of an agent take a fifth of that."""
MESSAGE_BYTES = 290
CALL_BYTES = 270
RESPONSE_BYTES = 500
"""What a message, a call in it and a round take in memory beside their long strings: the objects, ids, names, figures.
"""
NON_ASCII_CHARACTER_BYTES = 3
"""What a character takes in a text that is not ASCII, about: mostly two, and two again as UTF-8, which the interpreter
keeps beside the text once somebody asked for it (a text that ends with white space is not asked)."""
INSTRUCTION_ROLES = ("system", "developer")
"""Of the messages that give the model its instructions, in front of a conversation or in the middle of it."""
DELIVERY_FIELDS = frozenset({"stream", "stream_options"})
"""Members of a request that say how its answer travels, and nothing of what is asked."""
STACK_PREFIX = "stack_"
"""Every tool of ours starts with it, except the dispatcher, which is the bare word `stack`."""


def is_stack_tool(name: str) -> bool:
    """Whether a call by this name is answered by the proxy and never seen by the client."""
    return name == "stack" or name.startswith(STACK_PREFIX)


class Call(msgspec.Struct, frozen=True, gc=False):
    """A tool call as it was produced; `arguments` are its bytes, valid JSON or not."""

    id: str
    name: str
    arguments: str

    @property
    def is_stack_call(self) -> bool:
        return is_stack_tool(self.name)


class Message(msgspec.Struct, frozen=True, gc=False):
    """One message of a conversation.

    `wire` is one message or item of the dialect; where the client's own holds several messages of ours, or a message
    of ours several of its items, it is an array: a run of blocks or items, which is put among its neighbours without
    its brackets. `identity` is the hash of its canonical content (16 bytes, hex): two forms a client may echo one
    message in have the same. `answers` is the id of the call this is a result of, or empty. `tokens` counts contents,
    call names and arguments, without reasoning. `failed`: the client says of this result that its call went wrong.
    """

    role: str
    wire: bytes
    identity: str
    text: str = ""
    calls: tuple[Call, ...] = ()
    answers: str = ""
    tokens: int = 0
    failed: bool = False

    @property
    def memory_bytes(self) -> int:
        """Bytes it takes in memory, about; always the same for the same message."""
        told = MESSAGE_BYTES + len(self.wire) + _text_bytes(self.text)
        return told + sum(CALL_BYTES + _text_bytes(c.arguments) for c in self.calls) if self.calls else told


def _text_bytes(text: str) -> int:
    return len(text) if text.isascii() else NON_ASCII_CHARACTER_BYTES * len(text)


class RequestSlice(msgspec.Struct, frozen=True, gc=False):
    """A piece of a client's request as it wrote it, and the messages it was read as, in order. `weighed`: their tokens
    are counted. `digest` is the sha256 of `raw`, empty where nobody has asked for it."""

    raw: bytes
    messages: tuple[Message, ...]
    has_token_counts: bool
    digest: bytes = b""


class Request(msgspec.Struct, frozen=True, dict=True):
    """A completion request of a client, taken apart without losing a byte.

    `head` are the system and developer messages before the first other one; `messages` the rest, in order: together
    what `sources` were read as. `fields` are the top-level members as raw bytes, in the client's order; `offered` is
    what of them says which tools there are.
    """

    body: bytes
    fields: Mapping[str, bytes]
    model: str
    stream: bool
    wants_usage: bool
    head: tuple[Message, ...]
    messages: tuple[Message, ...]
    tool_names: tuple[str, ...]
    tools_tokens: int
    tool_choice: str
    """auto, none, required, or forced (one tool by name)."""
    wants_structured_output: bool
    """A response format other than text is asked for."""
    choice_count: int
    """`n`: how many answers are to be made."""
    system_hash: str
    slices: tuple[RequestSlice, ...] = ()
    raw_tools: bytes = b""
    rejects_own_tools: bool = False
    """Its tools are offered in a form beside which the API takes no tool of ours."""

    @cached_property
    def tokens(self) -> int:
        """As every receipt counts: message contents without reasoning, call names and arguments, and the tool array
        as JSON."""
        said: int = sum(map(attrgetter("tokens"), (*self.head, *self.messages)))
        return said + self.tools_tokens

    @property
    def digest(self) -> str:
        """sha256 of what is asked, as the client wrote it: equal digests are an identical retry. It may want its
        answer in the other way: clients whose stream broke off ask for the same unstreamed (CLIENTS 8)."""
        asked = sha256()
        for name, raw in self.fields.items():
            if name not in DELIVERY_FIELDS:
                asked.update(f"\0{name}\0".encode())
                asked.update(raw)
        return asked.hexdigest()

    @property
    def tools_hash(self) -> str:
        """Of the tools that stand in the prefix, as the client wrote them; empty where it offers none. A deferred tool
        is in none until a message brings it."""
        return digest_of_tools(without_deferred_tools(self.raw_tools)).hex()[:32] if self.raw_tools else ""


@memoize(REMEMBERED_TOOL_ARRAYS, MAX_REMEMBERED_TOOLS_BYTES)
def digest_of_tools(offered: bytes) -> bytes:
    """sha256 of what a request offers. An agent offers the same with every request, and to tell that it is the same
    takes a fourth of hashing it."""
    return sha256(offered).digest()


DEFERRED = b'"defer_loading"'


class _DeferrableTool(msgspec.Struct):
    defer_loading: bool = False


_RAW_ARRAY_DECODER = msgspec.json.Decoder(list[msgspec.Raw])
_DEFERRABLE_TOOL_DECODER = msgspec.json.Decoder(_DeferrableTool)


@memoize(REMEMBERED_TOOL_ARRAYS, MAX_REMEMBERED_TOOLS_BYTES)
def without_deferred_tools(offered: bytes) -> bytes:
    """An array of tools without those that the provider loads when they are asked for; what is none stays as it is."""
    if DEFERRED not in offered:
        return offered
    try:
        tools = [bytes(tool) for tool in _RAW_ARRAY_DECODER.decode(offered)]
        return b",".join(t for t in tools if DEFERRED not in t or not _DEFERRABLE_TOOL_DECODER.decode(t).defer_loading)
    except (msgspec.DecodeError, RecursionError):
        return offered


class Usage(msgspec.Struct, frozen=True, gc=False):
    """What the provider reported for one round, in tokens, normalised: `input` counts cached and written tokens too
    (C13)."""

    input: int = 0
    output: int = 0
    cached: int = 0
    written: int = 0
    written_long: int = 0
    """Of `written`, what is kept for an hour."""


REFUSED_CALLS_KEY = "refused_calls"
"""The member of `Spoken.extra` with the ids of calls that look like the client's and were kept from it, a JSON array.
"""


class ModelResponse(msgspec.Struct, frozen=True, gc=False):
    """One upstream round as it was produced: the whole assistant message and how it ended."""

    message: Message
    """Complete, unknown fields kept; `wire` is what a later request carries."""
    finish: str = ""
    """The provider's own word, empty when the stream broke off."""
    usage: Usage | None = None
    model: str = ""
    complete: bool = True
    """False when the upstream died or the client left before the end."""
    hidden_truncated: bool = False
    """A stack call was cut off by the output limit and has been dropped from `message`."""
    extra: Mapping[str, bytes] = msgspec.field(default_factory=dict)

    @property
    def memory_bytes(self) -> int:
        """Bytes it takes in memory, about."""
        said = RESPONSE_BYTES + self.message.memory_bytes
        return said + sum(map(len, self.extra.values())) if self.extra else said

    @property
    def own_calls(self) -> tuple[Call, ...]:
        """Those that are answered here: of our tools, and what was kept from the client."""
        if not self.message.calls:
            return ()
        refused = self.refused_call_ids
        return tuple(c for c in self.message.calls if c.is_stack_call or c.id in refused)

    @property
    def client_calls(self) -> tuple[Call, ...]:
        if not self.message.calls:
            return ()
        refused = self.refused_call_ids
        return tuple(c for c in self.message.calls if not c.is_stack_call and c.id not in refused)

    @property
    def visible_message(self) -> Message:
        """The message, whose `calls` do not name what was kept from the client; its bytes still have it."""
        if not self.message.calls or not (kept := self.refused_call_ids):
            return self.message
        return replace(self.message, calls=tuple(c for c in self.message.calls if c.id not in kept))

    @property
    def refused_call_ids(self) -> frozenset[str]:
        """Ids of calls of the client's tools that were answered here because they run in a loop."""
        told = self.extra.get(REFUSED_CALLS_KEY)
        return frozenset(msgspec.json.decode(told, type=list[str])) if told else frozenset()


def canonical_arguments(arguments: str) -> str:
    """Arguments without their spelling: keys sorted, white space gone. What is not JSON stands for itself."""
    try:
        return msgspec.json.encode(msgspec.json.decode(arguments), order="sorted").decode()
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError, UnicodeError):
        return arguments.strip()


_JSON_ENCODER = json.JSONEncoder(separators=(",", ":"))
DELETE = b"\x7f"


def identity_of(role: str, text: str, calls: tuple[Call, ...] = (), answers: str = "") -> str:
    """The identity of a message by its canonical content: 16 bytes of sha256 as hex.

    Null, empty and absent content are one; how arguments were serialised does not count; white space around the text
    neither.
    """
    said = [role, text.strip(), [[c.id, c.name, canonical_arguments(c.arguments)] for c in calls], answers]
    return sha256(_encode_canonical(said)).hexdigest()[:32]


def _encode_canonical(said: Sequence[object]) -> bytes:
    """As `_WRITER` writes it. The fast writer writes the same where nothing but ASCII is in it (DEL apart), in a fifth
    of the time: a message may have 60 MiB."""
    try:
        fast = msgspec.json.encode(said)
    except UnicodeError:
        fast = DELETE  # half a surrogate pair
    return fast if fast.isascii() and DELETE not in fast else _JSON_ENCODER.encode(said).encode()
