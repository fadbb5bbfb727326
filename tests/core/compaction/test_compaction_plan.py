"""Which finished work leaves the line, and what stands for it, by value (DESIGN 9)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from proxy.core.compaction import compaction_plan as folding
from proxy.core.compaction import fold_events
from proxy.core.compaction.compaction_plan import CompactionPlan
from proxy.core.compaction.fold_cost import CachePrices, GateReason
from proxy.core.compaction.segments import FoldRules, Segment, TokensByPlace, removable_groups, segments_of
from proxy.core.compaction.trace import parse_traces
from proxy.core.context.message_list import build_context, context_entries
from proxy.core.frames.events import FrameKept, ResultReplaced, as_ledger_event
from proxy.core.ledger.messages import LoadedTool, Message
from proxy.core.observers import keywords as names
from tests.core.forest import LedgerBuilder
from tests.core.working import SCRIBE, GrowingConversation, bash, events_of, moment, padded, todo

ELSEWHERE = "Unrelated: translate the onboarding email into French."


def worked(title: str, groups: int = 4, tokens: int = 400, **settings: Any) -> GrowingConversation:
    """A request with so many call groups, ended in words, and another one that has just come; nothing is folded."""
    watched = GrowingConversation(folds=False, settings=settings).user(title)
    for n in range(groups):
        watched.does(bash(f"command {n}"), results=[padded(f"output {n}", tokens)])
    watched.says("It is all done.").user(ELSEWHERE)
    watched.arrives()
    return watched


def texts(watched: GrowingConversation) -> list[str]:
    return [m.text[:20] for m in build_context(watched.story, SCRIBE).messages]


def decided(made: CompactionPlan) -> list[tuple[str, bool, GateReason]]:
    return [(d.kind, d.verdict.is_worth_it, d.verdict.reason) for d in made.decisions]


def test_a_finished_request_leaves_but_for_its_words() -> None:
    watched = worked("Build the formatter.")
    made = watched.fold()

    assert decided(made) == [("fold", True, GateReason.GATE)]
    assert texts(watched) == ["Build the formatter.", "<stack-context note=", "It is all done.", ELSEWHERE[:20]]


@pytest.mark.rows("S0-55")
def test_a_note_that_stands_before_a_message_whose_work_it_covers_says_so() -> None:
    def trace_of(watched: GrowingConversation) -> str:
        watched.fold(frame_max=1_000)
        (trace,) = [m.text for m in build_context(watched.story, SCRIBE).messages if "<stack-context" in m.text]
        return trace

    watched = GrowingConversation(folds=False)
    for message in ("Build the formatter.", "Yes, go on.", "Yes: go on, 3 steps."):
        watched.user(message)
        for n in range(3):
            watched.does(bash(f"command {n} {message}"), results=[padded(f"output {n}", 400)])
        watched.says("A part is done. Shall I go on with the next one?")
    watched.user(ELSEWHERE).arrives()

    trace = trace_of(watched)
    lines = texts(watched)
    assert lines.index("<stack-context note=") < lines.index("Yes, go on.")
    assert COVERS.format('s "Yes, go on." and "Yes: go on, 3 steps."') in trace.splitlines()[2]
    assert parse_traces(trace).facts.steps == 9
    assert "the user's message" not in trace_of(worked("Build the formatter."))


@pytest.mark.rows("S0-55")
def test_work_for_a_later_message_is_told_under_that_message() -> None:
    """Its request began with another one, whose work is not in the note."""
    watched = GrowingConversation(folds=False).user("How would you build the formatter?")
    watched.says("In two parts. Shall I go on?").user("Yes, go on.")
    for n in range(3):
        watched.does(bash(f"command {n}"), results=[padded(f"output {n}", 400)])
    watched.says("A part is done. Shall I go on with the next one?").user(ELSEWHERE).arrives()
    watched.fold()

    (trace,) = [m.text for m in build_context(watched.story, SCRIBE).messages if "<stack-context" in m.text]
    head = 'Your finished work: "Go on.", a part of "How would you build the formatter?", 3 steps. '
    assert trace.splitlines()[1].startswith(head)
    assert parse_traces(trace).facts.steps == 3


@pytest.mark.rows("S0-55")
def test_a_clients_summary_of_the_conversation_is_no_message_that_work_was_for() -> None:
    asked = "Build the formatter for the files of the user."
    watched = GrowingConversation(folds=False).user(asked).does(bash("ls"), results=["a.py"])
    watched.says("A part is done.").user(f"Yes, go on. The user said: {asked} {'It was begun. ' * 99}")
    for n in range(3):
        watched.does(bash(f"command {n}"), results=[padded(f"output {n}", 400)])
    watched.says("It is all done.").user(ELSEWHERE).arrives()
    watched.fold()

    (trace,) = [m.text for m in build_context(watched.story, SCRIBE).messages if "<stack-context" in m.text]
    assert trace.splitlines()[1].startswith('Your finished work: "Build the formatter for the files of the…", ')
    assert "Go on" not in trace


MODIFIED = "Note: {} was modified, either by the user or by a linter. Here are the relevant changes:\n1\tx = 2"
REMINDER = "<system-reminder>\n{}\n</system-reminder>"
LONG_NOTE = (
    "Note: /repo/lexer.py was modified, either by the user or by a linter. This change was intentional, so make sure "
    "to take it into account as you proceed (ie. don't revert it unless the user asks you to). Don't tell the user "
    "this, since they are already aware. Here are the relevant changes (shown with line numbers):\n"
) + "\n".join(f"{n:6}\u2192import os.path  # Never run it." for n in range(9))
TODO_NOTE = (
    "The TodoWrite tool hasn't been used recently. If you're working on tasks that would benefit from tracking "
    "progress, consider using the TodoWrite tool to track progress. This is just a gentle reminder - ignore if not "
    'applicable. Here are the existing contents of your todo list: [{"content": "Run it."}]. Continue on with the '
    "tasks at hand if applicable."
)
ON_DISK = (
    "Note: {} changed on disk since you last read it. That's usually deliberate, so take it as the current state "
    "rather than reverting it; if the change looks wrong, say so rather than undoing it yourself \u2014 otherwise no "
    "need to call it out. The changes are not shown here; use Read if you need the current content."
)
TASKS_NOTE = (
    "The task tools haven't been used recently. If you're working on tasks that would benefit from tracking progress, "
    "consider using TaskCreate to add new tasks and TaskUpdate to update task status (set to in_progress when "
    "starting, completed when done). Also consider cleaning up the task list if it has become stale. Only use these "
    "if relevant to the current work. This is just a gentle reminder - ignore if not applicable.\n\n\n"
    "Here are the existing tasks:\n\n#1. [completed] Teach the lexer numbers\n#2. [in_progress] Write tests"
)
ORDER = "never run migrations"


@pytest.mark.rows("S0-55")
@pytest.mark.parametrize(
    ("role", "note", "leaves"),
    [
        ("system", MODIFIED.format("/repo/lexer.py"), True),
        ("user", REMINDER.format(MODIFIED.format("/repo/lexer.py")), True),
        ("user", REMINDER.format("The file src/lexer.py has been changed on disk by the user."), True),
        ("developer", "[This command modified 2 files you've previously read: lexer.py, docs/b.md.]", True),
        ("system", "The following files were modified since you read them: lexer.py", True),
        ("user", REMINDER.format("<new-diagnostics>The following new diagnostic issues were found:\nlexer.py"), True),
        ("user", REMINDER.format("The user edited src/lexer.py in their editor."), True),
        ("system", "3 files changed on disk since your last read: lexer.py", True),
        ("user", REMINDER.format("Your todo list has changed. Here are its latest contents: []"), True),
        ("system", "This is a reminder that your todo list is currently empty.", True),
        ("user", "Your todo list has changed.", False),
        ("user", MODIFIED.format("/repo/lexer.py"), False),  # the user's own words
        ("user", REMINDER.format(MODIFIED.format("/repo/README.md")), False),  # its text stands where it was read
        ("system", MODIFIED.format("/repo/README.md"), False),
        ("system", "Plan mode is active: the file lexer.py must not be changed.", False),
        ("user", REMINDER.format("Run the formatter on each file that was changed."), False),
        ("user", REMINDER.format(LONG_NOTE) + REMINDER.format(TODO_NOTE), True),
        ("system", "[This command modified 1 file: lexer.py. Call Read before editing.]", True),
        ("system", "Note: lexer.py was modified.\n--- a/lexer.py\n+++ b/lexer.py\n@@ -1 +1 @@\n-x\n+y", True),
        (
            "system",
            "The following new diagnostic issues were found:\n\nlexer.py:\n  \u2718 [Line 3:4] No x. (ts)",
            True,
        ),
        ("system", ON_DISK.format("/repo/lexer.py"), True),
        ("system", ON_DISK.format("/repo/README.md"), False),
        ("system", f"{ON_DISK.format('/repo/lexer.py')} {ORDER}", False),
        ("system", TASKS_NOTE, True),
        ("system", f"{TASKS_NOTE}\n{ORDER}", False),
        ("user", REMINDER.format(LONG_NOTE) + REMINDER.format(f"The user sent a new message: {ORDER}"), False),
        ("user", REMINDER.format(MODIFIED.format("lexer.py")) + REMINDER.format(ORDER), False),
        ("user", REMINDER.format(f"{LONG_NOTE}\n{ORDER}"), False),
        ("user", REMINDER.format(f"{TODO_NOTE} {ORDER}"), False),
        ("system", f"Note: lexer.py was modified. From now on {ORDER}", False),
        ("system", f"Note: lexer.py was modified, so {ORDER}", False),
        ("system", f"{LONG_NOTE}\n\nFrom now on {ORDER}", False),
        ("system", "Note: lexer.py was modified. Read lexer.py", False),
        ("system", f"Note: lexer.py was modified.\n```\nx = 2\n{ORDER}", False),
        ("system", f"The file that you must {ORDER} was modified: lexer.py", False),
        ("user", f"[This command modified 1 file: lexer.py] {ORDER}", False),
        ("user", f"[This command modified 1 file: lexer.py] {ORDER} [please]", False),
    ],
)
@pytest.mark.parametrize("place", ["beside results", "behind the user's words"])
def test_a_clients_note_on_files_leaves_with_the_work_that_it_stands_in(
    role: str, note: str, leaves: bool, place: str
) -> None:
    watched = GrowingConversation(folds=False).user("Which licence is it?")
    watched.does(bash("cat README.md"), text="Look.", results=["MIT"]).says("MIT.").user("Build the formatter.")
    if place != "beside results":
        watched.tells(role, note)
    for n in range(4):
        watched.does(bash(f"cat lexer.py {n}"), results=[padded(f"output {n}", 400)])
        if n == 1 and place == "beside results":
            watched.tells(role, note)
    watched.says("It is all done.").user(ELSEWHERE)
    watched.arrives()

    watched.fold()

    shown = [m.text for m in build_context(watched.story, SCRIBE).messages]
    assert (note in shown) is not leaves
    assert not any(text.startswith("output") for text in shown), "the work itself leaves in any case"


READ_AGAIN = " (read again later)"
COVERS = "It also has your work for the user's message{} below."


@pytest.mark.rows("S0-55")
@pytest.mark.parametrize(
    ("again", "is_told"),
    [
        (("read", {"filePath": "/repo/src/b.py"}), True),
        (bash("cd /repo && cat src/b.py"), True),
        (bash("sed -n 1,80p src/b.py | head -40"), True),
        (bash("grep -n total src/b.py"), False),
        (bash("cat src/b.py | grep total"), False),
        (bash("cat src/b.py | wc -l"), False),
    ],
)
def test_of_a_file_that_was_read_again_the_note_says_so(again: tuple[str, dict[str, str]], is_told: bool) -> None:
    watched = GrowingConversation(folds=False).user("Build the formatter.")
    for path in ("src/a.py", "src/b.py", "src/c.py"):
        watched.does(("read", {"filePath": path}), results=[padded(f"text of {path}", 600)])
    watched.says("It is all done.").user(ELSEWHERE)
    watched.does(again, results=[padded("text of b", 600)])
    watched.arrives()
    watched.fold(requests=500)

    (trace,) = [m.text for m in build_context(watched.story, SCRIBE).messages if "<stack-context" in m.text]
    assert f"read: src/a.py, src/b.py{READ_AGAIN if is_told else ''}, src/c.py" in trace
    assert parse_traces(trace).facts.read == ("src/a.py", "src/b.py", "src/c.py")


@pytest.mark.rows("S0-55")
@pytest.mark.parametrize(("first", "again", "is_told"), [("a", "b", False), ("b", "b", True)])
def test_a_note_of_one_step_says_of_its_own_file_alone_that_it_was_read_again(
    first: str, again: str, is_told: bool
) -> None:
    watched = GrowingConversation(folds=False).user("Which licence is it?")
    watched.does(("read", {"filePath": f"src/{first}.py"}), results=[padded("text", 2_400)])
    watched.says("It is MIT.").user(ELSEWHERE)
    watched.does(("read", {"filePath": f"src/{again}.py"}), results=[padded("text of b", 600)])
    watched.arrives()
    watched.fold(requests=500)

    (trace,) = [m.text for m in build_context(watched.story, SCRIBE).messages if "<stack-context" in m.text]
    assert f"1 step: read src/{first}.py" in trace
    assert (READ_AGAIN in trace) is is_told


def test_the_figures_are_those_of_the_line() -> None:
    watched = worked("Build the formatter.")
    before = build_context(watched.story, SCRIBE).tokens
    (decision,) = watched.fold(head=1_000).decisions
    rewrite = decision.verdict.rewrite
    after = build_context(watched.story, SCRIBE)

    traces = [m.tokens for m in after.messages if m.text.startswith("<stack-context")]
    assert rewrite.compaction == sum(traces) > 0
    assert before - after.tokens == rewrite.removed - sum(traces)
    assert rewrite.context_tokens == before + 1_000


@pytest.mark.rows("S4-65")
def test_little_work_stays_and_the_gate_says_so() -> None:
    """S4-65: a trace that is no smaller is not worth writing."""
    watched = worked("Build the formatter.", groups=2, tokens=10)
    made = watched.fold()

    assert not made.events
    assert all(not worth for _, worth, _ in decided(made))


@pytest.mark.proves("S4-65")
@pytest.mark.rows("S4-65")
def test_a_fold_whose_trace_comes_out_too_long_is_told_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """S4-65: the estimate takes 120 tokens for it."""
    watched = worked("Build the formatter.", groups=2, tokens=25, requests=300)
    monkeypatch.setattr(fold_events, "trace_text", lambda *_, **__: "word " * 150)
    (decision,) = watched.fold().decisions

    assert watched.foldings[-1].events == ()
    assert (decision.verdict.is_worth_it, decision.verdict.reason) == (False, GateReason.NOT_YET)
    assert decision.verdict.rewrite.removed == 0


def test_nothing_finished_is_no_question() -> None:
    watched = GrowingConversation(folds=False).user("Build it.").does(bash("make"), results=[padded("made")])
    watched.arrives()

    assert watched.fold() == CompactionPlan()


def test_a_few_requests_more_make_it_worth() -> None:
    watched = worked("Build the formatter.", prices=CachePrices(0.01, 1.25))

    assert not watched.fold(requests=5).events
    assert watched.fold(requests=500).events


@pytest.mark.rows("S3-39")
@pytest.mark.parametrize("cold", [True, False])
def test_a_cold_cache_is_a_reason(cold: bool) -> None:
    watched = worked("Build the formatter.")

    assert watched.fold(cold=cold).decisions[0].verdict.reason is (GateReason.COLD if cold else GateReason.GATE)


def test_work_that_is_kept_is_not_folded() -> None:
    """A person wants it on the line."""
    watched = worked("Build the formatter.")
    request = next(f for f in watched.story.tree.frames.values() if f.origin == "request" and f.results)
    watched.ledger.add_event(
        as_ledger_event(FrameKept(request.id), watched.story.tip, 0, watched.ledger.next_seq, watched.now)
    )
    watched.story = watched.again

    assert not watched.fold().events


@pytest.mark.parametrize("words", ["cleared", "cleared " * 200], ids=["few", "many"])
def test_an_output_that_is_told_in_other_words_weighs_what_these_weigh(words: str) -> None:
    """The figures are those of the line, and the trace of outputs that were cleared is no longer than what is left of
    them."""
    watched = (
        GrowingConversation(folds=False)
        .user("Build the formatter.")
        .does(todo("[>] Lexer | [ ] Parser"), results=["ok"])
    )
    for n in range(12):
        watched.does(bash(f"lex {n}"), results=[padded(f"lexed {n}", 3_000)])
    watched.arrives()
    for path_entry in watched.story.entries:
        if path_entry.entry.message and path_entry.entry.message.text.startswith("lexed"):
            watched._happens(ResultReplaced(path_entry.entry.id, words, "pruned"), watched.story.tip)
    watched.story = watched.again
    watched.does(todo("[x] Lexer | [>] Parser"), results=["ok"])
    before = watched.arrives().tokens
    made = watched.fold()
    after = watched.arrives()

    (decision,) = made.decisions
    assert decision.verdict.rewrite.removed < before
    assert decision.verdict.rewrite.context_tokens == before
    assert made.events
    assert after.tokens < before


# ---------------------------------------------------------------------------------------------------------------- parts
def long_work(groups: int, **settings: Any) -> GrowingConversation:
    """One request that goes on and on, cut where it is due."""
    watched = GrowingConversation(settings={"frame_max": 1_500, **settings}).user("Find the leak.")
    for n in range(groups):
        watched.does(bash(f"probe {n}"), results=[padded(f"output {n}", 300)])
    watched.arrives()
    return watched


def test_long_work_is_cut_past_its_size() -> None:
    """And not before: a single task is not cut by size below that."""
    assert not events_of(long_work(4), "parted")
    watched = long_work(9)

    assert events_of(watched, "parted")
    assert watched.statuses["Find the leak."] == "in_progress"
    assert any(text.startswith("output 8") for text in watched.texts)


def test_traces_of_parts_stand_side_by_side_while_the_cache_is_warm() -> None:
    """Each of them is told once."""
    watched = long_work(30)
    told = [entry for trim in watched.story.tree.removals for entry in trim.entries]
    traces = [text for text in watched.texts if text.startswith("<stack-context")]

    assert len(traces) == len(watched.story.tree.removals) == len(events_of(watched, "folded")) > 1
    assert len(told) == len(set(told))


def test_each_trace_has_one_ref_that_is_a_frame() -> None:
    watched = long_work(30)

    for trim in watched.story.tree.removals:
        (ref,) = re.findall(r'\bref="([^"]+)"', trim.trace)
        assert ref == trim.frame
        assert ref in watched.story.tree.frames


@pytest.mark.rows("S2-21")
def test_a_finished_request_tells_anew_what_its_items_told() -> None:
    """S2-21: what was done before the first item leaves with it, and one trace stands for all; each thing is told
    once."""
    watched = GrowingConversation().user("Build the formatter.").does(bash("make"), results=["made"]).says("Made.")
    watched.user("Implement a rate limiter for the public API.")
    for n in range(4):
        watched.does(bash(f"look {n}"), results=[padded(f"looked {n}")])
    for stated, item in (("[>] Bucket | [ ] Clock", "bucket"), ("[x] Bucket | [>] Clock", "clock")):
        watched.does(todo(stated), results=["ok"])
        for n in range(5):
            watched.does(bash(f"{item} {n}"), results=[padded(f"{item} output {n}")])
    watched.does(todo("[x] Bucket | [x] Clock"), results=["ok"]).says("It limits.")
    before = [trim.frame for trim in watched.story.tree.removals]
    watched.user(ELSEWHERE).says("Bonjour.")

    (trim,) = watched.story.tree.removals
    assert len(before) == 1, "the last item stays until the closing words are said"
    assert watched.story.tree.frames[trim.frame].origin == "request"
    assert [text for text in watched.texts if text.startswith("<stack-context")] == [trim.trace]
    assert all(trim.trace.count(command) == 1 for command in ("look 3", "bucket 4", "clock 4"))


@pytest.mark.rows("S2-21", "S2-08")
def test_what_came_of_the_last_item_is_told_as_said_beside_the_closing_words() -> None:
    """The closing words are the result; what was said of an item may be a problem without its end."""
    watched = GrowingConversation().user("Build the formatter.").does(bash("make"), results=["made"]).says("Made.")
    watched.user("Implement a rate limiter for the public API.")
    for n in range(4):
        watched.does(
            bash(f"look {n}"), results=[padded(f"looked {n}")], text="RESULT: keys have limits" if n == 1 else ""
        )
    for stated, item in (("[>] Bucket | [ ] Clock", "bucket"), ("[x] Bucket | [>] Clock", "clock")):
        watched.does(todo(stated), results=["ok"])
        for n in range(5):
            watched.does(
                bash(f"{item} {n}"), results=[padded(f"{item} output {n}")], text=f"The {item} was refused twice."
            )
    watched.does(todo("[x] Bucket | [x] Clock"), results=["ok"]).says("It limits.")
    watched.user(ELSEWHERE).says("Bonjour.")

    (trim,) = watched.story.tree.removals
    told = parse_traces(trim.trace)
    assert told.results.startswith("keys have limits")
    assert "clock" not in told.results
    assert told.facts.said[-1] == "The clock was refused twice."


# -------------------------------------------------------------------------------------- what the next step needs
CAREFUL = FoldRules(2_500, newest_tokens=700)


def with_items(groups: int, rules: FoldRules = CAREFUL) -> GrowingConversation:
    """A request whose first item has ended while the second goes on, each with so many call groups."""
    watched = GrowingConversation(settings={"rules": rules}).user("Implement a rate limiter for the public API.")
    for stated, item in (("[>] Bucket | [ ] Clock", "bucket"), ("[x] Bucket | [>] Clock", "clock")):
        watched.does(todo(stated), results=["ok"])
        for n in range(groups):
            watched.does(bash(f"{item} {n}"), results=[padded(f"{item} output {n}", 150)])
    watched.arrives()
    return watched


@pytest.mark.rows("S0-53")
def test_an_item_that_ended_stays_while_its_request_goes_on() -> None:
    """What was read for it is read for the items behind it; where items fold, it leaves at once."""
    assert not with_items(4).story.tree.removals
    assert with_items(4, FoldRules(2_500, folds_items=True)).story.tree.removals


@pytest.mark.rows("S0-53")
def test_an_item_leaves_with_its_request() -> None:
    watched = with_items(4).does(todo("[x] Bucket | [x] Clock"), results=["ok"]).says("It limits.")
    watched.user(ELSEWHERE).says("Bonjour.")

    (trim,) = watched.story.tree.removals
    assert watched.story.tree.frames[trim.frame].origin == "request"
    assert all(f"{item} 3" in trim.trace for item in ("bucket", "clock"))


@pytest.mark.rows("S0-53")
def test_items_that_are_cut_leave_as_a_part_of_their_request() -> None:
    """One trace for what lies between two messages of the user, whatever items it was done for."""
    watched = with_items(11)

    (trim,) = watched.story.tree.removals
    part = watched.story.tree.frames[trim.frame]
    assert (part.origin, watched.story.tree.frames[part.parent].origin) == ("part", "root")
    assert {f.title: str(f.status) for f in watched.story.tree.frames.values() if f.origin == "plan"} == {
        "Bucket": "completed",
        "Clock": "in_progress",
    }


@pytest.mark.rows("S0-53")
@pytest.mark.parametrize(("newest_tokens", "kept"), [(0, 0), (800, 2)])
def test_the_newest_steps_of_work_that_is_cut_stay_word_for_word(newest_tokens: int, kept: int) -> None:
    """As whole call groups, and no more than they may have; the oldest leave. The last group has just come."""
    watched = GrowingConversation(settings={"rules": FoldRules(1_500, newest_tokens)}).user("Find the leak.")
    groups = 0
    while not watched.story.tree.removals:
        watched.does(bash(f"probe {groups}"), results=[padded(f"output {groups}", 300)])
        watched.arrives()
        groups += 1

    shown = [text.split(" ")[1] for text in watched.texts if text.startswith("output")]
    assert shown == [str(n) for n in range(groups - kept - 1, groups)]


@pytest.mark.rows("S0-53")
def test_a_group_larger_than_the_room_for_newest_steps_does_not_keep_older_ones() -> None:
    watched = GrowingConversation(settings={"rules": FoldRules(3_100, 800)}).user("Find the leak.")
    for n in range(10):
        watched.does(bash(f"probe {n}"), results=[padded(f"output {n}", 900 if n == 8 else 300)])
    watched.arrives()

    assert [text[:8] for text in watched.texts if text.startswith("output")] == ["output 9"]


READS = [("read", {"filePath": f"src/part{n}.py"}) for n in range(6)]
EDIT = ("edit", {"filePath": "src/part1.py", "oldString": "a", "newString": "b"})


def reading(*newest: tuple[str, Any], files: int = 6, wait: int = 2_800) -> GrowingConversation:
    """A request that has read files of 300 tokens, and then called these."""
    rules = FoldRules(1_500, newest_tokens=200, longest_wait=wait)
    watched = GrowingConversation(folds=False, settings={"rules": rules}).user("Find the leak.")
    for n, call in enumerate(READS[:files]):
        watched.does(call, results=[padded(f"text {n}", 300)])
    for call in newest:
        watched.does(call, results=["ok"])
    watched.arrives()
    return watched


@pytest.mark.rows("S0-53")
@pytest.mark.parametrize(
    ("newest", "is_cut"),
    [
        ((), False),
        ((EDIT,), False),
        ((bash("cat src/part1.py | head"),), False),
        ((EDIT, bash("pytest -q")), True),
        ((bash("git commit -am leak"),), True),
        ((EDIT, bash("chmod +x src/part1.py")), False),
        ((todo("[>] Mend it | [ ] Tell it"),), False),
        ((EDIT, todo("[x] Mend it | [ ] Tell it")), False),
    ],
)
def test_work_is_not_cut_between_what_was_read_and_the_edits_it_was_read_for(
    newest: tuple[tuple[str, Any], ...], *, is_cut: bool
) -> None:
    assert bool(reading(*newest).fold(requests=500).events) is is_cut


@pytest.mark.rows("S0-53")
def test_work_that_grows_too_long_is_cut_wherever_it_stands() -> None:
    assert reading(EDIT, wait=1_500).fold(requests=500).events
    assert reading(EDIT).fold(requests=500, window=3_000, head=1_000).events
    assert not reading(EDIT).fold(requests=500, window=300_000, head=1_000).events


@pytest.mark.rows("S0-53")
@pytest.mark.parametrize(("newest", "is_cut"), [((), False), ((bash("pytest -q"),), False), ((EDIT,), True)])
def test_what_was_read_for_a_question_stays_for_what_the_user_orders_then(
    newest: tuple[tuple[str, Any], ...], *, is_cut: bool
) -> None:
    """Where something was changed since they spoke before, it has served its purpose."""
    watched = reading(*newest).says("The counter is never closed. Shall I mend it?").user("Yes, please.")
    watched.arrives()
    assert bool(watched.fold(requests=500).events) is is_cut


def test_an_item_taken_up_again_after_its_request_ended_stays() -> None:
    """Its work goes on, whatever it was planned for."""
    watched = GrowingConversation().user("Build the formatter.").does(bash("make"), results=["made"]).says("Made.")
    watched.user("Implement a rate limiter for the public API.")
    watched.does(todo("[ ] Limiter"), results=["ok"]).says("That is the plan.")
    watched.user(ELSEWHERE).does(bash("translate"), results=["ok"]).says("Bonjour.")
    watched.user("and now the plan").does(todo("[>] Limiter"), results=["ok"])
    for n in range(6):
        watched.does(bash(f"limit {n}"), results=[padded(f"limited {n}")])
    watched.arrives()

    assert watched.statuses["Limiter"] == "in_progress"
    assert [text[:9] for text in watched.texts if text.startswith("limited")] == [f"limited {n}" for n in range(6)]


def test_a_trace_that_takes_up_another_one_has_room_for_what_that_tells() -> None:
    watched = GrowingConversation().user("Build the formatter.").does(bash("make"), results=["made"]).says("Made.")
    watched.user("Implement a rate limiter for the public API.")
    for n in range(4):
        watched.does(bash(f"look {n}"), results=[padded(f"looked {n}")])
    watched.does(todo("[>] Bucket | [ ] Clock"), results=["ok"])
    for n in range(6):
        named = " ".join(f"bucket_name_{n}_{of}" for of in range(20))
        watched.does(bash(f"bucket {n}"), results=[padded(named, 400)])
    watched.does(todo("[x] Bucket | [ ] Clock"), results=["ok"]).says("It limits.")
    (before,) = watched.story.tree.removals
    watched.user(ELSEWHERE).says("Bonjour.")

    (trim,) = watched.story.tree.removals
    assert trim.frame != before.frame
    assert len(parse_traces(before.trace).names) > 5
    assert set(parse_traces(before.trace).names) <= set(parse_traces(trim.trace).names)


def test_what_the_rest_of_the_line_shows_is_not_told() -> None:
    """What the user said and what closed the work before, and its trace; not what leaves itself."""
    watched = GrowingConversation().user("Repair src/asked.py.")
    for n in range(4):
        watched.does(bash(f"first {n}"), results=[padded("src/asked.py src/first.py", 400)])
    watched.says("Done in src/closed.py.").user("Write an onboarding email.")
    for n in range(4):
        watched.does(bash(f"second {n}"), results=[padded("src/closed.py src/first.py src/second.py", 400)])
    watched.says("Written.").user(ELSEWHERE).arrives()

    names_told = [set(parse_traces(trim.trace).names) for trim in watched.story.tree.removals]
    assert names_told == [{"src/first.py"}, {"src/second.py"}]


def test_the_same_story_gives_the_same_bytes() -> None:
    """P3: nothing but the story decides."""
    assert [m.wire for m in long_work(20).lines[-1].messages] == [m.wire for m in long_work(20).lines[-1].messages]


def test_several_items_leave_each_with_its_own_trace() -> None:
    watched = GrowingConversation().user("Build the formatter.")
    watched.does(todo("[>] Lexer | [ ] Parser"), results=["ok"])
    for item, after in (("lex", "[x] Lexer | [>] Parser"), ("parse", "[x] Lexer | [x] Parser")):
        for n in range(4):
            watched.does(bash(f"{item} {n}"), results=[padded(f"{item} output {n}")])
        watched.does(todo(after), results=["ok"])
    watched.says("There.").user("go on").says("Fine.")

    traces = [text for text in watched.texts if text.startswith("<stack-context")]
    titles = [re.findall(r'Your finished work: "(\w+)"', trace) for trace in traces]
    assert titles == [["Lexer"], ["Parser"]]
    assert not any("output" in text[:20] for text in watched.texts)


def many_requests(number: int) -> GrowingConversation:
    """So many requests, each with four call groups, and another one that has just come; nothing is folded."""
    watched = GrowingConversation(folds=False)
    for request in range(number):
        watched.user(f"New task {request}: write module_{request}.py.")
        for n in range(4):
            watched.does(bash(f"command {n}"), results=[padded(f"output {n} of module_{request}.py")])
        watched.says("It is all done.")
    watched.user(ELSEWHERE).arrives()
    return watched


def test_what_stays_is_not_looked_over_for_each_frame_that_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """A history of 5,600 messages that came whole took 18 s to fold: the names in all that stays were looked for with
    each of its frames. Counted, for a busy machine's clock says nothing."""
    watched = many_requests(30)
    looked_at: list[None] = []
    named_in = names._names_by_speaker

    def counting(message: Message) -> Iterator[tuple[str, tuple[str, ...]]]:
        looked_at.append(None)
        return named_in(message)

    monkeypatch.setattr(
        names, "_names_by_speaker", counting
    )  # how often is asked here; a time would tell of the machine
    made = watched.fold(cold=True)

    assert len(made.events) >= 25
    assert len(looked_at) < 4 * len(watched.story.entries)


def test_the_best_beginning_is_found_without_grouping_all_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the one a look at each of them gives, with all that stands behind it grouped anew."""
    watched = many_requests(12)
    path_state, line = watched.story, context_entries(watched.story)
    weights = TokensByPlace.measure(path_state, line, SCRIBE)
    found = segments_of(path_state, line, weights, FoldRules(20_000))
    grouped, weighed = folding._group_by_frame, folding._evaluate_estimated
    times: list[int] = []

    def counting(segments: Sequence[Segment]) -> tuple[fold_events.CompactionCandidate, ...]:
        times.append(len(segments))
        return grouped(segments)

    monkeypatch.setattr(
        folding, "_group_by_frame", counting
    )  # how often is asked here; a time would tell of the machine
    for requests in (1, 2, 5, 50):
        now = moment(path_state.tip, requests=requests, head=3_000)
        looked_at = [
            (some, weighed(some, weights, now)) for n in range(len(found), -1, -1) if (some := grouped(found[n:]))
        ]
        assert len(looked_at) == len(found) == 12
        times.clear()
        assert folding._choose_segments(found, weights, now) == max(
            looked_at, key=lambda each: folding._verdict_rank(each[1])
        )
        assert len(times) == 1


@pytest.mark.rows("X-46")
@pytest.mark.parametrize(("again", "leaves"), [("issue", True), ("fetch", False)])
def test_a_tool_search_may_leave_once_its_tools_are_loaded_again(again: str, leaves: bool) -> None:
    """L11: until then the model could not call them without it."""
    watched = worked("File the issue.", groups=3)
    context = list(context_entries(watched.story))
    results = [n for n, p in enumerate(context) if p.entry.message and p.entry.message.answers]
    for position, name in ((results[0], "issue"), (results[1], again)):
        message = context[position].entry.message
        assert message is not None
        loading = replace(message, loaded_tools=(LoadedTool(name),))
        context[position] = replace(context[position], entry=replace(context[position].entry, message=loading))

    removable = removable_groups(watched.story, context, FoldRules(20_000, folds_items=True))

    assert (results[0] in removable) is (results[0] - 1 in removable) is leaves
    assert not {results[1], results[1] - 1} & set(removable)
    assert {results[2], results[2] - 1} <= set(removable)


def test_the_user_is_heard_behind_a_tool_search_of_a_history_that_the_client_brought() -> None:
    begun = LedgerBuilder()
    for role, text, answers in (
        ("user", "Go.", ""),
        ("assistant", "", ""),
        ("tool", "", "c1"),
        ("user", "Loaded.", ""),
    ):
        begun.client(role, text, answers)
    begun.client("assistant", "Done.")
    begun.client("user", "Now write the guide.")
    path = list(begun.story.entries)
    message = path[2].entry.message
    assert message is not None
    loading = replace(message, loaded_tools=(LoadedTool("issue"),))
    path[2] = replace(path[2], entry=replace(path[2].entry, message=loading))

    assert fold_events.positions_of_user(path) == [0, 5]


@pytest.mark.rows("S0-54", "S0-55")
@pytest.mark.parametrize(
    ("command", "folds_items", "is_told"),
    [("pytest -q", False, True), ("git checkout -- src/a.py", False, False), ("pytest -q", True, False)],
)
def test_the_note_has_the_text_that_the_edits_left(command: str, *, folds_items: bool, is_told: bool) -> None:
    """As the last one left it; not what git undid, and none where as much as pays is to leave."""
    text = "def limit(calls):\n    return calls < 10 and not is_closed(calls)"
    rules = FoldRules(20_000, folds_items=folds_items)
    watched = GrowingConversation(settings={"rules": rules}).user("Mend the leak.")
    for old, new in (("pass", text), ("10", "20")):
        watched.does(("edit", {"filePath": "src/a.py", "oldString": old, "newString": new}), results=["ok"])
    for n in range(4):
        watched.does(bash(f"look {n}"), results=[padded(f"looked {n}")])
    watched.does(bash(command), results=["ok"]).says("Mended.").user(ELSEWHERE)
    watched.arrives()

    (trim,) = watched.story.tree.removals
    told = f"<text-after-edits>[src/a.py]\n{text.replace('10', '20')}</text-after-edits>"
    assert (told in trim.trace, "text-after-edits" in trim.trace) == (is_told, is_told)
