"""Chat completions, the client's side: a request taken apart, and written again for the upstream.

The law: **bytes in, the same bytes out**. A body is an envelope of raw members; a message is read once, when its bytes
are first seen, and from then on known by their hash. What is rendered is spliced from slices the client sent and
messages as they were produced, so white space, unknown members and numbers no parser keeps survive, and the same
request is always the same bytes.

What this module does not do: it counts no tokens (the caller does, `countables` and `weighed`) and reads no answers
(`chat_answer`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import takewhile
from typing import Any

import msgspec

from proxy.dialects import slices
from proxy.dialects.chat_message import HEAD_ROLES, countable, read_message, system_message, with_text
from proxy.stack.transcript import Message, Request

Body = tuple[bytes, ...]
"""A body in pieces; joined they are what is sent. Every message is a piece of its own."""

KNOWN_MESSAGES = 65_536
KNOWN_BYTES = 64 * 1024 * 1024


class Unreadable(ValueError):
    """The body cannot be taken apart, which says nothing about whether the provider takes it: pass it on as it is."""


# -------------------------------------------------------------------------------------------------------------- known
@dataclass(frozen=True, slots=True)
class _Seen:
    message: Message
    weighed: bool


@dataclass(frozen=True, slots=True)
class _Tools:
    names: tuple[str, ...]
    tokens: int


class Known:
    """Messages that were read before, by the hash of their bytes: bounded, least recently used goes first.

    The cache may forget anything at any time; then a message is read and counted again.
    """

    def __init__(self, messages: int = KNOWN_MESSAGES, size: int = KNOWN_BYTES) -> None:
        self._bounds = (messages, size)
        self._seen: OrderedDict[bytes, _Seen] = OrderedDict()
        self._tools: OrderedDict[bytes, _Tools] = OrderedDict()
        self._lately: OrderedDict[tuple[bytes, ...], tuple[_Seen, ...]] = OrderedDict()
        self.size = 0
        """Bytes held, about: wire and text of every message."""

    def __len__(self) -> int:
        return len(self._seen)

    def find(self, key: bytes) -> _Seen | None:
        found = self._seen.get(key)
        if found:
            self._seen.move_to_end(key)
        return found

    def keep(self, key: bytes, seen: _Seen) -> None:
        if old := self._seen.pop(key, None):
            self.size -= _size(old.message)
        self._seen[key] = seen
        self.size += _size(seen.message)
        messages, size = self._bounds
        while self._seen and (len(self._seen) > messages or self.size > size):
            _, gone = self._seen.popitem(last=False)
            self.size -= _size(gone.message)

    def before(self, opening: tuple[bytes, ...]) -> tuple[_Seen, ...]:
        """The messages of the newest request that opened like this."""
        return self._lately.get(opening, ())

    def keep_order(self, opening: tuple[bytes, ...], seen: tuple[_Seen, ...]) -> None:
        self._lately[opening] = seen
        self._lately.move_to_end(opening)
        if len(self._lately) > KNOWN_ORDERS:
            self._lately.popitem(last=False)

    def find_tools(self, key: bytes) -> _Tools | None:
        return self._tools.get(key)

    def keep_tools(self, key: bytes, tools: _Tools) -> None:
        self._tools[key] = tools
        self._tools.move_to_end(key)
        if len(self._tools) > KNOWN_TOOLS:
            self._tools.popitem(last=False)


KNOWN_ORDERS = 32
"""Requests of which is remembered how their messages stood."""
OPENING = 256
"""Bytes of each of the first two messages by which the request before is looked for."""
KNOWN_TOOLS = 1024
"""Tool arrays kept by their names and tokens."""
ENTRY = 400
"""Bytes a known message costs beside its wire and its text."""


def _size(message: Message) -> int:
    return len(message.wire) + len(message.text) + ENTRY


# --------------------------------------------------------------------------------------------------------------- read
def read(body: bytes, known: Known) -> Request:
    """The request in `body`. Raises Unreadable."""
    try:
        fields = slices.members(body)
        wires = slices.items(fields.get("messages", b""))
        seen = _all_seen(wires, known)
    except slices.NotSliced as refused:
        raise Unreadable(str(refused)) from refused
    model = _value(fields, "model")
    if not isinstance(model, str) or not seen:
        raise Unreadable("a model and at least one message")
    messages = tuple(s.message for s in seen)
    head = tuple(takewhile(lambda m: m.role in HEAD_ROLES, messages))
    tools = _tools(fields, known)
    stream, answers = _value(fields, "stream") is True, _value(fields, "n")
    return Request(
        body,
        fields,
        model,
        stream,
        stream and _includes_usage(fields),
        head,
        messages[len(head) :],
        tools.names,
        tools.tokens,
        _choice(fields),
        _structured(fields),
        answers if isinstance(answers, int) else 1,
        sha256("\n".join(m.text.strip() for m in head).encode()).hexdigest()[:32],
        tuple(at for at, s in enumerate(seen) if not s.weighed),
    )


def _all_seen(wires: Sequence[bytes], known: Known) -> list[_Seen]:
    """Clients resend everything: what stands as it stood in the request before is told by comparing the bytes, a tenth
    of the cost of their hashes. The rest is looked up by hash."""
    opening = tuple(wire[:OPENING] for wire in wires[:2])
    before = known.before(opening)
    pairs = zip(wires, before, strict=False)
    seen = [s for _, s in takewhile(lambda pair: pair[0] == pair[1].message.wire, pairs)]
    seen += [_seen(wire, known) for wire in wires[len(seen) :]]
    known.keep_order(opening, tuple(takewhile(lambda s: s.weighed, seen)))
    return seen


def _seen(wire: bytes, known: Known) -> _Seen:
    key = sha256(wire).digest()
    if found := known.find(key):
        return found
    fresh = _Seen(read_message(wire), weighed=False)
    known.keep(key, fresh)
    return fresh


def _value(fields: Mapping[str, bytes], name: str) -> Any:
    """A small member, read; None when it is absent or no parser takes it."""
    try:
        return slices.value(fields[name]) if name in fields else None
    except slices.NotSliced:
        return None


def _includes_usage(fields: Mapping[str, bytes]) -> bool:
    options = _value(fields, "stream_options")
    return isinstance(options, dict) and options.get("include_usage") is True


def _structured(fields: Mapping[str, bytes]) -> bool:
    asked = _value(fields, "response_format")
    return isinstance(asked, dict) and asked.get("type") not in (None, "text")


def _choice(fields: Mapping[str, bytes]) -> str:
    asked = _value(fields, "tool_choice") or _value(fields, "function_call") or "auto"
    if isinstance(asked, dict):
        allowed = asked.get("allowed_tools")
        asked = allowed.get("mode") if asked.get("type") == "allowed_tools" and isinstance(allowed, dict) else "forced"
    if asked == "any":
        return "required"
    return asked if asked in ("auto", "none", "required") else "forced"


def _tools(fields: Mapping[str, bytes], known: Known) -> _Tools:
    raw = _offered(fields)
    if not raw:
        return _Tools((), 0)
    if found := known.find_tools(sha256(raw).digest()):
        return found
    listed = [*_list(fields, "tools"), *_list(fields, "functions")]
    return _Tools(tuple(name for tool in listed if (name := _tool_name(tool))), 0)


def _offered(fields: Mapping[str, bytes]) -> bytes:
    """The tool arrays as the client wrote them; nothing when none is offered."""
    arrays = [fields[name].strip() for name in ("tools", "functions") if name in fields]
    return b"".join(a for a in arrays if a.startswith(b"[") and a.strip(b"[] \t\r\n"))


def _list(fields: Mapping[str, bytes], name: str) -> list[Any]:
    found = _value(fields, name)
    return found if isinstance(found, list) else []


def _tool_name(tool: object) -> str:
    """The name of a tool; of one that runs at the provider, its type."""
    if not isinstance(tool, dict):
        return ""
    inner = next((tool[shape] for shape in ("function", "custom") if isinstance(tool.get(shape), dict)), tool)
    name = inner.get("name") or tool.get("type")
    return name if isinstance(name, str) else ""


# ------------------------------------------------------------------------------------------------------------- weigh
def countables(request: Request) -> list[str]:
    """The texts whose tokens are wanted: of every unseen message in order, then the tool array if it is new."""
    messages = (*request.head, *request.messages)
    texts = [countable(messages[at]) for at in request.unseen]
    if request.tool_names and not request.tools_tokens:
        texts.append(slices.mended(_offered(request.fields).decode("utf-8", "replace")))
    return texts


def weighed(request: Request, counts: Sequence[int], known: Known) -> Request:
    """`request` with the tokens of `countables(request)` filled in and remembered."""
    messages = [*request.head, *request.messages]
    for at, tokens in zip(request.unseen, counts, strict=False):
        messages[at] = replace(messages[at], tokens=tokens)
        known.keep(sha256(messages[at].wire).digest(), _Seen(messages[at], weighed=True))
    tools = request.tools_tokens
    if request.tool_names and not tools:
        tools = counts[-1]
        known.keep_tools(sha256(_offered(request.fields)).digest(), _Tools(request.tool_names, tools))
    first = len(request.head)
    return replace(
        request, head=tuple(messages[:first]), messages=tuple(messages[first:]), tools_tokens=tools, unseen=()
    )


# ------------------------------------------------------------------------------------------------------------- render
@dataclass(frozen=True, slots=True)
class Wanted:
    """What of the envelope differs from the client's."""

    extra_tools: bytes = b""
    """A JSON array of tools of ours, put behind the client's; empty for none."""
    include_usage: bool = True
    """Ask for usage at the end of a stream."""
    tool_choice_none: bool = False
    """The last round of a turn: no more calls, arrays unchanged."""


def render(request: Request, line: Sequence[bytes], head: Sequence[bytes], wanted: Wanted) -> Body:
    """The body of an upstream request: the client's members in its order, with head and line as the messages."""
    fields = dict(request.fields)
    if wanted.extra_tools not in (b"", b"[]"):
        _offer(fields, wanted.extra_tools)
    if wanted.include_usage and request.stream and not request.wants_usage:
        _set(fields, "stream_options", b"include_usage", b"true")
    if wanted.tool_choice_none:
        fields["tool_choice"] = b'"none"'
        if "function_call" in fields:
            fields["function_call"] = b'"none"'
    pieces: list[bytes] = []
    glue = b"{"
    for name, raw in fields.items():
        glue += slices.encoded(name) + b":"
        if name == "messages":
            pieces += [glue + b"[", *_with_commas([*head, *line])]
            glue = b"],"
        else:
            glue += raw + b","
    return (*pieces, glue[:-1] + b"}")


def _offer(fields: dict[str, bytes], extra: bytes) -> None:
    """Our tools behind the client's, or, when it offers none, an array of ours behind the messages."""
    offered = fields.get("tools", b"").strip()
    inner = offered[1:-1].rstrip() if offered.startswith(b"[") else b""
    if inner.strip():
        fields["tools"] = b"[" + inner + b"," + extra[1:]
    elif "tools" in fields:
        fields["tools"] = extra
    else:
        rest = list(fields.items())
        fields.clear()
        for name, raw in rest:
            fields[name] = raw
            if name == "messages":
                fields["tools"] = extra


def _set(fields: dict[str, bytes], name: str, member: bytes, raw: bytes) -> None:
    """Set one member of an object, which is created behind all others when there is none."""
    try:
        inner = slices.members(fields[name]) if name in fields else {}
    except slices.NotSliced:
        inner = {}
    fields[name] = slices.object_of(inner | {member.decode(): raw})


def _with_commas(wires: Sequence[bytes]) -> list[bytes]:
    pieces = [b","] * max(0, len(wires) * 2 - 1)
    pieces[::2] = wires
    return pieces


def client_body(request: Request) -> Body:
    """The client's own body, cut at the borders of its messages."""
    body, pieces = request.body, []
    at, border = 0, _found(body, request.fields["messages"]) + 1
    for message in (*request.head, *request.messages):
        while body[border] in GLUE:
            border += 1
        pieces += [body[at:border], message.wire]
        at = border = border + len(message.wire)
    return (*pieces, body[at:])


GLUE = b" \t\r\n,"
"""What may stand between two items of an array."""


def _found(body: bytes, slice_: bytes) -> int:
    """Where `slice_` stands. By its beginning: looking for something that long costs more than reading it."""
    start = slice_[:BEGINNING]
    at = body.find(start)
    while not body.startswith(slice_, at):
        at = body.find(start, at + 1)
    return at


BEGINNING = 48
"""Bytes by which a slice is looked for."""


def extended_head(request: Request, suffix: str) -> tuple[bytes, ...]:
    """The system messages at the head with `suffix` at the end of the last one's text; a system message of ours where
    the client sends none. Nothing to say changes nothing."""
    wires = [m.wire for m in request.head]
    if not suffix:
        return tuple(wires)
    if not wires:
        return (system_message(suffix).wire,)
    return (*wires[:-1], with_text(wires[-1], suffix))


def tools_json(definitions: Sequence[Mapping[str, Any]]) -> bytes:
    """The array of tools of ours, each with name, description and parameters: constant bytes for constant tools."""
    return msgspec.json.encode([{"type": "function", "function": definition} for definition in definitions])
