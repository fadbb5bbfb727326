"""A6, X-25: one tenant with the exact bytes, session, and ids of another sees nothing of it and changes nothing for it.

The proof is a twin: a proxy that has never seen the first tenant. What the second one gets, and what leaves for it,
must be the same in both.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from callstack_proxy.management.issued_keys import issue_key
from llm_test_provider import ScriptedProvider, calls, says
from proxy.config.model import Config
from tests.harness import Json, does, pop, push, recall
from tests.management.api.pages import SLOT, Page, pages_in
from tests.wire.proxied import TOKEN, ServedProxy
from tests.wire.stage import Starting
from tests.wire.talking import ReceivedAnswer, ask, body_of

SECRET = "the-first-tenants-own-words"
SESSION = {"x-stack-session": "shared", "x-session-id": "shared"}


@dataclass
class Tenants:
    """A proxy and the keys of two of its users, as headers."""

    proxy: ServedProxy
    first: dict[str, str]
    second: dict[str, str]


Making = Callable[[str], Tenants]


@pytest.fixture(params=["key", "credential"])
def make(request: pytest.FixtureRequest, start: Starting, tmp_path: Path) -> Making:
    """A proxy by that tenancy, in a folder of its own."""

    def one(name: str) -> Tenants:
        keys = {who: f"sk-static-{who}-0123456789" for who in ("first", "second")}
        if request.param == "key":
            file = Config(data=tmp_path / name).keys_path
            keys = {who: issue_key(file, who) for who in keys}
        proxy = start(name, tenancy=request.param)
        return Tenants(proxy, *({"authorization": f"Bearer {key}", **SESSION} for key in keys.values()))

    return one


def conversation() -> Json:
    return body_of(SECRET, awake=True, user="same-user")


def work(tenants: Tenants, provider: ScriptedProvider, body: Json | None = None) -> ReceivedAnswer:
    """The first tenant finishes a frame; what was in it has left the line. `body` is where its history grows."""
    provider.will(
        does(push(f"frame {SECRET}")),
        calls("read_file", path="a"),
        does(pop(f"results {SECRET}")),
        says("closing words"),
    )
    body = conversation() if body is None else body
    made = ask(tenants.proxy.origin, body, headers=tenants.first).json["choices"][0]["message"]
    body["messages"] += [made, {"role": "tool", "tool_call_id": made["tool_calls"][0]["id"], "content": "file text"}]
    told = ask(tenants.proxy.origin, body, headers=tenants.first)
    assert (told.status, told.text) == (200, "closing words")
    return told


def replayed(tenants: Tenants, provider: ScriptedProvider, *answers: Any) -> tuple[list[ReceivedAnswer], list[bytes]]:
    """The second tenant sends the first one's bytes, all of them; what it gets, and what leaves for it."""
    provider.received.clear()
    provider.will(*answers)
    body = conversation()
    whole = body | {
        "messages": [
            *body["messages"],
            {"role": "assistant", "content": "closing words"},
            {"role": "user", "content": "what did you do?"},
        ]
    }
    told = [ask(tenants.proxy.origin, each, headers=tenants.second) for each in (body, whole)]
    return told, [received.raw for received in provider.asked]


@pytest.mark.rows("X-25")
def test_a6_the_same_bytes_of_another_tenant_are_a_fresh_conversation(make: Making, provider: ScriptedProvider) -> None:
    used, fresh = make("used"), make("fresh")
    before = work(used, provider)

    told, left = replayed(used, provider, says("hello"), says("nothing yet"))
    told_fresh, left_fresh = replayed(fresh, provider, says("hello"), says("nothing yet"))

    assert [without_names(body) for body in left] == [without_names(body) for body in left_fresh]
    assert [heard.body for heard in told] != []
    assert [heard.text for heard in told] == [heard.text for heard in told_fresh]
    assert before.conversation not in {heard.conversation for heard in told}
    assert not any(b"frame the-first" in body or b"results the-first" in body for body in left)


def without_names(body: bytes) -> bytes:
    """A body less what is random in each conversation: frame ids, the conversation's id and nonce."""
    return re.sub(rb'(session|frame|nonce|id|ref|parent)=\\"[^"]+\\"', b"", body)


@pytest.mark.rows("X-25")
def test_a6_a_frame_of_another_tenant_is_recalled_like_one_that_never_was(
    make: Making, provider: ScriptedProvider
) -> None:
    used = make("used")
    before = work(used, provider)
    state = ask(
        used.proxy.origin, method="GET", path=f"/stack/conversations/{before.conversation}/state", headers=used.first
    )
    frames = list(state.json["frames"])
    asked = [*frames, "fnothinghere", f"frame {SECRET}", before.conversation]

    told: list[str] = []
    for ref in asked:
        provider.received.clear()
        provider.will(does(recall(ref)), says("done"))
        ask(used.proxy.origin, body_of(f"recall {len(told)}", awake=True), headers=used.second)
        told.append(provider.received[-1].messages[-1]["content"].replace(ref, "REF"))

    assert len(set(told)) == 1, told
    assert SECRET not in told[0]


def test_a6_no_page_shows_or_changes_anything_of_another_tenant(make: Making, provider: ScriptedProvider) -> None:
    """The matrix comes from the description of the API, so that a new route is in it."""
    used = make("used")
    before = work(used, provider)
    whole = pages(used, before, used.first)

    for page in described(used):
        told = ask(used.proxy.origin, page.how.body, method=page.method, path=filled(page, before), headers=used.second)
        assert not page.named or (page.name, told.status) == (page.name, 404)
        assert SECRET.encode() not in told.body, page.name
        assert before.conversation.encode() not in told.body or told.status == 404, page.name

    assert pages(used, before, used.first) == whole


def described(used: Tenants) -> list[Page]:
    return pages_in(used.proxy.page("/stack/openapi.json")["paths"])


def filled(page: Page, before: ReceivedAnswer) -> str:
    """Where the first tenant's ids stand in the path."""
    ids = {"conversation": before.conversation, "frame": before.header("x-stack-frame"), "request": before.request}
    query = "?before=9000000000000" if page.name == "DELETE /stack/conversations" else page.how.query
    return SLOT.sub(lambda slot: ids.get(slot[1], "main"), page.path) + query


def pages(used: Tenants, before: ReceivedAnswer, headers: dict[str, str]) -> list[tuple[str, int, bytes]]:
    """Every page of the first tenant's conversation, as its owner sees it."""
    read = [page for page in described(used) if page.method == "GET" and page.named and not page.how.before]
    told = [(page, ask(used.proxy.origin, method="GET", path=filled(page, before), headers=headers)) for page in read]
    assert {heard.status for _, heard in told} == {200}
    return [(page.name, heard.status, heard.body) for page, heard in told]


def test_a6_what_one_forgets_stays_with_the_other(make: Making, provider: ScriptedProvider) -> None:
    used = make("used")
    before = work(used, provider)
    replayed(used, provider, says("mine"), says("mine"))
    path = "/stack/conversations?before=9000000000000"

    gone = ask(used.proxy.origin, method="DELETE", path=path, headers=used.second)

    assert gone.json["conversations"] >= 1
    assert len(pages(used, before, used.first)) > 3
    operator = {"x-stack-key": TOKEN}
    left = ask(used.proxy.origin, method="GET", path="/stack/conversations", headers=operator).json["conversations"]
    assert [row["id"] for row in left] == [before.conversation]


def test_a6_the_next_turn_of_the_first_goes_on_as_if_nobody_else_were(make: Making, provider: ScriptedProvider) -> None:
    used, body = make("used"), conversation()
    before = work(used, provider, body)
    replayed(used, provider, says("closing words"), says("theirs"))
    provider.will(says("on"))
    body["messages"] += [{"role": "assistant", "content": "closing words"}, {"role": "user", "content": "go on"}]

    told = ask(used.proxy.origin, body, headers=used.first)

    assert json.loads(provider.received[-1].raw)["messages"][-1]["content"] == "go on"
    assert (told.conversation, told.told) == (before.conversation, "full")
    assert b"read_file" not in json.dumps(provider.received[-1].messages).encode(), (
        "the popped frame stays off the line"
    )
