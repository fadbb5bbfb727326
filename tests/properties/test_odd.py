"""P8: whatever a client sends and a provider answers, nothing of ours fails over it, and nobody waits for ever.

A client goes on from what it got, as clients do; now and then something in what it sends, or in what it is answered,
is wrong. The provider takes everything, so that what is wrong gets as deep into a history as it can.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from http.client import HTTPConnection, IncompleteRead
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_test_provider import ScriptedProvider
from proxy.exchange.request_handler import UNFINISHED_TURN_TEXT
from tests.harness import RunningProxy, Stage
from tests.properties.depth import searched
from tests.properties.odd import ANSWERS, Called, Json, RawProvider, lenient, spoiled

PATIENCE_S = 10
TURNS = 5
STACK: tuple[Called, ...] = (
    ("stack_frame_push", {"title": "Parser", "criteria": "it parses"}),
    ("stack_frame_pop", {"results": "done"}),
    ("stack_recall", {"ref": "f1"}),
    ("stack", {"op": "status", "args": {}}),
)
THEIRS: Called = ("bash", {"command": "cat parser.py"})
MAY_BE = {200, 502}
"""What an answer of 200 becomes: itself, or an error where it was none that can be read."""


class Client:
    """One conversation in one dialect."""

    def __init__(self, path: str, streamed: bool, chance: Random) -> None:
        self.path, self.streamed, self.chance = path, streamed, chance
        self.history: list[Any] = [{"role": "user", "content": "Read the parser and say what it does."}]
        function: Json = {"name": "bash", "parameters": {"type": "object"}}
        tool: Json = {"name": "bash", "input_schema": {"type": "object"}} if path.endswith("messages") else {}
        tool = tool or ({"type": "function", **function} if path.endswith("responses") else {})
        self.tools = [tool or {"type": "function", "function": function}]

    def body(self) -> Json:
        held = "input" if self.path.endswith("responses") else "messages"
        return {"model": "m", "stream": self.streamed, "tools": self.tools, held: self.history}

    def goes_on(self, answer: Json) -> None:
        """With what it was answered, and results, or words of the user."""
        calls = self._calls(answer)
        if self.path.endswith("completions"):
            self.history.append(answer["choices"][0]["message"])
            self.history += [{"role": "tool", "tool_call_id": call, "content": "def parse(): ..."} for call in calls]
        elif self.path.endswith("messages"):
            self.history.append({"role": "assistant", "content": answer["content"]})
            results = [{"type": "tool_result", "tool_use_id": call, "content": "def parse(): ..."} for call in calls]
            self.history += [{"role": "user", "content": results}] if results else []
        else:
            self.history += answer["output"]
            self.history += [
                {"type": "function_call_output", "call_id": c, "output": "def parse(): ..."} for c in calls
            ]
        if not calls:
            self.history.append({"role": "user", "content": "Go on."})

    def _calls(self, answer: Json) -> list[Any]:
        if self.path.endswith("completions"):
            return [call["id"] for call in answer["choices"][0]["message"].get("tool_calls") or []]
        if self.path.endswith("messages"):
            return [block["id"] for block in answer["content"] if block["type"] == "tool_use"]
        return [item["call_id"] for item in answer["output"] if item["type"] == "function_call"]


class Said:
    """What the provider answers to the rounds of one request; `last` is what the client was shown, as far as it is one
    of these."""

    def __init__(self, client: Client) -> None:
        self.client, self.number = client, 0
        self.last: Json = {}

    def __call__(self, _: Json) -> tuple[list[Any], bool]:
        client, chance = self.client, self.client.chance
        self.number += 1
        calls = [chance.choice([*STACK, THEIRS]) for _ in range(chance.randrange(3))] if self.number < 4 else []
        whole, events = ANSWERS[client.path]("The parser parses.", calls, chance.getrandbits(32))
        self.last = whole
        told: Any = events if client.streamed else whole
        told = spoiled(told, chance, chance.randrange(1, 3)) if chance.random() < 0.5 else told
        return told if client.streamed else [told], client.streamed


@pytest.fixture(scope="module")
def provider() -> Iterator[RawProvider]:
    with lenient() as made:
        yield made


@pytest.fixture(scope="module")
def proxy(provider: RawProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningProxy]:
    folder: Path = tmp_path_factory.mktemp("odd")
    with ScriptedProvider() as nobody:  # the stage wants one; the proxy asks the other
        stage = Stage(nobody, folder, streamed=False, looks_into_store=False)
        yield stage.proxy(upstreams__default__url=provider.url)
        stage.stop()


class Failures(logging.Handler):
    """What went wrong on our side: every line with an exception."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.told.append(record)


def test_an_item_without_a_kind_is_not_looked_for_without_end(proxy: RunningProxy, provider: RawProvider) -> None:
    """It counts as a reference; what stands in its place is the item itself, which again has no kind."""
    silent: Json = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
    ours = {"type": "function_call", "call_id": "c1", "name": "stack", "arguments": '{"op":"status","args":{}}'}
    kindless = {"id": "fc_2", "call_id": "c2", "name": "bash", "arguments": "{}"}
    said: Json = {"type": "message", "id": "msg_0", "role": "assistant"}
    said["content"] = [{"type": "output_text", "text": "The parser is read, all of it.", "annotations": []}]
    client = Client("/v1/responses", False, Random())
    words = [*client.history, {"role": "user", "content": "Go on."}, {"role": "user", "content": "And now?"}]
    rounds = [[said], [silent | {"content": None}, ours, kindless], [silent | {"id": "msg_2"}], [said]]
    left = iter([{"id": f"resp_{at}", "status": "completed", "output": items} for at, items in enumerate(rounds)])
    provider.answers = lambda _: ([next(left)], False)
    echoed = [silent | {"content": None}, kindless, silent | {"id": "msg_2"}]
    for history in (words[:1], [words[0], said, words[1]], [words[0], said, words[1], *echoed, words[2]]):
        assert asked(proxy.port, client.path, client.body() | {"input": history}) == 200


@pytest.mark.parametrize("end", ["stop", "\ud800"])
def test_a_choice_without_a_message_behind_hidden_rounds_passes_and_is_accounted_for(
    proxy: RunningProxy, provider: RawProvider, end: str
) -> None:
    client = Client("/v1/chat/completions", False, Random())
    first, _ = ANSWERS[client.path]("", [STACK[-1]], 1)
    last = first | {"choices": [{"index": 0, "finish_reason": end}]}
    left = iter([first, last])
    provider.answers = lambda _: ([next(left)], False)
    before = len(proxy.receipts())

    assert asked(proxy.port, client.path, client.body()) in MAY_BE
    assert len(proxy.receipts()) == before + 1


@pytest.mark.long
@searched(examples=100)
@given(path=st.sampled_from(sorted(ANSWERS)), streamed=st.booleans(), seed=st.integers(0, 2**32))
def test_p8_nothing_fails_over_odd_requests_and_answers(
    proxy: RunningProxy, provider: RawProvider, path: str, streamed: bool, seed: int
) -> None:
    failures, chance = Failures(), Random(seed)  # the provider's thread draws too, which Hypothesis cannot
    logging.getLogger().addHandler(failures)
    try:
        client = Client(path, streamed, chance)
        for _ in range(TURNS):
            provider.answers = said = Said(client)
            body = spoiled(client.body(), chance, chance.randrange(1, 3)) if chance.random() < 0.3 else client.body()
            status = asked(proxy.port, path, body)
            assert status in MAY_BE, (status, body)
            assert not failures.told, logging.Formatter().format(failures.told[0])
            client.goes_on(spoiled(said.last, chance, 1) if chance.random() < 0.2 else said.last)
    except (KeyError, TypeError, IndexError, AttributeError):
        pass  # the client cannot go on from what it got
    finally:
        logging.getLogger().removeHandler(failures)


def asked(port: int, path: str, body: Json) -> int:
    """The status; the answer is read to its end. Raises TimeoutError where it does not come."""
    connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        connection.request("POST", path, json.dumps(body).encode(), {"content-type": "application/json"})
        response = connection.getresponse()
        try:
            response.read()
        except IncompleteRead as broken:
            if UNFINISHED_TURN_TEXT.encode() not in broken.partial:  # else it says why it breaks off
                raise
        return response.status
    finally:
        connection.close()
