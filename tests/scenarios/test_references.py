"""Clients of the responses API that keep nothing themselves: they name what was said before, ask for answers again, and
delete them.

What left for the provider is judged by hand here (`judged`); that calls have their results, and that what is named is
there, the scripted provider judges itself.
"""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from callstack_proxy.management.issued_keys import issue_key
from llm_test_provider import FixedReply, Model, ReceivedRequest, ScriptedProvider, cut, says
from proxy.store.conversation_cache import ConversationCache
from tests.harness import RunningProxy, Stage, bash, does, op, pop, push
from tests.llm_test_provider.speakers import SPEAKERS, events_of
from tests.scenarios.sessions import story_of
from tests.scenarios.speaking import ManagementUser, words

Json = dict[str, Any]
RULES = {"role": "developer", "content": "Work with care."}
TOOLS: list[Json] = [{"type": "function", "name": name, "parameters": {}, "strict": False} for name in ("bash", "read")]
SPEAKER = SPEAKERS["responses"]
WAIT_S = 10.0


# ---------------------------------------------------------------------------------------------------------- the client
@dataclass(frozen=True)
class Got:
    """What came back over HTTP."""

    status: int
    headers: dict[str, str]
    raw: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.raw)

    @property
    def stack_status(self) -> str:
        return self.headers.get("x-stack-status", "")


@dataclass(frozen=True)
class Answered(Got):
    """An answer; `response` is all of it, as it was told at its end."""

    response: Json

    @property
    def id(self) -> str:
        return str(self.response["id"])

    @property
    def items(self) -> list[Json]:
        return list(self.response["output"])

    @property
    def text(self) -> str:
        return SPEAKER.whole(self.response).text

    @property
    def calls(self) -> list[Json]:
        return [item for item in self.items if item["type"] == "function_call"]


@dataclass
class Forgetful:
    """A client that keeps the id of the last answer and nothing else."""

    proxy: RunningProxy
    streamed: bool
    headers: dict[str, str] = field(default_factory=dict)
    members: Json = field(default_factory=dict)
    last: Answered | None = None
    sent: bytes = b""

    def says(self, text: str, *before: Json, **members: Any) -> Answered:
        """The user's words, behind other items."""
        return self.answered(*before, {"role": "user", "content": text}, **members)

    def returns(self, *results: str, **members: Any) -> Answered:
        """The results of the calls just made, in their order."""
        assert self.last is not None
        pairs = zip(self.last.calls, results, strict=True)
        told = [{"type": "function_call_output", "call_id": c["call_id"], "output": result} for c, result in pairs]
        return self.answered(*told, **members)

    def answered(self, *items: Json, **members: Any) -> Answered:
        """An answer that must come, and is named by the next request."""
        got = self.asks(*items, **members)
        assert got.status == 200, got.raw
        if self.streamed:
            events = events_of(got.raw)
            assert SPEAKER.streamed(events).made == events[-1]["response"]["output"]
            response = events[-1]["response"]
        else:
            response = got.json
        self.last = Answered(got.status, got.headers, got.raw, response)
        return self.last

    def asks(self, *items: Json, **members: Any) -> Got:
        body: Json = {"model": "gpt-x", "input": list(items), "tools": TOOLS} | self.members
        if self.last is not None:
            body["previous_response_id"] = self.last.id
        body |= {"stream": True} if self.streamed else {}
        self.sent = json.dumps({k: v for k, v in (body | members).items() if v is not ...}).encode()
        return self.send("POST", "", self.sent)

    def send(self, method: str, path: str, body: bytes | None = None) -> Got:
        """Any request below `/v1/responses`."""
        connection = http.client.HTTPConnection("127.0.0.1", self.proxy.port, timeout=WAIT_S)
        try:
            connection.request(
                method, f"/v1/responses{path}", body, {"content-type": "application/json"} | self.headers
            )
            response = connection.getresponse()
            headers = {name.lower(): value for name, value in response.getheaders()}
            try:
                raw = response.read()
            except http.client.IncompleteRead as broken:
                raw = broken.partial
            return Got(response.status, headers, raw)
        finally:
            connection.close()

    def gets(self, path: str) -> Got:
        return self.send("GET", f"/{path}")


@pytest.fixture(params=["streamed", "plain"])
def streamed(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "streamed")


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider() as running:
        yield running


@pytest.fixture
def stage(provider: ScriptedProvider, tmp_path: Path, streamed: bool) -> Iterator[Stage]:
    stage = Stage(provider, tmp_path, streamed)
    yield stage
    stage.stop()


@pytest.fixture
def client(stage: Stage) -> Forgetful:
    """In front of a proxy that is awake from the first request."""
    return Forgetful(stage.proxy(), stage.streamed)


def judged(provider: ScriptedProvider, *, ours: bool = True) -> list[ReceivedRequest]:
    """Everything that was asked for: answered, whole in itself, stored as the client wanted, with our tools behind the
    client's where the proxy acts."""
    for received in provider.asked:
        assert received.status == 200
        assert "previous_response_id" not in received.body
        assert not any(item.get("type") == "item_reference" for item in received["input"])
        assert received.tool_names[:2] == ["bash", "read"]
        assert ("stack_recall" in received.tool_names) is ours
    return provider.asked


def told(received: ReceivedRequest) -> list[str]:
    """The line as `role: text`, calls by their names."""
    said = []
    for message in received.messages:
        names = [call["function"]["name"] for call in message.get("tool_calls") or []]
        said.append(f"{message['role']}: {' '.join(filter(None, [_text(message['content']), *names]))}")
    return said


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content or [])


# ----------------------------------------------------------------------------------------------------- the last answer
def test_a_session_goes_on_by_the_name_of_the_last_answer_alone(client: Forgetful, provider: ScriptedProvider) -> None:
    """Hidden rounds, a mixed turn, and what opened the conversation; the provider gets all of it."""
    provider.will(
        does(push("Login"), text="I begin."), does(bash("ls")),
        does(op("status"), bash("cat a.py")),
        says("Found."),
        does(pop("it was a typo")), says("All done."),
        says("You are welcome."),
    )  # fmt: skip
    first = client.says("fix the login", RULES)
    mixed = client.returns("a.py")
    client.returns("typo()")
    client.says("and?")
    client.says("thanks")

    asked = judged(provider)
    assert {each["input"][0]["content"] for each in asked} == {"Work with care."}
    assert all(told(each)[0].startswith("developer: Work with care.") for each in asked)
    assert first.headers["x-stack-conversation"] == mixed.headers["x-stack-conversation"]
    assert [c["name"] for c in first.calls] == [c["name"] for c in mixed.calls] == ["bash"]
    assert mixed.response["previous_response_id"] == first.id
    assert "user: fix the login" in told(asked[-1])
    assert "cat a.py" not in asked[-1].raw.decode(), "the frame was folded"
    assert "it was a typo" in asked[-1].raw.decode()
    assert told(asked[-1])[-1] == "user: thanks"
    assert list(client.proxy.statuses().values()) == ["in_progress", "completed"]


@pytest.mark.parametrize("fresh", [False, True], ids=["restarted", "dropped and read again"])
def test_a_session_goes_on_in_another_process(client: Forgetful, provider: ScriptedProvider, fresh: bool) -> None:
    """D1: the ledger on disk is enough, also what opened the conversation."""
    provider.will(does(op("status"), text="One."), says("Two."), says("Three."), says("Four."))
    client.says("first", RULES)
    client.proxy.restart()
    second = client.says("second")
    if fresh:
        client.proxy.restart()
    client.says("third")

    assert second.stack_status == "full"
    said = told(judged(provider)[-1])
    assert said[0].startswith("developer: Work with care.")
    assert [line for line in said if line.startswith("user")] == ["user: first", "user: second", "user: third"]
    assert said[-2] == "assistant: Three."


def test_instructions_are_of_one_request(client: Forgetful, provider: ScriptedProvider) -> None:
    """The API says so: only items are carried on."""
    provider.will(does(op("status")), says("One."), says("Two."), says("Three."))
    client.says("first", instructions="Speak French.")
    client.says("second")
    client.says("third", instructions="Speak Dutch.")

    assert [each.body.get("instructions", "").partition("\n")[0] for each in judged(provider)] == [
        "Speak French.",
        "Speak French.",
        "",
        "Speak Dutch.",
    ]


def test_tools_that_opened_the_conversation_stay_offered(client: Forgetful, provider: ScriptedProvider) -> None:
    """S7: newer models are offered tools by an item of the input, which is head."""
    offer = {"type": "additional_tools", "role": "developer", "tools": TOOLS}
    provider.will(does(op("status"), bash("ls")), says("Done."))
    client.says("first", offer, tools=...)
    client.returns("a.py", tools=...)

    asked = judged(provider)
    assert [each["input"][0] for each in asked] == [asked[0]["input"][0]] * len(asked)
    assert "stack_recall" in asked[-1].tool_names
    assert client.proxy.receipts()[-1]["status"] == "full"


def test_a_client_may_go_on_from_an_older_answer(client: Forgetful, provider: ScriptedProvider) -> None:
    """H6: a branch, with its own past and the same opening."""
    provider.will(does(op("status")), says("One."), says("Two."), says("Other two."))
    first = client.says("first", RULES)
    client.says("second")
    client.says("another second", previous_response_id=first.id)

    said = told(judged(provider)[-1])
    assert [line for line in said if line.startswith("user")] == ["user: first", "user: another second"]
    assert said[0].startswith("developer: Work with care.")


# --------------------------------------------------------------------------------------------------------------- asleep
def test_asleep_the_clients_bytes_pass_and_the_provider_completes_them(
    stage: Stage, provider: ScriptedProvider
) -> None:
    """L5"""
    client = Forgetful(stage.proxy(wake_at_tokens=100_000), stage.streamed)
    provider.will(does(bash("ls")), says("Done."), says("Bye."))
    sent: list[bytes] = []
    answers = [client.says("first", RULES)]
    sent.append(client.sent)
    answers.append(client.returns("a.py"))
    sent.append(client.sent)
    answers.append(client.says("thanks"))
    sent.append(client.sent)

    assert [each.raw for each in provider.asked] == sent
    assert {answer.stack_status for answer in answers} == {"asleep"}
    assert len({answer.headers["x-stack-conversation"] for answer in answers}) == 1
    assert told(provider.asked[-1]) == [
        "developer: Work with care.",
        "user: first", "assistant: bash", "tool: a.py", "assistant: Done.", "user: thanks",
    ]  # fmt: skip
    assert client.gets(answers[0].id).json == answers[0].response, "the provider's own"


def test_a_thread_that_wakes_tells_what_the_provider_kept_before(stage: Stage, provider: ScriptedProvider) -> None:
    client = Forgetful(stage.proxy(), stage.streamed, {"x-stack-mode": "off"})
    provider.will(does(bash("ls")), says("Done."), does(op("status")), says("Bye."))
    client.says("first", RULES)
    client.returns("a.py")
    client.headers = {}
    client.says("thanks")

    assert [("previous_response_id" in each.body) for each in provider.asked] == [False, True, False, False]
    said = told(provider.asked[-1])
    assert said[0].startswith("developer: Work with care.")
    assert said[2:7] == [
        "user: first", "assistant: bash", "tool: a.py", "assistant: Done.", "user: thanks",
    ]  # fmt: skip
    assert said[7].startswith("user: <stack-context session=")  # it wakes in mid-work


def test_a_mode_that_does_not_act_tells_what_the_provider_was_never_told(
    client: Forgetful, provider: ScriptedProvider
) -> None:
    """The answer named is one to a line of ours: of a mixed turn the provider waits for the result of our call."""
    provider.will(does(op("status"), bash("ls")), says("Done."), says("Bye."))
    client.says("first", RULES)
    client.headers = {"x-stack-mode": "off"}
    off = client.returns("a.py")
    client.says("thanks")

    assert off.stack_status == "off"
    assert told(provider.asked[1]) == ["developer: Work with care.", "user: first", "assistant: bash", "tool: a.py"]
    assert "stack" not in provider.asked[1].raw.decode()
    assert provider.asked[2].raw == client.sent, "what was answered to the client's own request goes on there"


# ------------------------------------------------------------------------------------------------------ references
def referring(*items: Json) -> list[Json]:
    """Items as Vercel's SDK gives them back where the provider keeps them: by their names."""
    return [{"type": "item_reference", "id": item["id"]} if "id" in item else item for item in items]


@pytest.mark.parametrize("restarts", [False, True], ids=["at hand", "restarted"])
def test_items_named_by_reference_are_known(client: Forgetful, provider: ScriptedProvider, restarts: bool) -> None:
    """Vercel's form: the whole history, what the model made by its names; text, calls and reasoning."""
    provider.will(
        does(op("status"), text="I look."),
        does(bash("ls"), text="Now.", reasoning="hm"),
        does(bash("pwd")),
        says("Done."),
    )
    user, result = {"role": "user", "content": "first"}, {"type": "function_call_output", "output": "a.py"}
    first = client.answered(RULES, user)
    client.last = None
    if restarts:
        client.proxy.restart()
    results = [result | {"call_id": call["call_id"]} for call in first.calls]
    history = [RULES, user, *referring(*first.items), *results]
    second = client.answered(*history)
    client.last = None
    results = [result | {"call_id": call["call_id"]} for call in second.calls]
    third = client.answered(*history, *referring(*second.items), *results)

    assert [item["type"] for item in first.items] == ["message", "reasoning", "message", "function_call"]
    assert third.text == "Done."
    said = told(judged(provider)[-1])
    assert [line for line in said if "bash" in line] == ["assistant: Now. bash", "assistant: bash"]
    assert {first.headers["x-stack-conversation"]} == {
        answer.headers["x-stack-conversation"] for answer in (second, third)
    }


def test_asleep_items_named_by_reference_pass(stage: Stage, provider: ScriptedProvider) -> None:
    client = Forgetful(stage.proxy(wake_at_tokens=100_000), stage.streamed)
    provider.will(says("One."), says("Two."))
    user = {"role": "user", "content": "first"}
    first = client.answered(RULES, user)
    client.last = None
    second = client.answered(RULES, user, *referring(*first.items), user)

    assert provider.asked[-1].raw == client.sent
    assert second.stack_status == "asleep"
    assert second.headers["x-stack-conversation"] == first.headers["x-stack-conversation"]
    assert told(provider.asked[-1])[2] == "assistant: One."


# ------------------------------------------------------------------------------------------------- answers asked again
HIDDEN = {
    "hidden rounds": (does(op("status"), text="I look.", reasoning="hm"), says("Done.", reasoning="well")),
    "a mixed turn": (does(op("status"), bash("ls"), text="I look."),),
    "a line of ours": (says("Done."),),
}
"""Answers that the provider has otherwise than the client was told them."""


@pytest.fixture(params=list(HIDDEN))
def answer(request: pytest.FixtureRequest, client: Forgetful, provider: ScriptedProvider) -> Answered:
    """One of those, to the first request."""
    provider.will(*HIDDEN[request.param])
    return client.says("look", RULES, instructions="Be brief.", metadata={"run": "7"})


@pytest.mark.parametrize("restarts", [False, True], ids=["at hand", "restarted"])
def test_an_answer_asked_for_again_is_what_the_client_was_told(
    client: Forgetful, provider: ScriptedProvider, answer: Answered, restarts: bool
) -> None:
    """L6: the same bytes' worth, nothing of ours, and the provider is not asked."""
    before = len(provider.received)
    if restarts:
        client.proxy.restart()
    again = client.gets(answer.id)

    assert (again.status, again.json) == (200, answer.response)
    assert list(again.json) == list(answer.response)
    assert again.json["instructions"] == "Be brief."
    assert again.json["tools"] == TOOLS
    assert b"stack" not in again.raw
    assert again.headers["x-stack-conversation"] == answer.headers["x-stack-conversation"]
    assert len(provider.received) == before


def test_what_is_the_same_turn_after_turn_is_kept_once(client: Forgetful, provider: ScriptedProvider) -> None:
    """C5: an answer tells all tools and instructions again."""
    provider.will(*(says(f"{n}.") for n in range(4)))
    members: Json = {"instructions": "Be careful."}
    answers = [client.says(f"say {n}", **members) for n in range(3)]
    other = client.says("say 4", instructions="Be brief.")

    assert [client.gets(each.id).json for each in (*answers, other)] == [each.response for each in (*answers, other)]
    client.proxy.restart()  # all of it is on disk then
    turns = [path_entry.round.spoken.extra for path_entry in story_of(client.proxy).entries if path_entry.round]
    assert [("tools" in kept, "instructions" in kept, "head" in kept) for kept in turns] == [
        (True, True, True),
        (False, False, False),
        (False, False, False),
        (False, True, False),
    ]


def test_a_stream_of_what_is_over_is_refused(client: Forgetful, provider: ScriptedProvider, answer: Answered) -> None:
    refused = client.gets(f"{answer.id}?stream=true")

    assert refused.status == 400
    assert refused.json["error"]["type"] == "invalid_request_error"
    assert "stream" in refused.json["error"]["message"]


def test_the_input_of_an_answer_is_what_its_client_sent(
    client: Forgetful, provider: ScriptedProvider, answer: Answered
) -> None:
    """Not the line that went upstream."""
    listed = client.gets(f"{answer.id}/input_items").json

    assert (listed["object"], listed["has_more"]) == ("list", False)
    assert [(item["type"], item["role"], _text(item["content"])) for item in listed["data"]] == [
        ("message", "user", "look"),
        ("message", "developer", "Work with care."),
    ]
    assert [listed["first_id"], listed["last_id"]] == [item["id"] for item in listed["data"]]


def test_an_input_is_told_in_pages(client: Forgetful, provider: ScriptedProvider) -> None:
    provider.will(does(op("status"), bash("ls"), bash("pwd")), says("Done."))
    client.says("look", RULES)
    told_of = client.returns("a.py", "/src").id
    path = f"{told_of}/input_items"

    newest = client.gets(f"{path}?limit=1").json
    rest = client.gets(f"{path}?limit=1&after={newest['last_id']}").json
    oldest_first = client.gets(f"{path}?order=asc").json["data"]

    assert [item["output"] for item in newest["data"] + rest["data"]] == ["/src", "a.py"], "what it named is not in it"
    assert (newest["has_more"], rest["has_more"]) == (True, False)
    assert oldest_first == [*rest["data"], *newest["data"]]
    assert client.gets(f"{path}?limit=1&after={rest['last_id']}").json == {
        "object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False,
    }  # fmt: skip
    wrong = ("limit=0", "limit=101", "limit=many", "order=up", "after=item_unheard")
    assert [client.gets(f"{path}?{query}").status for query in wrong] == [400] * len(wrong)


def test_an_input_that_held_the_whole_history_is_told_so(client: Forgetful, provider: ScriptedProvider) -> None:
    """H4: a client that keeps everything sent everything; of hidden rounds it has what it was shown."""
    provider.will(does(op("status"), text="I look.", reasoning="hm"), does(bash("ls")), says("Done."))
    user = {"role": "user", "content": "look"}
    first = client.answered(RULES, user)
    client.last = None
    result = {"type": "function_call_output", "call_id": first.calls[0]["call_id"], "output": "a.py"}
    second = client.answered(RULES, user, *first.items, result)

    listed = client.gets(f"{second.id}/input_items?order=asc").json["data"]
    assert [item["type"] for item in listed] == [
        "message",
        "message",
        *(i["type"] for i in first.items),
        result["type"],
    ]
    assert listed[2 : 2 + len(first.items)] == first.items


def test_only_what_is_made_in_the_background_can_be_cancelled(
    client: Forgetful, provider: ScriptedProvider, answer: Answered
) -> None:
    refused = client.send("POST", f"/{answer.id}/cancel")

    assert refused.status == 400
    assert refused.json["error"]["type"] == "invalid_request_error"


# ------------------------------------------------------------------------------------------------------------ deletion
@pytest.mark.parametrize("restarts", [False, True], ids=["at hand", "restarted"])
def test_a_deletion_reaches_every_round(
    client: Forgetful, provider: ScriptedProvider, answer: Answered, restarts: bool
) -> None:
    """Nothing of the answer stays with the provider, and nobody is told it again, also after a restart."""
    rounds = [f"resp_scripted_{each.chat}" for each in provider.asked]
    deleted = client.send("DELETE", f"/{answer.id}")

    assert (deleted.status, deleted.json) == (200, {"id": answer.id, "object": "response", "deleted": True})
    asked = [(each.method, each.path.rpartition("/")[2]) for each in provider.received if not each.chat]
    assert asked == [("DELETE", name) for name in reversed(rounds)]
    if restarts:
        client.proxy.restart()
    gone = [client.gets(answer.id), client.gets(f"{answer.id}/input_items"), client.send("DELETE", f"/{answer.id}")]
    assert [each.status for each in gone] == [404] * 3
    assert gone[0].json["error"]["message"] == f"Response with id '{answer.id}' not found."
    unheard = client.asks({"role": "user", "content": "and?"})
    assert unheard.status == 400
    assert unheard.json["error"]["code"] == "previous_response_not_found"
    assert unheard.stack_status == "bypass; reason=previous_response"


def test_a_deletion_that_the_provider_refuses_can_be_asked_again(client: Forgetful, provider: ScriptedProvider) -> None:
    """X-07: the refusal passes, and until all is gone the answer is there."""
    provider.will(does(op("status")), says("Done."))
    answer = client.says("look")
    provider.reply(f"/v1/responses/{answer.id}", refusal := FixedReply(500, b'{"error": {"message": "not now"}}'))
    refused = client.send("DELETE", f"/{answer.id}")
    provider.reply(f"/v1/responses/{answer.id}", FixedReply(200, b"{}"))

    assert (refused.status, refused.raw) == (500, refusal.body)
    assert client.gets(answer.id).json == answer.response
    assert client.send("DELETE", f"/{answer.id}").status == 200
    assert client.gets(answer.id).status == 404


def test_what_is_not_kept_here_is_the_providers_to_answer(stage: Stage, provider: ScriptedProvider) -> None:
    """An answer to the client's own request, one that is not known, and one that was not to be kept."""
    client = Forgetful(stage.proxy(wake_at_tokens=100_000), stage.streamed)
    provider.will(says("One."), says("Two."))
    first = client.says("look")
    loose = client.says("and?", store=False)

    assert client.gets(first.id).json == first.response
    assert client.gets(f"{first.id}/input_items").json["data"][0]["content"] == "look"
    assert client.send("POST", f"/{first.id}/cancel").json["error"]["message"].startswith("Cannot cancel")
    assert [client.gets(name).status for name in (loose.id, "resp_unheard")] == [404, 404]
    assert client.send("DELETE", f"/{first.id}").json["deleted"] is True
    assert client.gets(first.id).status == 404
    assert [each.method for each in provider.received if not each.chat] == ["GET"] * 2 + ["POST"] + ["GET"] * 2 + [
        "DELETE",
        "GET",
    ]


@pytest.mark.parametrize("wakes_at", [0, 100_000], ids=["awake", "asleep"])
def test_whoever_made_an_answer_is_asked_about_it(stage: Stage, provider: ScriptedProvider, wakes_at: int) -> None:
    """X-14: no model stands in such a request; under which one the answer was made is known."""
    with ScriptedProvider() as other:
        settings = {"upstreams__other__url": other.url, "upstreams__other__aliases__mine": "gpt-other"}
        client = Forgetful(stage.proxy(wake_at_tokens=wakes_at, **settings), stage.streamed)
        other.will(*([] if wakes_at else [does(op("status"))]), says("Done."))
        answer = client.says("look", model="mine")
        again = client.gets(answer.id)
        deleted = client.send("DELETE", f"/{answer.id}")

        assert again.json == answer.response
        assert deleted.json["deleted"] is True
        assert {each["model"] for each in other.asked} == {"gpt-other"}
        assert other.received[-1].method == "DELETE"
    assert provider.received == []


def test_an_answer_not_to_be_kept_is_not_kept_here(client: Forgetful, provider: ScriptedProvider) -> None:
    """`store: false`, as asked: upstream too, in every round."""
    provider.will(does(op("status")), says("Done."))
    answer = client.says("look", store=False)

    assert [each["store"] for each in judged(provider)] == [False, False]
    assert client.gets(answer.id).status == 404
    assert provider.received[-1].method == "GET"


def test_an_answer_that_broke_off_is_not_told_again(client: Forgetful, provider: ScriptedProvider) -> None:
    """L6: the provider would tell of the hidden round."""
    if not client.streamed:
        pytest.skip("of a plain answer that breaks off the client knows no id")
    provider.will(does(op("status"), text="I look."), cut(says("Done and done and done."), after_events=6))
    broken = client.asks({"role": "user", "content": "look"})
    name = events_of(broken.raw)[0]["response"]["id"]
    before = len(provider.received)

    assert client.gets(name).status == 404
    assert len(provider.received) == before


def test_nobody_is_told_the_answers_of_another_tenant(stage: Stage, provider: ScriptedProvider) -> None:
    """T4: with another key the id is as good as unknown: asked of the provider, never of the ledger."""
    proxy = stage.proxy(tenancy="key")
    client, stranger = (
        Forgetful(proxy, stage.streamed, {"x-stack-key": issue_key(proxy.config.keys_path, name)})
        for name in ("mine", "other")
    )
    provider.will(does(op("status")), says("Done."))
    answer = client.says("look")
    asked = len(provider.received)
    got = stranger.gets(answer.id)
    stranger.last = answer
    provider.will(says("?"))
    went_on = stranger.asks({"role": "user", "content": "and?"})

    assert [each.method for each in provider.received[asked:]] == ["GET", "GET", "POST"], "what is told is not whole"
    assert got.json["id"] == answer.id, "the provider tells two tenants of one upstream key alike"
    assert "x-stack-conversation" not in got.headers
    assert went_on.stack_status == "bypass; reason=previous_response"
    assert provider.received[-1].raw == stranger.sent
    assert client.gets(answer.id).json == answer.response


# -------------------------------------------------------------------------------------------------------------- bypass
def test_what_the_provider_keeps_alone_is_announced(client: Forgetful, provider: ScriptedProvider) -> None:
    """The client's bytes, reasoning and all, and the reason; the conversation where it is known."""
    provider.will(does(op("status")), says("Done.", reasoning="hm"), *(says("?") for _ in range(4)))
    known = client.says("look", RULES)
    conversation = known.headers["x-stack-conversation"]
    user = {"role": "user", "content": "and?"}
    client.last = None
    asked: list[tuple[Got, bytes]] = []
    for items, members in (
        ([RULES, {"role": "user", "content": "look"}, *known.items, user], {"conversation": "conv_1"}),
        ([RULES, {"role": "user", "content": "look"}, *known.items, user], {"background": True, "stream": False}),
        ([user], {"conversation": {"id": "conv_2"}}),
        ([user], {"previous_response_id": "resp_unheard"}),
        ([RULES, {"role": "user", "content": "look"}, *known.items, *referring({"id": "msg_unheard"}), user], {}),
    ):
        got = client.asks(*items, **members)
        asked.append((got, client.sent))

    assert [got.stack_status.removeprefix("bypass; reason=") for got, _ in asked[:4]] == [
        "conversation", "background", "conversation", "previous_response",
    ]  # fmt: skip
    named = [got.headers.get("x-stack-conversation") for got, _ in asked]
    assert named == [conversation, conversation, None, None, conversation]
    assert [each.raw for each in provider.asked[2:]] == [sent for _, sent in asked]
    assert [got.status for got, _ in asked] == [200, 200, 200, 400, 404]
    assert asked[4][0].stack_status == "bypass; reason=item_reference"


def test_a_reference_in_an_answer_stands_for_itself_and_is_not_looked_for_without_end(
    client: Forgetful, provider: ScriptedProvider
) -> None:
    """What is found in its place is the reference again, which leads nowhere."""
    odd = {"type": "item_reference", "id": "odd_1"}
    provider.will(says("Done.").but(own=(odd,)))
    known = client.says("look", RULES)
    client.last = None
    changed = {"role": "assistant", "content": "Done, I said."}
    user = {"role": "user", "content": "and?"}
    went_on = client.asks(RULES, {"role": "user", "content": "look"}, odd, changed, user)

    assert odd in known.items
    assert (went_on.status, went_on.stack_status) == (404, "bypass; reason=item_reference")


@pytest.mark.rows("X-14")
def test_a_name_that_takes_too_long_to_find_is_the_providers(
    stage: Stage, provider: ScriptedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X-14. Patched: a lookup that never ends is the slowest there is, on any machine."""
    client = Forgetful(stage.proxy(wake_at_tokens=10**9, assembly_budget_ms=300), stage.streamed)
    provider.will(says("One."), says("Two."), says("Three."))
    first = client.says("first")
    with monkeypatch.context() as patched:
        patched.setattr(ConversationCache, "find_by_answer_id", _endless)
        second = client.says("second")
        left, sent = provider.asked[-1].raw, client.sent
    client.last = first
    third = client.says("third")

    assert second.stack_status == "bypass; reason=too_slow"
    assert left == sent
    assert third.stack_status == "asleep"


async def _endless(*_: Any) -> Any:
    await asyncio.get_running_loop().create_future()


def test_an_answer_in_the_background_goes_on_from_what_the_provider_has(
    stage: Stage, provider: ScriptedProvider
) -> None:
    """The conversation is known by the answer that is named."""
    client = Forgetful(stage.proxy(wake_at_tokens=100_000), stage.streamed)
    provider.will(says("One."), says("?"))
    first = client.says("look")
    behind = client.asks({"role": "user", "content": "and?"}, background=True, stream=False)

    assert behind.stack_status == "bypass; reason=background"
    assert behind.headers["x-stack-conversation"] == first.headers["x-stack-conversation"]
    assert provider.asked[-1].raw == client.sent
    assert behind.json["status"] == "queued"


LONG: list[Json] = [
    item
    for n in range(6)
    for item in (
        {"type": "function_call", "call_id": f"c{n}", "name": "bash", "arguments": "{}"},
        {"type": "function_call_output", "call_id": f"c{n}", "output": f"line {n} " * 1000},
    )
]
"""Calls that fill any small window."""


@pytest.mark.parametrize("known", [True, False], ids=["known", "unheard of"])
def test_a_part_of_a_history_is_never_shortened(stage: Stage, known: bool) -> None:
    """S9: what is left of a request does not stand for what the provider keeps beside it. Without that, it does."""
    with ScriptedProvider(models=[Model("scripted-model", window=9000)]) as provider:
        stage.provider = provider
        client = Forgetful(stage.proxy(frame_max_tokens=16_000), stage.streamed)
        user = {"role": "user", "content": "look"}
        history: list[Json] = [user]
        if known:
            provider.will(says("Looking, with all the care that I have."))
            history += client.says("look").items
            client.last = None
        before = len(provider.asked)
        kept_there = client.asks(*history, user, *LONG, user, conversation="conv_1")
        alone = provider.asked[before:]
        sent = client.sent
        provider.will(says("Done."))
        whole = client.asks(*history, user, *LONG, user)

    assert (kept_there.status, [each.raw for each in alone]) == (400, [sent])
    assert kept_there.stack_status == "bypass; reason=conversation"
    assert ("x-stack-conversation" in kept_there.headers) is known
    assert whole.status == 200


# --------------------------------------------------------------------------------------------- a person beside the
# client
@pytest.mark.rows("S4-40", "S4-44")
def test_what_a_person_says_stands_on_the_line_of_a_client_that_keeps_nothing(
    client: Forgetful, provider: ScriptedProvider
) -> None:
    """Both lanes; the answer of two rounds is one to name, to ask for again, and to go on from."""
    provider.will(does(bash("ls")), says("All done."), says("Pushed."), says("Welcome."))
    client.says("look around")
    person = ManagementUser(client.proxy)
    person.says("use tabs")
    person.says("then push", "follow_up")
    answer = client.returns("a.py")
    again = client.gets(answer.id)
    client.says("thanks")

    assert [item["type"] for item in answer.items] == ["message", "message"]
    assert again.json["output"] == answer.items
    lines = [told(received) for received in judged(provider)]
    assert lines[2][-3:] == [f"user: {words('use tabs')}", "assistant: All done.", f"user: {words('then push')}"]
    assert lines[3][: len(lines[2])] == lines[2]
    assert lines[3][-2:] == ["assistant: Pushed.", "user: thanks"]
