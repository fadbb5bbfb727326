"""S1, S4, S6, S7, S8, S10 in the messages and the responses API, byte by byte: what is not ours passes as it came,
what is ours never shows, and what breaks never looks like a good end. The same for chat completions: `test_forms`,
`test_breaks`.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from llm_test_provider import (
    EVERY_BYTE,
    Cut,
    FixedReply,
    ScriptedAnswer,
    ScriptedCall,
    ScriptedProvider,
    answers,
    call,
    cut,
    empty,
    gzip_bomb,
    half_close,
    html,
    json_error,
    only_done,
    reset,
    says,
    status,
    truncated,
    wrong_type,
)
from llm_test_provider.apis.chat_sse import FORMS as EVENT_FORMS
from llm_test_provider.apis.typed_sse import FORMS as TYPED_FORMS
from tests.harness import Json, does, plan, push
from tests.wire.proxied import ServedProxy
from tests.wire.talking import ReceivedAnswer, ask

AWAKE = pytest.mark.parametrize("awake", [True, False], ids=["awake", "asleep"])
STREAM = pytest.mark.parametrize("stream", [True, False], ids=["stream", "plain"])
FORM = pytest.mark.parametrize("form", sorted(EVENT_FORMS | TYPED_FORMS))
CALL_FORMS = [(), ("arguments_absent",), ("interleaved",), ("one_character",), ("whole_call",)]
EVENTS = (("content-type", "text/event-stream"),)
LONG = "a long answer that never comes to its end " * 20
THOUGHT = "First I think about it."


@dataclass(frozen=True)
class Api:
    """One API as a client without a library knows it. `text`, `end` and `error` are types of events."""

    path: str
    asked: Json
    said: str
    tool: Json
    text: str
    end: str
    error: str

    def body(self, text: str, *, awake: bool, stream: bool, **more: object) -> Json:
        """A request. A thread whose client offers no tools never wakes (L7): so `awake` offers one."""
        tools = {"tools": [self.tool]} if awake else {}
        told = {self.said: [{"role": "user", "content": text}]}
        return {"model": "m", **self.asked, **told, **tools, **({"stream": True} if stream else {})} | more

    def ask(self, origin: str, text: str, *, awake: bool = True, stream: bool = True, **headers: str) -> ReceivedAnswer:
        return ask(origin, self.body(text, awake=awake, stream=stream), path=self.path, headers=headers)

    def words(self, told: ReceivedAnswer) -> str:
        """The text of a stream."""
        said = [each["delta"] for each in events(told) if each["type"] == self.text]
        return "".join(each if isinstance(each, str) else each.get("text", "") for each in said)

    def ends(self, told: ReceivedAnswer) -> int:
        """How often a stream says that it is over."""
        return sum(each["type"] == self.end for each in events(told))

    def recorded(self, provider: ScriptedProvider, answer: ScriptedAnswer) -> FixedReply:
        """What the provider really sends for an answer, to be sent again as it was."""
        provider.will(answer)
        return FixedReply(200, self.ask(provider.origin, "recorded", awake=False).body, EVENTS)


APIS = {
    "messages": Api(
        path="/v1/messages",
        asked={"max_tokens": 1000},
        said="messages",
        tool={"name": "read_file", "input_schema": {"type": "object"}},
        text="content_block_delta",
        end="message_stop",
        error="error",
    ),
    "responses": Api(
        path="/v1/responses",
        asked={"store": False, "include": ["reasoning.encrypted_content"]},
        said="input",
        tool={"type": "function", "name": "read_file", "parameters": {"type": "object"}},
        text="response.output_text.delta",
        end="response.completed",
        error="response.failed",
    ),
}


def events(told: ReceivedAnswer) -> list[Json]:
    """The JSON of every event that is whole."""
    lines = told.body.rpartition(b"\n\n")[0].split(b"\n")
    return [json.loads(line[6:]) for line in lines if line.startswith(b"data: {")]


@pytest.fixture(params=APIS)
def api(request: pytest.FixtureRequest) -> Api:
    return APIS[request.param]


# -------------------------------------------------------------------------------------------------------------- S1, S6
@FORM
def test_s6_odd_events_without_a_call_of_ours_pass_as_they_came(
    proxy: ServedProxy, provider: ScriptedProvider, api: Api, form: str
) -> None:
    made = [call("read_file", path="é")]
    reply = api.recorded(provider, answers("Grüße 日本", made, THOUGHT, events=(form,)))
    for awake in (True, False):
        provider.will(ScriptedAnswer(instead=reply), says("fine"))

        told = api.ask(proxy.origin, f"S6 {form} {awake}", awake=awake)

        assert (told.status, told.whole, len(told.body), told.body == reply.body) == (200, True, len(reply.body), True)
        assert api.words(api.ask(proxy.origin, f"S6 {form} {awake}", awake=awake)) == "fine", awake


@FORM
def test_s6_odd_events_around_a_hidden_call_never_show_it(
    proxy: ServedProxy, provider: ScriptedProvider, api: Api, form: str
) -> None:
    first, last = does(push("S6"), text="Start.", reasoning=THOUGHT), says("End.")
    odd = {"events": (form,)}
    long = form == "long_line" and api.path == "/v1/responses"  # too long to be read, and it says what was asked
    for place, said in (("first", [first.but(**odd), last]), ("last", [first, last.but(**odd)])):
        provider.will(*said)

        told = api.ask(proxy.origin, f"S6 hidden {form} {place}")

        assert (told.status, told.whole, b"stack" in told.body) == (200, True, long), place
        assert b"Start." in told.body, place
        assert b"End." in told.body, place


@pytest.mark.parametrize("size", [EVERY_BYTE, Cut(7), Cut(60, seed=3)], ids=["bytes", "sevens", "by chance"])
def test_s1_however_a_hidden_round_is_cut_the_client_hears_the_same(
    proxy: ServedProxy, provider: ScriptedProvider, api: Api, size: Cut
) -> None:
    rounds = [
        does(push("S1"), text="Grüße.", reasoning=THOUGHT),
        answers("日本", [call("read_file", path="é")]),
    ]
    provider.will(*rounds, *(each.but(cut=size) for each in rounds))

    whole, pieces = (api.ask(proxy.origin, f"S1 {size} {number}") for number in (1, 2))

    assert api.words(pieces) == api.words(whole) == "Grüße.日本"
    assert [each["type"] for each in events(pieces)] == [each["type"] for each in events(whole)]
    assert (api.ends(pieces), b"stack" in pieces.body) == (1, False)


# ------------------------------------------------------------------------------------------------------------------ S7
def client_calls(told: ReceivedAnswer) -> list[tuple[str, Json]]:
    """Names and arguments of a stream's calls, put together as a strict client does: places count from 0, without
    gaps."""
    made: dict[int, list[str]] = {}
    places: list[int] = []
    for each in events(told):
        at = int(each.get("index") or each.get("output_index") or 0)
        opened = each.get("content_block") or (each.get("item") if each["type"].endswith("added") else None)
        if opened:
            places.append(at)
        if opened and "name" in opened:
            made[at] = [opened["name"], json.dumps(opened["input"]) if opened.get("input") else ""]
        if each["type"] == "response.function_call_arguments.done":
            made[at][1] = each["arguments"]
        if each["type"] == "content_block_delta" and each["delta"]["type"] == "input_json_delta":
            made[at][1] += each["delta"]["partial_json"]
    assert sorted(places) == list(range(len(places)))
    return [(name, json.loads(said or "{}")) for name, said in (made[at] for at in sorted(made))]


@pytest.mark.parametrize("forms", CALL_FORMS, ids=lambda forms: "+".join(forms) or "usual")
def test_s7_of_five_calls_the_client_gets_its_own_three_numbered_from_zero(
    proxy: ServedProxy, provider: ScriptedProvider, api: Api, forms: tuple[str, ...]
) -> None:
    read = [call("read_file", path=path) for path in ("a.py", "b.py", "c.py")]
    made = [push("one"), read[0], read[1], plan("two"), read[2]]
    provider.will(answers("All.", made, THOUGHT, call_forms=forms))

    told = api.ask(proxy.origin, f"S7 {forms}")

    assert (told.status, told.whole, api.words(told), api.ends(told)) == (200, True, "All.", 1)
    assert b"stack" not in told.body
    assert client_calls(told) == [("read_file", {"path": path}) for path in ("a.py", "b.py", "c.py")]


@pytest.mark.parametrize("forms", CALL_FORMS, ids=lambda forms: "+".join(forms) or "usual")
def test_s7_a_hidden_call_alone_never_shows_a_byte(
    proxy: ServedProxy, provider: ScriptedProvider, api: Api, forms: tuple[str, ...]
) -> None:
    provider.will(does(push("alone"), reasoning=THOUGHT, call_forms=forms), says("done"))

    told = api.ask(proxy.origin, f"S7 alone {forms}")

    assert (told.status, api.words(told), api.ends(told)) == (200, "done", 1)
    assert b"stack" not in told.body
    assert client_calls(told) == []


@pytest.mark.parametrize("name", ["stack_frame_push", "stack_nothing_known", "stack"])
@pytest.mark.parametrize("arguments", ["", "{", "null", "[]", '"x"', "{" * 5000, '{"title":"\\ud800"}'])
def test_h3_a_broken_call_of_ours_is_answered_to_the_model_and_the_turn_goes_on(
    proxy: ServedProxy, provider: ScriptedProvider, api: Api, name: str, arguments: str
) -> None:
    provider.will(answers("", [ScriptedCall(name, arguments)]), says("done"))

    told = api.ask(proxy.origin, f"H3 {name} {arguments[:20]}")

    assert (told.status, api.words(told), api.ends(told)) == (200, "done", 1)
    [(_, result)] = provider.received[-1].results
    assert result


# ------------------------------------------------------------------------------------------------------------------ S4
DEATHS: dict[str, Callable[..., ScriptedAnswer]] = {
    "fin": cut,
    "rst": reset,
    "half": half_close,
    "truncated": truncated,
}


@AWAKE
@pytest.mark.parametrize("hidden", [True, False], ids=["behind a hidden round", "at once"])
@pytest.mark.parametrize("death", DEATHS)
def test_s4_a_stream_whose_upstream_dies_is_broken_off_and_never_ends(
    proxy: ServedProxy, provider: ScriptedProvider, api: Api, awake: bool, hidden: bool, death: str
) -> None:
    """In messages an error says so; in responses nothing but the connection does, for its clients ask again then."""
    behind = [does(push("S4"), text="First I look.")] if hidden and awake else []
    provider.will(*behind, DEATHS[death](says(LONG), after_events=12))

    told = api.ask(proxy.origin, f"S4 {death} {awake} {hidden}", awake=awake)

    said_so = b'data: {"type":"error"' in told.body
    half_told = death == "truncated" and not awake  # behind half an event nothing can be said
    assert (told.status, told.whole, api.end.encode() in told.body) == (200, False, False)
    assert said_so == (api.path == "/v1/messages" and not half_told)
    assert LONG.startswith(api.words(told).removeprefix("First I look."))
    turns = proxy.turns(told.conversation)
    assert [turn["complete"] for turn in turns] == [True] * len(behind) + [False]


# ------------------------------------------------------------------------------------------------------------------ S8
CARRIED = {
    "Retry-After": "17",
    "x-ratelimit-remaining-tokens": "12",
    "anthropic-ratelimit-requests-reset": "2026-11-21T00:00:00Z",
    "openai-processing-ms": "7",
    "request-id": "req-1",
}


@AWAKE
@STREAM
@pytest.mark.parametrize("code", [400, 429, 500, 529])
def test_s8_an_error_of_the_provider_passes_unchanged(
    proxy: ServedProxy, provider: ScriptedProvider, api: Api, awake: bool, stream: bool, code: int
) -> None:
    words = b'{"type":"error", "error" : {"message":"\xc3\xa9 no", "type":"odd", "x_more": 1.0}}\n'
    provider.will(*[status(code, headers=CARRIED, body=words)] * 3)

    told = api.ask(proxy.origin, f"S8 {code} {awake} {stream}", awake=awake, stream=stream)

    assert (told.status, told.body, told.whole) == (code, words, True)
    assert {name: told.header(name.lower()) for name in CARRIED} == CARRIED
    # In milder forms, and as the client asked; after a 500 that says nothing only where it comes again and again.
    assert len(provider.asked) in {400: [3], 404: [3], 500: [1, 3]}.get(code if awake else 0, [1])


# ----------------------------------------------------------------------------------------------------------------- S10
ODD: dict[str, ScriptedAnswer] = {
    "json error": json_error("no", 400),
    "html": html(),
    "empty": empty(),
    "empty stream": ScriptedAnswer(instead=FixedReply(200, b"", EVENTS)),
    "only comments": ScriptedAnswer(instead=FixedReply(200, b": working\n\n: working\n\n", EVENTS)),
    "only done": only_done(),
    "wrong type": wrong_type(says("hi"), "text/plain"),
    "gzip": says("hi", encoding=("gzip",)),
    "double gzip": says("hi", encoding=("gzip", "gzip")),
    "gzip bomb": gzip_bomb(1 << 20),
    "json array": ScriptedAnswer(instead=FixedReply(200, b"[1, 2]")),
    "half json": ScriptedAnswer(instead=FixedReply(200, b'{"content":[{"type":"tex')),
    "wrong shapes": ScriptedAnswer(instead=FixedReply(200, b'{"content":7,"output":{"a":1},"usage":"many"}')),
    "odd events": ScriptedAnswer(
        instead=FixedReply(
            200,
            b'data: {"type":7}\n\ndata: 5\n\nevent: x\ndata: {"type":"content_block_start","index":"a"}\n\n'
            b'data: {"type":"content_block_delta","index":3,"delta":[]}\n\n'
            b'data: {"type":"message_start","message":1}\n\ndata: {"type":"response.output_item.added","item":[]}\n\n'
            b'data: {"type":"response.completed"}\n\n'
            b'data: {"type":"response.completed","response":{"output":{"a":1},"usage":3}}\n\n',
            EVENTS,
        )
    ),
}


@pytest.mark.parametrize("odd", ODD)
def test_s10_an_odd_200_passes_as_it_came(proxy: ServedProxy, provider: ScriptedProvider, api: Api, odd: str) -> None:
    for awake, stream in itertools.product((True, False), repeat=2):
        text = f"S10 {odd} {awake} {stream}"
        provider.will(ODD[odd])
        direct = api.ask(provider.origin, text, awake=awake, stream=stream)
        kept = tuple(
            header for header in direct.headers if header[0].startswith("content-") and header[0][8:] != "length"
        )
        provider.will(ScriptedAnswer(instead=FixedReply(200, direct.body, kept)), says("fine"))

        told = api.ask(proxy.origin, text, awake=awake, stream=stream)

        assert (told.status, told.whole, told.body == direct.body) == (200, True, True), text
        assert [told.header(name) for name, _ in kept] == [value for _, value in kept], text
        assert b"fine" in api.ask(proxy.origin, text, awake=awake, stream=stream).body, text


@pytest.mark.parametrize(
    "odd",
    ["json error", "html", "empty", "empty stream", "only comments", "only done", "half json"],
)
def test_s10_an_odd_200_behind_a_hidden_round_is_told_as_an_error(
    proxy: ServedProxy, provider: ScriptedProvider, api: Api, odd: str
) -> None:
    """It cannot be shown behind a stream that has begun, and to stop there would look like a good end."""
    provider.will(does(push("S10"), text="First I look."), ODD[odd])

    told = api.ask(proxy.origin, f"S10 behind {odd}")

    assert (told.status, told.whole, api.words(told), api.ends(told)) == (200, True, "First I look.", 0)
    assert events(told)[-1]["type"] == api.error


@pytest.mark.rows("X-37")
@pytest.mark.parametrize("odd", ["wrong type", "gzip"])
def test_an_odd_200_behind_a_hidden_round_is_read_where_it_says_something(
    proxy: ServedProxy, provider: ScriptedProvider, api: Api, odd: str
) -> None:
    provider.will(does(push("S10"), text="First I look."), ODD[odd])

    told = api.ask(proxy.origin, f"X37 behind {odd}")

    assert (told.status, told.whole, api.ends(told)) == (200, True, 1)
    assert api.words(told).endswith("hi")


# ------------------------------------------------------------------------------------------------------ what is beside
def test_what_clients_of_the_messages_api_ask_beside_it_passes(proxy: ServedProxy, provider: ScriptedProvider) -> None:
    """A first look whether somebody is there, a count, the list of models, and a query and a header of betas."""
    messages = APIS["messages"]
    counted = json.dumps(messages.body("How long is this?", awake=True, stream=False), indent=1).encode()
    betas = {"anthropic-beta": "one-2026-01-01,two-2026-02-02", "anthropic-version": "2023-06-01"}
    provider.will(says("fine"))

    there = ask(proxy.origin, method="HEAD", path="/")
    count = ask(proxy.origin, counted, path="/v1/messages/count_tokens?beta=true", headers=betas)
    models = ask(proxy.origin, method="GET", path="/v1/models?limit=1000", headers=betas)
    body = messages.body("Hello.", awake=True, stream=True)
    said = ask(proxy.origin, body, path="/v1/messages?beta=true", headers=betas)

    assert (there.status, there.body) == (200, b"")
    assert count.json["input_tokens"] > 0
    assert [model["id"] for model in models.json["data"]] == ["scripted-model"]
    assert messages.words(said) == "fine"
    asked = [(each.path, each.query) for each in provider.received]
    assert asked == [
        ("/v1/messages/count_tokens", "beta=true"),
        ("/v1/models", "limit=1000"),
        ("/v1/messages", "beta=true"),
    ]
    assert provider.received[0].raw == counted
    assert [{name: each.header(name) for name in betas} for each in provider.received] == [betas] * 3
