"""Bound reasoning by value, required reasoning over HTTP (L8)."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_test_provider import Model, ScriptedCall, ScriptedProvider, answers, calls, says
from llm_test_provider.reasoning_binding import (
    STAND_IN,
    BoundRequest,
    Examination,
    ReasoningItem,
    examine,
    seal,
    verdict_on,
)

Ask = Callable[..., tuple[int, dict[str, str], bytes]]
SECRET = b"provider secret"
HEAD = b"system and tools"


def kinds(request: BoundRequest) -> list[str]:
    return [fault.kind for fault in examine(SECRET, request).faults]


def conversation() -> tuple[ReasoningItem, ReasoningItem, ReasoningItem]:
    """Three items made one after the other, each with the call `c1`, `c2`, `c3` made with it."""
    first = seal(SECRET, "one", BoundRequest(HEAD, (b"u1",)), together=b"c1")
    second = seal(SECRET, "two", BoundRequest(HEAD, (b"u1", first, b"c1", b"r1")), first.token, together=b"c2")
    before = (b"u1", first, b"c1", b"r1", second, b"c2", b"r2")
    third = seal(SECRET, "three", BoundRequest(HEAD, before), second.token, together=b"c3")
    return first, second, third


# ---------------------------------------------------------------------------------------------------------------- bound
def test_an_untouched_history_holds() -> None:
    one, two, three = conversation()

    found = examine(SECRET, BoundRequest(HEAD, (b"u1", one, b"c1", b"r1", two, b"c2", b"r2", three, b"c3", b"r3")))

    assert found.faults == ()
    assert found.held == (one, two, three)
    assert found.last == three.token


def test_a_changed_message_system_or_tool_is_a_prefix_fault_for_all_behind_it() -> None:
    one, two, three = conversation()
    rest = (b"c1", b"CHANGED", two, b"c2", b"r2", three, b"c3")

    assert kinds(BoundRequest(HEAD, (b"u1", one, *rest))) == ["prefix", "prefix"]
    assert kinds(BoundRequest(b"another head", (b"u1", one, b"c1"))) == ["prefix"]


def test_leaving_out_from_the_start_from_the_end_or_all_is_allowed_and_a_gap_is_not() -> None:
    one, two, three = conversation()

    assert kinds(BoundRequest(HEAD, (b"u1", b"c1", b"r1", two, b"c2", b"r2", three, b"c3"))) == []
    assert kinds(BoundRequest(HEAD, (b"u1", one, b"c1", b"r1", two, b"c2", b"r2", b"c3"))) == []
    assert kinds(BoundRequest(HEAD, (b"u1", b"c1", b"r1", b"c2"))) == []
    assert kinds(BoundRequest(HEAD, (b"u1", one, b"c1", b"r1", b"c2", b"r2", three, b"c3"))) == ["gap"]


def test_an_item_put_back_voids_what_was_made_meanwhile() -> None:
    one, _, _ = conversation()
    without = seal(SECRET, "made without", BoundRequest(HEAD, (b"u1", b"c1", b"r1")), together=b"c2")

    assert kinds(BoundRequest(HEAD, (b"u1", b"c1", b"r1", without, b"c2"))) == []
    assert kinds(BoundRequest(HEAD, (b"u1", one, b"c1", b"r1", without, b"c2"))) == ["gap"]


def test_items_before_a_change_and_those_made_after_it_stay_valid() -> None:
    one, two, _ = conversation()
    changed = (b"u1", one, b"c1", b"changed", two, b"c2", b"r2")
    found = examine(SECRET, BoundRequest(HEAD, changed))
    after = seal(SECRET, "after", BoundRequest(HEAD, changed), found.last, together=b"c3")

    assert found.held == (one,)
    assert kinds(BoundRequest(HEAD, (*changed, after, b"c3"))) == ["prefix"]


def test_other_words_or_another_token_are_tampering() -> None:
    one, two, _ = conversation()

    for item in (
        replace(one, content="ONE"),
        replace(one, token=two.token),
        replace(one, token="!"),
        ReasoningItem("x", "AAAA"),
    ):
        assert kinds(BoundRequest(HEAD, (b"u1", item, b"c1"))) == ["tampered"]
    assert [fault.kind for fault in examine(b"another provider", BoundRequest(HEAD, (b"u1", one, b"c1"))).faults] == [
        "tampered"
    ]


def test_an_item_without_what_was_made_with_it_is_an_orphan() -> None:
    one, _, _ = conversation()

    assert kinds(BoundRequest(HEAD, (b"u1", one))) == ["orphan"]
    assert kinds(BoundRequest(HEAD, (b"u1", one, b"another call"))) == ["orphan"]


def test_error_refuses_and_drop_answers_and_reports() -> None:
    one, two, _ = conversation()
    two = replace(two, path="messages.2.content.0")
    found = examine(SECRET, BoundRequest(HEAD, (b"u1", one, b"c1", b"changed", two, b"c2")))

    assert "bound to a different conversation" in verdict_on(found, "error").refusal
    dropped = verdict_on(found, "drop")
    assert dropped.refusal == ""
    assert [change["path"] for change in dropped.input_transformations] == ["messages.2.content.0"]


@pytest.mark.parametrize(
    ("parts", "words"), [((b"u1", "tampered", b"c1"), "signature"), ((b"u1", "orphan"), "following")]
)
def test_tampering_and_orphans_are_refused_in_either_mode(parts: tuple[Any, ...], words: str) -> None:
    one, _, _ = conversation()
    items = {"tampered": replace(one, content="x"), "orphan": one}
    found = examine(SECRET, BoundRequest(HEAD, tuple(items.get(part, part) for part in parts)))

    assert words in verdict_on(found, "drop").refusal
    assert words in verdict_on(found, "error").refusal


def test_nothing_found_is_nothing_said() -> None:
    assert verdict_on(Examination(), "error") == verdict_on(Examination(), "drop")
    assert verdict_on(Examination(), "error").refusal == ""


@given(answered=st.lists(st.sampled_from("tu"), min_size=1, max_size=12), data=st.data())
def test_a_change_voids_exactly_the_items_behind_it(answered: list[str], data: st.DataObject) -> None:
    """Any conversation holds as it was made; after a change of one visible part only what stands before it holds."""
    parts: list[bytes | ReasoningItem] = []
    last = ""
    for turn, kind in enumerate(answered):
        parts.append(b"user %d" % turn if kind == "u" else b"result %d" % turn)
        made = b"answer %d" % turn
        item = seal(SECRET, f"thought {turn}", BoundRequest(HEAD, tuple(parts)), last, made)
        parts += [item, made]
        last = item.token
    changed = data.draw(
        st.sampled_from([at for at, part in enumerate(parts) if isinstance(part, bytes) and part[:1] in b"ur"])
    )

    untouched = examine(SECRET, BoundRequest(HEAD, tuple(parts)))
    touched = examine(SECRET, BoundRequest(HEAD, (*parts[:changed], b"something else", *parts[changed + 1 :])))

    assert (untouched.faults, untouched.last) == ((), last)
    assert touched.held == tuple(part for part in parts[:changed] if isinstance(part, ReasoningItem))
    assert {fault.kind for fault in touched.faults} == {"prefix"}


# ------------------------------------------------------------------------------------------------------------- required
def provider_that_requires(field: Any) -> ScriptedProvider:
    return ScriptedProvider(calls("shell", command="ls"), says("done"), models=[Model("m", required=(field,))])


def echoed(body: bytes, *more: dict[str, Any]) -> list[dict[str, Any]]:
    """The history a client sends after a call: the answer as it came, its result, and `more`."""
    message = json.loads(body)["choices"][0]["message"]
    result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "ok"}
    return [{"role": "user", "content": "hi"}, message, result, *more]


@pytest.mark.parametrize("change", [None, "other thoughts"])
def test_reasoning_content_must_come_back_with_its_call(ask: Ask, change: str | None) -> None:
    with provider_that_requires("reasoning_content") as provider:
        history = echoed(ask(provider)[2], {"role": "user", "content": "go on"})
        changed = [
            message | {"reasoning_content": change} if "tool_calls" in message else message for message in history
        ]
        refused, _, words = ask(provider, messages=changed)
        accepted, _, _ = ask(provider, messages=history)

    assert history[1]["reasoning_content"]
    assert (refused, accepted) == (400, 200)
    assert "must be passed back" in json.loads(words)["error"]["message"]


def without_signature(message: dict[str, Any], signature: str = "") -> dict[str, Any]:
    if "tool_calls" not in message:
        return message
    carried = {"extra_content": {"google": {"thought_signature": signature}}} if signature else {}
    kept = [{key: value for key, value in call.items() if key != "extra_content"} for call in message["tool_calls"]]
    return message | {"tool_calls": [call | carried for call in kept]}


@pytest.mark.parametrize(("signature", "status"), [("", 400), ("another", 400), (STAND_IN, 200)])
def test_a_signature_must_come_back_in_the_current_turn(ask: Ask, signature: str, status: int) -> None:
    with provider_that_requires("thought_signature") as provider:
        history = echoed(ask(provider)[2])
        heard, _, words = ask(provider, messages=[without_signature(message, signature) for message in history])

    assert heard == status
    assert ("missing a thought_signature" in words.decode()) == (status == 400)


def test_a_signature_of_an_earlier_turn_may_be_missing(ask: Ask) -> None:
    with provider_that_requires("thought_signature") as provider:
        history = echoed(ask(provider)[2], {"role": "user", "content": "next"})
        heard, _, _ = ask(provider, messages=[without_signature(message) for message in history])

    assert heard == 200


def test_calls_the_provider_never_made_are_not_checked(ask: Ask) -> None:
    foreign = {"role": "assistant", "tool_calls": [{"id": "x", "function": {"name": "f", "arguments": "{}"}}]}
    with provider_that_requires("reasoning_content") as provider:
        heard, _, _ = ask(provider, messages=[{"role": "user", "content": "hi"}, foreign])

    assert heard == 200


def test_only_the_first_of_parallel_calls_is_signed(ask: Ask) -> None:
    pair = answers(calls=[ScriptedCall("a"), ScriptedCall("b")])
    with ScriptedProvider(pair, models=[Model("m", required=("thought_signature",))]) as provider:
        first, second = json.loads(ask(provider)[2])["choices"][0]["message"]["tool_calls"]

    assert first["extra_content"]["google"]["thought_signature"]
    assert "extra_content" not in second


def test_a_refused_request_takes_no_answer(ask: Ask) -> None:
    with provider_that_requires("reasoning_content") as provider:
        history = echoed(ask(provider)[2])
        del history[1]["reasoning_content"]
        ask(provider, messages=history)

        assert provider.script.left == 1
