"""Values to store: a few by hand for examples, and whole random conversations for properties."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from proxy.core.frames.events import FrameEntered, FramePopped, RootStarted, as_ledger_event
from proxy.core.frames.tree import Status
from proxy.core.ledger.ledger import Conversation, Entry, EntryKind, Ledger, LedgerEvent, LedgerItem, Round, Thread
from proxy.core.ledger.messages import Call, Message, ModelResponse, Usage, identity_of
from proxy.core.ledger.queued_messages import DeliveryState, Lane, QueuedMessage
from proxy.store.interface import LedgerRecord, Record


# ----------------------------------------------------------------------------------------------------------- examples
def said(text: str, role: str = "user") -> Message:
    wire = f'{{"role":"{role}","content":"{text}"}}'.encode()
    return Message(role, wire, identity_of(role, text), text, tokens=len(text) // 4)


def entry(name: str, parent: str = "", text: str = "", seq: int = 0, created: int = 0) -> Entry:
    return Entry(name, parent, seq, EntryKind.MESSAGE, "t1", said(text or name), created=created)


def opened(conversation: str, *values: LedgerItem, tenant: str = "a", hint: str = "", created: int = 1) -> list[Record]:
    """A conversation with what is in it, as one batch."""
    made = Conversation(conversation, tenant, hint, created=created)
    return [made, *(LedgerRecord(conversation, value) for value in values)]


def worked(
    conversation: str,
    title: str,
    results: str = "",
    *,
    tenant: str = "a",
    criteria: str = "",
    noted: tuple[str, ...] = (),
    status: Status | None = Status.COMPLETED,
) -> list[Record]:
    """A conversation in which the frame `conversation`-frame was worked on; without a status it still is."""
    root, frame = f"{conversation}-root", f"{conversation}-frame"
    values: list[LedgerItem] = [
        entry(f"{conversation}-m1", seq=0),
        as_ledger_event(RootStarted(root, "Conversation", ""), f"{conversation}-m1", 0, 1, 1),
        entry(f"{conversation}-m2", f"{conversation}-m1", seq=2),
        as_ledger_event(FrameEntered(frame, root, title, criteria, "request"), f"{conversation}-m2", 0, 3, 3),
    ]
    if status is not None:
        popped = FramePopped(frame, status, results, results, artifacts=noted)
        values += [entry(f"{conversation}-m3", f"{conversation}-m2", seq=4)]
        values += [as_ledger_event(popped, f"{conversation}-m3", 0, 5, 5)]
    return opened(conversation, *values, tenant=tenant)


def without_drafts(values: Sequence[LedgerItem]) -> list[LedgerItem]:
    """`values` without rounds that were only drafts of later ones, or came after the finished one."""
    kept: list[LedgerItem] = []
    for value in values:
        if isinstance(value, Round):
            same = [v for v in kept if isinstance(v, Round) and (v.turn, v.number) == (value.turn, value.number)]
            if same and same[0].spoken.complete:
                continue
            kept = [v for v in kept if all(v is not draft for draft in same)]
        kept.append(value)
    return kept


def grown_to(conversation: Conversation, values: Sequence[LedgerItem]) -> Ledger:
    """The ledger that a process holds which made `values` one after the other."""
    ledger = Ledger(conversation)
    for value in without_drafts(values):
        match value:
            case Entry():
                ledger.add_entry(value)
            case Round():
                ledger.add_round(value)
            case LedgerEvent():
                ledger.add_event(value)
            case Thread():
                ledger.threads[value.id] = value
            case QueuedMessage():
                ledger.queue[value.id] = value
    return ledger


# ------------------------------------------------------------------------------------------------------------- random
anything = st.text(st.characters(exclude_categories=()), max_size=12)
"""Every character a Python string can hold: NUL, lone surrogates, and the escape of our own."""
bodies = st.binary(max_size=40) | anything.map(lambda text: text.encode("utf-8", "surrogatepass"))
moments = st.integers(0, 2**53)
calls = st.builds(Call, anything, anything, anything)
plain_messages = st.builds(
    Message,
    role=st.sampled_from(["user", "assistant", "tool"]) | anything,
    wire=bodies,
    identity=anything,
    text=anything,
    calls=st.lists(calls, max_size=2).map(tuple),
    answers=anything,
    tokens=st.integers(0, 2**40),
)
messages = plain_messages | st.text(max_size=12).map(lambda text: said(text.replace('"', "").replace("\\", "")))
usages = st.builds(Usage, moments, moments, moments, moments, moments)
spoken = st.builds(
    ModelResponse,
    message=messages,
    finish=anything,
    usage=st.none() | usages,
    model=anything,
    complete=st.booleans(),
    hidden_truncated=st.booleans(),
    extra=st.dictionaries(anything, bodies, max_size=2),
)
queued = st.builds(
    QueuedMessage,
    id=st.sampled_from(["q1", "q2"]),
    text=anything,
    lane=st.sampled_from(Lane),
    thread=anything,
    created=moments,
    expires=moments,
    state=st.sampled_from(DeliveryState),
    settled=moments,
    entry=anything,
)


@dataclass(frozen=True)
class Written:
    """A conversation and its values in the order they were made."""

    conversation: Conversation
    values: tuple[LedgerItem, ...]


@st.composite
def conversations(draw: st.DrawFn, tenant: str) -> Written:
    name = draw(st.uuids()).hex
    made = Conversation(name, tenant, draw(anything), draw(anything), draw(anything), draw(moments), draw(anything))
    values: list[LedgerItem] = []
    known: list[Entry] = []
    for seq in range(draw(st.integers(0, 12))):
        at = draw(st.sampled_from(known)) if known else None
        match draw(st.sampled_from(["message", "turn", "round", "event", "thread", "queued"])):
            case "round" if at is not None and at.kind is EntryKind.TURN:
                results = draw(st.lists(messages, max_size=2).map(tuple))
                values.append(
                    Round(at.id, draw(st.integers(0, 2)), draw(spoken), results, draw(st.booleans()), draw(moments))
                )
            case "event" if at is not None:
                kind, subject = draw(st.sampled_from(["wake", "fold"])), draw(anything)
                values.append(
                    LedgerEvent(at.id, draw(st.integers(0, 3)), seq, kind, subject, draw(bodies), draw(moments))
                )
            case "thread":
                names = draw(st.lists(anything, max_size=3).map(tuple))
                values.append(Thread(draw(st.sampled_from(["t1", "t2"])), draw(anything), names))
            case "queued":
                values.append(draw(queued))
            case chosen:
                kind_of = (
                    EntryKind.TURN
                    if chosen == "turn"
                    else draw(st.sampled_from([EntryKind.MESSAGE, EntryKind.OVERLAY, EntryKind.USER_OVERLAY]))
                )
                held = None if kind_of is EntryKind.TURN else draw(messages)
                parent = at.id if at else ""
                new = Entry(f"{seq}{draw(anything)}", parent, seq, kind_of, draw(anything), held, created=draw(moments))
                known.append(new)
                values.append(new)
    return Written(made, tuple(values))
