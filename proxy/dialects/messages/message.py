"""Parses messages of the messages API, and writes messages of ours.

A user message with tool results is split: each result is a message, and so is each stretch of other blocks. They are
joined again when a request is rendered. A string equals one text block; cache markers, thinking, citations and unknown
members do not count for identity. The bytes stay, less the cache markers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import groupby
from typing import Any

from msgspec.structs import replace

from proxy.core.ledger import ROUND_SEPARATOR, Call, Message, identity_of
from proxy.dialects import raw_json
from proxy.dialects.chat.message import join_contents, joined_message, text_of
from proxy.dialects.links import SERVER_CALLS, links_of
from proxy.dialects.messages.cache_control import split_markers
from proxy.dialects.tool_references import loaded_tools

REASONING = ("thinking", "redacted_thinking")
TOOL_USE, TOOL_RESULT, TEXT = "tool_use", "tool_result", "text"
IS_ERROR = "is_error"
COMPACTION = "compaction"
"""A block that stands for all before it; the API reads nothing that stands in front of one."""
TYPES_WITHOUT_TEXT = (*REASONING, TOOL_USE)
"""Kinds of blocks that are no part of a message's text."""
EMPTY_RUN = b"[]"
"""A run without a block: in a context, but not in a request."""
ENVELOPE = {"role", "content"}
"""The members of a message that can be taken apart."""


# --------------------------------------------------------------------------------------------------------------- read
def read_message(raw: bytes) -> Message:
    """The message in one that is not taken apart, as none of an assistant is."""
    (message,) = messages_in(raw)
    return message


def messages_in(raw: bytes) -> tuple[Message, ...]:
    """The messages in one of the client's, in order. Raises JsonSplitError when it is no object with a role, or holds
    results beside members of its own, which would be lost."""
    fields = raw_json.members(raw)
    role = raw_json.parse(fields.get("role", b"null"))
    if not isinstance(role, str):
        raise raw_json.JsonSplitError("a message is an object with a role")
    content = fields.get("content", b"null")
    if not content.startswith(b"["):
        text = _text_of_block(_parse_block(content))
        return (Message(role, raw, identity_of(role, text), text),)
    came = raw_json.items(content)
    blocks = [split_markers(block)[0] for block in came]
    said = [_parse_block(block) for block in blocks]
    if role == "user" and any(type_of(block) == TOOL_RESULT for block in said):
        if not fields.keys() <= ENVELOPE:
            raise raw_json.JsonSplitError("a message of results has members of its own")
        return _split_by_results(blocks, said)
    unmarked = all(block is before for block, before in zip(blocks, came, strict=True))
    wire = raw if unmarked else raw_json.join_object({**fields, "content": raw_json.join_array(blocks)})
    return (_message_of_blocks(role, wire, blocks, said),)


def read_system(raw: bytes) -> Message:
    """The top-level system text, a string or blocks, as it is: its cache markers stay where they are."""
    said = [_parse_block(item) for item in raw_json.items(raw)] if raw.startswith(b"[") else [_parse_block(raw)]
    text = _text_of_blocks(said)
    return Message("system", raw, identity_of("system", text), text)


def _split_by_results(blocks: Sequence[bytes], said: Sequence[Any]) -> tuple[Message, ...]:
    """A message for each result and for each stretch of other blocks."""
    found: list[Message] = []
    pairs = zip(blocks, said, strict=True)
    for is_result, stretch in groupby(pairs, key=lambda pair: type_of(pair[1]) == TOOL_RESULT):
        run = list(stretch)
        if is_result:
            found += [_result_message(block, told) for block, told in run]
        else:
            own = [block for block, _ in run]
            found.append(_message_of_blocks("user", raw_json.join_array(own), own, [told for _, told in run]))
    return tuple(found)


def _result_message(block: bytes, said: dict[str, Any]) -> Message:
    answers, content = said.get("tool_use_id"), said.get("content")
    answers = answers if isinstance(answers, str) else ""
    text = _text_of_blocks(content) if isinstance(content, list) else _text_of_block(content)
    identity, wire = identity_of("tool", text, (), answers), raw_json.join_array([block])
    failed = said.get(IS_ERROR) is True
    return Message("tool", wire, identity, text, (), answers, failed=failed, loaded_tools=loaded_tools(wire))


def is_failed_result(wire: bytes) -> bool:
    """Whether this is the run of a result that says of its call that it went wrong; of any other bytes it is not."""
    if b'"is_error"' not in wire or not wire.startswith(b"["):
        return False
    try:
        return any(raw_json.members(block).get(IS_ERROR) == b"true" for block in raw_json.items(wire))
    except raw_json.JsonSplitError:
        return False


def _message_of_blocks(role: str, wire: bytes, blocks: Sequence[bytes], said: Sequence[Any]) -> Message:
    text = _text_of_blocks(said)
    pairs = zip(blocks, said, strict=True)
    calls = tuple(_call(block, told) for block, told in pairs if role == "assistant" and type_of(told) == TOOL_USE)
    links = links_of(said) if role == "assistant" else ()
    identity = identity_of(role, text, calls)
    return Message(role, wire, identity, text, calls, loaded_tools=loaded_tools(wire), links=links)


def _call(block: bytes, said: dict[str, Any]) -> Call:
    """A call with its input as the text it came as."""
    given = raw_json.members(block).get("input", b"{}").decode("utf-8", "replace")
    call, name = said.get("id"), said.get("name")
    return Call(call if isinstance(call, str) else "", name if isinstance(name, str) else "", given)


def type_of(said: object) -> str:
    """The type of a block, or nothing for what is none."""
    kind = said.get("type") if isinstance(said, dict) else None
    return kind if isinstance(kind, str) else ""


def _text_of_blocks(said: Iterable[Any]) -> str:
    """The words of blocks. One that says nothing does not count: clients and providers drop it."""
    words = (_text_of_block(block) for block in said if type_of(block) not in TYPES_WITHOUT_TEXT)
    return ROUND_SEPARATOR.join(told for told in words if told.strip())


def _text_of_block(said: Any) -> str:
    """The words of one block; one that is not text counts as its JSON with sorted keys."""
    return "" if said is None else text_of([said])


def _parse_block(raw: bytes) -> Any:
    """A block as a value. What no parser takes of it counts as the characters it came as."""
    try:
        return raw_json.parse(raw)
    except raw_json.JsonSplitError:
        pass
    try:
        return {name: _parse_or_decode(value) for name, value in raw_json.members(raw).items()}
    except raw_json.JsonSplitError:
        return _decode(raw)


def _parse_or_decode(raw: bytes) -> Any:
    try:
        return raw_json.parse(raw)
    except raw_json.JsonSplitError:
        return _decode(raw)


def _decode(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


# --------------------------------------------------------------------------------------------------------------- ours
def tool_result(call_id: str, text: str) -> Message:
    """The result of a call that we answered: a block for the message with the client's own results."""
    said = {"type": TOOL_RESULT, "tool_use_id": call_id, "content": raw_json.replace_surrogates(text)}
    return _result_message(raw_json.encode(said), said)


def user_message(text: str) -> Message:
    """A user-role text of ours: a block that joins the results before it, or stands alone."""
    block = _text_block(text)
    return _message_of_blocks("user", raw_json.join_array([block]), [block], [_parse_block(block)])


def assistant_message(text: str) -> Message:
    return read_message(
        raw_json.join_object({"role": b'"assistant"', "content": raw_json.join_array([_text_block(text)])})
    )


def joined(first: Message, second: Message) -> Message | None:
    """`first` with the content of `second` behind its own: inside the result's block, or as more blocks."""
    if first.answers:
        if first.loaded_tools:
            return None  # the API takes nothing beside references in a result
        (block,) = raw_json.items(first.wire)
        fields = raw_json.members(block)
        content = join_contents(fields.get("content", b"null").strip(), _content_of(second), TEXT)
        if content is None:
            return None
        return joined_message(
            first, second, raw_json.join_array([raw_json.join_object({**fields, "content": content})])
        )
    content = join_contents(_content_of(first), _content_of(second), TEXT)
    if content is None:
        return None
    envelope = next((m.wire for m in (first, second) if not m.wire.startswith(b"[")), None)
    if envelope is None:
        return joined_message(first, second, content)
    return joined_message(first, second, raw_json.join_object({**raw_json.members(envelope), "content": content}))


def _content_of(message: Message) -> bytes:
    wire = message.wire
    return wire if wire.startswith(b"[") else raw_json.members(wire).get("content", b"null").strip()


def _text_block(text: str) -> bytes:
    return raw_json.encode({"type": TEXT, "text": raw_json.replace_surrogates(text)})


def encode_tools_message(guidance: str, tools: Sequence[bytes]) -> bytes:
    """A system message with this guidance that adds these tools from its place on."""
    added = [b'{"type":"tool_addition","tool":{"type":"tool_definition","definition":' + tool + b"}}" for tool in tools]
    blocks = [*([_text_block(guidance)] if guidance else []), *added]
    return raw_json.join_object({"role": b'"system"', "content": raw_json.join_array(blocks)})


def append_text(system: bytes, suffix: str) -> bytes:
    """A system text with `suffix` at its end: inside the string, or as one more block."""
    if system.startswith(b"["):
        return raw_json.join_array([*raw_json.items(system), _text_block(suffix)])
    more = raw_json.encode(raw_json.replace_surrogates(suffix))
    return more if system in (b"", b'""') else system[:-1] + b"\\n\\n" + more[1:]


def without_reasoning(message: Message) -> Message:
    """The same message less its thinking; the very same where it has none. One that was nothing else becomes a run
    without a block: nothing may be invented in its place, and an empty message is refused."""
    if message.role != "assistant" or b"thinking" not in message.wire:
        return message
    fields = raw_json.members(message.wire)
    content = fields.get("content", b"null")
    blocks = raw_json.items(content) if content.startswith(b"[") else []
    kept = [block for block in blocks if type_of(_parse_block(block)) not in REASONING]
    if len(kept) == len(blocks):
        return message
    if not kept:
        return replace(message, wire=EMPTY_RUN)
    return replace(message, wire=raw_json.join_object({**fields, "content": raw_json.join_array(kept)}))


def with_reasoning(message: Message, text: str) -> Message:
    """The same message with this reasoning, unsigned, in front of its blocks. The very same where it has some."""
    if without_reasoning(message) is not message:
        return message
    fields = raw_json.members(message.wire)
    thought = raw_json.encode({"type": "thinking", "thinking": text, "signature": ""})
    blocks = raw_json.items(fields["content"])
    return replace(message, wire=raw_json.join_object({**fields, "content": raw_json.join_array([thought, *blocks])}))


def without_calls(message: Message, calls: Collection[str]) -> Message:
    """The same message less the calls with these ids, and less the thinking at its end that was for them: no message
    may end with that. Its tokens are not counted yet."""
    fields = raw_json.members(message.wire)
    kept = [
        (raw, said)
        for raw in raw_json.items(fields["content"])
        if type_of(said := _parse_block(raw)) not in (TOOL_USE, *SERVER_CALLS) or said.get("id") not in calls
    ]
    while kept and type_of(kept[-1][1]) in REASONING:
        kept.pop()
    return read_message(raw_json.join_object({**fields, "content": raw_json.join_array([raw for raw, _ in kept])}))


def holds_compaction(message: Message) -> bool:
    """Whether a compaction of the provider's is in it."""
    return message.role == "assistant" and b'"compaction"' in message.wire and COMPACTION in _kinds(message.wire)


def _kinds(wire: bytes) -> list[str]:
    content = raw_json.members(wire).get("content", b"")
    return [type_of(_parse_block(block)) for block in raw_json.items(content)] if content.startswith(b"[") else []


def with_content(message: Message, text: str) -> Message:
    """The same message with `text` for its content; its calls and every other member as they were. Its tokens are not
    counted yet."""
    identity = identity_of(message.role, text, message.calls, message.answers)
    wire = _wire_with_content(message, text)
    return replace(message, wire=wire, identity=identity, text=text, tokens=0, loaded_tools=())


def _wire_with_content(message: Message, text: str) -> bytes:
    words = raw_json.encode(raw_json.replace_surrogates(text))
    if message.wire.startswith(b"["):
        if message.role != "tool":
            return raw_json.join_array([_text_block(text)])
        (block,) = raw_json.items(message.wire)
        return raw_json.join_array([raw_json.join_object({**raw_json.members(block), "content": words})])
    fields = raw_json.members(message.wire)
    blocks = raw_json.items(fields["content"]) if message.calls else []
    calls = [block for block in blocks if type_of(_parse_block(block)) == TOOL_USE]
    content = raw_json.join_array([_text_block(text), *calls]) if calls else words
    return raw_json.join_object({**fields, "content": content})


def with_call_id(message: Message, call: str) -> Message:
    """The same result, of the call with this id; every other member as it was."""
    (block,) = raw_json.items(message.wire)
    wire = message.wire.replace(raw_json.members(block)["tool_use_id"], raw_json.encode(call))
    return replace(message, wire=wire, identity=identity_of(message.role, message.text, (), call), answers=call)
