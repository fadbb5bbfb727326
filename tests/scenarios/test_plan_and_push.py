"""Frames of the client's plan and frames that the model pushes, together: a pop returns from what was pushed, an item
is made once and outlives the frame it was planned in, and calls of one message act in their order."""

from __future__ import annotations

import re
from itertools import permutations

import pytest

from llm_test_provider import ScriptedCall, ScriptedProvider, call, says
from tests.harness import Conversation, Stage, activate, as_one_text, bash, does, op, pop, push
from tests.scenarios.sessions import todo

LIST = "[>] Lexer | [ ] Parser"


@pytest.fixture
def chat(stage: Stage) -> Conversation:
    return stage.chat(tools=("bash", "TodoWrite", "TaskCreate", "TaskUpdate"))


def parent_of(chat: Conversation, title: str) -> str:
    frames = chat.proxy.frames()
    parent = frames[title]["parentSessionID"]
    return next(each for each, frame in frames.items() if frame["sessionID"] == parent)


def titles(chat: Conversation) -> list[str]:
    at = chat.proxy.conversations[0]["id"]
    return sorted(frame["title"] for frame in chat.proxy.get(f"/stack/conversations/{at}/frames")["frames"])


@pytest.mark.rows("S1-76", "S0-04")
@pytest.mark.parametrize("goes_on", [False, True], ids=["the item waits for the next call", "work in the item"])
def test_of_a_plan_and_a_push_in_one_message_the_item_stands_above(
    chat: Conversation, provider: ScriptedProvider, goes_on: bool
) -> None:
    provider.will(does(todo(LIST), push("Read the grammar")), does(bash("cat grammar.txt")))
    chat.says("Build the formatter.")
    chat.returns("Plan updated.")
    assert chat.proxy.active() == "Read the grammar"
    assert parent_of(chat, "Read the grammar") == "Lexer"
    assert parent_of(chat, "Lexer") == parent_of(chat, "Parser") == "Build the formatter."

    provider.will(does(pop("It has 12 rules.")))
    provider.will(*([does(bash("make lexer"))] if goes_on else []), does(todo("[x] Lexer | [>] Parser")), says("ok"))
    chat.returns("rule: ...")
    assert "It has 12 rules." in as_one_text(provider.received[-1].messages)
    assert "rule: ..." not in as_one_text(provider.received[-1].messages)
    if goes_on:
        assert chat.proxy.active() == "Lexer"
        chat.returns("made")
    chat.returns("Plan updated.")

    assert chat.proxy.frames()["Read the grammar"]["results"] == "It has 12 rules."
    assert chat.proxy.statuses() == {
        "Build the formatter.": "in_progress",
        "Lexer": "completed",
        "Parser": "in_progress",
        "Read the grammar": "completed",
    }
    assert titles(chat) == ["Build the formatter.", "Lexer", "Parser", "Read the grammar"], "no item is made twice"


@pytest.mark.rows("S1-76", "S0-04")
def test_a_push_in_front_of_a_plan_takes_the_items_inside(chat: Conversation, provider: ScriptedProvider) -> None:
    provider.will(does(push("Read the grammar"), todo(LIST)), does(bash("cat grammar.txt")))
    chat.says("Build the formatter.")
    chat.returns("Plan updated.")
    assert parent_of(chat, "Lexer") == "Read the grammar"

    provider.will(does(pop("It has 12 rules.")), does(bash("make lexer")))
    chat.returns("rule: ...")
    line = as_one_text(provider.received[-1].messages)
    assert "It has 12 rules." in line
    assert "rule: ..." not in line
    statuses = chat.proxy.statuses()
    assert (statuses["Read the grammar"], statuses["Lexer"], statuses["Parser"]) == (
        "completed",
        "in_progress",
        "planned",
    )
    assert parent_of(chat, "Lexer") == parent_of(chat, "Parser") == "Build the formatter."
    assert chat.proxy.active() == "Lexer"

    provider.will(does(todo("[x] Lexer | [x] Parser")), says("ok"))
    chat.returns("made")
    chat.returns("Plan updated.")
    assert titles(chat) == ["Build the formatter.", "Lexer", "Parser", "Read the grammar"]
    assert set(chat.proxy.statuses().values()) == {"in_progress", "completed"}


@pytest.mark.rows("S1-76", "S0-04")
def test_the_next_item_begins_above_a_push_that_came_with_it(chat: Conversation, provider: ScriptedProvider) -> None:
    """The item before it ends, and the frame that was pushed beside the list is inside the new one."""
    provider.will(does(todo(LIST)), does(todo("[x] Lexer | [>] Parser"), push("Read the tests")))
    provider.will(does(bash("cat tests.py")), does(pop("There are 12.")), says("ok"))
    chat.says("Build the formatter.")
    chat.returns("Plan updated.")
    chat.returns("Plan updated.")
    assert chat.proxy.active() == "Read the tests"
    assert parent_of(chat, "Read the tests") == "Parser"
    assert chat.proxy.statuses()["Lexer"] == "completed"

    chat.returns("def test(): ...")
    assert chat.proxy.active() == "Parser"


def updated(item: str, status: str) -> ScriptedCall:
    return call("TaskUpdate", taskId=item, status=status)


TICK_AND_PUSH = [
    ("todo [x] Lexer | [ ] Parser", ""),
    ("todo [x] Lexer | [>] Parser", "Parser"),
    ("todo [x] Lexer", ""),
    ("todo [ ] Lexer | [>] Parser", "Parser"),
    ("todo [x] Lexer | [ ] Parser | [>] Printer", "Printer"),
]


@pytest.mark.rows("S1-76", "S0-04", "S0-55")
@pytest.mark.parametrize("in_front", [False, True], ids=["behind the list", "in front of it"])
@pytest.mark.parametrize(("stated", "above"), TICK_AND_PUSH)
def test_an_item_that_ends_in_the_message_of_a_push_has_ended_before_it(
    chat: Conversation, provider: ScriptedProvider, stated: str, above: str, *, in_front: bool
) -> None:
    calls = [todo(stated.removeprefix("todo ")), push("Read the tests"), push("Read the manual")]
    provider.will(does(todo(LIST)), does(bash("make lexer")), does(*(calls[1:] + calls[:1] if in_front else calls)))
    provider.will(does(bash("cat tests.py")), does(pop("There are 12.")), does(activate("Read the manual")), says("ok"))
    chat.says("Build the formatter.")
    for result in ("Plan updated.", "lexer made", "Plan updated."):
        chat.returns(result)

    statuses = chat.proxy.statuses()
    assert statuses["Lexer"] == ("blocked" if "[ ] Lexer" in stated else "completed")
    assert chat.proxy.active() == "Read the tests"
    place = above or "Build the formatter."
    assert parent_of(chat, "Read the tests") == parent_of(chat, "Read the manual") == place
    block = [str(m["content"]) for m in provider.received[-1].messages if "<title>Read the tests" in str(m["content"])]
    (ancestors,) = re.findall(r"<ancestors.*?</ancestors>", block[-1], re.DOTALL)
    assert "Lexer" not in ancestors
    assert above in ancestors
    assert "success-criteria" not in ancestors, "the request and the plan are in view"
    assert titles(chat) == sorted(set(titles(chat))), "no item is made twice"

    chat.returns("def test(): ...")
    assert chat.proxy.frames()["Read the tests"]["results"] == "There are 12."
    assert chat.proxy.statuses()["Read the manual"] == "in_progress", "it could be begun where it was planned"


@pytest.mark.rows("S1-76", "S0-04")
@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_of_changes_to_single_items_and_a_push_the_order_does_not_matter(
    chat: Conversation, provider: ScriptedProvider, order: tuple[int, ...]
) -> None:
    made = [call("TaskCreate", subject="Lexer"), call("TaskCreate", subject="Parser")]
    calls = [updated("1", "completed"), updated("2", "in_progress"), push("Read the tests")]
    provider.will(does(*made), does(updated("1", "in_progress")), does(*(calls[at] for at in order)), says("ok"))
    provider.will(does(bash("cat tests.py")), does(pop("There are 12.")), says("ok"))
    chat.says("Build the formatter.")
    chat.returns("Task #1 created", "Task #2 created")
    chat.returns("ok")
    chat.returns("ok", "ok")

    assert chat.proxy.active() == "Read the tests"
    assert parent_of(chat, "Read the tests") == "Parser"
    assert parent_of(chat, "Lexer") == parent_of(chat, "Parser") == "Build the formatter."
    assert chat.proxy.statuses()["Lexer"] == "completed"


@pytest.mark.rows("S1-76", "S0-04")
def test_an_item_that_was_never_begun_ends_beside_a_push(chat: Conversation, provider: ScriptedProvider) -> None:
    provider.will(does(todo("[x] Lexer | [ ] Parser"), push("Read the tests")), does(bash("cat tests.py")), says("ok"))
    chat.says("Build the formatter.")
    chat.returns("Plan updated.")

    assert chat.proxy.active() == "Read the tests"
    assert parent_of(chat, "Read the tests") == "Build the formatter."
    assert chat.proxy.statuses()["Lexer"] == "completed"


@pytest.mark.rows("S1-76", "S0-04")
@pytest.mark.parametrize("end", [pop("Tokens are known."), op("invalidate", frame="Tokens", reason="not needed")])
def test_items_of_a_frame_that_ended_are_taken_up_and_not_made_again(
    chat: Conversation, provider: ScriptedProvider, end: object
) -> None:
    provider.will(does(push("Tokens")), does(todo(LIST)), does(bash("make lexer")), does(end), does(bash("ls")))  # type: ignore[arg-type]
    provider.will(does(todo("[x] Lexer | [>] Parser")), does(bash("make parser")), says("ok"))
    chat.says("Build the formatter.")
    for result in ("Plan updated.", "lexer made", "files", "Plan updated.", "parser made"):
        chat.returns(result)

    assert titles(chat) == ["Build the formatter.", "Lexer", "Parser", "Tokens"]
    assert chat.proxy.statuses()["Lexer"] == "completed"
    assert chat.proxy.active() == "Parser"


@pytest.mark.rows("S1-76", "S1-173")
def test_items_of_a_forgotten_frame_go_on_where_the_work_is(chat: Conversation, provider: ScriptedProvider) -> None:
    provider.will(does(push("Tokens")), does(todo(LIST)), does(bash("make lexer")), says("The lexer is made."))
    chat.says("Build the formatter.")
    chat.returns("Plan updated.")
    chat.returns("lexer made")
    provider.will(does(todo("[x] Lexer | [>] Parser")), does(bash("make parser")), says("ok"))
    chat.says("Now write documentation for the installer.")
    chat.returns("Plan updated.")

    assert chat.proxy.statuses()["Tokens"] == "completed"
    assert titles(chat).count("Lexer") == titles(chat).count("Parser") == 1


@pytest.mark.rows("S1-76", "S0-04", "S0-55")
def test_an_item_ticked_inside_a_frame_of_an_earlier_message_ends_behind_its_pop(
    chat: Conversation, provider: ScriptedProvider
) -> None:
    """The client does not tell it again: a plan of single items says each change once."""
    made = [call("TaskCreate", subject="Lexer"), call("TaskCreate", subject="Parser")]
    provider.will(does(*made), does(updated("1", "in_progress")), does(push("Read the tests"), bash("cat tests.py")))
    provider.will(does(updated("1", "completed"), text="The lexer passes all 12 tests."), does(bash("ls")))
    chat.says("Build the formatter.")
    chat.returns("Task #1 created", "Task #2 created")
    chat.returns("ok")
    chat.returns("def test(): ...")
    chat.returns("ok")

    assert chat.proxy.active() == "Read the tests"
    assert chat.proxy.statuses()["Lexer"] == "in_progress"

    provider.will(does(pop("There are 12.")), does(bash("make")), does(updated("2", "in_progress")), says("ok"))
    chat.returns("files")
    chat.returns("made")

    assert chat.proxy.frames()["Lexer"]["status"] == "completed"
    assert chat.proxy.frames()["Lexer"]["results"] == "The lexer passes all 12 tests."
    assert parent_of(chat, "Read the tests") == "Lexer"

    chat.returns("ok")
    assert chat.proxy.active() == "Parser"


@pytest.mark.rows("S1-76", "S0-55")
def test_an_item_that_a_list_ticks_again_inside_a_frame_keeps_what_was_said_at_its_tick(
    chat: Conversation, provider: ScriptedProvider
) -> None:
    ticked = todo("[x] Lexer | [ ] Parser")
    provider.will(does(todo(LIST)), does(push("Read the tests"), bash("cat tests.py")))
    provider.will(does(ticked, text="The lexer passes all 12 tests."), does(ticked, text="All files are listed."))
    provider.will(does(bash("ls")), does(pop("There are 12.")), does(bash("make")), says("ok"))
    chat.says("Build the formatter.")
    for result in ("Plan updated.", "def test(): ...", "Plan updated.", "Plan updated.", "files", "made"):
        chat.returns(result)

    assert chat.proxy.frames()["Lexer"]["status"] == "completed"
    assert chat.proxy.frames()["Lexer"]["results"] == "The lexer passes all 12 tests."
    assert titles(chat).count("Lexer") == 1


@pytest.mark.rows("S1-76", "S0-04", "S0-55")
@pytest.mark.parametrize("then", ["nothing more", "ticked inside", "put back inside"])
def test_an_item_begun_inside_a_frame_of_an_earlier_message_begins_behind_its_pop(
    chat: Conversation, provider: ScriptedProvider, then: str
) -> None:
    more = {"ticked inside": "completed", "put back inside": "pending"}.get(then)
    made = [call("TaskCreate", subject="Lexer"), call("TaskCreate", subject="Parser")]
    provider.will(does(*made), does(updated("1", "in_progress")), does(push("Read the tests"), bash("cat tests.py")))
    provider.will(does(updated("1", "completed"), updated("2", "in_progress"), text="The lexer passes."))
    provider.will(does(updated("2", more), text="The parser takes it.") if more else does(bash("ls")))
    provider.will(does(pop("There are 12.")), does(bash("make")), says("ok"))
    chat.says("Build the formatter.")
    chat.returns("Task #1 created", "Task #2 created")
    chat.returns("ok")
    chat.returns("def test(): ...")
    chat.returns("ok", "ok")
    assert chat.proxy.active() == "Read the tests"
    chat.returns("ok")
    assert chat.proxy.statuses()["Parser"] == "planned"
    chat.returns("made")

    status = {"ticked inside": "completed", "put back inside": "planned"}.get(then, "in_progress")
    assert chat.proxy.statuses()["Lexer"] == "completed"
    assert chat.proxy.statuses()["Parser"] == status
    assert chat.proxy.active() == ("Parser" if then == "nothing more" else "Build the formatter.")
    assert chat.proxy.frames()["Parser"].get("results", "") == (
        "The parser takes it." if then == "ticked inside" else ""
    )


@pytest.mark.rows("S1-76", "S0-04")
def test_an_item_put_back_inside_a_frame_begins_and_is_put_back_behind_its_pop_as_any(
    chat: Conversation, provider: ScriptedProvider
) -> None:
    provider.will(does(call("TaskCreate", subject="Lexer")), does(push("Read the tests"), bash("cat tests.py")))
    provider.will(
        does(updated("1", "in_progress")), does(updated("1", "pending")), does(pop("12.")), does(bash("make"))
    )
    provider.will(does(updated("1", "in_progress")), does(updated("1", "pending")), does(bash("ls")), says("ok"))
    chat.says("Build the formatter.")
    chat.returns("Task #1 created")
    for _ in range(4):
        chat.returns("ok")
    chat.returns("ok")
    assert chat.proxy.active() == "Lexer"
    chat.returns("ok")
    assert chat.proxy.statuses()["Lexer"] == "blocked"
    assert chat.proxy.active() == "Build the formatter."
