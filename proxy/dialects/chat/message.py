"""Parses a chat message, and writes messages of ours.

Changes without a meaning do not change a message's identity: null, empty and absent content are equal, a list of text
parts equals the joined text, and reasoning, cache markers, `name` and unknown members do not count. The bytes stay.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Set
from hashlib import sha256
from typing import Any

import msgspec
from msgspec.structs import replace

from proxy.core.ledger import ROUND_SEPARATOR, Call, Message, identity_of
from proxy.core.memo import memoize
from proxy.dialects import raw_json
from proxy.dialects.tool_references import loaded_tools

TEXT_PARTS = ("text", "input_text", "output_text")
THINKING_TYPE = "thinking"
"""A part of a content that holds what the model thought, as Mistral's reasoning models write it."""
THINKING_TYPE_BYTES = b'"thinking"'
MAX_CACHED_EXTENSIONS = 32
"""System messages with our guidance that are remembered: an awake thread sends its own with every request."""
MAX_CACHED_EXTENSION_BYTES = 512 * 1024
"""Of each of them; one that is longer is extended anew with every request."""
LONG_FILE_LENGTH = 64 * 1024
DELETE = b"\x7f"
IGNORED_PART_MEMBER = "cache_control"
"""The one member of a content part that clients move about."""
PLAIN_MEMBERS = frozenset(
    {"role", "content", "type", "id", "status", "timestamp", "ts", IGNORED_PART_MEMBER}
    | {"internal_chat_message_metadata_passthrough"}
)
"""Of a message that a person typed, in any dialect; Codex adds metadata of its own. By another one a framework may say
whose words they are."""
MESSAGE_TYPE = "message"
"""Of an item of the responses API; other APIs tell none."""
_EMPTY = (b"null", b'""', b"[]")
PLAIN_PART_MEMBERS = frozenset({"type", "text", IGNORED_PART_MEMBER})


def read_message(raw: bytes) -> Message:
    """The message in `raw`. Raises JsonSplitError when it is no object with a role; one that no parser takes is known
    by its bytes."""
    try:
        said = raw_json.parse(raw)
    except raw_json.JsonSplitError:
        return _unparsable_message(raw)
    if not isinstance(said, dict) or not isinstance(role := said.get("role"), str):
        raise raw_json.JsonSplitError("a message is an object with a role")
    text = text_of(said.get("content"))
    calls = calls_of(said)
    answers = _answered_call_id(role, said)
    identity = identity_of(role, text, calls, answers)
    return Message(role, raw, identity, text, calls, answers, loaded_tools=loaded_tools(raw))


def _unparsable_message(raw: bytes) -> Message:
    """What can be read of it is who says it, and which call it answers."""
    fields = raw_json.members(raw)
    said: dict[str, Any] = {
        name: raw_json.parse_or_none(fields[name]) for name in ("role", "tool_call_id", "name") if name in fields
    }
    if not isinstance(role := said.get("role"), str):
        raise raw_json.JsonSplitError("a message is an object with a role")
    return Message(role, raw, sha256(raw).hexdigest()[:32], answers=_answered_call_id(role, said))


def text_of(content: object) -> str:
    """The words of a content; a part that is not text counts as its JSON with sorted keys, a thought as nothing."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(_part(part) for part in content)
    return "" if content is None else _canonical_json(content)


def text_blocks_of(message: Message) -> tuple[str, ...]:
    """The text blocks of a client's message in any dialect, in order; a content that is a string is one block. Empty
    where the content holds something else than text, where a member says whose the message is (as `name` does, for
    another agent or a tool), and for what was split off a message with tool results (its wire is an array), because
    such text was not sent alone."""
    try:
        said = raw_json.parse(message.wire)
        if not isinstance(said, dict) or (said.get("type") or MESSAGE_TYPE) != MESSAGE_TYPE:
            return ()
        if not _has_only(PLAIN_MEMBERS, message.wire):
            return ()
        content = said.get("content")
        blocks = raw_json.items(raw_json.members(message.wire)["content"]) if isinstance(content, list) else []
        if not all(_has_only(PLAIN_PART_MEMBERS, block) for block in blocks):
            return ()
    except raw_json.JsonSplitError:
        return ()
    texts = [_text_block(part) for part in (content if isinstance(content, list) else [content])]
    return tuple(text for text in texts if text is not None) if None not in texts else ()


def _has_only(names: Set[str], wire: bytes) -> bool:
    """Whether an object has these members alone, each once: of two another reader may take the other one. What is null
    or empty says nothing. Raises JsonSplitError."""
    said = [name for name, raw in raw_json.all_members(wire) if name in names or raw not in _EMPTY]
    return names >= set(said) and len(set(said)) == len(said)


def _text_block(part: object) -> str | None:
    """The text of a part; None for a part that is not text."""
    if isinstance(part, dict) and part.get("type") in TEXT_PARTS:
        part = part.get("text")
    return part if isinstance(part, str) else None


def _part(part: object) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, dict):
        if part.get("type") in TEXT_PARTS and isinstance(text := part.get("text"), str):
            return text
        if is_thinking_part(part):
            return ""
        kept = {key: value for key, value in part.items() if key != IGNORED_PART_MEMBER}
        return _canonical_file(kept) if _is_long_file(kept) else _canonical_json(kept)
    return _canonical_json(part)


def is_thinking_part(part: object) -> bool:
    """Whether a part of a content is what the model thought."""
    return isinstance(part, dict) and part.get("type") == THINKING_TYPE


def _is_long_file(part: Mapping[str, object]) -> bool:
    """Whether a part is made of texts, and of objects of texts, and is long: a picture, a sound or a document."""
    texts = [text for value in part.values() for text in (value.values() if isinstance(value, dict) else (value,))]
    return sum(len(text) for text in texts if isinstance(text, str)) > LONG_FILE_LENGTH and all(
        isinstance(text, str) for text in texts
    )


def _canonical_file(part: Mapping[str, object]) -> str:
    """As `_canonical_json` writes it, which takes 0.1 s longer for 40 MB, and holds up everybody meanwhile. Of texts
    in ASCII without DEL both write the same."""
    try:
        fast = msgspec.json.encode(part, order="sorted")
    except UnicodeError:  # half a surrogate pair
        return _canonical_json(part)
    return fast.decode() if fast.isascii() and DELETE not in fast else _canonical_json(part)


def _canonical_json(said: object) -> str:
    """Raises JsonSplitError for what is nested as deep as a parser goes, and deeper than a writer does."""
    try:
        return json.dumps(said, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    except RecursionError as refused:
        raise raw_json.JsonSplitError("nested too deep to be written") from refused


def calls_of(said: Mapping[str, Any]) -> tuple[Call, ...]:
    """The calls of an assistant message, a legacy `function_call` among them (its id is empty)."""
    listed = said.get("tool_calls")
    calls = [_call(item) for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []
    if isinstance(legacy := said.get("function_call"), dict):
        calls.append(Call("", text_or_empty(legacy.get("name")), _arguments(legacy.get("arguments"))))
    return tuple(calls)


def _call(item: Mapping[str, Any]) -> Call:
    for shape, arguments in (("function", "arguments"), ("custom", "input")):
        if isinstance(inner := item.get(shape), dict):
            return Call(
                text_or_empty(item.get("id")), text_or_empty(inner.get("name")), _arguments(inner.get(arguments))
            )
    return Call(text_or_empty(item.get("id")), text_or_empty(item.get("name")), _arguments(item.get("arguments")))


def _answered_call_id(role: str, said: Mapping[str, Any]) -> str:
    """What a result answers: the call's id, or for a legacy `function` message the function's name."""
    if role == "tool":
        return text_or_empty(said.get("tool_call_id"))
    return text_or_empty(said.get("name")) if role == "function" else ""


def text_or_empty(said: object) -> str:
    return said if isinstance(said, str) else ""


def _arguments(said: object) -> str:
    """Arguments are text; some servers send them as an object."""
    if isinstance(said, str):
        return said
    return "" if said is None else _canonical_json(said)


# --------------------------------------------------------------------------------------------------------------- ours
def tool_result(call_id: str, text: str) -> Message:
    """The result of a call that we answered."""
    return read_message(
        raw_json.encode({"role": "tool", "tool_call_id": call_id, "content": raw_json.replace_surrogates(text)})
    )


def user_message(text: str) -> Message:
    """A user-role text of ours: a trace, a note, guidance."""
    return text_message("user", raw_json.replace_surrogates(text))


def system_message(text: str) -> Message:
    return text_message("system", raw_json.replace_surrogates(text))


def text_message(role: str, text: str) -> Message:
    """A message that is nothing but these words, which can be encoded (`raw_json.replace_surrogates`), of one who
    answers no call: what `read_message` would tell of it, known without reading it."""
    return Message(role, raw_json.encode({"role": role, "content": text}), identity_of(role, text), text)


@memoize(MAX_CACHED_EXTENSIONS, MAX_CACHED_EXTENSION_BYTES)
def append_text(wire: bytes, suffix: str) -> bytes:
    """`wire` with `suffix` at the end of its text: inside the string, or as one more text part; every other member as
    it was."""
    fields = raw_json.members(wire)
    content = fields.get("content", b"null").strip()
    more = raw_json.encode(raw_json.replace_surrogates(suffix))
    if content.startswith(b'"'):
        gap = b"" if content == b'""' else b"\\n\\n"
        fields["content"] = content[:-1] + gap + more[1:]
    elif content.startswith(b"["):
        part = b'{"type":"text","text":' + more + b"}"
        fields["content"] = raw_json.join_array([*raw_json.items(content), part])
    else:
        fields["content"] = more
    return raw_json.join_object(fields)


def assistant_message(text: str) -> Message:
    return text_message("assistant", raw_json.replace_surrogates(text))


def joined(first: Message, second: Message) -> Message | None:
    """`first` with the content of `second` behind its own: one text where both are, else a list of parts."""
    fields = raw_json.members(first.wire)
    content = join_contents(
        fields.get("content", b"null").strip(), raw_json.members(second.wire).get("content", b"null").strip(), "text"
    )
    return (
        None if content is None else joined_message(first, second, raw_json.join_object({**fields, "content": content}))
    )


def join_contents(first: bytes, second: bytes, text_type: str) -> bytes | None:
    """Two contents in one; None where one of them is neither a text nor a list. `text_type` is the type of a text
    part."""
    if first in (b"null", b'""', b"[]"):
        return second
    if first.startswith(b'"') and second.startswith(b'"'):
        return first[:-1] + b"\\n\\n" + second[1:]
    parts = [_parts_in(content, text_type) for content in (first, second)]
    return raw_json.join_array([*parts[0], *parts[1]]) if parts[0] and parts[1] else None


def _parts_in(content: bytes, text_type: str) -> list[bytes]:
    if content.startswith(b'"'):
        return [b'{"type":' + raw_json.encode(text_type) + b',"text":' + content + b"}"]
    return raw_json.items(content) if content.startswith(b"[") else []


def joined_message(first: Message, second: Message, wire: bytes) -> Message:
    """What is known of `first` with the content of `second` behind its own."""
    text = f"{first.text}{ROUND_SEPARATOR}{second.text}" if first.text else second.text
    identity = identity_of(first.role, text, first.calls, first.answers)
    return replace(first, wire=wire, identity=identity, text=text, tokens=first.tokens + second.tokens)


# Kept, DeepSeek refuses a message with calls that lacks it (400 "must be passed back"); sent to another vendor, some
# refuse the member itself. So it is left out by name and put back only from what the same provider wrote.
REASONING = ("reasoning_content", "reasoning", "reasoning_details", "thinking_blocks")
"""Members of an assistant message that hold what the model thought."""
SIGNATURE_BYTES = b"thought_signature"
"""Gemini puts it into a member of a call that is no function."""


def without_reasoning(message: Message) -> Message:
    """The same message less its reasoning and the signatures of its calls; every other member as it was."""
    fields = raw_json.members(message.wire)
    kept = {name: _without_thoughts(name, raw) for name, raw in fields.items() if name not in REASONING}
    return message if kept == fields else replace(message, wire=raw_json.join_object(kept))


def with_reasoning(message: Message, text: str) -> Message:
    """The same message with this reasoning; every other member as it was. The very same where it has some."""
    fields = raw_json.members(message.wire)
    if any(name in fields for name in REASONING):
        return message
    return replace(message, wire=raw_json.join_object({**fields, "reasoning_content": raw_json.encode(text)}))


def _without_thoughts(name: str, raw: bytes) -> bytes:
    """A member; of a content in parts, the parts that are no thought; of calls, all but their signatures."""
    if name == "tool_calls" and SIGNATURE_BYTES in raw:
        return raw_json.join_array([_without_signature(call) for call in raw_json.items(raw)])
    if name != "content" or not raw.startswith(b"[") or THINKING_TYPE_BYTES not in raw:
        return raw
    parts = raw_json.items(raw)
    kept = [part for part in parts if not is_thinking_part(raw_json.parse_or_none(part))]
    return raw if len(kept) == len(parts) else raw_json.join_array(kept) if kept else b'""'


def _without_signature(call: bytes) -> bytes:
    members = raw_json.members(call)
    return raw_json.join_object({n: raw for n, raw in members.items() if n == "function" or SIGNATURE_BYTES not in raw})


def without_calls(message: Message, calls: Collection[str]) -> Message:
    """The same message less the calls with these ids; every other member as it was. Its tokens are not counted yet."""
    fields = raw_json.members(message.wire)
    listed = raw_json.items(fields.pop("tool_calls", b"[]"))
    if kept := [raw for raw in listed if raw_json.parse(raw).get("id") not in calls]:
        fields["tool_calls"] = raw_json.join_array(kept)
    if "" in calls:
        fields.pop("function_call", None)
    return read_message(raw_json.join_object(fields))


def with_content(message: Message, text: str) -> Message:
    """The same message with `text` for its content; every other member as it was. Its tokens are not counted yet."""
    fields = {**raw_json.members(message.wire), "content": raw_json.encode(text)}
    identity = identity_of(message.role, text, message.calls, message.answers)
    wire = raw_json.join_object(fields)
    return replace(message, wire=wire, identity=identity, text=text, tokens=0, loaded_tools=())


def with_call_id(message: Message, call: str) -> Message:
    """The same result, of the call with this id; every other member as it was."""
    wire = message.wire.replace(raw_json.members(message.wire)["tool_call_id"], raw_json.encode(call))
    return replace(message, wire=wire, identity=identity_of(message.role, message.text, (), call), answers=call)
