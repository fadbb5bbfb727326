"""What leaves the line when work is finished, what stays, and what stands for the rest: over HTTP on both sides
(DESIGN 3, 8, 9; S1-63 to S1-70, S4-36)."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from llm_test_provider import Model, ScriptedAnswer, ScriptedProvider, Usage, call, overflow, says
from tests.client_dialects import MESSAGES, neutral
from tests.harness import Conversation, Json, Stage, as_one_text, bash, does, pop, push, recall, texts
from tests.scenarios.bound import BoundModel
from tests.scenarios.sessions import TOOLS, Session, made_by, outputs_in

THREE_TASKS = """
    user: Fix the title of the handbook.
    read handbook.md
    edit handbook.md
    run make docs
    says: The title of the handbook is right now.
    user: Implement a rate limiter for the public API.
    read src/limit.py
    edit src/limit.py
    run pytest -q
    says: There is a token bucket in src/limit.py.
    user: Investigate why the nightly billing export takes five hours.
    run time ./export --sample
    says: Every invoice is read twice, once for its tax.
"""
"""Outputs 1-3, 4-6 and 7."""
TRACE = "The texts of its files and outputs are gone from here."
REF = re.compile(r'stack_recall\(ref="(\w+)"')


def traces(messages: Sequence[Json]) -> list[str]:
    """The texts of ours that stand for what left, in order."""
    return [str(m["content"]) for m in messages if m["role"] == "user" and TRACE in str(m["content"])]


def line(provider: ScriptedProvider) -> list[Json]:
    """The newest line, without the system text."""
    return [m for m in provider.received[-1].messages if m["role"] != "system"]


def said(provider: ScriptedProvider) -> list[str]:
    """The newest line in short: `TRACE`, `out 3`, or who said what."""
    shown = []
    for m in line(provider):
        text = str(m["content"] or "")
        if m["role"] == "tool":
            shown.append("out " + ",".join(map(str, outputs_in([m]))))
        elif m.get("tool_calls"):
            shown.append("calls")
        else:
            shown.append("TRACE" if TRACE in text else f"{m['role']}: {text[:16]}".rstrip())
    return shown


@pytest.fixture
def session(stage: Stage, provider: ScriptedProvider) -> Session:
    return Session(stage.chat(tools=TOOLS), provider)


# ------------------------------------------------------------------------------------------- what leaves and what stays
def test_finished_requests_leave_and_words_stay(session: Session, provider: ScriptedProvider) -> None:
    """DESIGN 9: the user's words and the closing texts stay verbatim, one trace stands where the work began."""
    session.plays(THREE_TASKS)

    assert said(provider) == [
        "user: Fix the title of",
        "TRACE",
        "assistant: The title of the",
        "user: Implement a rate",
        "TRACE",
        "assistant: There is a token",
        "user: Investigate why",
        "calls",
        "out 7",
    ]
    sent = {str(m["content"]) for m in session.chat.history if m["role"] == "user"}
    assert sent <= {str(m["content"]) for m in line(provider)}


@pytest.mark.rows("S2-20")
def test_a_trace_tells_what_is_known_exactly(session: Session, provider: ScriptedProvider) -> None:
    """S2-20: files, commands, steps; and a ref that a person or the model can follow."""
    session.plays(THREE_TASKS)

    first, second = traces(line(provider))
    assert "handbook.md" in first
    assert "make docs" in first
    assert 'Your finished work: "Fix the title' in first
    assert "src/limit.py" in second
    titles = {frame["sessionID"]: title for title, frame in session.chat.proxy.frames().items()}
    assert [titles[REF.findall(trace)[0]][:13] for trace in (first, second)] == ["Fix the title", "Implement a r"]


@pytest.mark.rows("S1-76")
def test_items_of_a_plan_leave_inside_the_loop(session: Session, provider: ScriptedProvider) -> None:
    """S1-76: what ended is folded while the request goes on; its newest group and open work stay."""
    session.plays(
        """
        user: Build the formatter.
        read spec.md
        todo: [>] Lexer | [ ] Parser
        edit src/lexer.py
        run pytest -q
        todo: [x] Lexer | [>] Parser
        edit src/parser.py
        says: The parser is begun.
        """
    )

    assert said(provider) == [
        "user: Build the format", "calls", "out 1", "TRACE", "calls", "out 5", "calls", "out 6",
    ]  # fmt: skip


@pytest.mark.rows("S0-53")
def test_by_default_items_of_a_plan_leave_with_their_request(stage: Stage, provider: ScriptedProvider) -> None:
    """S0-53: an item that ended is in the tree, and its work in the context, until the request ends."""
    session = Session(stage.chat(stage.proxy(folding=None), tools=TOOLS), provider)
    session.plays(
        """
        user: Build the formatter.
        read spec.md
        todo: [>] Lexer | [ ] Parser
        edit src/lexer.py
        run pytest -q
        todo: [x] Lexer | [>] Parser
        edit src/parser.py
        todo: [x] Lexer | [x] Parser
        says: The parser is built.
        """
    )
    assert "TRACE" not in said(provider)

    session.plays(
        """
        user: Unrelated: translate the onboarding email into French.
        says: Bonjour.
        """
    )
    assert said(provider) == [
        "user: Build the format", "TRACE", "assistant: The parser is bu", "user: Unrelated: trans",
    ]  # fmt: skip


def test_what_is_under_way_is_not_folded(session: Session, provider: ScriptedProvider) -> None:
    session.plays(
        """
        user: Build the formatter.
        todo: [>] Lexer | [ ] Parser
        edit src/lexer.py
        edit src/lexer.py
        edit src/lexer.py
        says: The lexer is begun.
        user: go on
        edit src/lexer.py
        says: It goes on.
        """
    )

    assert session.outputs_sent() == [1, 2, 3, 4, 5]
    assert traces(line(provider)) == []


def test_between_folds_the_line_only_grows(session: Session, provider: ScriptedProvider) -> None:
    """L2: only a fold changes the past of a line; everything before its cut stays as it was, byte for byte."""
    session.plays(THREE_TASKS)

    lines = [r.messages for r in provider.received]
    broken = [at for at in range(1, len(lines)) if lines[at][: len(lines[at - 1])] != lines[at - 1]]
    folded = [at for at, receipt in enumerate(session.chat.proxy.receipts()) if "folded" in str(receipt["events"])]
    kept = [receipt for receipt in session.chat.proxy.receipts() if any(d["done"] for d in receipt["decisions"])]
    assert len(broken) == len(kept) == 2
    assert not folded or folded == broken
    for at in broken:
        trace = next(n for n, m in enumerate(lines[at]) if m not in lines[at - 1])
        assert lines[at][:trace] == lines[at - 1][:trace]


def test_an_earlier_trace_never_changes(session: Session, provider: ScriptedProvider) -> None:
    """A trace is frozen text: later folds and requests leave its bytes alone, and those of all that stands before."""
    session.plays(THREE_TASKS)

    told = [traces(r.messages) for r in provider.received]
    shown = [seen for seen in told if seen]
    assert all(seen[0] == shown[0][0] for seen in shown)
    assert [len(seen) for seen in shown] == sorted(len(seen) for seen in shown)


def test_a_line_is_the_same_after_a_restart(session: Session, provider: ScriptedProvider) -> None:
    """P3: a provider's cache must not be lost with a deployment."""
    session.plays(THREE_TASKS)
    before = line(provider)

    session.chat.proxy.restart()
    provider.will(says("It is the tax."))
    session.chat.says("and which one is it?")

    assert line(provider)[: len(before)] == before
    assert session.outputs_sent() == [7]


# ----------------------------------------------------------------------------------------------------------------
# recall
@pytest.mark.rows("S2-14", "C14")
def test_a_ref_brings_back_the_originals(session: Session, provider: ScriptedProvider) -> None:
    """S2-14, D14: by the model under the trace's ref, and by the API byte for byte."""
    session.plays(THREE_TASKS)
    sent = [str(m["content"]) for m in session.chat.history if m["role"] == "tool"]
    ref = REF.findall(traces(line(provider))[0])[0]

    provider.will(does(recall(ref, query="output-3-here")), says("It was make docs."))
    session.chat.says("and how was it built?")

    told = str(line(provider)[-1]["content"])
    assert "output-3-here" in told
    log = [entry["text"] for entry in session.chat.proxy.log(ref) if entry["answers"]]
    assert log == sent[:3]


def test_what_was_recalled_stays_for_two_turns(stage: Stage, provider: ScriptedProvider) -> None:
    """H8: a model that fetched a text is about to use it."""
    session = Session(stage.chat(tools=TOOLS), provider)
    session.plays(THREE_TASKS)
    ref = REF.findall(traces(line(provider))[0])[0]
    provider.will(does(recall(ref)), does(bash("one")), does(bash("two")), says("Done."))
    session.chat.says("It goes on with the tax: what did the handbook say?")
    session.chat.returns(session.output("one"))
    session.chat.returns(session.output("two"))
    fetched = next(m for m in line(provider) if m["role"] == "tool" and "output-1-here" in str(m["content"]))

    session.plays(
        """
        user: Unrelated: translate the onboarding email into French.
        read emails/onboarding.txt
        says: Translated.
        """
    )
    assert fetched in provider.received[-2].messages

    session.plays(
        """
        user: Unrelated: draw the logo of the new product in SVG format.
        edit logo.svg
        says: Drawn.
        """
    )
    assert fetched not in line(provider)


# ------------------------------------------------------------------------------------------------------------- the gate
@pytest.mark.rows("S4-36", "S4-23")
def test_a_fold_tells_why_in_its_receipt(session: Session) -> None:
    """S4-36: the figures of the gate, for a yes."""
    session.plays(THREE_TASKS)

    (made, again) = [d for receipt in session.chat.proxy.receipts() for d in receipt["decisions"] if d["done"]]
    assert made["kind"] == again["kind"] == "fold"
    assert made["reason"] == "gate"
    assert made["gain"] > made["cost"] > 0
    assert made["removed"] > made["compaction"] > 0


@pytest.mark.rows("S4-36", "S4-65")
def test_small_work_is_not_worth_a_fold(stage: Stage, provider: ScriptedProvider) -> None:
    """S4-36, S4-65: a trace would be as long; nothing is rewritten."""
    session = Session(stage.chat(tools=TOOLS), provider, padding=0)
    session.plays(THREE_TASKS)

    assert session.outputs_sent() == [1, 2, 3, 4, 5, 6, 7]
    assert traces(line(provider)) == []


def test_much_behind_the_cut_says_not_yet(stage: Stage, provider: ScriptedProvider) -> None:
    """DESIGN 9: what stays behind a cut is written to the cache anew; a little work far up is not worth that. The
    answer is in the receipt, with its figures."""
    session = Session(stage.chat(tools=TOOLS), provider)
    session.plays(
        """
        user: Build the formatter.
        todo: [>] Lexer | [ ] Parser | [ ] Printer
        edit src/lexer.py
        todo: [>] Lexer | [>] Parser | [ ] Printer
        edit src/parser.py
        edit src/parser.py
        edit src/parser.py
        edit src/parser.py
        edit src/parser.py
        todo: [x] Lexer | [>] Parser | [ ] Printer
        says: The lexer is done.
        """
    )

    decisions = [d for receipt in session.chat.proxy.receipts() for d in receipt["decisions"] if d["kind"] == "fold"]
    assert session.outputs_sent() == list(range(1, 10))
    assert [d["reason"] for d in decisions] == ["not_yet"]
    assert decisions[0]["behind"] > decisions[0]["removed"] - decisions[0]["compaction"] > 0
    assert not decisions[0]["done"]


@pytest.mark.rows("S4-20", "S1-63", "S4-22")
def test_a_full_window_folds_whatever_it_costs(stage: Stage, provider: ScriptedProvider) -> None:
    """S4-20: above 60 % of a window that is known."""
    proxy = stage.proxy(tariffs__tiny__input=1.0, tariffs__tiny__window=9000, tariffs__tiny__read=0.001)
    session = Session(stage.chat(proxy, tools=TOOLS, model="tiny"), provider, padding=1_200)
    session.plays(
        """
        user: Build the formatter.
        todo: [>] Lexer | [ ] Parser
        edit src/lexer.py
        todo: [x] Lexer | [>] Parser
        edit src/parser.py
        run pytest -q
        run pytest -q
        run pytest -q
        says: It is built.
        """
    )

    done = [d for receipt in proxy.receipts() for d in receipt["decisions"] if d["done"]]
    assert [d["reason"] for d in done] == ["pressure"]
    assert 1 not in session.outputs_sent()


@pytest.mark.rows("S4-20")
def test_a_window_that_a_refusal_named_is_full_just_as_one_of_the_table(
    stage: Stage, provider: ScriptedProvider
) -> None:
    """S4-20: no tariff knows this window; the provider named it once."""
    proxy = stage.proxy(tariffs__tiny__input=1.0, tariffs__tiny__read=0.001)
    session = Session(stage.chat(proxy, tools=TOOLS, model="tiny"), provider, padding=1_200)
    session.plays(
        """
        user: Look at the formatter.
        run ls -R
        run git log
        says: It has a lexer and a parser.
        """
    )
    provider.will(overflow(used=9_500, window=9_000))
    stage.excuse()
    session.plays(
        """
        user: Now build the printer of the formatter.
        todo: [>] Lexer | [ ] Parser
        edit src/lexer.py
        todo: [x] Lexer | [>] Parser
        edit src/parser.py
        run pytest -q
        run pytest -q
        run pytest -q
        says: It is built.
        """
    )

    reasons = {d["reason"] for receipt in proxy.receipts() for d in receipt["decisions"] if d["done"]}
    assert "pressure" in reasons


UNEVEN = """
    user: Build the formatter.
    todo: [>] Lexer | [ ] Parser | [ ] Printer
    edit src/lexer.py
    todo: [>] Lexer | [>] Parser | [ ] Printer
    edit src/parser.py
    edit src/parser.py
    edit src/parser.py
    todo: [x] Lexer | [>] Parser | [ ] Printer
    edit src/parser.py
    edit src/parser.py
    says: The lexer is done.
"""
"""The lexer's work, outputs 1 and 2, has much behind it when it ends."""


@pytest.mark.parametrize("reported", [500, 0], ids=["cached", "not cached"])
def test_a_provider_that_caches_nothing_any_more_has_nothing_to_lose(
    stage: Stage, provider: ScriptedProvider, reported: int
) -> None:
    """DESIGN 9: a cached share of 0 twice, after there was one, is no cache."""
    session = Session(stage.chat(tools=TOOLS), provider)
    session.usages = [Usage(1_000, 10, cached=500)] * 5 + [Usage(1_000, 10, cached=reported)] * 5

    session.plays(UNEVEN)

    assert (2 in session.outputs_sent()) == bool(reported)


# ---------------------------------------------------------------------------------------------------------- told again
NOTE = "[File src/a.py unchanged since last read in this session.]"
FULL = {"models": [Model("gpt-x", window=40_000)]}
"""A provider that refuses what is longer."""


@pytest.mark.parametrize("provider", [FULL], indirect=True)
def test_a_note_in_front_of_a_fold_stays_as_it_was_sent(stage: Stage, provider: ScriptedProvider) -> None:
    """L2: what a note points at was trimmed; a later fold is no reason to tell it again in a prefix that is cached."""
    chat = stage.chat(stage.proxy(frame_max_tokens=10_000_000), tools=TOOLS)
    work = ("read src/a.py", "read src/a.py", "run b", "todo: [>] One | [ ] Two", "run c", "run d", "run e")
    made = [made_by(step)[0] for step in (*work, "todo: [x] One | [>] Two")]
    provider.will(*(ScriptedAnswer(calls=(call,)) for call in made), says("Two is begun."))
    chat.says("Build the formatter.")
    for result in ("content " * 30_000, NOTE, "built " * 11_000, "ok", *("done " * 2_000 for _ in "cde")):
        stage.excuse()
        chat.returns(result)
    before = line(provider)
    chat.returns("ok")

    assert chat.proxy.receipts()[-1]["decisions"][0]["done"]
    assert "content content" not in str(before)
    note = next(at for at, m in enumerate(before) if m["content"] == NOTE)
    assert line(provider)[: note + 1] == before[: note + 1]


@pytest.mark.parametrize("provider", [FULL], indirect=True)
def test_a_note_behind_a_fold_that_took_its_content_is_told_with_it(stage: Stage, provider: ScriptedProvider) -> None:
    """DESIGN 8: a note is never a dead end."""
    chat = stage.chat(tools=TOOLS)
    work = ("todo: [>] One | [ ] Two", "read src/a.py", "run c", "run d", "todo: [x] One | [>] Two", "read src/a.py")
    provider.will(*(ScriptedAnswer(calls=(made_by(step)[0],)) for step in work), says("Two is begun."))
    chat.says("Build the formatter.")
    for result in ("ok", "content " * 2_000, "done " * 2_000, "done " * 2_000, "ok"):
        chat.returns(result)
    assert "content content" not in str(line(provider))
    chat.returns(NOTE)

    told = str(line(provider)[-1]["content"])
    assert told.startswith(NOTE)
    assert "content content" in told


def test_a_note_is_told_with_what_left_with_a_frame_that_returned(
    chat: Conversation, provider: ScriptedProvider
) -> None:
    """DESIGN 8: also where nothing was folded yet."""
    reading = made_by("read src/a.py")[0]
    provider.will(
        does(push("Look at it")),
        does(reading),
        does(pop("looked")),
        does(reading),
        says("I see."),
    )
    chat.says("Build the formatter.")
    chat.returns("def formatted(text): ...")
    chat.returns(NOTE)

    assert str(line(provider)[-1]["content"]).startswith(NOTE)
    assert "def formatted(text): ..." in str(line(provider)[-1]["content"])


# --------------------------------------------------------------------------------------------------- reasoning and
# loops
IN_A_LOOP = """
    user: Build the formatter.
    todo: [>] Lexer | [ ] Parser
    edit src/lexer.py
    run pytest -q
    run pytest -q
    run pytest -q
    run pytest -q
    todo: [x] Lexer | [>] Parser
    says: The parser is begun.
"""
"""The lexer's outputs are 1 to 6."""
STRICT = {"tariffs__claude-strict__thinking_in_loop": "required"}


def test_a_model_that_wants_its_reasoning_in_the_loop_is_folded_at_the_users_word(
    stage: Stage, provider: ScriptedProvider
) -> None:
    """L8: inside a tool loop nothing is cut for `thinking_in_loop: required`."""
    proxy = stage.proxy(**STRICT)
    # In the messages API each request says so itself.
    asked = {"thinking": {"type": "enabled", "budget_tokens": 2_000}} if stage.tongue is MESSAGES else {}
    chat = stage.chat(proxy, tools=TOOLS, model="claude-strict", options=asked)
    session = Session(chat, provider, thinks="what next?")
    session.plays(IN_A_LOOP)
    assert session.outputs_sent() == [1, 2, 3, 4, 5, 6, 7]

    provider.will(says("Fine."))
    session.chat.says("go on")

    assert session.outputs_sent() == [7]


def test_a_loop_without_reasoning_is_folded_for_such_a_model_too(stage: Stage, provider: ScriptedProvider) -> None:
    proxy = stage.proxy(**STRICT)
    session = Session(stage.chat(proxy, tools=TOOLS, model="claude-strict"), provider)
    session.plays(IN_A_LOOP)

    assert session.outputs_sent() == [7]


def test_waking_inside_a_loop_takes_a_fold_that_pays_for_it(stage: Stage, provider: ScriptedProvider) -> None:
    """DESIGN 8: else the thread sleeps until the user speaks."""
    proxy = stage.proxy(wake_at_tokens=2_000)
    session = Session(stage.chat(proxy, tools=TOOLS), provider, padding=1_200)
    session.plays(
        """
        user: Build the formatter.
        todo: [>] Lexer | [ ] Parser
        edit src/lexer.py
        run pytest -q
        run pytest -q
        run pytest -q
        todo: [x] Lexer | [>] Parser
        edit src/parser.py
        says: The parser is begun.
        """
    )

    statuses = [(r["status"], r["reason"]) for r in proxy.receipts()]
    assert statuses[-1] == ("full", "")
    woken = next(at for at, (status, _) in enumerate(statuses) if status == "full")
    assert ("asleep", "in_loop") in statuses[:woken]
    (made,) = [d for receipt in proxy.receipts() for d in receipt["decisions"] if d["done"]]
    assert made["kind"] == "wake"
    assert session.outputs_sent() == [6, 7]


def test_a_fold_leaves_closing_words_without_their_reasoning(session: Session, provider: ScriptedProvider) -> None:
    """DESIGN 9: what was thought about work that has left would be thought about nothing."""
    session.chat.model = "claude-free"
    provider.will(
        ScriptedAnswer(calls=(bash("a"),), reasoning="thought one"),
        ScriptedAnswer(text="It is fixed now.", reasoning="thought two"),
        ScriptedAnswer(calls=(bash("b"),), reasoning="thought three"),
        ScriptedAnswer(text="It is there.", reasoning="thought four"),
    )
    session.padding = 3_000
    session.chat.says("Fix the title of the handbook.")
    session.chat.returns(session.output("a"))
    session.chat.says("Implement a rate limiter for the public API.")
    session.chat.returns(session.output("b"))

    assert session.outputs_sent() == [2]
    assert [m.get("reasoning_content") for m in line(provider) if m["role"] == "assistant"] == [None, "thought three"]
    (receipt,) = [r for r in session.chat.proxy.receipts() if any(d["done"] for d in r["decisions"])]
    (made,) = receipt["decisions"]
    assert made["reasoning"] == receipt["lost_reasoning"] > 0


# -------------------------------------------------------------------------------------------------------- other
# branches
def test_a_branch_from_before_a_fold_sees_the_whole_history(session: Session, provider: ScriptedProvider) -> None:
    """DESIGN 3: a fold is an event on a path; another path does not have it."""
    session.plays(THREE_TASKS)
    branch = session.chat.branch(8)  # up to the first closing text

    provider.will(says("It was empty before."))
    branch.says("and what did it say before?")

    assert session.outputs_sent() == [1, 2, 3]
    assert traces(line(provider)) == []
    provider.will(says("Half an hour."))
    session.chat.says("how long is the tax part?")
    assert session.outputs_sent() == [7]


def test_an_edit_behind_a_fold_keeps_the_fold(session: Session, provider: ScriptedProvider) -> None:
    session.plays(THREE_TASKS)
    before = line(provider)[:2]
    edited = session.chat.branch(16)

    provider.will(says("It is slow."))
    edited.says("Unrelated: translate the onboarding email into French.")

    assert line(provider)[:2] == before
    assert outputs_in(line(provider)) == []
    assert texts(line(provider))[-1].startswith("user: Unrelated: translate")


@pytest.mark.rows("X-05")
def test_a_retry_of_the_request_that_folded_has_the_same_line(
    stage: Stage, session: Session, provider: ScriptedProvider
) -> None:
    """X-05: asked twice, it is answered on the same bytes."""
    session.plays(THREE_TASKS)
    again = session.chat.branch(17)
    folded = next(r for r in provider.received if r.messages[-1]["content"] == again.history[-1]["content"])

    provider.will(says("Once more."))
    stage.excuse()
    again.asks()

    assert provider.received[-1].messages == folded.messages


# ------------------------------------------------------------------------------------------------------- pushed and
# ours
def test_work_inside_a_pushed_frame_leaves_with_its_pop_alone(stage: Stage, provider: ScriptedProvider) -> None:
    session = Session(stage.chat(tools=TOOLS), provider)
    provider.will(
        does(push("Deep")),
        does(bash("a")),
        does(bash("b")),
        does(pop("Found it.")),
        says("There."),
    )
    session.chat.says("Build the formatter.")
    session.chat.returns(session.output("a"))
    session.chat.returns(session.output("b"))
    provider.will(says("Yes."))
    session.chat.says("and?")

    assert session.outputs_sent() == []
    assert traces(line(provider)) == []
    assert "Found it." in as_one_text(line(provider))


def steps(*names: str) -> list[ScriptedAnswer]:
    """Answers that make a call each."""
    return [does(made_by(name)[0]) for name in names]


def works(session: Session, asked: str, answers: Sequence[ScriptedAnswer]) -> None:
    """A request of the user with answers among which some call tools of ours."""
    session.provider.will(*answers, says("It is done."))
    message = session.chat.says(asked).message
    while message.get("tool_calls"):
        message = session.chat.returns(*(session.output("ok") for _ in message["tool_calls"])).message


LEXER_WITH_A_FRAME = [
    *steps("todo: [>] Lexer | [ ] Parser", "read src/lexer.py", "run make"),
    does(push("Tables")),
    *steps("edit src/tables.py"),
    does(call("stack_add_decision", decision="two tables", reason="one is too wide")),
    does(pop("The tables are generated by gen_tables.")),
    *steps(
        "run make lexer", "run make tables", "todo: [x] Lexer | [>] Parser", "read src/parser.py", "run make parser"
    ),
]
"""An item of a plan, and in it a frame of the model's own."""


@pytest.mark.rows("S0-55")
def test_scratch_files_are_told_apart_from_the_changes_that_were_asked_for(
    session: Session, provider: ScriptedProvider
) -> None:
    session.plays("""
        user: Fix the title of the handbook.
        read handbook.md
        edit handbook.md
        edit /tmp/scratch/check.py
        run python /tmp/scratch/check.py > /tmp/scratch/out.txt
        says: The title of the handbook is right now.
        user: Implement a rate limiter for the public API.
    """)
    provider.will(
        does(push("Limit")), does(bash("sed -i s/a/b/ src/limit.py; touch /tmp/scratch/a")), does(pop()), says("ok")
    )
    session.chat.says("Implement a rate limiter for the public API.")
    session.chat.returns("ok")

    (trace,) = traces(line(provider))
    assert (
        "<files>changed: handbook.md\nchanged in a temporary folder: /tmp/scratch/check.py, "
        "/tmp/scratch/out.txt (by command)</files>" in trace
    )
    assert "edited handbook.md\n- edited /tmp/scratch/check.py" in trace
    frame = session.chat.proxy.frames()["Fix the title of the handbook."]
    assert frame["artifacts"] == ["handbook.md"]
    told = "changed by command: src/limit.py; changed in a temporary folder: /tmp/scratch/a</files>"
    assert told in as_one_text(line(provider))


@pytest.mark.rows("S0-18", "S2-12")
def test_what_a_frame_returned_is_told_when_the_work_around_it_leaves(
    session: Session, provider: ScriptedProvider
) -> None:
    """Its results stood in the result of the call that opened it, and nowhere else on the line."""
    works(session, "Build the formatter.", LEXER_WITH_A_FRAME)

    frames = session.chat.proxy.frames()
    (trace,) = traces(line(provider))
    assert "stack_frame_push" not in as_one_text(line(provider))
    told = f"Tables ({frames['Tables']['sessionID']}, completed): The tables are generated by gen_tables."
    assert f"frames inside, as told when each ended:\n{told}" in trace
    assert "changed: src/tables.py" in trace
    assert "<decisions>- two tables (because: one is too wide)</decisions>" in trace


@pytest.mark.rows("S0-18")
def test_what_the_model_popped_with_stays_whole_when_the_work_around_it_leaves(
    session: Session, provider: ScriptedProvider
) -> None:
    """The guidance tells the model that its results stay."""
    results = " ".join(f"Table {n} is made from rule {n * 7}." for n in range(70))
    answers = [does(pop(results)) if at == 6 else answer for at, answer in enumerate(LEXER_WITH_A_FRAME)]
    works(session, "Build the formatter.", answers)

    (trace,) = traces(line(provider))
    assert results in trace


@pytest.mark.rows("S4-23")
def test_the_figures_of_a_fold_are_those_of_the_lines_around_it(session: Session) -> None:
    """S4-23: what left weighs what it took there, with what a frame returned in the place of its block; what stands for
    it is counted once it is written, with all that is told of that frame."""
    works(session, "Build the formatter.", LEXER_WITH_A_FRAME)

    receipts = session.chat.proxy.receipts()
    at = next(n for n, receipt in enumerate(receipts) if any(d["done"] for d in receipt["decisions"]))
    before, after = receipts[at - 1 : at + 1]
    (made,) = after["decisions"]
    came = after["tokens_in"] - before["tokens_in"]
    told = came - made["removed"] + made["compaction"]
    assert after["tokens_last"] - before["tokens_last"] == pytest.approx(
        told, abs=15
    )  # an echo may be written otherwise


@pytest.mark.rows("S2-21")
def test_a_trace_that_takes_over_another_still_tells_what_a_frame_returned(
    session: Session, provider: ScriptedProvider
) -> None:
    """S2-21: an item from the first is still there, once."""
    session.plays("user: Read the licence.\nread LICENSE\nsays: It is free.")
    before = steps(*(f"run look {n}" for n in range(4)))
    works(session, "Build the formatter.", [*before, *LEXER_WITH_A_FRAME, *steps("todo: [x] Lexer | [x] Parser")])
    apart = traces(line(provider))
    session.plays("user: Unrelated: translate the onboarding email into French.\nrun translate\nsays: Bonjour.")

    (told,) = [trace for trace in traces(line(provider)) if "LICENSE" not in trace]
    assert [trace for trace in apart if "gen_tables" in trace and "look 3" not in trace]
    assert "look 3" in told
    for item in ("The tables are generated by gen_tables.", "src/tables.py", "- two tables (because: one is too wide)"):
        assert told.count(item) == 1, item


@pytest.mark.rows("S0-17", "S2-19")
@pytest.mark.parametrize("by", ["stack_add_decision", "stack"])
def test_what_the_model_noted_is_told_when_the_work_around_it_leaves(stage: Stage, by: str) -> None:
    """By whatever name it was called, and whoever owned the work then; what was superseded meanwhile is not told."""

    def noted(**said: str) -> ScriptedAnswer:
        arguments = said if by == "stack_add_decision" else {"op": "add_decision", "args": said}
        return does(call(by, **arguments))

    session = Session(stage.chat(stage.proxy(frame_max_tokens=1_000), tools=TOOLS), stage.provider, padding=400)
    first = [noted(decision="regexes"), noted(decision="a lexer by hand", reason="of speed", supersedes="regexes")]
    artifact = does(call("stack_add_artifact", artifact="docs/grammar.md"))
    probes = steps(*(f"run probe {n}" for n in range(12)))
    works(session, "Build the formatter.", [*probes[:2], *first, artifact, *probes[2:]])

    first_part, *others = traces(line(stage.provider))
    assert "<decisions>- a lexer by hand (because: of speed)</decisions>" in first_part
    assert "changed: docs/grammar.md" in first_part
    assert others
    assert not any("<decisions>" in trace for trace in others)


def test_long_work_is_cut_into_parts(stage: Stage, provider: ScriptedProvider) -> None:
    """DESIGN 9: past `frame_max_tokens`, at a border between two groups; the newest group never leaves."""
    session = Session(stage.chat(stage.proxy(frame_max_tokens=1_000), tools=TOOLS), provider, padding=400)
    session.plays(
        "user: Find the leak.\n" + "\n".join(f"run probe {n}" for n in range(12)) + "\nsays: It is in the cache."
    )

    statuses = session.chat.proxy.statuses()
    parts = [title for title in statuses if title.startswith("Part ")]
    assert parts
    assert {statuses[part] for part in parts} == {"completed"}
    assert statuses["Find the leak."] == "in_progress"
    assert session.outputs_sent()[-1] == 12
    assert 1 not in session.outputs_sent()
    shown = set(session.outputs_sent())
    frames = session.chat.proxy.frames()
    logs = as_one_text([entry for part in parts for entry in session.chat.proxy.log(frames[part]["sessionID"])])
    assert all(n in shown or f"output-{n}-here" in logs for n in range(1, 13))


@pytest.mark.rows("S0-53")
def test_long_work_is_cut_behind_a_command_and_not_where_its_plan_is_ticked(
    stage: Stage, provider: ScriptedProvider
) -> None:
    """S0-53: what was read for the plan is read for its next items too."""
    proxy = stage.proxy(folding=None, frame_max_tokens=2_060)
    session = Session(stage.chat(proxy, tools=TOOLS), provider, padding=400)
    session.plays(
        """
        user: Mend the leak.
        read src/cache.py
        read src/pool.py
        read src/clock.py
        read src/limit.py
        todo: [>] Cache | [ ] Pool
        edit src/cache.py
        todo: [x] Cache | [>] Pool
        edit src/pool.py
        run pytest -q
        says: The leak is mended.
        """
    )

    *before, behind = (outputs_in(request.messages) for request in provider.received)
    assert before[-1] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert behind == [9]


# ------------------------------------------------------------------------------------------------------- bound
# reasoning
def test_a_provider_that_binds_reasoning_never_refuses(stage: Stage, provider: ScriptedProvider) -> None:
    """L8: through waking, folds inside a loop and at the user's words, and a restart; the provider's check is the
    judge. What is thought behind the last fold is still there."""
    proxy = stage.proxy(wake_at_tokens=1_500)
    session = Session(stage.chat(proxy, tools=TOOLS, model="claude-opus-5.5"), provider, padding=1_500)
    model = BoundModel()
    plan = ("todo: [>] One | [ ] Two", "run a", "run b", "todo: [x] One | [>] Two", "run c")
    asleep = ("run look", "run build")
    for title in ("Fix the title.", "yes, go on", "Implement a rate limiter for the public API.", "Unrelated: sing."):
        steps = asleep if title == "Fix the title." else plan
        calls = [made_by(step)[0] for step in steps]
        provider.will(*(model(ScriptedAnswer(calls=(one,), reasoning=f"about {n}")) for n, one in enumerate(calls)))
        provider.will(model(ScriptedAnswer(text=f"That is done: {title}", reasoning="it is done")))
        assert session.chat.says(title).status == 200
        for _ in steps:
            assert session.chat.returns(session.output("ok")).status == 200
        proxy.restart()

    assert model.faults == []
    assert [r["status"] for r in proxy.receipts()][:4] == ["asleep", "asleep", "asleep", "full"]
    assert sum(d["done"] for receipt in proxy.receipts() for d in receipt["decisions"]) >= 3
    assert any(m.get("reasoning_content") for m in line(provider))


def test_what_was_thought_behind_a_trace_goes_when_that_is_written_anew(
    stage: Stage, provider: ScriptedProvider
) -> None:
    """L8: the end of a request takes up the trace of its first part. Words that stay between that trace and the work
    that leaves now were thought behind the old one."""
    chat = stage.chat(stage.proxy(frame_max_tokens=16_000), tools=TOOLS, model="claude-opus-5.5")
    model = BoundModel()

    def turn(asked: str, *commands: str, closing: str, lines: int = 1_500) -> None:
        made = [ScriptedAnswer(calls=(bash(f"probe {command}"),), reasoning=f"about {command}") for command in commands]
        provider.will(*map(model, (*made, ScriptedAnswer(text=closing, reasoning=f"thought of it: {closing}"))))
        chat.says(asked)
        for command in commands:
            chat.returns("\n".join(f"src/{command}/module_{n}.py" for n in range(lines)))

    turn("Build the formatter.", "formatter", closing="It is built.", lines=1)
    turn("Unrelated: find out why the nightly export leaks.", "cache", "disk", closing="It is not the cache.")
    turn("go on", closing="It may be the pool.")
    assert said(provider).count("TRACE") == 1
    turn("yes, go on", "pool", "lock", closing="It is the pool.")
    assert "thought of it: It may be the pool." in str(line(provider))
    turn("Unrelated: write a poem about the sea.", closing="Waves.")

    assert model.faults == []
    assert "assistant: It may be the po" in said(provider)
    (trace,) = traces(line(provider))
    assert "probe cache" in trace
    assert "probe lock" in trace


# --------------------------------------------------------------------------------------------------------------- modes
def test_passive_injects_recall_alone_and_folds(stage: Stage, provider: ScriptedProvider) -> None:
    """DESIGN 8: no guidance, one tool; the same folds."""
    session = Session(stage.chat(stage.proxy(mode="passive"), tools=TOOLS), provider)
    session.plays(THREE_TASKS)

    assert [name for name in provider.received[-1].tool_names if name.startswith("stack")] == ["stack_recall"]
    sent = json.loads(neutral(stage.tongue, stage.notes[-1].body))["messages"]
    assert provider.received[-1].messages[0] == sent[0]
    assert session.outputs_sent() == [7]
    assert len(traces(line(provider))) == 2
    ref = REF.findall(traces(line(provider))[0])[0]
    provider.will(does(recall(ref)), says("It was make docs."))
    session.chat.says("and how was the handbook built?")
    assert "output-1-here" in str(line(provider)[-1]["content"])


def test_the_mode_may_change_in_mid_conversation(stage: Stage, provider: ScriptedProvider) -> None:
    """Awake, `passive` goes on with what was injected; `off` sends the client's own bytes, and back again all that was
    folded is folded still."""
    session = Session(stage.chat(tools=TOOLS), provider)
    session.plays(THREE_TASKS)
    folded = line(provider)

    provider.will(says("one"), says("two"), says("three"))
    session.chat.says("and then?", headers={"x-stack-mode": "passive"})
    assert line(provider)[: len(folded)] == folded
    stage.excuse()
    session.chat.says("really?", headers={"x-stack-mode": "off"})
    assert session.outputs_sent() == [1, 2, 3, 4, 5, 6, 7]
    assert traces(line(provider)) == []
    stage.excuse()
    session.chat.says("sure?")
    assert line(provider)[: len(folded)] == folded
    assert session.outputs_sent() == [7]


# ------------------------------------------------------------------------------------------------------------- replicas
@pytest.mark.one_process("it looks into SQLite's file, or damages it")
def test_two_replicas_decide_alike(stage: Stage, provider: ScriptedProvider) -> None:
    """P3: on copies of one store, each folds by itself; the lines are the same to the last byte."""
    first = stage.proxy()
    session = Session(stage.chat(first, tools=TOOLS), provider)
    *before, newest = re.split(r"(?=user: )", THREE_TASKS)[1:]
    session.plays("".join(before))
    first.stop()
    copied = Path(shutil.copytree(first.config.data, first.config.data.with_name("copied")))
    history, numbered = [dict(message) for message in session.chat.history], session.numbered

    lines = []
    for proxy in (first.start(), stage.proxy(data=str(copied))):
        session.chat.proxy, session.chat.history, session.numbered = proxy, [dict(m) for m in history], numbered
        session.plays(newest)
        lines.append(provider.received[-2].messages)

    assert len(traces(lines[0])) == 2
    assert lines[0] == lines[1]
    stage.proxies.pop().leave()  # the judge knows a conversation by its id, and this one is in two stores
    del stage.notes[-2:]


def test_another_replica_takes_over_what_was_folded(stage: Stage, provider: ScriptedProvider) -> None:
    """One store, two processes: the second one begins with what the first one has stored, which is all once it was
    asked (everything is within 250 ms)."""
    first = stage.proxy()
    session = Session(stage.chat(first, tools=TOOLS), provider)
    session.plays(THREE_TASKS)
    before = line(provider)
    assert first.receipts()

    session.chat.proxy = stage.proxy(data=str(first.config.data))
    provider.will(says("It is the tax."))
    session.chat.says("and which one is it?")

    assert line(provider)[: len(before)] == before
    assert len(first.conversations) == 1


def test_a_turn_in_which_a_frame_ended_and_its_parent_went_on_is_not_torn_by_a_fold(
    stage: Stage, provider: ScriptedProvider
) -> None:
    """L1: an entry leaves with all of its rounds, so a turn stays where one of them is the parent's."""
    doing = [{"step": "Greet", "status": "in_progress"}, {"step": "Look again", "status": "pending"}]
    chat = stage.chat(stage.proxy(), tools=("bash", "update_plan", "spawn_agent", "wait_agent"), model="gpt-5.5")
    provider.will(
        does(push("Write the greeting")),
        does(call("update_plan", plan=doing)),
        does(bash("write")),
        does(bash("one"), bash("two")),
        does(pop("The greeting exists")),
        does(call("spawn_agent", message="Look around in the repository, please.")),
        does(call("wait_agent")),
        says("All done."),
    )
    chat.says("Write greeting.txt")
    for results in (["Plan updated"], ["written"], ["1 " * 60, "2 " * 60], ["agent_1 is spawned"], ["It has ended."]):
        chat.returns(*results)

    sent = provider.received[-1]
    assert {made.id for made in sent.calls} == {answered for answered, _ in sent.results}
