"""The official client library reads what the provider says."""

from collections.abc import Iterator

import openai
import pytest

from proxy.scripted import Call, ScriptedProvider, answers, overflow, says


@pytest.fixture
def client(provider: ScriptedProvider) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=provider.url, api_key="any", max_retries=0) as connected:
        yield connected


def test_openai_python_reads_a_stream_with_text_calls_and_usage(
    provider: ScriptedProvider, client: openai.OpenAI
) -> None:
    provider.will(answers("Let me look.", [Call("read_file", {"path": "a.py"}, "c1")]))

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
