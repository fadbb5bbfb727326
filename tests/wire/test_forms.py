"""S6, S7, H4: odd events and odd tool deltas. What is not ours passes as it came; what is ours never shows."""

from __future__ import annotations

import json
from itertools import combinations

import pytest

from llm_test_provider import FixedReply, ScriptedAnswer, ScriptedCall, ScriptedProvider, answers, call, says
from llm_test_provider.answer import Usage
from llm_test_provider.apis.chat_calls import FORMS as CALL_FORMS
from llm_test_provider.apis.chat_sse import FORMS as EVENT_FORMS
from tests.harness import Json, does, plan, push
from tests.wire.proxied import ServedProxy
from tests.wire.talking import ReceivedAnswer, ask, body_of

AWAKE = pytest.mark.parametrize("awake", [True, False], ids=["awake", "asleep"])
EVENTS = (("content-type", "text/event-stream"),)
USAGE: Json = {"stream_options": {"include_usage": True}}


def recorded(provider: ScriptedProvider, answer: ScriptedAnswer) -> FixedReply:
    """What the provider really sends for an answer, to be sent again as it was."""
    provider.will(answer)
    return FixedReply(200, ask(provider.origin, body_of(stream=True, **USAGE)).body, EVENTS)


# ------------------------------------------------------------------------------------------------------------------ S6
@AWAKE
@pytest.mark.parametrize("form", sorted(EVENT_FORMS))
def test_s6_odd_events_without_a_call_of_ours_pass_as_they_came(
    proxy: ServedProxy, provider: ScriptedProvider, awake: bool, form: str
) -> None:
    reply = recorded(provider, answers("Grüße 日本", [call("read_file", path="é")], events=(form,)))
    provider.will(ScriptedAnswer(instead=reply), says("fine"))
    body = body_of(f"S6 {form} {awake}", awake=awake, stream=True, **USAGE)

    told = ask(proxy.origin, body)

    assert (told.status, told.whole, len(told.body), told.body == reply.body) == (200, True, len(reply.body), True)
    assert ask(proxy.origin, body).text == "fine"


@pytest.mark.parametrize("form", sorted(EVENT_FORMS))
@pytest.mark.parametrize("place", ["first", "last"])
def test_s6_odd_events_around_a_hidden_call_never_show_it(
    proxy: ServedProxy, provider: ScriptedProvider, form: str, place: str
) -> None:
    first, last = does(push("S6"), text="Start."), says("End.")
    odd = {"events": (form,)}
    provider.will(*([first.but(**odd), last] if place == "first" else [first, last.but(**odd)]))

    told = ask(proxy.origin, body_of(f"S6 hidden {form} {place}", awake=True, stream=True))

    assert (told.status, told.whole, b"stack" in told.body) == (200, True, False)
    assert b"Start." in told.body
    assert b"End." in told.body


# ------------------------------------------------------------------------------------------------------------------ S7
PATHS = ["a.py", "b.py", "c.py"]
FORMS = [(), *((form,) for form in sorted(CALL_FORMS))]
PAIRS = list(combinations([f for f in sorted(CALL_FORMS) if f not in ("index_missing", "index_null")], 2))
UNDECIDABLE = ("index_same", "interleaved")
"""Fragments of several calls in turn, all under one index and without an id: nobody can tell whose they are."""


def client_calls(told: ReceivedAnswer) -> list[tuple[str, Json]]:
    """Names and arguments, put together as a strict client does: by index, which must count from 0."""
    made: dict[int, list[str]] = {}
    for delta in told.deltas:
        for part in delta.get("tool_calls") or []:
            known = made.setdefault(part["index"], ["", ""])
            name = part["function"].get("name") or ""
            known[0] += name if name != known[0] else ""
            known[1] += part["function"].get("arguments") or ""
    assert list(made) == list(range(len(made))), made
    return [(name, json.loads(arguments or "{}")) for name, arguments in (made[at] for at in sorted(made))]


def mixed() -> list[ScriptedCall]:
    """Calls of ours first, between and last."""
    read = [call("read_file", path=path) for path in PATHS]
    return [push("one"), read[0], read[1], plan("two"), read[2]]


@pytest.mark.parametrize("forms", FORMS, ids=lambda forms: "+".join(forms) or "usual")
def test_s7_of_five_calls_the_client_gets_its_own_three_numbered_from_zero(
    proxy: ServedProxy, provider: ScriptedProvider, forms: tuple[str, ...]
) -> None:
    provider.will(answers("Both.", mixed(), call_forms=forms))

    told = ask(proxy.origin, body_of(f"S7 {forms}", awake=True, stream=True))

    assert (told.status, told.whole, told.text, told.finishes) == (200, True, "Both.", ["tool_calls"])
    assert b"stack" not in told.body
    assert client_calls(told) == [("read_file", {"path": path}) for path in PATHS]


@pytest.mark.parametrize("forms", FORMS, ids=lambda forms: "+".join(forms) or "usual")
def test_s7_a_hidden_call_alone_never_shows_a_byte(
    proxy: ServedProxy, provider: ScriptedProvider, forms: tuple[str, ...]
) -> None:
    provider.will(does(push("alone"), call_forms=forms), says("done"))

    told = ask(proxy.origin, body_of(f"S7 alone {forms}", awake=True, stream=True))

    assert (told.status, told.text, told.finishes, told.done) == (200, "done", ["stop"], True)
    assert b"stack" not in told.body
    assert b"tool_calls" not in told.body


@pytest.mark.parametrize("forms", PAIRS, ids="+".join)
def test_s7_two_oddities_at_once_leak_nothing(
    proxy: ServedProxy, provider: ScriptedProvider, forms: tuple[str, str]
) -> None:
    provider.will(answers("Both.", [push("pair"), call("read_file", path="a.py")], call_forms=forms))

    told = ask(proxy.origin, body_of(f"S7 {forms}", awake=True, stream=True))

    assert (told.status, told.whole, told.text) == (200, True, "Both.")
    assert b"stack" not in told.body
    assert forms == UNDECIDABLE or client_calls(told) == [("read_file", {"path": "a.py"})]


@AWAKE
@pytest.mark.parametrize("forms", FORMS, ids=lambda forms: "+".join(forms) or "usual")
def test_s7_calls_of_the_client_alone_pass_as_they_came(
    proxy: ServedProxy, provider: ScriptedProvider, awake: bool, forms: tuple[str, ...]
) -> None:
    made = [call("read_file", path=path) for path in PATHS]
    reply = recorded(provider, answers("", made, call_forms=forms))
    provider.will(ScriptedAnswer(instead=reply))

    told = ask(proxy.origin, body_of(f"S7 own {forms} {awake}", awake=awake, stream=True, **USAGE))

    assert told.body == reply.body


@pytest.mark.parametrize("name", ["stack_frame_push", "stack_nothing_known", "stack_", "stack"])
@pytest.mark.parametrize("arguments", ["", "{", "null", "[]", '"x"', "{" * 5000, '{"title":"\\ud800"}'])
def test_h3_a_broken_call_of_ours_is_answered_to_the_model_and_the_turn_goes_on(
    proxy: ServedProxy, provider: ScriptedProvider, name: str, arguments: str
) -> None:
    provider.will(answers("", [ScriptedCall(name, arguments)]), says("done"))

    told = ask(proxy.origin, body_of(f"H3 {name} {arguments[:20]}", awake=True, stream=True))

    assert (told.status, told.text, told.finishes) == (200, "done", ["stop"])
    result = provider.received[-1].messages[-1]
    assert (result["role"], bool(result["content"])) == ("tool", True)


def test_h3_a_megabyte_of_arguments_is_answered_like_any_other(proxy: ServedProxy, provider: ScriptedProvider) -> None:
    provider.will(answers("", [ScriptedCall("stack_frame_push", "x" * 1_000_000)], piece=100_000), says("done"))
    assert ask(proxy.origin, body_of("H3 large", awake=True, stream=True)).text == "done"


# ------------------------------------------------------------------------------------------------------------------ H4
ROUNDS = [Usage(100, 10, cached=40), Usage(150, 20, cached=90), Usage(170, 5, cached=150)]


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "plain"])
def test_h4_usage_is_the_input_of_the_last_round_and_the_output_of_all(
    proxy: ServedProxy, provider: ScriptedProvider, stream: bool
) -> None:
    """DESIGN 7: four clients compact by how full the window is, so the input side is the last round's alone."""
    provider.will(
        does(push("one"), text="A", usage=ROUNDS[0]),
        does(plan("two"), text="B", usage=ROUNDS[1]),
        answers("C", [call("read_file", path="x")], usage=ROUNDS[2]),
    )

    told = ask(proxy.origin, body_of("H4", awake=True, stream=stream, **(USAGE if stream else {})))

    usage = (told.chunks[-1] if stream else told.json)["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (170, 35, 205)
    assert usage["prompt_tokens_details"]["cached_tokens"] == 150
    assert told.text == "A\n\nB\n\nC"
    assert told.finishes == ["tool_calls"] if stream else told.json["choices"][0]["finish_reason"] == "tool_calls"


def test_h4_a_client_that_did_not_ask_for_usage_gets_none(proxy: ServedProxy, provider: ScriptedProvider) -> None:
    provider.will(does(push("one"), text="A"), says("B"), says("alone"))

    for said in ("H4 hidden", "H4 alone"):
        told = ask(proxy.origin, body_of(said, awake=True, stream=True))
        assert [chunk for chunk in told.chunks if chunk.get("usage") or not chunk["choices"]] == []
    assert all(received["stream_options"] == {"include_usage": True} for received in provider.asked)


def test_an_asleep_stream_is_not_even_asked_for_usage(proxy: ServedProxy, provider: ScriptedProvider) -> None:
    provider.will(says("hi"))
    ask(proxy.origin, body_of("no usage", stream=True))
    assert "stream_options" not in provider.received[-1].body
