"""The model of the demo: gives the scripted answers, learns the ids of its frames, and checks what it recalls.

It is the only rule of the scripted provider. Everything it knows comes from the request: whether stack tools are
offered, which id a frame has, what a recall returned. Without stack tools it leaves those calls out, so that the
session also runs without a proxy.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from callstack_proxy.cli.demo.session import DemoAnswer, DemoCall, DemoTask, FrameByTitle
from llm_test_provider import ReceivedRequest, ScriptedAnswer, ScriptedCall
from proxy.core.ledger import is_stack_tool

Message = Mapping[str, Any]
NamedArguments = tuple[tuple[str, Any], ...]
"""Names and arguments of tool calls."""

_PLANNED_FRAME = re.compile(r"^- (f[a-z2-7]{8}): (.+)$", re.MULTILINE)
_ENTERED_FRAME = re.compile(r'<stack-context\b[^>]*\bframe="(f[a-z2-7]{8})"')


class DemoModel:
    """One session, answer by answer, for one conversation whose requests come one after the other."""

    def __init__(self, tasks: Iterable[DemoTask]) -> None:
        self._moves: Iterator[DemoAnswer] = iter([move for task in tasks for move in task.answers])
        self._last = DemoAnswer()
        self._turn: list[DemoAnswer] = []
        self.frames: dict[str, str] = {}
        """Title -> id."""
        self.hidden_calls: dict[str, int] = {}
        """How often each stack tool was called."""
        self.recalled = 0
        """How many recalls returned the text that was read."""
        self.faults: list[str] = []

    def begin_request(self) -> None:
        """The agent is about to send a request."""
        self._turn = []

    @property
    def expected_answer(self) -> tuple[str, NamedArguments]:
        """The texts and client calls that a client must have got since `begin_request`."""
        text = "\n\n".join(move.text for move in self._turn if move.text)
        calls = [call for move in self._turn for call in move.calls if not is_stack_tool(call.name)]
        return text, tuple((call.name, call.arguments) for call in calls)

    def answer(self, received: ReceivedRequest) -> ScriptedAnswer:
        """The next answer. Raises LookupError where the script has ended or a frame is unknown."""
        results = _newest_results(received.messages)
        self._learn_frame_ids(results)
        if self._last.expected_recall:
            self._check_recall(results)
        move = self._next_answer(offered="stack_recall" in received.tool_names)
        self._last = move
        self._turn.append(move)
        for call in move.calls:
            if is_stack_tool(call.name):
                self.hidden_calls[call.name] = self.hidden_calls.get(call.name, 0) + 1
        calls = tuple(ScriptedCall(call.name, self._with_frame_ids(call.arguments)) for call in move.calls)
        return ScriptedAnswer(text=move.text, calls=calls)

    def _next_answer(self, *, offered: bool) -> DemoAnswer:
        for move in self._moves:
            if offered or not any(is_stack_tool(call.name) for call in move.calls):
                return move
            if own := tuple(call for call in move.calls if not is_stack_tool(call.name)):
                return DemoAnswer(move.text, own)
        raise LookupError("the demo's session is at its end")

    def _learn_frame_ids(self, results: Sequence[str]) -> None:
        """Learn the ids of the frames that the last answer planned or began."""
        text = "\n".join(results)
        self.frames |= {title.strip(): frame for frame, title in _PLANNED_FRAME.findall(text)}
        begun = [title for call in self._last.calls if (title := _begun_title(call))]
        entered = _ENTERED_FRAME.findall(text)
        if begun and entered:
            self.frames[begun[0]] = entered[-1]

    def _check_recall(self, results: Sequence[str]) -> None:
        if any(self._last.expected_recall in text for text in results):
            self.recalled += 1
        else:
            shown = results[-1][:200] if results else "nothing"
            self.faults.append(f"a recall did not bring back what was read, but: {shown}")

    def _with_frame_ids(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        return {
            key: self._frame_id(value) if isinstance(value, FrameByTitle) else value for key, value in arguments.items()
        }

    def _frame_id(self, frame: FrameByTitle) -> str:
        if frame.title not in self.frames:
            raise LookupError(f"no tool result told the id of the frame {frame.title!r}")
        return self.frames[frame.title]


def _begun_title(call: DemoCall) -> str:
    """The title of the frame that a call begins, or empty."""
    if call.name == "stack_frame_push":
        return str(call.arguments["title"])
    reference = call.arguments.get("sessionID") if call.name == "stack_frame_activate" else None
    return reference.title if isinstance(reference, FrameByTitle) else ""


def _newest_results(messages: Sequence[Message]) -> list[str]:
    """Texts of the tool results after the last assistant message."""
    found: list[str] = []
    for message in reversed(messages):
        if message.get("role") == "assistant":
            break
        if message.get("role") == "tool":
            content = message.get("content")
            found.append(content if isinstance(content, str) else json.dumps(content))
    return found[::-1]
