"""Frames as the model works with them: plans, statuses, what the parent sees, what can be asked for afterwards.

Rows that are pointers: S0-41 is S1-30, S0-42 is S0-08, S0-45 is S1-105, S0-46 is S1-77.
"""

import json
import re
from typing import Any
from xml.etree import ElementTree

import pytest

from llm_test_provider import ScriptedAnswer as Scripted
from llm_test_provider import ScriptedProvider, call, says
from tests.harness import (
    Conversation,
    Stage,
    activate,
    as_one_text,
    bash,
    does,
    op,
    plan,
    pop,
    push,
    recall,
    spoken_on,
    texts,
)
from tests.scenarios.sessions import todo


def told(provider: ScriptedProvider, at: int = -1) -> str:
    """The newest tool result on a line; without any, in a frame that does not see its parent's, its block."""
    line = provider.received[at].messages
    newest = next((str(m["content"]) for m in reversed(line) if m["role"] == "tool"), "")
    return newest or re.findall(r"<stack-context.*?</stack-context>", "\n".join(texts(line)), re.DOTALL)[-1]


def does_one(chat: Conversation, provider: ScriptedProvider, *made: Any, then: str = "ok") -> str:
    """One user turn in which the model makes these calls in one message; what the last of them was answered."""
    provider.will(does(*made), says(then))
    chat.says("go on")
    return told(provider)


# ---------------------------------------------------------------------------------------------------------------- plans
@pytest.mark.rows("S0-26", "S0-30", "S1-37", "S1-73", "S1-75", "S1-122", "S0-46", "C21")
def test_planned_frames_cost_no_line_and_begin_nothing(provider: ScriptedProvider, chat: Conversation) -> None:
    """S0-26, S0-30, S1-37, S1-73, S1-75, S1-122: a plan changes what is known, not where the work is."""
    answer = does_one(chat, provider, plan("Model", "View", "Tests"))

    assert chat.proxy.statuses() == {
        "go on": "in_progress", "Model": "planned", "View": "planned", "Tests": "planned"
    }  # fmt: skip
    assert chat.proxy.active() == "go on"
    root = chat.proxy.frames()["go on"]
    assert [chat.proxy.frames()[t]["sessionID"] for t in ("Model", "View", "Tests")] == root["plannedChildren"]
    assert all(identifier in answer for identifier in root["plannedChildren"])


@pytest.mark.rows("S0-27", "S1-42", "S1-123")
def test_a_planned_frame_may_have_planned_children(provider: ScriptedProvider, chat: Conversation) -> None:
    """S0-27, S1-42, S1-123: the parent may itself be planned; without one it is the active frame."""
    does_one(chat, provider, plan("B"))
    does_one(chat, provider, call("stack_frame_plan_children", parentSessionID="B", children=[
        {"title": "B1", "successCriteria": "one"}, {"title": "B2", "successCriteria": "two"}
    ]))  # fmt: skip
    does_one(chat, provider, push("Child"))
    does_one(chat, provider, plan("Inside"))

    frames = chat.proxy.frames()
    assert frames["B1"]["parentSessionID"] == frames["B2"]["parentSessionID"] == frames["B"]["sessionID"]
    assert frames["Inside"]["parentSessionID"] == frames["Child"]["sessionID"]


@pytest.mark.rows("S1-38", "S1-123")
@pytest.mark.parametrize(
    "made",
    [
        plan("A", parentSessionID="nowhere"),
        call("stack_frame_plan", children=[{"title": "A", "successCriteria": "a"}, {"title": "B"}]),
        call("stack_frame_plan", children=[]),
    ],
    ids=["unknown parent", "one bad child", "nothing"],
)
def test_a_plan_is_made_whole_or_not_at_all(provider: ScriptedProvider, chat: Conversation, made: Any) -> None:
    """S1-38, S1-123: an unknown parent, a bad child or nothing to plan is an error, and no frame is made."""
    assert does_one(chat, provider, made).startswith("Error")
    assert list(chat.proxy.frames()) == ["go on"]


@pytest.mark.rows("S0-11", "S0-12", "S0-28", "C5", "S0-46")
def test_a_plan_is_mutable_until_it_begins(provider: ScriptedProvider, chat: Conversation) -> None:
    """S0-11, S0-12, S0-28, C5: title and criteria change while planned; from activation on they are fixed."""
    does_one(chat, provider, plan("A"))
    frame = chat.proxy.frames()["A"]["sessionID"]
    does_one(chat, provider, call("stack_frame_plan", frameID=frame, title="A2", successCriteria="better"))
    assert chat.proxy.frames()["A2"]["successCriteria"] == "better"
    does_one(chat, provider, activate(frame))

    answer = does_one(chat, provider, call("stack_frame_plan", frameID=frame, title="A3", successCriteria="x"))

    assert answer.startswith("Error")
    assert "A2" in chat.proxy.frames()


@pytest.mark.rows("S1-122", "S1-123", "C21")
def test_a_planned_frame_that_is_changed_takes_several_children_or_none(
    provider: ScriptedProvider, chat: Conversation
) -> None:
    """Each is a frame of its own, and named; one without a title is refused with all of them."""
    does_one(chat, provider, plan("A"))
    frame = chat.proxy.frames()["A"]["sessionID"]
    steps = [{"title": title, "successCriteria": f"{title} works"} for title in ("Model", "View", "Tests")]
    bad = call("stack_frame_plan", frameID=frame, children=[*steps, {"successCriteria": "works"}])
    assert does_one(chat, provider, bad).startswith("Error: title is missing")
    assert "Model" not in chat.proxy.frames()

    answer = does_one(chat, provider, call("stack_frame_plan", frameID=frame, children=steps))

    made = chat.proxy.frames()
    assert made["A"]["plannedChildren"] == [made[step["title"]]["sessionID"] for step in steps]
    assert all(f"{made[step['title']]['sessionID']}: {step['title']}" in answer for step in steps)


@pytest.mark.rows("S1-72", "S1-74", "S1-124", "D9")
def test_activate_opens_the_line_of_the_planned_frame_in_the_same_turn(
    provider: ScriptedProvider, chat: Conversation
) -> None:
    """S1-72, S1-74, S1-124: the id of the plan is the id activated, and stays; the block has the criteria."""
    does_one(chat, provider, plan("Model", "View"))
    frame = chat.proxy.frames()["Model"]["sessionID"]

    block = does_one(chat, provider, activate(frame))

    assert chat.proxy.active() == "Model"
    assert chat.proxy.frames()["Model"]["sessionID"] == frame
    assert "Model works" in block
    assert f'<current-frame id="{frame}"' in block
    does_one(chat, provider, pop("Model is done."), then="back")
    assert "Model is done." not in does_one(chat, provider, activate("View"))
    assert "Model is done." in as_one_text(provider.received[-1].messages)


@pytest.mark.rows("S0-32", "S1-39", "S1-106")
def test_what_was_completed_cannot_be_activated_or_popped_again(provider: ScriptedProvider, chat: Conversation) -> None:
    """S0-32, S1-39, S1-106: the error names the status."""
    does_one(chat, provider, push("A"))
    does_one(chat, provider, pop("tried"))

    for made in (activate("A"), pop("again", frameID="A")):
        answer = does_one(chat, provider, made)
        assert answer.startswith("Error")
        assert "completed" in answer
    assert chat.proxy.statuses()["A"] == "completed"


@pytest.mark.rows("S1-106")
def test_a_pop_without_results_or_with_no_such_status_ends_nothing(
    provider: ScriptedProvider, chat: Conversation
) -> None:
    """S1-106: the error says what is missing; a pop that names no status completes its frame."""
    does_one(chat, provider, push("A"))
    does_one(chat, provider, plan("B"))

    for made, words in (
        (pop("done", frameID="B"), f"Error: frame {chat.proxy.frames()['B']['sessionID']} is planned, not open."),
        (pop(""), "Error: results is missing or empty."),
        (call("stack_frame_pop", status="completed"), "Error: results is missing or empty."),
        (pop("done", "finished"), "Error: status 'finished' is none of blocked, completed, failed."),
    ):
        assert does_one(chat, provider, made).startswith(words)
        assert chat.proxy.statuses()["A"] == "in_progress"
    does_one(chat, provider, call("stack_frame_pop", results="done", resultsCompacted="short"))
    frame = chat.proxy.frames()["A"]
    assert (frame["status"], frame["results"], frame["resultsCompacted"]) == ("completed", "done", "short")


@pytest.mark.rows("S0-33", "S0-39", "S1-106")
def test_what_failed_cannot_be_popped_again_and_activated_is_another_frame(
    provider: ScriptedProvider, chat: Conversation
) -> None:
    """S0-33, S0-39, S1-106: its status and its results stay as they are."""
    does_one(chat, provider, push("A"))
    does_one(chat, provider, pop("tried", status="failed"))
    first = chat.proxy.frames()["A"]["sessionID"]

    answer = does_one(chat, provider, pop("again", frameID="A"))
    assert answer.startswith("Error")
    assert "failed" in answer
    does_one(chat, provider, activate("A"))
    before = chat.proxy.get(f"/stack/frames/{first}")
    assert (before["status"], before["results"], before["active"]) == ("failed", "tried", False)
    assert chat.proxy.active() == "A"


@pytest.mark.rows("S0-34", "C6")
def test_a_blocked_frame_is_resumed_as_a_new_segment(provider: ScriptedProvider, chat: Conversation) -> None:
    """S0-34, C6: same id; the earlier attempt's outcome is told, its messages do not come back."""
    does_one(chat, provider, push("Deploy"), then="I need the password.")
    does_one(chat, provider, pop("Needs the password.", status="blocked"), then="waiting")
    frame = chat.proxy.frames()["Deploy"]
    assert frame["status"] == "blocked"

    block = does_one(chat, provider, activate("Deploy"))

    assert chat.proxy.active() == "Deploy"
    assert chat.proxy.frames()["Deploy"]["sessionID"] == frame["sessionID"]
    assert "Needs the password." in block
    assert "I need the password." not in spoken_on(provider.received[-1].messages)
    assert chat.proxy.get(f"/stack/frames/{frame['sessionID']}")["attempts"] == 2


def test_activating_what_is_not_below_says_pop_first(provider: ScriptedProvider, chat: Conversation) -> None:
    does_one(chat, provider, plan("A", "B"))
    does_one(chat, provider, activate("A"))

    assert "Pop" in does_one(chat, provider, activate("B"))
    assert chat.proxy.active() == "A"


@pytest.mark.rows("S0-29", "S0-35", "S1-41", "S1-77", "S1-78", "S1-79", "S1-80", "S1-125")
def test_invalidation_takes_the_planned_and_warns_of_the_running(
    provider: ScriptedProvider, chat: Conversation
) -> None:
    """S0-29, S0-35, S1-41, S1-77 to S1-80, S1-125: planned descendants of any depth go, those in progress are named,
    what ended stays; the active target returns to its parent."""
    does_one(chat, provider, push("Feature"))
    does_one(chat, provider, push("Done part"))
    does_one(chat, provider, pop("part"))
    does_one(chat, provider, call("stack_frame_plan", title="P", successCriteria="p", children=[
        {"title": "P1", "successCriteria": "p1", "children": [{"title": "P11", "successCriteria": "p11"}]}
    ]))  # fmt: skip
    does_one(chat, provider, push("Running"))

    answer = does_one(chat, provider, op("invalidate", sessionID="Feature", reason="the user changed their mind"))

    statuses = chat.proxy.statuses()
    assert {t: statuses[t] for t in ("Feature", "P", "P1", "P11")} == dict.fromkeys(
        ("Feature", "P", "P1", "P11"), "invalidated"
    )
    assert statuses["Done part"] == "completed"
    assert statuses["Running"] == "in_progress"
    assert "Warning" in answer
    assert "Running" in answer
    frames = chat.proxy.frames()
    assert frames["Feature"]["invalidationReason"] == "the user changed their mind"
    assert frames["P11"]["invalidationReason"].startswith("Parent frame invalidated: ")
    assert frames["Feature"]["invalidatedAt"] > 0


@pytest.mark.rows("S1-80")
def test_an_invalidated_active_frame_leaves_the_line_and_returns_to_its_parent(
    provider: ScriptedProvider, chat: Conversation
) -> None:
    """S1-80: its messages leave with it, what it did stays behind its ref."""
    does_one(chat, provider, push("Wrong way"), then="going wrong")

    does_one(chat, provider, op("invalidate", reason="wrong"))

    assert chat.proxy.active() == "go on"
    assert chat.proxy.statuses()["Wrong way"] == "invalidated"
    line = as_one_text(provider.received[-1].messages)
    assert "going wrong" not in spoken_on(provider.received[-1].messages)
    assert chat.proxy.frames()["Wrong way"]["sessionID"] in line


# --------------------------------------------------------------------------------------------------- results and recall
@pytest.mark.rows("S0-04", "S0-10", "S0-14", "S0-15", "S0-16", "S0-17", "S0-18", "S0-43", "S2-12", "S1-02")
def test_a_pop_returns_results_paths_and_a_pointer(provider: ScriptedProvider, chat: Conversation) -> None:
    """S0-04, S0-10, S0-14 to S0-18, S0-43, S2-12: the model's text, the paths of its calls, the ref; nothing of what
    it did."""
    provider.will(
        does(push("Auth")), does(call("write", filePath="src/auth.py", content="x = 1")),
        does(call("read", filePath="src/user.py")), does(pop("Login works. SECRET-FREE.")), says("done"),
    )  # fmt: skip
    chat.says("add a login")
    chat.returns("Wrote 1 line")
    chat.returns("class User: UNIQUE-CONTENT")

    line = as_one_text(provider.received[-1].messages)
    for words in ("Login works. SECRET-FREE.", "src/auth.py", "src/user.py", chat.proxy.frames()["Auth"]["sessionID"]):
        assert words in line
    for words in ("UNIQUE-CONTENT", "Wrote 1 line", "x = 1"):
        assert words not in line
    frame = chat.proxy.frames()["Auth"]
    assert frame["results"] == "Login works. SECRET-FREE."
    assert frame["resultsCompacted"]


@pytest.mark.rows("S0-04", "S2-12")
def test_a_pop_tells_what_was_done_in_the_frames_below_it(stage: Stage, provider: ScriptedProvider) -> None:
    """S2-12: all of it leaves with the frame. The items of a plan were opened by no call, so nothing else tells what
    was decided in them."""

    def edit(path: str) -> Scripted:
        return does(call("edit", filePath=path, oldString="a", newString="b"))

    chat = stage.chat(tools=("edit", "TodoWrite"))
    decides = does(call("stack_add_decision", decision="tables by hand"))
    provider.will(
        does(push("Auth")), does(todo("[>] Lexer | [ ] Parser")), edit("src/item.py"), decides,
        does(todo("[x] Lexer | [x] Parser")), does(push("Deep")), edit("src/deep.py"), does(pop("deep")),
        edit("src/own.py"), does(pop("done")), says("all done"),
    )  # fmt: skip
    message = chat.says("add a login").message
    while message.get("tool_calls"):
        message = chat.returns("The file has been updated.").message

    results = told(provider)
    assert "<files>changed: src/item.py, src/deep.py, src/own.py</files>" in results
    assert "<decisions>- tables by hand</decisions>" in results


@pytest.mark.rows("S2-21")
def test_a_frame_that_was_resumed_tells_what_both_its_attempts_changed(
    provider: ScriptedProvider, chat: Conversation
) -> None:
    """S2-21: what the first one changed is still said to be changed."""
    write = does(call("write", filePath="src/auth.py", content="x = 1"))
    provider.will(does(push("Auth")), write, does(pop("needs a key", status="blocked")), says("I need a key."))
    chat.says("add a login")
    chat.returns("Wrote 1 line")
    frame = chat.proxy.frames()["Auth"]["sessionID"]
    write = does(call("write", filePath="src/key.py", content="x = 1"))
    provider.will(does(activate(frame)), write, does(pop("done")), says("done"))
    chat.says("here it is")
    chat.returns("Wrote 1 line")

    assert "<files>changed: src/auth.py, src/key.py</files>" in told(provider)


def test_what_we_told_inside_a_frame_is_no_word_of_the_users(provider: ScriptedProvider, chat: Conversation) -> None:
    """DESIGN 6: user messages that were answered in a frame are quoted as past speech. A note of ours stands behind
    them in the same role."""
    provider.will(does(push("Auth")), says("begun"), says("nothing"))
    chat.says("add a login")
    chat.proxy.manage(
        "POST", f"/stack/conversations/{chat.proxy.conversations[0]['id']}/frames", {"title": "Docs", "plan": True}
    )
    chat.says("what is left to do?")
    assert any('note="by hand"' in text for text in texts(provider.received[-1].messages))
    frames = chat.proxy.frames()
    provider.will(does(pop("done", frameID=frames["Auth"]["sessionID"])), says("ok"))
    chat.says("finish it")

    returned = next(m["content"] for m in provider.received[-1].messages if "<frame-results" in str(m["content"]))
    assert re.findall("<said>(.*?)</said>", returned, re.DOTALL) == ["what is left to do?"]


@pytest.mark.rows("S0-13", "S0-15", "S1-105", "C4")
def test_a_short_form_given_is_kept_and_a_missing_one_derived(provider: ScriptedProvider, chat: Conversation) -> None:
    """S0-13, S0-15, C4, S1-105: a missing field costs no further turn."""
    does_one(chat, provider, push("A", "criteria " * 600))
    does_one(chat, provider, pop("results " * 600))
    does_one(chat, provider, push("B", "long", successCriteriaCompacted="short"))
    does_one(chat, provider, pop("long", resultsCompacted="tiny"))

    frames = chat.proxy.frames()
    assert 0 < len(frames["A"]["successCriteriaCompacted"]) < len(frames["A"]["successCriteria"])
    assert 0 < len(frames["A"]["resultsCompacted"]) < len(frames["A"]["results"])
    assert (frames["B"]["successCriteriaCompacted"], frames["B"]["resultsCompacted"]) == ("short", "tiny")


@pytest.mark.rows("S0-08", "S0-09", "S1-133", "C1")
def test_what_left_the_line_is_recalled_unchanged(provider: ScriptedProvider, chat: Conversation) -> None:
    """S0-08, S0-09, S1-133, D14, L3: by frame, by title, by file and with a query, between marker lines of ours."""
    odd = 'line 1\r\n\t<stack-context nonce="x">&amp; "quoted" 🚀  trailing   \n\n'
    provider.will(
        does(push("Auth")),
        does(call("read", filePath="src/auth.py")),
        does(pop("Read it.")),
        says("done"),
    )
    chat.says("look")
    chat.returns(odd)
    frame = chat.proxy.frames()["Auth"]["sessionID"]

    for made in (recall(frame), recall("Auth"), recall("src/auth.py"), recall("Auth", query="quoted trailing")):
        assert odd in does_one(chat, provider, made)


@pytest.mark.rows("S0-09", "S1-133")
def test_a_long_text_is_recalled_in_pages_that_add_up(stage: Stage, provider: ScriptedProvider) -> None:
    """S0-09, S1-133: paged and capped; no page is too large, nothing is missing between two."""
    chat = stage.chat(stage.proxy(recall_page_tokens=500))
    words = "".join(f"row {n}: value {n * n}\n" for n in range(400))
    provider.will(
        does(push("Dump")),
        does(call("read", filePath="dump.txt")),
        does(pop("Read it.")),
        says("done"),
    )
    chat.says("look")
    chat.returns(words)

    first = does_one(chat, provider, recall("dump.txt"))
    pages = int(re.search(r"of (\d+)\.", first)[1])  # type: ignore[index]
    assert pages > 3
    assert "row 399" not in first
    whole = "".join(does_one(chat, provider, recall("dump.txt", page=str(n + 1))) for n in range(pages))
    assert all(f"row {n}: value {n * n}\n" in whole.replace("\r", "") for n in (0, 150, 399))
    assert does_one(chat, provider, recall("dump.txt", page="99")).startswith("Error")


def test_recall_points_at_what_is_still_in_view(provider: ScriptedProvider, chat: Conversation) -> None:
    """DESIGN 6: what the model still sees is not repeated."""
    provider.will(does(bash("cat a")), says("read"))
    chat.says("look")
    chat.returns("UNIQUE-CONTENT")
    root = chat.proxy.frames()["look"]["sessionID"]

    answer = does_one(chat, provider, recall(root))

    assert "Still in your context" in answer
    assert "UNIQUE-CONTENT" not in answer


@pytest.mark.rows("S0-01", "S0-02", "S0-08", "S0-42", "S1-09", "C1")
def test_every_frame_keeps_its_whole_log(provider: ScriptedProvider, chat: Conversation) -> None:
    """S0-01, S0-02, S0-08, S0-42, S1-09: also what no line carries any more."""
    provider.will(does(push("A")), does(bash("ls")), does(pop("done")), says("back"))
    chat.says("begin")
    chat.returns("a.py")
    frame = chat.proxy.frames()["A"]

    log = chat.proxy.log(frame["sessionID"])

    assert [(e["role"], e["text"]) for e in log][:2] == [("assistant", ""), ("tool", "a.py")]
    assert [c["name"] for c in log[0]["calls"]] == ["bash"]
    assert [json.loads(told)["content"] for told in chat.proxy.tongue.kept(log[1]["wire"])] == ["a.py"]
    assert frame["logPath"]


@pytest.mark.rows("S0-01")
def test_each_message_of_the_logs_belongs_to_one_frame(provider: ScriptedProvider, chat: Conversation) -> None:
    """S0-01: also one that a pop handed on, which both logs have."""
    does_one(chat, provider, push("A"), then="begun")
    provider.will(does(pop("done")), does(push("B")), says("ok"))
    chat.says("now B")
    frames = {title: frame["sessionID"] for title, frame in chat.proxy.frames().items()}
    logs = {title: chat.proxy.log(frame) for title, frame in frames.items()}

    owners = {(entry["id"], entry["frame"]) for log in logs.values() for entry in log}
    assert len(owners) == len({id_ for id_, _ in owners})
    (root, *_) = frames
    assert {e["frame"] for log in logs.values() for e in log if e["text"] == "now B"} == {frames[root]}
    assert all("now B" in [entry["text"] for entry in logs[title]] for title in (root, "A"))


# ------------------------------------------------------------------------------------------------------- active context
@pytest.mark.rows("S0-20", "S0-21", "S0-22", "S0-23", "S0-25", "S0-44", "S2-28", "S2-29", "S2-30", "S2-31")
def test_the_block_has_the_way_up_and_the_uncles(provider: ScriptedProvider, stage: Stage) -> None:
    """S0-20 to S0-23, S0-25, S0-44, S2-28 to S2-31: goal, parent, finished siblings of every frame on the path;
    no cousin's history; XML whatever the titles hold."""
    chat = stage.chat(stage.proxy(child_view="isolate"))
    does_one(chat, provider, push('A <"quoted" & odd>', "a < b"))
    does_one(chat, provider, push("A1"))
    does_one(chat, provider, pop("A1 results"))
    does_one(chat, provider, pop("A results <b>bold</b>"))
    does_one(chat, provider, push("B", "B criteria"))

    block = does_one(chat, provider, push("B1", "B1 criteria"))

    tree = ElementTree.fromstring(block)
    assert tree.tag == "stack-context"
    words = "".join(tree.itertext())
    for expected in ("go on", "B criteria", "B1 criteria", "A results <b>bold</b>", 'A <"quoted" & odd>'):
        assert expected in words
    assert len(tree.findall("current-frame")) == 1


@pytest.mark.rows("S0-20", "S0-21", "S0-25")
def test_the_block_of_a_fork_tells_only_what_the_context_before_it_does_not_show(
    provider: ScriptedProvider, chat: Conversation
) -> None:
    does_one(chat, provider, push("A", "A works"), then="A-UNIQUE exploration")
    does_one(chat, provider, pop("A results"))
    block = does_one(chat, provider, push("B", "B criteria"))
    ids = {title: frame["sessionID"] for title, frame in chat.proxy.frames().items()}

    _, above, advice, _ = block.splitlines()
    assert above == f'<in id="{ids["go on"]}">go on</in>'
    assert advice == '<next-action>When the criteria of "B" are met, pop with results.</next-action>'
    assert "A results" in as_one_text(provider.received[-1].messages)
    assert "A-UNIQUE" not in spoken_on(provider.received[-1].messages)

    does_one(chat, provider, plan("C", "D"))
    block = does_one(chat, provider, push("C"))
    assert 'title="D"' in block
    assert not re.search("B criteria|A results|completed-siblings", block)


@pytest.mark.asked("plain")
@pytest.mark.rows("S0-20", "S0-25")
def test_a_fork_of_a_frame_that_does_not_see_its_parents_reads_all(provider: ScriptedProvider, stage: Stage) -> None:
    chat = stage.chat(stage.proxy(child_view="isolate"))
    does_one(chat, provider, push("A", "A works"))
    provider.will(does(push("B", "B criteria"), bash("ls")), says("ok"))
    chat.says("go on")
    chat.returns("a.py")

    block = re.findall(
        r"<stack-context.*?</stack-context>", "\n".join(texts(provider.received[-1].messages)), re.DOTALL
    )
    assert "A works" in block[-1]
    assert "B criteria" in block[-1]


@pytest.mark.rows("S0-21", "S0-47", "S1-48", "D5")
def test_a_small_budget_is_kept_and_the_goal_stays(stage: Stage, provider: ScriptedProvider) -> None:
    """S0-21, S0-47, S1-48, D5: the whole block fits its total by the counter of the receipts."""
    chat = stage.chat(stage.proxy(budgets__total=500, child_view="isolate"))
    for depth in range(5):
        does_one(chat, provider, push(f"Level {depth}", "criteria " * 100))

    block = does_one(chat, provider, push("Deepest", "criteria " * 100))

    assert len(block) / 4 < 600
    assert "<title>go on</title>" in block
    ElementTree.fromstring(block)


@pytest.mark.rows("S0-19", "S2-31")
def test_thirty_turns_in_one_frame_are_all_on_its_line(provider: ScriptedProvider, chat: Conversation) -> None:
    """S0-19, S2-31: the active frame is never trimmed."""
    provider.will(*(does(bash(f"step {n}")) for n in range(30)), says("done"))
    chat.says("go")
    for n in range(30):
        chat.returns(f"result {n}")

    line = as_one_text(provider.received[-1].messages)
    assert all(f"result {n}" in line for n in range(30))


@pytest.mark.rows("S1-03", "S1-62", "C8", "D12", "S1-61")
def test_the_block_is_frozen_while_its_frame_runs(provider: ScriptedProvider, chat: Conversation) -> None:
    """S1-03, S1-62, C8, D12: a decision is told in its result; the bytes before it stay."""
    does_one(chat, provider, push("A"))
    opening = told(provider)
    does_one(chat, provider, op("add_decision", decision="Use JWT", reason="simple"))
    does_one(chat, provider, op("add_artifact", artifact="a.py"))

    block, decision, artifact = (m["content"] for m in provider.received[-1].messages if m["role"] == "tool")
    assert block == opening
    assert decision.endswith(": Use JWT (because: simple).")
    assert artifact.endswith(": a.py.")


@pytest.mark.rows("S0-19", "S0-20", "S0-21", "S0-22", "S0-23")
@pytest.mark.parametrize("view", ["isolate", "last:2"])
def test_a_child_with_a_narrower_view_sees_the_task_and_no_history(
    stage: Stage, provider: ScriptedProvider, view: str
) -> None:
    """S0-19 to S0-23, DESIGN 6 views: head, all user messages, one text with task and block; `last:2` adds the parent's
    last two call groups."""
    chat = stage.chat(stage.proxy(child_view=view))
    provider.will(
        *(does(bash(f"step {n}")) for n in range(4)), does(push("Auth", "login works")), does(bash("in child")),
        says("seen"), does(pop("done")), says("back"), says("end"),
    )  # fmt: skip
    chat.says("explore")
    for n in range(4):
        chat.returns(f"result {n}")
    in_child = provider.received[-1].messages
    chat.returns("child result")
    chat.says("go on")
    chat.says("and?")

    seen = as_one_text(in_child)
    shown = [f"result {n}" for n in range(4) if f"result {n}" in seen]
    assert shown == ([] if view == "isolate" else ["result 2", "result 3"])
    assert "stack_frame_push" not in json.dumps([m.get("tool_calls") for m in in_child])
    assert texts(in_child)[1] == "user: explore"
    assert in_child[-1]["role"] == "user"
    assert "login works" in in_child[-1]["content"]
    back = as_one_text(provider.received[-1].messages)
    assert all(f"result {n}" in back for n in range(4))
    assert "child result" not in back


# ---------------------------------------------------------------------------------------------------------- other tools
@pytest.mark.rows("S1-107", "S1-108", "S1-109", "S1-131", "S0-45")
def test_looking_tools_answer_with_the_tree(provider: ScriptedProvider, chat: Conversation) -> None:
    """S1-107 to S1-109, S1-131: status, tree, details by id and title, state as JSON."""
    does_one(chat, provider, plan("Later"))
    does_one(chat, provider, push("Auth", "login works"))
    does_one(chat, provider, pop("Login is done."))
    does_one(chat, provider, push("Now"))

    status = does_one(chat, provider, op("status"))
    tree = does_one(chat, provider, op("tree"))
    details = does_one(chat, provider, op("details", frameID="Auth"))
    state = json.loads(does_one(chat, provider, op("get_state")))

    assert all(icon in status for icon in ("[P]", "[*]", "[+]"))
    assert all(title in tree for title in ("Later", "Auth", "Now"))
    assert "login works" in details
    assert "Login is done." in details
    assert {f["title"] for f in state["frames"].values()} == {"go on", "Later", "Auth", "Now"}
    assert does_one(chat, provider, op("details", frameID="nothing like it")).startswith("Error")


def test_every_operation_is_answered_by_its_own_name_too(provider: ScriptedProvider, chat: Conversation) -> None:
    """DESIGN 7: whichever profile is on, a call to any `stack_*` name is answered."""
    assert not does_one(chat, provider, call("stack_status")).startswith("Error")
    assert not does_one(chat, provider, call("stack_tree")).startswith("Error")
    assert "JWT" not in does_one(chat, provider, call("stack_add_decision", decision="Use JWT"))[:3]
    assert chat.proxy.frames()["go on"]["decisions"] == ["Use JWT"]


@pytest.mark.rows("S0-16", "S0-17", "S1-110", "S1-111")
def test_notes_travel_into_details_and_the_next_block(provider: ScriptedProvider, chat: Conversation) -> None:
    """S0-16, S0-17, S1-110, S1-111: an artifact is listed once; a decision stands with its reason."""
    does_one(chat, provider, push("Auth"))
    for _ in range(2):
        does_one(chat, provider, op("add_artifact", artifact="src/auth.py"))
    does_one(chat, provider, op("add_decision", decision="Use JWT", reason="no session store"))
    frame = chat.proxy.frames()["Auth"]
    assert frame["artifacts"] == ["src/auth.py"]
    assert len(frame["decisions"]) == 1
    assert "no session store" in frame["decisions"][0]

    does_one(chat, provider, pop("done"))

    line = as_one_text(provider.received[-1].messages)
    assert "Use JWT" in line
    assert "src/auth.py" in line


@pytest.mark.rows("S1-08", "S1-09", "S1-33", "S1-34", "S1-35")
def test_management_shows_ancestors_children_and_filters(provider: ScriptedProvider, chat: Conversation) -> None:
    """S1-08, S1-09, S1-33, S1-34, S1-35: nearest ancestor first; the state has the five keys."""
    for title in ("A", "B", "C"):
        does_one(chat, provider, push(title))
    frames = chat.proxy.frames()
    ids = {title: frame["sessionID"] for title, frame in frames.items()}
    conversation = chat.proxy.conversations[0]["id"]

    detail = chat.proxy.get(f"/stack/frames/{ids['C']}")
    assert detail["ancestors"] == [ids["B"], ids["A"], ids["go on"]]
    assert detail["active"] is True
    above = chat.proxy.get(f"/stack/conversations/{conversation}/frames?ancestors_of={ids['C']}")["frames"]
    assert [f["title"] for f in above] == ["B", "A", "go on"]
    below = chat.proxy.get(f"/stack/conversations/{conversation}/frames?parent={ids['A']}")["frames"]
    assert [f["title"] for f in below] == ["B"]
    state = chat.proxy.get(f"/stack/conversations/{conversation}/state")
    assert {"version", "frames", "activeFrameID", "rootFrameIDs", "updatedAt"} == set(state)
    wanted = {
        "sessionID",
        "status",
        "title",
        "successCriteria",
        "createdAt",
        "updatedAt",
        "artifacts",
        "decisions",
        "logPath",
    }
    assert wanted <= set(frames["C"])


@pytest.mark.rows("S1-134")
def test_the_list_of_tools_is_constant_and_small(stage: Stage, provider: ScriptedProvider) -> None:
    """S1-134: behind the client's own, the same bytes on the first and the last turn."""
    chat = stage.chat()
    for n in range(10):
        does_one(chat, provider, push(f"F{n % 3}") if n % 2 else pop("x"))

    arrays = [json.dumps(r.body["tools"]) for r in provider.received]
    assert len(set(arrays)) == 1
    names = provider.received[0].tool_names
    assert names[:2] == ["bash", "read"]
    assert names[2:] == [
        "stack_frame_push", "stack_frame_pop", "stack_frame_plan", "stack_recall", "stack"
    ]  # fmt: skip
    assert len(json.dumps(provider.received[0].body["tools"][2:])) / 4 < 700


def test_the_full_profile_offers_every_name(stage: Stage, provider: ScriptedProvider) -> None:
    """S1-105 to S1-133, DESIGN 7."""
    chat = stage.chat(stage.proxy(tools="full"))
    provider.will(does(call("stack_add_artifact", artifact="a.py")), says("ok"))
    chat.says("go")

    names = provider.received[0].tool_names
    for name in (
        "stack_status", "stack_tree", "stack_frame_details", "stack_add_artifact", "stack_add_decision",
        "stack_frame_plan_children", "stack_frame_invalidate", "stack_get_state",
    ):  # fmt: skip
        assert name in names


def test_frames_nest_no_deeper_than_configured(stage: Stage, provider: ScriptedProvider) -> None:
    """T6: bounded depth, told as text."""
    chat = stage.chat(stage.proxy(max_depth=3))
    does_one(chat, provider, push("A"))
    does_one(chat, provider, push("B"))

    assert does_one(chat, provider, push("C")).startswith("Error")
    assert chat.proxy.active() == "B"


@pytest.mark.rows("S0-33", "S0-39")
def test_a_failed_frame_tells_why_to_its_retry(provider: ScriptedProvider, chat: Conversation) -> None:
    """S0-33, S0-39: the lessons are in the block of the next attempt, which has an id of its own."""
    does_one(chat, provider, push("Migrate"), then="FAILED-ATTEMPT detail")
    does_one(chat, provider, pop("The lock was held by the worker.", status="failed"))
    first = chat.proxy.frames()["Migrate"]["sessionID"]

    block = does_one(chat, provider, push("Migrate again", retry_of=first))

    assert "The lock was held by the worker." in block
    assert "FAILED-ATTEMPT detail" not in spoken_on(provider.received[-1].messages)
    assert chat.proxy.get(f"/stack/frames/{chat.proxy.frames()['Migrate again']['sessionID']}")["retryOf"] == first
