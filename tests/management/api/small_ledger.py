"""A small conversation as the proxy would have stored it: a task, a subtask pushed and popped, a client's tool call.

Written record by record, so that what looks at a store can be tested without a proxy in front of it.
"""

import json
from dataclasses import dataclass, field

import msgspec

from proxy.accounting import Accountant, RequestOutcome
from proxy.core.frames.events import FrameEvent, FramePlanned, FramePopped, FramePushed, RootStarted, as_ledger_event
from proxy.core.frames.tree import Status
from proxy.core.ledger.ledger import Conversation, Entry, EntryKind, Round, Thread
from proxy.core.ledger.messages import Call, Message, ModelResponse, Usage, identity_of
from proxy.store.interface import LedgerRecord, Record, RequestRecord, SentRecord, Store

CLOCK = 1_700_000_000_000
"""ms since the epoch of the first entry; each later one is a second younger."""
HALF_PAIR = "half of a pair: \ud83d"
ESCAPES = "\x1b[31mred\x1b[0m \x9b2J \u202egnp.exe"
"""What a terminal or a reader could be fooled by."""


@dataclass
class Written:
    """The ids of one conversation in the store."""

    tenant: str
    conversation: str
    root: str
    child: str
    planned: str
    request: str
    wires: list[bytes] = field(default_factory=list)
    """Of the child, oldest first."""


def message(role: str, text: str, calls: tuple[Call, ...] = (), answers: str = "") -> Message:
    """A message with odd white space in its wire, which nothing may tidy."""
    fields: dict[str, object] = {"role": role, "content": text}
    if calls:
        fields["tool_calls"] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}} for c in calls
        ]
    if answers:
        fields["tool_call_id"] = answers
    wire = json.dumps(fields, separators=(", ", ":  ")).encode()
    return Message(role, wire, identity_of(role, text, calls, answers), text, calls, answers, len(text) // 4)


class Writing:
    """Builds the records of one conversation in order."""

    def __init__(self, tenant: str, conversation: str) -> None:
        self.conversation = conversation
        self.records: list[Record] = [Conversation(conversation, tenant, created=CLOCK)]
        self._seq = 0
        self._tip = ""

    @property
    def now(self) -> int:
        return CLOCK + self._seq * 1000

    def _own(self, value: Entry | Round | Thread) -> None:
        self.records.append(LedgerRecord(self.conversation, value))

    def entry(self, kind: EntryKind, said: Message | None = None) -> str:
        made = Entry(f"{self.conversation}-e{self._seq}", self._tip, self._seq, kind, "t1", said, created=self.now)
        self._own(made)
        self._seq += 1
        self._tip = made.id
        return made.id

    def round(self, number: int, said: Message, results: tuple[Message, ...] = (), *, last: bool = False) -> None:
        self._own(Round(self._tip, number, ModelResponse(said, "stop"), results, last=last, created=self.now))

    def event(self, happened: FrameEvent, number: int = 0) -> None:
        self.records.append(
            LedgerRecord(self.conversation, as_ledger_event(happened, self._tip, number, self._seq, self.now))
        )
        self._seq += 1

    def thread(self) -> None:
        self._own(Thread("t1", "hash", ("bash", "read")))


def records_of(tenant: str, name: str, title: str = "Make the suite green") -> tuple[list[Record], Written]:
    """The records of a conversation whose ids all begin with `name`."""
    at = Writing(tenant, f"{name}conversation")
    ids = Written(tenant, at.conversation, f"f{name}root", f"f{name}child", f"f{name}planned", f"{name}request")
    at.entry(EntryKind.MESSAGE, message("user", "make the suite green"))
    at.event(RootStarted(ids.root, title, "all tests pass"))
    _pushes(at, ids)
    _works(at, ids)
    at.thread()
    at.records += _request(at, ids, f"agent-{name}")
    return at.records, ids


def _pushes(at: Writing, ids: Written) -> None:
    turn = at.entry(EntryKind.TURN)
    push = Call("call_push", "stack_frame_push", '{"title": "Fix rounding"}')
    at.round(0, message("assistant", "", (push,)), (message("tool", "<stack-context/>", answers="call_push"),))
    at.event(FramePushed(ids.child, ids.root, "Fix rounding", "billing passes", turn, "call_push", "<stack-context/>"))
    at.event(FramePlanned(ids.planned, ids.root, "Write the changelog", "an entry stands there"))
    reads = message("assistant", HALF_PAIR, (Call("call_read", "read", '{"path":"billing.py"}'),))
    at.round(1, reads, last=True)
    ids.wires.append(reads.wire)


def _works(at: Writing, ids: Written) -> None:
    result = message("tool", f"{ESCAPES}\nround(total, 2)", answers="call_read")
    at.entry(EntryKind.MESSAGE, result)
    ids.wires.append(result.wire)
    at.entry(EntryKind.TURN)
    pop = message("assistant", "", (Call("call_pop", "stack_frame_pop", "{}"),))
    at.round(0, pop, (message("tool", "Frame is completed.", answers="call_pop"),))
    ids.wires.append(pop.wire)
    at.event(FramePopped(ids.child, Status.COMPLETED, "Decimal until the last step", "Decimal", "returned: Decimal"))
    at.round(1, message("assistant", "Billing is green."), last=True)


def _request(at: Writing, ids: Written, program: str) -> list[Record]:
    outcome = RequestOutcome(id=ids.request, conversation=ids.conversation, frame=ids.root, model="gpt-5",
                             status="full", created=at.now, client=program)  # fmt: skip
    account = Accountant(lambda: at.now).open([("head", 100), ("all", 9_000)], ("", "", "gpt-5"))
    account.add_round([("head", 100), ("line", 2_000)])
    receipt = account.settle(outcome, [Usage(2_100, 50)])
    client, sent = bodies()
    record = RequestRecord(
        ids.request, ids.conversation, "t1", ids.root, "", at.now, "full", msgspec.json.encode(receipt), (client,)
    )
    return [record, SentRecord(ids.request, 0, (sent[: len(sent) // 2], sent[len(sent) // 2 :]), at.now)]


def bodies() -> tuple[bytes, bytes]:
    """What the client sent, and what was sent for it: one message left out, one put in, a tool added."""
    system = {"role": "system", "content": "be brief"}
    said = {"role": "user", "content": "make the suite green"}
    old = {"role": "assistant", "content": "I read billing.py"}
    tidied = {"role": "user", "content": [{"type": "text", "text": "go on", "cache_control": {"type": "ephemeral"}}]}
    first = {"role": "user", "content": "go on"}
    note = {"role": "user", "content": "<stack-context>left</stack-context>"}
    bash = {"type": "function", "function": {"name": "bash", "parameters": {}}}
    push = {"type": "function", "function": {"name": "stack_frame_push", "parameters": {}}}
    client = {"model": "gpt-5", "stream": True, "messages": [system, said, old, tidied], "tools": [bash]}
    ours = {**system, "content": "be brief. Use frames."}
    sent = {"model": "gpt-5", "stream": True, "messages": [ours, said, note, first], "tools": [bash, push]}
    return json.dumps(client).encode(), json.dumps(sent | {"stream_options": {"include_usage": True}}).encode()


async def written(store: Store, tenant: str, name: str, title: str = "Make the suite green") -> Written:
    """A conversation of `tenant` in a started store."""
    records, ids = records_of(tenant, name, title)
    await store.wait_until_durable(store.write(tenant, records))
    return ids
