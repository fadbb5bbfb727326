"""L8: some models accept reasoning only behind the exact prefix it was made under. What the proxy changes of the
prefix, it pays for with the reasoning made before, once; what a client's own history no longer fits, is left out
there too."""

import sqlite3
import time
from contextlib import closing

import pytest

from llm_test_provider import Model, ReceivedRequest, ScriptedAnswer, ScriptedProvider, When, says
from proxy.core.compaction.truncate_outputs import CLEARED_PREFIX
from tests.harness import Answer as Answered
from tests.harness import Conversation, Stage, as_one_text, bash, does, pop, push, texts
from tests.scenarios.bound import BoundModel

BOUND, FREE = "claude-opus-5.5", "some-free-model"
ANSWERS = (("one", "first"), ("two", "second"), ("three", "third"))
OFF = {"x-stack-mode": "off"}
LONG = "please look at all of this: " + "word " * 600


SIGNED = "elsewhere reasoning is signed, and any model may bind it"


def thoughts(received: ReceivedRequest) -> list[str]:
    """The reasoning in a request, in order."""
    return [m["reasoning_content"] for m in received.messages if m.get("reasoning_content")]


@pytest.fixture
def chat(stage: Stage) -> Conversation:
    """Asleep for its first, small request."""
    return stage.chat(stage.proxy(wake_at_tokens=500))


def woken(chat: Conversation, provider: ScriptedProvider, model: str) -> None:
    """One turn asleep, one that wakes, one awake; each answer with a thought."""
    provider.will(*(says(text, reasoning=thought) for text, thought in ANSWERS))
    for text in ("hello", LONG, "go on"):
        chat.says(text, model=model)


def test_waking_leaves_out_what_was_thought_before(chat: Conversation, provider: ScriptedProvider) -> None:
    """Tools and system text change in front of it; what is thought afterwards stays, and nothing is ever put back."""
    woken(chat, provider, BOUND)
    assert [thoughts(r) for r in provider.asked] == [[], [], ["second"]]


def test_what_was_left_out_stands_in_the_receipt_once(chat: Conversation, provider: ScriptedProvider) -> None:
    """L8: the model may think it again, and that would be paid."""
    thought = "I wonder how this could be done. " * 40
    provider.will(says("one", reasoning=thought), says("two", reasoning=thought), says("three"))
    for text in ("hello", LONG, "go on"):
        chat.says(text, model=BOUND)

    asleep, waking, awake = chat.proxy.receipts()
    assert [thoughts(r) for r in provider.asked][1] == []
    assert (asleep["lost_reasoning"], awake["lost_reasoning"]) == (0, 0)
    assert len(thought) // 4 <= waking["lost_reasoning"] < len(thought)
    assert chat.proxy.get("/stack/totals")["total"]["lost_reasoning"] == waking["lost_reasoning"]


@pytest.mark.spoken_in("chat", reason=SIGNED)
def test_a_model_that_binds_nothing_loses_nothing(chat: Conversation, provider: ScriptedProvider) -> None:
    woken(chat, provider, FREE)
    assert [thoughts(r) for r in provider.asked] == [[], ["first"], ["first", "second"]]


def test_off_leaves_out_what_was_thought_behind_our_tools(
    chat: Conversation, provider: ScriptedProvider, stage: Stage
) -> None:
    """The client's own bytes go up, less what was made under a prefix they do not have; what was made before fits
    again."""
    woken(chat, provider, BOUND)
    stage.excuse()
    provider.will(says("four"))
    chat.says("without you", model=BOUND, headers={"x-stack-mode": "off"})
    assert thoughts(provider.asked[-1]) == ["first"]
    assert "stack_" not in str(provider.asked[-1].body)


@pytest.mark.spoken_in("chat", reason=SIGNED)
def test_off_sends_the_clients_bytes_where_nothing_is_bound(
    chat: Conversation, provider: ScriptedProvider, stage: Stage
) -> None:
    woken(chat, provider, FREE)
    stage.excuse()
    provider.will(says("four"))
    chat.says("without you", model=FREE, headers={"x-stack-mode": "off"})
    assert thoughts(provider.asked[-1]) == ["first", "second", "third"]


@pytest.mark.parametrize("linked", [True, False])
def test_a_fork_leaves_out_what_was_thought_on_its_parents_line(
    stage: Stage, provider: ScriptedProvider, linked: bool
) -> None:
    """It begins asleep with a history whose answers were made behind our tools. Its own thoughts it keeps; what it took
    over stays out, also where the client edits what the fork was told, and where nobody wants to see it under its
    parent."""
    chat = stage.chat(stage.proxy(subagent__enabled=linked))
    woken(chat, provider, BOUND)
    stage.excuse()
    provider.will(says("four", reasoning="fourth"), says("five"), says("six"))
    fork, edited = chat.branch(len(chat.history)), chat.branch(len(chat.history))
    fork.tools = edited.tools = ("bash",)
    fork.says("you are the fork", model=BOUND, headers=OFF)
    fork.says("go on", model=BOUND, headers=OFF)
    edited.says("you are another fork", model=BOUND, headers=OFF)

    assert [thoughts(r) for r in provider.asked[-3:]] == [[], ["fourth"], []]
    assert "stack_" not in str(provider.asked[-3].body)


@pytest.mark.parametrize("mode", ["off", "shadow"])
def test_what_was_thought_past_us_is_left_out_of_our_lines(stage: Stage, provider: ScriptedProvider, mode: str) -> None:
    """It was made behind the client's own tools and system text; a provider that binds would refuse every request from
    then on."""
    chat = stage.chat(stage.proxy(), model=BOUND)
    provider.will(*(says(text, reasoning=thought) for text, thought in (*ANSWERS, ("four", "fourth"))))
    chat.says("go")
    stage.excuse()
    assert chat.says("without you", headers={"x-stack-mode": mode}).stack_status == mode
    for words in ("with you", "go on"):
        stage.excuse()
        assert chat.says(words).stack_status == "full"

    assert [thoughts(r) for r in provider.asked[-2:]] == [["first"], ["first", "third"]]


def another_each_time(received: ReceivedRequest) -> ScriptedAnswer:
    return says(f"two {received.number}", reasoning="second")


def passes(chat: Conversation, words: str, times: int = 1) -> Answered:
    """What is answered past us while another process holds the store's lock, `times` over: the first of these waits for
    the lock in vain, those behind it are not even placed."""
    path = chat.proxy.config.store_path
    assert path is not None
    with closing(sqlite3.connect(path, isolation_level=None)) as intruder:
        intruder.execute("BEGIN EXCLUSIVE")
        chat.history.append({"role": "user", "content": words})
        until = time.monotonic() + 10
        while not (past := chat.tries()).stack_status.startswith("bypass") and time.monotonic() < until:
            chat.proxy.stage.excuse()
        for _ in range(times - 1):
            past = chat.tries()
        intruder.execute("ROLLBACK")
    assert past.stack_status == "bypass; reason=store_locked"
    return past


@pytest.mark.one_process("it looks into SQLite's file, or damages it")
@pytest.mark.asked("plain")
def test_what_was_thought_while_the_store_was_away_is_left_out(stage: Stage, provider: ScriptedProvider) -> None:
    """It stands in the client's history alone, and comes to us with it."""
    proxy = stage.proxy()
    chat = stage.chat(proxy, model=BOUND)
    provider.will(says("one", reasoning="first"))
    chat.says("go")
    provider.when(When(user="while it is locked"), another_each_time, loop=True)
    past = passes(chat, "while it is locked")
    chat.history.append(chat.habits.echo(past.message))
    proxy.until_the_store_is_back()
    provider.will(says("three", reasoning="third"), says("four"))
    for words in ("again", "go on"):
        stage.excuse()
        assert (chat.says(words).status, chat.last.stack_status if chat.last else "") == (200, "full")

    assert [thoughts(r) for r in provider.asked[-2:]] == [["first"], ["first", "third"]]


@pytest.mark.one_process("it looks into SQLite's file, or damages it")
@pytest.mark.asked("plain")
def test_while_the_store_is_away_what_was_thought_behind_our_tools_is_left_out(
    chat: Conversation, provider: ScriptedProvider
) -> None:
    """DESIGN 11: the client's own bytes, but for what the provider would refuse them for."""
    chat.model = BOUND
    woken(chat, provider, BOUND)
    provider.when(When(user="while it is locked"), another_each_time, loop=True)
    passes(chat, "while it is locked", times=2)

    for left in provider.asked[-2:]:
        assert thoughts(left) == ["first"]
        assert texts(left.messages)[1:] == texts(chat.history)
        assert "stack_" not in str(left.body)
    chat.proxy.until_the_store_is_back()


@pytest.mark.one_process("it looks into SQLite's file, or damages it")
@pytest.mark.spoken_in("chat", reason=SIGNED)
@pytest.mark.asked("plain")
def test_while_the_store_is_away_the_clients_bytes_go_where_nothing_is_bound(
    chat: Conversation, provider: ScriptedProvider, stage: Stage
) -> None:
    chat.model = FREE
    woken(chat, provider, FREE)
    provider.when(When(user="while it is locked"), another_each_time, loop=True)
    passes(chat, "while it is locked", times=2)

    assert provider.asked[-1].raw == stage.notes[-1].body
    chat.proxy.until_the_store_is_back()


@pytest.mark.spoken_in("messages", reason="the API in which a loop opens with its reasoning")
def test_a_loop_that_was_begun_past_us_ends_past_us(stage: Stage, provider: ScriptedProvider) -> None:
    """Its last answer must open with what was thought, and that fits the client's own bytes alone."""
    manual = {"thinking": {"type": "enabled", "budget_tokens": 2_000}}
    chat = stage.chat(stage.proxy(), model=BOUND, options=manual)
    provider.will(says("one", reasoning="first"), does(bash(), reasoning="second"))
    provider.will(says("three", reasoning="third"), says("four", reasoning="fourth"))
    chat.says("go")
    stage.excuse()
    chat.says("without you", headers=OFF)

    assert (chat.returns("a file").status, chat.last.stack_status if chat.last else "") == (
        200,
        "bypass; reason=in_loop",
    )
    stage.excuse()
    assert (chat.says("with you").status, chat.last.stack_status if chat.last else "") == (200, "full")


def test_the_end_of_an_isolated_frame_whose_call_was_compacted_away_costs_what_was_thought_in_it(
    stage: Stage, provider: ScriptedProvider
) -> None:
    """Nothing of it leaves the line but the words that told it what it is for, and those stood in front of all."""
    chat = stage.chat(stage.proxy(child_view="isolate"), model=BOUND)
    summary = "A login was begun, with tokens that are signed, and a table of sessions beside them."
    provider.will(does(push("Auth")), says("I have begun it."), says(summary), says("On it.", reasoning="first"))
    provider.will(does(pop("The login works."), reasoning="second"), says("Done.", reasoning="third"), says("Yes."))
    chat.says("add a login")
    chat.says("Please summarize our conversation so far, so that we can go on without it.")
    chat.history = []
    stage.excuse()
    chat.says(f"Summary of the work so far:\n{summary}\n\nGo on with it.")

    assert chat.says("finish it").text == "Done."
    assert thoughts(provider.asked[-1]) == []
    assert chat.says("is it done?").text == "Yes."


# ------------------------------------------------------------------------------------------- what does not fit
WINDOW = 80_000
SMALL = {"models": [Model(BOUND, window=WINDOW), Model(FREE, window=WINDOW)]}
"""A provider that refuses what is longer."""


@pytest.mark.parametrize("changed", ["system", "tools"])
def test_a_rewind_leaves_out_what_was_thought_behind_another_head(
    stage: Stage, provider: ScriptedProvider, changed: str
) -> None:
    """The client's system text or tools changed since: on the path that is left it was left out for that."""
    chat, bound = stage.chat(model=BOUND), BoundModel()
    answers = [says(f"Answer {n}, which is long enough to be known.", reasoning=f"thought {n}") for n in range(5)]
    provider.will(*map(bound, answers))
    chat.says("one")
    chat.says("two")
    stage.excuse()
    if changed == "system":
        chat.system = "Today is Tuesday."
    else:
        chat.tools = (*chat.tools, "mcp")
    chat.says("three")
    del chat.history[2:]
    stage.excuse()
    chat.says("two, but otherwise")
    chat.says("four")

    assert bound.faults == []
    assert in_short(provider) == ["thought 3"]


def test_the_steps_that_a_child_is_shown_go_without_what_was_thought(stage: Stage, provider: ScriptedProvider) -> None:
    """`last:2`: less stands before them there than where they were made. On the parent's line they keep it."""
    chat = stage.chat(stage.proxy(child_view="last:2"), model=BOUND)
    bound = BoundModel()
    in_parent = (
        does(bash("0"), reasoning="zero"),
        does(bash("1"), reasoning="one"),
        does(push("Auth"), reasoning="two"),
    )
    in_child = (
        does(bash("2"), reasoning="three"),
        says("seen", reasoning="four"),
        does(pop("done"), reasoning="five"),
    )
    provider.will(*map(bound, (*in_parent, *in_child, says("back", reasoning="six"), says("end"))))
    chat.says("begin")
    for n in range(3):
        chat.returns(f"result {n}")
    chat.says("go on")
    chat.says("and?")

    assert bound.faults == []
    assert "result 1" in as_one_text(provider.received[4].messages)
    told = [[thought.partition("|")[0] for thought in thoughts(r)] for r in provider.received[3:]]
    assert told == [[], ["three"], ["three", "four"], ["zero", "one", "two"], ["zero", "one", "two", "six"]]


UNFOLDED = {"infer_requests": False, "mirror_plans": False, "frame_max_tokens": 10_000_000}
"""Nothing else shall change the line."""


@pytest.mark.parametrize("provider", [SMALL], indirect=True)
@pytest.mark.parametrize(
    ("sizes", "told", "kept"), [((30_000,) * 3, "oldest steps", []), ((15_000,) * 6, CLEARED_PREFIX, ["about 0"])]
)
def test_a_line_that_is_made_shorter_leaves_out_what_was_thought_behind_the_change(
    stage: Stage, provider: ScriptedProvider, sizes: tuple[int, ...], told: str, kept: list[str]
) -> None:
    """The oldest groups leave as one trace, or old outputs are cleared: all but what was thought before those was
    thought behind them. The one refusal is for the length."""
    chat = stage.chat(stage.proxy(**UNFOLDED))
    bound = worked_through(chat, provider, BOUND, sizes)

    assert [r.status for r in provider.received].count(400) == 1
    assert told in str(provider.received[-1].messages)
    assert in_short(provider) == kept
    provider.will(bound(says("and that", reasoning="behind the change")), bound(says("indeed")))
    chat.says("and this?", model=BOUND)
    chat.says("really?", model=BOUND)
    assert bound.faults == []
    assert in_short(provider) == [*kept, "at last", "behind the change"]


@pytest.mark.spoken_in("chat", reason=SIGNED)
@pytest.mark.parametrize("provider", [SMALL], indirect=True)
def test_a_line_of_a_model_that_binds_nothing_is_made_shorter_with_its_thoughts(
    stage: Stage, provider: ScriptedProvider
) -> None:
    worked_through(stage.chat(stage.proxy(**UNFOLDED, default_tariff__roles="any")), provider, FREE, (15_000,) * 6)

    assert CLEARED_PREFIX in str(provider.received[-1].messages)
    assert len(thoughts(provider.received[-1])) == 6


def in_short(provider: ScriptedProvider) -> list[str]:
    """The thoughts of the newest request, without their seals."""
    return [thought.partition("|")[0] for thought in thoughts(provider.received[-1])]


def worked_through(chat: Conversation, provider: ScriptedProvider, model: str, sizes: tuple[int, ...]) -> BoundModel:
    """A loop of calls with outputs of so many tokens and a thought before each, until the last one is too much."""
    bound = BoundModel()
    steps = (ScriptedAnswer(calls=(bash(f"step {n}"),), reasoning=f"about {n}") for n in range(len(sizes)))
    provider.will(*map(bound, (*steps, says("done", reasoning="at last"))))
    chat.says("do it all", model=model)
    for n, tokens in enumerate(sizes):
        chat.proxy.stage.excuse()
        assert chat.returns(f"result {n} " + "word " * tokens, model=model).text == "done" * (n + 1 == len(sizes))
    return bound
