"""Branches: a point is named, work begins there anew, and lines change where the user speaks.

Every scenario ends before the judge of `tests.laws`: a line changes in its past only where its receipt tells of a
switch, and then it is an earlier line again, as it was sent.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from callstack_proxy.management.issued_keys import issue_key
from llm_test_provider import ReceivedRequest, ScriptedCall, ScriptedProvider, call, says
from proxy.core.compaction.truncate_outputs import CLEARED_PREFIX
from tests import laws
from tests.client_dialects import neutral, tongue_at
from tests.harness import (
    ClientHabits,
    Conversation,
    Json,
    RunningProxy,
    Stage,
    as_one_text,
    bash,
    does,
    pop,
    push,
    recall,
    texts,
)
from tests.scenarios.speaking import beside, told_in

NOTE = '<stack-context branch="'


def asked(
    proxy: RunningProxy, what: str, body: Json | None = None, headers: dict[str, str] | None = None
) -> tuple[int, Any]:
    """Status and answer of a route of the only conversation; posted where there is a body."""
    at = f"/stack/conversations/{proxy.conversations[0]['id']}/{what}"
    return proxy.asked("GET" if body is None else "POST", at, body, headers)


def operation(name: str, /, **arguments: Any) -> ScriptedCall:
    """An operation behind the dispatcher."""
    return call("stack", op=name, args=arguments)


def does_ask(proxy: RunningProxy, what: str, **body: Any) -> Json:
    status, told = asked(proxy, what, body)
    assert status == 200, told
    return dict(told)


def written(received: ReceivedRequest) -> tuple[str, ...]:
    """The messages as they were sent."""
    tongue = tongue_at(received.path)
    assert tongue is not None
    return laws.Body.read(neutral(tongue, received.raw)).written


def newest(provider: ScriptedProvider) -> str:
    """The texts of the newest line."""
    return "\n".join(texts(provider.received[-1].messages))


def says_to(chat: Conversation, provider: ScriptedProvider, text: str, *steps: str, answer: str) -> None:
    """A turn of the user with these commands, whose outputs name them."""
    provider.will(*(does(bash(step)) for step in steps), says(answer))
    chat.says(text)
    for step in steps:
        chat.returns(f"OUTPUT of {step}")


@pytest.fixture
def begun(chat: Conversation, provider: ScriptedProvider) -> Conversation:
    """One turn, a checkpoint `start`, and another turn behind it."""
    says_to(chat, provider, "look at the parser", "cat parser.py", answer="PARSER seen.")
    does_ask(chat.proxy, "checkpoints", name="start")
    says_to(chat, provider, "rewrite it with regexes", "sed REGEX", answer="REGEX done.")
    return chat


@pytest.mark.rows("S2-01")
def test_a_checkpoint_stays_as_it_was_set(begun: Conversation, provider: ScriptedProvider) -> None:
    before = asked(begun.proxy, "checkpoints/start")[1]
    for number in range(5):
        says_to(begun, provider, f"step {number}", f"run {number}", answer=f"step {number} done")

    assert asked(begun.proxy, "checkpoints/start")[1] == before
    assert [m["role"] for m in before["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert json.loads(before["messages"][0]["wire"])
    assert before["activeFrameID"] in before["frames"]
    assert [row["name"] for row in asked(begun.proxy, "checkpoints")[1]["checkpoints"]] == ["start"]


@pytest.mark.rows("S2-02")
def test_a_branch_knows_nothing_of_what_came_behind_its_checkpoint(
    begun: Conversation, provider: ScriptedProvider
) -> None:
    at_start = written(provider.received[1])
    told = does_ask(begun.proxy, "branches", name="grammar", reason="regexes do not nest")
    says_to(begun, provider, "write a grammar instead", "edit GRAMMAR", answer="GRAMMAR done.")

    line = newest(provider)
    assert (told["branch"], told["checkpoint"]) == ("grammar", "start")
    assert written(provider.received[-1])[: len(at_start)] == at_start
    assert "REGEX" not in line
    assert "rewrite it" not in line
    assert line.count("write a grammar instead") == 1
    assert line.count(NOTE) == 1
    assert "regexes do not nest" in line
    assert "switched grammar" in begun.proxy.receipts()[-2]["events"]


def test_what_a_person_said_on_another_line_stays_there_where_the_client_rewrites_its_history(
    begun: Conversation, provider: ScriptedProvider
) -> None:
    beside(begun).says("use tabs")
    says_to(begun, provider, "and now test it", "run TESTS " * 9, answer="TESTS are green, all of them.")
    does_ask(begun.proxy, "branches", name="grammar")
    says_to(begun, provider, "write a grammar instead", "edit GRAMMAR", answer="GRAMMAR done.")
    before = written(provider.received[-1])
    next(m for m in begun.history if "TESTS" in str(m["content"]) and m["role"] == "tool")["content"] = CLEARED_PREFIX
    says_to(begun, provider, "go on", answer="Going on.")

    assert not told_in(provider.received[-1].messages)
    assert written(provider.received[-1])[: len(before)] == before


@pytest.mark.rows("S2-03")
def test_back_on_the_main_line_it_begins_with_the_bytes_it_had(begun: Conversation, provider: ScriptedProvider) -> None:
    main = written(provider.received[-1])
    does_ask(begun.proxy, "branches", name="grammar")
    says_to(begun, provider, "write a grammar instead", "edit GRAMMAR", answer="GRAMMAR done.")
    branch = written(provider.received[-1])
    does_ask(begun.proxy, "switch", branch="main")
    says_to(begun, provider, "are the regexes fast?", "time REGEX", answer="Fast.")
    back = written(provider.received[-1])
    does_ask(begun.proxy, "switch", branch="grammar")
    says_to(begun, provider, "and the grammar?", answer="Slow.")

    assert back[: len(main)] == main
    assert "GRAMMAR" not in "".join(back)
    assert written(provider.received[-1])[: len(branch)] == branch
    assert "time REGEX" not in newest(provider)


def test_a_switch_waits_for_the_users_next_message(chat: Conversation, provider: ScriptedProvider) -> None:
    """A call group is never cut through: results go where their calls are."""
    says_to(chat, provider, "begin", answer="Begun.")
    does_ask(chat.proxy, "checkpoints", name="start")
    provider.will(does(bash("one")), does(bash("two")), says("Both done."))
    chat.says("run both")
    does_ask(chat.proxy, "branches", name="other")
    chat.returns("ONE")
    in_loop = newest(provider)
    chat.returns("TWO")
    waiting = asked(chat.proxy, "branches")[1]["branches"]
    says_to(chat, provider, "now the other way", answer="Yes.")

    assert "ONE" in in_loop
    assert [(row["name"], row["current"], row["wanted"]) for row in waiting] == [
        ("main", True, False), ("other", False, True),
    ]  # fmt: skip
    assert "run both" not in newest(provider)
    assert [row["name"] for row in asked(chat.proxy, "branches")[1]["branches"] if row["current"]] == ["other"]


def test_frames_belong_to_their_line(chat: Conversation, provider: ScriptedProvider) -> None:
    """What was pushed, planned and returned behind the checkpoint is unknown on the branch, and there again on main."""
    says_to(chat, provider, "begin", answer="Begun.")
    does_ask(chat.proxy, "checkpoints")
    provider.will(does(push("Regexes")), does(bash("sed")), does(pop("REGEX RESULT")), says("done"))
    chat.says("use regexes")
    chat.returns("ok")
    main = set(chat.proxy.frames())
    does_ask(chat.proxy, "branches")
    says_to(chat, provider, "use a grammar", answer="Yes.")

    assert "Regexes" in main
    assert "Regexes" not in chat.proxy.frames()
    frame = next(
        f for f in chat.proxy.get(f"/stack/conversations/{chat.proxy.conversations[0]['id']}/frames")["frames"]
    )
    assert frame["status"] == "in_progress"
    does_ask(chat.proxy, "switch", branch="main")
    says_to(chat, provider, "go on", answer="Yes.")
    assert set(chat.proxy.frames()) == main
    assert "REGEX RESULT" in newest(provider)


@pytest.mark.rows("S2-04")
def test_injected_messages_stand_once_at_the_end(begun: Conversation, provider: ScriptedProvider) -> None:
    does_ask(begun.proxy, "branches", name="grammar")
    says_to(begun, provider, "write a grammar instead", "edit GRAMMAR", answer="GRAMMAR done.")
    rows = asked(begun.proxy, "branches/main")[1]["messages"]
    wanted = next(row["number"] for row in rows if "OUTPUT of sed REGEX" in row["text"])
    told = does_ask(begun.proxy, "inject", branch="main", messages=[wanted])
    says_to(begun, provider, "compare", "diff", answer="Compared.")
    says_to(begun, provider, "go on", answer="Yes.")

    line = newest(provider)
    assert (told["branch"], told["texts"]) == ("grammar", 1)
    assert line.count("OUTPUT of sed REGEX") == 1
    assert "REGEX done." not in line
    carried = next(
        r for r in provider.received if "OUTPUT of sed REGEX" in r.raw.decode() and "compare" in r.raw.decode()
    )
    assert "OUTPUT of sed REGEX" in json.dumps(carried.messages[-1])


@pytest.mark.rows("S2-04")
def test_what_a_frame_returned_is_injected_by_its_name(chat: Conversation, provider: ScriptedProvider) -> None:
    says_to(chat, provider, "begin", answer="Begun.")
    does_ask(chat.proxy, "checkpoints")
    provider.will(does(push("Regexes")), does(pop("REGEX RESULT")), says("done"))
    chat.says("use regexes")
    does_ask(chat.proxy, "branches", name="grammar")
    does_ask(chat.proxy, "inject", branch="main", frame="Regexes")
    says_to(chat, provider, "use a grammar", answer="Yes.")
    says_to(chat, provider, "go on", answer="Yes.")

    assert newest(provider).count("REGEX RESULT") == 1


@pytest.mark.parametrize("when", ["wanted", "begun"])
def test_branches_outlive_a_restart(begun: Conversation, provider: ScriptedProvider, when: str) -> None:
    main = written(provider.received[-1])
    does_ask(begun.proxy, "branches", name="grammar")
    if when == "begun":
        says_to(begun, provider, "write a grammar instead", answer="GRAMMAR done.")
    begun.proxy.restart()
    says_to(begun, provider, "and now?", answer="GRAMMAR goes on.")
    assert "REGEX" not in newest(provider)
    does_ask(begun.proxy, "switch", branch="main")
    begun.proxy.restart()
    says_to(begun, provider, "back", answer="Yes.")

    assert written(provider.received[-1])[: len(main)] == main
    assert "GRAMMAR" not in newest(provider)


@pytest.mark.rows("S2-01", "S2-02", "S2-03", "S2-04")
def test_the_model_branches_by_its_own_calls(chat: Conversation, provider: ScriptedProvider) -> None:
    """S2-01 to S2-04 behind the dispatcher."""
    provider.will(does(operation("checkpoint", name="start")), says("Set."))
    chat.says("begin")
    provider.will(
        does(bash("sed REGEX")),
        does(operation("branch", name="grammar", checkpoint="start")),
        says("Soon."),
    )
    chat.says("rewrite it")
    chat.returns("REGEX output")
    provider.will(
        does(operation("inject", branch="main", messages=[4])),
        does(operation("switch", branch="main")),
        says("Back soon."),
    )
    chat.says("a grammar, please")
    on_branch = newest(provider)
    says_to(chat, provider, "go on", answer="Yes.")

    assert "begins at checkpoint start" in as_one_text(provider.received[4].messages)
    assert "rewrite it" not in as_one_text(provider.received[5].messages)
    assert "<<recall" in on_branch
    assert "a grammar, please" not in newest(provider)
    assert "rewrite it" in newest(provider)


def test_what_stands_on_another_branch_is_recalled_when_it_is_asked_for(
    chat: Conversation, provider: ScriptedProvider
) -> None:
    """L7: by the frame, and by a query."""
    says_to(chat, provider, "begin", answer="Begun.")
    does_ask(chat.proxy, "checkpoints")
    provider.will(does(push("Regexes")), does(bash("sed")), does(pop("It works.")), says("done"))
    chat.says("use regexes")
    chat.returns("OUTPUT nobody-else-has-this")
    frame = chat.proxy.frames()["Regexes"]["sessionID"]
    does_ask(chat.proxy, "branches")
    for made in (recall(frame), recall("", query="nobody-else-has-this")):
        provider.will(does(made), says("I see."))
        chat.says("what was it?")
        assert "OUTPUT nobody-else-has-this" in newest(provider)


def test_a_checkpoint_is_set_at_each_push_where_that_is_configured(stage: Stage, provider: ScriptedProvider) -> None:
    chat = stage.chat(stage.proxy(checkpoint_at_push="true"))
    provider.will(
        does(push("Regexes")),
        does(bash("sed REGEX")),
        does(pop("failed", status="failed")),
        says("It failed."),
    )
    chat.says("parse it")
    chat.returns("REGEX output")
    (point,) = asked(chat.proxy, "checkpoints")[1]["checkpoints"]
    does_ask(chat.proxy, "branches", checkpoint=point["name"])
    says_to(chat, provider, "another way", answer="Yes.")

    assert point["automatic"]
    assert point["name"] == f"before-{chat.proxy.get('/stack/frames/' + point['name'][7:])['sessionID']}"
    assert "REGEX" not in newest(provider)
    assert "parse it" in newest(provider)
    assert "Regexes" not in newest(provider)


# --------------------------------------------------------------------------------------------------- where it is harder
def test_a_branch_of_a_small_conversation_wakes_it(stage: Stage, provider: ScriptedProvider) -> None:
    """Asleep the client's own bytes would go, and they tell everything."""
    chat = stage.chat(stage.proxy(wake_at_tokens=1_000_000))
    says_to(chat, provider, "look", answer="Seen.")
    does_ask(chat.proxy, "checkpoints")
    says_to(chat, provider, "use REGEX", answer="REGEX done.")
    asleep = chat.last.stack_status if chat.last else ""
    does_ask(chat.proxy, "branches")
    says_to(chat, provider, "use a grammar", "edit grammar", answer="Done.")

    assert asleep.startswith("asleep")
    assert chat.last is not None
    assert chat.last.stack_status == "full"
    assert "REGEX" not in newest(provider)
    assert "look" in newest(provider)


@pytest.mark.parametrize("changed", ["system", "tools"])
def test_reasoning_of_a_line_that_is_taken_up_again_is_left_out_where_its_beginning_changed(
    chat: Conversation, provider: ScriptedProvider, changed: str
) -> None:
    """L8: the client's system text or tools were others while the work was on a branch; the provider's check judges."""
    provider.will(does(bash("a"), reasoning="THOUGHT of main"), says("Seen.").but(reasoning="more"))
    chat.says("look")
    chat.returns("A")
    does_ask(chat.proxy, "checkpoints")
    provider.will(does(bash("b"), reasoning="THOUGHT two of main"), says("Done.").but(reasoning="still more"))
    chat.says("use regexes")
    chat.returns("B")
    does_ask(chat.proxy, "branches", name="other")
    chat.habits = ClientHabits(keeps_reasoning=False)
    if changed == "system":
        chat.system = "You are a bold engineer."
    else:
        chat.tools = ("bash", "read", "write")
    chat.proxy.stage.excuse()
    says_to(chat, provider, "use a grammar", answer="Yes.")
    does_ask(chat.proxy, "switch", branch="main")
    chat.proxy.stage.excuse()
    says_to(chat, provider, "go on", answer="Yes.")

    assert chat.last is not None
    assert chat.last.status == 200
    assert "use regexes" in newest(provider)


def test_reasoning_comes_back_with_its_line(chat: Conversation, provider: ScriptedProvider) -> None:
    """L8: the line begins as it was sent, so what was thought behind it still holds."""
    provider.will(says("Seen.").but(reasoning="a first thought"))
    chat.says("look")
    does_ask(chat.proxy, "checkpoints")
    provider.will(does(bash("b"), reasoning="THOUGHT of main"), says("Done.").but(reasoning="more"))
    chat.says("use regexes")
    chat.returns("B")
    main = written(provider.received[-1])
    does_ask(chat.proxy, "branches", name="other")
    says_to(chat, provider, "use a grammar", answer="Yes.")
    does_ask(chat.proxy, "switch", branch="main")
    says_to(chat, provider, "go on", answer="Yes.")

    assert written(provider.received[-1])[: len(main)] == main
    assert "THOUGHT of main" in as_one_text(provider.received[-1].messages)


def test_a_client_that_tidies_its_history_stays_on_its_branch(stage: Stage, provider: ScriptedProvider) -> None:
    """What stands on the other line stays there, in whichever form the client sends it."""
    chat = stage.chat(habits=ClientHabits(results="tidied"))
    rough = "\n\n  OUTPUT of {}  \n\n"
    for text, step in (("look at the parser", "cat"), ("rewrite it", "sed REGEX")):
        provider.will(does(bash(step)), says(f"{step} is done, as was wanted."))
        chat.says(text)
        chat.returns(rough.format(step))
        if step == "cat":
            does_ask(chat.proxy, "checkpoints")
    main = written(provider.received[-1])
    does_ask(chat.proxy, "branches", name="other")
    for step in ("edit GRAMMAR", "run it"):
        provider.will(does(bash(step)), says(f"{step} is done, as was wanted."))
        chat.says(f"please {step}")
        chat.returns(rough.format(step))
    branch = newest(provider)
    does_ask(chat.proxy, "switch", branch="main")
    provider.will(does(bash("time")), says("It is fast enough for all of us."))
    chat.says("is it fast?")
    chat.returns(rough.format("time"))

    assert "REGEX" not in branch
    assert "GRAMMAR" in branch
    assert "GRAMMAR" not in newest(provider)
    assert written(provider.received[-1])[: len(main)] == main


def test_a_history_that_the_client_compacted_on_a_branch_goes_on_there(
    stage: Stage, provider: ScriptedProvider
) -> None:
    """Under a session of its own: the summary stands on the branch."""
    chat = stage.chat(headers={"x-session-id": "ses_1", "x-session-affinity": "ses_1"})
    says_to(chat, provider, "look at the parser", "cat parser.py", answer="PARSER seen.")
    does_ask(chat.proxy, "checkpoints")
    says_to(chat, provider, "rewrite it with regexes", "sed REGEX", answer="REGEX done.")
    does_ask(chat.proxy, "branches", name="other")
    says_to(chat, provider, "write a grammar instead", answer="GRAMMAR done.")
    chat.history = [
        {"role": "user", "content": "What did we do so far?"},
        {"role": "assistant", "content": "SUMMARY of the grammar."},
        {"role": "user", "content": "Continue."},
    ]
    provider.will(says("On it."))
    chat.asks()

    assert "SUMMARY" in newest(provider)
    assert "REGEX" not in newest(provider)
    rows = asked(chat.proxy, "branches")[1]["branches"]
    assert [(row["name"], row["current"]) for row in rows] == [("main", False), ("other", True)]
    assert "REGEX" in json.dumps(asked(chat.proxy, "branches/main")[1]["messages"])


def test_the_request_that_began_a_branch_asked_again_has_the_same_line(
    begun: Conversation, provider: ScriptedProvider
) -> None:
    does_ask(begun.proxy, "branches", name="grammar")
    provider.will(says("Yes."), says("Yes, again."))
    begun.history.append({"role": "user", "content": "write a grammar instead"})
    begun.tries()
    first = written(provider.received[-1])
    begun.tries()

    assert written(provider.received[-1]) == first
    assert "REGEX" not in newest(provider)


def test_a_history_that_goes_back_before_the_branch_is_on_the_main_line_again(
    begun: Conversation, provider: ScriptedProvider
) -> None:
    """A client that rewinds makes another path, and a branch is of its own path alone."""
    main = begun.branch(len(begun.history))
    does_ask(begun.proxy, "branches", name="grammar")
    says_to(begun, provider, "write a grammar instead", answer="GRAMMAR done.")
    main.history.pop()
    main.proxy.stage.excuse()  # the client goes back by itself
    provider.will(says("REGEX done in another way."), says("It is."))
    main.asks()
    main.says("is that faster?")

    assert "GRAMMAR" not in newest(provider)
    assert "rewrite it with regexes" in newest(provider)


def test_a_request_without_tools_turns_nothing(begun: Conversation, provider: ScriptedProvider) -> None:
    """What could not be rendered would pass with the whole history in it: the wish waits."""
    does_ask(begun.proxy, "branches", name="grammar")
    provider.will(says("{}"), says("Yes."))
    begun.says("as JSON", tool_choice="none")
    waiting = asked(begun.proxy, "branches")[1]["branches"][-1]
    begun.says("write a grammar instead")

    assert waiting["wanted"]
    assert "REGEX" not in newest(provider)


def test_what_is_injected_while_calls_are_under_way_stands_behind_their_results(
    begun: Conversation, provider: ScriptedProvider
) -> None:
    does_ask(begun.proxy, "branches", name="grammar")
    provider.will(does(bash("edit GRAMMAR")), does(bash("test GRAMMAR")), says("Done."))
    begun.says("write a grammar instead")
    does_ask(begun.proxy, "inject", branch="main", messages=[7])
    begun.returns("edited")
    carried = [laws.text_of(m) for m in provider.received[-1].messages]
    begun.returns("tested")

    assert carried[-2] == "edited"
    assert "OUTPUT of sed REGEX" in carried[-1]
    assert newest(provider).count("OUTPUT of sed REGEX") == 1


def test_mode_passive_branches_too(stage: Stage, provider: ScriptedProvider) -> None:
    """A person asked for it; of our tools the model still has recall alone."""
    chat = stage.chat(stage.proxy(mode="passive"))
    says_to(chat, provider, "look at the parser", "cat parser.py", answer="PARSER seen.")
    does_ask(chat.proxy, "checkpoints")
    says_to(chat, provider, "rewrite it with regexes", "sed REGEX", answer="REGEX done.")
    does_ask(chat.proxy, "branches")
    says_to(chat, provider, "write a grammar instead", answer="GRAMMAR done.")

    assert "REGEX" not in newest(provider)
    assert newest(provider).count(NOTE) == 1
    assert provider.received[-1].tool_names[2:] == ["stack_recall"]


def test_a_model_that_takes_no_words_behind_results_is_not_asked_to(stage: Stage, provider: ScriptedProvider) -> None:
    """A branch at such a point waits for good; one at another point begins."""
    chat = stage.chat(
        stage.proxy(checkpoint_at_push="true", tariffs__own__names="gpt-x", tariffs__own__after_tool="suffix")
    )
    provider.will(does(bash("cat")), does(push("Regexes")), does(pop("REGEX result")), says("Done."))
    chat.says("parse it")
    chat.returns("OUTPUT of cat")
    does_ask(chat.proxy, "checkpoints", name="end")
    does_ask(chat.proxy, "branches", checkpoint=asked(chat.proxy, "checkpoints")[1]["checkpoints"][0]["name"])
    says_to(chat, provider, "another way", answer="Yes.")
    waits = newest(provider)
    does_ask(chat.proxy, "branches", checkpoint="end")
    says_to(chat, provider, "a third way", answer="Yes.")

    assert "REGEX result" in waits
    assert "another way" not in newest(provider)
    assert "a third way" in newest(provider)


# ------------------------------------------------------------------------------------------------------------ bad input
REFUSED: list[tuple[str, Json, int, str]] = [
    ("checkpoints", {"name": "start"}, 409, "already"),
    ("checkpoints", {"name": "a/b"}, 409, "no name"),
    ("checkpoints", {"name": "x" * 65}, 400, "name"),
    ("checkpoints", {"nmae": "x"}, 400, "nmae"),
    ("checkpoints", {"name": 7}, 400, "name"),
    ("checkpoints", {"thread": "nowhere"}, 404, "thread"),
    ("branches", {"checkpoint": "nowhere"}, 409, "start"),
    ("branches", {"name": "main"}, 409, "already"),
    ("branches", {"name": "../x"}, 409, "no name"),
    ("branches", {"reason": "x" * 2_001}, 400, "reason"),
    ("switch", {"branch": "nowhere"}, 409, "main"),
    ("switch", {"branch": "main"}, 409, "already"),
    ("switch", {}, 400, "branch"),
    ("inject", {"branch": "main"}, 409, "message numbers"),
    ("inject", {"branch": "main", "messages": [1], "frame": "f"}, 409, "message numbers"),
    ("inject", {"branch": "main", "messages": [99], "to": "other"}, 409, "1 to 8"),
    ("inject", {"branch": "nowhere", "messages": [1]}, 409, "main"),
    ("inject", {"branch": "main", "frame": "nothing"}, 409, "results"),
    ("inject", {"branch": "main", "messages": [1]}, 409, "already"),
    ("inject", {"branch": "main", "messages": list(range(101))}, 400, "messages"),
]
"""What is asked of a conversation that has one checkpoint, `start`; the status, and words of the answer."""


@pytest.mark.asked("plain")
@pytest.mark.spoken_in("chat", reason="what the management API refuses is the same in every dialect")
def test_what_cannot_be_is_refused_with_a_sentence(begun: Conversation) -> None:
    for what, body, status, says_so in REFUSED:
        got, told = asked(begun.proxy, what, body)
        assert (what, body, got) == (what, body, status)
        assert says_so in told["error"]["message"], (what, body)

    assert [row["name"] for row in asked(begun.proxy, "branches")[1]["branches"]] == ["main"]


@pytest.mark.parametrize(
    ("operation_name", "arguments"),
    [
        ("checkpoint", {"name": "a b"}),
        ("checkpoint", {"name": ["x"] * 3, "thread": {"a": 1}}),
        ("branch", {}),
        ("branch", {"checkpoint": "no" * 5_000}),
        ("switch", {}),
        ("switch", {"branch": "</stack-context>"}),
        ("inject", {"branch": "main"}),
        ("inject", {"branch": "main", "messages": ["one"]}),
        ("inject", {"branch": "main", "messages": [10**30]}),
        ("inject", {"branch": "main", "messages": [True]}),
        ("inject", {"branch": 7, "frameID": "x"}),
    ],
)
@pytest.mark.asked("plain")
@pytest.mark.spoken_in("chat", reason="tool texts are the same in every dialect")
def test_a_mistake_by_the_model_is_text_that_says_what_to_do(
    chat: Conversation, provider: ScriptedProvider, operation_name: str, arguments: Json
) -> None:
    provider.will(does(operation(operation_name, **arguments)), says("I see."))
    answer = chat.says("begin")

    told = texts(provider.received[-1].messages)[-1]
    assert answer.text == "I see."
    if operation_name == "checkpoint" and not isinstance(arguments["name"], str):
        assert "Checkpoint c1 is set" in told  # what is no text counts as not given
    else:
        assert "Error" in told
        assert len(told) < 500


def test_what_belongs_to_another_tenant_is_answered_like_what_never_was(
    stage: Stage, provider: ScriptedProvider
) -> None:
    proxy = stage.proxy(tenancy="key")
    proxy.headers = {"authorization": f"Bearer {issue_key(proxy.config.keys_path, 'operator', admin=True)}"}
    mine, other = ({"authorization": f"Bearer {issue_key(proxy.config.keys_path, n)}"} for n in ("mine", "other"))
    chat = stage.chat(proxy, headers=mine)
    says_to(chat, provider, "begin", answer="Begun.")

    for what, body in (
        ("checkpoints", {}), ("checkpoints", None), ("checkpoints/c1", None), ("branches", {}), ("branches", None),
        ("branches/main", None), ("switch", {"branch": "main"}), ("inject", {"branch": "main", "messages": [1]}),
    ):  # fmt: skip
        assert asked(proxy, what, body, other)[0] == 404, what
        assert asked(proxy, what, body, {"authorization": "Bearer wrong"})[0] == 401, what
    assert asked(proxy, "checkpoints", {}, mine)[0] == 200
