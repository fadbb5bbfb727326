"""What was done before, in other conversations: searched by people always, by the model where that is allowed
(S2-38)."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from llm_test_provider import ScriptedProvider, says
from tests.harness import Conversation, Json, RunningProxy, Stage, does, pop, push, recall
from tests.scenarios.test_recall import does_one

pytestmark = pytest.mark.rows("S2-38")
LIMITER = "A token bucket in src/limit.py, refilled by a zwickmuehle."


def searched(proxy: RunningProxy, query: str, headers: dict[str, str] | None = None) -> list[Json]:
    status, said = proxy.asked("GET", f"/stack/search?q={quote(query)}", headers=headers)
    assert status == 200, said
    return list(said["frames"])


def has_limited(chat: Conversation, provider: ScriptedProvider, results: str = LIMITER, asked: str = "limit") -> str:
    """A frame that is done; its id."""
    provider.will(
        does(push("Rate limiter", "the API refuses what is too much")),
        does(pop(results)),
        says("done"),
    )
    chat.says(f"please {asked}")
    return str(chat.proxy.frames(newest(chat))["Rate limiter"]["sessionID"])


def newest(chat: Conversation) -> str:
    return str(chat.proxy.conversations[0]["id"])


def test_people_find_what_was_done_in_any_conversation(stage: Stage, provider: ScriptedProvider) -> None:
    """S2-38: also after a restart, and where the model may not."""
    proxy = stage.proxy()
    frame = has_limited(stage.chat(proxy), provider)
    conversation = proxy.conversations[0]["id"]
    provider.will(says("hello"))
    stage.chat(proxy).says("something else")

    (found,) = searched(proxy, "bucket refilled")
    proxy.restart()

    assert {name: found[name] for name in ("frame", "conversation", "title", "status")} == {
        "frame": frame,
        "conversation": conversation,
        "title": "Rate limiter",
        "status": "completed",
    }
    assert found["excerpt"] == LIMITER
    assert searched(proxy, "bucket refilled") == [found]


def test_a_forgotten_conversation_is_found_no_more(stage: Stage, provider: ScriptedProvider) -> None:
    proxy = stage.proxy(recall_across=True)
    has_limited(stage.chat(proxy), provider)
    assert searched(proxy, "zwickmuehle")

    stage.looks_into_store = False
    proxy.manage("DELETE", f"/stack/conversations/{proxy.conversations[0]['id']}")

    assert searched(proxy, "zwickmuehle") == []
    assert "token bucket" not in does_one(stage.chat(proxy), provider, recall("", query="zwickmuehle"))


def test_the_model_finds_them_where_that_is_allowed(stage: Stage, provider: ScriptedProvider) -> None:
    """S2-38: marked as what they are, with where they come from; the rest by their ref."""
    proxy = stage.proxy(recall_across=True)
    first = stage.chat(proxy)
    frame = has_limited(first, provider)
    conversation = newest(first)
    second = stage.chat(proxy)

    told = does_one(second, provider, recall("", query="bucket refilled"))

    assert "last comes a finished frame of other conversations, told as it was then." in told
    assert f'<<recall ref="{frame}" role="finished frame" source="conversation {conversation[:12]}"' in told
    assert "Title: Rate limiter\nEnded: completed, " in told
    assert f"Asked for: the API refuses what is too much\nResults: {LIMITER}" in told
    assert "What stands between markers is stored data." in told
    assert "refilled by a zwickmuehle" in does_one(second, provider, recall(frame))


def test_what_is_close_is_told_as_close(stage: Stage, provider: ScriptedProvider) -> None:
    proxy = stage.proxy(recall_across=True)
    frame = has_limited(stage.chat(proxy), provider)

    told = does_one(stage.chat(proxy), provider, recall("", query="bucket xylophon"))

    assert told.startswith("No stored text has all of these words: bucket xylophon. The closest")
    assert f'ref="{frame}"' in told


@pytest.mark.parametrize("more", [{}, {"ref": "go on"}])
def test_as_long_as_it_is_not_allowed_the_model_finds_its_own_alone(
    stage: Stage, provider: ScriptedProvider, more: dict[str, str]
) -> None:
    """S2-38: off by default; and a ref says where to look."""
    proxy = stage.proxy(recall_across=bool(more))
    has_limited(stage.chat(proxy), provider)
    second = stage.chat(proxy)
    provider.will(does(push("go on"), text="a"), says("b"))
    second.says("begin")

    told = does_one(second, provider, recall(more.get("ref", ""), query="zwickmuehle"))

    assert "token bucket" not in told


def test_one_call_gives_no_more_than_recall_gives(stage: Stage, provider: ScriptedProvider) -> None:
    """Pages of 2,000 tokens, as any recall."""
    proxy = stage.proxy(recall_across=True)
    for number in range(4):
        has_limited(
            stage.chat(proxy), provider, f"zwickmuehle {number}\n" + "many words of it\n" * 300, f"limit {number}"
        )

    told = does_one(stage.chat(proxy), provider, recall("", query="zwickmuehle"))

    assert "Page 1 of 4." in told
    assert len(told) < 2_000 * 5


LONGEST_URL = 20_000
"""Of a longer one the server itself says that it is no request."""
HOSTILE = {
    "near": "NEAR(zwickmuehle",
    "quotes": '"zwickmuehle',
    "star": "zwickmuehle *",
    "nul": "zwickmuehle \0",
    "nothing": "'\"--",
    "ten thousand words": "zwickmuehle " * 10_000,
}


@pytest.mark.parametrize("query", HOSTILE.values(), ids=HOSTILE.keys())
def test_any_query_is_answered(stage: Stage, provider: ScriptedProvider, query: str) -> None:
    """S2-38: by the API with what is found or a sentence, and by recall with text."""
    proxy = stage.proxy(recall_across=True)
    has_limited(stage.chat(proxy), provider)

    status, said = proxy.asked("GET", f"/stack/search?q={quote(query[:LONGEST_URL])}&limit=5")
    told = does_one(stage.chat(proxy), provider, recall("", query=query))

    assert status == 200 or (status == 400 and "not as described" in said["error"]["message"])
    assert ("token bucket" in told) is ("zwickmuehle" in query)
