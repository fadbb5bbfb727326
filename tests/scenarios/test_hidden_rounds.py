"""Several rounds with the provider, one answer for the client: what leaves, what is bounded, what happens when a round
fails or a client goes away."""

import itertools
import json
import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from callstack_proxy.management.issued_keys import issue_key
from llm_test_provider import (
    Cut,
    FixedReply,
    ScriptedAnswer,
    ScriptedCall,
    ScriptedProvider,
    Usage,
    cut,
    error_chunk,
    html,
    json_error,
    reset,
    says,
    stall,
    status,
)
from llm_test_provider.answer import EVENT_STREAM_TYPE
from tests import laws
from tests.client_dialects import CHAT, MESSAGES
from tests.harness import (
    Answer,
    Conversation,
    Stage,
    activate,
    as_one_text,
    bash,
    does,
    op,
    other_members,
    plan,
    pop,
    push,
    recall,
)

CUTS = {"every byte": Cut(1), "7 bytes": Cut(7), "random": Cut(40, seed=7), "whole events": Cut()}


@pytest.mark.rows("X-09", "X-10", "X-11")
@pytest.mark.parametrize("pieces", CUTS.values(), ids=CUTS.keys())
def test_however_the_stream_is_cut_the_client_sees_one_answer(
    stage: Stage, provider: ScriptedProvider, pieces: Cut
) -> None:
    """X-09, X-10, X-11, H4, S1: hidden calls leak nothing, indexes count from 0, one ending, one terminator."""
    chat = stage.chat(options={"stream_options": {"include_usage": True}} if stage.streamed else {})
    provider.will(
        does(push("Auth"), text="Grüße 🚀. ", cut=pieces, usage=Usage(prompt=1000, completion=20)),
        does(
            op("add_decision", decision="JWT"), bash("ls"), bash("pwd"),
            text="Looking.", cut=pieces, usage=Usage(prompt=1200, completion=30),
        ),
    )  # fmt: skip
    answer = chat.says("add a login")

    assert answer.text == "Grüße 🚀. \n\nLooking."
    assert answer.calls == [("bash", '{"command": "ls"}'), ("bash", '{"command": "pwd"}')]
    assert answer.finishes == ["tool_calls"]
    assert answer.usage is not None
    assert (answer.usage["prompt_tokens"], answer.usage["completion_tokens"]) == (1200, 50)
    assert answer.usage["total_tokens"] == 1250
    if answer.streamed:
        assert answer.raw.count(stage.tongue.terminator) == 1
    if answer.streamed and stage.tongue is CHAT:
        assert len({event["id"] for event in answer.events}) == 1
        indexes = [
            part["index"]
            for event in answer.events
            for choice in event["choices"]
            for part in choice["delta"].get("tool_calls") or []
        ]
        assert sorted(set(indexes)) == [0, 1]


@pytest.mark.rows("X-11")
@pytest.mark.parametrize(
    "form", ["index_missing", "index_same", "name_late", "name_split", "one_character", "interleaved"]
)
def test_hidden_calls_in_odd_deltas_leak_nothing(stage: Stage, provider: ScriptedProvider, form: str) -> None:
    """X-11, S7: as providers really write calls."""
    if not stage.streamed:
        pytest.skip("deltas are a stream's")
    chat = stage.chat()
    provider.will(does(op("status"), bash("ls"), call_forms=(form,)), says("ok"))

    answer = chat.says("look")

    assert answer.calls == [("bash", '{"command": "ls"}')]
    chat.returns("a.py")
    assert [m["role"] for m in provider.received[-1].messages[-3:]] == ["assistant", "tool", "tool"]


@pytest.mark.rows("X-11")
@pytest.mark.parametrize("finish", ["tool_calls", "stop"])
@pytest.mark.parametrize("events", [(), ("calls_behind_finish",), ("calls_behind_finish", "no_done")])
def test_a_call_of_ours_is_answered_wherever_the_ending_stands_and_whatever_it_says(
    stage: Stage, provider: ScriptedProvider, events: tuple[str, ...], finish: str
) -> None:
    if "no_done" in events and stage.tongue is not CHAT:
        pytest.skip("only a chat ends without a terminator")
    chat = stage.chat()
    opening, mixed = does(push("Auth"), text="Hm."), does(push("Keys"), bash("ls"))
    odd = [replace(answer, events=events, finish=finish) for answer in (opening, mixed)]
    provider.will(*odd, says("Done."))

    answer = chat.says("look")

    assert (answer.text, answer.calls) == ("Hm.", [("bash", '{"command": "ls"}')])
    assert b"stack_" not in answer.raw
    chat.returns("a.py")
    assert len(provider.received) == 3
    assert [m["role"] for m in provider.received[1].messages[-2:]] == ["assistant", "tool"]


@pytest.mark.spoken_in("chat", reason="clients of the other APIs stand nothing behind the ending")
@pytest.mark.rows("X-11")
def test_a_call_of_the_clients_behind_the_ending_reaches_it_as_it_came(
    stage: Stage, provider: ScriptedProvider
) -> None:
    options = {"stream_options": {"include_usage": True}} if stage.streamed else {}
    calls = (replace(bash("ls"), id="call_a"), replace(bash("pwd"), id="call_b"))
    twin = replace(does(*calls, text="Hm."), events=("calls_behind_finish",), usage=Usage(prompt=10, completion=5))
    provider.will(twin, twin)
    awake = stage.chat(options=options).says("look")
    untouched = stage.chat(stage.proxy(mode="off"), options=options).says("look")
    assert _without_ids(awake.raw) == _without_ids(untouched.raw)
    assert [name for name, _ in awake.calls] == ["bash", "bash"]


@pytest.mark.spoken_in("chat", "messages", reason="a response's ending is its last event")
def test_an_ending_that_came_is_told_where_the_connection_breaks_before_its_terminator(
    stage: Stage, provider: ScriptedProvider
) -> None:
    whole = says("Done.")
    provider.will(whole)
    chat = stage.chat(streamed=True)
    count = chat.says("look").raw.count(b"data: ")
    provider.will(cut(whole, after_events=count - 1))
    assert chat.tries().finishes == ["stop"]


@pytest.mark.rows("X-11")
def test_a_stream_without_stack_calls_is_the_providers_own(stage: Stage, provider: ScriptedProvider) -> None:
    """S1, X-11: byte for byte, terminator and all, also on an awake thread."""
    chat = stage.chat(options={"stream_options": {"include_usage": True}} if stage.streamed else {})
    twin = says("A plain answer.", usage=Usage(prompt=10, completion=5))
    provider.will(twin, twin)
    awake = chat.says("hello")
    untouched = stage.chat(stage.proxy(mode="off"), options=dict(chat.options)).says("hello")

    assert awake.stack_status == "full"
    assert untouched.stack_status == "off"
    assert _without_ids(awake.raw) == _without_ids(untouched.raw)


def _without_ids(raw: bytes) -> str:
    """The scripted provider counts its answers and looks at the clock."""
    return re.sub(r'(chatcmpl|resp|msg)[-_]scripted[-_]\d+|"answer":\d+|"created(_at)?":\d+', "", raw.decode())


@pytest.mark.rows("X-08", "S1-03", "S1-102")
def test_overlays_are_replayed_with_the_same_bytes(provider: ScriptedProvider, chat: Conversation) -> None:
    """X-08, S1-03, P4: what was added stands at the same place in every later request of the frame."""
    provider.will(
        does(plan("A", "B"), text="First a plan."), does(activate("A")), does(bash("ls")),
        says("one"), says("two"), says("three"),
    )  # fmt: skip
    chat.says("two things")
    chat.returns("a.py")
    chat.says("go on")
    chat.says("go on")

    lines = [r.messages for r in provider.received]
    for before, after in itertools.pairwise(lines):
        assert after[: len(before)] == before
    assert len(provider.received) == 6


@pytest.mark.rows("X-12")
def test_a_model_that_pushes_for_ever_is_stopped_with_an_answer(stage: Stage, provider: ScriptedProvider) -> None:
    """H1, X-12: at most `stack_rounds` rounds, then one with `tool_choice: none` and the same arrays: never an empty
    answer."""
    chat = stage.chat(stage.proxy(stack_rounds=4))
    provider.will(*(does(push(f"Level {n}")) for n in range(5)), says("unreached"))
    provider.script.queue.answers[4] = says("I stop here.")

    answer = chat.says("go")

    assert answer.text == "I stop here."
    assert len(provider.received) == 5
    assert [r.body.get("tool_choice") for r in provider.received[:-1]] == [None] * 4
    assert provider.received[-1].body["tool_choice"] == ({"type": "none"} if stage.tongue is MESSAGES else "none")
    assert len({json.dumps(r.body["tools"]) for r in provider.received}) == 1
    assert "No more stack calls" in provider.received[-1].messages[-1]["content"]


def test_a_model_that_alternates_hidden_calls_is_stopped_too(stage: Stage, provider: ScriptedProvider) -> None:
    """H1: status, tree, status, tree, ..."""
    chat = stage.chat(stage.proxy(stack_rounds=3))
    provider.will(does(op("status")), does(op("tree")), does(op("status")), says("Enough."))

    assert chat.says("go").text == "Enough."
    assert len(provider.received) == 4


@pytest.mark.one_process("each process learns for itself what a provider refuses")
@pytest.mark.rows("X-39")
def test_a_model_that_ignores_the_bound_is_not_paid_for_it_again(stage: Stage, provider: ScriptedProvider) -> None:
    """Still a stack call in the round without calls: the client gets what was said, and no error of ours. At the next
    bound that model is not asked for such a round."""
    chat = stage.chat(stage.proxy(stack_rounds=2))
    provider.will(*(does(op("status"), usage=Usage(prompt=1000, completion=20)) for _ in range(5)))

    for asked in ("go", "go on"):
        answer = chat.says(asked)
        assert (answer.status, answer.ended, answer.text, answer.calls) == (200, True, "", [])
        assert not {"tool_calls", "tool_use"} & set(answer.finishes)

    without_calls = {"type": "none"} if stage.tongue is MESSAGES else "none"
    assert [r.body.get("tool_choice") for r in provider.received] == [None, None, without_calls, None, None]
    receipts = chat.proxy.receipts()
    assert [len(receipt["usage_by_round"]) for receipt in receipts] == [3, 2]
    assert {receipt["status"] for receipt in receipts} == {"full"}
    provider.will(says("At last."))
    assert chat.says("and on").text == "At last."


@pytest.mark.rows("X-39")
def test_what_was_said_beside_a_call_that_the_client_forbids_is_the_answer(
    stage: Stage, provider: ScriptedProvider
) -> None:
    """The call is not run, and no round follows what was said with it."""
    chat = stage.chat()
    provider.will(says("Hello."), does(push("Auth"), text="Summed up."), says("ok"))
    chat.says("hello")
    answer = chat.says("sum up", tool_choice="none")

    assert (answer.status, answer.text, answer.calls) == (200, "Summed up.", [])
    assert len(provider.received) == 2
    assert list(chat.proxy.frames()) == ["Conversation"]
    assert chat.says("go on").text == "ok"


@pytest.mark.one_process("each process learns for itself what a provider refuses")
@pytest.mark.rows("X-39")
def test_a_model_that_only_calls_where_the_client_forbids_it_is_told_once(
    stage: Stage, provider: ScriptedProvider
) -> None:
    """Nothing was said: the call is refused, and the model asked for words. One that calls again is not told again."""
    chat = stage.chat()
    provider.will(says("Hello."), does(op("status")), says("Summed up."), *(does(op("status")) for _ in range(3)))
    chat.says("hello")

    assert chat.says("sum up", tool_choice="none").text == "Summed up."
    assert "No more stack calls" in provider.received[2].messages[-1]["content"]
    for rounds in (2, 1):
        before = len(provider.received)
        answer = chat.says("sum up again", tool_choice="none")
        assert (answer.status, answer.ended, answer.text, answer.calls) == (200, True, "", [])
        assert len(provider.received) - before == rounds


MISTAKES = {
    "unknown name": ScriptedCall("stack_no_such_tool", {}),
    "truncated JSON": ScriptedCall("stack_frame_push", '{"title": "Au'),
    "a list": ScriptedCall("stack_frame_push", "[1]"),
    "no arguments": ScriptedCall("stack_frame_push", ""),
    "no criteria": ScriptedCall("stack_frame_push", {"title": "Auth"}),
    "1 MB": ScriptedCall("stack_no_such_tool", {"x": "y" * 1_000_000}),
    "unknown frame": activate("f0000000"),
    "unknown op": op("explode"),
    "results missing": pop(""),
    "status unknown": pop("done", status="great"),
    "no reason": op("invalidate"),
    "unknown ref": recall("nothing of that name"),
    "odd types": ScriptedCall("stack_frame_plan", {"children": "A, B"}),
}


@pytest.mark.rows("S1-31", "S1-132", "S1-164")
def test_a_mistake_of_the_model_is_answered_as_text(stage: Stage, provider: ScriptedProvider) -> None:
    """H3, S1-31, S1-132: the client's request succeeds; the tool result begins with "Error" and says what to do; the
    tree is as it was."""
    chat = stage.chat(stage.proxy(frame_max_tokens=10_000_000))  # 1 MB of arguments is a lot of work, and would be cut
    for name, mistake in MISTAKES.items():
        provider.will(does(mistake, piece=100_000), says("I see."))

        answer = chat.says(name)

        assert (answer.status, answer.text) == (200, "I see."), name
        told = provider.received[-1].messages[-1]
        assert told["role"] == "tool", name
        assert told["content"].startswith("Error"), name
        assert len(told["content"]) < 2_000, name
        assert list(chat.proxy.frames()) == [next(iter(MISTAKES))]


@pytest.mark.parametrize("asked", [recall, activate])
def test_a_frame_id_of_another_tenant_is_unknown(
    stage: Stage, provider: ScriptedProvider, asked: Callable[[str], ScriptedCall]
) -> None:
    """H3: neither its content nor its existence is told."""
    stage.looks_into_store = False  # which needs a key here
    proxy = stage.proxy(tenancy="key")
    mine, other = stage.chat(proxy), stage.chat(proxy)
    for chat, name in ((mine, "mine"), (other, "other")):
        chat.headers = {"authorization": f"Bearer {issue_key(proxy.config.keys_path, name)}"}
    provider.will(does(push("Secret plan")), says("x"))
    mine.says("mine")
    block = laws.BLOCK.search(provider.received[-1].messages[-1]["content"])
    foreign = block[1] if block else ""
    provider.will(does(asked(foreign)), does(asked("f7777777")), says("ok"))
    other.says("somebody else")

    told = [m["content"] for m in provider.received[-1].messages if m["role"] == "tool"]
    assert "Secret" not in as_one_text(provider.received[-1].messages)
    assert told[0].replace(foreign, "") == told[1].replace("f7777777", "")


@pytest.mark.parametrize(
    "trouble",
    [
        status(429, headers={"retry-after": "0"}),
        status(500, headers={"retry-after": "0"}),
        cut(status(503), after_bytes=3),
    ],
    ids=["429", "500", "503 half told"],
)
def test_a_hidden_round_that_fails_once_is_asked_again(
    provider: ScriptedProvider, chat: Conversation, trouble: ScriptedAnswer
) -> None:
    """DESIGN 7: no byte of it has left; the client never learns, and nothing is done twice."""
    provider.will(does(push("Auth")), trouble, says("Begun."))

    answer = chat.says("add a login")

    assert answer.text == "Begun."
    assert answer.ended
    assert provider.received[1].messages == provider.received[2].messages
    assert list(chat.proxy.frames()) == ["add a login", "Auth"]
    provider.will(says("ok"))
    chat.says("go on")


@pytest.mark.rows("X-19", "X-51")
def test_a_hidden_round_that_fails_for_good_is_the_providers_error(stage: Stage, provider: ScriptedProvider) -> None:
    """X-19, X-51: unstreamed the refusal as it came, streamed its words as the API tells a stream that failed; a retry
    of the client works, and the push was not lost."""
    refusal = status(500, headers={"retry-after": "0"}, body={"error": {"message": "down", "type": "server_error"}})
    chat = stage.chat()
    provider.will(does(push("Auth"), text="Let me see."), refusal, refusal, refusal)
    chat.history.append({"role": "user", "content": "add a login"})

    broken = chat.tries()

    assert len(provider.received) == 4
    if broken.streamed:
        assert broken.arrived
        assert not broken.ended
        assert stage.tongue.terminator not in broken.raw
        assert set(broken.finishes) <= {"failed"}
        assert told_error(broken)["message"] == "down"
    else:
        assert broken.status == 500
        assert broken.json["error"]["message"] == "down"
    provider.will(says("Now."))
    assert chat.asks().text == "Now."
    provider.will(says("ok"))
    assert chat.says("go on").text == "ok"


def told_error(answer: Answer) -> dict[str, object]:
    """The error that a stream ended with, in the last event of its API."""
    last = answer.events[-1]
    kind = last.get("type", "chunk")
    assert kind in ("chunk", "error", "response.failed")
    error: dict[str, object] = last["response"]["error"] if kind == "response.failed" else last["error"]
    return error


ODD_REFUSALS = {
    "an error in a 200": (json_error("upstream busy", 200), "upstream busy"),
    "a page": (html(code=502), "502 Bad Gateway"),
    "a page in a 200": (html(), "502 Bad Gateway"),
    "nothing": (status(503, body=""), "The provider answered 503."),
    "a list": (status(500, body='[{"error": {"message": "in a list", "code": 500}}]'), "in a list"),
    "words": (status(500, body={"detail": "worn out"}), "worn out"),
}  # fmt: skip


@pytest.mark.rows("X-51")
@pytest.mark.parametrize("name", ODD_REFUSALS)
def test_an_odd_refusal_behind_a_hidden_round_is_told_in_its_words(
    stage: Stage, provider: ScriptedProvider, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    # A patch: the pauses between the tries show nothing here.
    monkeypatch.setattr("proxy.exchange.rounds.round_sender.RETRY_DELAY_S", 0.0)
    refusal, words = ODD_REFUSALS[name]
    chat = stage.chat(streamed=True)
    provider.will(does(push("Auth"), text="Let me see."), *[refusal] * 3)

    broken = chat.says("add a login")

    assert (broken.status, broken.arrived, broken.ended) == (200, True, False)
    assert stage.tongue.terminator not in broken.raw
    assert told_error(broken)["message"] == words
    assert b"stack_" not in broken.raw


@pytest.mark.rows("X-51")
def test_nobody_asks_again_before_the_provider_wants_to_be_asked(stage: Stage, provider: ScriptedProvider) -> None:
    """Longer than the proxy waits: the client is told at once, with the time."""
    throttle = status(429, headers={"retry-after": "17"}, body={"error": {"message": "slow down", "type": "rate"}})
    chat = stage.chat()
    provider.will(does(push("Auth"), text="Let me see."), throttle, says("asked too early"))

    told = chat.says("add a login")

    assert len(provider.received) == 2
    if told.streamed:
        error = told_error(told)
        assert (error["message"], error["retry_after"]) == ("slow down. Please try again in 17s.", 17)
        assert error.get("type", "rate") == "rate"
    else:
        assert (told.status, told.headers["retry-after"]) == (429, "17")
        assert told.json["error"]["message"] == "slow down"


@pytest.mark.rows("X-51")
def test_a_time_that_stands_in_the_body_alone_is_waited_for_too(stage: Stage, provider: ScriptedProvider) -> None:
    """Google's form: a list, with the time among the details."""
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "31s"}]
    body = [{"error": {"code": 429, "message": "Quota exceeded.", "status": "RESOURCE_EXHAUSTED", "details": details}}]
    chat = stage.chat()
    provider.will(does(push("Auth"), text="Let me see."), status(429, body=json.dumps(body)), says("asked too early"))

    told = chat.says("add a login")

    assert len(provider.received) == 2
    if told.streamed:
        error = told_error(told)
        assert (error["message"], error["retry_after"]) == ("Quota exceeded. Please try again in 31s.", 31)
    else:
        assert told.status == 429
        assert told.json[0]["error"]["details"] == details


@pytest.mark.rows("X-51")
def test_a_short_wait_is_kept_before_a_hidden_round_is_asked_again(stage: Stage, provider: ScriptedProvider) -> None:
    chat = stage.chat()
    provider.will(does(push("Auth")), status(429, headers={"retry-after-ms": "700"}), says("Begun."))

    assert chat.says("add a login").text == "Begun."
    first, second = (received.arrived for received in provider.received[1:])
    assert second - first >= 0.7


def test_refusals_that_never_come_whole_are_an_error_with_its_receipt(
    stage: Stage, provider: ScriptedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X-19, DESIGN 7: there is no body to pass on, so it is the way to the provider that failed; what the rounds before
    it cost is booked, and the client is told where it stands."""
    # A patch: the pauses between the tries show nothing here.
    monkeypatch.setattr("proxy.exchange.rounds.round_sender.RETRY_DELAY_S", 0.0)
    chat = stage.chat()
    half_told = cut(status(503), after_bytes=3)
    provider.will(does(push("Auth"), usage=Usage(prompt=1000, completion=20)), half_told, half_told, half_told)
    chat.history.append({"role": "user", "content": "add a login"})

    broken = chat.tries()

    assert (broken.status, broken.ended) == ((200, False) if broken.streamed else (502, True))
    assert broken.headers["x-stack-conversation"]
    [receipt] = chat.proxy.receipts()
    assert (receipt["status"], receipt["reason"], receipt["rounds"]) == ("error", "upstream_closed", 4)
    assert receipt["usage"]["output"] == 20


@pytest.mark.rows("S4-10")
@pytest.mark.parametrize("breaks", [cut, reset], ids=["FIN", "RST"])
def test_a_stream_that_dies_never_ends_normally(stage: Stage, provider: ScriptedProvider, breaks: object) -> None:
    """S4, DESIGN 7: no terminator, no finish reason, no second try; what came is kept as partial."""
    chat = stage.chat(streamed=True)
    assert callable(breaks)
    provider.will(breaks(says("a long answer that is never whole"), after_events=stage.tongue.opening + 2))

    broken = chat.says("hello")

    assert not broken.ended
    assert broken.finishes == []
    assert stage.tongue.terminator not in broken.raw
    assert len(provider.received) == 1
    provider.will(says("again"))
    chat.asks()
    (root,) = chat.proxy.frames().values()
    assert [e["complete"] for e in chat.proxy.log(root["sessionID"]) if e["kind"] == "turn"] == [False, True]


def test_an_error_chunk_passes_as_it_is(stage: Stage, provider: ScriptedProvider) -> None:
    """DESIGN 7: an error the upstream sent passes as it is, also in a later round, and ends the turn."""
    chat = stage.chat(streamed=True)
    provider.will(does(push("Auth")), error_chunk(says("never"), "Provider exploded", after_events=1))

    answer = chat.says("hello")

    assert b"Provider exploded" in answer.raw
    assert stage.tongue.terminator not in answer.raw
    assert len(provider.received) == 2


@pytest.mark.rows("S4-17")
def test_a_client_that_leaves_between_hidden_rounds_stops_them(stage: Stage, provider: ScriptedProvider) -> None:
    """H9, S3, S4-17: the upstream is closed at once; what was decided stands, and the retry goes on without doing it
    twice."""
    chat = stage.chat()
    chat.history.append({"role": "user", "content": "add a login"})
    provider.will(does(push("Auth"), text="Hm."), stall(says("never whole")))

    with chat.proxy.sent(chat.body()):
        provider.wait_for(2)

    provider.wait_until(lambda: provider.received[1].left_at is not None)
    provider.will(says("ok"), says("more"))
    assert chat.asks().text == "ok"
    chat.says("go on")
    assert as_one_text(provider.received[-1].messages).count('"stack_frame_push"') <= 1
    assert len(chat.proxy.conversations) == 1


@pytest.mark.rows("S4-17")
def test_a_client_that_leaves_before_the_first_byte_closes_the_upstream(
    stage: Stage, provider: ScriptedProvider
) -> None:
    """S3, S4-17."""
    chat = stage.chat()
    chat.history.append({"role": "user", "content": "hello"})
    provider.will(says("late", delay_s=30))
    with chat.proxy.sent(chat.body()):
        provider.wait_for(1)

    provider.wait_until(lambda: provider.received[0].left_at is not None)


def test_the_limits_of_the_client_travel_with_every_round(provider: ScriptedProvider, chat: Conversation) -> None:
    """DESIGN 7, CLIENTS "things" 8: limits, stop, effort, tier, metadata, unknown parameters."""
    wishes = {
        "max_tokens": 77, "stop": ["END"], "temperature": 0.25, "reasoning_effort": "low",
        "service_tier": "flex", "metadata": {"a": "b"}, "x_unknown": [1, {"y": None}],
    }  # fmt: skip
    provider.will(does(push("Auth")), says("ok"))

    chat.says("hello", **wishes)

    wished = other_members(chat.proxy.stage.notes[0].body)
    assert wished.keys() >= {"temperature", "reasoning_effort", "service_tier", "metadata", "x_unknown"}
    for received in provider.received:
        assert {key: received.body[key] for key in wished} == wished


@pytest.mark.rows("S4-07")
@pytest.mark.spoken_in("chat", reason="in the other dialects usage is part of every answer")
def test_usage_is_asked_for_and_shown_only_to_who_asked(stage: Stage, provider: ScriptedProvider) -> None:
    """S4-07, CLIENTS 8."""
    chat = stage.chat(streamed=True)
    provider.will(does(push("Auth")), says("ok"))

    answer = chat.says("hello")

    assert all(r.body["stream_options"]["include_usage"] for r in provider.received)
    assert answer.usage is None
    assert all(choice for event in answer.events for choice in [event["choices"]])


NO_QUESTION = {"detail": [{"type": "extra_forbidden", "loc": ["body", "stream_options", "include_usage"]}]}


@pytest.mark.one_process("each process learns for itself what a provider refuses")
@pytest.mark.rows("S4-07")
@pytest.mark.spoken_in("chat", reason="in the other dialects usage is part of every answer")
@pytest.mark.asked("streamed")
def test_usage_is_not_asked_for_where_the_provider_refuses_that(stage: Stage, provider: ScriptedProvider) -> None:
    """H6: Mistral's API answers the question with a 422, and tells its usage unasked, with the ending: the client reads
    it there, and its library no chunk without a choice."""
    chat = stage.chat()
    usage = {"prompt_tokens": 90, "completion_tokens": 3, "total_tokens": 93}
    last = {"index": 0, "delta": {"content": "two"}, "finish_reason": "stop"}
    chunk = {
        "id": "2",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [last],
        "usage": usage,
    }
    unasked = FixedReply(200, f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n".encode(), (EVENT_STREAM_TYPE,))
    provider.will(status(422, body=NO_QUESTION), says("one"), does(push("Auth")), ScriptedAnswer(instead=unasked))

    assert chat.says("hello").text == "one"
    answer = chat.says("go on")

    assert (answer.text, answer.ended) == ("two", True)
    assert answer.usage == usage
    assert all(event["choices"] for event in answer.events)
    assert ["stream_options" in received.body for received in provider.received] == [True, False, False, False]
    assert [receipt["rounds"] for receipt in chat.proxy.receipts()] == [2, 2]


@pytest.mark.rows("X-19")
@pytest.mark.spoken_in("chat", reason="in the other dialects usage is part of every answer")
@pytest.mark.asked("streamed")
def test_a_refusal_that_only_quotes_the_question_for_usage_passes_and_teaches_nothing(
    stage: Stage, provider: ScriptedProvider
) -> None:
    chat = stage.chat()
    refusal = status(422, body={"detail": "bad temperature", "input": {"stream_options": {"include_usage": True}}})
    stage.judged = False  # what is refused is asked in milder forms, and at last as the client did
    provider.will(*[refusal] * 4, says("ok"))
    chat.history.append({"role": "user", "content": "hello"})

    assert chat.tries().json["detail"] == "bad temperature"
    assert chat.asks().text == "ok"
    assert ["stream_options" in received.body for received in provider.received] == [True, False, False, False, True]


@pytest.mark.rows("X-21")
def test_reasoning_of_a_hidden_round_reaches_the_client_and_the_next_round(
    provider: ScriptedProvider, chat: Conversation
) -> None:
    """X-21: readable reasoning leaves at once; the round goes upstream again with its own."""
    provider.will(does(push("Auth"), reasoning="I need a frame."), says("ok", reasoning="Easy."), says("more"))
    chat.says("hello")
    chat.says("go on")

    line = provider.received[-1].messages
    thoughts = [m.get("reasoning_content") for m in line if m["role"] == "assistant"]
    assert thoughts == ["I need a frame.", "Easy."]


def test_a_refusal_and_a_filter_end_the_turn_as_they_are(provider: ScriptedProvider, chat: Conversation) -> None:
    provider.will(does(push("Auth")), says("I cannot", finish="content_filter"))

    answer = chat.says("hello")

    assert answer.finishes == ["content_filter"]
    assert answer.text == "I cannot"


@pytest.mark.rows("S3-24")
def test_a_call_in_a_loop_is_kept_from_the_client_however_it_asks(stage: Stage, provider: ScriptedProvider) -> None:
    """S3-24: also where the call comes as a whole, as in every answer that is not streamed."""
    chat = stage.chat(stage.proxy(loops="block"), tools=("bash",))
    provider.will(*[does(bash("git status"))] * 4, says("Nothing to commit."))
    chat.says("Commit it.")
    chat.returns("nothing to commit")
    chat.returns("nothing to commit")

    answer = chat.returns("nothing to commit")

    assert (answer.text, answer.calls) == ("Nothing to commit.", [])
    assert len(provider.received) == 5


def test_a_filter_ends_the_turn_whatever_was_called_before_it(provider: ScriptedProvider, chat: Conversation) -> None:
    """DESIGN 7: no round follows a filter, and what the model did not get to say is not done."""
    provider.will(does(push("Auth"), text="I cannot", finish="content_filter"))

    answer = chat.says("hello")

    assert answer.finishes == ["content_filter"]
    assert answer.text == "I cannot"
    assert len(provider.received) == 1
    assert list(chat.proxy.frames()) == ["Conversation"]
    provider.will(says("ok"))
    assert chat.says("go on").text == "ok"


def test_a_waiting_stream_is_kept_alive_with_comments(stage: Stage, provider: ScriptedProvider) -> None:
    """S5, CLIENTS 8: `: keep-alive` while a hidden round runs, only in a stream that has begun."""
    chat = stage.chat(stage.proxy(keep_alive_s=0.05), streamed=True)
    provider.will(does(push("Auth"), text="Hm."), says("ok", delay_s=0.3))

    answer = chat.says("hello")

    assert b"\n: " in answer.raw
    assert answer.text == "Hm.\n\nok"


@pytest.mark.rows("X-39")
def test_what_left_stays_away_where_a_request_may_call_nothing(stage: Stage, provider: ScriptedProvider) -> None:
    """The choice holds for one request: with it the context goes on, and with the next one recall may be called."""
    chat = stage.chat()
    provider.will(does(push("Look")), does(bash("cat")), does(pop("seen")), says("Done."))
    chat.says("Look at it.")
    chat.returns("what stood there")
    provider.will(says("Summed up."), says("Fine."))

    chat.says("Sum up.", tool_choice="none")
    chat.says("And now?")

    forced, free = provider.received[-2:]
    assert "what stood there" not in forced.raw.decode() + free.raw.decode()
    assert "stack_recall" in forced.tool_names
    assert forced.tool_names == free.tool_names
    assert free.messages[: len(forced.messages)] == forced.messages
