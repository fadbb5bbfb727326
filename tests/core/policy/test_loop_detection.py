"""Which work is a loop, told by scripts: what gives something new never is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.core.frames.events import FramePopped, FramePushed, LoopDetected, LoopWarningsCleared, as_ledger_event
from proxy.core.frames.path_state import replay
from proxy.core.frames.tree import Loop, Status
from proxy.core.ledger.messages import Call
from proxy.core.observers.observe_step import DEFAULT_TOOL_ROLES, ToolExecution
from proxy.core.policy.loop_detection import (
    ALTERNATION,
    FAILURES,
    REPETITION,
    LoopRules,
    call_signature,
    describe_call,
    find_new_loop,
    loop_note,
    looping_signatures,
)
from tests.core.working import GrowingConversation, bash

Made = tuple[str, dict[str, Any] | str]
Step = tuple[Made, str]
RULES = LoopRules()


def read(path: str, result: str = "") -> Step:
    return ("read", {"filePath": path}), result or f"the content of {path}"


def edit(path: str, new: str, result: str = "The file has been updated.") -> Step:
    return ("edit", {"filePath": path, "oldString": "a", "newString": new}), result


def run(command: str, result: str) -> Step:
    return bash(command), result


PYTEST = run("pytest -q", "1 failed, 3 passed\nExit code: 1")
CAT = run("cat x", "one line")


class Worker(GrowingConversation):
    """A conversation in which every loop is told of as soon as it closes. `warned` are those loops."""

    def __init__(self, rules: LoopRules = RULES) -> None:
        super().__init__(folds=False)
        self.rules = rules
        self.warned: list[Loop] = []
        self.user("Make the suite green.")

    def works(self, *steps: Step) -> Worker:
        """One call group each."""
        for made, result in steps:
            self.groups([(made, result)])
        return self

    def groups(self, *groups: list[Step]) -> Worker:
        for group in groups:
            self.does(*(made for made, _ in group), results=[result for _, result in group])
            self.looks()
        return self

    def looks(self) -> None:
        """What the proxy does with each request."""
        self.arrives()
        loop = find_new_loop(self.story, DEFAULT_TOOL_ROLES, self.rules)
        if loop is not None:
            self.warned.append(loop)
            self._happens(LoopDetected(self.story.tree.active, replace(loop, at=self.story.tip)), self.story.tip)
            self.story = self.again

    @property
    def counts(self) -> list[tuple[str, int]]:
        return [(loop.kind, loop.count) for loop in self.warned]


# ------------------------------------------------------------------------------------- the four scripts that are no
# loop
@pytest.mark.rows("S3-21", "D11")
def test_d11_five_cycles_of_edit_and_test_with_other_edits_are_no_loop() -> None:
    """D11, S3-21: the test gives the same every time, and is worth running after every edit."""
    cycles = [step for n in range(5) for step in (edit("src/a.py", f"attempt {n}"), PYTEST)]

    assert Worker().works(*cycles).counts == []


@pytest.mark.rows("S3-21", "D11")
def test_d11_three_reads_with_three_results_are_no_loop() -> None:
    """D11, S3-21: the result belongs to the call."""
    assert Worker().works(*(read("log.txt", f"line {n}") for n in range(3))).counts == []


@pytest.mark.rows("S3-22", "D11")
def test_d11_after_a_loop_other_calls_are_no_part_of_it() -> None:
    """D11, S3-22: A, B, A, B is one loop; C, D and E after it are none, and end it."""
    worker = Worker().works(read("a.py"), read("b.py"), read("a.py"), read("b.py"))
    worker.works(read("c.py"), read("d.py"), read("e.py"))

    assert worker.counts == [(ALTERNATION, 2)]
    assert [len(loop.calls) for loop in worker.warned] == [2]


@pytest.mark.rows("S3-23", "D11")
def test_d11_the_first_failure_of_a_task_is_no_loop() -> None:
    """D11, S3-23."""
    assert _after_attempts("failed") == []


# ------------------------------------------------------------------------------------------------------------
# repetition
@pytest.mark.rows("S3-21", "C12")
def test_the_third_time_that_a_call_gave_the_same_is_a_loop() -> None:
    """S3-21, C12."""
    assert Worker().works(CAT, CAT).counts == []
    assert Worker().works(CAT, CAT, CAT).counts == [(REPETITION, 3)]


@pytest.mark.rows("S3-21")
def test_a_successful_change_between_two_calls_breaks_the_repetition() -> None:
    """S3-21: with an edit between there is no loop; an edit that failed changed nothing."""
    between = edit("x", "b")
    failing = edit("x", "b", "Error: string to replace not found")

    assert Worker().works(*[CAT, between] * 1, CAT, edit("x", "c"), CAT, edit("x", "d"), CAT).counts == []
    scattered = [step for n in range(4) for step in (CAT, read(f"other{n}"))]
    assert Worker().works(*scattered, CAT).counts == [(REPETITION, 5)]
    assert Worker().works(*scattered[:4], between, *scattered[4:], CAT).counts == []
    assert Worker().works(*scattered[:4], failing, *scattered[4:], CAT).counts == [(REPETITION, 5)]


@pytest.mark.rows("C12")
@pytest.mark.parametrize(
    "between",
    [
        run("python3 fix.py", "patched"),
        run("git checkout main", "Switched to branch 'main'"),
        run("cat > x <<'EOF'\nnew\nEOF", ""),
        (("mcp__desk__update_order", {"id": 7}), "ok"),
    ],
)
def test_whatever_may_have_changed_something_breaks_a_scattered_repetition(between: Step) -> None:
    """C12: when in doubt there is no loop."""
    scattered = [step for n in range(4) for step in (CAT, read(f"other{n}"))]

    assert Worker().works(*scattered[:4], between, *scattered[4:], CAT).counts == []


@pytest.mark.rows("S3-21")
def test_a_scattered_repetition_is_looked_for_among_the_newest_calls() -> None:
    """S3-21: five of twenty."""
    far = [step for n in range(4) for step in (CAT, *(read(f"{n}/{m}") for m in range(5)))]

    assert Worker().works(*far, CAT).counts == []
    assert Worker(LoopRules(window=40)).works(*far, CAT).counts == [(REPETITION, 5)]


@pytest.mark.rows("S3-21")
def test_durations_and_addresses_are_no_news() -> None:
    """S3-21: a test that takes a little longer has said nothing new; one that fails otherwise has."""
    timed = [run("pytest -q", f"1 failed in 0.{n}1s at 0x7f0{n}aa") for n in range(3)]

    assert Worker().works(*timed).counts == [(REPETITION, 3)]
    assert Worker().works(*(run("pytest -q", f"{n} failed in 0.11s") for n in range(3))).counts == []


def test_waiting_is_no_loop() -> None:
    waits = run("sleep 30 && gh run view 7", "in_progress")
    asks: Step = (("BashOutput", {"bash_id": "b1"}), "(no new output)")

    assert Worker().works(*[waits] * 6).counts == []
    assert Worker().works(*[asks] * 6).counts == []


def test_a_group_counts_once_however_many_calls_are_in_it() -> None:
    assert Worker().groups([CAT, CAT, CAT]).counts == []
    assert Worker().groups(*[[CAT, read("b")]] * 3).counts == [(REPETITION, 3)]


def test_a_call_without_a_result_says_nothing() -> None:
    worker = Worker().works(CAT, CAT)
    worker.does(CAT[0])
    worker.looks()

    assert worker.counts == []


# -----------------------------------------------------------------------------------------------------------
# alternation
@pytest.mark.rows("S3-22")
def test_a_to_and_fro_is_a_loop_at_its_fourth_step() -> None:
    """S3-22: the results must be the same for each letter."""
    there, back = edit("a.py", "b"), edit("a.py", "a")
    pair = [read("a.py"), read("b.py")]

    assert Worker().works(*pair, pair[0]).counts == []
    assert Worker().works(*pair, *pair).counts == [(ALTERNATION, 2)]
    assert Worker().works(there, back, there, back).counts == [(ALTERNATION, 2)]
    assert Worker().works(pair[0], read("b.py", "1"), pair[0], read("b.py", "2")).counts == []


@pytest.mark.rows("S3-22")
def test_three_steps_that_take_turns_are_a_loop_at_the_sixth() -> None:
    """S3-22: up to period 3, as configured."""
    turns = [read("a"), read("b"), read("c")]

    assert Worker().works(*turns, *turns[:2]).counts == []
    assert Worker().works(*turns, *turns).counts == [(ALTERNATION, 2)]
    assert Worker(LoopRules(period=2)).works(*turns, *turns).counts == []
    assert Worker(LoopRules(period=1)).works(*[read("a"), read("b")] * 2).counts == []


# --------------------------------------------------------------------------------------------------------------
# failures
def _after_attempts(*statuses: str, title: str = "Migrate the tables") -> list[tuple[str, int]]:
    """What is told after these attempts at one task."""
    worker = Worker()
    worker.looks()
    for n, status in enumerate(statuses):
        root = worker.story.tree.active
        frame = f"fattempt{n}"
        pushed = FramePushed(frame, root, title, "they are", worker.story.tip, f"0/p{n}", "block")
        for event in (pushed, FramePopped(frame, Status(status), "no", "no")):
            worker._happens(event, worker.story.tip)
        worker.story = worker.again
        worker.user(f"go on {n}")
        worker.looks()
    return worker.counts


@pytest.mark.rows("S3-23")
def test_a_task_that_failed_twice_is_told_of() -> None:
    """S3-23: attempts with the same title are attempts at the same task."""
    assert _after_attempts("failed", "failed") == [(FAILURES, 2)]
    assert _after_attempts("failed", "failed", "failed") == [(FAILURES, 2)]
    assert _after_attempts(*["failed"] * 4) == [(FAILURES, 2), (FAILURES, 4)]


def test_a_task_that_succeeded_in_the_end_is_not_told_of() -> None:
    assert _after_attempts("failed", "completed") == []


# ---------------------------------------------------------------------------------------------------- told, and not
# again
def test_a_loop_is_told_of_once_and_again_when_it_has_doubled() -> None:
    """The growth law: a note for every round would be a loop of its own."""
    assert Worker().works(*[CAT] * 13).counts == [(REPETITION, 3), (REPETITION, 6), (REPETITION, 12)]


def test_new_words_of_the_user_begin_anew_and_a_nudge_does_not() -> None:
    """A person who asks for it again gets it again; an agent without a person is told the same words every time."""
    worker = Worker().works(CAT, CAT)
    worker.says("Nothing new.").user("Look again, I changed it.")
    assert worker.works(CAT, CAT).counts == []

    nudged = Worker()
    for _ in range(3):
        nudged.user("Go on.")
        nudged.works(CAT).says("Nothing new.")
    assert nudged.counts == [(REPETITION, 3)]


@pytest.mark.rows("S3-25", "C24")
def test_a_change_of_frame_begins_anew() -> None:
    """C24, S3-25: what was counted in one frame is not counted in the next, nor on the way back."""
    worker = Worker().works(CAT, CAT)
    root, tip = worker.story.tree.active, worker.story.tip
    worker._happens(FramePushed("fchild", root, "Look closer", "seen", tip, "0/p", "block"), tip)
    worker.story = worker.again
    assert worker.works(CAT, CAT).counts == []
    worker._happens(FramePopped("fchild", Status.COMPLETED, "seen", "seen"), worker.story.tip)
    worker.story = worker.again
    assert worker.works(CAT, CAT).counts == []
    assert worker.works(CAT).counts == [(REPETITION, 3)]


@pytest.mark.rows("S3-25")
def test_what_a_person_cleared_is_counted_anew() -> None:
    """S3-25: cleared by the API."""
    worker = Worker().works(CAT, CAT, CAT)
    tree, tip = worker.story.tree, worker.story.tip
    worker.ledger.add_event(
        as_ledger_event(LoopWarningsCleared(tree.active, tip), tip, 0, worker.ledger.next_seq, worker.now)
    )
    worker.story = worker.again

    assert worker.story.tree.loops == ()
    assert worker.works(CAT, CAT).counts == [(REPETITION, 3)]
    assert worker.works(CAT).counts == [(REPETITION, 3)] * 2


@pytest.mark.rows("S3-25", "S3-29")
def test_loops_stand_on_the_path_they_arose_on() -> None:
    """S3-25, S3-29: state is folded from the path, so it survives a restart and is right on every branch."""
    worker = Worker().works(CAT, CAT, CAT)
    before = worker.ledger.path(worker.story.tip)[:-2]

    assert [loop.count for loop in worker.again.tree.loops] == [3]
    assert replay(worker.ledger, before, {}).tree.loops == ()


# -------------------------------------------------------------------------------------------------------------
# signature
def _signed(arguments: str, name: str = "bash") -> str:
    return call_signature(Call("c", name, arguments), DEFAULT_TOOL_ROLES)


@pytest.mark.rows("S3-20")
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"a": 1, "b": "x"}', '{"b":"x","a":1.0}'),
        ('{"command": "ls", "description": "List"}', '{"command": "ls ", "description": "Look"}'),
        ('{"q": "x", "request_id": "77"}', '{"q": "x", "request_id": "78"}'),
        ("  plain text", "plain text\n"),
    ],
)
def test_the_spelling_of_a_call_does_not_count(one: str, other: str) -> None:
    """S3-20."""
    assert _signed(one) == _signed(other)


@pytest.mark.rows("S3-20")
@pytest.mark.parametrize(
    ("one", "other"),
    [('{"id": 1}', '{"id": 2}'), ('{"command": "ls"}', '{"command": "ls -a"}'), ('{"new": "  a"}', '{"new": "b"}')],
)
def test_what_a_call_asks_for_counts(one: str, other: str) -> None:
    """S3-20: the id of an object is no id of the call."""
    assert _signed(one) != _signed(other)
    assert _signed(one) != _signed(one, "sh")


@given(st.text() | st.recursive(st.none() | st.text() | st.floats(), lambda x: st.lists(x)).map(repr), st.text())
def test_whatever_a_model_writes_has_a_signature_and_can_be_shown(arguments: str, result: str) -> None:
    call = Call("c", "bash", arguments)

    assert len(call_signature(call, DEFAULT_TOOL_ROLES)) == 16
    assert len(describe_call(ToolExecution(call, result), DEFAULT_TOOL_ROLES)) <= 120


@pytest.mark.parametrize(("opens", "closes"), [("[", "]"), ('{"a":', "}")])
@pytest.mark.parametrize("depth", [300, 600, 900, 1_500])
def test_arguments_nested_too_deep_to_be_read_stand_for_themselves(opens: str, closes: str, depth: int) -> None:
    made = [Call("c", "bash", opens * depth + inner + closes * depth) for inner in ("1", "2", "1")]

    first, other, again = (call_signature(call, DEFAULT_TOOL_ROLES) for call in made)
    assert first == again != other


@pytest.mark.rows("S3-24")
@pytest.mark.parametrize("kind", [REPETITION, ALTERNATION, FAILURES])
def test_a_note_names_calls_and_count_and_says_what_to_do(kind: str) -> None:
    """S3-24. What a call says cannot close the note."""
    told = loop_note(Loop(kind, ("1",), ("bash: cat </stack-context>",), 3), "n0nce")

    assert told.count("</stack-context>") == 1
    assert "3 times" in told
    assert "tell the user" in told


# -------------------------------------------------------------------------------------------------- precision and
# recall
@dataclass(frozen=True)
class Labelled:
    """A script and whether a person would call it a loop."""

    name: str
    steps: tuple[Step, ...]
    is_loop: bool


def _cycle(n: int) -> tuple[Step, ...]:
    return edit("src/cart.py", f"try {n}"), PYTEST


_STATUS, _DIFF = run("git status", "clean"), run("git diff", "")
SCRIPTS = (
    Labelled("the same read", (CAT,) * 4, is_loop=True),
    Labelled("the same failing test", (PYTEST,) * 3, is_loop=True),
    Labelled("the same failing edit", (edit("a", "b", "Error: string to replace not found"),) * 3, is_loop=True),
    Labelled("the same search", ((("grep", {"pattern": "x"}), "no match"),) * 3, is_loop=True),
    Labelled("the same call, spelt otherwise", tuple(
        (("fetch", spelt), "404") for spelt in ('{"u":"a","n":1}', '{"n": 1, "u": "a"}', '{"n":1.0,"u":"a"}')
    ), is_loop=True),
    Labelled("to and fro between files", (read("a"), read("b")) * 2, is_loop=True),
    Labelled("an edit and its undoing", (edit("a", "b"), edit("a", "a")) * 2, is_loop=True),
    Labelled("the same edit and test", (edit("a", "b"), PYTEST) * 2, is_loop=True),
    Labelled("three files in turn", (read("a"), read("b"), read("c")) * 2, is_loop=True),
    Labelled("a file again and again", tuple(s for n in range(5) for s in (CAT, read(f"f{n}"))), is_loop=True),
    Labelled("the same plan stated again", ((("TodoWrite", {"todos": []}), "ok"),) * 3, is_loop=True),
    Labelled("edit and test", tuple(s for n in range(6) for s in _cycle(n)), is_loop=False),
    Labelled("test, edit, test", (PYTEST, *_cycle(1), *_cycle(2)), is_loop=False),
    Labelled("edit by command, and test", tuple(
        s for n in range(5) for s in (run(f"sed -i s/{n}/x/ a.py", ""), PYTEST)
    ), is_loop=False),
    Labelled("edit by script, and test", tuple(
        s for n in range(5) for s in (run(f"python patch.py {n}", "ok"), PYTEST)
    ), is_loop=False),
    Labelled("a log that grows", tuple(run("tail log", f"line {n}") for n in range(6)), is_loop=False),
    Labelled("waiting for a build", (run("sleep 60; cat status", "running"),) * 5, is_loop=False),
    Labelled("a status before each commit", tuple(
        s for n in range(4) for s in (_STATUS, edit(f"f{n}", "x"), run(f"git commit -am {n}", "ok"))
    ), is_loop=False),
    Labelled("pages of one file", tuple(
        (("read", {"filePath": "a", "offset": n * 100}), "text") for n in range(8)
    ), is_loop=False),
    Labelled("the same twice", (CAT, CAT, read("b"), _STATUS, _DIFF), is_loop=False),
    Labelled("many files, one message", tuple(edit(f"f{n}", "x") for n in range(8)), is_loop=False),
    Labelled("orders of customers", tuple((("get_order", {"id": n}), "shipped") for n in range(8)), is_loop=False),
)  # fmt: skip


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: str(script.name))
def test_labelled_scripts_are_told_apart(script: Labelled) -> None:
    """Precision and recall are 1 on these; a miss or a false warning is named by its script."""
    assert bool(Worker().works(*script.steps).warned) is script.is_loop


# --------------------------------------------------------------------------------------------------------------
# refusing
def _refused(worker: Worker) -> int:
    return len(looping_signatures(worker.story, DEFAULT_TOOL_ROLES, RULES.window))


@pytest.mark.rows("C12", "D11")
def test_only_calls_of_the_pattern_are_refused_until_something_changes() -> None:
    """C12, D11: what was told of is refused; looking elsewhere does not end that, a change by another call does."""
    worker = Worker().works(CAT, CAT)
    assert _refused(worker) == 0
    assert _refused(worker.works(CAT)) == 1
    assert _refused(worker.works(read("b.py"))) == 1
    assert _refused(worker.works(edit("b.py", "c", "Error: string to replace not found"))) == 1
    assert _refused(worker.works(edit("b.py", "c"))) == 0


@pytest.mark.rows("S3-22", "C24")
def test_both_calls_of_a_to_and_fro_are_refused_and_new_words_end_it() -> None:
    """S3-22, C24."""
    worker = Worker().works(*[read("a"), read("b")] * 2)
    assert _refused(worker) == 2

    worker.says("I am stuck.").user("Look at c first.")
    worker.looks()
    assert _refused(worker) == 0


@pytest.mark.rows("D11")
def test_a_task_that_failed_again_refuses_nothing() -> None:
    """D11: no action is refused because a task failed."""
    worker = Worker().works(CAT)
    told = LoopDetected(worker.story.tree.active, Loop(FAILURES, ("migrate",), ("Migrate",), 2, worker.story.tip))
    worker._happens(told, worker.story.tip)
    worker.story = worker.again

    assert _refused(worker) == 0
