"""One script, three dialects: what is said, what is asked of a request, what goes wrong."""

import json
from typing import Any

import pytest

from llm_test_provider import (
    EVERY_BYTE,
    Cut,
    Model,
    ScriptedAnswer,
    ScriptedCall,
    ScriptedProvider,
    When,
    answers,
    call,
    calls,
    cut,
    empty,
    error_chunk,
    html,
    json_error,
    overflow,
    says,
    status,
    throttled,
)
from llm_test_provider.apis.chat_sse import FORMS as EVENT_FORMS
from llm_test_provider.apis.typed_sse import FORMS as TYPED_FORMS
from tests.llm_test_provider.speakers import SPEAKERS, DialectClient, events_of

RICH = answers(
    "Two things at once, said in some words.",
    [ScriptedCall("read", {"path": "caf\N{LATIN SMALL LETTER E WITH ACUTE}.py"}), ScriptedCall("now")],
    reasoning="First I look.",
)
FINISHES = {
    "chat": {"stop": "stop", "tool_calls": "tool_calls", "length": "length"},
    "messages": {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens"},
    "responses": {"stop": "completed", "tool_calls": "completed", "length": "incomplete"},
}
TERMINATORS = {"chat": b"[DONE]", "messages": b"message_stop", "responses": b"response.completed"}


@pytest.fixture(params=sorted(SPEAKERS))
def dialect(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def speaker(dialect: str) -> DialectClient:
    return SPEAKERS[dialect]


def said_in(raw: bytes) -> dict[str, Any]:
    """The error in a body."""
    error: dict[str, Any] = json.loads(raw)["error"]
    return error


# -------------------------------------------------------------------------------------------------------------- answers
@pytest.mark.parametrize("form", [(), ("interleaved",), ("whole_call",), ("one_character",)])
def test_an_answer_says_the_same_streamed_and_not(
    provider: ScriptedProvider, speaker: DialectClient, form: tuple[str, ...]
) -> None:
    provider.will(RICH.but(call_forms=form), RICH)
    body = speaker.first("hi", tools=["read", "now"]) | {"stream_options": {"include_usage": True}}

    streamed, whole = speaker.ask(provider, body | {"stream": True}), speaker.ask(provider, body)

    assert streamed.text == whole.text == RICH.text
    assert streamed.reasoning == whole.reasoning == RICH.reasoning
    assert streamed.calls == whole.calls == [(each.name, each.arguments) for each in RICH.calls]
    assert (streamed.finish, streamed.usage[0], streamed.usage[2]) == (whole.finish, whole.usage[0], whole.usage[2])


@pytest.mark.parametrize("finish", ["stop", "tool_calls", "length"])
def test_a_finish_reason_of_a_script_has_its_name_in_every_dialect(
    provider: ScriptedProvider, dialect: str, finish: str
) -> None:
    provider.will(says("x", finish=finish), says("x", finish=finish))
    body = SPEAKERS[dialect].first("hi")

    heard = [SPEAKERS[dialect].ask(provider, body | {"stream": streamed}).finish for streamed in (True, False)]

    assert heard == [FINISHES[dialect][finish]] * 2


@pytest.mark.parametrize("size", [EVERY_BYTE, Cut(7), Cut(40, seed=1)])
def test_a_cut_stream_says_the_same(provider: ScriptedProvider, speaker: DialectClient, size: Cut) -> None:
    """S1"""
    provider.will(RICH.but(cut=size))

    heard = speaker.ask(provider, speaker.first("hi") | {"stream": True})

    assert (heard.text, len(heard.calls)) == (RICH.text, 2)


@pytest.mark.parametrize("form", sorted((EVENT_FORMS | TYPED_FORMS) - {"invalid_utf8", "long_line", "no_done"}))
def test_however_events_are_written_the_answer_is_the_same(provider: ScriptedProvider, dialect: str, form: str) -> None:
    """S6"""
    provider.will(RICH.but(events=(form,)), RICH)
    body = SPEAKERS[dialect].first("hi") | {"stream": True}

    (_, odd), (_, plain) = (SPEAKERS[dialect].post(provider, body) for _ in range(2))

    changes_nothing = (form in TYPED_FORMS and dialect == "chat") or (form, dialect) == ("only_last", "messages")
    assert (odd == plain.replace(b"scripted-2", b"scripted-1").replace(b'"answer":2', b'"answer":1')) <= changes_nothing
    if form not in ("data_after_done", "two_finish_reasons", "from_1", "unknown_events", "pings"):
        assert SPEAKERS[dialect].streamed(events_of(odd)).text == RICH.text


def test_an_unknown_form_of_a_call_changes_nothing_but_where_it_is_known(
    provider: ScriptedProvider, speaker: DialectClient
) -> None:
    provider.will(RICH.but(call_forms=("index_null",)))

    status_code, _ = speaker.post(provider, speaker.first("hi") | {"stream": True})

    assert status_code == 200


@pytest.mark.parametrize("form", ["no_done", "invalid_utf8"])
def test_a_stream_without_its_end_and_one_that_is_no_text(provider: ScriptedProvider, dialect: str, form: str) -> None:
    """S6"""
    provider.will(says("hello", events=(form,)))

    _, raw = SPEAKERS[dialect].post(provider, SPEAKERS[dialect].first("hi") | {"stream": True})

    assert (TERMINATORS[dialect] in raw) == (form != "no_done")
    assert (b"\xff\xfehello" in raw) == (form == "invalid_utf8")


# ------------------------------------------------------------------------------------------------- what a request is
# asked
def test_a_request_is_asked_the_same_questions_in_every_dialect(
    provider: ScriptedProvider, speaker: DialectClient, dialect: str
) -> None:
    provider.will(RICH, says("done"))
    body = speaker.first("please look", system="Be careful.", tools=["read", "now"])

    heard = speaker.ask(provider, body)
    speaker.ask(provider, speaker.then(body, heard, "file text", "12:00", text="go on"))

    _, second = provider.asked
    assert (second.dialect, second.path) == (dialect, speaker.path)
    assert second.system == "Be careful."
    assert second.tool_names == ["read", "now"]
    assert [message["role"] for message in second.messages] == ["system", "user", "assistant", "tool", "tool", "user"]
    assert [(made.name, json.loads(str(made.arguments))) for made in second.calls] == heard.calls
    assert second.results == list(zip(heard.ids, ["file text", "12:00"], strict=True))
    assert second.messages[2]["content"] == RICH.text
    assert second.messages[2]["reasoning_content"] == RICH.reasoning


def test_conditions_and_templates_of_a_script_hold_in_every_dialect(
    provider: ScriptedProvider, speaker: DialectClient
) -> None:
    provider.when(When(tool_result="^exit 1"), says("failed on {{last_user:on (\\w+)}}"))
    provider.when(When(user="work on", tool="shell", model="m", request=1), calls("shell", command="ls"))
    body = speaker.first("work on calc", tools=["shell"])

    heard = speaker.ask(provider, body)
    last = speaker.ask(provider, speaker.then(body, heard, "exit 1: no such file"))

    assert heard.calls == [("shell", {"command": "ls"})]
    assert last.text == "failed on calc"


def test_cached_tokens_are_reported_as_a_history_grows(speaker: DialectClient) -> None:
    marked = Model("m", cache="deepseek")
    with ScriptedProvider(says("1"), says("2"), models=[marked], count=len) as provider:
        body = speaker.first("x" * 2000)
        heard = speaker.ask(provider, body)
        again = speaker.ask(provider, speaker.then(body, heard, text="go on"))

    assert heard.usage[1] == 0
    assert again.usage[1] == 1984
    assert provider.asked[1].usage is not None
    assert provider.asked[1].usage.prompt == again.usage[0] > 2000


# ---------------------------------------------------------------------------------------------------------------
# trouble
@pytest.mark.parametrize(
    ("trouble", "code", "kind"),
    [
        (status(429), 429, "rate_limit_error"),
        (status(529), 529, "overloaded_error"),
        (status(500), 500, "api_error"),
        (status(401), 401, "authentication_error"),
        (json_error(), 200, "api_error"),
        (throttled("openai-tpm"), 429, "rate_limit_error"),
        (overflow("moonshot"), 400, "invalid_request_error"),
    ],
)
def test_an_error_has_the_shape_of_the_api_that_is_asked(
    provider: ScriptedProvider, dialect: str, trouble: ScriptedAnswer, code: int, kind: str
) -> None:
    """S8"""
    provider.will(trouble)

    heard, raw = SPEAKERS[dialect].post(provider, SPEAKERS[dialect].first("hi"))

    assert heard == code
    assert isinstance(said_in(raw)["message"], str)
    if dialect == "messages":
        assert (json.loads(raw)["type"], said_in(raw)["type"]) == ("error", kind)
    else:
        assert {"message", "type", "param", "code"} == set(said_in(raw))


@pytest.mark.parametrize("window", [None, 50])
def test_a_prompt_that_is_too_long_is_refused_in_the_words_of_the_api(dialect: str, window: int | None) -> None:
    words = {
        "chat": "This model's maximum context length is",
        "messages": "prompt is too long: ",
        "responses": "Your input exceeds the context window",
    }
    answer = says("fits") if window else overflow()
    with ScriptedProvider(answer, models=[Model("m", window=window)], count=len) as provider:
        heard, raw = SPEAKERS[dialect].post(provider, SPEAKERS[dialect].first("x" * 100))

    assert heard == 400
    assert said_in(raw)["message"].startswith(words[dialect])
    assert provider.script.left == (1 if window else 0)


@pytest.mark.parametrize("streamed", [True, False])
def test_an_answer_that_turns_into_an_error_has_no_end(
    provider: ScriptedProvider, dialect: str, *, streamed: bool
) -> None:
    """S10"""
    provider.will(error_chunk(RICH, "boom", code=529, after_events=3))

    code, raw = SPEAKERS[dialect].post(provider, SPEAKERS[dialect].first("hi") | {"stream": streamed})

    assert code == 200
    assert b"boom" in raw
    assert TERMINATORS[dialect] not in raw
    if dialect == "messages":
        assert b'"overloaded_error"' in raw
    if streamed and dialect == "responses":
        assert [event["type"] for event in events_of(raw)][-1] == "error"


@pytest.mark.parametrize("odd", [html(), empty(), status(503, body=b"plain words")])
def test_what_is_no_answer_at_all_is_sent_as_it_stands(
    provider: ScriptedProvider, speaker: DialectClient, odd: ScriptedAnswer
) -> None:
    """S10"""
    provider.will(odd)

    _, raw = speaker.post(provider, speaker.first("hi"))

    assert raw == getattr(odd.instead, "body", None)


def test_a_stream_breaks_off_where_the_script_says(provider: ScriptedProvider, speaker: DialectClient) -> None:
    """S4"""
    provider.will(RICH, cut(RICH.but(framing="close"), after_events=3))
    body = speaker.first("hi") | {"stream": True}

    whole, broken = (speaker.post(provider, body)[1] for _ in range(2))

    assert 3 == len(events_of(broken)) < len(events_of(whole))


def test_an_empty_answer_is_an_answer(provider: ScriptedProvider, speaker: DialectClient) -> None:
    provider.will(says(""), says(""))

    heard = [speaker.ask(provider, speaker.first("hi") | {"stream": streamed}) for streamed in (True, False)]

    assert [(each.text, each.calls) for each in heard] == [("", [])] * 2


def test_broken_arguments_travel_as_they_were_made(provider: ScriptedProvider, speaker: DialectClient) -> None:
    provider.will(answers(calls=[ScriptedCall("shell", '{"command": "l')]))

    _, raw = speaker.post(provider, speaker.first("hi") | {"stream": True})

    assert raw.count(rb"\"command\"") >= 1


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b"\xff", b'{"messages": 7, "input": 7}', b"[" * 100_000])
def test_a_body_that_is_no_request_is_refused_and_takes_no_answer(
    provider: ScriptedProvider, speaker: DialectClient, exchange: Any, body: bytes
) -> None:
    provider.will(says("kept"))
    head = f"POST {speaker.path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode()

    heard, _ = exchange(provider, head + body)

    assert heard.startswith(b"HTTP/1.1 400 ")
    assert provider.script.left == 1


def test_an_exhausted_script_is_a_500_that_says_so(provider: ScriptedProvider, speaker: DialectClient) -> None:
    code, raw = speaker.post(provider, speaker.first("hi"))

    assert code == 500
    assert "script exhausted" in said_in(raw)["message"]


# ---------------------------------------------------------------------------------------------------------------
# binding
@pytest.mark.parametrize("dialect", ["messages", "responses"])
@pytest.mark.parametrize("binding", ["error", "drop", "none"])
def test_reasoning_behind_something_else_is_refused_or_dropped_or_nobodys_business(dialect: str, binding: Any) -> None:
    """L8"""
    speaker = SPEAKERS[dialect]
    thinks = answers("Let me see.", [call("a")], reasoning="I think")
    with ScriptedProvider(thinks, says("held"), says("changed"), models=[Model("m", binding=binding)]) as provider:
        body = speaker.first("hi", system="one", tools=["a"])
        following = speaker.then(body, speaker.ask(provider, body), "ok")
        held = speaker.post(provider, following)
        code, raw = speaker.post(provider, following | {"system": "two", "instructions": "two"})

    assert held[0] == 200
    assert b"input_transformations" not in held[1]
    assert code == (400 if binding == "error" else 200)
    assert (b"bound to a different conversation" in raw) == (binding == "error")
    assert (b'"reason":"prefix_binding_mismatch"' in raw) == (binding == "drop")


@pytest.mark.parametrize("dialect", ["messages", "responses"])
@pytest.mark.parametrize("binding", ["error", "drop", "none"])
def test_reasoning_with_other_words_is_refused_by_every_model(dialect: str, binding: Any) -> None:
    """L8"""
    speaker = SPEAKERS[dialect]
    with ScriptedProvider(answers("yes", reasoning="I think"), models=[Model("m", binding=binding)]) as provider:
        body = speaker.first("hi")
        following = speaker.then(body, speaker.ask(provider, body), text="go on")
        altered = json.loads(json.dumps(following).replace("I think", "I thought"))
        code, raw = speaker.post(provider, altered)

    assert code == 400
    assert "nvalid `signature`" in said_in(raw)["message"] or "could not be verified" in said_in(raw)["message"]


@pytest.mark.parametrize("dialect", ["messages", "responses"])
def test_reasoning_that_nobody_can_read_is_bound_as_well(dialect: str) -> None:
    """L8"""
    speaker = SPEAKERS[dialect]
    hidden = answers("yes", reasoning="I think", redacted=True)
    with ScriptedProvider(hidden, says("held"), models=[Model("m", binding="error")]) as provider:
        body = speaker.first("hi")
        heard = speaker.ask(provider, body | {"stream": True})
        code, _ = speaker.post(provider, speaker.then(body, heard, text="go on"))
        refused, _ = speaker.post(provider, speaker.then(speaker.first("ho"), heard, text="go on"))

    assert heard.reasoning == ""
    assert len(heard.made) == 2
    assert (code, refused) == (200, 400)
