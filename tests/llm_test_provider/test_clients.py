"""The official client libraries read what the provider says."""

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from llm_test_provider import ScriptedCall, ScriptedProvider, answers, error_chunk, overflow, says, status

RICH = answers(
    "Let me look.",
    [ScriptedCall("read", {"path": "a.py"}, "c1"), ScriptedCall("now", {}, "c2")],
    reasoning="First this.",
)
ODD = (("crlf",), ("comments",), ("event_fields",), ("pings",), ("no_space",))


@pytest.fixture
def client(provider: ScriptedProvider) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=provider.url, api_key="any", max_retries=0) as connected:
        yield connected


def test_openai_python_reads_a_stream_with_text_calls_and_usage(
    provider: ScriptedProvider, client: openai.OpenAI
) -> None:
    provider.will(answers("Let me look.", [ScriptedCall("read_file", {"path": "a.py"}, "c1")]))

    stream = client.chat.completions.create(
        model="m",
        messages=[{"role": "user", "content": "hi"}],
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)

    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    parts = [part.function for delta in deltas for part in delta.tool_calls or [] if part.function]
    assert "".join(delta.content or "" for delta in deltas) == "Let me look."
    assert "".join(part.arguments or "" for part in parts) == '{"path": "a.py"}'
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.prompt_tokens > 0


def test_openai_python_reads_a_whole_answer_and_a_refusal(provider: ScriptedProvider, client: openai.OpenAI) -> None:
    provider.will(says("hello"), overflow())

    answer = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])

    assert answer.choices[0].message.content == "hello"
    assert refused.value.code == "context_length_exceeded"
    assert [model.id for model in client.models.list()] == ["scripted-model"]


# ------------------------------------------------------------------------------------------------------------ responses
@pytest.mark.parametrize("events", [(), *ODD])
def test_openai_python_reads_a_stream_of_responses(
    provider: ScriptedProvider, client: openai.OpenAI, events: tuple[str, ...]
) -> None:
    provider.will(RICH.but(events=events))

    with client.responses.stream(model="m", input="hi") as stream:
        kinds = [event.type for event in stream]
        answer = stream.get_final_response()

    assert answer.output_text == "Let me look."
    assert [item.type for item in answer.output] == ["reasoning", "message", "function_call", "function_call"]
    assert answer.usage is not None
    assert answer.usage.input_tokens > 0
    assert {"response.output_text.delta", "response.function_call_arguments.delta"} <= set(kinds)


def test_openai_python_continues_a_response_and_reads_what_is_kept_of_it(
    provider: ScriptedProvider, client: openai.OpenAI
) -> None:
    provider.will(says("one"), says("two"))

    first = client.responses.create(model="m", input="hi")
    second = client.responses.create(model="m", input="and?", previous_response_id=first.id)

    assert client.responses.retrieve(second.id).output_text == "two"
    assert [item.id for item in client.responses.input_items.list(second.id)] == ["item_2_0"]
    client.responses.delete(second.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(second.id)


def test_openai_python_reads_a_refusal_of_the_responses_api(provider: ScriptedProvider, client: openai.OpenAI) -> None:
    provider.will(overflow())

    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.create(model="m", input="hi")

    assert refused.value.code == "context_length_exceeded"


# ------------------------------------------------------------------------------------------------------------- messages
@pytest.fixture
def messages(provider: ScriptedProvider) -> Iterator[Any]:
    """The messages of Anthropic's own client, which is not among the packages this project asks for."""
    anthropic = pytest.importorskip("anthropic", reason="the anthropic library is not installed")
    with anthropic.Anthropic(base_url=provider.origin, api_key="any", max_retries=0) as connected:
        yield connected.messages


ASKED: dict[str, Any] = {"model": "m", "max_tokens": 2000, "messages": [{"role": "user", "content": "hi"}]}


@pytest.mark.parametrize("events", [(), *ODD])
def test_the_anthropic_library_reads_a_stream(
    provider: ScriptedProvider, messages: Any, events: tuple[str, ...]
) -> None:
    provider.will(RICH.but(events=events))

    with messages.stream(**ASKED) as stream:
        answer = stream.get_final_message()

    thinking, text, read, now = answer.content
    assert (thinking.thinking, bool(thinking.signature)) == ("First this.", True)
    assert (text.text, read.input, now.input) == ("Let me look.", {"path": "a.py"}, {})
    assert answer.stop_reason == "tool_use"
    assert answer.usage.output_tokens > 0


def test_the_anthropic_library_reads_a_whole_answer_counts_and_refusals(
    provider: ScriptedProvider, messages: Any
) -> None:
    anthropic = pytest.importorskip("anthropic")
    provider.will(says("hello"), overflow(), status(529), error_chunk(says("x"), "busy", code=529, after_events=2))

    answer = messages.create(**ASKED)
    with pytest.raises(anthropic.BadRequestError, match="prompt is too long"):
        messages.create(**ASKED)
    with pytest.raises(anthropic.InternalServerError) as busy:
        messages.create(**ASKED)
    with pytest.raises(anthropic.APIStatusError, match="busy"), messages.stream(**ASKED) as stream:
        stream.until_done()

    assert answer.content[0].text == "hello"
    assert messages.count_tokens(model="m", messages=ASKED["messages"]).input_tokens == 5
    assert busy.value.body["error"]["type"] == "overloaded_error"
