"""Captured sessions of real clients against the strict profile of their API: what it takes from a client it takes from
the proxy, awake from the first request on, and in the full form."""

import http.client
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from llm_test_provider import ReceivedRequest, ScriptedAnswer, ScriptedCall, ScriptedProvider, says
from tests.harness import does, pop, push, running_stage
from tests.yardstick.test_captures import SHARED

Json = dict[str, Any]
PROFILE_OF = {"chat/completions": "openai", "messages": "anthropic", "responses": "openai"}
SESSIONS = sorted((SHARED / "captures").glob("*/*.jsonl"))
LEFT_OUT = ("accept-encoding", "connection", "content-length")
WAIT_S = 30
HIDDEN = {1: push("Part of it"), 3: pop("It is done.")}
"""Calls of ours before the recorded answer, at these of four requests."""

pytestmark = [
    pytest.mark.yardstick,
    pytest.mark.rows("X-27"),
    pytest.mark.skipif(not SESSIONS, reason="the captured sessions are not beside this checkout"),
]


def flights(path: Path) -> Iterator[tuple[Json, str]]:
    """The requests for an answer that were answered, each with the profile of its API."""
    for line in path.read_text().splitlines():
        record = json.loads(line)
        profile = next((name for end, name in PROFILE_OF.items() if record["path"].endswith(f"/{end}")), "")
        if profile and record["method"] == "POST" and record["answer"]["status"] == 200:
            yield record, profile


def answer_of(record: Json) -> ScriptedAnswer:
    """As the recording says, with the ids that go out in the API."""
    said, messages = record["answer"], record["path"].endswith("/messages")
    made = [
        ScriptedCall(c["name"], c["args"], c["id"].replace("call_", "toolu_") if messages else c["id"])
        for c in said.get("calls") or []
    ]
    return ScriptedAnswer(text=said.get("text") or "", calls=tuple(made))


def offers(name: str) -> Callable[[ReceivedRequest], bool]:
    return lambda received: name in received.tool_names


def post(port: int, record: Json) -> tuple[int, str, bytes]:
    """Status, what the proxy says of it, and the body."""
    headers = {name: value for name, value in dict(record["headers"]).items() if name.lower() not in LEFT_OUT}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
    try:
        target = record["path"] + (f"?{record['query']}" if record.get("query") else "")
        connection.request("POST", target, json.dumps(record["body"]).encode(), headers)
        response = connection.getresponse()
        return response.status, response.getheader("x-stack-status") or "", response.read()
    finally:
        connection.close()


@pytest.mark.parametrize("path", SESSIONS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_strict_provider_takes_every_captured_session(path: Path, tmp_path: Path) -> None:
    profile = next((profile for _, profile in flights(path)), "openai")
    taken = 0
    with (
        ScriptedProvider(strict=profile) as direct,
        ScriptedProvider(strict=profile) as provider,
        running_stage(provider, tmp_path, streamed=True) as stage,
    ):
        stage.judged = False
        proxy = stage.proxy(tenancy="credential")
        direct.when(lambda _: True, says("Noted."), loop=True)
        for record, _ in flights(path):
            if post(direct.port, record)[0] != 200:  # the client's own request is refused
                continue
            if hidden := HIDDEN.get(taken % 4):
                said = does(hidden, reasoning="What next?" if profile == "anthropic" else "")
                provider.when(offers(hidden.name), said)
            provider.will(answer_of(record))
            status, told, raw = post(proxy.port, record)
            assert status == 200, (record["seq"], raw[:400])
            assert "form=" not in told, (record["seq"], told)
            assert not told.startswith("bypass"), (record["seq"], told)
            taken += 1
        assert all(received.status == 200 for received in provider.asked)
    assert taken
