"""What a client of the scripted provider gets, streamed and not, over a real socket."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from llm_test_provider import (
    FixedReply,
    Model,
    ReceivedRequest,
    ScriptedCall,
    ScriptedProvider,
    Usage,
    When,
    answers,
    call,
    calls,
    says,
)

Ask = Callable[..., tuple[int, dict[str, str], bytes]]
Chunks = Callable[[bytes], list[dict[str, Any]]]


def deltas(chunks: list[dict[str, Any]], key: str) -> list[Any]:
    found = [choice["delta"].get(key) for chunk in chunks for choice in chunk["choices"]]
    return [value for value in found if value is not None]


def test_a_plain_answer_is_one_completion_with_usage_and_unknown_fields(provider: ScriptedProvider, ask: Ask) -> None:
    provider.will(says("hello"))

    status, headers, body = ask(provider)

    answer = json.loads(body)
    assert (status, headers["content-type"]) == (200, "application/json")
    assert answer["object"] == "chat.completion"
    assert answer["choices"][0]["message"]["content"] == "hello"
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"]["total_tokens"] == answer["usage"]["prompt_tokens"] + answer["usage"]["completion_tokens"]
    assert {"x_vendor", "system_fingerprint", "service_tier"} <= set(answer)


def test_a_stream_opens_with_the_role_and_closes_with_a_finish_and_done(
    provider: ScriptedProvider, ask: Ask, chunks: Chunks
) -> None:
    provider.will(says("a text of more than one piece"))

    _, headers, body = ask(provider, stream=True)

    read = chunks(body)
    assert headers["content-type"].startswith("text/event-stream")
    assert read[0]["choices"][0]["delta"]["role"] == "assistant"
    assert "".join(deltas(read, "content")) == "a text of more than one piece"
    assert [c["choices"][0]["finish_reason"] for c in read][-2:] == [None, "stop"]
    assert body.endswith(b"data: [DONE]\n\n")
    assert all("usage" not in chunk for chunk in read)


def test_usage_is_streamed_only_where_the_client_asks_for_it(
    provider: ScriptedProvider, ask: Ask, chunks: Chunks
) -> None:
    """S14"""
    provider.will(says("x", usage=Usage(100, 7, cached=64, written=10, reasoning=3)))

    _, _, body = ask(provider, stream=True, stream_options={"include_usage": True})

    *others, last = chunks(body)
    assert all(chunk["usage"] is None for chunk in others)
    assert last["choices"] == []
    assert last["usage"] == {
        "prompt_tokens": 100,
        "completion_tokens": 7,
        "total_tokens": 107,
        "prompt_tokens_details": {"cached_tokens": 64, "audio_tokens": 0, "cache_write_tokens": 10},
        "completion_tokens_details": {"reasoning_tokens": 3},
    }


def test_a_call_is_the_same_streamed_and_not(provider: ScriptedProvider, ask: Ask, chunks: Chunks) -> None:
    shell = ScriptedCall("shell", {"command": "ls -la /a/long/path"}, id="call_1", signature="sig")
    provider.will(answers(calls=[shell]), answers(calls=[shell]))

    whole = json.loads(ask(provider)[2])["choices"][0]
    read = chunks(ask(provider, stream=True)[2])

    parts = [part for delta in deltas(read, "tool_calls") for part in delta]
    assert parts[0]["id"] == whole["message"]["tool_calls"][0]["id"] == "call_1"
    assert parts[0]["function"]["name"] == "shell"
    assert parts[0]["extra_content"]["google"]["thought_signature"] == "sig"
    streamed = "".join(part["function"]["arguments"] for part in parts)
    assert streamed == whole["message"]["tool_calls"][0]["function"]["arguments"]
    assert whole["finish_reason"] == read[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_calls_without_an_id_are_numbered(provider: ScriptedProvider, ask: Ask) -> None:
    provider.will(answers(calls=[call("a"), call("b")]), calls("c", x=1))

    made = [json.loads(ask(provider)[2])["choices"][0]["message"]["tool_calls"] for _ in range(2)]

    ids = [one["id"] for group in made for one in group]
    assert len(set(ids)) == 3


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "reasoning_details"])
def test_reasoning_travels_in_the_field_the_script_names(
    provider: ScriptedProvider, ask: Ask, chunks: Chunks, field: str
) -> None:
    provider.will(answers("x", reasoning="I think of much", reasoning_fields=(field,)))

    found = deltas(chunks(ask(provider, stream=True)[2]), field)

    text = "".join(f if isinstance(f, str) else f[0]["text"] for f in found)
    assert text == "I think of much"


def test_n_choices_logprobs_and_legacy_functions_keep_their_meaning(
    provider: ScriptedProvider, ask: Ask, chunks: Chunks
) -> None:
    """S14"""
    provider.will(says("two"), says("sure"), calls("f", a=1))

    two = json.loads(ask(provider, n=2)[2])
    sure = chunks(ask(provider, stream=True, logprobs=True)[2])
    legacy = json.loads(ask(provider, functions=[{"name": "f"}])[2])

    assert [choice["index"] for choice in two["choices"]] == [0, 1]
    assert sure[1]["choices"][0]["logprobs"]["content"][0]["token"] == "sure"
    assert legacy["choices"][0]["message"]["function_call"] == {"name": "f", "arguments": '{"a": 1}'}
    assert legacy["choices"][0]["finish_reason"] == "function_call"


def test_an_exhausted_script_is_a_500_that_says_so(provider: ScriptedProvider, ask: Ask) -> None:
    status, _, body = ask(provider)

    assert status == 500
    assert json.loads(body)["error"]["code"] == "script_exhausted"


def test_a_condition_that_raises_is_a_500_the_test_sees(provider: ScriptedProvider, ask: Ask) -> None:
    provider.when(lambda received: bool(received["no such key"]), says("never"))

    status, _, body = ask(provider)

    assert status == 500
    assert "no such key" in json.loads(body)["error"]["message"]


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[1]", b"\xff", b'{"messages": "x"}', b'{"messages": [1]}', b"[" * 100_000]
)
def test_a_body_that_is_no_chat_request_is_a_400_and_takes_no_answer(
    provider: ScriptedProvider, exchange: Callable[..., tuple[bytes, str]], body: bytes
) -> None:
    provider.will(says("kept"))
    head = f"POST /v1/chat/completions HTTP/1.1\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode()

    heard, _ = exchange(provider, head + body)

    assert heard.startswith(b"HTTP/1.1 400 ")
    assert provider.received[0].raw == body
    assert provider.script.left == 1


@pytest.mark.parametrize(
    "odd",
    [
        {"tools": 7},
        {"tools": ["x", {"function": "y"}]},
        {"functions": 1},
        {"stream_options": "x", "n": "many"},
        {"messages": [{"role": 5, "content": {"a": 1}, "tool_calls": 5}]},
        {"messages": [{"role": "assistant", "content": [1], "tool_calls": [{"id": 1, "extra_content": "x"}, 2]}]},
        {"messages": [{"role": "user", "content": "\ud800 lone"}]},
        {"seed": 10**40, "model": None},
    ],
)
def test_odd_types_are_answered_all_the_same(ask: Ask, odd: dict[str, Any]) -> None:
    strict = Model("m", window=10_000, required=("reasoning_content", "thought_signature"))
    with ScriptedProvider(says("fine"), models=[strict]) as provider:
        provider.when(When(tool="never", user="never", tool_result="never", model="never"), says("wrong"))
        status, _, body = ask(provider, **odd)

    assert (status, json.loads(body)["choices"][0]["message"]["content"]) == (200, "fine")


def test_rules_come_before_the_queue_and_step_aside_when_used_up(provider: ScriptedProvider, ask: Ask) -> None:
    provider.will(says("queued"))
    provider.when("blue", says("for blue"))
    provider.when(When(user="^red"), says("first red"), says("second red"), loop=True)

    heard = [
        json.loads(ask(provider, asked)[2])["choices"][0]["message"]["content"]
        for asked in ("red 1", "is blue", "red 2", "red 3", "blue again")
    ]

    assert heard == ["first red", "for blue", "second red", "first red", "queued"]


def test_an_answer_may_be_computed_from_the_request(provider: ScriptedProvider, ask: Ask) -> None:
    def echo(received: ReceivedRequest) -> Any:
        return says(f"{received.chat}: {received.messages[-1]['content']}")

    provider.will(echo)

    assert json.loads(ask(provider, "ping")[2])["choices"][0]["message"]["content"] == "1: ping"


def test_models_are_listed_and_unknown_paths_are_a_404(provider: ScriptedProvider, ask: Ask) -> None:
    provider.reply("/v1/embeddings", FixedReply(200, b'{"data": []}'))

    assert ask(provider, path="/v1/embeddings")[2] == b'{"data": []}'
    status, _, body = ask(provider, path="/v1/unheard?of=this")
    assert status == 404
    assert json.loads(body)["error"]["code"] == "unknown_url"
    assert (provider.received[1].path, provider.received[1].query) == ("/v1/unheard", "of=this")
    assert provider.asked == []


def test_a_prompt_beyond_the_window_is_refused_in_the_models_own_words(ask: Ask) -> None:
    small = Model("m", window=50, refusal="anthropic")
    with ScriptedProvider(says("fits"), models=[small], count=len) as provider:
        status, _, body = ask(provider, "x" * 47)
        fits, _, _ = ask(provider, "x" * 46)

    assert (status, fits) == (400, 200)
    assert json.loads(body)["error"]["message"] == "prompt is too long: 51 tokens > 50 maximum"


def test_cached_tokens_are_reported_as_the_history_grows(ask: Ask) -> None:
    history: list[dict[str, str]] = [{"role": "user", "content": "x" * 2000}]
    with ScriptedProvider(says("1"), says("2"), models=[Model("m", cache="openai")], count=len) as provider:
        ask(provider, messages=history)
        ask(provider, messages=[*history, {"role": "assistant", "content": "1"}, {"role": "user", "content": "go"}])

    first, second = (received.usage for received in provider.received)
    assert first is not None
    assert second is not None
    assert (first.cached, second.cached, second.prompt) == (0, 1920, 2004 + 5 + 6)


async def test_the_provider_also_runs_inside_an_event_loop(ask: Ask) -> None:
    async with ScriptedProvider(says("here")) as provider:
        _, _, body = await asyncio.to_thread(ask, provider)

    assert json.loads(body)["choices"][0]["message"]["content"] == "here"


def test_a_port_that_is_taken_is_an_error_at_once(provider: ScriptedProvider) -> None:
    with pytest.raises(OSError, match="in use"), ScriptedProvider(port=provider.port):
        pass


def test_waiting_for_a_request_that_never_comes_is_an_error(provider: ScriptedProvider) -> None:
    with pytest.raises(TimeoutError, match="0 requests"):
        provider.wait_for(1, timeout=0.01)
