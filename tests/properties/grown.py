"""A conversation grown from rounds by the core alone, without HTTP, store or clock: thousands of lines a second.

Run as a program it grows the one that a seed stands for and prints a digest of every line it had: the same in every
process, or a provider's cache would be lost with each restart (P3).
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from msgspec.structs import replace

from proxy.core import tools
from proxy.core.context.message_list import Context, build_context
from proxy.core.frames.events import RootStarted, as_ledger_event, call_key, frame_id
from proxy.core.frames.path_state import PathState, extend
from proxy.core.frames.reducer import reduce
from proxy.core.ledger.ledger import Conversation, Entry, EntryKind, Ledger, LedgerEvent, Round, message_id, turn_id
from proxy.core.ledger.messages import Call, Message, ModelResponse, identity_of
from proxy.core.policy.roots import find_new_root
from proxy.core.tools.base import CallGroup, ToolContext, ToolSettings
from proxy.dialects import DIALECTS
from proxy.dialects.compose import DialectComposer
from tests.properties.oracle import Op
from tests.properties.plays import Round as Played
from tests.properties.plays import as_call

SCRIBE = DialectComposer(next(iter(DIALECTS.values())), len)
CONVERSATION = "c" * 32


@dataclass
class GrownConversation:
    """`said` is the client's own history, in the form it was first sent; `lines` what went upstream, with the segment
    it was for."""

    view: str = "fork"
    ledger: Ledger = field(default_factory=lambda: Ledger(Conversation(CONVERSATION, "tenant")))
    story: PathState = field(default_factory=PathState)
    said: list[Message] = field(default_factory=list)
    lines: list[tuple[str, Context]] = field(default_factory=list)
    calls: int = 0

    def client(self, role: str, text: str, answers: str = "") -> None:
        """A message of the client's."""
        identity = identity_of(role, text, (), answers)
        wire = json.dumps({"role": role, "content": text, **({"tool_call_id": answers} if answers else {})}).encode()
        message = Message(role, wire, identity, text, (), answers)
        at = self.story.tip
        entry = Entry(
            message_id(at, identity, CONVERSATION), at, self.ledger.next_seq, EntryKind.MESSAGE, "main", message
        )
        self.ledger.add_entry(entry)
        if not at:
            root = RootStarted(frame_id(CONVERSATION, 0), "(root)", text)
            self.ledger.add_event(as_ledger_event(root, entry.id, 0, self.ledger.next_seq, 0))
        elif begins := find_new_root(self.story.tree, [entry]):
            root = RootStarted(begins[1].frame, "(root)", text)
            self.ledger.add_event(as_ledger_event(root, begins[0], 0, self.ledger.next_seq, 0))
        self.said.append(message)
        self.story = extend(self.ledger, self.story, [entry])

    def model(self, rounds: Sequence[Played]) -> None:
        """A turn of these rounds; each line they are answered to is kept."""
        begun = self.story
        turn = Entry(turn_id(begun.tip, 0), begun.tip, self.ledger.next_seq, EntryKind.TURN, "main")
        self.ledger.add_entry(turn)
        run = 0
        for number, played in enumerate(rounds):
            line = build_context(self.story, SCRIBE)
            self.lines.append((self.story.tree.active_frame.owner, line))
            run = self._round(turn, number, played, run, last=number == len(rounds) - 1)
            self.story = extend(self.ledger, begun, [turn])
        done = self.ledger.rounds[turn.id]
        text = "\n\n".join(r.spoken.message.text for r in done if r.spoken.message.text)
        calls = done[-1].spoken.client_calls
        self.said.append(Message("assistant", b"", identity_of("assistant", text, calls), text, calls))

    def _round(self, turn: Entry, number: int, played: Played, run: int, *, last: bool) -> int:
        """One round; the number of stack calls run in the turn so far."""
        made = [as_call(op) for op in played.ops]
        ours = [(c.name, json.dumps(c.arguments)) for c in made]
        theirs = [("bash", json.dumps({"command": f"step {n}"})) for n in range(played.client)]
        calls = tuple(Call(self._id(), name, arguments) for name, arguments in (*theirs[:1], *ours, *theirs[1:]))
        named = ((c.id, {"name": c.name, "arguments": c.arguments}) for c in calls)
        told = [{"id": id_, "type": "function", "function": function} for id_, function in named]
        wire = json.dumps(
            {"role": "assistant", "content": played.text, **({"tool_calls": told} if told else {})}
        ).encode()
        spoken = ModelResponse(
            Message("assistant", wire, identity_of("assistant", played.text, calls), played.text, calls)
        )
        path_state, group = (
            self.story,
            CallGroup(has_only_stack_calls=not spoken.client_calls, home_frame=self.story.tree.active),
        )
        results: list[Message] = []
        events: list[LedgerEvent] = []
        for call in spoken.proxy_calls:
            settings = ToolSettings(child_view=self.view)
            key = call_key(number, call.id)
            tool_context = ToolContext(path_state, self.ledger, group, turn.id, key, run, 0, "nonce", len, settings)
            outcome = tools.run(tool_context, call)
            run += 1
            results.append(SCRIBE.tool_result(call.id, outcome.text))
            for event in outcome.events:
                path_state = replace(path_state, tree=reduce(path_state.tree, event, 0))
                events.append(as_ledger_event(event, turn.id, number, self.ledger.next_seq + len(events), 0))
            group = outcome.call_group or group
        self.ledger.add_round(Round(turn.id, number, spoken, tuple(results), last))
        for each in events:
            self.ledger.add_event(each)
        return run

    def _id(self) -> str:
        self.calls += 1
        return f"call_{self.calls}"


def digest(seed: int) -> str:
    """Of every line of the conversation that this seed grows."""
    chance, grown = random.Random(seed), GrownConversation()
    for turn in range(30):
        waiting = grown.said[-1].calls if grown.said else ()
        for call in waiting:
            grown.client("tool", f"output {turn}", call.id)
        if not waiting:
            grown.client("user", f"wish {turn}")
        names = [chance.choice(("push", "push", "pop", "plan", "recall")) for _ in range(chance.randrange(4))]
        hidden = [Played("", (_op(name, turn, n),)) for n, name in enumerate(names)]
        grown.model([*hidden, Played(f"answer {turn}", (), chance.randrange(3))])
    said = b"\n".join(message.wire for _, line in grown.lines for message in line.messages)
    return sha256(said).hexdigest()


def _op(name: str, turn: int, number: int) -> Op:
    title = f"Task {turn}.{number}"
    return Op(name, children=(title,)) if name == "plan" else Op(name, title if name in ("push", "recall") else "")


if __name__ == "__main__":
    print(digest(int(sys.argv[1])))  # noqa: T201 - that is what it is run for
