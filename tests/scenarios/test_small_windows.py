"""A model with a small window is told what it needs to know now: its goal, its task, what comes next, how things stand.

Every scenario ends before the judge of `tests.laws`: what is told in a line stays told so.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from callstack_proxy.config_sources import load_config
from llm_test_provider import ScriptedProvider, call, says
from proxy.errors import InvalidConfiguration
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
from tests.scenarios.bound import BoundModel

TOOLS = ("bash", "edit", "read")
BEGIN, END = "<stack-context ", "</stack-context>"
IN_A_LINE = '; all of it: stack_recall with ref="'


def blocks(messages: list[Json]) -> list[ElementTree.Element]:
    """The blocks on a line, in order."""
    pieces = [piece for text in texts(messages) for piece in text.split(BEGIN)[1:]]
    return [ElementTree.fromstring(BEGIN + piece.partition(END)[0] + END) for piece in pieces if END in piece]


def marks(block: ElementTree.Element) -> list[str]:
    return (block.findtext("state") or "").splitlines()


@pytest.fixture
def small(stage: Stage) -> RunningProxy:
    return stage.proxy(view="minimal")


@pytest.fixture
def chat(stage: Stage, small: RunningProxy) -> Conversation:
    return stage.chat(small, tools=TOOLS)


@pytest.mark.rows("S3-01", "S3-02", "S3-04", "S3-07", "C2b", "S3-37")
def test_a_subtask_sees_its_goal_its_task_and_the_next_one_alone(
    chat: Conversation, provider: ScriptedProvider
) -> None:
    """S3-02, S3-07: not what its siblings came to, not what is planned later, no history of its parents."""
    provider.will(
        does(push("Auth")),
        does(bash("cat secret-of-auth")),
        does(pop("JWT it is.")),
        does(push("Pay")),
        does(plan("Card", "Bank", "Report")),
        does(activate("Card")),
        says("Working on cards."),
    )
    chat.says("Build the shop.")
    chat.returns("what auth read")

    line = provider.received[-1].messages
    goal, task, subtask = (blocks(line)[-1].find(name) for name in ("goal", "task", "subtask"))
    assert [e.findtext("title") for e in (goal, task, subtask) if e is not None] == ["Build the shop.", "Pay", "Card"]
    following = blocks(line)[-1].find("next-subtask")
    assert following is not None
    assert following.get("title") == "Bank"
    told = "".join(texts(line))
    assert not [word for word in ("JWT it is.", "what auth read", "Report") if word in told]


@pytest.mark.rows("S3-03")
def test_of_ten_actions_three_stand_whole_and_the_others_in_a_line(
    chat: Conversation, provider: ScriptedProvider
) -> None:
    """S3-03: by one change of the line, and all of it can be recalled."""
    provider.will(*(does(bash(f"step {n}")) for n in range(10)), says("Done."))
    chat.says("Do it.")
    for number in range(10):
        chat.returns(f"output of step {number}: " + "more of it " * 60)

    results = [m["content"] for m in provider.received[-1].messages if m["role"] == "tool"]
    assert [IN_A_LINE in text for text in results] == [True] * 7 + [False] * 3
    assert all(text.startswith("bash → ") and len(text) < 100 for text in results[:7])
    lines = [[m for m in received.messages if m["role"] == "tool"] for received in provider.received]
    assert [sum(IN_A_LINE in m["content"] for m in line) for line in lines] == [0] * 10 + [7]


@pytest.mark.spoken_in("chat", reason="elsewhere reasoning is signed, and any model may bind it")
def test_what_was_thought_behind_a_result_told_in_a_line_is_left_out(
    chat: Conversation, provider: ScriptedProvider
) -> None:
    """L8: a model that binds its reasoning refuses none; what was thought in front of the change stays."""
    bound = BoundModel()
    steps = [does(bash(f"step {n}"), reasoning=f"about {n}") for n in range(12)]
    provider.will(*map(bound, steps), bound(says("Done.", reasoning="at last")))
    chat.says("Do it.", model="claude-opus-5.5")
    for number in range(12):
        chat.returns(f"output {number} " * 200, model="claude-opus-5.5")

    assert bound.faults == []
    line = provider.received[-1].messages
    assert sum(IN_A_LINE in str(m["content"]) for m in line) == 7
    thoughts = [m["reasoning_content"].partition("|")[0] for m in line if m.get("reasoning_content")]
    assert thoughts == ["about 0", "about 10", "about 11"]


@pytest.mark.proves("S3-03")
@pytest.mark.rows("S3-03")
def test_an_error_is_cut_at_a_hundred_characters(chat: Conversation, provider: ScriptedProvider) -> None:
    provider.will(*(does(bash(f"step {n}")) for n in range(11)), says("Done."))
    chat.says("Do it.")
    for number in range(11):
        chat.returns("Error: it broke at " + "one place after the other " * 40 + str(number))

    told = next(m["content"] for m in provider.received[-1].messages if m["role"] == "tool")
    words = told.partition(" → error: ")[2].partition(IN_A_LINE)[0]
    assert len(words) == 100
    assert words.endswith("...")


@pytest.mark.rows("S3-05", "S3-37")
def test_the_state_of_tests_and_files_is_told_at_the_next_entry(chat: Conversation, provider: ScriptedProvider) -> None:
    """S3-05: failed, then passed; and what was written is there."""
    provider.will(
        does(bash("pytest -q")),
        does(push("Mend it")),
        does(call("edit", filePath="src/a.py", oldString="x", newString="y")),
        does(bash("pytest -q")),
        does(pop("mended")),
        does(push("Polish it")),
        says("Polishing."),
    )
    chat.says("Make the tests pass.")
    chat.returns("1 failed, 3 passed in 0.1s\nExit code: 1")
    before = marks(blocks(provider.received[-1].messages)[-1])
    chat.returns("The file src/a.py has been updated.")
    chat.returns("4 passed in 0.1s\nExit code: 0")
    after = marks(blocks(provider.received[-1].messages)[-1])

    assert before == ["tests ✗"]
    assert after == ["tests ✓", "src/a.py ✓"]


@pytest.mark.rows("S3-05")
def test_more_commands_can_be_named_as_probes(stage: Stage, provider: ScriptedProvider) -> None:
    chat = stage.chat(stage.proxy(view="minimal", probes__deploy="./deploy*"), tools=TOOLS)
    provider.will(does(bash("./deploy.sh staging")), does(push("Look at it")), says("Looking."))
    chat.says("Deploy.")
    chat.returns("deployed\nExit code: 0")

    assert marks(blocks(provider.received[-1].messages)[-1]) == ["deploy ✓"]


@pytest.mark.rows("S3-06")
def test_a_loop_is_told_of_in_the_minimal_view_too(chat: Conversation, provider: ScriptedProvider) -> None:
    provider.will(*(does(bash("git status")) for _ in range(3)), says("I stop."))
    chat.says("Commit it.")
    for _ in range(3):
        chat.returns("nothing to commit")

    assert "3 times" in texts(provider.received[-1].messages)[-1]


@pytest.mark.rows("C2b")
def test_one_model_may_have_it_and_another_not(stage: Stage, provider: ScriptedProvider) -> None:
    """By name or glob."""
    proxy = stage.proxy(**{"models.small-*.view": "minimal"})
    for model, views in (("small-7b", ["minimal"]), ("large", [None])):
        provider.will(does(push("Look")), says("Looking."))
        stage.chat(proxy, tools=TOOLS, model=model).says(f"Look with {model}.")
        assert [block.get("view") for block in blocks(provider.received[-1].messages)][-1:] == views


@pytest.mark.rows("S0-24", "C3")
def test_the_nested_form_can_be_chosen(stage: Stage, provider: ScriptedProvider) -> None:
    chat = stage.chat(stage.proxy(block_format="nested", child_view="isolate"), tools=TOOLS)
    provider.will(does(push("Auth")), does(pop("JWT it is.")), does(push("Pay")), says("Paying."))
    chat.says("Build the shop.")

    told = blocks(provider.received[-1].messages)[-1]
    assert told.findtext("title") == "Build the shop."
    assert [(e.findtext("title"), e.get("status")) for e in told.iterfind("child")] == [
        ("Auth", "completed"),
        ("Pay", "in_progress"),
    ]


@pytest.mark.rows("S0-24", "C20")
def test_behind_an_ended_tree_the_nested_form_tells_of_the_next_root_and_a_fork_of_the_way_to_it(
    stage: Stage, provider: ScriptedProvider
) -> None:
    chat = stage.chat(stage.proxy(block_format="nested"), tools=TOOLS)
    provider.will(does(pop("All is done.")), says("Finished."), does(push("Draft")), says("Drafting."))
    chat.says("Build the shop.")
    chat.says("Write the news.")

    root, pushed = blocks(provider.received[-1].messages)[-2:]
    assert [(e.findtext("title"), e.get("root")) for e in root.iterfind("child")] == [("Build the shop.", "true")]
    assert [e.text for e in pushed.iterfind("in")] == ["Write the news."]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("view", "tiny"),
        ("block_format", "round"),
        ("models.gpt-x.view", "flat"),
        ("block_figures", "perhaps"),
        ("probes", "pytest"),
        ("pressure_warning", "1.5"),
        ("pressure_warning", "nan"),
        ("events_file", "somewhere"),
    ],
)
def test_a_setting_that_is_none_is_refused_by_name(key: str, value: str) -> None:
    with pytest.raises(InvalidConfiguration, match=re.escape(key)):
        load_config({"upstreams.default.url": "http://127.0.0.1:1/v1", key: value})
