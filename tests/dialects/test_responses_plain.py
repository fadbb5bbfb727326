"""Answers of the responses API that are not streamed: the same engine, gathered (X-09..X-11, H4)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.dialects.responses_streams import (
    Made,
    call,
    custom,
    hidden,
    message,
    plain,
    play,
    response,
    round_,
    search,
    spoken_thought,
    thought,
    usage,
)


def answered(*rounds: bytes) -> dict[str, Any]:
    found = json.loads(play(*rounds, stream=False).out)
    assert isinstance(found, dict)
    return found


@pytest.mark.rows("X-09")
def test_x09_a_hidden_round_then_text_is_one_answer() -> None:
    second = plain(message("Done.", id_="msg_2"), of=2)
    found = answered(plain(message("Start."), thought("a"), hidden()), second)
    told = json.loads(second)
    assert found == told | {
        "id": "resp_1",
        "model": "model-1",
        "created_at": 1700000001,
        "output": [message("Start.").item, *told["output"]],
        "usage": usage(2, 20) | {"output_tokens_details": {"reasoning_tokens": 8}},
    }


@pytest.mark.rows("X-10")
def test_x10_h4_a_mixed_turn_shows_the_clients_items_alone_as_the_provider_wrote_them() -> None:
    made = [thought("Hm."), message("Look."), call("bash", '{"a": 1}', "a"), hidden(), custom()]
    played = play(plain(*made), stream=False)
    assert b"stack_" not in played.out
    assert json.loads(played.out)["output"] == [m.item for m in made if m.item.get("name") != "stack_frame_push"]
    spoken = played.spoken[0]
    assert [c.name for c in spoken.message.calls] == ["bash", "stack_frame_push", "apply_patch"]
    ours = {name: value for name, value in made[3].item.items() if name != "id"}
    assert json.loads(spoken.message.wire) == [m.item for m in made[:3]] + [ours, made[4].item]
    assert (spoken.finish, spoken.extra["response_id"], spoken.complete) == ("completed", b'"resp_1"', True)


@pytest.mark.rows("X-21")
def test_x21_bound_reasoning_of_two_hidden_rounds_is_not_shown() -> None:
    rounds = [plain(thought("a"), hidden(), of=1), plain(thought("b", id_="rs_2"), hidden("2"), of=2)]
    found = answered(*rounds, plain(thought("c", id_="rs_3"), message("Done."), of=3))
    assert [item["id"] for item in found["output"]] == ["rs_3", "msg_1"]


def test_reasoning_at_the_end_of_the_last_round_is_shown() -> None:
    found = answered(plain(message("A"), hidden()), plain(message("B", id_="msg_2"), thought("b"), of=2))
    assert [item["type"] for item in found["output"]] == ["message", "message", "reasoning"]


def test_an_answer_of_hidden_calls_alone_is_completed_and_empty() -> None:
    found = answered(plain(thought("a"), hidden()))
    assert (found["output"], found["status"]) == ([], "completed")


def test_a_truncated_call_of_ours_is_dropped() -> None:
    played = play(plain(message("A"), hidden(arguments='{"ti'), status="incomplete"), stream=False)
    assert played.spoken[0].hidden_truncated
    assert played.spoken[0].finish == "max_output_tokens"
    assert [item["type"] for item in json.loads(played.out)["output"]] == ["message"]


def test_a_failed_answer_of_a_later_round_shows_nothing_of_ours() -> None:
    error = {"code": "server_error", "message": "overloaded"}
    second = plain(of=2, status="failed", error=error, output=[hidden("2").item], usage=None)
    played = play(plain(message("A"), hidden()), second, stream=False)
    found = json.loads(played.out)
    assert played.answer.round_failed
    assert not played.spoken[1].complete
    assert b"stack_" not in played.out
    assert (found["id"], found["status"], found["error"]) == ("resp_1", "failed", error)


def test_an_answer_that_is_still_being_made_is_not_complete() -> None:
    assert not play(plain(status="in_progress"), stream=False).spoken[0].complete


MADE = st.sampled_from(
    [message("a", "b"), thought("t"), spoken_thought("s", id_="rs_2"), call(), hidden(), custom(), search()]
)


@given(st.lists(MADE, max_size=6, unique_by=lambda m: m.item["id"]), st.sampled_from(["completed", "incomplete"]))
def test_streamed_and_plain_the_same_answer_is_the_same_message_and_shows_the_same(
    made: list[Made], status: str
) -> None:
    whole = play(json.dumps(response(*made, status=status), ensure_ascii=False).encode(), stream=False)
    streamed = play(round_(*made, status=status))
    told = json.loads(streamed.out.split(b"data: ")[-1])["response"]
    assert json.loads(whole.out) == told
    ours, theirs = whole.spoken[0], streamed.spoken[0]
    assert json.loads(ours.message.wire) == json.loads(theirs.message.wire)
    assert (ours.message.identity, ours.message.calls) == (theirs.message.identity, theirs.message.calls)
    assert (ours.finish, ours.usage, ours.model) == (theirs.finish, theirs.usage, theirs.model)
