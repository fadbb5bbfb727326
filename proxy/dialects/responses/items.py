"""Parses items of the responses API, and writes items of ours.

A client's item is one message. Consecutive items of the model are one message (a run), so that reasoning and the call
made with it are never separated; a compaction item is a run by itself. Item ids, statuses, reasoning, the
provider's own tool runs and unknown members do not count for identity. The bytes stay.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum, auto
from typing import Any

import msgspec
from msgspec.structs import replace

from proxy.core.ledger import ROUND_SEPARATOR, Call, Message, identity_of, is_stack_tool, name_in_namespace
from proxy.dialects import raw_json
from proxy.dialects.chat.message import join_contents, joined_message, text_of
from proxy.dialects.links import APPROVAL_REQUEST, APPROVAL_REQUEST_ID, links_of
from proxy.dialects.tool_references import loaded_tools

COMPACTION_TYPES = ("compaction", "compaction_summary", "context_compaction")
"""What stands for a conversation that the provider compacted, readable by the provider alone."""
MODEL_TYPES = ("reasoning", "item_reference", "mcp_list_tools", APPROVAL_REQUEST)
"""Items made upstream, beside the assistant's messages and everything called `..._call`."""
APPROVAL_RESPONSE = "mcp_approval_response"
"""The client's answer to a request for approval, which is a call by the item's own id."""
ANSWER_TYPES = (APPROVAL_RESPONSE,)
"""Items a client makes, beside messages and everything called `..._output`."""
CALL_SUFFIX, OUTPUT_SUFFIX = "_call", "_output"
"""How the type of a call ends, and that of its result."""
ADDITIONAL_TOOLS = "additional_tools"
ASSISTANT = "assistant"
OPAQUE_ROLE = "item"
"""The role of an item that has none."""
VOLATILE_MEMBERS = ("id", "status")
"""Members of an item that a client makes anew, or leaves out."""
NAMING_MEMBERS = ("type", "call_id", APPROVAL_REQUEST_ID)
"""Members of a result that say what it is and of which call."""


# --------------------------------------------------------------------------------------------------------------- kind
class ItemKind(Enum):
    """Whose an item is, and whether it may stand among others in one message."""

    CLIENT = auto()
    MODEL = auto()
    COMPACTION = auto()
    UNKNOWN = auto()
    """The model's where it stands between items of the model."""


class ItemOutline(msgspec.Struct, gc=False):
    """The members of an item that tell its kind."""

    type: Any = None
    role: Any = None
    id: Any = None
    execution: Any = None

    @property
    def kind(self) -> ItemKind:
        type_ = self.type if isinstance(self.type, str) else ""
        if isinstance(self.role, str):
            return ItemKind.MODEL if self.role == ASSISTANT else ItemKind.CLIENT
        if type_ in COMPACTION_TYPES:
            return ItemKind.COMPACTION
        if type_ in MODEL_TYPES or type_.endswith(CALL_SUFFIX) or (self.type is None and isinstance(self.id, str)):
            return ItemKind.MODEL
        if type_.endswith(OUTPUT_SUFFIX):
            return ItemKind.MODEL if self.execution == "server" else ItemKind.CLIENT
        return ItemKind.CLIENT if type_ in ANSWER_TYPES else ItemKind.UNKNOWN


_OUTLINE = msgspec.json.Decoder(ItemOutline)
_OUTLINES = msgspec.json.Decoder(list[ItemOutline])
_DECODE_ERRORS = (msgspec.DecodeError, RecursionError, UnicodeError)


def parse_outlines(array: bytes, raws: Sequence[bytes]) -> list[ItemOutline]:
    """What the items of `array` are; `raws` are the same, taken apart. Raises JsonSplitError where one is no object."""
    try:
        return _OUTLINES.decode(array)
    except _DECODE_ERRORS:
        return [_outline(raw) for raw in raws]


def _outline(raw: bytes) -> ItemOutline:
    try:
        return _OUTLINE.decode(raw)
    except _DECODE_ERRORS:
        said = _parse_members(raw)
        return ItemOutline(*(said.get(name) for name in ItemOutline.__struct_fields__))


def _parse_members(raw: bytes) -> dict[str, Any]:
    """An item as a value. Of one that no parser takes as a whole, the members that can be read, and the others as
    text. Raises JsonSplitError when it is no object."""
    try:
        said = raw_json.parse(raw)
    except raw_json.JsonSplitError:
        return {name: _value(member) for name, member in raw_json.members(raw).items()}
    if not isinstance(said, dict):
        raise raw_json.JsonSplitError("an item is an object")
    return said


def _value(raw: bytes) -> Any:
    try:
        return raw_json.parse(raw)
    except raw_json.JsonSplitError:
        return raw.decode("utf-8", "replace")


# --------------------------------------------------------------------------------------------------------------- read
def read_item(raw: bytes) -> Message:
    """A client's item. Raises JsonSplitError when it is no object."""
    said = _parse_members(raw)
    role, type_ = said.get("role"), said.get("type")
    if isinstance(role, str):
        if "content" not in said:
            return Message(role, raw, identity_of(role, _canonical_json(said)), loaded_tools=loaded_tools(raw))
        text = content_text(said["content"])
        return Message(role, raw, identity_of(role, text), text)
    if isinstance(type_, str) and (answers := _answered_call_id(type_, said)):
        text = _output_text(said)
        identity = identity_of("tool", text, (), answers)
        return Message("tool", raw, identity, text, (), answers, loaded_tools=loaded_tools(raw))
    return Message(OPAQUE_ROLE, raw, identity_of(OPAQUE_ROLE, _canonical_json(said)))


def _answered_call_id(type_: str, said: Mapping[str, Any]) -> str:
    if type_ == APPROVAL_RESPONSE:
        return _text(said, APPROVAL_REQUEST_ID)
    return (_text(said, "call_id") or _text(said, "id")) if type_.endswith(OUTPUT_SUFFIX) else ""


def read_run(raw: bytes) -> Message:
    """Items that the model made, an array of them, as one message. Raises JsonSplitError when it is none of objects.

    What nothing is said or called in, as a sealed item, is known by all its content.
    """
    items = [_parse_members(item) for item in raw_json.items(raw)]
    text = ROUND_SEPARATOR.join(
        text for item in items if item.get("role") == ASSISTANT for text in _content_texts(item.get("content"))
    )
    calls = _client_calls(items)
    known_by = text if text or calls else "\n".join(map(_canonical_json, items))
    identity = identity_of(ASSISTANT, known_by, calls)
    return Message(ASSISTANT, raw, identity, text, calls, loaded_tools=loaded_tools(raw), links=links_of(items))


def _client_calls(items: Iterable[Mapping[str, Any]]) -> tuple[Call, ...]:
    """The calls that a client has to answer: those with an id for it, unless the provider itself did."""
    calls, answered = [], set()
    for item in items:
        type_, call_id = _text(item, "type"), _call_id(item)
        if type_.endswith(OUTPUT_SUFFIX):
            answered.add(_text(item, "call_id"))
        elif call_id and item.get("execution") != "server":
            name = "" if type_ == APPROVAL_REQUEST else name_of_tool(_text(item, "name"), item.get("namespace"))
            calls.append(Call(call_id, name or type_.removesuffix(CALL_SUFFIX), _arguments(item)))
    return tuple(call for call in calls if call.id not in answered)


def _call_id(item: Mapping[str, Any]) -> str:
    """The id by which the client answers an item, empty where it is no call."""
    type_ = _text(item, "type")
    if type_ == APPROVAL_REQUEST:
        return _text(item, "id")
    return _text(item, "call_id") if type_.endswith(CALL_SUFFIX) else ""


def _arguments(item: Mapping[str, Any]) -> str:
    """What a call is made with, by any of its names: text as it is, freeform or not; else as JSON with sorted keys. Of
    a request for approval, also what is to be run: its name is a server's, and none of ours."""
    if _text(item, "type") == APPROVAL_REQUEST:
        return _canonical_json(item)
    return next((text_of(item[name]) for name in ("arguments", "input", "action", "operation") if name in item), "")


def _canonical_json(item: Mapping[str, Any]) -> str:
    """All of an item but what is volatile, as JSON with sorted keys; a reference is nothing but its id."""
    kept = {name: value for name, value in item.items() if name not in VOLATILE_MEMBERS}
    return text_of(kept if kept.keys() - {"type"} else dict(item))


def _text(item: Mapping[str, Any], name: str) -> str:
    said = item.get(name)
    return said if isinstance(said, str) else ""


def content_text(content: object) -> str:
    """The words of a content: a string as it is, the texts of a list as paragraphs."""
    return ROUND_SEPARATOR.join(_content_texts(content)) if isinstance(content, list) else text_of(content)


def _content_texts(content: object) -> list[str]:
    if not isinstance(content, list):
        content = [text_of(content)]
    return [text for part in content if (text := _part(part)).strip()]


def _part(part: object) -> str:
    """The words of a part, a refusal's and a shell's among them; a part of another kind as JSON with sorted keys."""
    if isinstance(part, dict):
        if part.get("type") == "refusal" and isinstance(refusal := part.get("refusal"), str):
            return refusal
        if isinstance(out := part.get("stdout"), str) and isinstance(err := part.get("stderr"), str):
            return out + err
    return text_of([part])


def _output_text(said: Mapping[str, Any]) -> str:
    """What a result says; one that says it in members of its own is known by them."""
    if "output" in said:
        return content_text(said["output"])
    return text_of({name: value for name, value in said.items() if name not in (*VOLATILE_MEMBERS, *NAMING_MEMBERS)})


# --------------------------------------------------------------------------------------------------------------- runs
def is_run(wire: bytes) -> bool:
    """Whether these are items without a bracket of their own in the request."""
    return wire.startswith(b"[")


def without_brackets(wire: bytes) -> bytes:
    """What is put among its neighbours: a run without its brackets, an item as it is."""
    return wire[1:-1].strip() if is_run(wire) else wire


def items_by_id(message: Message) -> dict[str, bytes]:
    """The items of a run by their ids, for those who refer to them."""
    if not is_run(message.wire):
        return {}
    return {ident: item for item in raw_json.items(message.wire) if (ident := _text(_parse_members(item), "id"))}


def holds_compaction(message: Message) -> bool:
    """Whether a run holds a sealed item."""
    return bool(compaction_identities(message))


def compaction_identities(message: Message) -> tuple[str, ...]:
    """What each sealed item of a run is known by where it stands alone, as clients give it back."""
    if message.role != ASSISTANT or b"compaction" not in message.wire or not is_run(message.wire):
        return ()
    sealed = (item for item in raw_json.items(message.wire) if _outline(item).kind is ItemKind.COMPACTION)
    return tuple(read_run(raw_json.join_array([item])).identity for item in sealed)


def referenced_ids(message: Message) -> tuple[str, ...]:
    """The ids that a run refers to instead of holding the items."""
    if not is_run(message.wire) or message.role != ASSISTANT:
        return ()
    return tuple(found for item in raw_json.items(message.wire) if (found := _referenced_id(item)))


def dereference(message: Message, items: Mapping[str, bytes]) -> Message:
    """The same run with each item of `items` (by id) in the place of the reference to it. The very same where it
    refers to none of them. Its tokens are not counted yet."""
    if not any(found in items for found in referenced_ids(message)):
        return message
    return read_run(
        raw_json.join_array([items.get(_referenced_id(item), item) for item in raw_json.items(message.wire)])
    )


def _referenced_id(raw: bytes) -> str:
    found = _outline(raw)
    return found.id if _is_reference(found) and isinstance(found.id, str) else ""


def _is_reference(outline: ItemOutline) -> bool:
    """Whether an item is nothing but the id of another one."""
    return outline.type == "item_reference" or (outline.type is None and outline.role is None)


# ---------------------------------------------------------------------------------------------------------- reasoning
REASONING = "reasoning"
TYPES_ACCEPTED_WITHOUT_ID = (
    "message",
    "function_call",
    "custom_tool_call",
    "shell_call",
    "apply_patch_call",
    "tool_search_call",
)
"""Items that are taken without an id."""


def without_reasoning(message: Message) -> Message:
    """The same run less its reasoning items and the ids of what was made with them: providers ask for the reasoning
    of an item that they know by its id. What is not taken without an id goes too; what the client has to answer stays,
    and so does its reasoning. The very same where there is none."""
    return _remove_reasoning(message, lambda _: True, goes_whole=True)


def without_unneeded_reasoning(message: Message) -> Message:
    """The same, but reasoning stays that an item was made with which is not taken without an id."""
    return _remove_reasoning(message, lambda _: True, keeps_needed=True)


def without_unreadable_reasoning(message: Message) -> Message:
    """The same less the reasoning of which only the id is left, for a provider that keeps nothing under it."""
    # An item of which only the id is left is known to the provider that keeps it, and to nobody else: another one
    # refuses the whole request for it.
    return _remove_reasoning(message, lambda said: not said.get("encrypted_content") and not said.get("content"))


def _remove_reasoning(
    message: Message,
    leaves: Callable[[Mapping[str, Any]], bool],
    *,
    keeps_needed: bool = False,
    goes_whole: bool = False,
) -> Message:
    """`keeps_needed`: reasoning stays that an item with an id of its own needs; `goes_whole`: such an item goes too,
    unless the client answers it."""
    # Nearly no message of a long context has any, and each is asked: a parser would be a hundred times as slow.
    if not is_run(message.wire) or b'"reasoning"' not in message.wire:
        return message
    kept: list[bytes] = []
    removed = left_out = False
    items = raw_json.items(message.wire)
    outlines = [_outline(item) for item in items]
    for at, (item, outline) in enumerate(zip(items, outlines, strict=True)):
        made = _made_with(outlines, at) if outline.type == REASONING else range(0)
        needs = keeps_needed and any(_keeps_id(outlines[each]) or _is_reference(outlines[each]) for each in made)
        if needs or (goes_whole and any(_is_answered_by_id(outlines[each], items[each]) for each in made)):
            kept.append(item)
            left_out = False
        elif outline.type == REASONING and leaves(_parse_members(item)):
            removed = left_out = True
        elif left_out and outline.type in TYPES_ACCEPTED_WITHOUT_ID:
            kept.append(raw_json.join_object({n: raw for n, raw in raw_json.members(item).items() if n != "id"}))
        elif not (left_out and goes_whole and _keeps_id(outline)):
            kept.append(item)
    return replace(message, wire=raw_json.join_array(kept)) if removed else message


def _made_with(outlines: Sequence[ItemOutline], at: int) -> range:
    """The positions of what was made with the reasoning at `at`: what stands between it and the next reasoning behind
    that."""
    begin = next((n for n in range(at, len(outlines)) if outlines[n].type != REASONING), len(outlines))
    return range(begin, next((n for n in range(begin, len(outlines)) if outlines[n].type == REASONING), len(outlines)))


def _keeps_id(outline: ItemOutline) -> bool:
    """Whether an item is not taken without its id."""
    if outline.type in (*TYPES_ACCEPTED_WITHOUT_ID, *COMPACTION_TYPES) or isinstance(outline.role, str):
        return False
    return isinstance(outline.id, str) and not _is_reference(outline)


def _is_answered_by_id(outline: ItemOutline, raw: bytes) -> bool:
    """Whether it is a call that the client answers, and not taken without its id: a local shell, a computer."""
    return _keeps_id(outline) and bool(_call_id(_parse_members(raw)))


def without_calls(message: Message, calls: Collection[str]) -> Message:
    """The same run less the calls with these ids, and less the reasoning at its end that was for them: providers
    refuse reasoning that nothing follows. Its tokens are not counted yet."""
    kept = [raw for raw in raw_json.items(message.wire) if not _is_any_of_calls(_parse_members(raw), calls)]
    while kept and _outline(kept[-1]).type == REASONING:
        kept.pop()
    return read_run(raw_json.join_array(kept))


def _is_any_of_calls(said: Mapping[str, Any], calls: Collection[str]) -> bool:
    return bool(call_id := _call_id(said)) and call_id in calls


# --------------------------------------------------------------------------------------------------------------- ours
def tool_result(call_id: str, text: str) -> Message:
    """The result of a call that we answered: calls of ours are functions, always."""
    result = {"type": "function_call_output", "call_id": call_id, "output": raw_json.replace_surrogates(text)}
    return read_item(raw_json.encode(result))


def user_message(text: str) -> Message:
    """A user-role text of ours: a trace, a note, guidance."""
    return read_item(message_item("user", text))


def assistant_message(text: str) -> Message:
    part = {"type": "output_text", "text": raw_json.replace_surrogates(text), "annotations": []}
    return read_run(raw_json.encode([{"type": "message", "role": ASSISTANT, "content": [part]}]))


def joined(first: Message, second: Message) -> Message | None:
    """`first` with the content of `second` behind its own; None for a result that is no text."""
    if is_run(first.wire) or is_run(second.wire):
        return None
    fields, name = raw_json.members(first.wire), "output" if first.answers else "content"
    told = raw_json.members(second.wire).get("content", b"null").strip()
    before = fields.get(name, b"null").strip()
    if first.answers and before.startswith(b'"'):
        told = raw_json.encode(raw_json.replace_surrogates(second.text))
    elif first.answers and not _is_content(_value(before)):
        return None
    content = join_contents(before, told, "input_text")
    return None if content is None else joined_message(first, second, raw_json.join_object({**fields, name: content}))


def _is_content(output: object) -> bool:
    """Whether an output is a list of content parts: a picture or what a shell has printed takes no other text."""
    kinds = [_text(part, "type") for part in output if isinstance(part, dict)] if isinstance(output, list) else []
    return bool(kinds) and all(kind.startswith("input_") for kind in kinds)


def message_item(role: str, text: str) -> bytes:
    part = {"type": "input_text", "text": raw_json.replace_surrogates(text)}
    return raw_json.encode({"type": "message", "role": role, "content": [part]})


def text_item(string: bytes) -> bytes:
    """The item that an input of nothing but a text (a JSON string) stands for."""
    return b'{"role":"user","content":' + string + b"}"


def with_content(message: Message, text: str) -> Message:
    """The same item with `text` for its content; every other member as it was. Its tokens are not counted yet. A run
    of the model, and a result that is a picture or an approval, are told in no other words."""
    if is_run(message.wire):
        return message
    fields = raw_json.members(message.wire)
    type_ = _text(_parse_members(message.wire), "type")
    if type_ in ("computer_call_output", APPROVAL_RESPONSE):
        return message
    text = raw_json.replace_surrogates(text)
    said = _shell_output(text) if type_ == "shell_call_output" else text
    fields["output" if message.answers else "content"] = raw_json.encode(said)
    identity = identity_of(message.role, text, message.calls, message.answers)
    wire = raw_json.join_object(fields)
    return replace(message, wire=wire, identity=identity, text=text, tokens=0, loaded_tools=())


def with_call_id(message: Message, call: str) -> Message:
    """The same result, of the call with this id; every other member as it was."""
    fields = raw_json.members(message.wire)
    name = next(name for name in (APPROVAL_REQUEST_ID, "call_id", "id") if name in fields)
    wire = message.wire.replace(fields[name], raw_json.encode(call))
    return replace(message, wire=wire, identity=identity_of(message.role, message.text, (), call), answers=call)


def _shell_output(text: str) -> list[Any]:
    return [{"stdout": text, "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]


def call_types(message: Message) -> dict[str, str]:
    """The types of the calls in a run, by call id."""
    items = (
        [_parse_members(item) for item in raw_json.items(message.wire)]
        if message.calls and is_run(message.wire)
        else []
    )
    return {call_id: _text(item, "type") for item in items if (call_id := _call_id(item))}


def as_result_of(result: Message, call_type: str) -> bytes:
    """A result of ours as an answer to a client's call of this type; what is asked by none of these types takes it as
    a function does (so does Codex for its shell)."""
    more: dict[str, Any]
    text = raw_json.replace_surrogates(result.text)
    if call_type == "custom_tool_call":
        more = {"output": text}
    elif call_type == "apply_patch_call":
        more = {"status": "failed", "output": text}
    elif call_type == "shell_call":
        more = {"output": _shell_output(text)}
    elif call_type == APPROVAL_REQUEST:
        return b""  # nobody may allow or forbid in the client's place, and the API does not ask for it
    elif call_type == "tool_search_call":
        call_type, more = "tool_search", {"execution": "client", "status": "completed", "tools": []}
    else:
        return result.wire
    return raw_json.encode({"type": call_type + OUTPUT_SUFFIX, "call_id": result.answers, **more})


# ------------------------------------------------------------------------------------------------------------- tools
STACK_NAMESPACE = "stack"
"""Where our tools stand when all tools beside them stand in namespaces."""


def name_of_tool(name: str, namespace: object) -> str:
    """The name by which a tool is known. A client's tool in a namespace of its own may be called as one of ours is, as
    those of `callstack mcp` are: its namespace tells them apart."""
    if isinstance(namespace, str) and namespace not in ("", STACK_NAMESPACE) and is_stack_tool(name):
        return name_in_namespace(namespace, name)
    return name


def is_tools_item(wire: bytes) -> bool:
    return not is_run(wire) and not wire.startswith(b'"') and _outline(wire).type == ADDITIONAL_TOOLS


def tools_in(raw: bytes) -> list[Any]:
    """The tools of an `additional_tools` item."""
    listed = _parse_members(raw).get("tools")
    return listed if isinstance(listed, list) else []


def add_tools_to_item(wire: bytes, extra: bytes) -> bytes:
    """An `additional_tools` item with our array of tools behind its own, in a namespace where all of its own are."""
    fields = raw_json.members(wire)
    theirs = tools_in(wire)
    extra = _namespaced_like(theirs, extra)
    inside = fields["tools"].strip()[1:-1].rstrip() if theirs else b""
    fields["tools"] = b"[" + inside + b"," + extra[1:] if inside else extra
    return raw_json.join_object(fields)


def _namespaced_like(theirs: Sequence[Any], extra: bytes) -> bytes:
    """Our array of tools, in a namespace where all of theirs are."""
    # Codex with the gpt-5.6 and later families sends no `tools` array at all: tools come in an item, in namespaces. A
    # bare function among namespaces is refused there.
    if not theirs or not all(isinstance(tool, dict) and tool.get("type") == "namespace" for tool in theirs):
        return extra
    return b'[{"type":"namespace","name":"' + STACK_NAMESPACE.encode() + b'","description":"","tools":' + extra + b"}]"


def encode_tools_run(guidance: str, tools: bytes, theirs: Sequence[Any]) -> bytes:
    """A run that offers our array of tools from its place on, told as `theirs` are, and says this guidance."""
    # Behind what is cached, not in `tools`: one definition toggled in front rewrites the whole prefix.
    kind = {"type": raw_json.encode(ADDITIONAL_TOOLS), "role": b'"developer"'}
    offer = raw_json.join_object({**kind, "tools": _namespaced_like(theirs, tools)})
    return raw_json.join_array([offer, *([message_item("developer", guidance)] if guidance else [])])


def own_tools_in(run: bytes) -> list[Any]:
    """Our tools in a run of `encode_tools_run`, without the namespace around them."""
    offered = tools_in(raw_json.items(run)[0])
    inside = [
        tool["tools"] for tool in offered if tool.get("type") == "namespace" and tool.get("name") == STACK_NAMESPACE
    ]
    return inside[0] if inside else offered


def parse_tools_run(wire: bytes) -> Message:
    """The message of such a run; the tools count as the JSON they are."""
    offer, *said = raw_json.items(wire)
    tools = raw_json.members(offer)["tools"].decode()
    text = ROUND_SEPARATOR.join([tools, *(read_item(item).text for item in said)])
    return Message("developer", wire, identity_of("developer", text), text)
