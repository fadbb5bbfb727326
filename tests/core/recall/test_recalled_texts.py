"""What was recalled stays for some turns, and which frames a recall names."""

import pytest

from proxy.core.ledger.messages import Call
from proxy.core.recall.recalled_texts import (
    KEPT_TURNS,
    is_recall,
    is_recall_round,
    recall_queries,
    recalled_frame_ids,
    recently_recalled_entries,
)
from tests.core.forest import LedgerBuilder, call


@pytest.mark.parametrize(
    "made",
    [
        call("k", "stack_recall", ref="fauth"),
        call("k", "stack", op="recall", args={"ref": "fauth"}),
        call("k", "stack", op="stack_recall", ref="fauth"),
    ],
)
def test_a_recall_is_known_by_either_name(made: Call) -> None:
    assert is_recall(made)


@pytest.mark.parametrize(
    "made",
    [
        call("k", "recall", ref="fauth"),
        call("k", "stack", op="tree"),
        call("k", "stack", op=["recall"]),
        call("k", "stack_frame_pop", op="recall"),
        Call("k", "stack", "not JSON"),
        Call("k", "stack", "[]"),
        call("k", "stack"),
    ],
)
def test_other_calls_recall_nothing(made: Call) -> None:
    """A client's tool may be called `recall`: it is the client's."""
    assert not is_recall(made)


def test_what_was_recalled_stays_for_two_more_turns() -> None:
    """H8."""
    talk = LedgerBuilder()
    talk.client("user", "Look it up")
    recalling = talk.model(("", (call("r", "stack_recall", ref="fauth"),)), ("Here it is.", ()))

    kept = []
    for turn in range(KEPT_TURNS + 1):
        kept.append(recently_recalled_entries(talk.story.entries))
        talk.client("user", f"Next {turn}")
        talk.model(("ok", ()))

    assert kept == [{recalling}] * (KEPT_TURNS + 1)
    assert recently_recalled_entries(talk.story.entries) == frozenset()
    assert [is_recall_round(p) for p in talk.story.entries[:3]] == [False, True, False]


def test_only_refs_name_frames() -> None:
    calls = (
        call("a", "stack_recall", ref='ref="fabcd2345"', query="following fzzzzzzzz"),
        call("b", "stack", op="recall", args={"frameID": "fbcde3456"}),
        call("c", "stack_recall", ref="src/fabcd234.py"),
        call("d", "stack_frame_activate", sessionID="fcdef4567"),
        call("e", "stack_recall", ref="fabcd2345"),
    )

    assert recalled_frame_ids(calls) == ("fabcd2345", "fbcde3456")


@pytest.mark.rows("S2-38")
def test_a_query_that_says_where_to_look_is_none_for_everywhere() -> None:
    calls = [
        Call("c1", "stack_recall", '{"query": " token bucket ", "ref": ""}'),
        Call("c2", "stack_recall", '{"query": "limits", "ref": "fabcd2345"}'),
        Call("c3", "stack", '{"op": "recall", "args": {"query": 429}}'),
        Call("c4", "stack_recall", '{"query": "token bucket"}'),
        call("c7", "stack", op="recall", args='{"query": "quota"}'),
        Call("c5", "stack_recall", '{"query": ["a"]}'),
        Call("c6", "bash", '{"query": "ls"}'),
    ]

    assert recall_queries(calls) == ("token bucket", "429", "quota")
