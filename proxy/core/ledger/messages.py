"""Calls, messages, requests and answers as values.

A client's message is opaque: the core selects and inserts messages and never edits one. Nothing in the core reads
`Message.wire`, so fields that we do not know survive. `proxy.dialects` converts between bytes and these values. They
cannot form cycles, so the garbage collector skips them (`gc=False`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from operator import attrgetter

import msgspec
from msgspec.structs import replace

from proxy.core.memo import memoize

REMEMBERED_TOOL_ARRAYS = 64
"""Cached digests of tool arrays."""
MAX_REMEMBERED_TOOLS_BYTES = 256 * 1024
"""Longest tool array whose digest is cached; an agent's tools take about a fifth of that."""
MESSAGE_BYTES = 290
CALL_BYTES = 270
RESPONSE_BYTES = 500
"""Estimated memory of a message, a call and a response, without their long strings."""
NON_ASCII_CHARACTER_BYTES = 3
"""Memory of a character in a text that is not ASCII: mostly two bytes, and two more for the UTF-8 form that the
interpreter caches."""
INSTRUCTION_ROLES = ("system", "developer")
"""Roles of messages that instruct the model."""
DELIVERY_FIELDS = frozenset({"stream", "stream_options"})
"""Request fields that say how the answer is delivered; they do not change the question."""
STACK_PREFIX = "stack_"
"""Prefix of all our tools, except the dispatcher `stack`."""


NAMESPACE_PREFIXES = ("functions.", "functions:", "default_api.", "default_api:")
"""What some models put before the name of a tool: the namespace in which their prompt template lists all tools
(GPT-5 and gpt-oss, Gemini)."""
PARALLEL_TOOL = "multi_tool_use.parallel"
"""A tool that nobody offers and that models of OpenAI call at times: its arguments hold the calls that are meant."""
BARE_RECALL = "recall"
"""What models call `stack_recall` at times. It is the client's where that has a tool of this name."""


_OURS_AMONG_MARKS = re.compile(
    r"\s*(?:(?:functions?|tools?|default_api|commentary)(?:\.|::?|/))?(stack(?:_\w*)?)(?:(?:\s|:\d|<\|).*)?", re.DOTALL
)
"""A name of ours in a namespace of prompt templates, with their marks behind it: gpt-oss `<|channel|>`, Kimi `:0`."""


def without_namespace(name: str) -> str:
    """The name of the tool that is meant."""
    if "stack" in name and (ours := _OURS_AMONG_MARKS.fullmatch(name)):
        return ours[1]
    if name.startswith(NAMESPACE_PREFIXES):
        return next(name[len(prefix) :] for prefix in NAMESPACE_PREFIXES if name.startswith(prefix))
    return name


def is_stack_tool(name: str) -> bool:
    """Whether the proxy answers a call of this tool and hides it from the client."""
    bare = without_namespace(name)
    return bare == "stack" or bare.startswith(STACK_PREFIX)


class Call(msgspec.Struct, frozen=True, gc=False):
    """A tool call as produced; `arguments` may be invalid JSON."""

    id: str
    name: str
    arguments: str

    @property
    def is_stack_call(self) -> bool:
        return is_stack_tool(self.name)


class LoadedTool(msgspec.Struct, frozen=True, gc=False):
    """A tool that a tool search loaded. `is_counted`: the message holds the definition, and its tokens count it; else
    the definition stands among the deferred tools of the request, and the provider expands it where it was loaded."""

    name: str
    is_counted: bool = False


class Message(msgspec.Struct, frozen=True, gc=False):
    """One message of a conversation.

    `wire` is one message or item of the dialect, or several as an array that is inserted without its brackets.
    `identity` is a hash of the canonical content (16 bytes, hex), equal for all forms in which a client may echo the
    message. `answers` is the id of the call that this is the result of, or empty. `tokens` counts contents, call names
    and arguments, without reasoning. `failed`: the client marks this result as an error. `loaded_tools` may be called
    only as long as this message is in the context. `links` are ids that an assistant's message may not be parted from,
    beside those of `calls`."""

    role: str
    wire: bytes
    identity: str
    text: str = ""
    calls: tuple[Call, ...] = ()
    answers: str = ""
    tokens: int = 0
    failed: bool = False
    loaded_tools: tuple[LoadedTool, ...] = ()
    links: tuple[str, ...] = ()

    @property
    def is_result(self) -> bool:
        """Whether it is the result of a call, also of one that came without an id."""
        return bool(self.answers) or self.role == "tool"

    @property
    def memory_bytes(self) -> int:
        """Estimated bytes in memory, always the same for the same message."""
        size = MESSAGE_BYTES + len(self.wire) + _text_bytes(self.text)
        for call in self.calls:
            size += CALL_BYTES + _text_bytes(call.arguments)
        return size


def _text_bytes(text: str) -> int:
    return len(text) if text.isascii() else NON_ASCII_CHARACTER_BYTES * len(text)


class RequestSlice(msgspec.Struct, frozen=True, gc=False):
    """A part of a client's request as received, and the messages that it holds, in order. `digest` is the sha256 of
    `raw`, or empty if not computed. `has_marker_key`: the key of cache markers stands in `raw`, in a marker or not."""

    raw: bytes
    messages: tuple[Message, ...]
    has_token_counts: bool
    digest: bytes = b""
    has_marker_key: bool = False


class Request(msgspec.Struct, frozen=True, dict=True):
    """A client's completion request, parsed without losing a byte.

    `head` are the system and developer messages before the first other one, `messages` the rest, in order; `slices` are
    their bytes. `fields` are the top-level members as raw bytes, in the client's order; `raw_tools` is the tool array.
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
    """The client asks for a response format other than text."""
    choice_count: int
    """`n`: how many answers the client asks for."""
    system_hash: str
    slices: tuple[RequestSlice, ...] = ()
    raw_tools: bytes = b""
    rejects_own_tools: bool = False
    """The request offers tools in a form with which the API accepts none of ours."""
    wants_json_object: bool = False
    """The client asks for an object of no schema, as for a single answer that is not part of the work."""
    deferred_tools: Mapping[str, int] = msgspec.field(default_factory=dict)
    """Tokens of the tools that are in the prompt only where a message loads them, by name. `tools_tokens` are those of
    the others."""

    @cached_property
    def tokens(self) -> int:
        """As in receipts: message contents without reasoning, call names and arguments, and the tools as JSON; of
        deferred tools only those that a message loads."""
        message_tokens: int = sum(map(attrgetter("tokens"), (*self.head, *self.messages)))
        return message_tokens + self.tools_tokens + self.loaded_tokens(self.messages)

    @property
    def fixed_tokens(self) -> int:
        """Of the head and of the tools that stand before the messages."""
        return sum([message.tokens for message in self.head]) + self.tools_tokens

    def loaded_tokens(self, messages: Iterable[Message]) -> int:
        """Tokens of the deferred tools that these messages load, beyond the tokens of the messages."""
        return sum(self.loaded_tokens_by_message(messages).values()) if self.deferred_tools else 0

    def loaded_tokens_by_message(self, messages: Iterable[Message]) -> dict[int, int]:
        """The same by position, each tool where it is loaded first; messages that load nothing are left out."""
        found: dict[int, int] = {}
        known: set[str] = set()
        for position, message in enumerate(messages if self.deferred_tools else ()):
            if message.loaded_tools:
                names = {tool.name for tool in message.loaded_tools if not tool.is_counted} - known
                found[position] = sum(self.deferred_tools.get(name, 0) for name in names)
                known |= names
        return found

    @cached_property
    def digest(self) -> str:
        """sha256 of the request as written: equal digests are an identical retry. How the answer is delivered does not
        count: after a broken stream clients retry the request unstreamed (CLIENTS 8)."""
        digest = sha256()
        for name, raw in self.fields.items():
            if name not in DELIVERY_FIELDS:
                digest.update(f"\0{name}\0".encode())
                digest.update(raw)
        return digest.hexdigest()

    @property
    def tools_hash(self) -> str:
        """Hash of the tools in the prompt prefix, as written; empty if there are none. A deferred tool is not in the
        prefix until a message loads it."""
        return digest_of_tools(without_deferred_tools(self.raw_tools)).hex()[:32] if self.raw_tools else ""


@memoize(REMEMBERED_TOOL_ARRAYS, MAX_REMEMBERED_TOOLS_BYTES)
def digest_of_tools(offered: bytes) -> bytes:
    """sha256 of a tool array. Cached, because an agent sends the same tools with every request."""
    return sha256(offered).digest()


DEFERRED = b'"defer_loading"'


class _OfferedTool(msgspec.Struct):
    name: str = ""
    function: msgspec.Raw = msgspec.Raw(b"{}")
    tools: msgspec.Raw = msgspec.Raw(b"[]")
    """Those of a namespace."""
    defer_loading: bool = False


_RAW_ARRAY_DECODER = msgspec.json.Decoder(list[msgspec.Raw])
_OFFERED_TOOL_DECODER = msgspec.json.Decoder(_OfferedTool)
_DECODE_ERRORS = (msgspec.DecodeError, RecursionError, UnicodeError)


@memoize(REMEMBERED_TOOL_ARRAYS, MAX_REMEMBERED_TOOLS_BYTES)
def without_deferred_tools(offered: bytes) -> bytes:
    """A tool array without the tools that the provider loads on demand, also inside a namespace; unreadable input is
    returned unchanged."""
    if DEFERRED not in offered:
        return offered
    try:
        return b",".join(filter(None, map(_without_deferred, _RAW_ARRAY_DECODER.decode(offered))))
    except _DECODE_ERRORS:
        return offered


def _without_deferred(raw: msgspec.Raw) -> bytes:
    tool = bytes(raw)
    if DEFERRED not in tool:
        return tool
    offered = _OFFERED_TOOL_DECODER.decode(tool)
    if offered.defer_loading:
        return b""
    for inner in _RAW_ARRAY_DECODER.decode(offered.tools):
        tool = tool.replace(inner, b"", 1) if not _without_deferred(inner) else tool
    return tool


@memoize(REMEMBERED_TOOL_ARRAYS, MAX_REMEMBERED_TOOLS_BYTES)
def deferred_tools_in(offered: bytes) -> Mapping[str, bytes]:
    """The definitions of the tools that `without_deferred_tools` leaves out, by name; one of a namespace has that of
    the namespace in front of its own."""
    if DEFERRED not in offered:
        return {}
    try:
        return dict(_deferred_definitions(_RAW_ARRAY_DECODER.decode(offered), ""))
    except _DECODE_ERRORS:
        return {}


def _deferred_definitions(tools: Sequence[msgspec.Raw], namespace: str) -> Iterator[tuple[str, bytes]]:
    for raw in tools:
        if DEFERRED in bytes(raw):
            tool = _OFFERED_TOOL_DECODER.decode(raw)
            name = name_in_namespace(namespace, tool.name or _OFFERED_TOOL_DECODER.decode(tool.function).name)
            if tool.defer_loading:
                yield name, bytes(raw)
            yield from _deferred_definitions(_RAW_ARRAY_DECODER.decode(tool.tools), name)


def name_in_namespace(namespace: str, name: str) -> str:
    return f"{namespace}.{name}" if namespace else name


class Usage(msgspec.Struct, frozen=True, gc=False):
    """The provider's token counts for one round, normalised: `input` includes cached and written tokens (C13)."""

    input: int = 0
    output: int = 0
    cached: int = 0
    written: int = 0
    written_long: int = 0
    """The part of `written` that is cached for an hour."""


REFUSED_CALLS_KEY = "refused_calls"
"""Key of `ModelResponse.extra`: ids of client calls that the proxy answered itself (JSON array)."""
UNSHOWN_TEXT_KEY = "unshown_text"
"""Key of `ModelResponse.extra`: present if the client was not shown the text of the round."""


class ModelResponse(msgspec.Struct, frozen=True, gc=False):
    """One upstream response as produced: the whole assistant message and how it ended."""

    message: Message
    """Complete, with unknown fields; later requests carry its `wire`."""
    finish: str = ""
    """The provider's finish reason; empty if the stream broke off."""
    usage: Usage | None = None
    model: str = ""
    complete: bool = True
    """False if the upstream failed or the client left before the end."""
    hidden_truncated: bool = False
    """The output limit cut off a stack call, which was dropped from `message`."""
    extra: Mapping[str, bytes] = msgspec.field(default_factory=dict)

    @property
    def memory_bytes(self) -> int:
        """Estimated bytes in memory."""
        size = RESPONSE_BYTES + self.message.memory_bytes
        return size + sum(map(len, self.extra.values())) if self.extra else size

    @property
    def proxy_calls(self) -> tuple[Call, ...]:
        """Calls that the proxy answers: of our tools, and refused ones."""
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
    def visible_text(self) -> str:
        return "" if UNSHOWN_TEXT_KEY in self.extra else self.message.text

    @property
    def visible_message(self) -> Message:
        """The message without refused calls in `calls` and unshown text in `text`; its bytes still hold both."""
        message = replace(self.message, text="") if UNSHOWN_TEXT_KEY in self.extra else self.message
        if not message.calls or not (refused := self.refused_call_ids):
            return message
        return replace(message, calls=tuple(c for c in message.calls if c.id not in refused))

    @property
    def refused_call_ids(self) -> frozenset[str]:
        """Ids of calls of client tools that the proxy answered itself because they run in a loop."""
        raw = self.extra.get(REFUSED_CALLS_KEY)
        return frozenset(msgspec.json.decode(raw, type=list[str])) if raw else frozenset()


def canonical_arguments(arguments: str) -> str:
    """Arguments with sorted keys and without white space; text that is not JSON is only stripped."""
    try:
        return msgspec.json.encode(msgspec.json.decode(arguments), order="sorted").decode()
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError, UnicodeError):
        return arguments.strip()


_JSON_ENCODER = json.JSONEncoder(separators=(",", ":"))
DELETE = b"\x7f"


def identity_of(role: str, text: str, calls: tuple[Call, ...] = (), answers: str = "") -> str:
    """Hash of a message's canonical content: 16 bytes of sha256 as hex. Null, empty and absent content are equal; the
    serialisation of arguments and surrounding white space do not count."""
    content = [role, text.strip(), [[c.id, c.name, canonical_arguments(c.arguments)] for c in calls], answers]
    return sha256(_encode_canonical(content)).hexdigest()[:32]


def _encode_canonical(content: Sequence[object]) -> bytes:
    """The bytes of `_JSON_ENCODER`. msgspec writes the same for ASCII without DEL in a fifth of the time, which matters
    for messages of up to 60 MiB."""
    try:
        fast = msgspec.json.encode(content)
    except UnicodeError:
        fast = DELETE  # half a surrogate pair
    return fast if fast.isascii() and DELETE not in fast else _JSON_ENCODER.encode(content).encode()
