"""The format `messages`: a request body with which any client can go on, in the conversation's own wire format.

`trimmed` is the line of the active frame, as the model last worked with it: finished frames are what they left. What
is ours in it is taken out: stack calls are left out of the messages that made them, and what they were answered with
stands behind as a note of the user. `untrimmed` is the client's newest request as it was sent.

The laws: **each call has its result behind it**, and **reasoning that was bound to another beginning is left out**: a
provider would refuse it. What this module does not do: it edits no message of the client.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from proxy.accounting.pricing import Tariff, Tariffs
from proxy.core.context.message_list import assemble
from proxy.core.frames.path_state import Story
from proxy.core.ledger.ledger import JOINT, Entry, Kind, Ledger
from proxy.core.ledger.messages import Call, Message, Request, is_stack_tool
from proxy.dialects import DIALECTS, OPENAI_CHAT, Dialect, Known, References, Unreadable, Wanted
from proxy.dialects import raw_json as slices
from proxy.dialects.compose import Writer
from proxy.errors import NotAllowed
from proxy.exchange.previous_responses import kept_at
from proxy.management.export.redaction import without_credentials
from proxy.management.export.source import Material

BUILT_IN = Tariffs()
"""What models ask of a history; a configuration belongs to the house, and this leaves it."""
NOTE = "[Note kept from earlier work]"
"""What stands above the answer of one of our tools where it becomes a message."""
ARRAYS = ("tool_calls", "content")
"""Members of an assistant message that may hold calls."""
ELSEWHERE = frozenset({"previous_response_id", "conversation", "background"})
"""Members that name what a provider keeps: this body holds all of it itself."""
STAND_INS: Mapping[str, Mapping[str, object]] = {
    "openai_chat": {"messages": [{"role": "user", "content": "-"}]},
    "anthropic_messages": {"max_tokens": 8192, "messages": [{"role": "user", "content": "-"}]},
    "openai_responses": {"input": [{"role": "user", "content": "-"}]},
}
"""The rest of a body, by dialect, where no request of the client was kept."""


def dialect_of(name: str) -> Dialect:
    """The dialect by its name; that of conversations from before there were several is chat."""
    return next((dialect for dialect in DIALECTS.values() if dialect.name == name), OPENAI_CHAT)


# ------------------------------------------------------------------------------------------------------------ untrimmed
def untrimmed(material: Material) -> bytes:
    """The client's newest body, less credentials; what it only names is put in, as the client was told it. Raises
    NotAllowed where none was kept."""
    if material.request is None:
        raise NotAllowed(
            "No request of this conversation was kept with its body, so its whole history cannot be told as the client "
            "sent it. The format `logs` has every message; `messages` without `whole` has the line of the active frame."
        )
    body = without_credentials(b"".join(material.request.body))
    dialect = dialect_of(material.ledger.conversation.dialect)
    return _completed(material.ledger, dialect, body, material.request.entry)


def _completed(ledger: Ledger, dialect: Dialect, body: bytes, entry: str) -> bytes:
    """A body that names an earlier answer, behind everything up to that answer; any other as it is. `entry` is where
    the request stands."""
    references = dialect.references
    if references is None or entry not in ledger.entries:
        return body
    try:
        request = dialect.read(body, Known())
    except Unreadable:
        return body
    path = ledger.path(entry)
    turn = next((at for at in range(len(path) - 1, -1, -1) if path[at].kind is Kind.TURN), -1)
    if not references.previous(request) or turn < 0:
        return body
    said = (_seen(ledger, references, known) for known in path[: turn + 1])
    told = [*references.opening(kept_at(ledger, path[turn].id)), *(message for message in said if message)]
    items = {
        name: raw for rounds in ledger.rounds.values() for done in rounds
        for name, raw in references.items(done.spoken.message).items()
    }  # fmt: skip
    return references.resolved(request, told, items).body


def _seen(ledger: Ledger, references: References, entry: Entry) -> Message | None:
    """What the client sent, or was shown."""
    if entry.kind is not Kind.TURN:
        return entry.message
    return references.seen([done.spoken.shown for done in ledger.rounds.get(entry.id, ())])


# -------------------------------------------------------------------------------------------------------------- trimmed
def trimmed(material: Material) -> bytes:
    """The line of the active frame, ready to be sent behind the client's own system text and tools."""
    dialect = dialect_of(material.ledger.conversation.dialect)
    request = _request(material, dialect)
    written_only = Writer(dialect, len)  # nothing is decided by tokens here
    tariff = BUILT_IN.of(request.model)
    story = _without_our_tools(material.story)
    line = assemble(story, written_only, suffixed=tariff.after_tool == "suffix").messages
    told = _told(line, dialect, suffixed=tariff.after_tool == "suffix")
    if material.story.tree.awake:
        told = _unbound(told, dialect, request, tariff)
    head = dialect.extended_head(request, "")
    return b"".join(dialect.render(request, told, head, Wanted(include_usage=False)))


def _without_our_tools(story: Story) -> Story:
    """The path as if nobody had told the model of our tools: where that stands among the messages, it goes."""
    return replace(story, tree=replace(story.tree, waking=None))


def _request(material: Material, dialect: Dialect) -> Request:
    """The newest request as the envelope of the line, or the least that the dialect takes."""
    newest = material.request
    if newest is not None:
        body = without_credentials(b"".join(newest.body))
        try:
            request = dialect.read(body, Known())
            return replace(request, fields={n: raw for n, raw in request.fields.items() if n not in ELSEWHERE})
        except Unreadable:
            pass  # it passed as it was; what is told of it then is the line alone
    model = next((thread.model for thread in material.ledger.threads.values() if thread.model), "")
    told = {"model": model or _model(material) or "unknown", **STAND_INS[dialect.name]}
    return dialect.read(slices.encoded(told), Known())


def _model(material: Material) -> str:
    """The one that answered last."""
    return next((receipt.model for receipt in reversed(material.receipts)), "")


def _told(line: Sequence[Message], dialect: Dialect, *, suffixed: bool) -> list[Message]:
    """The line with nothing of ours in it that a client without us could not send. `suffixed`: what our tools answered
    may not stand behind a result, and is told at the end of it."""
    told: list[Message] = []
    ours: dict[str, Call] = {}
    notes: list[str] = []
    for message in line:
        if message.answers in ours:
            notes.append(f"{NOTE}\n{message.text}")
            continue
        if not message.answers:  # a call group ended: nothing may stand between a call and its result
            _tell(notes, told, dialect, suffixed=suffixed)
        if message.role == "assistant":
            ours = {call.id: call for call in message.calls if call.is_ours}
            rest = without_stack_calls(message)
            told += [rest] if rest.calls or rest.text.strip() else []
        else:
            told.append(message)
    _tell(notes, told, dialect, suffixed=suffixed)
    return told


def _tell(notes: list[str], told: list[Message], dialect: Dialect, *, suffixed: bool) -> None:
    """Put the notes, and have none left."""
    if notes and suffixed and told and told[-1].answers:
        told[-1] = dialect.retold(told[-1], JOINT.join((told[-1].text, *notes)))
    else:
        told += map(dialect.user_message, notes)
    notes.clear()


def _unbound(told: Sequence[Message], dialect: Dialect, request: Request, tariff: Tariff) -> list[Message]:
    """Without reasoning, but what a tool loop that goes on must open with."""
    by_request = dialect.manual(request)
    required = tariff.thinking_in_loop == "required" if by_request is None else by_request
    in_loop = bool(told) and bool(told[-1].answers)
    last = next((message for message in reversed(told) if message.role == "assistant"), None)
    opening = last if required and in_loop else None
    return [message if message is opening else dialect.without_reasoning(message) for message in told]


def without_stack_calls(message: Message) -> Message:
    """The same message less the calls of ours; every other member and block as it was."""
    if not any(call.is_ours for call in message.calls):
        return message
    calls = tuple(call for call in message.calls if not call.is_ours)
    if message.wire.startswith(b"["):
        return replace(message, wire=_without(message.wire), calls=calls)
    fields = slices.members(message.wire)
    kept = {name: _without(raw) if name in ARRAYS else raw for name, raw in fields.items()}
    return replace(message, wire=slices.object_of({n: r for n, r in kept.items() if n != "tool_calls" or r != b"[]"}),
                   calls=calls)  # fmt: skip


def _without(array: bytes) -> bytes:
    if not array.lstrip().startswith(b"["):
        return array
    return slices.array_of([item for item in slices.items(array) if not _is_stack_call(item)])


class _Named(msgspec.Struct):
    """Where the dialects write which tool is called."""

    type: str = ""
    name: str = ""
    function: dict[str, object] | None = None
    custom: dict[str, object] | None = None


def _is_stack_call(item: bytes) -> bool:
    """Whether an item of a list of calls, blocks or items is a call by a name of ours."""
    try:
        said = msgspec.json.decode(item, type=_Named)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return False
    inner = said.function or said.custom
    name = inner.get("name") if inner else said.name
    return isinstance(name, str) and said.type != "text" and is_stack_tool(name)
