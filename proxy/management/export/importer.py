"""A conversation taken in: which format it is in, what it says, and into the store.

The law: **all of it or nothing**. Everything is read, and looked at as the proxy will look at it, before anything is
written; then it is one transaction. What is there already is never written over.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from proxy.core.ledger import Conversation, Entry, EntryKind, Ledger, Message, ModelResponse, Round, response_id_of
from proxy.core.matching import lookup_keys as anchors
from proxy.errors import NotAllowed
from proxy.management.export import jetbox as told_by_jetbox
from proxy.management.export import ledger as whole
from proxy.management.export import stack_layout as told_by_layout
from proxy.management.export.reading import open_source, read_document, read_lines, refuse_import
from proxy.management.export.rebuild import rebuild_records as rebuilt
from proxy.management.export.stack_layout import STATE_FILE
from proxy.management.views import ConversationUnreadable, all_path_states, newest_path_state
from proxy.store import AnchorRecord, LedgerRecord, Record, RequestRecord, Store, rebuild_ledger

_ANY_ANSWER = Message("assistant", b"", "")
"""Stands for an answer where only that there was one counts."""


@dataclass(frozen=True, slots=True)
class ImportResult:
    """What came in."""

    conversation: str
    format: str
    frames: int
    entries: int
    requests: int


async def import_conversation(store: Store, tenant: str, place: Path, data_flag: str = "") -> ImportResult:
    """Take in the conversation that lies at `place`, for a tenant. Raises BadRequest for what cannot be read, and
    NotAllowed for what is here already, with the command that removes it from `store`: `data_flag` stands behind."""
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
    """The name of the format, the conversation without an owner, and what belongs to it. Raises BadRequest."""
    if not place.exists():
        refuse_import(f"There is nothing at {place}")
    try:
        if place.is_file():
            with place.open("rb") as source:
                if whole.is_ledger_export(source.readline(1 << 20)):
                    source.seek(0)
                    return ("ledger", *whole.read_records(read_lines(source, place.name)))
        return _read_layout(place)
    except OSError as error:
        return refuse_import(f"{place} cannot be read: {error.strerror or error}")


def _read_layout(place: Path) -> tuple[str, Conversation, list[Record]]:
    with open_source(place) as conversations:
        if STATE_FILE not in conversations.file_names():
            refuse_import(f"{place} has no {STATE_FILE}; what can be imported are the formats ledger, stack and jetbox")
        state = read_document(conversations, STATE_FILE)
        if "goal" in state:
            return ("jetbox", *rebuilt(told_by_jetbox.read_jetbox_layout(conversations, state)))
        if "frames" in state:
            return ("stack", *rebuilt(told_by_layout.read_stack_layout(conversations, state)))
        return refuse_import(f"{STATE_FILE} has neither `frames` (the format stack) nor `goal` (jetbox)")


# -------------------------------------------------------------------------------------------------------------- checks
def _validate(conversation: Conversation, records: Sequence[Record]) -> Ledger:
    """The ledger as the store will give it back, every path of it followed. Raises BadRequest."""
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
    """Keys under which a client that goes on with it is recognised, for every answer on every path."""
    about = ledger.conversation
    before: dict[str, tuple[Message, ...]] = {"": ()}
    for entry in ledger.entries.values():
        heard = before.get(entry.parent, ())
        if entry.is_overlay:
            continue
        rounds = _rounds_of(ledger, entry)
        if rounds:
            keys = anchors.anchors_of_turn(heard, rounds)
            yield AnchorRecord(about.id, about.hint, keys, entry.created)
            if named := response_id_of(rounds):
                yield AnchorRecord(about.id, "", (anchors.response_anchor(named),), entry.created)
            before[entry.id] = (_ANY_ANSWER,)
        else:
            # Only what stands before the first answer is asked for; behind it one stand-in is enough.
            before[entry.id] = heard if _ANY_ANSWER in heard or not entry.message else (*heard, entry.message)


def _rounds_of(ledger: Ledger, entry: Entry) -> tuple[Round, ...]:
    """An answer that was imported with a client's history counts like one of ours."""
    if entry.kind is EntryKind.TURN:
        return ledger.rounds.get(entry.id, ())
    said = entry.message
    return (Round(entry.id, 1, ModelResponse(said), last=True),) if said and said.role == "assistant" else ()
