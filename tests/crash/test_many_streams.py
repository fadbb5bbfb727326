"""A thousand streams at once over four replicas on one PostgreSQL database, and the next turn of each at another
replica: every client hears its own answer and nothing of anybody else's."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from llm_test_provider import ReceivedRequest, ScriptedAnswer, ScriptedProvider, says, stall
from tests.crash.killable import KillableProxy
from tests.harness import Stage, does, push
from tests.postgresql_server import PostgresServer
from tests.properties import disk
from tests.wire.talking import CHAT, ReceivedAnswer, body_of

STREAMS = int(os.environ.get("CALLSTACK_STREAMS", "200"))
REPLICAS = 4
PIECES = 20
MARKER = re.compile(r"<m\d+>")
PATIENCE_S = 300


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with ScriptedProvider() as provider:
        running = Stage(provider, tmp_path, streamed=True, looks_into_store=False)
        yield running
        running.stop()


@dataclass(frozen=True)
class Turn:
    """What one client has said and heard so far, as messages, and where its conversation is kept."""

    marker: str
    messages: tuple[dict[str, Any], ...] = ()
    conversation: str = ""


@dataclass
class Model:
    """Says the marker of a request, and no other. Every tenth client has a hidden round first. No answer goes on behind
    its first words before all of the turn have begun."""

    begun: int = 0

    def __call__(self, received: ReceivedRequest) -> ScriptedAnswer:
        marker = next(str(m["content"]) for m in received.messages if m["role"] == "user")
        if int(marker[2:-1]) % 10 == 0 and received.messages[-1]["role"] == "user":
            return does(push(f"frame {marker}"), text=f"{marker} ")
        self.begun += 1
        turn = (self.begun - 1) // STREAMS + 1
        answer = says(f"{marker} " * PIECES, piece=len(marker) + 1)
        return stall(answer, after_events=3, until=lambda: self.begun >= turn * STREAMS)


def test_a_thousand_streams_over_four_replicas_are_whole_and_never_crossed(
    stage: Stage, postgres: PostgresServer
) -> None:
    store = postgres.new_database()
    settings: dict[str, object] = {"store": store, "wake_at_tokens": 0, "assembly_budget_ms": PATIENCE_S * 1000}
    settings |= {"header_deadline_s": PATIENCE_S, "body_deadline_s": PATIENCE_S}  # a thousand clients share a core
    replicas = [
        KillableProxy(stage, None, data=stage.folder / f"data{at}", **settings).start() for at in range(REPLICAS)
    ]
    stage.provider.when(lambda _: True, Model(), loop=True)
    origins = [f"http://127.0.0.1:{replica.port}" for replica in replicas]
    first = asyncio.run(turn_of_all(origins, [Turn(f"<m{number}>") for number in range(STREAMS)], shift=0))
    second = asyncio.run(turn_of_all(origins, first, shift=1))
    stage.stop()

    crossed = [r.raw for r in stage.provider.received if len(set(MARKER.findall(r.raw.decode()))) != 1]
    assert not crossed, crossed[:1]
    assert [each.conversation for each in second] == [each.conversation for each in first]
    kept = disk.texts(replicas[0].data, store)
    assert set(kept) == {each.conversation for each in first}
    assert {each.conversation: {each.marker} for each in first} == {
        conversation: set(MARKER.findall("".join(texts))) for conversation, texts in kept.items()
    }


async def turn_of_all(origins: list[str], before: list[Turn], *, shift: int) -> list[Turn]:
    """The next turn of every client, all at once; each asks the replica of its number, `shift` further."""
    patience = aiohttp.ClientTimeout(total=PATIENCE_S)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=patience) as session:
        asked = (next_turn(session, origins[(at + shift) % len(origins)], turn) for at, turn in enumerate(before))
        return await asyncio.gather(*asked)


async def next_turn(session: aiohttp.ClientSession, origin: str, turn: Turn) -> Turn:
    body = body_of(turn.marker, awake=True, stream=True)
    body["messages"] += turn.messages
    async with session.post(origin + CHAT, json=body) as answer:
        heard = ReceivedAnswer(answer.status, tuple(answer.headers.items()), await answer.read())
    assert (heard.status, heard.told) == (200, "full"), heard.body[-300:]
    assert (heard.finishes, heard.done) == (["stop"], True), heard.body[-300:]
    has_hidden_round = int(turn.marker[2:-1]) % 10 == 0
    assert heard.text.split() == [turn.marker] * (PIECES + has_hidden_round)
    said = ({"role": "assistant", "content": heard.text}, {"role": "user", "content": turn.marker})
    return replace(turn, messages=(*turn.messages, *said), conversation=answer.headers["x-stack-conversation"])
