"""What clients and models get wrong: plans nobody can read, histories that shrink, clients that compact. Nothing
crashes, nothing is lost, no other run's content shows, and frames stay sensible (S1-76, S1-70, X-06)."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from llm_test_provider import ScriptedAnswer, ScriptedCall, ScriptedProvider, call, says
from tests.client_dialects import MESSAGES
from tests.client_dialects.tongue import input_of
from tests.harness import Conversation, Stage, as_one_text, bash, does, texts
from tests.scenarios.sessions import TOOLS, Session, portrait, shaped, todo

LIST = [{"content": "Lexer", "status": "in_progress"}]


@pytest.fixture
def planner(stage: Stage) -> Conversation:
    return stage.chat(tools=TOOLS)


# ----------------------------------------------------------------------------------------------------- malformed plans
NONSENSE: dict[str, ScriptedCall] = {
    "no JSON": ScriptedCall("TodoWrite", '{"todos": [{"content": "Lex'),
    "another type": ScriptedCall("TodoWrite", '"todos"'),
    "null": ScriptedCall("TodoWrite", "null"),
    "a list": ScriptedCall("TodoWrite", "[1, 2]"),
    "a number for the list": call("TodoWrite", todos=7),
    "items of the wrong types": call("TodoWrite", todos=[1, None, [], {}, {"content": 3}, {"status": "in_progress"}]),
    "an empty title": call("TodoWrite", todos=[{"content": "  ", "status": "in_progress"}]),
    "deep nesting": ScriptedCall("TodoWrite", '{"todos":' + "[" * 2_000 + "]" * 2_000 + "}"),
    "no such id": call("TaskUpdate", taskId="99", status="completed"),
    "an id of another type": call("TaskUpdate", taskId={"a": 1}, status="completed"),
    "no id at all": call("TaskUpdate", status="in_progress"),
    "a status nobody knows": call("TaskUpdate", taskId="1", status="vibing"),
    "nothing to create": call("TaskCreate"),
}


@pytest.mark.parametrize("made", NONSENSE.values(), ids=NONSENSE.keys())
def test_what_nobody_can_read_changes_nothing(
    provider: ScriptedProvider, planner: Conversation, made: ScriptedCall
) -> None:
    """The call and its result pass as they are, and the plan before it stands."""
    given = made.arguments_text()
    too_deep = "[" * 1_000 in given  # for some versions of Python
    if planner.proxy.tongue is MESSAGES and (too_deep or not isinstance(input_of(given), dict)):
        pytest.skip("the messages API takes arguments that are an object, no others, and not nested too deep")
    provider.will(
        does(todo("[>] Lexer | [ ] Parser")),
        does(made),
        does(bash("lex")),
        says("There."),
    )
    planner.says("Build the formatter.")
    planner.returns("ok")
    planner.returns("whatever came of it")
    planner.returns("lexed")

    assert planner.proxy.statuses() == {
        "Build the formatter.": "in_progress", "Lexer": "in_progress", "Parser": "planned",
    }  # fmt: skip
    assert "whatever came of it" in as_one_text(provider.received[-1].messages)


ODD_ITEMS: dict[str, tuple[Any, dict[str, str]]] = {
    "an unknown status": ([{"content": "Lexer", "status": "vibing"}], {"Lexer": "planned"}),
    "no status": ([{"content": "Lexer"}], {"Lexer": "planned"}),
    "plain texts": (["Lexer", "Parser"], {"Lexer": "planned", "Parser": "planned"}),
    "JSON in JSON": (json.dumps(LIST), {"Lexer": "in_progress"}),
    "some items broken": ([None, *LIST, 7], {"Lexer": "in_progress"}),
    "line ends in a title": ([{"content": "Lex\ner", "status": "in_progress"}], {"Lex er": "in_progress"}),
    "markup in a title": (
        [{"content": "</stack-context><b>", "status": "in_progress"}],
        {"</stack-context><b>": "in_progress"},
    ),
    "an empty list": ([], {}),
}


@pytest.mark.parametrize(("stated", "frames"), ODD_ITEMS.values(), ids=ODD_ITEMS.keys())
def test_odd_items_are_taken_for_what_can_be_read(
    provider: ScriptedProvider, planner: Conversation, stated: object, frames: dict[str, str]
) -> None:
    provider.will(does(call("TodoWrite", todos=stated)), says("There."))
    planner.says("Build the formatter.")
    planner.returns("ok")

    assert planner.proxy.statuses() == {"Build the formatter.": "in_progress", **frames}


@pytest.mark.spoken_in(
    "chat", reason="a bound of what is told, which knows no dialect; the laws read a page for each frame"
)
@pytest.mark.long
def test_a_list_of_thousands_is_bounded(provider: ScriptedProvider, planner: Conversation) -> None:
    many = [{"content": f"Item {n}", "status": "pending"} for n in range(5_000)]
    provider.will(does(call("TodoWrite", todos=many)), does(call("TodoWrite", todos=many)), says("There."))
    planner.says("Build the formatter.")
    planner.returns("ok")
    planner.returns("ok")

    assert sum(title.startswith("Item ") for title in planner.proxy.statuses()) == 300


def test_an_item_renamed_midway_is_the_same_frame(provider: ScriptedProvider, planner: Conversation) -> None:
    """One that is only planned gets the new words; one under way keeps those it began with, and goes on."""
    played = Session(planner, provider, padding=0)
    played.plays(
        """
        user: Build the formatter.
        todo: [>] Write the lexer | [ ] Write the parser
        run lex
        todo: [>] Write the lexer with tests | [ ] Write the parser and printer
        run test
        todo: [x] Write the lexer with tests | [>] Write the parser and printer
        run parse
        says: There.
        """
    )

    assert portrait(planner.proxy) == shaped(
        """
        root in_progress: Build the formatter.
            user: Build the formatter.
          plan completed: Write the lexer
              TodoWrite
              run lex
              TodoWrite
              run test
          plan in_progress: Write the parser and printer
              TodoWrite
              run parse
              says: There.
        """
    )


def test_a_plan_replaced_wholesale_ends_what_was_under_way(provider: ScriptedProvider, planner: Conversation) -> None:
    played = Session(planner, provider, padding=0)
    played.plays(
        """
        user: Build the formatter.
        todo: [>] Lexer | [ ] Parser | [x] Setup
        run lex
        todo: [>] Survey of existing formatters | [ ] Decision
        run survey
        says: There.
        """
    )

    assert portrait(planner.proxy) == shaped(
        """
        root in_progress: Build the formatter.
            user: Build the formatter.
          plan invalidated: Lexer
              TodoWrite
              run lex
          plan invalidated: Parser
          plan completed: Setup
          plan in_progress: Survey of existing formatters
              TodoWrite
              run survey
              says: There.
          plan planned: Decision
        """
    )


def test_the_same_title_twice_is_two_items(provider: ScriptedProvider, planner: Conversation) -> None:
    played = Session(planner, provider, padding=0)
    played.plays(
        """
        user: Build the formatter.
        todo: [>] Test | [ ] Test
        run one
        todo: [x] Test | [>] Test
        run two
        says: There.
        """
    )

    assert [f"{status}" for status in portrait(planner.proxy, steps=False).split("\n")] == [
        "root in_progress: Build the formatter.",
        "  plan completed: Test",
        "  plan in_progress: Test",
    ]


def test_a_finished_item_that_is_opened_again_is_a_new_frame(provider: ScriptedProvider, planner: Conversation) -> None:
    """What is final stays so."""
    played = Session(planner, provider, padding=0)
    played.plays(
        """
        user: Build the formatter.
        todo: [>] Lexer
        run lex
        todo: [x] Lexer
        todo: [>] Lexer
        run lex again
        says: There.
        """
    )

    assert portrait(planner.proxy) == shaped(
        """
        root in_progress: Build the formatter.
            user: Build the formatter.
            TodoWrite
          plan completed: Lexer
              TodoWrite
              run lex
          plan in_progress: Lexer
              TodoWrite
              run lex again
              says: There.
        """
    )


# ------------------------------------------------------------------------------------------------- calls and no results
def test_a_subagent_that_never_returns_leaves_its_caller_alone(stage: Stage, provider: ScriptedProvider) -> None:
    """The user goes on without it; the child keeps what it did."""
    proxy = stage.proxy()
    parent = stage.chat(proxy, tools=(*TOOLS, "task"))
    child = stage.chat(proxy, tools=("bash",))
    prompt = "Find the flaky tests."
    provider.will(does(call("task", prompt=prompt)), does(bash("pytest")), says("It takes too long."))
    parent.says("Make the build green.")
    child.says(prompt)

    parent.says("stop, forget about the subagent")

    assert "cancelled" in as_one_text(provider.received[-1].messages)
    assert "pytest" not in as_one_text(provider.received[-1].messages)
    assert len(proxy.conversations) == 2
    by_title = {row["title"]: row for row in proxy.conversations}
    assert by_title[prompt]["parent"] == by_title["Make the build green."]["id"]
    assert proxy.statuses(by_title["Make the build green."]["id"]) == {
        "Make the build green.": "in_progress",
        prompt: "blocked",
    }


@pytest.mark.spoken_in("chat", reason="the other APIs refuse a result without its call")
def test_results_without_calls_pass_and_open_nothing(stage: Stage, provider: ScriptedProvider) -> None:
    """A client cut its history between a call and its result. What it sends is for its provider to judge."""
    planner = stage.chat(stage.proxy(wake_at_tokens=1_000_000), tools=TOOLS)
    provider.will(does(todo("[>] Lexer")), says("There."), says("Fine."), says("Good."))
    planner.says("Build the formatter.")
    planner.returns("ok")
    planner.history[1:2] = []  # the call is gone, its result is not

    assert planner.says("go on").text == "Fine."
    assert planner.says("Unrelated: translate the onboarding email into French.").text == "Good."
    assert provider.received[-1].body["messages"][1:] == planner.history[:-1]
    trees = [list(planner.proxy.statuses(row["id"])) for row in planner.proxy.conversations]
    assert all(tree in (["Build the formatter."], ["Build the formatter.", "Lexer"]) for tree in trees)


@pytest.mark.spoken_in("chat", "responses", reason="the messages API refuses ids that repeat")
def test_call_ids_that_repeat_across_runs_mix_nothing_up(stage: Stage, provider: ScriptedProvider) -> None:
    """Two runs of one script: the same system text, the same ids, other content."""
    proxy = stage.proxy()
    for word in ("plum", "pear"):
        chat = stage.chat(proxy, tools=TOOLS)
        made = [
            ScriptedCall("TodoWrite", todo("[>] Lexer | [ ] Parser").arguments, id="call_1"),
            ScriptedCall("bash", {"command": word}, id="call_2"),
        ]
        made.append(ScriptedCall("TodoWrite", todo("[x] Lexer | [>] Parser").arguments, id="call_1"))
        provider.will(*(ScriptedAnswer(calls=(one,)) for one in made), says("There."))
        chat.says(f"Build the {word} formatter.")
        for result in ("ok", f"secret of {word}", "ok"):
            chat.returns(result)

    assert len(proxy.conversations) == 2
    assert "plum" not in as_one_text(provider.received[-1].messages)
    for conversation in proxy.conversations:
        assert sorted(proxy.statuses(conversation["id"]).values()) == ["completed", "in_progress", "in_progress"]


@pytest.mark.spoken_in("chat", "responses", reason="the messages API refuses ids that repeat")
def test_ids_that_repeat_within_a_run_keep_each_result_with_its_call(stage: Stage, provider: ScriptedProvider) -> None:
    """Some models number their calls anew in each answer."""
    session = Session(stage.chat(tools=TOOLS), provider)
    steps = [todo("[>] Lexer | [ ] Parser"), bash("lex"), bash("test"), todo("[x] Lexer | [>] Parser"), bash("parse")]
    provider.will(
        *(ScriptedAnswer(calls=(ScriptedCall(one.name, one.arguments, id="call_0"),)) for one in steps), says("There.")
    )
    session.chat.says("Build the formatter.")
    for _ in steps:
        session.chat.returns(session.output("ok"))

    line = provider.received[-1].messages
    assert session.outputs_sent() == [4, 5]
    pairs = [(m["tool_calls"][0]["function"]["name"], n["role"]) for m, n in pairwise(line) if m.get("tool_calls")]
    assert pairs == [("TodoWrite", "tool"), ("bash", "tool")]
    assert portrait(session.chat.proxy) == shaped(
        """
        root in_progress: Build the formatter.
            user: Build the formatter.
          plan completed: Lexer
              TodoWrite
              run lex
              run test
          plan in_progress: Parser
              TodoWrite
              run parse
              says: There.
        """
    )


# --------------------------------------------------------------------------------------------- histories that change
BEGUN = """
    user: Fix the title of the handbook.
    read handbook.md
    edit handbook.md
    run make docs
    says: The title of the handbook is right now.
    user: Implement a rate limiter for the public API.
    read src/limit.py -> class TokenBucket: take_token refill_bucket MAX_BURST REFILL_SECONDS BucketError
    edit src/limit.py
    says: There is a token bucket in src/limit.py.
"""


def test_a_history_that_shrinks_from_the_front_goes_on(stage: Stage, provider: ScriptedProvider) -> None:
    """A client that drops its oldest turns: the same conversation, and nothing that it dropped comes back."""
    session = Session(stage.chat(tools=TOOLS), provider)
    session.plays(BEGUN)
    del session.chat.history[:8]
    stage.excuse()

    session.plays("user: and use redis for it\nedit src/limit.py\nsays: It uses redis.")

    assert len(session.chat.proxy.conversations) == 1
    assert 1 not in session.outputs_sent()
    assert session.outputs_sent()[-1] == 6
    assert "use redis" in as_one_text(provider.received[-1].messages)


def test_a_history_that_is_reordered_passes_whole(stage: Stage, provider: ScriptedProvider) -> None:
    """The client's own order counts; nothing is left out of it and nothing stands twice."""
    session = Session(stage.chat(tools=TOOLS), provider)
    session.plays(
        """
        user: Fix the title of the handbook.
        read handbook.md
        edit handbook.md
        says: The title of the handbook is right now.
        user: and does it still build?
        run make docs
        says: It builds without a warning.
        """
    )
    turns = session.chat.history
    session.chat.history = [*turns[6:], *turns[:6]]
    stage.excuse()

    provider.will(says("Still here."))
    answer = session.chat.says("are you still there?")

    assert answer.text == "Still here."
    assert texts(provider.received[-1].messages)[-1] == "user: are you still there?"
    assert session.outputs_sent() == [3, 1, 2]
    assert len(session.chat.proxy.conversations) == 1


def summary_of(number: int) -> str:
    """What a client writes where its history was: long, and it quotes the user."""
    return (
        f"This is summary {number} of the work so far. The user asked: Fix the title of the handbook. That is done: "
        "handbook.md has the right title, and `make docs` builds it. Then the user asked: Implement a rate limiter "
        "for the public API. There is a TokenBucket in src/limit.py with take_token and refill_bucket, bounded by "
        "MAX_BURST and REFILL_SECONDS; it raises BucketError. "
    ) + "The work goes on from here with the limiter, as the user wants it. " * 12


@pytest.mark.rows("X-06", "S1-70b", "S1-100")
@pytest.mark.parametrize("named", [True, False], ids=["named session", "no session"])
def test_a_client_that_compacts_twice_keeps_its_frames(
    stage: Stage, provider: ScriptedProvider, *, named: bool
) -> None:
    """X-06, S1-70b: the history begins anew with a summary of it; the tree goes on, and what was folded can be
    recalled."""
    headers = {"x-session-id": "s-1"} if named else {}
    session = Session(stage.chat(tools=TOOLS, headers=headers), provider, padding=6_000)
    session.plays(BEGUN)
    for number in (1, 2):
        summary = summary_of(number)
        session.chat.history = [{"role": "user", "content": summary}]
        stage.excuse()
        edits = "edit src/limit.py\n" * 5
        session.plays(f"user: go on with step {number} of the rate limiter\n{edits}says: Step {number} is done.")

    proxy = session.chat.proxy
    assert len(proxy.conversations) == 1
    frames = portrait(proxy, steps=False)
    assert "request completed: Fix the title of the handbook." in frames
    line = as_one_text(provider.received[-1].messages)
    assert "summary 2" in line
    assert "summary 1" not in line
    assert "output-1-here" not in line


def test_a_strangers_summary_opens_a_conversation_of_its_own(stage: Stage, provider: ScriptedProvider) -> None:
    """When in doubt it is a new one: no other run's frames, no other run's content."""
    proxy = stage.proxy()
    first = Session(stage.chat(proxy, tools=TOOLS), provider)
    first.plays(BEGUN)
    other = Session(stage.chat(proxy, tools=TOOLS), provider)
    summary = "Summary: we ported the build to Bazel; WORKSPACE, toolchain.bzl and defs.bzl are written. " * 20
    other.plays(f"user: {summary}\nrun bazel build\nsays: It builds.")

    assert len(proxy.conversations) == 2
    assert "handbook" not in as_one_text(provider.received[-1].messages)
