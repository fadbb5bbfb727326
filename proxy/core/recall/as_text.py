"""Renders a context as one text within a token limit, for a reader that cannot receive the messages themselves.

Priority: user messages, then traces and notes, then the newest steps (an answer with its results). Parts are shown in
context order and unchanged; a line states how many were left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum, auto

import msgspec

from proxy.core.context import Context
from proxy.core.frames import PathState
from proxy.core.ledger import ROUND_SEPARATOR, EntryKind, Message
from proxy.core.recall.recalled_texts import is_recall
from proxy.core.text import escape_attribute, escape_own_tags, escape_xml, estimate_tokens

LABEL_TOKENS = 8
"""Upper limit for the label above a message."""
_NONCE_ATTRIBUTE = re.compile(r' nonce="[0-9a-f]+"')
"""Our nonce is meant only for the model that works in the conversation."""


class PartKind(Enum):
    USER = auto()
    TRACE = auto()
    STEP = auto()


class ContextPart(msgspec.Struct, frozen=True):
    """A text of the context with its estimated tokens."""

    kind: PartKind
    text: str
    tokens: int


def context_parts(path_state: PathState, context: Context) -> list[ContextPart]:
    """The parts of the context in order, preceded by user messages that neither the context nor its traces contain."""
    parts = list(
        _message_parts(context.messages, user_message_ids={id(message) for message in _user_messages(path_state)})
    )
    shown = {part.text for part in parts if part.kind is PartKind.USER}
    traces = "\n".join(part.text for part in parts if part.kind is PartKind.TRACE)
    unseen = (m for m in _user_messages(path_state) if _user_part(m).text not in shown)
    forms = (str, escape_own_tags, escape_xml, escape_attribute)  # traces of earlier versions escaped more
    missing = [m for m in unseen if m.text.strip() and not any(form(m.text) in traces for form in forms)]
    return [*map(_user_part, missing), *parts]


def parts_as_text(parts: Sequence[ContextPart], room: int) -> str:
    """The parts that fit `room` tokens, as one text."""
    kept: set[int] = set()
    for kind in PartKind:
        for position in (position for position in range(len(parts) - 1, -1, -1) if parts[position].kind is kind):
            if parts[position].tokens > room:
                break  # the newest, without a gap
            room -= parts[position].tokens
            kept.add(position)
    return ROUND_SEPARATOR.join(_with_gap_lines(parts, kept))


def _with_gap_lines(parts: Sequence[ContextPart], kept: set[int]) -> Iterator[str]:
    """The kept texts, with one line for each gap."""
    gap = 0
    for position, part in enumerate(parts):
        if position not in kept:
            gap += 1
            continue
        if gap:
            yield _gap_line(gap)
            gap = 0
        yield part.text
    if gap:
        yield _gap_line(gap)


def _gap_line(count: int) -> str:
    return f"[{count} older {'part is' if count == 1 else 'parts are'} left out here]"


# --------------------------------------------------------------------------------------------------------------- parts
def _user_messages(path_state: PathState) -> list[Message]:
    entries = (
        path_entry.entry
        for path_entry in path_state.entries
        if path_entry.entry.kind in (EntryKind.MESSAGE, EntryKind.USER_OVERLAY)
    )
    return [entry.message for entry in entries if entry.message and entry.message.role == "user"]


def _user_part(message: Message) -> ContextPart:
    return ContextPart(PartKind.USER, f"[user]\n{message.text}", message.tokens + LABEL_TOKENS)


def _message_parts(messages: Iterable[Message], *, user_message_ids: set[int]) -> Iterator[ContextPart]:
    """`user_message_ids` are the Python ids of real user messages; other messages in the user role are ours."""
    step: list[Message] = []
    notes: list[ContextPart] = []
    stack_call_ids: set[str] = set()
    for message in messages:
        if message.answers in stack_call_ids:
            notes.append(_note_part(message))
            continue
        if message.answers:
            step.append(message)
            continue
        yield from (*_step_part(step), *notes)
        step, notes, stack_call_ids = [], [], set()
        if message.role == "assistant":
            step.append(message)
            stack_call_ids = {call.id for call in message.calls if call.is_stack_call and not is_recall(call)}
        else:
            yield _user_part(message) if id(message) in user_message_ids else _note_part(message)
    yield from (*_step_part(step), *notes)


def _note_part(message: Message) -> ContextPart:
    """A trace, a note of the proxy, or the result of a stack call."""
    text = _NONCE_ATTRIBUTE.sub("", message.text)
    return ContextPart(PartKind.TRACE, f"[note of the proxy]\n{text}", message.tokens or estimate_tokens(text))


def _step_part(messages: Sequence[Message]) -> Iterator[ContextPart]:
    texts = [text for message in messages for text in _message_texts(message)]
    if texts:
        tokens = sum(message.tokens + LABEL_TOKENS * (1 + len(message.calls)) for message in messages)
        yield ContextPart(PartKind.STEP, "\n".join(texts), tokens)


def _message_texts(message: Message) -> Iterator[str]:
    if message.role != "assistant":
        yield f"[result]\n{message.text}"
        return
    if message.text.strip():
        yield f"[assistant]\n{message.text}"
    yield from (f"[call of {call.name}] {call.arguments}" for call in message.calls if not call.is_stack_call)
