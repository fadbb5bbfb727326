"""`/stack/conversations/{id}/messages`, `/live` and `/cancel` over a real socket, over each kind of store: what is
taken in, what is refused, and what is kept of it."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter

from callstack_proxy.management.api.messages import CancellationView, MessageList, RequestsInFlight
from proxy.exchange.background.inbox import MAX_MESSAGE_CHARACTERS
from tests.management.api.conftest import Served


def at(served: Served, end: str = "messages") -> str:
    return f"/stack/conversations/{served.ours.conversation}/{end}"


@pytest.mark.rows("S4-40", "S4-43")
async def test_what_is_said_is_queued_listed_and_taken_back(served: Served) -> None:
    said = await served.ask(at(served), method="POST", json={"text": "use tabs"})
    later = await served.ask(at(served), method="POST", json={"text": "then push", "lane": "follow_up", "thread": "t1"})
    listed = (await served.ask(at(served))).json

    assert (said.status, said.json["queued"], said.json["position"]) == (202, True, 1)
    assert (later.status, later.json["position"]) == (202, 2)
    TypeAdapter(MessageList).validate_python(listed, strict=True)
    assert [(m["text"], m["lane"], m["thread"], m["position"]) for m in listed["messages"]] == [
        ("use tabs", "steer", None, 1),
        ("then push", "follow_up", "t1", 2),
    ]
    assert (await served.ask(f"{at(served)}/{said.json['id']}", method="DELETE")).json == {"removed": 1}
    assert (await served.ask(at(served), method="DELETE")).json == {"removed": 1}
    assert (await served.ask(at(served))).json == {"messages": []}


WRONG: list[Any] = [
    None,
    {},
    [],
    "use tabs",
    {"text": ""},
    {"text": "   "},
    {"text": "\ud83d"},
    {"text": 7},
    {"text": ["use tabs"]},
    {"text": "x" * (MAX_MESSAGE_CHARACTERS + 1)},
    {"text": "x", "lane": "fast"},
    {"text": "x", "lane": None},
    {"text": "x", "thread": "t" * 65},
    {"text": "x", "more": 1},
]


async def test_a_body_that_is_not_as_described_is_refused_with_a_sentence(served: Served) -> None:
    for body in WRONG:
        answer = await served.ask(at(served), method="POST", json=body)

        assert (answer.status, answer.json["error"]["code"]) in [(400, "bad_request"), (400, "no_text")], body
        assert len(answer.json["error"]["message"]) < 2_000
    assert (await served.ask(at(served))).json == {"messages": []}


async def test_any_text_comes_back_as_it_was_said(served: Served) -> None:
    for text in ("\x00\x1b[31m", "</stack-context>", "'; DROP TABLE queued; --", "x" * MAX_MESSAGE_CHARACTERS):
        said = await served.ask(at(served), method="POST", json={"text": text})
        assert said.status == 202, text[:40]
        assert (await served.ask(at(served))).json["messages"][-1]["text"] == text


ASKED: list[tuple[str, str, Any]] = [
    ("POST", "messages", {"text": "use tabs"}),
    ("GET", "messages", None),
    ("DELETE", "messages", None),
    ("DELETE", "messages/q1", None),
    ("GET", "live", None),
    ("POST", "cancel", {"tree": True}),
    ("POST", "stop", None),
    ("POST", "resume", None),
]


@pytest.mark.parametrize(("method", "end", "said"), ASKED)
async def test_what_is_anothers_is_answered_like_what_never_was(
    served: Served, method: str, end: str, said: Any
) -> None:
    body = {} if said is None else {"json": said}
    theirs, nobodys = (f"/stack/conversations/{c}/{end}" for c in (served.theirs.conversation, "0" * 32))
    foreign, unknown = [await served.ask(path, method=method, **body) for path in (theirs, nobodys)]

    assert (foreign.status, unknown.status) == (404, 404)
    assert foreign.body.replace(served.theirs.conversation.encode(), b"") == unknown.body.replace(b"0" * 32, b"")


async def test_an_operator_speaks_in_any_conversation(served: Served) -> None:
    path = f"/stack/conversations/{served.theirs.conversation}/messages"

    assert (await served.ask(path, "token", method="POST", json={"text": "use tabs"})).status == 202
    assert [m["text"] for m in (await served.ask(path, "theirs")).json["messages"]] == ["use tabs"]
    assert (await served.ask(path.replace(served.theirs.conversation, "0" * 32), "token")).status == 404


async def test_what_was_said_goes_with_its_conversation(served: Served) -> None:
    await served.ask(at(served), method="POST", json={"text": "use tabs"})
    await served.ask(f"/stack/conversations/{served.ours.conversation}", method="DELETE")
    served.speaking.conversation_cache.drop_deleted()

    assert (await served.ask(at(served))).status == 404


@pytest.mark.rows("S1-166")
async def test_nothing_under_way_is_told_and_to_stop_all_is_told_of_each_frame(served: Served) -> None:
    live = (await served.ask(at(served, "live"))).json
    done = (await served.ask(at(served, "cancel"), method="POST", json={"tree": True})).json

    TypeAdapter(RequestsInFlight).validate_python(live, strict=True)
    TypeAdapter(CancellationView).validate_python(done, strict=True)
    assert live == {"requests": []}
    assert done == {
        "requests": 0,
        "messages": 0,
        "tree": {"blocked": [served.ours.root], "invalidated": [served.ours.planned], "left": []},
    }
    assert (served.ours.tenant, served.ours.conversation) in served.changed
