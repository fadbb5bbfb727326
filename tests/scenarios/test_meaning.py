"""Finished work is found by what it means, where an embedding model is configured (S2-45)."""

from __future__ import annotations

import time
from collections.abc import Callable
from urllib.parse import quote

import pytest

from llm_test_provider import FixedReply, ScriptedProvider, says
from tests.harness import Conversation, Json, RunningProxy, Stage, does, pop, push, recall
from tests.scenarios.test_recall import does_one

pytestmark = pytest.mark.rows("S2-45")
ON = {"embeddings__model": "scripted-embeddings", "recall_across": True}
ACCESS = {"authentication", "login", "jwt", "tokens"}
PATIENCE_S = 10.0


def has_done(chat: Conversation, provider: ScriptedProvider, title: str, results: str) -> None:
    provider.will(does(push(title, "it works")), does(pop(results)), says("done"))
    chat.says(f"please begin with {title[0]}")


def has_logins_and_totals(stage: Stage, provider: ScriptedProvider, proxy: RunningProxy) -> None:
    provider.meanings = [ACCESS]
    has_done(stage.chat(proxy), provider, "Login tokens / JWT", "Tokens expire in src/jwt.py.")
    has_done(stage.chat(proxy), provider, "Totals of a basket", "The sum is rounded once, in src/basket.py.")


def search(proxy: RunningProxy, words: str) -> Json:
    status, found = proxy.asked("GET", f"/stack/search?q={quote(words)}")
    assert status == 200, found
    return dict(found)


def found_by(proxy: RunningProxy, words: str) -> dict[str, str]:
    """What each frame was found by, by its title, the best first."""
    return {row["title"]: row["by"] for row in search(proxy, words)["frames"]}


def embedded(provider: ScriptedProvider) -> list[str]:
    """Texts that the embedding model got, in order."""
    asked = [received for received in provider.received if received.path == "/v1/embeddings"]
    return [text for received in asked for text in received.body["input"]]


def wait_until(holds: Callable[[], object]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < until, "it did not come to that"
        time.sleep(0.05)


def test_what_means_the_same_is_found_by_people_and_by_the_model(stage: Stage, provider: ScriptedProvider) -> None:
    """S2-45: words first. What was made is kept over a restart, and goes with what it was made of."""
    proxy = stage.proxy(**ON)
    has_logins_and_totals(stage, provider, proxy)
    wait_until(lambda: len(embedded(provider)) == 2)

    wait_until(lambda: found_by(proxy, "authentication") == {"Login tokens / JWT": "meaning"})
    assert list(found_by(proxy, "authentication basket")) == ["Login tokens / JWT", "Totals of a basket"]
    assert found_by(proxy, "login")["Login tokens / JWT"] == "words"
    assert "Title: Login tokens / JWT" in does_one(stage.chat(proxy), provider, recall("", query="authentication"))
    assert embedded(provider)[0].splitlines()[:3] == [
        "Login tokens / JWT",
        "it works",
        "Tokens expire in src/jwt.py.",
    ]

    proxy.restart()
    has_done(stage.chat(proxy), provider, "Ship it", "Released.")
    wait_until(lambda: any(text.startswith("Ship it") for text in embedded(provider)))
    assert embedded(provider).count(embedded(provider)[0]) == 1
    assert found_by(proxy, "authentication") == {"Login tokens / JWT": "meaning"}
    stage.looks_into_store = False
    for row in proxy.conversations:
        proxy.manage("DELETE", f"/stack/conversations/{row['id']}")
    assert search(proxy, "authentication") == {"frames": [], "all_words": False, "meaning": "on"}


def test_a_model_that_is_down_leaves_words_and_that_is_said(stage: Stage, provider: ScriptedProvider) -> None:
    """S2-45: it is asked once, and then left alone for a while; no request fails by it."""
    provider.reply("/v1/embeddings", FixedReply(503, b"no"))
    proxy = stage.proxy(**ON)
    has_logins_and_totals(stage, provider, proxy)

    found = search(proxy, "login")
    again = search(proxy, "login")

    assert found == again
    assert ([row["by"] for row in found["frames"]], found["meaning"]) == (["words"], "unavailable")
    assert len(embedded(provider)) == 1
    assert "Title: Login tokens / JWT" in does_one(stage.chat(proxy), provider, recall("", query="login jwt"))


def test_nothing_is_sent_where_no_model_is_named(stage: Stage, provider: ScriptedProvider) -> None:
    proxy = stage.proxy(recall_across=True)
    has_logins_and_totals(stage, provider, proxy)

    assert search(proxy, "authentication") == {"frames": [], "all_words": False, "meaning": "off"}
    assert embedded(provider) == []


def test_a_text_that_the_model_refuses_does_not_keep_the_others_from_their_vectors(
    stage: Stage, provider: ScriptedProvider
) -> None:
    """S2-45: such as one that is longer than its window. Neither does a query."""
    provider.meanings = [ACCESS]
    provider.longest_embedded = 900
    proxy = stage.proxy(**ON)
    has_done(stage.chat(proxy), provider, "Very long work", "x " * 1_000)
    has_done(stage.chat(proxy), provider, "Login tokens / JWT", "Tokens expire in src/jwt.py.")

    wait_until(lambda: any(text.startswith("Login") for text in embedded(provider)))
    assert search(proxy, "authentication " * 120)["meaning"] == "unavailable"
    wait_until(lambda: found_by(proxy, "authentication") == {"Login tokens / JWT": "meaning"})


def test_a_slow_model_takes_no_words_from_a_round_with_two_searches(stage: Stage, provider: ScriptedProvider) -> None:
    """S2-45: the vectors of both are waited for together, and beside the time that the searches have."""
    provider.embedding_delay_s = 1.1
    proxy = stage.proxy(**ON)
    has_logins_and_totals(stage, provider, proxy)

    provider.will(does(recall("", query="login jwt"), recall("", query="totals basket")), says("ok"))
    stage.chat(proxy).says("go on")

    asked = str([received for received in provider.received if received.dialect][-1].body)
    assert all(f"Title: {title}" in asked for title in ("Login tokens / JWT", "Totals of a basket"))
