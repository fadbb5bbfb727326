"""People ask why a frame stands in the block of the active one, or does not (S1-54, S1-56)."""

from __future__ import annotations

import pytest

from llm_test_provider import ScriptedProvider, says
from tests.harness import Conversation, Json, Stage, bash, does, pop, push, texts

HOUR = 3_600_000


def asked(chat: Conversation, **query: str) -> Json:
    conversation = chat.proxy.conversations[0]["id"]
    told = "&".join(f"{name}={value}" for name, value in query.items())
    found: Json = chat.proxy.get(f"/stack/conversations/{conversation}/explain?{told}")
    return found


def begun(stage: Stage, provider: ScriptedProvider, **settings: object) -> Conversation:
    """Under the root a frame; in that one that is finished and has to do with the next, one that has not, and that
    next one, which is active."""
    chat = stage.chat(stage.proxy(**{"child_view": "isolate", **settings}))
    provider.will(
        does(push("Payments", criteria="Customers can pay.")),
        does(push("Token store", criteria="Tokens are kept.")),
        does(pop("The token cache stands.")),
        does(push("Colours", criteria="Nice.")),
        does(pop("Blue.")),
        does(push("Token refresh", criteria="A token is refreshed.")),
        does(bash("ls")),
    )
    chat.says("Build the shop.")
    return chat


@pytest.mark.rows("S1-54", "S1-56")
def test_what_the_context_before_a_fork_shows_is_left_out_and_said_so(stage: Stage, provider: ScriptedProvider) -> None:
    told = asked(begun(stage, provider, child_view="fork"))

    assert [(row["kept"], row["why"]) for row in told["ancestors"]] == [(True, "parent"), (True, "root")]
    assert {(row["kept"], row["why"]) for row in told["siblings"]} == {(False, "in view")}


@pytest.mark.rows("S1-54", "S1-56", "D4", "D12")
def test_every_score_is_the_one_that_chose_and_stays_so(stage: Stage, provider: ScriptedProvider) -> None:
    """By the formula, of the time at which the block was told: whoever asks later reads the same to the last digit."""
    chat = begun(stage, provider)
    told = asked(chat)
    frames = chat.proxy.frames()

    assert (told["frame"], told["title"]) == (frames["Token refresh"]["sessionID"], "Token refresh")
    parent, root = told["ancestors"]
    aged = (told["at"] - frames["Payments"]["updatedAt"]) / HOUR
    assert parent["parts"] == {"nearness": 1000, "recency": 50 - aged, "status": 30, "results": 0, "artifacts": 0}
    assert parent["score"] == 1000 + (50 - aged) + 30
    assert (parent["depth"], parent["kept"], parent["why"]) == (1, True, "parent")
    assert (root["parts"]["nearness"], root["why"]) == (500, "root")

    store = next(row for row in told["siblings"] if row["title"] == "Token store")
    aged = (told["at"] - frames["Token store"]["updatedAt"]) / HOUR
    assert store["words"] == {"criteria": 20, "results": 10, "artifacts": 0}
    assert store["rest"] == {"recency": 100 - 10 * aged, "results": 30, "artifacts": 0, "status": 20}
    assert (store["relevance"], store["score"]) == (30, 30 + (100 - 10 * aged) + 30 + 0 + 20)
    assert [(row["title"], row["kept"], row["why"]) for row in told["siblings"]] == [
        ("Token store", True, "words"),
        ("Colours", True, "newest"),
    ]

    provider.will(says("I go on."))
    chat.returns("a.py")
    assert asked(chat) == told
    chat.proxy.restart()
    assert asked(chat) == told


@pytest.mark.rows("S1-54", "S1-56")
def test_what_stands_is_what_the_model_was_told(stage: Stage, provider: ScriptedProvider) -> None:
    """Whoever is kept is in the block on the line, and takes what it takes there."""
    chat = begun(stage, provider)
    block = next(text for text in reversed(texts(provider.received[-1].messages)) if "<stack-context" in text)
    told = asked(chat)

    rows = [*told["ancestors"], *told["siblings"]]
    assert [f'"{row["frame"]}"' in block.replace('\\"', '"') for row in rows] == [row["kept"] for row in rows]
    assert all(0 < row["tokens"] < 100 for row in rows)


@pytest.mark.rows("S1-54", "S1-56")
def test_where_no_block_was_told_it_is_explained_as_it_would_be(stage: Stage, provider: ScriptedProvider) -> None:
    chat = stage.chat()
    provider.will(says("hello"))
    chat.says("Build the shop.")
    told = asked(chat)

    assert (told["at"], told["title"], told["ancestors"], told["siblings"]) == (None, "Build the shop.", [], [])


@pytest.mark.rows("S1-54", "S1-56")
def test_a_thread_that_is_not_there_is_no_page(stage: Stage, provider: ScriptedProvider) -> None:
    chat = begun(stage, provider)

    with pytest.raises(AssertionError, match="404"):
        asked(chat, thread="nobody")
