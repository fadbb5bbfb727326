"""How much the proxy decides about frames: it says nothing, it suggests, or it does it (S1-81 to S1-96, S1-126 to
S1-130).

Every scenario ends before the judge of `tests.laws`: a suggestion is part of the line from then on, and no client sees
it; a frame that the proxy opens by itself takes nothing off the line until it folds.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from callstack_proxy.management.issued_keys import issue_key
from llm_test_provider import ScriptedCall, ScriptedProvider, call, says
from tests.harness import Conversation, Json, RunningProxy, Stage, bash, does, op, pop, push, texts
from tests.scenarios.sessions import todo

TOOLS = ("bash", "edit", "read", "TodoWrite")
FAILED = "2 failed, 3 passed\nExit code: 1"
ELSEWHERE = "Unrelated: translate the onboarding email into French."
PUSHING = re.compile(
    r"<!-- Stack Autonomy Suggestions -->\n"
    r"\[STACK SUGGESTION: Consider pushing a new frame for \"([^\"]+)\" - Reason: (.+) \((\d+)% confidence\)\]"
)
POPPING = re.compile(
    r"<!-- Stack Autonomy Suggestions -->\n"
    r"\[STACK SUGGESTION: Consider popping the current frame \"([^\"]+)\" as (\w+) - "
    r"Reason: (.+) \((\d+)% confidence\)\]"
)
MARK = "[STACK SUGGESTION"
DONE = (
    (call("edit", filePath="src/cart.py", oldString="a", newString="b"), "The file has been updated."),
    (call("edit", filePath="src/price.py", oldString="a", newString="b"), "The file has been updated."),
    (call("edit", filePath="src/cents.py", oldString="a", newString="b"), "The file has been updated."),
    (bash("pytest -q"), "5 passed\nExit code: 0"),
    (bash("ruff check ."), "All checks passed!"),
)


def suggestions_in(messages: list[Json]) -> int:
    return "".join(texts(messages)).count(MARK)


def stuck(chat: Conversation, provider: ScriptedProvider, frame: str = "Cart rounding", **last: Any) -> None:
    """In a frame of its own the model fails four times, gives up, and the user asks for something else; with these
    members in `last`. Requests are not followed here, or this one would end the frame."""
    provider.will(does(push(frame, "prices are rounded")), *[does(bash("pytest -q"))] * 4)
    provider.will(says("The tests still fail; I could not find out why."), says("Bonjour."))
    chat.says("Make the cart round its prices.")
    for n in range(4):
        chat.returns(f"{FAILED} (run {n})")
    chat.says(ELSEWHERE, **last)


def finished(chat: Conversation, provider: ScriptedProvider, *after: Any) -> None:
    """In a frame of its own the model changes three files, and every check passes; `after` it answers this."""
    made = [call for call, _ in DONE]
    provider.will(does(push("Cart rounding", "pytest and ruff pass")), *map(does, made), *after)
    chat.says("Make the cart round its prices.")
    for _, result in DONE:
        chat.returns(result)


def told(proxy: RunningProxy) -> Json:
    return dict(proxy.get(f"/stack/conversations/{proxy.conversations[0]['id']}/autonomy"))


def by_itself(proxy: RunningProxy) -> list[Json]:
    """The frames of level auto, in order of birth."""
    told = (proxy.get(f"/stack/frames/{frame['sessionID']}") for frame in proxy.frames().values() if frame.get("auto"))
    return [frame for frame in told if frame["origin"] == "auto"]


@pytest.fixture
def chat(stage: Stage) -> Conversation:
    return stage.chat(stage.proxy(infer_requests="false", autonomy="suggest"), tools=TOOLS)


# ---------------------------------------------------------------------------------------------------------- suggesting
@pytest.mark.rows("S1-82", "S1-85", "S1-92", "S1-94", "S0-05", "S0-38", "D2")
def test_four_errors_and_another_goal_suggest_a_push_behind_the_users_words(
    chat: Conversation, provider: ScriptedProvider
) -> None:
    """No tool was called for it, and the client sees nothing of it."""
    stuck(chat, provider)

    lines = [received.messages for received in provider.received]
    assert [suggestions_in(line) for line in lines] == [0] * (len(lines) - 1) + [1]
    found = PUSHING.search(texts(lines[-1][-1:])[0])
    assert found
    assert found.groups() == (
        "Unrelated: translate the onboarding email into French.",
        "4 errors since the last success and a new goal",
        "80",
    )
    assert suggestions_in(chat.history) == 0
    (suggestion,) = told(chat.proxy)["pending"]
    assert suggestion["text"] == found[0].partition("\n")[2]
    assert {suggestion[key] for key in ("type", "heuristic", "actedUpon", "state")} == {
        "push", "failure_boundary", False, "waiting",
    }  # fmt: skip


@pytest.mark.rows("S1-93", "S1-95", "D3")
def test_a_push_within_five_minutes_acts_upon_the_suggestion(chat: Conversation, provider: ScriptedProvider) -> None:
    stuck(chat, provider)
    provider.will(does(push("Translation", "the email is French")), says("Bonjour."))
    chat.says("Please go on with the translation of the email now.")

    shown = told(chat.proxy)
    assert [(each["state"], each["actedUpon"]) for each in shown["history"]] == [("acted", True)]
    assert shown["pending"] == []
    assert shown["stats"] == {
        "total": 1, "push": 1, "pop": 0, "acted": 1, "ignored": 0, "auto_pushes": 0, "auto_pops": 0,
    }  # fmt: skip


@pytest.mark.rows("S1-93")
def test_a_suggestion_that_nobody_follows_expires_and_its_bytes_stay(
    stage: Stage, provider: ScriptedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S1-93: it is not repeated either. The clock is ours: six minutes are too long for a test."""
    minutes = count()
    clock: Callable[[], int] = lambda: 1_700_000_000_000 + next(minutes) * 1_000  # noqa: E731
    monkeypatch.setattr("proxy.server.app.now_ms", clock)
    chat = stage.chat(stage.proxy(infer_requests="false", autonomy="suggest"), tools=TOOLS)
    stuck(chat, provider)
    suggested = provider.received[-1].messages
    monkeypatch.undo()
    later = 1_700_000_000_000 + 3_600_000
    monkeypatch.setattr("proxy.server.app.now_ms", lambda: later)
    chat.proxy.restart()
    provider.will(says("Salut."), says("Voilà."))
    chat.says("Is that really all?")
    chat.says("And now?")

    last = provider.received[-1].messages
    assert suggestions_in(last) == 1
    assert last[: len(suggested)] == suggested
    shown = told(chat.proxy)
    assert [each["state"] for each in shown["history"]] == ["expired"]
    assert (shown["stats"]["ignored"], shown["stats"]["acted"]) == (1, 0)


@pytest.mark.rows("S1-89", "S1-94", "S1-95", "D3")
def test_a_frame_whose_checks_all_pass_is_suggested_to_end_and_its_pop_acts_upon_that(
    chat: Conversation, provider: ScriptedProvider
) -> None:
    finished(chat, provider, does(pop("Prices are rounded.")), says("Done."))

    lines = [received.messages for received in provider.received]
    found = POPPING.search(texts(lines[-2][-1:])[0])
    assert found
    assert (found[1], found[2]) == ("Cart rounding", "completed")
    assert "pytest -q, ruff check ." in found[3]
    assert int(found[4]) >= 80
    assert told(chat.proxy)["stats"]["acted"] == 1


@pytest.mark.rows("S1-81")
@pytest.mark.parametrize(
    "settings",
    [{}, {"autonomy": "manual"}, {"autonomy": "suggest", "mode": "passive"}, {"autonomy": "suggest", "mode": "shadow"}],
)
def test_where_nobody_wants_it_nothing_is_suggested(
    stage: Stage, provider: ScriptedProvider, settings: dict[str, str]
) -> None:
    """S1-81: and level `manual` opens no frame by itself."""
    chat = stage.chat(stage.proxy(**settings), tools=TOOLS)
    provider.will(*[does(bash("pytest -q"))] * 4, says("It still fails."), says("Bonjour."))
    chat.says("Make the cart round its prices.")
    for n in range(4):
        chat.returns(f"{FAILED} (run {n})")
    chat.says(ELSEWHERE)

    assert not any(suggestions_in(received.messages) for received in provider.received)
    assert told(chat.proxy)["history"] == []


@pytest.mark.rows("S1-96", "S1-92")
def test_without_words_in_the_context_suggestions_are_only_listed(stage: Stage, provider: ScriptedProvider) -> None:
    chat = stage.chat(stage.proxy(infer_requests="false", autonomy="suggest", suggest_in_context="false"), tools=TOOLS)
    stuck(chat, provider)

    assert not any(suggestions_in(received.messages) for received in provider.received)
    assert [each["told"] for each in told(chat.proxy)["pending"]] == [False]


def test_a_model_that_takes_no_words_behind_results_is_told_none(stage: Stage, provider: ScriptedProvider) -> None:
    proxy = stage.proxy(
        infer_requests="false", autonomy="suggest", tariffs__own__names="gpt-x", tariffs__own__after_tool="suffix"
    )
    chat = stage.chat(proxy, tools=TOOLS)
    stuck(chat, provider)

    assert not any(suggestions_in(received.messages) for received in provider.received)
    assert told(proxy)["history"] == []


@pytest.mark.spoken_in("chat", reason="each dialect has its own word for it, read by the same rule")
@pytest.mark.asked("plain")
def test_a_request_that_leaves_no_choice_of_tools_is_told_nothing(
    chat: Conversation, provider: ScriptedProvider
) -> None:
    """The model could not follow."""
    stuck(chat, provider, tool_choice={"type": "function", "function": {"name": "bash"}})
    assert chat.last is not None
    assert chat.last.stack_status == "full"
    assert not any(suggestions_in(received.messages) for received in provider.received)
    assert told(chat.proxy)["history"] == []


@pytest.mark.rows("S1-81", "S1-82")
def test_where_the_clients_own_plan_divides_the_work_no_push_is_suggested(
    chat: Conversation, provider: ScriptedProvider
) -> None:
    steps: list[ScriptedCall] = [todo("[>] Rounding | [ ] Email"), *[bash("pytest -q")] * 4]
    provider.will(
        does(push("Cart", "it rounds"), steps[0]),
        *map(does, steps[1:]),
        says("It still fails."),
        says("Oui."),
    )
    chat.says("Make the cart round its prices.")
    for n in range(5):
        chat.returns(f"{FAILED} (run {n})")
    chat.says(ELSEWHERE)

    assert not any(suggestions_in(received.messages) for received in provider.received)
    assert told(chat.proxy)["push"]["pointless"] == "the client's own plan divides the work"


@pytest.mark.rows("S1-93")
def test_a_restart_forgets_no_suggestion_and_repeats_none(chat: Conversation, provider: ScriptedProvider) -> None:
    """S1-93, X-05: what was told is on disk."""
    stuck(chat, provider)
    chat.proxy.restart()
    provider.will(says("Salut."))
    chat.says("Is that really all of it?")

    assert [suggestions_in(r.messages) for r in provider.received][-2:] == [1, 1]
    assert len(told(chat.proxy)["pending"]) == 1


def test_a_retry_is_not_told_twice(chat: Conversation, provider: ScriptedProvider) -> None:
    stuck(chat, provider)
    provider.will(says("Bonjour encore."))
    chat.history.pop()
    chat.asks()

    assert [suggestions_in(r.messages) for r in provider.received][-2:] == [1, 1]
    assert told(chat.proxy)["stats"]["total"] == 1


# ------------------------------------------------------------------------------------------------------------ by itself
@pytest.mark.rows("S1-83", "S0-37", "D3")
def test_level_auto_opens_a_frame_by_itself_where_much_was_done(stage: Stage, provider: ScriptedProvider) -> None:
    """D3: it really acts, and counts what it did. Nothing on the line changes, and the model is told nothing."""
    chat = stage.chat(stage.proxy(infer_requests="false", autonomy="auto", push_threshold=30), tools=TOOLS)
    made = [call("edit", filePath=f"src/{n}.py", oldString="a", newString=f"b{n}") for n in range(8)]
    provider.will(*map(does, made), says("All eight are changed."))
    chat.says("Rename the class in every file.")
    for _ in made:
        chat.returns("The file has been updated.")

    shown = told(chat.proxy)
    frames = chat.proxy.frames()
    (opened,) = by_itself(chat.proxy)
    assert opened["title"].startswith("Step 2 of: Rename the class")
    assert opened["parentSessionID"] == next(iter(frames.values()))["sessionID"]
    assert (shown["frame"], shown["stats"]["auto_pushes"]) == (opened["sessionID"], 1)
    assert not any(suggestions_in(received.messages) for received in provider.received)


@pytest.mark.rows("S1-83")
def test_what_it_opened_it_ends_where_the_work_seems_done(stage: Stage, provider: ScriptedProvider) -> None:
    chat = stage.chat(
        stage.proxy(infer_requests="false", autonomy="auto", push_threshold=30, pop_threshold=60), tools=TOOLS
    )
    made = [call("edit", filePath=f"src/{n}.py", oldString="a", newString=f"b{n}") for n in range(6)]
    provider.will(*map(does, made), *[does(step) for step, _ in DONE], says("Done."))
    chat.says("Rename the class in every file.")
    for _ in made:
        chat.returns("The file has been updated.")
    for _, result in DONE:
        chat.returns(result)

    auto = by_itself(chat.proxy)
    assert auto[0]["status"] == "completed"
    assert told(chat.proxy)["stats"]["auto_pops"] >= 1


@pytest.mark.rows("S1-83")
def test_inside_a_frame_that_the_model_pushed_level_auto_only_suggests(
    stage: Stage, provider: ScriptedProvider
) -> None:
    chat = stage.chat(stage.proxy(infer_requests="false", autonomy="auto"), tools=TOOLS)
    stuck(chat, provider)

    assert [suggestions_in(r.messages) for r in provider.received][-1] == 1
    assert by_itself(chat.proxy) == []


@pytest.mark.rows("S1-83")
def test_frames_of_level_auto_fold_as_other_inferred_frames_do(stage: Stage, provider: ScriptedProvider) -> None:
    """The laws are judged over the fold; what left is recalled by the frame's id."""
    settings = {"autonomy": "auto", "push_threshold": 20, "pop_threshold": 101, "frame_max_tokens": 500_000}
    chat = stage.chat(stage.proxy(**settings), tools=TOOLS)
    made = [call("edit", filePath=f"src/{n}.py", oldString="a", newString=f"b{n}") for n in range(16)]
    provider.will(*map(does, made), says("All are changed."), says("Bonjour."))
    chat.says("Rename the class in every file.")
    for n in range(16):
        chat.returns(f"The file has been updated. Output {n}: " + "padding " * 900)
    chat.says(ELSEWHERE)

    auto = by_itself(chat.proxy)
    assert len(auto) >= 2
    assert {frame["status"] for frame in auto} == {"completed"}
    assert any("folded" in event for receipt in chat.proxy.receipts() for event in receipt["events"])


@pytest.mark.spoken_in("chat", reason="about the management API, which knows no dialect")
@pytest.mark.asked("plain")
# -------------------------------------------------------------------------------------------------- asking and changing
@pytest.mark.rows("S1-126", "S1-84", "S1-96")
def test_a_person_sets_the_level_of_one_conversation_and_it_outlives_a_restart(
    stage: Stage, provider: ScriptedProvider
) -> None:
    chat = stage.chat(stage.proxy(infer_requests="false"), tools=TOOLS)
    provider.will(says("Hello."))
    chat.says("Hello, are you there?")
    path = f"/stack/conversations/{chat.proxy.conversations[0]['id']}/autonomy"
    wanted = {"level": "suggest", "push_threshold": 150, "pop_threshold": -3, "heuristics": ["stagnation", "duration"]}
    status, shown = chat.proxy.asked("PATCH", path, wanted)

    assert (status, shown["level"], shown["push_threshold"], shown["pop_threshold"]) == (200, "suggest", 100, 0)
    assert shown["heuristics"] == ["duration", "stagnation"]
    assert shown["chosen"] == ["level", "push_threshold", "pop_threshold", "heuristics"]
    chat.proxy.restart()
    assert told(chat.proxy)["level"] == "suggest"
    everything_back = {"push_threshold": None, "pop_threshold": None, "heuristics": None}
    assert chat.proxy.asked("PATCH", path, everything_back)[1]["chosen"] == ["level"]
    stuck(chat, provider)
    assert [suggestions_in(r.messages) for r in provider.received][-1] == 1


@pytest.mark.rows("S1-129", "S1-130")
@pytest.mark.spoken_in("chat", reason="about the management API, which knows no dialect")
@pytest.mark.asked("plain")
def test_what_waits_is_taken_back_and_counts_begin_anew(chat: Conversation, provider: ScriptedProvider) -> None:
    """S1-129, S1-130: the words stay where they stand."""
    stuck(chat, provider)
    path = f"/stack/conversations/{chat.proxy.conversations[0]['id']}/autonomy"

    assert chat.proxy.asked("DELETE", f"{path}/suggestions") == (200, {"cleared": 1})
    assert [each["state"] for each in told(chat.proxy)["history"]] == ["cleared"]
    assert chat.proxy.asked("DELETE", f"{path}/suggestions?counts=true") == (200, {"cleared": 0})
    assert set(told(chat.proxy)["stats"].values()) == {0}
    provider.will(says("Salut."))
    chat.says("Go on.")
    assert suggestions_in(provider.received[-1].messages) == 1


WRONG_BODIES: list[Any] = [
    {"level": "always"},
    {"push_threshold": "high"},
    {"pop_threshold": 2**60},
    {"combine": "median"},
    {"heuristics": ["intuition"]},
    {"heuristics": ["duration"] * 8},
    {"suggest_in_context": 7},
    {"unheard": 1},
    [],
    b"{",
]


@pytest.mark.spoken_in("chat", reason="about the management API, which knows no dialect")
@pytest.mark.asked("plain")
def test_a_wrong_body_is_refused_with_what_is_wrong(chat: Conversation, provider: ScriptedProvider) -> None:
    provider.will(says("Hello."))
    chat.says("Hello, are you there?")
    path = f"/stack/conversations/{chat.proxy.conversations[0]['id']}/autonomy"

    for body in WRONG_BODIES:
        status, said = chat.proxy.asked("PATCH", path, body)
        assert (body, status, bool(said["error"]["message"])) == (body, 400, True)
    assert told(chat.proxy)["chosen"] == []


@pytest.mark.rows("X-25")
@pytest.mark.spoken_in("chat", reason="about the management API, which knows no dialect")
@pytest.mark.asked("plain")
def test_the_autonomy_of_somebody_else_is_not_there(stage: Stage, provider: ScriptedProvider) -> None:
    """X-15."""
    proxy = stage.proxy(tenancy="key")
    keys = {name: issue_key(proxy.config.keys_path, name, admin=name == "root") for name in ("one", "two", "root")}
    headers = {name: {"authorization": f"Bearer {key}"} for name, key in keys.items()}
    proxy.headers = headers["root"]
    provider.will(says("Hello."))
    stage.chat(proxy, tools=TOOLS, headers=headers["one"]).says("Hello, are you there?")
    path = f"/stack/conversations/{proxy.conversations[0]['id']}/autonomy"

    for method, at in (("GET", ""), ("PATCH", ""), ("DELETE", "/suggestions")):
        body: Json | None = {} if method == "PATCH" else None
        foreign = proxy.asked(method, path + at, body, headers["two"])
        assert foreign[0] == 404
        unknown = proxy.asked(method, f"/stack/conversations/nobody/autonomy{at}", body, headers["one"])
        assert unknown[0] == 404
        assert proxy.asked(method, path + at, body, {"authorization": "Bearer wrong"})[0] == 401
        assert proxy.asked(method, path + at, body, headers["one"])[0] == 200


# ---------------------------------------------------------------------------------------------------------------- tools
def results_of(provider: ScriptedProvider) -> list[str]:
    """What the model was told by the tools it called, in order."""
    return [m["content"] for m in provider.received[-1].messages if m["role"] == "tool"]


@pytest.mark.rows("S1-126", "S1-127", "S1-128", "S1-129", "S1-130")
def test_the_five_tools_answer_by_what_was_observed(chat: Conversation, provider: ScriptedProvider) -> None:
    provider.will(does(bash("pytest -q")), does(op("should_push"), op("should_pop"), op("autonomy")))
    provider.will(does(op("auto_suggest", showHistory=True), call("stack_autonomy_stats")), says("I see."))
    chat.says("Make the cart round its prices.")
    chat.returns(FAILED)

    push_told, pop_told, rules, suggested, counts = results_of(provider)[1:]
    assert push_told.startswith("Go on here. Confidence 15 of 70 for a push.")
    assert "- failure_boundary: 15 (errors 1, new_goal False)" in push_told
    assert pop_told.endswith("This is the root frame: popping it ends the whole tree, until the user speaks again.")
    assert rules.startswith("level: suggest\nthresholds: push 70, pop 80 (combine: max)")
    assert suggested == "Nothing waits.\nNothing was suggested yet."
    assert counts == "total 0, push 0, pop 0, acted 0, ignored 0, auto_pushes 0, auto_pops 0"


@pytest.mark.spoken_in("chat", reason="about arguments, which every dialect carries alike")
@pytest.mark.asked("plain")
@pytest.mark.rows("S1-127", "S1-128", "S1-90")
def test_what_the_model_says_itself_goes_before_what_was_observed(
    chat: Conversation, provider: ScriptedProvider
) -> None:
    provider.will(
        does(
            op(
                "should_push", potentialGoal="Translate the email", recentFileChanges=["a", "b", "c", "d"], errorCount=4
            ),
            op("should_push", recentMessages=21, recentFileChanges=list("abcdef")),
            op("should_push", tokenCount=51_000),
            op("should_pop", noProgressTurns=6),
            op("should_pop", noProgressTurns=6, failureSignals=["a", "b", "c", "d"]),
            op("should_pop", tokenCount=91_000, contextLimit=100_000),
        ),
        says("I see."),
    )
    chat.says("Make the cart round its prices.")

    told_pushes, told_pops = results_of(provider)[:3], results_of(provider)[3:]
    assert told_pushes[0].startswith("Push a frame for 'Translate the email'. Confidence 80 of 70")
    assert told_pushes[1].startswith("Push a frame for 'the next step'.")
    assert "- duration: 70 (tokens 51000)" in told_pushes[2]
    assert told_pops[0].startswith("Go on here. A pop now would be blocked. Confidence 70 of 80")
    assert told_pops[1].startswith("Pop it as failed. Confidence 100 of 80")
    assert told_pops[2].startswith("Pop it as blocked. Confidence 90 of 80")


@pytest.mark.spoken_in("chat", reason="about arguments, which every dialect carries alike")
@pytest.mark.asked("plain")
@pytest.mark.rows("S1-85", "S1-127")
def test_a_goal_in_the_frames_own_words_is_no_new_one(chat: Conversation, provider: ScriptedProvider) -> None:
    provider.will(
        does(push("Round the cart", "The prices of the cart are rounded.")),
        does(*(op("should_push", potentialGoal=goal) for goal in ("round the cart!", "Test the cart", "the prices"))),
        says("I see."),
    )
    chat.says("Make the cart round its prices.")

    same, other, part = results_of(provider)[1:]
    assert "- failure_boundary: 0 (errors 0, new_goal False)" in same
    assert "- failure_boundary: 30 (errors 0, new_goal True)" in other
    assert "- failure_boundary: 30 (errors 0, new_goal True)" in part


@pytest.mark.spoken_in("chat", reason="about arguments, which every dialect carries alike")
@pytest.mark.asked("plain")
@pytest.mark.rows("S1-89", "S1-128")
def test_signs_of_success_that_the_model_tells_cover_the_frames_words(
    chat: Conversation, provider: ScriptedProvider
) -> None:
    signs = ["the prices of the cart are rounded", "4 passed", "no lint"]
    provider.will(
        does(push("Round the cart", "The prices of the cart are rounded.")),
        does(op("should_pop", successSignals=signs), op("should_pop", successSignals=signs[1:])),
        says("I see."),
    )
    chat.says("Make the cart round its prices.")

    all_told, none_of_them = results_of(provider)[1:]
    assert "- goal_completion: 90 (successes 3, artifacts 0, covered 1.0)" in all_told
    assert "- goal_completion: 40 (successes 2, artifacts 0, covered 0.0)" in none_of_them


@pytest.mark.spoken_in("chat", reason="about arguments, which every dialect carries alike")
@pytest.mark.asked("plain")
@pytest.mark.rows("S1-126", "S1-132")
def test_the_model_changes_only_what_the_configuration_lets_it(stage: Stage, provider: ScriptedProvider) -> None:
    chat = stage.chat(stage.proxy(autonomy="suggest", model_may_set="thresholds,heuristics"), tools=TOOLS)
    provider.will(
        does(
            op("autonomy", pushThreshold=150, disableHeuristic="duration"),
            op("autonomy", level="manual"),
            op("auto_suggest", enable=False),
            op("autonomy_stats", reset=True),
            op("autonomy", reset=True),
        ),
        says("I see."),
    )
    chat.says("Make the cart round its prices.")

    changed, level, words, counts, back = results_of(provider)
    assert changed.startswith("Set.\nlevel: suggest\nthresholds: push 100, pop 80")
    assert changed.endswith("; off: duration")
    for refused in (level, words, counts):
        assert refused.startswith("Error: ")
        assert "you may change heuristics, thresholds" in refused
    assert back.startswith("What was chosen here is taken back.")
    assert told(chat.proxy)["chosen"] == []


WRONG: list[tuple[str, Json]] = [
    ("autonomy", {"level": "always"}),
    ("autonomy", {"pushThreshold": "high"}),
    ("autonomy", {"popThreshold": [80]}),
    ("autonomy", {"suggestInContext": "perhaps"}),
    ("autonomy", {"enableHeuristic": "intuition"}),
    ("autonomy", {"disableHeuristic": "x" * 100_000}),
    ("should_push", {"errorCount": -1}),
    ("should_push", {"tokenCount": True}),
    ("should_push", {"recentFileChanges": [1, 2]}),
    ("should_push", {"recentMessages": {"n": 1}}),
    ("should_push", {"errorCount": 1e300}),
    ("should_pop", {"successSignals": 3}),
    ("should_pop", {"failureSignals": ["x"] * 1_001}),
    ("should_pop", {"contextLimit": 0}),
    ("should_pop", {"noProgressTurns": "nan"}),
    ("auto_suggest", {"enable": 2}),
    ("auto_suggest", {"clearPending": []}),
    ("autonomy_stats", {"reset": "now"}),
]


@pytest.mark.spoken_in("chat", reason="about arguments, which every dialect carries alike")
@pytest.mark.asked("plain")
@pytest.mark.rows("S1-132")
def test_wrong_arguments_are_answered_with_what_to_do(stage: Stage, provider: ScriptedProvider) -> None:
    proxy = stage.proxy(autonomy="suggest", model_may_set="level,thresholds,suggestions,heuristics,stats")
    chat = stage.chat(proxy, tools=TOOLS)
    provider.will(does(*(op(name, **arguments) for name, arguments in WRONG)), says("I see."))
    chat.says("Make the cart round its prices.")

    answers = results_of(provider)
    assert len(answers) == len(WRONG)
    assert [said for said in answers if not said.startswith("Error: ") or len(said) > 400] == []
    assert told(proxy)["chosen"] == []


@pytest.mark.rows("S1-126", "S1-134")
def test_the_tools_are_offered_by_name_only_where_every_tool_is(stage: Stage, provider: ScriptedProvider) -> None:
    offered = {}
    for profile in ("core", "full"):
        chat = stage.chat(stage.proxy(tools=profile), tools=TOOLS)
        provider.will(says("Hello."))
        chat.says("Hello, are you there?")
        offered[profile] = provider.received[-1]

    assert "autonomy" not in offered["core"].raw.decode()
    ours = ("stack_autonomy", "stack_should_push", "stack_should_pop", "stack_auto_suggest", "stack_autonomy_stats")
    assert all(name in offered["full"].tool_names for name in ours)


@pytest.mark.spoken_in("chat", reason="about arguments, which every dialect carries alike")
@pytest.mark.asked("plain")
# ------------------------------------------------------------------------------------------------------------- starting
@pytest.mark.one_process("each counts, and tells, what it does itself")
@pytest.mark.rows("S1-96")
def test_a_heuristic_nobody_knows_is_a_warning_at_the_start(
    stage: Stage, provider: ScriptedProvider, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "proxy"):
        chat = stage.chat(stage.proxy(enabled_heuristics="duration, intuition"), tools=TOOLS)
    provider.will(says("Hello."))
    chat.says("Hello, are you there?")

    warned = [record for record in caplog.records if "heuristic" in record.getMessage()]
    assert [record.__dict__["named"] for record in warned] == ["intuition"]
    assert told(chat.proxy)["heuristics"] == ["duration"]
