"""What a child sees of its parents, and what its parents get of it (THREAD: phi and psi).

How deep frames nest, what each view shows, and what returns from a frame that nobody popped.
"""

from __future__ import annotations

import pytest

from llm_test_provider import ScriptedProvider, call, says
from tests import laws
from tests.harness import Conversation, Json, Stage, bash, does, pop, push, texts
from tests.scenarios.sessions import TOOLS, Session


def line_of(provider: ScriptedProvider) -> list[Json]:
    return provider.received[-1].messages


@pytest.mark.rows("S2-06")
def test_frames_are_pushed_inside_frames_to_any_depth(chat: Conversation, provider: ScriptedProvider) -> None:
    titles = ["One", "Two", "Three", "Four"]
    provider.will(*(does(push(title)) for title in titles), says("down"))
    chat.says("go")
    provider.will(*(does(pop(f"{title} done")) for title in reversed(titles)), says("up"))
    chat.says("and back")

    frames = chat.proxy.frames()
    deepest = chat.proxy.get(f"/stack/frames/{frames['Four']['sessionID']}")
    names = {frame["sessionID"]: title for title, frame in frames.items()}
    assert [names[above] for above in deepest["ancestors"]] == ["Three", "Two", "One", "go"]
    assert {frames[title]["status"] for title in titles} == {"completed"}


@pytest.mark.rows("S2-07")
@pytest.mark.parametrize(
    ("view", "kept"), [("fork", ["one", "two", "three"]), ("isolate", []), ("last:2", ["two", "three"])]
)
def test_a_child_sees_of_its_parent_what_its_view_shows(
    stage: Stage, provider: ScriptedProvider, view: str, kept: list[str]
) -> None:
    """The parent's line and its own; the task alone; the task and the parent's newest steps."""
    chat = stage.chat(stage.proxy(child_view=view))
    steps = ["one", "two", "three"]
    provider.will(
        *(does(bash(step)) for step in steps),
        does(push("Child", "it is done")),
        does(bash("own")),
        says("ok"),
    )
    chat.says("the task")
    for step in steps:
        chat.returns(f"OUTPUT of {step}")
    chat.returns("OUTPUT of own")

    line = line_of(provider)
    results = [laws.text_of(m) for m in line if m["role"] == "tool"]
    assert [step for step in steps if f"OUTPUT of {step}" in results] == kept
    assert "OUTPUT of own" in results
    assert "user: the task" in texts(line)
    pushes = [id_ for m in line for id_, name in laws.calls_of(m) if name == "stack_frame_push"]
    assert len(pushes) == (1 if view == "fork" else 0)
    told = next(m for m in line if "<stack-context" in laws.text_of(m) and m["role"] not in laws.HEADS)
    assert told["role"] == ("tool" if view == "fork" else "user")
    assert ("it is done" in laws.text_of(told)) is (view != "fork")  # there the call says it


@pytest.mark.rows("S2-09")
def test_what_a_child_returns_stands_as_the_result_of_the_call_that_pushed_it(
    chat: Conversation, provider: ScriptedProvider
) -> None:
    provider.will(does(push("Child")), does(bash("work")), does(pop("CHILD RESULT")), says("ok"))
    chat.says("go")
    chat.returns("work output")

    line = line_of(provider)
    (opened,) = (id_ for m in line for id_, name in laws.calls_of(m) if name == "stack_frame_push")
    (result,) = (laws.text_of(m) for m in line if m.get("tool_call_id") == opened)
    assert "CHILD RESULT" in result
    assert "work output" not in "\n".join(texts(line))


@pytest.mark.rows("S2-10")
def test_plans_are_refined_until_what_is_left_are_calls_of_the_client(
    chat: Conversation, provider: ScriptedProvider
) -> None:
    below = [{"title": "Lexer", "successCriteria": "tokens"}, {"title": "Parser", "successCriteria": "a tree"}]
    provider.will(
        does(call("stack_frame_plan", title="Compiler", successCriteria="it compiles", children=below)),
        does(call("stack_frame_activate", sessionID="Lexer")), does(bash("write lexer")), says("ok"),
    )  # fmt: skip
    chat.says("go")
    chat.returns("written")

    statuses = chat.proxy.statuses()
    assert statuses == {"go": "in_progress", "Compiler": "in_progress", "Lexer": "in_progress", "Parser": "planned"}


@pytest.mark.rows("S2-08")
def test_marked_lines_return_from_a_frame_that_nobody_popped(stage: Stage, provider: ScriptedProvider) -> None:
    """A request of the user ended by the next one: its parent is told the marked lines, wherever they stood."""
    session = Session(stage.chat(tools=TOOLS), provider)
    first = [
        does(bash("profile"), text="Looking.\nRESULT: the export takes 5 h in `load_rows`\nMore follows."),
        does(bash("count"), text="RESULT: every invoice is read twice"),
        says("That is what I found so far."),
    ]
    provider.will(*first)
    session.chat.says("Find out why the export is slow.")
    for _ in first[:-1]:
        session.chat.returns(session.output("ok"))
    session.turn("Implement a rate limiter for the public API.", "read src/limit.py", closing="Nothing like that yet.")

    frame = session.chat.proxy.frames()["Find out why the export is slow."]
    line = "\n".join(texts(line_of(provider)))
    assert frame["status"] == "completed"
    assert frame["results"] == "the export takes 5 h in `load_rows`\nevery invoice is read twice"
    assert session.outputs_sent() == [3]
    assert line.count("the export takes 5 h in `load_rows`") == 1
    assert line.count("every invoice is read twice") == 1


@pytest.mark.rows("S2-08")
def test_the_last_words_return_where_nothing_is_marked(stage: Stage, provider: ScriptedProvider) -> None:
    session = Session(stage.chat(tools=TOOLS), provider)
    session.turn("Fix the title of the handbook.", "edit handbook.md", closing="The title is right now.")
    session.turn("Implement a rate limiter for the public API.", "read src/limit.py", closing="Nothing like that yet.")

    assert session.chat.proxy.frames()["Fix the title of the handbook."]["results"] == "The title is right now."


@pytest.mark.rows("S2-08", "S1-71i")
def test_marked_lines_return_from_a_subagent(stage: Stage, provider: ScriptedProvider) -> None:
    """Its words are the result of the call that delegated it."""
    parent = stage.chat(tools=("task", "bash"))
    prompt = "Count the endpoints in src/api and report."
    provider.will(does(call("task", prompt=prompt)))
    parent.says("how many endpoints?")
    child = stage.chat(parent.proxy, tools=("bash",))
    provider.will(says("Counted.\n**RESULT:** 17 endpoints\nBye."))
    child.says(prompt)
    provider.will(says("17."))
    parent.returns("Counted.\n**RESULT:** 17 endpoints\nBye.")

    at = next(row["id"] for row in parent.proxy.conversations if not row["parent"])
    frame = next(f for title, f in parent.proxy.frames(at).items() if title.startswith("Count"))
    assert (frame["status"], frame["results"]) == ("completed", "17 endpoints")


# ------------------------------------------------------------------------------------------------------------------ H1
@pytest.mark.rows("S2-05")
def test_exploring_on_branches_sends_13_messages_of_31(chat: Conversation, provider: ScriptedProvider) -> None:
    """The shape behind the claim of 58 % (31 messages, 13 of them needed): one task, a checkpoint, an exploration that
    leads nowhere, and the way that worked. The untouched line has all of it."""
    at = "/stack/conversations/{}/{}"
    provider.will(does(bash("ls")), says("Two ways: A and B."))
    chat.says("find out how to store sessions")
    chat.returns("files")
    conversation = chat.proxy.conversations[0]["id"]
    chat.proxy.manage("POST", at.format(conversation, "checkpoints"), {"name": "start"})
    for number, steps in enumerate((1, 1, 1, 2)):
        provider.will(*(does(bash(f"A {number}")) for _ in range(steps)), says(f"A {number} does not work."))
        chat.says(f"try A, part {number}")
        for _ in range(steps):
            chat.returns(f"error A {number}")
    chat.proxy.manage("POST", at.format(conversation, "branches"), {"name": "b", "checkpoint": "start"})
    provider.will(does(bash("B")), says("B works."))
    chat.says("try B")
    chat.returns("ok B")
    provider.will(does(bash("test")), does(bash("commit")), says("Done."))
    chat.says("finish it")
    chat.returns("passed")
    chat.returns("committed")

    sent = [m for m in line_of(provider) if m["role"] not in laws.HEADS and "<stack-context" not in laws.text_of(m)]
    untouched = chat.history[:-1]  # what the client sent with its newest request
    assert (len(untouched), len(sent)) == (31, 13)
    assert round(1 - len(sent) / len(untouched), 2) == 0.58
