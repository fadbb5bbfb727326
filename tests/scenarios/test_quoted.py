"""The client's own compaction that quotes the history as text: as it is while it fits, else with our rendering in the
place of the quote (DESIGN 8)."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from random import Random

import pytest

from callstack_proxy.management.issued_keys import issue_key
from llm_test_provider import Model, ScriptedProvider, When, says
from proxy.exchange.thread.quoted_history import RENDERING_END
from tests.harness import Answer, Conversation, Json, Stage, bash, does, pop, push
from tests.laws import text_of

PLAIN = pytest.mark.asked("plain")
WINDOW = 24_000
SMALL = {"models": [Model("gpt-x", window=WINDOW, refusal="openai")]}
"""A provider that refuses what is longer, of a model that no table knows, and says how long it may be."""
UNFOLDED = {"infer_requests": False, "mirror_plans": False, "frame_max_tokens": 10_000_000}
BEFORE = 'Write a summary of the conversation below. Say "what" was asked, and what is left.\n\n<conversation>\n'
BEHIND = "\n</conversation>\n\nAnswer in five lines.\nKeep every path as it is: größe.txt too.\n"
QUESTIONS = (
    "The lexer has to know comments; please write it first.",
    "Now the parser, with a test for each rule of it.",
)
NEWEST = "And tell me which of the rules of the grammar are not tested yet."


def prose(lines: int, about: str) -> str:
    """Lines of which none is like another."""
    random = Random(about)
    words = ["token", "grammar", "rule", "comment", "lexer", "parser", "branch", "depth", "state", "table", "node"]
    return "\n".join(
        f"{about} {n}: " + " ".join(f"{random.choice(words)}_{random.randrange(1_000)}" for _ in range(8))
        for n in range(lines)
    )


def worked(chat: Conversation, provider: ScriptedProvider, outputs: int = 5, lines: int = 80) -> None:
    """Two frames that are finished, and a question that is answered: more than the window, as the client has it."""
    for title, question in zip(("Lexer", "Parser"), QUESTIONS, strict=True):
        made = [does(bash(f"make {title}.part{n} --all-of-it"), text=said(title, n)) for n in range(outputs)]
        provider.will(
            does(push(title)),
            *made,
            does(pop(f"{title} is done: see src/{title}.py.")),
            says(f"{title}: ok."),
        )
        chat.says(question)
        for n in range(outputs):
            assert chat.returns(prose(lines, f"{title} output {n}")).status == 200
    provider.will(says("All but the last two, " + prose(10, "answer")))
    assert chat.says(NEWEST).stack_status == "full"


def said(title: str, number: int) -> str:
    return f"I make part {number} of the {title} now, and then I look at what it says about the rules of part {number}."


def dialogue(history: list[Json]) -> str:
    return "\n\n".join(f"{m['role'].capitalize()}: {text_of(m)}{called(m)}" for m in history)


def called(message: Json) -> str:
    made = message.get("tool_calls") or []
    return "".join(f"\n[{c['function']['name']} {c['function']['arguments']}]" for c in made)


def in_json(history: list[Json]) -> str:
    kept = [{k: v for k, v in m.items() if k in ("role", "content", "tool_calls", "tool_call_id")} for m in history]
    return json.dumps(kept, indent=2)


def summarised(chat: Conversation, quote: str, **more: object) -> Answer:
    """A request beside the conversation, with all of it in one message."""
    settings = {"system": "You write summaries.", "tools": (), **more}
    aside = Conversation(chat.proxy, chat.streamed, headers=dict(chat.headers), **settings)  # type: ignore[arg-type]
    return aside.says(BEFORE + quote + BEHIND)


# -------------------------------------------------------------------------------------------------------- does not fit
@pytest.mark.one_process("each process learns for itself what a provider refuses")
@pytest.mark.rows("X-06")
@pytest.mark.parametrize("provider", [SMALL], indirect=True)
@pytest.mark.parametrize("written", [dialogue, in_json])
def test_a_quoted_history_that_does_not_fit_is_told_in_its_place(
    stage: Stage, provider: ScriptedProvider, written: Callable[[list[Json]], str]
) -> None:
    """DESIGN 8: first the provider refuses, then the window is known. The instruction stays to the letter, what the
    finished frames left and the newest messages stand between, and the thread goes on with its frames."""
    chat = stage.chat(stage.proxy(**UNFOLDED))
    worked(chat, provider)
    frames = chat.proxy.statuses()
    assert set(frames.values()) == {"in_progress", "completed"}
    for asked in range(2):
        before = len(provider.received)
        provider.will(says("In short: lexer and parser."))

        answer = summarised(chat, written(chat.history))

        assert (answer.status, answer.text) == (200, "In short: lexer and parser.")
        assert answer.stack_status == "stateless; reason=window"
        assert [r.status for r in provider.received[before:]] == ([400, 200] if asked == 0 else [200])
        told = text_of(provider.received[-1].messages[-1])
        assert told.startswith(BEFORE)
        assert told.endswith(BEHIND)
        assert RENDERING_END in told
        for kept in ("Lexer is done: see src/Lexer.py.", "Parser is done: see src/Parser.py.", *QUESTIONS, NEWEST):
            assert kept in told
        assert prose(10, "answer") in told
        assert "nonce=" not in told
        assert prose(80, "Lexer output 0") not in told
    receipt = chat.proxy.receipts()[-1]
    assert receipt["status"] == "stateless"
    assert 300 < receipt["own_texts"] < receipt["tokens_last"] < WINDOW
    provider.will(says("Two rules."))
    goes_on = chat.says("go on")
    assert (goes_on.text, goes_on.stack_status) == ("Two rules.", "full")
    assert chat.proxy.statuses(goes_on.headers["x-stack-conversation"]) == frames


@pytest.mark.parametrize("provider", [SMALL], indirect=True)
@pytest.mark.parametrize("system", ["You are a careful engineer.", "You write summaries."])
def test_a_request_with_tools_is_told_in_its_place_too(stage: Stage, provider: ScriptedProvider, system: str) -> None:
    """Such a one would wake a thread of its own, or be taken for the thread itself that begins anew: its line cannot
    fit either. The thread goes on where it stood."""
    chat = stage.chat(stage.proxy(**UNFOLDED))
    worked(chat, provider)
    provider.will(says("In short: lexer and parser."))

    answer = summarised(chat, dialogue(chat.history), system=system, tools=chat.tools)

    assert (answer.status, answer.text) == (200, "In short: lexer and parser.")
    assert answer.stack_status == "stateless; reason=window"
    told = text_of(provider.received[-1].messages[-1])
    assert (told.startswith(BEFORE), told.endswith(BEHIND), NEWEST in told) == (True, True, True)
    provider.will(says("Two rules."))
    goes_on = chat.says("go on")
    assert (goes_on.text, goes_on.stack_status) == ("Two rules.", "full")
    assert {"Lexer", "Parser"} < chat.proxy.statuses(goes_on.headers["x-stack-conversation"]).keys()


@PLAIN
@pytest.mark.parametrize("provider", [SMALL], indirect=True)
def test_only_the_text_with_the_quote_changes(stage: Stage, provider: ScriptedProvider) -> None:
    """Other parts of the message, and members nobody knows, stay as they came; in mode `off` too, where a history that
    outgrew the window is shortened as well."""
    chat = stage.chat(stage.proxy(**UNFOLDED))
    worked(chat, provider)
    provider.will(says("one"))
    parts = [
        {"type": "text", "text": "First of all."},
        {"type": "text", "text": BEFORE + dialogue(chat.history) + BEHIND, "of_its_own": {"a": [1]}},
        {"type": "text", "text": "Last of all: größe\u2028."},
    ]
    aside = Conversation(chat.proxy, False, None, (), history=[{"role": "user", "content": parts}])

    answer = aside.tries(headers={"x-stack-mode": "off"})

    assert (answer.status, answer.stack_status) == (200, "stateless; reason=window")
    sent, asked = json.loads(provider.received[-1].raw), json.loads(stage.notes[-1].body)
    (shown,), (whole,) = (body.get("messages") or body["input"] for body in (sent, asked))
    for at, (part, own) in enumerate(zip(shown["content"], whole["content"], strict=True)):
        assert (part == own) is (at != 1)
        assert {**part, "text": ""} == {**own, "text": ""}
    assert shown["content"][1]["text"].startswith(BEFORE)


@pytest.mark.one_process("each process learns for itself what a provider refuses")
@PLAIN
@pytest.mark.parametrize("provider", [SMALL], indirect=True)
def test_the_conversation_is_found_by_its_session_after_a_restart(stage: Stage, provider: ScriptedProvider) -> None:
    """Nothing of it is at hand then; without the name of its session the refusal passes."""
    proxy = stage.proxy(**UNFOLDED)
    chat = stage.chat(proxy, headers={"x-stack-session": "s1"})
    worked(chat, provider)
    quote = dialogue(chat.history)
    proxy.restart()
    nameless = Conversation(proxy, False, "You write summaries.", ())
    assert nameless.says(BEFORE + quote + BEHIND).status == 400
    provider.will(says("one"))

    answer = summarised(chat, quote)

    assert (answer.status, answer.stack_status) == (200, "stateless; reason=window")


@PLAIN
@pytest.mark.parametrize("provider", [SMALL], indirect=True)
def test_a_known_window_is_not_tried(stage: Stage, provider: ScriptedProvider) -> None:
    """The provider is asked once, with what fits."""
    row = {"tariffs__own__names": "gpt-x", "tariffs__own__window": WINDOW}
    chat = stage.chat(stage.proxy(**UNFOLDED, **row))
    worked(chat, provider)
    before = len(provider.received)
    provider.will(says("one"))

    answer = summarised(chat, dialogue(chat.history))

    assert (answer.status, answer.stack_status) == (200, "stateless; reason=window")
    assert [r.status for r in provider.received[before:]] == [200]


@pytest.mark.one_process("it looks into SQLite's file, or damages it")
@PLAIN
@pytest.mark.parametrize("provider", [SMALL], indirect=True)
def test_without_a_store_what_is_at_hand_is_told(stage: Stage, provider: ScriptedProvider) -> None:
    """DESIGN 11: the store is locked by another process, and everything it held is still known here."""
    proxy = stage.proxy(**UNFOLDED)
    chat = stage.chat(proxy)
    worked(chat, provider)
    quote = dialogue(chat.history)
    provider.when(When(user="Write a summary"), says("one"), loop=True)
    path = proxy.config.store_path
    assert path is not None
    with closing(sqlite3.connect(path, isolation_level=None)) as intruder:
        intruder.execute("BEGIN EXCLUSIVE")
        until = time.monotonic() + 10
        while (answer := summarised(chat, quote)).stack_status == "stateless; reason=window":
            assert time.monotonic() < until, "the proxy did not notice"
        intruder.execute("ROLLBACK")

    assert (answer.status, answer.text, answer.stack_status) == (200, "one", "stateless; reason=store_locked")


# ------------------------------------------------------------------------------------------------------------- as today
@pytest.mark.parametrize("provider", [SMALL], indirect=True)
def test_a_quoted_history_that_fits_passes_as_it_is(stage: Stage, provider: ScriptedProvider) -> None:
    chat = stage.chat(stage.proxy(**UNFOLDED))
    worked(chat, provider, lines=20)
    provider.will(says("one"))

    answer = summarised(chat, dialogue(chat.history))

    assert (answer.status, answer.stack_status) == (200, "asleep")
    assert provider.received[-1].raw == stage.notes[-1].body


@pytest.mark.parametrize("provider", [SMALL], indirect=True)
@pytest.mark.parametrize("why", ["asleep", "files", "unknown"])
def test_what_is_in_doubt_is_refused_as_ever(stage: Stage, provider: ScriptedProvider, why: str) -> None:
    """Whose line was never kept short saw how long it is; files may be quoted by anybody; the rest is not known."""
    asleep = {"wake_at_tokens": 1_000_000} if why == "asleep" else {}
    chat = stage.chat(stage.proxy(**UNFOLDED, **asleep))
    if why == "asleep":
        chat.history += [{"role": "user", "content": QUESTIONS[0]}]
        for n in range(6):
            provider.will(does(bash(f"part{n}"), text=said("Lexer", n)))
            chat.asks()
            chat.history.append({"role": "tool", "tool_call_id": chat.history[-1]["tool_calls"][0]["id"],
                                 "content": prose(110, f"out {n}")})  # fmt: skip
    else:
        worked(chat, provider)
    outputs = [m["content"] for m in chat.history if m["role"] == "tool"]
    quote = {
        "asleep": dialogue(chat.history) + "\n\n" + prose(120, "and more of it"),
        "files": "\n\n".join(outputs),
        "unknown": prose(900, "something else"),
    }[why]

    answer = summarised(chat, quote)

    assert answer.status == 400
    assert provider.received[-1].raw == stage.notes[-1].body
    assert answer.stack_status == "error; reason=upstream_error"


@PLAIN
@pytest.mark.parametrize("provider", [SMALL], indirect=True)
def test_a_conversation_of_another_tenant_is_never_told(stage: Stage, provider: ScriptedProvider) -> None:
    """Not to somebody who has its very words; its own tenant asks the same and is answered."""
    proxy = stage.proxy(**UNFOLDED, tenancy="key")
    red, blue = ({"authorization": f"Bearer {issue_key(proxy.config.keys_path, name)}"} for name in ("red", "blue"))
    proxy.headers = red
    chat = stage.chat(proxy, headers=red)
    worked(chat, provider)
    quote = dialogue(chat.history)
    stranger = Conversation(chat.proxy, False, "You write summaries.", (), headers=blue)

    assert stranger.says(BEFORE + quote + BEHIND).status == 400
    assert RENDERING_END not in text_of(provider.received[-1].messages[-1])
    provider.will(says("one"))
    assert summarised(chat, quote).status == 200


@PLAIN
@pytest.mark.parametrize("provider", [SMALL], indirect=True)
def test_megabytes_of_near_matches_are_refused_as_ever(stage: Stage, provider: ScriptedProvider) -> None:
    """What it takes to see that is bounded: see the test of the pieces."""
    chat = stage.chat(stage.proxy(**UNFOLDED))
    worked(chat, provider)
    near = "\n".join(line[:60] for line in dialogue(chat.history).splitlines())

    answer = summarised(chat, near * (3_000_000 // len(near)))

    assert answer.status == 400
    assert provider.received[-1].raw == stage.notes[-1].body
