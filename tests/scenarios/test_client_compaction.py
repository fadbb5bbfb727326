"""X-33: a client that leaves its compaction to the provider, by an endpoint or by an item, as Codex does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from llm_test_provider import FixedReply, Model, ScriptedProvider, says
from tests.harness import does
from tests.scenarios.native import Responses, bash
from tests.scenarios.test_dialect_specials import GPT, JOBS, Started, works
from tests.wire.proxied import ServedProxy
from tests.wire.talking import ReceivedAnswer, ask

Json = dict[str, Any]
ENDPOINT = "/v1/responses/compact"
SEALED: Json = {"type": "compaction", "id": "cmp_1", "encrypted_content": "c2VhbGVk"}
COMPACTED: Json = {
    "id": "resp_c", "object": "response.compaction", "output": [SEALED],
    "usage": {"input_tokens": 900, "output_tokens": 20, "total_tokens": 920},
}  # fmt: skip
TRIGGER: Json = {"type": "compaction_trigger"}
SESSION = {"session-id": "s1", "thread-id": "s1", "originator": "codex_exec"}


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider(models=[Model(GPT, binding="error")]) as running:
        yield running


@pytest.fixture
def start(provider: ScriptedProvider, tmp_path: Path) -> Iterator[Started]:
    with ExitStack() as stack:
        yield lambda **settings: stack.enter_context(ServedProxy(provider.url, tmp_path / "data", **settings))


def codex(start: Started, **settings: object) -> Responses:
    return Responses(start(**settings), GPT, headers=dict(SESSION))


def compacts(chat: Responses, **more: Any) -> ReceivedAnswer:
    body = {**chat.body(), **more}
    return ask(chat.proxy.origin, json.dumps(body).encode(), path=ENDPOINT, headers=chat.headers)


def answer_with(provider: ScriptedProvider, status: int = 200, body: Json = COMPACTED) -> None:
    provider.reply(ENDPOINT, FixedReply(status, json.dumps(body).encode()))


def sent(provider: ScriptedProvider) -> str:
    return json.dumps(provider.received[-1].body)


@pytest.mark.rows("X-33")
def test_the_endpoint_gets_the_context_without_our_tools(provider: ScriptedProvider, start: Started) -> None:
    chat = codex(start)
    for job in range(3):
        works(chat, provider, job)
    answer_with(provider)

    answer = compacts(chat)

    assert answer.json == COMPACTED
    assert answer.told == "full"
    assert provider.received[-1].path == ENDPOINT
    assert "result-0-0-1" in json.dumps(chat.history)
    assert "result-0-0-1" not in sent(provider)
    assert "result-2-3-1" in sent(provider)
    assert JOBS[0] in sent(provider)
    assert [tool["name"] for tool in provider.received[-1]["tools"]] == ["bash"]
    assert len(sent(provider)) < len(json.dumps(chat.history)) / 2


@pytest.mark.rows("X-33")
def test_the_item_gets_the_context_and_one_sealed_item_back(provider: ScriptedProvider, start: Started) -> None:
    chat = codex(start)
    for job in range(3):
        works(chat, provider, job)
    provider.will(says("", own=(SEALED,)))
    chat.history.append(TRIGGER)

    events = chat.streams()

    output = events[-1]["response"]["output"]
    assert [item["type"] for item in output if item["type"] == "compaction"] == ["compaction"]
    assert "result-0-0-1" not in sent(provider)
    assert provider.received[-1]["input"][-1] == TRIGGER
    assert [tool["name"] for tool in provider.received[-1]["tools"]] == ["bash"]


def leaves_compaction(chat: Responses, provider: ScriptedProvider, *, by_item: bool) -> None:
    """Codex leaves it to the provider: with an item in its history, or at an endpoint of its own."""
    if by_item:
        provider.will(says("", own=(SEALED,)))
        chat.history.append(TRIGGER)
        chat.streams()
    else:
        answer_with(provider)
        compacts(chat)


@pytest.mark.rows("X-33")
@pytest.mark.parametrize("by_item", [False, True])
def test_the_frames_go_on_behind_it(provider: ScriptedProvider, start: Started, by_item: bool) -> None:
    chat = codex(start)
    for job in range(3):
        works(chat, provider, job)
    conversation = chat.heard.conversation
    frames = chat.proxy.state(conversation)["frames"]
    leaves_compaction(chat, provider, by_item=by_item)
    chat.history = [{"role": "user", "content": JOBS[0]}, SEALED]
    works(chat, provider, 3)

    assert chat.heard.conversation == conversation
    assert chat.status == "full"
    assert set(frames) <= set(chat.proxy.state(conversation)["frames"])
    assert SEALED in provider.received[-1]["input"]


def test_what_is_new_behind_the_known_history_goes_along(provider: ScriptedProvider, start: Started) -> None:
    chat = codex(start)
    for job in range(3):
        works(chat, provider, job)
    answer_with(provider)

    compacts(chat, input=[*chat.history, {"role": "user", "content": "One thing nobody has heard of."}])

    assert "result-0-0-1" not in sent(provider)
    assert provider.received[-1]["input"][-1]["content"] == "One thing nobody has heard of."


@pytest.mark.rows("X-33")
@pytest.mark.parametrize("returned", [2, 1])
@pytest.mark.parametrize("by_item", [False, True])
def test_a_result_that_comes_with_it_is_told_once_and_never_as_cancelled(
    provider: ScriptedProvider, start: Started, by_item: bool, returned: int
) -> None:
    """Codex compacts between two calls as well: the newest results reach the provider with the compaction first."""
    chat = codex(start)
    for job in range(3):
        works(chat, provider, job)
    provider.will(does(bash("first"), bash("second")))
    chat.says("Run two more.")
    made = [item["call_id"] for item in chat.history if item.get("type") == "function_call"][-2:]
    outputs = {call_id: f"the output of {call_id}" for call_id in made[:returned]}
    chat.history += [{"type": "function_call_output", "call_id": c, "output": text} for c, text in outputs.items()]
    leaves_compaction(chat, provider, by_item=by_item)

    told = [item for item in provider.received[-1]["input"] if item.get("call_id") in made and "output" in item]
    assert "result-0-0-1" not in sent(provider)
    assert [item["call_id"] for item in sorted(told, key=lambda item: made.index(item["call_id"]))] == made
    assert outputs.items() <= {item["call_id"]: item["output"] for item in told}.items()


def test_where_the_proxy_does_not_act_it_passes_as_it_came(provider: ScriptedProvider, start: Started) -> None:
    chat = codex(start, mode="off")
    works(chat, provider, 0)
    answer_with(provider)

    answer = compacts(chat)

    assert answer.json == COMPACTED
    assert provider.received[-1].body == chat.body()


def test_a_history_that_nobody_knows_passes_as_it_came(provider: ScriptedProvider, start: Started) -> None:
    chat = codex(start)
    chat.history = [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hello."}]
    answer_with(provider)

    answer = compacts(chat)

    assert answer.json == COMPACTED
    assert answer.told == "bypass; reason=compaction"
    assert provider.received[-1].body == chat.body()


def test_a_provider_that_refuses_the_context_gets_the_clients_own(provider: ScriptedProvider, start: Started) -> None:
    chat = codex(start)
    for job in range(3):
        works(chat, provider, job)
    answer_with(provider, 422, {"error": {"message": "no such form", "type": "invalid_request_error"}})

    answer = compacts(chat)

    assert answer.status == 422
    assert [len(received["input"]) == len(chat.history) for received in provider.received[-2:]] == [False, True]


def test_an_error_of_the_provider_reaches_the_client(provider: ScriptedProvider, start: Started) -> None:
    chat = codex(start)
    works(chat, provider, 0)
    answer_with(provider, 503, {"error": {"message": "busy", "type": "server_error"}})
    before = len(provider.received)

    answer = compacts(chat)

    assert answer.status == 503
    assert answer.json["error"]["message"] == "busy"
    assert len(provider.received) == before + 1


def test_its_cost_is_in_the_books(provider: ScriptedProvider, start: Started) -> None:
    chat = codex(start)
    for job in range(3):
        works(chat, provider, job)
    answer_with(provider)
    compacts(chat)

    receipt = chat.receipt
    assert receipt["status"] == "full"
    assert receipt["tokens_last"] < receipt["tokens_in"] / 2
    assert receipt["usage"]["input"] == 900


def test_a_body_that_is_none_passes(provider: ScriptedProvider, start: Started) -> None:
    chat = codex(start)
    answer_with(provider, 400, {"error": {"message": "no JSON", "type": "invalid_request_error"}})

    answer = ask(chat.proxy.origin, b"{", path=ENDPOINT)

    assert answer.status == 400
    assert answer.json["error"]["message"] == "no JSON"
