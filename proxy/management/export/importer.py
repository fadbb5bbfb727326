"""A conversation taken in: which format it is in, what it says, and into the store.

The law: **all of it or nothing**. Everything is read, and looked at as the proxy will look at it, before anything is
written; then it is one transaction. What is there already is never written over.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from proxy.core.ledger.ledger import Conversation, Entry, Kind, Ledger, Round, answer_of
from proxy.core.ledger.messages import Message, Spoken
from proxy.core.matching import lookup_keys as anchors
from proxy.errors import NotAllowed
from proxy.management.export import jetbox as told_by_jetbox
from proxy.management.export import ledger as whole
from proxy.management.export import stack_layout as told_by_layout
from proxy.management.export.reading import document, refuse, rows, shelf_at
from proxy.management.export.rebuild import records as rebuilt
from proxy.management.export.stack_layout import STATE
from proxy.management.views.lookup import Unreadable, newest_story, stories
from proxy.store import Anchored, Owned, Record, RequestRecord, Store
from proxy.store.read import replayed

_SOMEBODY = Message("assistant", b"", "")
"""Stands for an answer where only that there was one counts."""


@dataclass(frozen=True, slots=True)
class Imported:
    """What came in."""

    conversation: str
    format: str
    frames: int
    entries: int
    requests: int


async def imported(store: Store, tenant: str, place: Path, data_flag: str = "") -> Imported:
    """Take in the conversation that lies at `place`, for a tenant. Raises BadRequest for what cannot be read, and
    NotAllowed for what is here already, with the command that removes it from `store`: `data_flag` stands behind."""
    name, conversation, records = read(place)
    ledger = _checked(conversation, records)
    if await store.load(tenant, conversation.id) is not None:
        removed = f"`callstack forget {conversation.id}{data_flag}` removes it"
        raise NotAllowed(f"Conversation {conversation.id} is here already. {removed}.", code="known_already")
    await _refuse_known_requests(store, tenant, records)
    owner = replace(conversation, tenant=tenant)
    await store.durable(store.write(tenant, [owner, *records, *_anchors(ledger)]))
    return Imported(
        conversation.id,
        name,
        len(newest_story(ledger).tree.frames),
        len(ledger.entries),
        sum(isinstance(record, RequestRecord) for record in records),
    )


def read(place: Path) -> tuple[str, Conversation, list[Record]]:
    """The name of the format, the conversation without an owner, and what belongs to it. Raises BadRequest."""
    if not place.exists():
        refuse(f"There is nothing at {place}")
    try:
        if place.is_file():
            with place.open("rb") as source:
                if whole.is_whole(source.readline(1 << 20)):
                    source.seek(0)
                    return ("ledger", *whole.records(rows(source, place.name)))
        return _layout(place)
    except OSError as error:
        return refuse(f"{place} cannot be read: {error.strerror or error}")


def _layout(place: Path) -> tuple[str, Conversation, list[Record]]:
    with shelf_at(place) as shelf:
        if STATE not in shelf.names():
            refuse(f"{place} has no {STATE}; what can be imported are the formats ledger, stack and jetbox")
        state = document(shelf, STATE)
        if "goal" in state:
            return ("jetbox", *rebuilt(told_by_jetbox.told(shelf, state)))
        if "frames" in state:
            return ("stack", *rebuilt(told_by_layout.told(shelf, state)))
        return refuse(f"{STATE} has neither `frames` (the format stack) nor `goal` (jetbox)")


# -------------------------------------------------------------------------------------------------------------- checks
def _checked(conversation: Conversation, records: Sequence[Record]) -> Ledger:
    """The ledger as the store will give it back, every path of it followed. Raises BadRequest."""
    if not conversation.id:
        refuse("The conversation has no id")
    values = [record.value for record in records if isinstance(record, Owned)]
    ledger = replayed(conversation, values)
    missing = sum(isinstance(value, Entry) for value in values) - len(ledger.entries)
    if missing:
        where = "are not there, or are there twice, as where a file was cut or edited"
        refuse(f"{missing} entries hang on entries that {where}")
    try:
        for story in stories(ledger):
            if story.tree.active and story.tree.active not in story.tree.frames:
                refuse("The active frame is not among the frames")
    except Unreadable as error:
        cause = error.__cause__
        refuse(f"What it says does not make a conversation ({type(cause).__name__}: {cause})")
    return ledger


async def _refuse_known_requests(store: Store, tenant: str, records: Sequence[Record]) -> None:
    for record in records:
        if isinstance(record, RequestRecord):
            known = await store.request(tenant, record.id)
            if known is not None and known.record.id == record.id:
                raise NotAllowed(f"Request {record.id} belongs to another conversation here.", code="known_already")


# -------------------------------------------------------------------------------------------------------------- anchors
def _anchors(ledger: Ledger) -> Iterator[Anchored]:
    """Keys under which a client that goes on with it is recognised, for every answer on every path."""
    about = ledger.conversation
    before: dict[str, tuple[Message, ...]] = {"": ()}
    for entry in ledger.entries.values():
        heard = before.get(entry.parent, ())
        if entry.is_beside:
            continue
        rounds = _rounds(ledger, entry)
        if rounds:
            keys = anchors.of_turn(heard, rounds)
            yield Anchored(about.id, about.hint, keys, entry.created)
            if named := answer_of(rounds):
                yield Anchored(about.id, "", (anchors.of_answer(named),), entry.created)
            before[entry.id] = (_SOMEBODY,)
        else:
            # Only what stands before the first answer is asked for; behind it one stand-in is enough.
            before[entry.id] = heard if _SOMEBODY in heard or not entry.message else (*heard, entry.message)


def _rounds(ledger: Ledger, entry: Entry) -> tuple[Round, ...]:
    """An answer that was imported with a client's history counts like one of ours."""
    if entry.kind is Kind.TURN:
        return ledger.rounds.get(entry.id, ())
    said = entry.message
    return (Round(entry.id, 1, Spoken(said), last=True),) if said and said.role == "assistant" else ()
