"""S4, S5, S8, S10: what a faulty upstream does reaches the client as it is, and never looks like a good end."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable

import pytest

from llm_test_provider import (
    FixedReply,
    ScriptedAnswer,
    ScriptedProvider,
    cut,
    empty,
    error_chunk,
    gzip_bomb,
    half_close,
    html,
    json_error,
    only_done,
    raw,
    reset,
    says,
    stall,
    status,
    truncated,
    wrong_type,
)
from tests.harness import does, push
from tests.wire.proxied import ServedProxy
from tests.wire.stage import Starting
from tests.wire.talking import ask, body_of

AWAKE = pytest.mark.parametrize("awake", [True, False], ids=["awake", "asleep"])
STREAM = pytest.mark.parametrize("stream", [True, False], ids=["stream", "plain"])
DEATHS: dict[str, Callable[..., ScriptedAnswer]] = {
    "fin": cut,
    "rst": reset,
    "half": half_close,
    "truncated": truncated,
}
DEATH = pytest.mark.parametrize("death", DEATHS)
LONG = "a long answer that never comes to its end " * 20


# ------------------------------------------------------------------------------------------------------------------ S4
@pytest.mark.rows("S4-10")
@AWAKE
@DEATH
def test_s4_a_stream_whose_upstream_dies_is_broken_off_and_kept_as_partial(
    proxy: ServedProxy, provider: ScriptedProvider, awake: bool, death: str
) -> None:
    provider.will(DEATHS[death](says(LONG), after_events=6))

    told = ask(proxy.origin, body_of(f"S4 {death}", awake=awake, stream=True))

    assert (told.status, told.whole, told.done, told.finishes) == (200, False, False, [])
    assert LONG.startswith(told.text)
    assert told.text
    if death != "truncated":  # that one ends behind half an event
        assert b"\n\n: callstack: upstream default closed the connection before its answer ended" in told.body
    [turn] = proxy.turns(told.conversation)
    assert (turn["complete"], turn["finish"], turn["text"]) == (False, "", told.text)


@AWAKE
@DEATH
def test_s4_a_plain_answer_whose_upstream_dies_is_an_error_and_never_an_answer(
    proxy: ServedProxy, provider: ScriptedProvider, awake: bool, death: str
) -> None:
    provider.will(DEATHS[death](says(LONG), after_bytes=200))

    told = ask(proxy.origin, body_of(f"S4 plain {death}", awake=awake))

    # A plain answer leaves when it is whole, so nothing had left and the client can be told.
    assert (told.status, told.whole, told.json["error"]["code"]) == (502, True, "upstream_closed")
    assert told.told == "error; reason=upstream_closed"


@DEATH
def test_s4_a_stream_that_dies_in_its_second_round_is_broken_off(
    proxy: ServedProxy, provider: ScriptedProvider, death: str
) -> None:
    provider.will(does(push("S4"), text="First I look."), DEATHS[death](says(LONG), after_events=6))

    told = ask(proxy.origin, body_of(f"S4 second {death}", awake=True, stream=True))

    assert (told.status, told.whole, told.done, told.finishes) == (200, False, False, [])
    assert told.text.startswith("First I look.")
    assert [turn["complete"] for turn in proxy.turns(told.conversation)] == [True, False]


@AWAKE
def test_s4_an_upstream_that_closes_without_a_word_is_told(
    proxy: ServedProxy, provider: ScriptedProvider, awake: bool
) -> None:
    provider.will(raw(b""))
    told = ask(proxy.origin, body_of("S4 silent", awake=awake, stream=True))
    assert (told.status, told.json["error"]["code"]) == (502, "upstream_closed")
    assert told.told == "error; reason=upstream_closed"


@AWAKE
def test_s4_the_next_request_goes_on_after_a_partial_answer(
    proxy: ServedProxy, provider: ScriptedProvider, awake: bool
) -> None:
    provider.will(cut(says(LONG), after_events=6), says("again"), says("and on"))
    body = body_of(f"S4 retry {awake}", awake=awake, stream=True)

    partial, whole = ask(proxy.origin, body), ask(proxy.origin, body)
    body["messages"] += [{"role": "assistant", "content": partial.text}, {"role": "user", "content": "go on"}]
    after = ask(proxy.origin, body)

    assert (whole.text, whole.whole) == ("again", True)
    assert (after.text, after.conversation) == ("and on", partial.conversation)


# ------------------------------------------------------------------------------------------------------------------ S5
def test_s5_comments_come_only_once_the_stream_has_begun(start: Starting, provider: ScriptedProvider) -> None:
    proxy = start(keep_alive_s=1)  # longer than a busy machine stands still between the chunks of one answer
    silent = says("late", delay_s=3.5)
    provider.will(silent, does(push("S5"), text="Looking."), silent)

    before = ask(proxy.origin, body_of("S5 before", awake=True, stream=True))
    between = ask(proxy.origin, body_of("S5 between", awake=True, stream=True))

    assert b": keep-alive" not in before.body
    assert between.body.count(b": keep-alive\n\n") >= 2
    assert b"Looking" in between.body.partition(b": keep-alive")[0]
    assert (between.text, between.finishes) == ("Looking.\n\nlate", ["stop"])


@pytest.mark.rows("X-50")
def test_comments_come_before_the_first_event_once_the_head_has_come(
    start: Starting, provider: ScriptedProvider
) -> None:
    proxy = start(keep_alive_s=0.05)
    provider.will(stall(says("slow"), 0.5, after_events=0))

    told = ask(proxy.origin, body_of("head first", awake=True, stream=True))

    assert told.body.startswith(b": keep-alive\n\n")
    assert (told.text, told.finishes) == ("slow", ["stop"])


@pytest.mark.rows("X-50")
@pytest.mark.parametrize("code", [401, 429, 503])
def test_a_late_refusal_keeps_its_own_status(start: Starting, provider: ScriptedProvider, code: int) -> None:
    """Silence before the provider's head leaves the status open, however often a comment would have been due."""
    proxy = start(keep_alive_s=0.05)
    provider.will(status(code, headers={"retry-after": "17"}).but(delay_s=0.4))

    told = ask(proxy.origin, body_of("late refusal", awake=True, stream=True))

    assert (told.status, told.header("retry-after")) == (code, "17")
    assert b"keep-alive" not in told.body


def test_s5_no_comment_is_put_into_a_stream_that_is_not_ours(start: Starting, provider: ScriptedProvider) -> None:
    proxy = start(keep_alive_s=0.05)
    provider.will(stall(says("slow"), 0.3, after_events=1))
    assert b"keep-alive" not in ask(proxy.origin, body_of("S5 asleep", stream=True)).body


@AWAKE
@STREAM
def test_s5_silence_before_the_first_byte_is_a_504(
    start: Starting, provider: ScriptedProvider, awake: bool, stream: bool
) -> None:
    proxy = start(upstreams__default__idle_timeout_s=1)
    provider.will(says("never", delay_s=60), says("now"))

    told = ask(proxy.origin, body_of("S5", awake=awake, stream=stream))

    assert (told.status, told.json["error"]["code"]) == (504, "upstream_timeout")
    assert told.told == "error; reason=upstream_timeout"
    assert ask(proxy.origin, body_of("S5", awake=awake, stream=stream)).text == "now"


@AWAKE
def test_s5_silence_in_mid_stream_breaks_it_off(start: Starting, provider: ScriptedProvider, awake: bool) -> None:
    proxy = start(upstreams__default__idle_timeout_s=1)
    provider.will(stall(says(LONG), after_events=4))

    told = ask(proxy.origin, body_of("S5", awake=awake, stream=True))

    assert (told.status, told.whole, told.done, told.finishes) == (200, False, False, [])


# ------------------------------------------------------------------------------------------------------------------ S8
CARRIED = {
    "Retry-After": "17",
    "x-ratelimit-remaining-tokens": "12",
    "anthropic-ratelimit-requests-reset": "2026-11-21T00:00:00Z",
    "openai-processing-ms": "7",
    "X-Request-Id": "req-1",
}


@pytest.mark.rows("X-19")
@AWAKE
@STREAM
@pytest.mark.parametrize("code", [400, 401, 404, 413, 429, 500, 502, 503, 529])
def test_s8_an_error_of_the_provider_passes_unchanged_and_leaves_the_tree_alone(
    proxy: ServedProxy, provider: ScriptedProvider, awake: bool, stream: bool, code: int
) -> None:
    words = b'{"error" : {"message":"\xc3\xa9 no", "type":"odd", "x_more": 1.0}}\n'
    body = body_of(f"S8 {code} {awake} {stream}", awake=awake, stream=stream)
    tries = 3 if awake and code in (400, 404) else 1  # in milder forms, and as the client asked
    provider.will(says("fine"), *[status(code, headers=CARRIED, body=words)] * tries)
    before = ask(proxy.origin, body)
    body["messages"] += [{"role": "assistant", "content": before.text}, {"role": "user", "content": "more"}]
    state, turns = proxy.state(before.conversation), proxy.turns(before.conversation)

    told = ask(proxy.origin, body)

    assert (told.status, told.body, told.whole) == (code, words, True)
    assert {name: told.header(name.lower()) for name in CARRIED} == CARRIED
    assert provider.received[-1].chat == provider.received[0].chat + tries
    assert proxy.state(before.conversation)["frames"] == state["frames"]
    assert proxy.turns(before.conversation) == turns


# ----------------------------------------------------------------------------------------------------------------- S10
EVENTS = (("content-type", "text/event-stream"),)
GZIP = (("content-type", "application/json"), ("content-encoding", "gzip"))
ODD: dict[str, ScriptedAnswer] = {
    "json error": json_error("context too long", 400),
    "html": html(),
    "empty": empty(),
    "empty stream": ScriptedAnswer(instead=FixedReply(200, b"", EVENTS)),
    "only comments": ScriptedAnswer(instead=FixedReply(200, b": working\n\n: working\n\n", EVENTS)),
    "only a role": ScriptedAnswer(
        instead=FixedReply(200, b'data: {"choices":[{"delta":{"role":"assistant"}}]}\n\n', EVENTS)
    ),
    "only done": only_done(),
    "comments and done": ScriptedAnswer(instead=FixedReply(200, b": working\n\ndata: [DONE]\n\n", EVENTS)),
    "odd error and done": ScriptedAnswer(
        instead=FixedReply(200, b'data: {"object":"error"}\n\ndata: [DONE]\n\n', EVENTS)
    ),
    "wrong type": wrong_type(says("hi"), "text/plain"),
    "no type": wrong_type(says("hi"), ""),
    "gzip": says("hi", encoding=("gzip",)),
    "double gzip": says("hi", encoding=("gzip", "gzip")),
    "unknown coding": ScriptedAnswer(
        instead=FixedReply(200, b"\x0b\x02\x80hi\x03", (*GZIP[:1], ("content-encoding", "x-zip")))
    ),
    "broken gzip": ScriptedAnswer(instead=FixedReply(200, gzip.compress(b"{}")[:-4] + b"????", GZIP)),
    "gzip bomb": gzip_bomb(),
    "json array": ScriptedAnswer(instead=FixedReply(200, b"[1, 2]", GZIP[:1])),
    "half json": ScriptedAnswer(instead=FixedReply(200, b'{"choices":[{"mess', GZIP[:1])),
    "wrong shapes": ScriptedAnswer(instead=FixedReply(200, b'{"choices":[{"message":7}],"usage":"many"}', GZIP[:1])),
    "endless figures": ScriptedAnswer(
        instead=FixedReply(
            200,
            b'{"choices":[{"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}],'
            b'"usage":{"prompt_tokens":1e400,"completion_tokens":NaN,"total_tokens":' + b"9" * 400 + b"}}",
            GZIP[:1],
        )
    ),
    "odd chunks": ScriptedAnswer(
        instead=FixedReply(
            200,
            b'data: {"choices":[7]}\n\ndata: {"choices":{"a":1}}\n\ndata: 5\n\ndata: {"choices":[{"delta":[]}]}\n\n'
            b'data: {"choices":[{"delta":{"tool_calls":{"a":1}}}]}\n\n'
            b'data: {"choices":[{"delta":{"tool_calls":[null,7]}}]}\n\ndata: [DONE]\n\n',
            EVENTS,
        )
    ),
}


def deep(levels: int) -> str:
    return "[" * levels + "]" * levels


def events(*deltas: str) -> bytes:
    said = [b'data: {"choices":[{"index":0,"delta":%b}]}\n\n' % delta.encode() for delta in deltas]
    return b"".join(said) + b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


UNREADABLE = {
    "as deep as a parser goes": [f'{{"content":"a","more":{deep(levels)}}}' for levels in range(900, 1000)],
    "deep content": [f'{{"content":{deep(levels)}}}' for levels in range(900, 1000)],
    "deep, in pieces": [f'{{"content":"a","more":[{{"type":"text","text":"a","more":{deep(700)}}}]}}'] * 2,
    "a deep type": [f'{{"content":"a","more":[{{"type":{deep(700)},"data":"a"}}]}}'] * 2,
    "index of 5000 digits": [
        '{"tool_calls":[{"index":"%s","id":"a","function":{"name":"read_file","arguments":"{}"}}]}' % ("9" * 5000)
    ],
}


@pytest.mark.parametrize("odd", UNREADABLE)
def test_s10_what_cannot_be_read_along_passes_as_it_came(
    proxy: ServedProxy, provider: ScriptedProvider, odd: str
) -> None:
    said = events(*UNREADABLE[odd])
    provider.will(ScriptedAnswer(instead=FixedReply(200, said, EVENTS)), says("fine"))
    body = body_of(f"S10 unreadable {odd}", awake=False, stream=True)

    told = ask(proxy.origin, body)

    assert (told.status, told.whole, told.body == said) == (200, True, True)
    assert ask(proxy.origin, body).text == "fine"


@pytest.mark.parametrize("odd", ["deep, in pieces", "a deep type", "index of 5000 digits"])
@pytest.mark.parametrize("behind", [False, True])
def test_s10_what_is_hard_to_read_does_not_break_an_awake_stream(
    proxy: ServedProxy, provider: ScriptedProvider, odd: str, behind: bool
) -> None:
    hidden = [does(push("S10"), text="First I look.")] if behind else []
    provider.will(
        *hidden, ScriptedAnswer(instead=FixedReply(200, events('{"content":"Done."}', *UNREADABLE[odd]), EVENTS))
    )

    told = ask(proxy.origin, body_of(f"S10 hard {odd} {behind}", awake=True, stream=True))

    assert (told.status, told.whole, told.done) == (200, True, True)
    assert b"Done." in told.body
    assert b"stack_" not in told.body


@pytest.mark.parametrize("levels", [400, 700, *range(960, 1000, 3)])
def test_s10_a_plain_answer_that_cannot_be_read_along_passes_as_it_came(
    proxy: ServedProxy, provider: ScriptedProvider, levels: int
) -> None:
    said = b'{"choices":[{"index":0,"message":{"role":"assistant","content":%b,"more":%b},"finish_reason":"stop"}]}'
    said %= (deep(levels).encode(), deep(levels).encode())
    provider.will(ScriptedAnswer(instead=FixedReply(200, said, (("content-type", "application/json"),))))

    told = ask(proxy.origin, body_of(f"S10 plain {levels}", awake=False))

    assert (told.status, told.whole, told.body == said) == (200, True, True)


@AWAKE
@STREAM
@pytest.mark.parametrize("odd", ODD)
def test_s10_an_odd_200_passes_as_it_came(
    proxy: ServedProxy, provider: ScriptedProvider, awake: bool, stream: bool, odd: str
) -> None:
    body = body_of(f"S10 {odd} {awake} {stream}", awake=awake, stream=stream)
    provider.will(ODD[odd])
    direct = ask(provider.origin, body)
    kept = tuple(header for header in direct.headers if header[0].startswith("content-") and header[0][8:] != "length")
    provider.will(ScriptedAnswer(instead=FixedReply(200, direct.body, kept)), says("fine"))

    told = ask(proxy.origin, body)

    if awake and stream and odd == "endless figures":  # a whole answer, though no stream: it is turned into one
        assert (told.status, told.whole, told.text) == (200, True, "hi")
        return
    assert (told.status, told.whole, told.body == direct.body) == (200, True, True)
    assert [told.header(name) for name, _ in kept] == [value for _, value in kept]
    assert ask(proxy.origin, body).text == "fine"


SAYS_NOTHING = ["only comments", "only a role", "only done", "comments and done", "odd error and done"]


UNFINISHED = "The turn could not be finished; send the request again."


@pytest.mark.rows("X-51")
@pytest.mark.parametrize("odd", ["json error", "html", "empty", "empty stream", *SAYS_NOTHING])
def test_s10_an_odd_200_behind_a_hidden_round_is_an_error_in_the_stream(
    proxy: ServedProxy, provider: ScriptedProvider, odd: str
) -> None:
    """It cannot be shown behind a stream that has begun, and to stop there would look like a good end."""
    provider.will(does(push("S10"), text="First I look."), ODD[odd])

    told = ask(proxy.origin, body_of(f"S10 behind {odd}", awake=True, stream=True))

    assert (told.status, told.whole, told.done) == (200, True, False)
    words = {"json error": "context too long", "html": "502 Bad Gateway"}
    assert told.chunks[-1]["error"]["message"] == words.get(odd, UNFINISHED)
    choices = [choice for chunk in told.chunks for choice in chunk.get("choices", [])]
    assert "".join(choice["delta"].get("content") or "" for choice in choices) == "First I look."
    assert told.finishes == []


@pytest.mark.parametrize("odd", ["empty", "empty stream", "half json", "json array"])
def test_s10_nothing_behind_a_hidden_round_of_a_plain_answer_is_an_error_to_ask_again_for(
    proxy: ServedProxy, provider: ScriptedProvider, odd: str
) -> None:
    """The client did not ask for that round, and what was said before it would be lost in a 200 with nothing."""
    provider.will(does(push("S10"), text="First I look."), ODD[odd], says("Now I have it."))
    body = body_of(f"S10 plain behind {odd}", awake=True)

    told, again = ask(proxy.origin, body), ask(proxy.origin, body)

    assert (told.status, told.json["error"]["code"]) == (502, "upstream_unreadable")
    assert "send the request again" in told.json["error"]["message"]
    assert (again.status, again.text) == (200, "Now I have it.")
    assert again.conversation == told.conversation


@pytest.mark.parametrize("odd", ["json error", "html", "unknown coding", "gzip bomb"])
def test_s10_what_only_we_cannot_read_behind_a_hidden_round_passes_whole_in_a_plain_answer(
    proxy: ServedProxy, provider: ScriptedProvider, odd: str
) -> None:
    provider.will(does(push("S10"), text="First I look."), ODD[odd], ODD[odd])
    body = body_of(f"S10 plain unread {odd}", awake=True)

    told, direct = ask(proxy.origin, body), ask(provider.origin, body)

    assert (told.status, told.whole, told.body) == (200, True, direct.body)
    assert proxy.page(f"/stack/requests/{told.request}")["status"] == "full"


def test_s10_words_without_an_end_behind_a_hidden_round_are_the_answer(
    proxy: ServedProxy, provider: ScriptedProvider
) -> None:
    """Some servers close the connection in place of a finish and a terminator; nothing of that is made up."""
    said = b'data: {"choices":[{"index":0,"delta":{"content":"Then I say."}}]}\n\n'
    provider.will(does(push("S10"), text="First I look."), ScriptedAnswer(instead=FixedReply(200, said, EVENTS)))

    told = ask(proxy.origin, body_of("S10 no end", awake=True, stream=True))

    assert (told.whole, told.text, told.done, told.finishes) == (True, "First I look.\n\nThen I say.", False, [])


@AWAKE
@pytest.mark.parametrize("after", [0, 3])
def test_s10_an_error_in_mid_stream_passes_and_nothing_is_made_up(
    proxy: ServedProxy, provider: ScriptedProvider, awake: bool, after: int
) -> None:
    provider.will(error_chunk(says(LONG), after_events=after))

    told = ask(proxy.origin, body_of(f"S10 error {after}", awake=awake, stream=True))

    assert (told.status, told.done, told.finishes) == (200, False, [])
    assert json.loads(told.payloads[-1])["error"]["message"] == "Provider returned error"
    assert len(told.payloads) == after + 1
