"""A conversation that the proxy only watches: it grows by the core alone as it grows over HTTP, with the frames that
are inferred and the folds that are due decided where they are decided there.

A script is a list of steps: `user("...")`, `does(todo("[>] Lexer"), bash("ls"))` with its results, `says("...")`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from proxy.core.compaction import FoldRules
from proxy.core.compaction.compaction_plan import CompactionPlan, plan_compaction
from proxy.core.compaction.fold_cost import CachePrices, CompactionInput
from proxy.core.compaction.fold_events import TraceWriter
from proxy.core.context.message_list import Context, build_context
from proxy.core.frames.events import FrameEvent, FramePopped, RootStarted, as_ledger_event, frame_id
from proxy.core.frames.path_state import PathState, extend, replay
from proxy.core.frames.tree import Status
from proxy.core.ledger.ledger import Conversation, Entry, EntryKind, Ledger, LedgerEvent, Round, message_id, turn_id
from proxy.core.ledger.messages import Call, Message, ModelResponse, Request, identity_of
from proxy.core.observers.observe_step import DEFAULT_TOOL_ROLES
from proxy.core.policy.frame_inference import InferenceRules, infer_frames
from proxy.dialects import DIALECTS
from proxy.dialects.compose import DialectComposer

DIALECT = next(iter(DIALECTS.values()))
SCRIBE = DialectComposer(DIALECT, lambda text: len(text) // 4)
WATCH = InferenceRules(DEFAULT_TOOL_ROLES)
MARKS = {"x": "completed", ">": "in_progress", " ": "pending"}
CONVERSATION = "c" * 32
MINUTE = 60_000


def moment(node: str, **more: Any) -> CompactionInput:
    """A warm moment at `node`, at usual prices, in a window nobody knows. Work is cut past `frame_max`, and items of
    plans leave when they end, unless `rules` say something else."""
    usual: dict[str, Any] = {
        "now": 0,
        "prices": CachePrices(0.1, 1.0),
        "requests": 50,
        "cold": False,
        "window": 0,
        "rules": FoldRules(more.pop("frame_max", 20_000), folds_items=True),
    }
    return CompactionInput(newest_entry=node, **{**usual, **more})


PEN = TraceWriter(DEFAULT_TOOL_ROLES, lambda text: len(text) // 4, "n0nce", SCRIBE)


def todo(items: str) -> tuple[str, dict[str, Any]]:
    """`[x] Lexer | [>] Parser` as name and arguments of a call that states the whole list."""
    listed = [part.strip() for part in items.split("|")]
    return "TodoWrite", {"todos": [{"content": part[4:], "status": MARKS[part[1]]} for part in listed]}


def bash(command: str) -> tuple[str, dict[str, Any]]:
    return "bash", {"command": command}


@dataclass
class GrowingConversation:
    """`folds` says whether folds are made; `frame_max` is where long work is cut. `lines` are what went upstream."""

    folds: bool = True
    settings: dict[str, Any] = field(default_factory=dict)
    ledger: Ledger = field(default_factory=lambda: Ledger(Conversation(CONVERSATION, "tenant")))
    story: PathState = field(default_factory=PathState)
    run: list[Entry] = field(default_factory=list)
    lines: list[Context] = field(default_factory=list)
    told: list[list[bytes]] = field(default_factory=list)
    """What the client said with each of them."""
    foldings: list[CompactionPlan] = field(default_factory=list)
    calls: int = 0
    waiting: tuple[Call, ...] = ()

    # ------------------------------------------------------------------------------------------------------- the client
    def user(self, text: str) -> GrowingConversation:
        self.tells("user", text)
        return self

    def gives(self, *results: str) -> GrowingConversation:
        """The results of the calls just made; fewer leave the last ones without."""
        for call, result in zip(self.waiting, results, strict=False):
            self.tells("tool", result, call.id)
        self.waiting = ()
        return self

    def tells(self, role: str, text: str, answers: str = "") -> None:
        identity = identity_of(role, text, (), answers)
        wire = json.dumps({"role": role, "content": text, **({"tool_call_id": answers} if answers else {})}).encode()
        message = Message(role, wire, identity, text, (), answers, tokens=len(wire) // 4)
        at = self.run[-1].id if self.run else self.story.tip
        ident = message_id(at, identity, CONVERSATION)
        entry = Entry(ident, at, self.ledger.next_seq, EntryKind.MESSAGE, "main", message, created=self.now)
        self.ledger.add_entry(entry)
        self.run.append(entry)

    # -------------------------------------------------------------------------------------------------------- the model
    def does(
        self, *made: tuple[str, dict[str, Any] | str], text: str = "", results: Sequence[str] = ()
    ) -> GrowingConversation:
        """One answer with calls, on the line as it stands then; with `results` they come back at once."""
        calls = tuple(self._call(name, arguments) for name, arguments in made)
        self._speaks(text, calls)
        self.waiting = calls
        return self.gives(*results) if results else self

    def says(self, text: str) -> GrowingConversation:
        """An answer without calls."""
        self._speaks(text, ())
        return self

    def pops(self, frame: str, results: str) -> None:
        """Behind its last answer the model ends a frame."""
        self._happens(FramePopped(frame, Status.COMPLETED, results, results), self.story.tip)
        self.story = self.again

    def _call(self, name: str, arguments: dict[str, Any] | str) -> Call:
        self.calls += 1
        written = arguments if isinstance(arguments, str) else json.dumps(arguments)
        return Call(f"call_{self.calls}", name, written)

    def _speaks(self, text: str, calls: tuple[Call, ...]) -> None:
        self.arrives()
        told = [{"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}} for c in calls]
        wire = json.dumps({"role": "assistant", "content": text, **({"tool_calls": told} if told else {})}).encode()
        identity = identity_of("assistant", text, calls)
        message = Message("assistant", wire, identity, text, calls, tokens=len(wire) // 4)
        turn = Entry(
            turn_id(self.story.tip, 0), self.story.tip, self.ledger.next_seq, EntryKind.TURN, "main", created=self.now
        )
        self.ledger.add_entry(turn)
        self.ledger.add_round(Round(turn.id, 0, ModelResponse(message), (), last=True, created=self.now))
        self.story = extend(self.ledger, self.story, [turn])

    # ------------------------------------------------------------------------------------------------------ the proxy
    @property
    def now(self) -> int:
        return len(self.ledger.entries) * MINUTE

    def arrives(self) -> Context:
        """The request with all that the client said since the last answer; the line it is sent as."""
        run, self.run = self.run, []
        if run:
            before = extend(self.ledger, self.story, run[:-1])
            if not self.story.tip:
                said = run[0].message.text if run[0].message else ""
                self._happens(RootStarted(frame_id(CONVERSATION, 0), said[:40], said), run[0].id)
                before = extend(self.ledger, PathState(), run[:-1])
            for event in infer_frames(before, run, self.now, WATCH):
                self._happens(event, run[-1].id)
            self.story = extend(self.ledger, before, run[-1:])
        if self.folds:
            self.fold()
        self.told.append([entry.message.wire for entry in run if entry.message])
        self.lines.append(build_context(self.story, SCRIBE))
        return self.lines[-1]

    def fold(self, **more: Any) -> CompactionPlan:
        """What is due now, done."""
        made = plan_compaction(self.story, moment(self.story.tip, **{"now": self.now, **self.settings, **more}), PEN)
        self.foldings.append(made)
        for event in made.events:
            self._happens(event, self.story.tip)
        if made.events:
            self.story = replay(self.ledger, self.ledger.path(self.story.tip), {})
        return made

    def _happens(self, event: FrameEvent, entry: str) -> None:
        self.ledger.add_event(as_ledger_event(event, entry, 0, self.ledger.next_seq, self.now))

    # ------------------------------------------------------------------------------------------------------- looking on
    @property
    def again(self) -> PathState:
        """The path as it is folded by somebody who reads it for the first time."""
        return replay(self.ledger, self.ledger.path(self.story.tip), {})

    @property
    def statuses(self) -> dict[str, str]:
        return {frame.title: str(frame.status) for frame in self.story.tree.frames.values()}

    @property
    def texts(self) -> list[str]:
        """What the messages of the newest line say."""
        return [message.text for message in self.lines[-1].messages]


def request(*messages: Message, tools: tuple[str, ...] = ("bash", "TodoWrite"), **more: Any) -> Request:
    """A request of the client's, as the dialect reads it."""
    read: dict[str, Any] = {
        "body": b"",
        "fields": {},
        "model": "gpt-x",
        "stream": False,
        "wants_usage": False,
        "head": (),
        "messages": messages,
        "tool_names": tools,
        "tools_tokens": 0,
        "tool_choice": "auto",
        "wants_structured_output": False,
        "choice_count": 1,
        "system_hash": "system",
    }
    return Request(**{**read, **more})


def events_of(watched: GrowingConversation, kind: str) -> list[LedgerEvent]:
    """The recorded events of one kind, in order."""
    return [event for events in watched.ledger.events.values() for event in events if event.kind == kind]


def padded(text: str, tokens: int = 400) -> str:
    """An output of about so many tokens."""
    return f"{text} " + "pad " * tokens
