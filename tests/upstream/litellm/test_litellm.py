"""An upstream behind litellm answers as any other one does: in the dialect that was asked, with the provider's own
refusals, and it is gone when nobody listens any more."""

import asyncio
import json
from contextlib import suppress
from typing import Any

import pytest

from llm_test_provider import ScriptedAnswer as Scripted
from llm_test_provider import (
    ScriptedProvider,
    Usage,
    answers,
    call,
    cut,
    empty,
    error_chunk,
    html,
    only_done,
    overflow,
    reset,
    says,
    stall,
    status,
    truncated,
)
from proxy.core.ledger.messages import Usage as Told
from proxy.dialects.usage import usage_of
from proxy.errors import UpstreamClosed, UpstreamError, UpstreamTimeout, UpstreamUnreachable
from proxy.upstream.http import Answer
from proxy.upstream.litellm import LitellmUpstream
from proxy.upstream.overflow_errors import is_overflow
from tests.llm_test_provider.speakers import SPEAKERS, DialectAnswer, DialectClient, events_of
from tests.upstream.litellm.conftest import through

Json = dict[str, Any]
MODELS = {"openai": "openai/gpt-5", "anthropic": "anthropic/claude-sonnet-4-5"}
CHAT = SPEAKERS["chat"]
LONG = says("one two three four five six seven eight nine ten")


async def asked(upstream: LitellmUpstream, speaker: DialectClient, body: Json) -> Answer:
    client = [(b"authorization", b"Bearer sk-client"), (b"content-type", b"application/json")]
    return await upstream.send("POST", speaker.path, b"", client, json.dumps(body).encode())


async def heard(upstream: LitellmUpstream, speaker: DialectClient, body: Json) -> DialectAnswer:
    answer = await asked(upstream, speaker, body)
    raw = await answer.body()
    assert answer.status == 200, raw
    return speaker.streamed(events_of(raw)) if body.get("stream") else speaker.whole(json.loads(raw))


def chat(**more: Any) -> Json:
    return CHAT.first("x") | {"model": "openai/gpt-x"} | more


# --------------------------------------------------------------------------------------------------------- what is said
@pytest.mark.rows("X-20", "S4-60")
@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize(
    ("dialect", "vendor"),
    [("chat", "openai"), ("chat", "anthropic"), ("messages", "anthropic"), ("responses", "openai")],
)
async def test_what_a_round_said_comes_whole_and_goes_back_whole(
    provider: ScriptedProvider, dialect: str, vendor: str, *, streamed: bool
) -> None:
    """X-20, S4-60: text, calls, reasoning with what signs it, usage."""
    speaker, made = SPEAKERS[dialect], [call("bash", command="ls"), call("bash", command="pwd")]
    provider.will(answers("I look.", made, reasoning="hmm"), says("Two files."))
    body = speaker.first("x", "Be brief.", ["bash"]) | {"model": MODELS[vendor], "stream": streamed}
    body |= {"stream_options": {"include_usage": True}} if dialect == "chat" and streamed else {}

    async with through(provider, vendor) as upstream:
        first = await heard(upstream, speaker, body)
        second = await heard(upstream, speaker, speaker.then(body, first, "a b", "/home"))

    assert (first.text, first.reasoning, second.text) == ("I look.", "hmm", "Two files.")
    assert first.calls == [("bash", {"command": "ls"}), ("bash", {"command": "pwd"})]
    charged = provider.asked[1].usage
    assert charged is not None
    assert second.usage == (charged.prompt, charged.cached, charged.completion)
    assert [result for _, result in provider.asked[1].results] == ["a b", "/home"]
    if dialect != "chat":
        assert (b'"signature"' if dialect == "messages" else b'"encrypted_content"') in provider.asked[1].raw


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize(("dialect", "vendor"), [("messages", "openai"), ("responses", "anthropic")])
async def test_a_client_of_one_api_reaches_a_provider_of_the_other(
    provider: ScriptedProvider, dialect: str, vendor: str, *, streamed: bool
) -> None:
    speaker = SPEAKERS[dialect]
    provider.will(answers("I look.", [call("bash", command="ls")]))
    body = speaker.first("x", "Be brief.", ["bash"]) | {"model": MODELS[vendor], "stream": streamed}

    async with through(provider, vendor) as upstream:
        raw = await (await asked(upstream, speaker, body)).body()

    assert all(part in raw for part in (b"loo", b'"bash"', b"command"))
    assert provider.asked[0].system == "Be brief."


CHARGED = Usage(prompt=100, completion=30, cached=60, written=10)


@pytest.mark.rows("S4-20", "S4-60", "C13")
@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("vendor", MODELS)
@pytest.mark.parametrize("dialect", SPEAKERS)
async def test_s4_60_usage_counts_once_whoever_tells_it_in_whose_words(
    provider: ScriptedProvider, dialect: str, vendor: str, *, streamed: bool
) -> None:
    """C13, S4-20: OpenAI's prompt holds the cached tokens, Anthropic's does not, and litellm translates one into the
    other."""
    speaker = SPEAKERS[dialect]
    provider.will(says("yes", usage=CHARGED))
    body = speaker.first("x") | {"model": MODELS[vendor], "stream": streamed}
    body |= {"stream_options": {"include_usage": True}} if dialect == "chat" and streamed else {}
    async with through(provider, vendor) as upstream:
        raw = await (await asked(upstream, speaker, body)).body()
    told: Json = {}
    for event in events_of(raw) if streamed else [json.loads(raw)]:
        for holder in (event, event.get("message") or {}, event.get("response") or {}):
            told |= holder.get("usage") or {}
    assert usage_of(told) == Told(input=100, output=30, cached=60, written=10)


async def test_what_openai_has_no_name_for_reaches_a_provider_that_speaks_its_api(provider: ScriptedProvider) -> None:
    provider.will(says("yes"))
    async with through(provider) as upstream:
        await asked(upstream, CHAT, chat(top_k=3, metadata={"a": "b"}, store=False, new_thing=[1]))
    sent = provider.asked[0].body
    assert {name: sent[name] for name in ("top_k", "metadata", "store", "new_thing")} == {
        "top_k": 3, "metadata": {"a": "b"}, "store": False, "new_thing": [1],
    }  # fmt: skip


async def test_what_another_api_has_no_word_for_is_left_out_unless_the_operator_says_otherwise(
    provider: ScriptedProvider,
) -> None:
    body = chat(model=MODELS["anthropic"], store=False, new_thing=[1], top_k=3)
    provider.will(says("yes"))
    async with through(provider, "anthropic") as upstream:
        assert (await asked(upstream, CHAT, body)).status == 200
    async with through(provider, "anthropic", options={"drop_params": False}) as upstream:
        answer = await asked(upstream, CHAT, body)
        assert (answer.status, b"store" in await answer.body()) == (400, True)
    sent = provider.asked[0].body
    assert (sent["top_k"], {"store", "new_thing", "extra_body"} & set(sent)) == (3, set())


# ------------------------------------------------------------------------------------------------------ who may say
# what
async def test_a_request_chooses_neither_address_nor_key_nor_how_litellm_works(provider: ScriptedProvider) -> None:
    """DESIGN 11: the upstream comes from the operator's configuration only."""
    forged = {
        "api_base": "http://127.0.0.1:9", "base_url": "http://127.0.0.1:9", "api_key": "sk-forged",
        "mock_response": "forged", "fallbacks": ["openai/other"], "num_retries": 3, "custom_llm_provider": "azure",
        "extra_headers": {"x-forged": "1"}, "model_list": [{"model_name": "m"}], "timeout": 0.001,
    }  # fmt: skip
    provider.will(says("from there"), says("from there"))
    for vendor in MODELS:
        async with through(provider, vendor) as upstream:
            raw = await (await asked(upstream, CHAT, chat(model=MODELS[vendor], **forged))).body()
        assert b"from there" in raw
    sent = [dict(received.headers) for received in provider.asked]
    assert (sent[0]["authorization"], sent[1]["x-api-key"]) == ("Bearer sk-operator", "sk-operator")
    assert not [name for headers in sent for name in headers if "forged" in name]
    assert "sk-client" not in str(sent)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (chat(model="huggingface/https://evil.example"), "an address is not taken"),
        (chat(model=5), "must be a name"),
        ({"model": "openai/gpt-x"}, "has no 'messages'"),
        (chat(tools=[{"type": "advisor_20260301", "name": "advisor", "model": "openai/o"}]), "'advisor_20260301'"),
        (chat(model="groq/m", tools=[{"type": "file_search", "vector_store_ids": ["v"]}]), "'file_search'"),
    ],
)
async def test_a_body_that_asks_for_more_than_an_answer_is_refused(
    provider: ScriptedProvider, body: Json, told: str
) -> None:
    async with through(provider) as upstream:
        answer = await asked(upstream, CHAT, body)
        assert answer.status == 400
        assert told in json.loads(await answer.body())["error"]["message"]
    assert provider.received == []


@pytest.mark.parametrize("path", ["/v1/models", "/v1/embeddings", "/v1/messages/count_tokens", "/v1/responses/resp_1"])
async def test_other_endpoints_are_not_there(provider: ScriptedProvider, path: str) -> None:
    async with through(provider) as upstream:
        answer = await upstream.send("POST", path, b"", [], b"{}")
        assert (answer.status, path in (await answer.body()).decode()) == (404, True)


# ------------------------------------------------------------------------------------------------------- what is
# refused
@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("code", [400, 401, 403, 404, 422, 429, 500, 503, 529])
@pytest.mark.parametrize("vendor", MODELS)
async def test_the_client_sees_the_status_and_the_words_of_the_provider(
    provider: ScriptedProvider, vendor: str, code: int, *, streamed: bool
) -> None:
    """And one request is one request: litellm tries nothing again."""
    provider.will(status(code, headers={"retry-after": "7", "x-ratelimit-reset-requests": "1s"}))
    async with through(provider, vendor) as upstream:
        answer = await asked(upstream, CHAT, chat(model=MODELS[vendor], stream=streamed))
        told = json.loads(await answer.body())
    assert (answer.status, answer.header(b"retry-after")) == (code, b"7")
    assert answer.header(b"x-ratelimit-reset-requests") == b"1s"
    assert told["error"]["message"] == f"Scripted status {code}."
    assert len(provider.received) == 1


@pytest.mark.parametrize("body", ["Too many cooks.", '[{"error": {"message": "Too many cooks.", "status": "NO"}}]'])
@pytest.mark.parametrize("vendor", MODELS)
async def test_words_in_no_usual_shape_are_told_as_well(provider: ScriptedProvider, vendor: str, body: str) -> None:
    """As plain text, or in a list, as some providers of Gemini have it."""
    provider.will(status(400, body=body))
    async with through(provider, vendor) as upstream:
        answer = await asked(upstream, CHAT, chat(model=MODELS[vendor], stream=True))
        told = json.loads(await answer.body())
    assert (answer.status, told["error"]["message"]) == (400, "Too many cooks.")


@pytest.mark.parametrize("vendor", MODELS)
async def test_a_refusal_has_the_shape_of_the_api_that_was_asked(provider: ScriptedProvider, vendor: str) -> None:
    speaker = SPEAKERS["messages"]
    provider.will(status(429, headers={"retry-after": "7"}))
    async with through(provider, vendor) as upstream:
        answer = await asked(upstream, speaker, speaker.first("x") | {"model": MODELS[vendor], "stream": True})
        told = json.loads(await answer.body())
    assert (answer.status, answer.header(b"retry-after")) == (429, b"7")
    assert (told["type"], told["error"]["message"]) == ("error", "Scripted status 429.")


@pytest.mark.rows("S4-24")
@pytest.mark.parametrize("wording", ["openai", "anthropic", 5, 9])
@pytest.mark.parametrize("vendor", MODELS)
async def test_a_refusal_for_length_is_known_by_its_words(
    provider: ScriptedProvider, vendor: str, wording: int | str
) -> None:
    """S4-24: it can be trimmed and asked again."""
    provider.will(overflow(wording))
    async with through(provider, vendor) as upstream:
        answer = await asked(upstream, CHAT, chat(model=MODELS[vendor], stream=True))
        assert is_overflow(answer.status, await answer.body(), 210_000)


async def test_nobody_there_is_told_as_such(provider: ScriptedProvider) -> None:
    for vendor in MODELS:
        async with through(provider, vendor, url="http://127.0.0.1:9") as upstream:
            with pytest.raises(UpstreamUnreachable, match="upstream there cannot be reached"):
                await asked(upstream, CHAT, chat(model=MODELS[vendor], stream=True))


@pytest.mark.parametrize("streamed", [True, False])
async def test_silence_before_the_first_byte_is_a_timeout(provider: ScriptedProvider, *, streamed: bool) -> None:
    provider.will(says("late", delay_s=60))
    async with through(provider, idle_timeout_s=0.2) as upstream:
        with pytest.raises(UpstreamTimeout):
            await asked(upstream, CHAT, chat(stream=streamed))


@pytest.mark.parametrize("broken", [html(), empty(), only_done()], ids=["html", "empty", "done"])
async def test_a_stream_without_an_answer_is_an_error_and_no_end(provider: ScriptedProvider, broken: Scripted) -> None:
    """litellm would make up a `stop`: DESIGN 11, never answer 200 with nothing."""
    provider.will(broken)
    async with through(provider) as upstream:
        with pytest.raises(UpstreamClosed, match="before it began"):
            await asked(upstream, CHAT, chat(stream=True))


BREAKS = {
    "cut": cut(LONG, after_events=3),
    "closed": cut(LONG.but(framing="close"), after_events=3),
    "truncated": truncated(LONG, after_events=3),
    "reset": reset(LONG, after_events=3),
    "error": error_chunk(LONG, after_events=3),
}


@pytest.mark.parametrize("name", BREAKS)
@pytest.mark.parametrize("dialect", SPEAKERS)
async def test_s4_a_stream_that_breaks_never_ends_normally(provider: ScriptedProvider, dialect: str, name: str) -> None:
    vendor = "anthropic" if dialect == "messages" else "openai"
    speaker, arrived = SPEAKERS[dialect], []
    provider.will(BREAKS[name])
    body = speaker.first("x") | {"model": MODELS[vendor], "stream": True}
    async with through(provider, vendor) as upstream:
        answer = await asked(upstream, speaker, body)
        with suppress(UpstreamError):
            async for chunk in answer.chunks():
                arrived.append(chunk)  # noqa: PERF401 - what came before an error counts
            assert b"error" in b"".join(arrived), "ended as if nothing had happened"
    ends = (b"[DONE]", b"message_stop", b"response.completed")
    assert arrived
    assert not [end for end in ends if end in b"".join(arrived)]


async def test_silence_in_mid_answer_is_a_timeout(provider: ScriptedProvider) -> None:
    provider.will(stall(LONG, after_events=3))
    async with through(provider, idle_timeout_s=0.2) as upstream:
        answer = await asked(upstream, CHAT, chat(stream=True))
        with pytest.raises(UpstreamTimeout, match="in the middle"):
            await answer.body()


# ---------------------------------------------------------------------------------------------------------- who has
# left
@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("vendor", MODELS)
async def test_a_client_that_leaves_before_the_first_byte_closes_the_connection(
    provider: ScriptedProvider, vendor: str, *, streamed: bool
) -> None:
    provider.will(says("late", delay_s=60))
    async with through(provider, vendor) as upstream:
        asking = asyncio.create_task(asked(upstream, CHAT, chat(model=MODELS[vendor], stream=streamed)))
        await asyncio.to_thread(provider.wait_for, 1)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await asyncio.to_thread(provider.wait_until, lambda: len(provider.disconnects) == 1)


@pytest.mark.parametrize("reading", [True, False])
@pytest.mark.parametrize(("dialect", "vendor"), [("chat", "openai"), ("chat", "anthropic"), ("messages", "anthropic")])
async def test_s7_a_client_that_leaves_in_mid_answer_closes_the_connection(
    provider: ScriptedProvider, dialect: str, vendor: str, *, reading: bool
) -> None:
    """Also where nobody is reading at that moment, because the client itself was slow."""
    speaker = SPEAKERS[dialect]
    provider.will(stall(LONG, after_events=4))
    async with through(provider, vendor) as upstream:
        answer = await asked(upstream, speaker, speaker.first("x") | {"model": MODELS[vendor], "stream": True})
        chunks = answer.chunks()
        await anext(chunks)
        if reading:
            task = asyncio.create_task(_rest(chunks))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await answer.aclose()
        await asyncio.to_thread(provider.wait_until, lambda: len(provider.disconnects) == 1)


async def _rest(chunks: Any) -> list[bytes]:
    return [chunk async for chunk in chunks]
