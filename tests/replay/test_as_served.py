"""The same session through `serve`, over HTTP on both sides, and through a replay: the same goes upstream."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

from callstack_proxy.config_sources import load_config
from callstack_proxy.replay.recording import RecordedStep, body_start_and_end, encode_json
from callstack_proxy.replay.services import PATH, TENANT, build_replay
from llm_test_provider import ScriptedProvider
from proxy.exchange import HeldReply
from proxy.exchange import pipeline as exchange
from proxy.exchange.rounds import ClientRequest
from tests.harness import does, pop, push, running_stage

Json = dict[str, Any]
MODEL = "gpt-5.4"
TOOLS = [{"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}]
MADE_HERE = re.compile(r"\b(?:[0-9a-f]{8}|[0-9a-f]{12}|[0-9a-f]{32})\b|\bf[a-z2-7]{8}\b")
"""Ids and nonces: of conversations that began elsewhere, so they differ."""


def user(text: str) -> Json:
    return {"role": "user", "content": text}


def says(text: str) -> Json:
    return {"role": "assistant", "content": text}


def calls(name: str, **arguments: Any) -> list[Json]:
    return [{"id": "call_1", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}]


PUSH = {"title": "Read the rules", "successCriteria": "it works"}
POP = {"status": "completed", "results": "Two rules."}
LONG = "rule one says this and rule two says that; " * 200
HISTORY = [
    user("Read the rules, then write."),
    says("Reading.\n\nReading."),
    user(LONG),
    says("Read.\n\nRead."),
    user("Write."),
]
TURNS = (
    (HISTORY[:1], {**says("Reading."), "tool_calls": calls("stack_frame_push", **PUSH)}),
    (HISTORY[:3], {**says("Read."), "tool_calls": calls("stack_frame_pop", **POP)}),
    (HISTORY, says("Written.")),
)
SCRIPT = (
    does(push("Read the rules"), text="Reading."),
    does(text="Reading."),
    does(pop("Two rules."), text="Read."),
    does(text="Read."),
    does(text="Written."),
)


def steps() -> list[RecordedStep]:
    before, behind = body_start_and_end(MODEL, {"tools": TOOLS})
    return [RecordedStep(before, tuple(map(encode_json, sent)), behind, answer, 0) for sent, answer in TURNS]


def served(folder: Path) -> tuple[list[Json], list[str]]:
    """What went upstream, and how each request was answered, over HTTP."""
    with ScriptedProvider() as provider, running_stage(provider, folder, streamed=False) as stage:
        provider.will(*SCRIPT)
        proxy = stage.proxy()
        statuses = [proxy.post(step.body).stack_status for step in steps()]
        return [json.loads(r.raw) for r in provider.received if r.chat], statuses


def replayed() -> tuple[list[Json], list[str]]:
    """The same in a replay."""

    async def run() -> tuple[list[Json], list[str]]:
        backstage = build_replay(load_config({"wake_at_tokens": 0}))
        bodies, statuses = [], []
        for number, step in enumerate(steps()):
            backstage.provider.expect(step)
            heard = HeldReply()
            client_request = ClientRequest(f"r{number}", TENANT, "POST", PATH, b"", [], step.body)
            await exchange.handle(backstage.services, client_request, heard)
            bodies += [json.loads(request.body) for request in backstage.provider.received]
            statuses.append(heard.header_values.get("x-stack-status", ""))
        return bodies, statuses

    return asyncio.run(run())


def plain(bodies: list[Json]) -> list[Any]:
    """Tools, and of each message who says what, without the ids of calls."""
    return [
        (
            [tool["function"]["name"] for tool in body["tools"]],
            [(m["role"], MADE_HERE.sub("ID", m.get("content") or ""), _named(m)) for m in body["messages"]],
        )
        for body in bodies
    ]


def _named(message: Json) -> list[str]:
    return [call["function"]["name"] for call in message.get("tool_calls") or ()]


def test_a_replay_sends_what_serve_sends(tmp_path: Path) -> None:
    (through_serve, told), (through_replay, told_again) = served(tmp_path), replayed()

    assert told_again == told == ["full"] * len(TURNS)
    assert len(through_replay) == len(SCRIPT)
    assert plain(through_replay) == plain(through_serve)
