"""Answers that the proxy gives by itself, read by the providers' own client libraries from a real socket (S0-36).

Skipped where a library is not installed.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.core.ledger.messages import Request
from proxy.dialects import (
    ANTHROPIC_MESSAGES,
    DIALECTS,
    OPENAI_CHAT,
    OPENAI_RESPONSES,
    Dialect,
    OwnResponse,
    ParseCache,
)
from proxy.dialects.synthetic_responses import previous_id_in
from tests.dialects.playing import SSE
from tests.dialects.serving import served

pytestmark = pytest.mark.rows("S0-36")
CHAT, MESSAGES, RESPONSES = OPENAI_CHAT, ANTHROPIC_MESSAGES, OPENAI_RESPONSES
TEXT = "[callstack] Begun: »Lexer« \u2192 \U0001f600\n\n```\ntree\n```"
SAYING = OwnResponse("0a1b2c", TEXT, 1_700_000_000)
JSON = "application/json"


def asked(dialect: Dialect, **members: Any) -> Request:
    """A request as clients of this dialect send it."""
    said = [{"role": "user", "content": "/stack status"}]
    line = {"input": said} if dialect is RESPONSES else {"messages": said, "max_tokens": 10}
    return dialect.parse_request(json.dumps({"model": "model-1", **line, **members}).encode(), ParseCache())


def answer(dialect: Dialect, *, stream: bool, **members: Any) -> tuple[bytes, str]:
    request = asked(dialect, stream=stream, **members)
    return dialect.encode_own_response(request, SAYING), SSE if stream else JSON


@pytest.mark.parametrize("stream", [True, False])
def test_the_openai_library_reads_a_completion(stream: bool) -> None:
    openai: Any = pytest.importorskip("openai", reason="the provider's client library is not installed")
    body, kind = answer(CHAT, stream=stream, stream_options={"include_usage": True})

    with served(body, kind) as url, openai.OpenAI(api_key="x", base_url=url, max_retries=0) as client:
        messages = [{"role": "user", "content": "hi"}]
        if stream:
            with client.chat.completions.stream(model="m", messages=messages) as chunks:
                for _ in chunks:
                    pass
                told = chunks.get_final_completion()
        else:
            told = client.chat.completions.create(model="m", messages=messages)

    assert (told.choices[0].message.content, told.choices[0].finish_reason) == (TEXT, "stop")
    assert (told.model, told.usage.total_tokens, told.id) == ("model-1", 0, "chatcmpl-callstack0a1b2c")


@pytest.mark.parametrize("stream", [True, False])
def test_the_anthropic_library_reads_a_message(stream: bool) -> None:
    anthropic: Any = pytest.importorskip("anthropic", reason="the provider's client library is not installed")
    body, kind = answer(MESSAGES, stream=stream)

    with served(body, kind) as url, anthropic.Anthropic(api_key="x", base_url=url, max_retries=0) as client:
        asking = {"model": "m", "max_tokens": 10, "messages": [{"role": "user", "content": "hi"}]}
        if stream:
            with client.messages.stream(**asking) as events:
                told = events.get_final_message()
        else:
            told = client.messages.create(**asking)

    assert ([block.text for block in told.content], told.stop_reason) == ([TEXT], "end_turn")
    assert (told.usage.input_tokens, told.usage.output_tokens) == (0, 0)


@pytest.mark.parametrize("stream", [True, False])
def test_the_openai_library_reads_a_response(stream: bool) -> None:
    openai: Any = pytest.importorskip("openai", reason="the provider's client library is not installed")
    body, kind = answer(RESPONSES, stream=stream, store=False, tools=[], metadata={"a": "b"})

    with served(body, kind) as url, openai.OpenAI(api_key="x", base_url=url, max_retries=0) as client:
        if stream:
            with client.responses.stream(model="m", input="hi") as events:
                for _ in events:
                    pass
                told = events.get_final_response()
        else:
            told = client.responses.create(model="m", input="hi")

    assert (told.output_text, told.status, told.metadata, told.store) == (TEXT, "completed", {"a": "b"}, False)
    assert told.usage.total_tokens == 0


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=lambda dialect: dialect.name)
@pytest.mark.parametrize("stream", [True, False])
def test_our_own_reader_reads_it_as_one_complete_answer(dialect: Dialect, *, stream: bool) -> None:
    """As the provider's answers are read, so nothing is in it that we would not pass."""
    request = asked(dialect, stream=stream)
    writing = dialect.new_response_writer(request, intercept=True)

    writing.begin_round(200, SSE if stream else JSON)
    shown = writing.feed(dialect.encode_own_response(request, SAYING))
    spoken = writing.end_round(complete=True)
    shown += writing.finish()

    assert (spoken.message.text, spoken.complete, spoken.message.calls) == (TEXT, True, ())
    assert b"Lexer" in shown


@pytest.mark.parametrize(
    ("after", "found"), [("resp_abc_1", "resp_abc_1"), ("", ""), (None, None)], ids=["named", "nothing", "lost"]
)
def test_an_id_says_what_its_answer_stands_behind(after: str | None, found: str | None) -> None:
    request = asked(RESPONSES, stream=False)
    told = json.loads(RESPONSES.encode_own_response(request, OwnResponse("0a1b2c", TEXT, 0, after)))

    assert previous_id_in(told["id"]) == found
    assert previous_id_in("resp_of_somebody_else") is None
