"""The format `messages`: a request body with which any client can continue, in the conversation's wire format.

By default it is the context of the active frame, with stack calls removed and their results as user notes; with
the option `--untrimmed`, the newest request as the client sent it. Reasoning bound to another prefix is removed,
because providers would refuse it. Messages of the client are not edited.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import replace

from callstack_proxy.management.export.base import JSON, ExportFormat, ExportOptions
from callstack_proxy.management.export.redaction import without_credentials
from callstack_proxy.management.export.source import ExportInput
from proxy.accounting import Tariff, Tariffs
from proxy.core.context import ContextForm, build_context
from proxy.core.frames import PathState
from proxy.core.ledger import ROUND_SEPARATOR, Call, Entry, EntryKind, Ledger, Message, Request, is_stack_tool
from proxy.dialects import (
    Dialect,
    DialectComposer,
    ParseCache,
    RenderOptions,
    RequestParseError,
    ResponseReferences,
    dialect_named,
    raw_json,
)
from proxy.errors import NotAllowed
from proxy.exchange import stored_extras_at

DEFAULT_TARIFFS = Tariffs()
"""The defaults, since the export may be used outside this configuration."""
NOTE_HEADING = "[Note kept from earlier work]"
"""Heading of a stack result that becomes a user message."""
CALL_FIELDS = ("tool_calls", "content")
"""Members of an assistant message that may hold calls."""
PROVIDER_STATE_FIELDS = frozenset({"previous_response_id", "conversation", "background"})
"""Members that refer to state kept by the provider; this body is complete without it."""


# ------------------------------------------------------------------------------------------------------------ untrimmed
def original_body(export_input: ExportInput) -> bytes:
    """The client's newest body without credentials, with references to earlier answers resolved. Raises NotAllowed if
    no body was stored."""
    if export_input.newest_request is None:
        raise NotAllowed(
            "No request of this conversation was kept with its body, so its whole history cannot be told as the client "
            "sent it. The format `logs` has every message; `messages` without `whole` has the line of the active frame."
        )
    body = without_credentials(b"".join(export_input.newest_request.body))
    dialect = dialect_named(export_input.ledger.conversation.dialect)
    return _resolve_references(export_input.ledger, dialect, body, export_input.newest_request.entry)


def _resolve_references(ledger: Ledger, dialect: Dialect, body: bytes, entry: str) -> bytes:
    """Insert the messages up to the earlier answer that the body refers to, if any. `entry` is that of the request."""
    references = dialect.references
    if references is None or entry not in ledger.entries:
        return body
    try:
        request = dialect.parse_request(body, ParseCache())
    except RequestParseError:
        return body
    path = ledger.path(entry)
    turn = next((i for i in range(len(path) - 1, -1, -1) if path[i].kind is EntryKind.TURN), -1)
    if not references.previous_response_id(request) or turn < 0:
        return body
    messages = (_client_visible_message(ledger, references, path_entry) for path_entry in path[: turn + 1])
    earlier = [
        *references.opening_messages(stored_extras_at(ledger, path[turn].id)),
        *(message for message in messages if message),
    ]
    items = {
        name: raw for rounds in ledger.rounds.values() for r in rounds
        for name, raw in references.items_by_id(r.spoken.message).items()
    }  # fmt: skip
    return references.resolve(request, earlier, items).body


def _client_visible_message(ledger: Ledger, references: ResponseReferences, entry: Entry) -> Message | None:
    if entry.kind is not EntryKind.TURN:
        return entry.message
    return references.client_view([done.spoken.visible_message for done in ledger.rounds.get(entry.id, ())])


# -------------------------------------------------------------------------------------------------------------- trimmed
def context_body(export_input: ExportInput) -> bytes:
    """The context of the active frame as a body, behind the client's own system text and tools."""
    dialect = dialect_named(export_input.ledger.conversation.dialect)
    request = _envelope_request(export_input, dialect)
    written_only = DialectComposer(dialect, len)  # nothing is decided by tokens here
    tariff = DEFAULT_TARIFFS.tariff_of(request.model)
    path_state = _without_our_tools(export_input.path_state)
    alternate = tariff.roles == "alternate"
    suffixed = alternate or tariff.after_tool == "suffix"
    context = build_context(path_state, written_only, ContextForm(suffixed=suffixed, alternate=alternate)).messages
    client_messages = _client_messages(context, dialect, suffixed=suffixed)
    if export_input.path_state.tree.is_awake:
        client_messages = _without_bound_reasoning(client_messages, dialect, request, tariff)
    head = dialect.extend_head(request, "")
    return b"".join(dialect.render(request, client_messages, head, RenderOptions(include_usage=False)))


def _without_our_tools(path_state: PathState) -> PathState:
    return replace(path_state, tree=replace(path_state.tree, wake_state=None))


def _envelope_request(export_input: ExportInput, dialect: Dialect) -> Request:
    newest = export_input.newest_request
    if newest is not None:
        body = without_credentials(b"".join(newest.body))
        try:
            request = dialect.parse_request(body, ParseCache())
            return replace(
                request, fields={n: raw for n, raw in request.fields.items() if n not in PROVIDER_STATE_FIELDS}
            )
        except RequestParseError:
            pass  # it was relayed unchanged; the export then has the context alone
    models = [thread.model for thread in export_input.ledger.threads.values()]
    models += [receipt.model for receipt in reversed(export_input.receipts)]
    model = next(filter(None, models), "unknown")
    fields = {"model": model, **dialect.minimal_body}
    return dialect.parse_request(raw_json.encode(fields), ParseCache())


def _client_messages(context: Sequence[Message], dialect: Dialect, *, suffixed: bool) -> list[Message]:
    """The context without our parts. With `suffixed`, notes are appended to a tool result instead of following it."""
    messages: list[Message] = []
    stack_calls: dict[str, Call] = {}
    notes: list[str] = []
    for message in context:
        if message.answers in stack_calls:
            notes.append(f"{NOTE_HEADING}\n{message.text}")
            continue
        if not message.answers:  # a call group ended: nothing may stand between a call and its result
            _append_notes(notes, messages, dialect, suffixed=suffixed)
        if message.role == "assistant":
            stack_calls = {call.id: call for call in message.calls if call.is_stack_call}
            rest = without_stack_calls(message)
            messages += [rest] if rest.calls or rest.text.strip() else []
        else:
            messages.append(message)
    _append_notes(notes, messages, dialect, suffixed=suffixed)
    return messages


def _append_notes(notes: list[str], messages: list[Message], dialect: Dialect, *, suffixed: bool) -> None:
    if notes and suffixed and messages and messages[-1].answers:
        messages[-1] = dialect.joined(messages[-1], dialect.user_message(ROUND_SEPARATOR.join(notes))) or messages[-1]
    else:
        messages += map(dialect.user_message, notes)
    notes.clear()


def _without_bound_reasoning(
    messages: Sequence[Message], dialect: Dialect, request: Request, tariff: Tariff
) -> list[Message]:
    """Remove reasoning, except where an unfinished tool loop must begin with it, and what an item needs."""
    by_request = dialect.must_open_with_reasoning(request)
    required = tariff.thinking_in_loop == "required" if by_request is None else by_request
    in_loop = bool(messages) and bool(messages[-1].answers)
    last = next((message for message in reversed(messages) if message.role == "assistant"), None)
    opening = last if required and in_loop else None
    strip = dialect.without_unneeded_reasoning or dialect.without_reasoning
    return [message if message is opening else strip(message) for message in messages]


def without_stack_calls(message: Message) -> Message:
    """The message without stack calls; all other members and blocks are unchanged."""
    if not any(call.is_stack_call for call in message.calls):
        return message
    calls = tuple(call for call in message.calls if not call.is_stack_call)
    if message.wire.startswith(b"["):
        return replace(message, wire=_without_stack_items(message.wire), calls=calls)
    fields = raw_json.members(message.wire)
    kept = {name: _without_stack_items(raw) if name in CALL_FIELDS else raw for name, raw in fields.items()}
    members = {name: raw for name, raw in kept.items() if name != "tool_calls" or raw != b"[]"}
    return replace(message, wire=raw_json.join_object(members), calls=calls)


def _without_stack_items(array: bytes) -> bytes:
    if not array.lstrip().startswith(b"["):
        return array
    return raw_json.join_array([item for item in raw_json.items(array) if not _is_stack_call(item)])


class _NamedCall(msgspec.Struct):
    type: str = ""
    name: str = ""
    function: dict[str, object] | None = None
    custom: dict[str, object] | None = None


def _is_stack_call(item: bytes) -> bool:
    try:
        named = msgspec.json.decode(item, type=_NamedCall)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return False
    inner = named.function or named.custom
    name = inner.get("name") if inner else named.name
    return isinstance(name, str) and named.type != "text" and is_stack_tool(name)


def _render(export_input: ExportInput, options: ExportOptions) -> Iterator[bytes]:
    return iter((original_body(export_input) if options.untrimmed else context_body(export_input), b"\n"))


MESSAGES = ExportFormat("a request body that any client can go on with", JSON, ".messages.json", _render)
