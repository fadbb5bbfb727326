"""S1: however the network cuts a stream, the client sees the same; what holds no call of ours is never touched."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from llm_test_provider import (
    EVERY_BYTE,
    Cut,
    FixedReply,
    ReceivedRequest,
    ScriptedAnswer,
    ScriptedProvider,
    answers,
    call,
    stall,
)
from tests.harness import Json
from tests.wire.proxied import ServedProxy
from tests.wire.talking import ask, body_of

EVENTS = (("content-type", "text/event-stream; charset=utf-8"),)
TEXT = "naïve 日本 🙂 done"
USAGE: Json = {"stream_options": {"include_usage": True}}
STEP = pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.long), 7], ids=["each", "seventh"])
"""At how many bytes from each other a stream is cut."""
AWAKE = pytest.mark.parametrize("awake", [True, False], ids=["awake", "asleep"])


def stream_of(*deltas: Json, finish: str, name: str = "c1") -> FixedReply:
    """A short stream: every byte of it can be a border."""
    said = [{"delta": delta, "finish_reason": None} for delta in deltas] + [{"delta": {}, "finish_reason": finish}]
    chunks = [{"id": name, "created": len(name), "model": "m", "choices": [{"index": 0, **choice}]} for choice in said]
    events = [json.dumps(chunk, ensure_ascii=False, separators=(",", ":")) for chunk in chunks]
    return FixedReply(200, "".join(f"data: {event}\n\n" for event in [*events, "[DONE]"]).encode(), EVENTS)


def call_delta(name: str, arguments: str) -> Json:
    return {"tool_calls": [{"index": 0, "id": "t1", "function": {"name": name, "arguments": arguments}}]}


MIXED = stream_of({"content": "é🙂"}, call_delta("read_file", '{"p":"ü"}'), finish="tool_calls")
HIDDEN = stream_of({"content": "é"}, call_delta("stack_tree", "{}"), finish="tool_calls")
LAST = stream_of({"content": "日本"}, finish="stop", name="c2x")


def cut_at(reply: FixedReply, at: int) -> ScriptedAnswer:
    """The same bytes in two writes, with a silence between them that no buffer bridges."""
    return stall(ScriptedAnswer(instead=reply), 0.002, after_bytes=at)


def split_wanted(received: ReceivedRequest) -> int:
    """Where the client asked, in its words, that the stream be cut."""
    said = next(m["content"] for m in received.messages if m["role"] == "user")
    return int(said.rpartition(" ")[2])


@STEP
@AWAKE
def test_s1_a_stream_cut_in_two_anywhere_leaves_as_it_came(
    proxy: ServedProxy, provider: ScriptedProvider, awake: bool, step: int
) -> None:
    provider.when("anywhere", lambda received: cut_at(MIXED, split_wanted(received)), loop=True)

    def leaves(at: int) -> bytes:
        return ask(proxy.origin, body_of(f"anywhere {awake} {step} {at}", awake=awake, stream=True)).body

    places = range(1, len(MIXED.body), step)
    with ThreadPoolExecutor(6) as clients:
        told = dict(zip(places, clients.map(leaves, places), strict=True))

    assert [at for at, body in told.items() if body != MIXED.body] == []


@STEP
def test_s1_hidden_rounds_cut_in_two_anywhere_show_the_client_the_same(
    proxy: ServedProxy, provider: ScriptedProvider, step: int
) -> None:
    def plays(received: ReceivedRequest) -> ScriptedAnswer:
        reply = LAST if received.messages[-1]["role"] == "tool" else HIDDEN
        return cut_at(reply, min(split_wanted(received), len(reply.body) - 1))

    provider.when("hidden", plays, loop=True)

    def seen(at: int) -> bytes:
        return ask(proxy.origin, body_of(f"hidden {step} {at}", awake=True, stream=True)).body

    whole = ask(proxy.origin, body_of(f"hidden {step} 9999", awake=True, stream=True))
    assert (whole.text, whole.finishes, b"stack" in whole.body) == ("é\n\n日本", ["stop"], False)
    places = range(1, len(HIDDEN.body), step)
    with ThreadPoolExecutor(6) as clients:
        told = dict(zip(places, clients.map(seen, places), strict=True))

    assert [at for at, body in told.items() if body != whole.body] == []


def recorded(provider: ScriptedProvider, answer: ScriptedAnswer, *, stream: bool) -> FixedReply:
    """What the provider really sends for an answer, to be sent again in other pieces."""
    provider.will(answer)
    told = ask(provider.origin, body_of(stream=stream, **(USAGE if stream else {})))
    return FixedReply(200, told.body, (("content-type", told.header("content-type")),))


@AWAKE
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "plain"])
@pytest.mark.parametrize("cut", [EVERY_BYTE, Cut(40, 1), Cut(40, 2), Cut(400, 3)], ids=["bytes", "40a", "40b", "400"])
def test_s1_an_answer_in_pieces_leaves_as_it_came(
    proxy: ServedProxy, provider: ScriptedProvider, awake: bool, stream: bool, cut: Cut
) -> None:
    said = answers(TEXT * 3, [call("read_file", path="é")], reasoning="why", piece=5)
    reply = recorded(provider, said, stream=stream)
    provider.will(ScriptedAnswer(instead=reply, cut=cut))

    told = ask(proxy.origin, body_of(f"{cut}", awake=awake, stream=stream, **(USAGE if stream else {})))

    assert (told.status, told.told, told.body == reply.body) == (200, "full" if awake else "asleep", True)
