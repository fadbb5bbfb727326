"""Answers of several rounds, read by the provider's own client library from a real socket (H4).

The library is strict: it refuses a response that changes its id, an item that changes its own, one announced twice or
never ended. Skipped where `openai` is not installed.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.dialects.playing import SSE
from tests.dialects.responses_streams import (
    DONE,
    Made,
    call,
    custom,
    events_of,
    hidden,
    message,
    numbered,
    play,
    response,
    round_,
    search,
    spoken_thought,
    sse,
    thought,
    words,
)
from tests.dialects.serving import served

openai: Any = pytest.importorskip("openai", reason="the provider's client library is not installed")
ASKED = {"model": "model-1", "input": "hi"}
EVERYTHING = [
    thought("Hm."),
    search(),
    message("Start."),
    call("bash", '{"a":1}', "a"),
    hidden("1"),
    custom(),
    hidden("2", "{}", "stack"),
]
MADE: dict[str, list[list[Made]]] = {
    "one_round": [[message("Hel", "lo")]],
    "hidden_then_words": [[message("Start."), hidden()], [message("Done.", id_="msg_2")]],
    "hidden_rounds_alone": [[thought("a"), hidden()], [hidden("2")], [message("Done.")]],
    "mixed_turn": [EVERYTHING],
    "everything_behind_a_hidden_round": [[spoken_thought("Hm.", id_="rs_0"), hidden("0")], EVERYTHING],
    "hidden_alone": [[hidden()]],
}
"""Answers by what their rounds are made of."""
COUNTED_FROM_1 = [
    {**e, "output_index": e["output_index"] + 1} if "output_index" in e else e
    for e in events_of(message("Done.", id_="msg_2"), call(), of=2)
]
ROUNDS: dict[str, list[bytes]] = {
    **{name: [round_(*made, of=of) for of, made in enumerate(rounds, 1)] for name, rounds in MADE.items()},
    "terminators": [round_(message("Start."), hidden()) + DONE, words("Done.", of=2) + DONE],
    "counted_from_1": [round_(message("Start."), hidden()), numbered(COUNTED_FROM_1)],
    "without_numbers_at_first": [b"".join(map(sse, events_of(message("Start."), hidden()))), words("Done.", of=2)],
}


def library(url: str) -> Any:
    return openai.OpenAI(api_key="x", base_url=url, max_retries=0)


def parsed(body: bytes) -> tuple[Any, list[Any]]:
    """The response that the library makes of a stream, and the events it was told of."""
    with served(body, SSE) as url, library(url) as client, client.responses.stream(**ASKED) as stream:
        events = list(stream)
        return stream.get_final_response(), events


@pytest.mark.parametrize("name", ROUNDS)
def test_h4_the_library_reads_every_answer_as_one_response(name: str) -> None:
    played = play(*ROUNDS[name])
    final, events = parsed(played.out)
    assert final.id == "resp_1"
    assert final.status == "completed"
    assert final.usage.output_tokens == 10 * len(ROUNDS[name])
    done = [e.item.id for e in events if e.type == "response.output_item.done"]
    assert [item.id for item in final.output] == done
    assert not any("stack" in str(e) for e in events)
    seen = "".join(e.delta for e in events if e.type == "response.output_text.delta")
    assert seen == final.output_text


@pytest.mark.parametrize("name", MADE)
def test_h4_the_library_reads_the_plain_answer_alike(name: str) -> None:
    bodies = [json.dumps(response(*made, of=of)).encode() for of, made in enumerate(MADE[name], 1)]
    with served(play(*bodies, stream=False).out, "application/json") as url, library(url) as client:
        plain = client.responses.create(**ASKED)
    streamed, _ = parsed(play(*ROUNDS[name]).out)
    assert [item.id for item in plain.output] == [item.id for item in streamed.output]
    assert (plain.id, plain.output_text, plain.usage) == (streamed.id, streamed.output_text, streamed.usage)


def test_an_error_behind_a_hidden_round_is_read_as_the_end_that_failed() -> None:
    error = {"code": "server_error", "message": "overloaded"}
    failed = {"type": "response.failed", "response": response(of=2, status="failed", error=error)}
    told = numbered([*events_of(message("B", id_="msg_2"), of=2)[:-1], failed])
    with (
        served(play(round_(message("A"), hidden()), told).out, SSE) as url,
        library(url) as client,
        client.responses.stream(**ASKED) as stream,
    ):
        last = list(stream)[-1]
        assert (last.type, last.response.id, last.response.error.message) == ("response.failed", "resp_1", "overloaded")
        with pytest.raises(RuntimeError):
            stream.get_final_response()
