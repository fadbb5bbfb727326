"""The user's words stay on every awake line, as they were or quoted, whatever the model does with its frames.

A model at random pushes, plans, activates, pops and invalidates frames by any name, beside calls of the client's and
beside a plan of the client's; a client answers, speaks in between, gives instructions, and its proxy starts again. What
may leave the line is what the model and its tools said.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_test_provider import ReceivedRequest, ScriptedCall, call, says
from llm_test_provider import ScriptedAnswer as Scripted
from tests.client_dialects import CHAT, MESSAGES, RESPONSES
from tests.harness import Conversation, RecordingProvider, Stage, activate, bash, does, op, plan, pop, push
from tests.properties.depth import searched

STEPS = 40
HIDDEN_ROUNDS = 5
STATES = ("completed", "completed", "failed", "blocked")


class Whim:
    """The model's side. `frames` are the ids it may name."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.frames: list[str] = []
        self.items: dict[str, str] = {}
        self.number = 0
        self.hidden = 0

    def __call__(self, received: ReceivedRequest) -> Scripted:
        self.number += 1
        text = self.chance.choice(("", f"thought {self.number}"))
        kind = self.chance.random()
        if kind < 0.42 and self.hidden < HIDDEN_ROUNDS:
            self.hidden += 1
            return does(*(self.of_the_stack() for _ in range(self.chance.choice((1, 1, 1, 2)))), text=text)
        self.hidden = 0
        if kind < 0.68:
            return does(self.of_the_client(), text=text)
        if kind < 0.74:
            return does(self.of_the_client(), self.of_the_stack())
        return says(f"Answer {self.number} " + "word " * 20)

    def of_the_stack(self) -> ScriptedCall:
        number, frame = self.number, self.chance.choice((*self.frames, ""))
        match self.chance.randrange(6):
            case 0:
                return push(f"Task {number}")
            case 1:
                return pop(f"Result {number}", self.chance.choice(STATES))
            case 2:
                return pop(f"Result {number}", **({"frameID": frame} if frame else {}))
            case 3:
                return op("invalidate", reason=f"reason {number}", **({"sessionID": frame} if frame else {}))
            case 4:
                return plan(f"First {number}", f"Second {number}")
            case _:
                return activate(frame or "nothing")

    def of_the_client(self) -> ScriptedCall:
        match self.chance.randrange(3):
            case 0:
                return bash(f"command {self.number}")
            case 1:
                return call("read", filePath=f"file{self.number}.py")
            case _:
                return self.of_its_plan()

    def of_its_plan(self) -> ScriptedCall:
        if not self.items or self.chance.random() < 0.15:
            self.items = dict.fromkeys((f"item {self.number}{letter}" for letter in "abc"), "pending")
        names = list(self.items)
        at = self.chance.randrange(len(names))
        self.items |= dict.fromkeys(names[:at], "completed")
        self.items[names[at]] = self.chance.choice(("in_progress", "completed"))
        return call("update_plan", plan=[{"step": name, "status": state} for name, state in self.items.items()])


@pytest.mark.long
@given(seed=st.integers(0, 1 << 20))
@searched(examples=12)
def test_the_users_words_stay_on_the_line(seed: int) -> None:
    chance = random.Random(seed)
    tongue = chance.choice((CHAT, CHAT, MESSAGES, RESPONSES))
    whim = Whim(chance)
    with tempfile.TemporaryDirectory() as folder, RecordingProvider() as provider:
        provider.when(lambda _: True, whim, loop=True)
        stage = Stage(provider, Path(folder), streamed=chance.random() < 0.5, tongue=tongue)
        try:
            chat = stage.chat(tools=("bash", "read", "update_plan"))
            said: list[str] = []
            for step in range(STEPS):
                seen = len(provider.received)
                said += spoken(chat, chance, step, instructions="" if tongue is MESSAGES else "developer")
                answer = chat.asks()
                assert answer.status == 200, answer.raw
                assert answer.stack_status == "full"
                for received in provider.received[seen:]:
                    line = received.raw.decode()
                    assert not [words for words in said if words not in line]
                if chance.random() < 0.06:
                    chat.proxy.restart()
                if chance.random() < 0.2:
                    whim.frames = [frame["sessionID"] for frame in chat.proxy.frames().values()]
        finally:
            stage.stop()


def spoken(chat: Conversation, chance: random.Random, step: int, *, instructions: str) -> list[str]:
    """What the client adds to its history: results, and mostly words. Returns the words."""
    said: list[str] = []
    made: list[dict[str, Any]] = (chat.history[-1].get("tool_calls") or []) if chat.history else []
    for each in made:
        output = f"output {step} " + "line " * chance.choice((3, 40))
        chat.history.append({"role": "tool", "tool_call_id": each["id"], "content": output})
    if not made or chance.random() < 0.15:
        said.append(f"WISH-{step:03}")
        chat.history.append({"role": "user", "content": f"please do {said[-1]} now"})
    if instructions and chance.random() < 0.07:
        said.append(f"RULE-{step:03}")
        chat.history.append({"role": instructions, "content": f"from now on {said[-1]}"})
    return said
