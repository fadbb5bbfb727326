"""Trees and ledgers to test with, grown from events and messages as a conversation would grow them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from proxy.accounting import load_o200k
from proxy.core.frames.events import (
    ArtifactAdded,
    DecisionAdded,
    FrameEvent,
    FramePopped,
    FramePushed,
    RootStarted,
    as_ledger_event,
)
from proxy.core.frames.path_state import PathState, extend
from proxy.core.frames.reducer import reduce
from proxy.core.frames.tree import Status, Tree
from proxy.core.ledger.ledger import Conversation, Entry, EntryKind, Ledger, Round, message_id, turn_id
from proxy.core.ledger.messages import Call, Message, ModelResponse, identity_of
from proxy.core.tools.base import CallGroup, ToolContext, ToolSettings

count = load_o200k()
MINUTE = 60_000
NONCE = "n0nce"


def grown(*events: FrameEvent) -> Tree:
    """The tree after these events, one a minute."""
    tree = Tree()
    for minute, event in enumerate(events, 1):
        tree = reduce(tree, event, minute * MINUTE)
    return tree


def rooted(title: str = "Build the shop", criteria: str = "The shop sells things.") -> RootStarted:
    return RootStarted("froot", title, criteria)


def pushed(frame: str, parent: str = "froot", title: str = "", criteria: str = "It works.", **more: Any) -> FramePushed:
    return FramePushed(frame, parent, title or f"Title of {frame}", criteria, "turn", f"call-{frame}", "", **more)


def popped(
    frame: str, results: str = "It is done.", status: Status = Status.COMPLETED, compacted: str = ""
) -> FramePopped:
    return FramePopped(frame, status, results, compacted)


def in_the_shop() -> tuple[FrameEvent, ...]:
    """A goal, a task that is finished, one under way in its second step, the first of which failed."""
    return (
        rooted(),
        pushed("fauth", title="Auth", criteria="Login works."),
        ArtifactAdded("fauth", "src/auth.py"),
        popped("fauth", "Long story.", compacted="JWT in src/auth.py."),
        pushed("fpay", title="Pay", criteria="Paying works."),
        pushed("fcard", "fpay", title="Card", criteria="Cards work."),
        popped("fcard", "No sandbox key.", Status.FAILED),
        pushed("fbank", "fpay", title="Bank", criteria="Transfers work."),
        ArtifactAdded("fbank", "src/bank.py"),
        DecisionAdded("fbank", "Use SEPA."),
    )


@dataclass
class LedgerBuilder:
    """A conversation that grows entry by entry, as the client and the model speak."""

    ledger: Ledger = field(default_factory=lambda: Ledger(Conversation("c" * 32, "tenant")))
    tip: str = ""
    minute: int = 0

    def _entry(self, kind: EntryKind, ident: str, message: Message | None = None, adopts: str = "") -> Entry:
        self.minute += 1
        now = self.minute * MINUTE
        entry = Entry(ident, self.tip, self.ledger.next_seq, kind, "thread", message, adopts=adopts, created=now)
        self.ledger.add_entry(entry)
        self.tip = entry.id
        return entry

    def client(self, role: str, text: str, answers: str = "", adopts: str = "") -> str:
        """A message of the client's."""
        identity = identity_of(role, text, (), answers)
        message = Message(role, text.encode("utf-8", "surrogatepass") or b"{}", identity, text, (), answers)
        return self._entry(EntryKind.MESSAGE, message_id(self.tip, identity, "c"), message, adopts).id

    def model(self, *rounds: tuple[str, tuple[Call, ...]]) -> str:
        """A turn of these rounds: text and calls."""
        return self._turn(rounds, is_over=True)

    def begun(self, *rounds: tuple[str, tuple[Call, ...]]) -> str:
        """A turn that is under way: its rounds so far, none of which the client has seen."""
        return self._turn(rounds, is_over=False)

    def _turn(self, rounds: Sequence[tuple[str, tuple[Call, ...]]], *, is_over: bool) -> str:
        turn = self._entry(EntryKind.TURN, turn_id(self.tip, 1))
        for number, (text, calls) in enumerate(rounds, 1):
            message = Message("assistant", b"{}", identity_of("assistant", text, calls), text, calls)
            results = tuple(Message("tool", b"{}", "", f"answer to {c.id}", (), c.id) for c in calls if c.is_stack_call)
            self.ledger.add_round(
                Round(turn.id, number, ModelResponse(message), results, is_over and number == len(rounds))
            )
        return turn.id

    def happens(self, event: FrameEvent, entry: str = "", number: int = 0) -> None:
        """`event`, at an entry (the newest) or after a round of a turn."""
        self.ledger.add_event(
            as_ledger_event(event, entry or self.tip, number, self.ledger.next_seq, self.minute * MINUTE)
        )

    @property
    def story(self) -> PathState:
        return extend(self.ledger, PathState(), self.ledger.path(self.tip))

    def desk(self, on_line: frozenset[str] = frozenset(), settings: ToolSettings | None = None) -> ToolContext:
        return ToolContext(
            self.story,
            self.ledger,
            CallGroup(has_only_stack_calls=True, home_frame=self.story.tree.active),
            turn_id="t",
            call_key="k",
            call_number=0,
            now=self.minute * MINUTE,
            nonce=NONCE,
            count_tokens=count,
            settings=settings or ToolSettings(),
            visible_entries=on_line,
        )


def call(ident: str, name: str, **arguments: Any) -> Call:
    return Call(ident, name, json.dumps(arguments))
