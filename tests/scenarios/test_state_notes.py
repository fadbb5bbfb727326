"""What the model is told of its state: that its window fills up, that a step of its plan failed, that the last one
ended.

Every scenario ends before the judge of `tests.laws`: a note stands where it arose, and no client sees it.
"""

from __future__ import annotations

import re

import pytest

from llm_test_provider import ScriptedCall, ScriptedProvider, call, says
from tests.harness import (
    Conversation,
    Json,
    RunningProxy,
    Stage,
    activate,
    bash,
    does,
    plan,
    pop,
    push,
    texts,
)

NOTE = '<stack-context note="memory-pressure"'
WINDOW = 10_000
OUTPUT = "one more word of an output that is long " * 100


def roomy(stage: Stage, **settings: object) -> RunningProxy:
    """A proxy for a model whose window is known and small; 7,500 tokens are three quarters of it."""
    of = {"tariffs.gpt-x.window": WINDOW, "tariffs.gpt-x.max_output": 100, "frame_max_tokens": 100_000}
    return stage.proxy(**{**of, **settings})


def notes_in(messages: list[Json]) -> int:
    return "".join(texts(messages)).count(NOTE)


def works(chat: Conversation, provider: ScriptedProvider, steps: int) -> list[int]:
    """One turn of so many outputs; how many notes stood on each line of it."""
    before = len(provider.received)
    provider.will(*(does(bash(f"step {n} of {before}")) for n in range(steps)), says("Done."))
    chat.says("Go on.")
    for number in range(steps):
        chat.returns(f"{number} {OUTPUT}")
    return [notes_in(received.messages) for received in provider.received[before:]]


# ------------------------------------------------------------------------------------------------------------- pressure
@pytest.mark.rows("S2-43")
def test_a_window_three_quarters_full_is_told_of_once(stage: Stage, provider: ScriptedProvider) -> None:
    """S2-43: before anything was evicted, behind the result that filled it; the client sees nothing of it."""
    chat = stage.chat(roomy(stage))
    told = works(chat, provider, 9)

    first = told.index(1)
    assert told == [0] * first + [1] * (len(told) - first)
    line = provider.received[first].messages
    assert line[-1]["role"] == "user"
    full = re.search(r"(\d+)% full: ([\d,]+) of [\d,]+ tokens", texts([line[-1]])[0])
    assert full is not None
    assert 75 <= int(full[1]) < 90
    assert not any(
        event.startswith(("trim", "replaced")) for r in chat.proxy.receipts()[:first] for event in r["events"]
    )
    assert notes_in(chat.history) == 0


@pytest.mark.rows("S2-43")
def test_a_second_rise_is_told_of_again(stage: Stage, provider: ScriptedProvider) -> None:
    """S2-43: what the frame did has left with its pop, and the line grows anew."""
    chat = stage.chat(roomy(stage))
    for number in range(2):
        provider.will(does(push(f"Part {number}")), *(does(bash(f"{number} {n}")) for n in range(8)))
        provider.will(does(pop("read all of it")), says("Done."))
        chat.says(f"Read part {number}.")
        for step in range(8):
            chat.returns(f"{number} {step} {OUTPUT}")

    events = [event for receipt in chat.proxy.receipts() for event in receipt["events"]]
    assert [event.partition(" ")[0] for event in events if event.startswith(("pressed", "relieved"))] == [
        "pressed",
        "relieved",
        "pressed",
    ]


@pytest.mark.rows("S2-43")
@pytest.mark.parametrize(
    "settings",
    [
        {"pressure_warning": 0},
        {"mode": "passive"},
        {"tariffs.gpt-x.after_tool": "suffix"},
        {"wake_at_tokens": 1_000_000},
    ],
)
def test_no_word_of_it_where_it_is_not_wanted_or_cannot_stand(
    stage: Stage, provider: ScriptedProvider, settings: dict[str, object]
) -> None:
    assert not any(works(stage.chat(roomy(stage, **settings)), provider, 9))


@pytest.mark.rows("S2-43")
def test_a_window_that_nobody_knows_is_never_full(stage: Stage, provider: ScriptedProvider) -> None:
    chat = stage.chat(stage.proxy(**{"default_tariff.window": WINDOW, "default_tariff.max_output": 100}))

    assert not any(works(chat, provider, 9))


# ---------------------------------------------------------------------------------------------------------------- plans
def planned(title: str) -> ScriptedCall:
    """A planned frame begins; the model names it by its title."""
    return activate(title)


def told(provider: ScriptedProvider) -> str:
    """What the model's newest frame returned."""
    results = [m["content"] for m in provider.received[-1].messages if m["role"] == "tool"]
    return str(next(text for text in reversed(results) if "<frame-results" in text))


@pytest.mark.rows("S2-11")
def test_after_a_failed_step_the_model_is_asked_to_plan_anew(stage: Stage, provider: ScriptedProvider) -> None:
    """S2-11: with what is still planned, by name and id."""
    chat = stage.chat()
    provider.will(
        does(plan("Model", "View", "Tests")),
        does(planned("Model")),
        does(pop("no schema", "failed")),
    )
    provider.will(says("Hm."))
    chat.says("Build it.")

    frames = chat.proxy.frames()
    advice = told(provider).partition("<next>")[2].partition("</next>")[0]
    assert advice.startswith("Re-plan before you go on.")
    assert [f"{frames[title]['sessionID']} ({title})" in advice for title in ("View", "Tests")] == [True, True]
    assert "another attempt is a push of the same title" in advice


@pytest.mark.rows("S2-11")
def test_what_failed_beside_a_plan_asks_for_a_new_one_too(stage: Stage, provider: ScriptedProvider) -> None:
    """Also where it was no step of it."""
    chat = stage.chat()
    provider.will(
        does(plan("Model")),
        does(push("Look")),
        does(pop("nothing there", "failed")),
        says("Hm."),
    )
    chat.says("Build it.")

    assert "Re-plan before you go on." in told(provider)


@pytest.mark.rows("S3-33", "S0-49")
def test_after_the_last_step_the_model_is_told_to_pop_what_they_were_for(
    stage: Stage, provider: ScriptedProvider
) -> None:
    """S3-33: while one of them waits, that one is named."""
    chat = stage.chat()
    provider.will(
        does(push("Page")),
        does(plan("Model", "View")),
        does(planned("Model")),
        does(pop("there")),
    )
    provider.will(does(planned("View")), does(pop("shown")), says("All of it."))
    chat.says("Build it.")

    page = chat.proxy.frames()["Page"]["sessionID"]
    first, last = (received.messages for received in (provider.received[4], provider.received[6]))
    view = chat.proxy.frames()["View"]["sessionID"]
    assert f"<next>Planned next: {view} (View). Push it by its title.</next>" in "".join(texts(first))
    assert f"If the criteria of {page} (Page) are met, pop it with results" in "".join(texts(last))


@pytest.mark.rows("S3-33")
def test_no_step_is_told_as_the_next_beside_the_push_that_began_it(stage: Stage, provider: ScriptedProvider) -> None:
    chat = stage.chat()
    provider.will(does(plan("Model", "View")), does(planned("Model")), does(pop("there"), push("View")), says("Hm."))
    chat.says("Build it.")

    assert "<title>View</title>" in told(provider)
    assert "<results>there</results>" in told(provider)
    assert "Planned next" not in told(provider)


@pytest.mark.rows("S3-33")
def test_after_the_last_step_of_the_goal_the_user_is_answered(stage: Stage, provider: ScriptedProvider) -> None:
    chat = stage.chat()
    provider.will(
        does(plan("Model")),
        does(planned("Model")),
        does(pop("there")),
        says("All of it."),
    )
    chat.says("Build it.")

    assert "If the overall goal is reached, answer the user" in told(provider)


@pytest.mark.rows("S2-11", "S3-33")
def test_a_frame_that_was_never_planned_returns_no_advice(stage: Stage, provider: ScriptedProvider) -> None:
    chat = stage.chat()
    provider.will(does(push("Look")), does(pop("nothing", "failed")), says("Hm."))
    chat.says("Look.")

    assert "<next>" not in told(provider)


def todo(*states: str) -> ScriptedCall:
    """The client's list of two items as it stands now."""
    items = [{"content": name, "status": state, "id": name} for name, state in zip("AB", states, strict=True)]
    return call("todowrite", todos=items)


@pytest.mark.rows("S2-11", "S3-33")
def test_the_clients_own_plan_is_left_to_the_client(stage: Stage, provider: ScriptedProvider) -> None:
    """C19: its items come and go without a word of ours."""
    chat = stage.chat(tools=("bash", "todowrite"))
    provider.will(does(todo("in_progress", "pending")), does(todo("completed", "in_progress")))
    provider.will(does(todo("completed", "completed")), says("Done."))
    chat.says("Build it.")
    for _ in range(3):
        chat.returns("ok")

    assert "<next>" not in "".join(texts(provider.received[-1].messages))
