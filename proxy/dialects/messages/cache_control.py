"""Cache markers of the messages API.

Clients move their markers with every request, so markers belong to a request, not a message. The client's markers are
set again in their own form, and one more at the fork point, where the active frame begins, because a return to
the parent continues there. Where more came since the request before than the API looks back, its end gets one too:
else a dozen calls at once let all be written again. A request has at most four; those in system text and tools stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from typing import NamedTuple

from proxy.core.ledger import Message, Request, RequestSlice
from proxy.dialects import raw_json
from proxy.dialects.parse_cache import MARKER_KEY

MEMBER = "cache_control"
CACHE_CONTROL_BYTES = MARKER_KEY
"""What a marker begins with; a text that speaks of markers has its quotes escaped."""
# Claude Code sets several itself and moves its last one with every request (2.1.197), so markers are moved and never
# added beside the client's.
HOUR_TTL, HOUR_MARKER = b'"1h"', b'{"type":"ephemeral","ttl":"1h"}'
MAX_MARKERS = 4
"""Markers the API takes in one request."""
LOOKBACK_BLOCKS = 20
"""Blocks in front of a marker among which the API looks for what it has cached."""
NOTHING_MARKED = 10**12
"""Tokens behind the last marker where there is none: more than any request has."""
MARKABLE_BLOCK_TYPES = ("text", "image", "document", "search_result", "tool_use", "tool_result")
"""Blocks that may carry one. Of thinking it is refused, of what we do not know it may be."""
MARKABLE_ROLES = ("user", "assistant", "tool")
SYSTEM_ROLE = "system"
"""A message in mid-history that only newer models take. It carries a marker where the client has set one on it itself
(Claude Code 2.1.330 does with its first request)."""
ROLES_SENT_AS_USER = ("user", "tool")
"""Roles of messages that travel as a user message."""


class CacheMarkers(NamedTuple):
    """The markers of a client's request."""

    message_markers: tuple[bytes, ...] = ()
    """Those among its messages, in order."""
    last_marked_message: str = ""
    """The identity of the message with the last of them, where the client stopped short of its end on purpose."""
    other_marker_count: int = 0
    """How many stand in the system text and the tools, and the one for the whole."""
    request_marker: bytes = b""
    """The one for the whole request, which the provider itself puts at its end, or nothing."""
    marks_system_messages: bool = False
    """Whether one of `message_markers` stands on a message of the system."""


# --------------------------------------------------------------------------------------------------------------- read
def split_markers(block: bytes) -> tuple[bytes, tuple[bytes, ...]]:
    """`block` without its markers, and these, in order; the very same block where it has none. The blocks inside a
    result may carry some too."""
    if CACHE_CONTROL_BYTES not in block:
        return block, ()
    try:
        fields = raw_json.members(block)
        inner = _split_inner_blocks(fields)
    except raw_json.JsonSplitError:
        return block, ()
    own = _marker(fields)
    markers = (*(marker for _, found in inner for marker in found), *own)
    if not markers:
        return block, ()
    if inner:
        fields["content"] = raw_json.join_array([less for less, _ in inner])
    if own:
        del fields[MEMBER]
    return raw_json.join_object(fields), markers


def _split_inner_blocks(fields: Mapping[str, bytes]) -> list[tuple[bytes, tuple[bytes, ...]]]:
    content = fields.get("content", b"")
    if fields.get("type") != b'"tool_result"' or not content.startswith(b"[") or CACHE_CONTROL_BYTES not in content:
        return []
    return [split_markers(block) for block in raw_json.items(content)]


def _marker(fields: Mapping[str, bytes]) -> tuple[bytes, ...]:
    """The marker among these members: an object. What is none is no marker, and stays where the client put it."""
    found = fields.get(MEMBER, b"")
    return (found,) if found.startswith(b"{") else ()


def markers_of(fields: Mapping[str, bytes], messages: Sequence[RequestSlice]) -> CacheMarkers:
    """The markers of a request, from its members and what its messages were read from."""
    marked = [(source, _markers_in(_content(source.raw))) for source in messages if source.has_marker_key]
    forms = tuple(marker for _, markers in marked for marker in markers)
    on_system = any(message.role == SYSTEM_ROLE for source, markers in marked if markers for message in source.messages)
    elsewhere = sum(len(_markers_in(fields.get(name, b""))) for name in ("system", "tools"))
    whole = b"".join(_marker(fields))
    last = _last_marked_message(messages, marks_system=on_system) if forms else ""
    return CacheMarkers(forms, last, elsewhere + bool(whole), whole, on_system)


def _last_marked_message(messages: Sequence[RequestSlice], *, marks_system: bool) -> str:
    """The identity of the last message with a marker; nothing where no other behind it may carry one."""
    others = False
    for source in reversed(messages):
        marks = [bool(split_markers(block)[1]) for block in _blocks(source.raw)] if source.has_marker_key else []
        for message in reversed(source.messages):
            blocks = _blocks(message.wire)
            if any(marks[len(marks) - len(blocks) :]):
                return message.identity if others else ""
            others = others or _is_markable(message, blocks, marks_system=marks_system)
            del marks[len(marks) - len(blocks) :]
    return ""


def unmarked_tokens(request: Request, sources: Sequence[RequestSlice]) -> int:
    """Tokens of a client's request behind its last marker; all of them where it has none. `sources` is what its
    messages were read from. A message that is marked inside is divided by the length of its blocks."""
    if _marker(request.fields):
        return 0
    behind = 0
    for source in reversed(sources):
        unmarked = _share_behind_marker(_blocks(source.raw)) if source.has_marker_key else 1.0
        behind += round(unmarked * sum(message.tokens for message in source.messages))
        if unmarked < 1:
            return behind
    system = sum(message.tokens for message in request.head)
    for name, tokens in (("system", system), ("tools", request.tools_tokens)):
        unmarked = _share_behind_marker(_items(request.fields.get(name, b"")))
        behind += round(unmarked * tokens)
        if unmarked < 1:
            break
    return behind


def _share_behind_marker(blocks: Sequence[bytes]) -> float:
    """The share of these blocks, by length, that stands behind the last of them with a marker; 1 where none has one."""
    last = next((at for at in reversed(range(len(blocks))) if split_markers(blocks[at])[1]), None)
    if last is None:
        return 1.0
    return sum(map(len, blocks[last + 1 :])) / sum(map(len, blocks))


def _items(array: bytes) -> list[bytes]:
    if CACHE_CONTROL_BYTES not in array or not array.startswith(b"["):
        return []
    try:
        return raw_json.items(array)
    except raw_json.JsonSplitError:
        return []


def _markers_in(array: bytes) -> list[bytes]:
    return [marker for item in _items(array) for marker in split_markers(item)[1]]


def _content(wire: bytes) -> bytes:
    """The content of a message; of a run of blocks, the run."""
    return wire if wire.startswith(b"[") else raw_json.members(wire).get("content", b"")


def with_hour_markers(array: bytes) -> bytes | None:
    """System text or tools whose markers ask for an hour; None where there is no marker, or one asks for that
    already."""
    items = _items(array)
    marked = {at: fields for at, item in enumerate(items) if _marker(fields := raw_json.members(item))}
    if not marked or any(HOUR_TTL in fields[MEMBER] for fields in marked.values()):
        return None
    for at, fields in marked.items():
        items[at] = raw_json.join_object({**fields, MEMBER: HOUR_MARKER})
    return raw_json.join_array(items)


# -------------------------------------------------------------------------------------------------------------- place
def place_markers(messages: Sequence[Message], fork: int, markers: CacheMarkers) -> list[bytes]:
    """The wires of `messages` with the client's markers. `fork`: how many messages stand before the active frame's own;
    0 for no fork point."""
    wires = [message.wire for message in messages]
    forms = markers.message_markers or ((markers.request_marker,) if markers.request_marker else ())
    places = _marker_positions(messages, fork, markers) if forms else []
    # Long-lived markers must stand before short-lived ones, so the forms keep the client's order, the last one last.
    first = len(forms) - len(places)
    for number, at in enumerate(places):
        wires[at] = with_marker(wires[at], forms[max(0, first + number)])
    return wires


def tokens_behind_markers(messages: Sequence[Message], markers: CacheMarkers) -> int:
    """Tokens at the end of a context that stand behind its last marker, as they are placed; more than it has where not
    even the head in front of it has one."""
    if markers.request_marker:
        return 0
    places = _marker_positions(messages, 0, markers) if markers.message_markers else []
    if not places and not markers.other_marker_count:
        return NOTHING_MARKED
    return sum(message.tokens for message in messages[places[-1] + 1 if places else 0 :])


def _marker_positions(messages: Sequence[Message], fork: int, markers: CacheMarkers) -> list[int]:
    """Where a marker is worth most, in their order: the end, or where the client stopped short of it (unless the
    provider marks it), the end of the request before, where more came since than the API looks back, the fork point,
    and for what more the client has, the ends of earlier user messages from the newest back."""
    stop = next(
        (at for at in reversed(range(len(messages))) if messages[at].identity == markers.last_marked_message),
        len(messages) - 1,
    )
    markable_before = partial(_markable_before, messages, marks_system=markers.marks_system_messages)
    end = next(markable_before(stop + 1), None)
    if end is None:
        return []
    forks = [at for at in islice(markable_before(fork), 1) if at != end]
    ends = [] if markers.request_marker else [end]
    earlier = (
        at
        for at in markable_before(end)
        if messages[at].role in ROLES_SENT_AS_USER and messages[at + 1].role not in ROLES_SENT_AS_USER
    )
    before = list(islice(earlier, 1))
    came = sum(len(_blocks(message.wire)) for at in before for message in messages[at + 1 : end + 1])
    ours = dict.fromkeys(chain(before if came >= LOOKBACK_BLOCKS else (), forks))
    worth = dict.fromkeys(chain(ends, ours, before, earlier))
    room = min(len(markers.message_markers) + len(ours), MAX_MARKERS - markers.other_marker_count)
    return sorted(islice(worth, max(0, room)))


def _markable_before(messages: Sequence[Message], end: int, *, marks_system: bool) -> Iterator[int]:
    """Messages before `end` with a block that may carry a marker, backwards."""
    for at in reversed(range(min(end, len(messages)))):
        if _is_markable(messages[at], _blocks(messages[at].wire), marks_system=marks_system):
            yield at


def _is_markable(message: Message, blocks: Sequence[bytes], *, marks_system: bool) -> bool:
    takes_one = message.role in MARKABLE_ROLES or (marks_system and message.role == SYSTEM_ROLE)
    return takes_one and _last_markable_block(blocks) is not None


def with_marker(wire: bytes, marker: bytes) -> bytes:
    """`wire` with `marker` on its last block that may carry one; a string becomes a block for that."""
    blocks = _blocks(wire)
    at = _last_markable_block(blocks)
    if at is None:
        return wire
    blocks[at] = raw_json.join_object({**raw_json.members(blocks[at]), MEMBER: marker})
    content = raw_json.join_array(blocks)
    return content if wire.startswith(b"[") else raw_json.join_object({**raw_json.members(wire), "content": content})


def _blocks(wire: bytes) -> list[bytes]:
    content = _content(wire)
    if content.startswith(b'"'):
        return [b'{"type":"text","text":' + content + b"}"]
    return raw_json.items(content) if content.startswith(b"[") else []


def _last_markable_block(blocks: Sequence[bytes]) -> int | None:
    return next((at for at in reversed(range(len(blocks))) if _is_markable_block(blocks[at])), None)


def _is_markable_block(block: bytes) -> bool:
    try:
        said = raw_json.parse(block)
    except raw_json.JsonSplitError:
        return False
    if not isinstance(said, dict) or said.get("type") not in MARKABLE_BLOCK_TYPES:
        return False
    return said["type"] != "text" or bool(str(said.get("text", "")).strip())
