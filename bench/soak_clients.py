"""The clients of the soak: what agents do all day in three dialects, and what they must get for it.

A client speaks and reads with `tests.client_dialects`, as strictly as a real one. What the provider's model says hangs
on marks in the newest message, so no conversation needs a script of its own.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import load
import payloads

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.client_dialects import CHAT, TONGUES
from tests.harness import Answer, tool

Json = dict[str, Any]
TOOLS = ("bash", "read")
MOST_FAILURES_KEPT = 20
SLOW_BUFFER, SLOW_PIECES, SLOW_PAUSE_S = 16 * 1024, 40, 0.01
"""A slow reader's own buffer in bytes; after so many chunks it pauses."""
PIECES_BEFORE_LEAVING = 4
THINKING_S = 1.0
"""What a client does between two requests takes up to twice as long."""
AWAKE_TOKENS, AWAKE_BYTES = 2_500, 8_000
"""Conversations are awake from so many tokens on; code of so many bytes is more."""
REFUSED = 429

WORKS, GIVES_BACK = "The work is done.", "file "
MORE, LAST = f"{GIVES_BACK}has more", f"{GIVES_BACK}ends here"
PART = {"title": "A part", "successCriteria": "it works"}
SCENARIO: Json = {
    "models": {"soak-model": {"window": 200_000}},
    "answers": [],
    "rules": [
        {"when": {"tool_result": when}, "answer": answer, "loop": True}
        for when, answer in (
            ("^<stack-context session", {"call": {"name": "bash", "arguments": {"command": "make part"}}}),
            (
                "^bash did",
                {"call": {"name": "stack_frame_pop", "arguments": {"status": "completed", "results": WORKS}}},
            ),
            ("^<frame-results", {"text": WORKS}),
            (f"^{MORE}", {"text": "Let me read on.", "call": {"name": "read", "arguments": {"path": "src/a.py"}}}),
            (".", {"text": WORKS}),
        )
    ]
    + [
        {"when": {"user": when}, "answer": answer, "loop": True}
        for when, answer in (
            (r"\[refused\]", {"status": REFUSED, "headers": {"x-should-retry": "false"}}),
            (r"\[broken\]", {"text": WORKS * 20, "ending": {"how": "reset", "after_events": 8}}),
            (r"\[failed\]", {"text": WORKS * 20, "error": {"message": "overloaded", "code": 529, "after_events": 8}}),
            (r"\[slow\]", {"text": WORKS * 20, "pace_ms": 20}),
            (r"\[long\]", {"text": WORKS * 8_000, "piece": 400}),
            (r"\[frames\]", {"call": {"name": "stack_frame_push", "arguments": PART}}),
            (r"\[agent\]", {"call": {"name": "read", "arguments": {"path": "src/a.py"}}}),
            (".", {"text": WORKS}),
        )
    ],
}
"""The provider's model: the first rule that holds answers."""


class Unexpected(Exception):
    """A request failed that must not, or the other way round."""


@dataclass
class Traffic:
    """What all clients did so far: requests by kind, answers that passed without us, and what must not have been."""

    is_hurried: bool = True
    """Clients do not pause: the caches of the proxy are to be full."""
    requests: Counter[str] = field(default_factory=Counter)
    bypassed: int = 0
    failed: int = 0
    failures: list[str] = field(default_factory=list)
    """The first of them."""

    def fails(self, kind: str, why: Exception) -> None:
        self.failed += 1
        if len(self.failures) < MOST_FAILURES_KEPT:
            self.failures.append(f"{kind}: {type(why).__name__}: {str(why)[:300]}")


@dataclass
class Client:
    """One conversation of one client."""

    base: str
    kind: str
    traffic: Traffic
    chance: random.Random
    tongue: Any = CHAT
    streamed: bool = True
    history: list[Json] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.writer = payloads.Writer(self.chance.getrandbits(32))
        self.history = [{"role": "system", "content": payloads.opening(self.writer)[0]["content"]}]

    def hears(self, text: str) -> None:
        self.history.append({"role": "user", "content": f"{text} {self.writer.sentence()}"})

    def returns(self, result: str) -> None:
        """Of the calls just made."""
        made = self.history[-1].get("tool_calls") or []
        if not made:
            raise Unexpected(f"a call was due, and it said {self.history[-1].get('content')!r}")
        if foreign := {each["function"]["name"] for each in made} - {*TOOLS}:
            raise Unexpected(f"calls of tools that are not the client's: {foreign}")
        self.history += [{"role": "tool", "tool_call_id": each["id"], "content": result} for each in made]

    def body(self) -> bytes:
        asked: Json = {"model": "soak-model", "messages": self.history, "tools": [tool(name) for name in TOOLS]}
        written: bytes = self.tongue.body({**asked, "stream": True} if self.streamed else asked)
        return written

    async def asks(self, *, slowly: bool = False) -> Answer:
        """One request, read to its end or to where it broke off."""
        self.traffic.requests[self.kind] += 1
        raw, arrived = b"", True
        async with load.Connection(self.base, SLOW_BUFFER if slowly else 1 << 20) as connection:
            status, headers = await connection.ask(self.body(), "POST", self.tongue.path, self.tongue.headers)
            try:
                number = 0
                async for piece in connection.pieces(headers):
                    raw, number = raw + piece, number + 1
                    if slowly and number % SLOW_PIECES == 0:
                        await asyncio.sleep(SLOW_PAUSE_S)
            except (asyncio.IncompleteReadError, ConnectionError):
                arrived = False
        answer = Answer(status, headers, raw, arrived, self.streamed and status == load.OK, self.tongue)
        self.traffic.bypassed += answer.stack_status.startswith("bypass")
        await asyncio.sleep(THINKING_S * 2 * self.chance.random() * (not self.traffic.is_hurried))
        return answer

    async def goes_on(self, *, slowly: bool = False) -> None:
        """A request that must be answered whole."""
        answer = await self.asks(slowly=slowly)
        if answer.status != load.OK or not answer.ended:
            raise Unexpected(f"{answer.status}, {answer.stack_status}, {answer.raw[-200:]!r}")
        self.history.append(answer.message)

    async def leaves(self) -> None:
        """A request whose client is gone after the first words."""
        self.traffic.requests[self.kind] += 1
        async with load.Connection(self.base) as connection:
            _, headers = await connection.ask(self.body(), "POST", self.tongue.path, self.tongue.headers)
            number = 0
            async for _ in connection.pieces(headers):
                number += 1
                if number == PIECES_BEFORE_LEAVING:
                    break


# ------------------------------------------------------------------------------------------------------ what clients do
async def talk(client: Client) -> None:
    for _ in range(client.chance.randrange(1, 5)):
        client.hears("What is this?")
        await client.goes_on()


async def work(client: Client) -> None:
    """An agent that reads one file after the other, for several wishes of its user."""
    for _ in range(client.chance.randrange(1, 4)):
        client.hears(f"[agent] Implement {client.writer.noun()} for {client.writer.path()}.")
        await client.goes_on()
        for left in reversed(range(client.chance.randrange(2, 12))):
            client.returns(f"{MORE if left else LAST}\n{client.writer.result()}")
            await client.goes_on()


async def frames(client: Client) -> None:
    """Parts of a task that the model pushes and pops in hidden rounds."""
    for _ in range(client.chance.randrange(1, 6)):
        client.hears(f"[frames] Do the next part of this.\n{client.writer.code(AWAKE_BYTES)}\n")
        await client.goes_on()
        client.returns(f"bash did {client.writer.result()}")
        await client.goes_on()


async def cancel(client: Client) -> None:
    client.streamed = True
    client.hears("[slow] Tell me all of it.")
    await client.leaves()
    client.history.pop()
    client.hears("In short.")
    await client.goes_on()


async def read_slowly(client: Client) -> None:
    client.streamed = True
    client.hears("[long] Tell me all of it.")
    await client.goes_on(slowly=True)


async def suffer(client: Client) -> None:
    """A provider on a bad day: what it says is what the client gets, and no broken answer looks whole."""
    client.hears("[refused] Go.")
    if (answer := await client.asks()).status != REFUSED:
        raise Unexpected(f"{answer.status} instead of the provider's {REFUSED}")
    client.streamed = True
    for bad in ("[broken]", "[failed]"):
        client.history.pop()
        client.hears(f"{bad} Go.")
        answer = await client.asks()
        if answer.arrived and client.tongue.terminator in answer.raw:
            raise Unexpected(f"{bad}: it looks whole: {answer.raw[-200:]!r}")
    client.history.pop()
    client.hears("Go.")
    await client.goes_on()


MIXTURE: dict[Callable[[Client], Awaitable[None]], int] = {
    talk: 6,
    work: 5,
    frames: 4,
    cancel: 2,
    read_slowly: 1,
    suffer: 2,
}
"""What clients do, and how often."""


async def come_and_go(base: str, traffic: Traffic, chance: random.Random) -> None:
    """One client after the other, until cancelled."""
    while True:
        does = chance.choices(list(MIXTURE), list(MIXTURE.values()))[0]
        tongue, streamed = chance.choice(list(TONGUES.values())), chance.random() < 0.7
        client = Client(base, does.__name__, traffic, chance, tongue, streamed)
        try:
            await does(client)
        except (Unexpected, OSError, asyncio.IncompleteReadError, AssertionError, ValueError, KeyError) as why:
            traffic.fails(f"{does.__name__} ({tongue.short})", why)


def write_scenario(folder: Path) -> Path:
    place = folder / "scenario.yaml"
    place.write_text(json.dumps(SCENARIO))  # JSON is YAML
    return place
