"""Imports a conversation: detects the format, reads and validates everything, then writes it in one transaction. An
existing conversation is never overwritten."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from callstack_proxy.management.export.import_files import open_source, read_document, read_lines, refuse_import
from callstack_proxy.management.export.jetbox import read_jetbox_layout
from callstack_proxy.management.export.ledger import is_ledger_export, read_records
from callstack_proxy.management.export.rebuild import rebuild_records
from callstack_proxy.management.export.stack_layout import STATE_FILE, read_stack_layout
from callstack_proxy.management.find_by_id import ConversationUnreadable, all_path_states, newest_path_state
from proxy.core.ledger import (
    Conversation,
    Entry,
    EntryKind,
    Ledger,
    Message,
    ModelResponse,
    Round,
    rebuild_ledger,
    response_id_of,
)
from proxy.core.matching import lookup_keys
from proxy.errors import NotAllowed
from proxy.store import AnchorRecord, LedgerRecord, Record, RequestRecord, Store

_ANY_ANSWER = Message("assistant", b"", "")
"""Used where it only matters that an answer exists."""


@dataclass(frozen=True, slots=True)
class ImportResult:
    conversation: str
    format: str
    frames: int
    entries: int
    requests: int


async def import_conversation(store: Store, tenant: str, place: Path, data_flag: str = "") -> ImportResult:
    """Import the conversation at `place` for a tenant. Raises BadRequest if it cannot be read, and NotAllowed, with the
    command to remove it, if it exists in `store`; `data_flag` is appended to that command."""
    name, conversation, records = read_conversation(place)
    ledger = _validate(conversation, records)
    if await store.load(tenant, conversation.id) is not None:
        removed = f"`callstack forget {conversation.id}{data_flag}` removes it"
        raise NotAllowed(f"Conversation {conversation.id} is here already. {removed}.", code="known_already")
    await _refuse_known_requests(store, tenant, records)
    owner = replace(conversation, tenant=tenant)
    await store.wait_until_durable(store.write(tenant, [owner, *records, *_anchors(ledger)]))
    return ImportResult(
        conversation.id,
        name,
        len(newest_path_state(ledger).tree.frames),
        len(ledger.entries),
        sum(isinstance(record, RequestRecord) for record in records),
    )


def read_conversation(place: Path) -> tuple[str, Conversation, list[Record]]:
    """The format name, the conversation without an owner, and its records. Raises BadRequest."""
    if not place.exists():
        refuse_import(f"There is nothing at {place}")
    try:
        if place.is_file():
            with place.open("rb") as source:
                if is_ledger_export(source.readline(1 << 20)):
                    source.seek(0)
                    return ("ledger", *read_records(read_lines(source, place.name)))
        return _read_layout(place)
    except OSError as error:
        return refuse_import(f"{place} cannot be read: {error.strerror or error}")


def _read_layout(place: Path) -> tuple[str, Conversation, list[Record]]:
    with open_source(place) as conversations:
        if STATE_FILE not in conversations.file_names():
            refuse_import(f"{place} has no {STATE_FILE}; what can be imported are the formats ledger, stack and jetbox")
        state = read_document(conversations, STATE_FILE)
        if "goal" in state:
            return ("jetbox", *rebuild_records(read_jetbox_layout(conversations, state)))
        if "frames" in state:
            return ("stack", *rebuild_records(read_stack_layout(conversations, state)))
        return refuse_import(f"{STATE_FILE} has neither `frames` (the format stack) nor `goal` (jetbox)")


# -------------------------------------------------------------------------------------------------------------- checks
def _validate(conversation: Conversation, records: Sequence[Record]) -> Ledger:
    """The ledger as the store would load it, with every path replayed. Raises BadRequest."""
    if not conversation.id:
        refuse_import("The conversation has no id")
    values = [record.value for record in records if isinstance(record, LedgerRecord)]
    ledger = rebuild_ledger(conversation, values)
    missing = sum(isinstance(value, Entry) for value in values) - len(ledger.entries)
    if missing:
        where = "are not there, or are there twice, as where a file was cut or edited"
        refuse_import(f"{missing} entries hang on entries that {where}")
    try:
        for path_state in all_path_states(ledger):
            if path_state.tree.active and path_state.tree.active not in path_state.tree.frames:
                refuse_import("The active frame is not among the frames")
    except ConversationUnreadable as error:
        cause = error.__cause__
        refuse_import(f"What it says does not make a conversation ({type(cause).__name__}: {cause})")
    return ledger


async def _refuse_known_requests(store: Store, tenant: str, records: Sequence[Record]) -> None:
    for record in records:
        if isinstance(record, RequestRecord):
            known = await store.request(tenant, record.id)
            if known is not None and known.record.id == record.id:
                raise NotAllowed(f"Request {record.id} belongs to another conversation here.", code="known_already")


# -------------------------------------------------------------------------------------------------------------- anchors
def _anchors(ledger: Ledger) -> Iterator[AnchorRecord]:
    """Anchors of every answer on every path, by which a client that continues the conversation is recognized."""
    about = ledger.conversation
    messages_before: dict[str, tuple[Message, ...]] = {"": ()}
    for entry in ledger.entries.values():
        earlier = messages_before.get(entry.parent, ())
        if entry.is_overlay:
            continue
        rounds = _rounds_of(ledger, entry)
        if rounds:
            keys = lookup_keys.anchors_of_turn(earlier, rounds)
            yield AnchorRecord(about.id, about.hint, keys, entry.created)
            if response_id := response_id_of(rounds):
                yield AnchorRecord(about.id, "", (lookup_keys.response_anchor(response_id),), entry.created)
            messages_before[entry.id] = (_ANY_ANSWER,)
        else:
            # Only what stands before the first answer is asked for; behind it one stand-in is enough.
            messages_before[entry.id] = (
                earlier if _ANY_ANSWER in earlier or not entry.message else (*earlier, entry.message)
            )


def _rounds_of(ledger: Ledger, entry: Entry) -> tuple[Round, ...]:
    if entry.kind is EntryKind.TURN:
        return ledger.rounds.get(entry.id, ())
    message = entry.message
    return (Round(entry.id, 1, ModelResponse(message), last=True),) if message and message.role == "assistant" else ()
