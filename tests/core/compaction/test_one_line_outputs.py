"""Small windows: what was done in a line each, how things stand, and when older results are told in a line."""

import pytest
from msgspec.structs import replace

from proxy.core.compaction.fold_cost import CachePrices, GateReason
from proxy.core.compaction.one_line_outputs import MIN_BATCH_SIZE, MINIMAL_REASON, plan_one_line_outputs
from proxy.core.context.actions import MAX_FILE_PROBES, RESULT_CHARACTERS, actions_of, format_action, probe_state
from proxy.core.frames.events import FrameFolded, FramePushed, ResultReplaced, RootStarted
from proxy.core.ledger.ledger import Entry, EntryKind
from proxy.core.ledger.messages import Message
from proxy.core.observers.observe_step import DEFAULT_TOOL_ROLES
from proxy.core.observers.step import ToolExecution
from tests.core.forest import LedgerBuilder, call, count
from tests.core.working import moment

LONG = "a line of output\n" * 60


class Weighed(LedgerBuilder):
    """Its messages have their tokens."""

    def _entry(self, kind: EntryKind, ident: str, message: Message | None = None, adopts: str = "") -> Entry:
        return super()._entry(kind, ident, message and replace(message, tokens=count(message.text)), adopts)


@pytest.fixture
def talk() -> LedgerBuilder:
    begun = Weighed()
    begun.client("user", "Fix the sum")
    begun.happens(RootStarted("froot", "Fix the sum", "It adds."))
    return begun


def ran(talk: LedgerBuilder, command: str, result: str = LONG, name: str = "bash", **arguments: object) -> str:
    """A call of the client's, and the entry of its result."""
    ident = f"call-{len(talk.ledger.entries)}"
    talk.model(("", (call(ident, name, **(arguments or {"command": command})),)))
    return talk.client("tool", result, ident)


def done(result: str, name: str = "bash") -> ToolExecution:
    return ToolExecution(call("c", name, command="x"), result)


# -------------------------------------------------------------------------------------------------------------- a line
@pytest.mark.rows("S3-03")
@pytest.mark.parametrize(
    ("result", "line"),
    [
        ("", "bash → ok"),
        ("3 passed", "bash → 3 passed"),
        ("two\nlines", "bash → two lines"),
        (LONG, "bash → 61 lines, 1,020 characters"),
        (LONG + "Exit code: 0", "bash → exit code 0, 61 lines, 1,032 characters"),
        ("Error: no such file", "bash → error: Error: no such file"),
        ("1 failed\nExit code: 1", "bash → error (exit code 1): 1 failed Exit code: 1"),
        ("\x1b[31mred\x1b[0m", "bash → [31mred[0m"),
    ],
)
def test_a_line_says_what_came_of_a_call(result: str, line: str) -> None:
    assert format_action(done(result)) == line


@pytest.mark.rows("S3-03")
@pytest.mark.parametrize("result", ["Error: " + "x" * 3_000, "Traceback (most recent call last):\n" + "y\n" * 900])
def test_an_error_is_cut_at_a_hundred_characters(result: str) -> None:
    words = format_action(done(result)).partition("error: ")[2]

    assert len(words) == RESULT_CHARACTERS
    assert words.endswith("...")


@pytest.mark.rows("S3-01")
def test_the_actions_of_a_frame_are_its_own(talk: LedgerBuilder) -> None:
    """Those of its parent and of its siblings are none of them."""
    ran(talk, "ls")
    turn = talk.model(("", (call("p", "stack_frame_push", title="A"),)))
    talk.happens(FramePushed("fa", "froot", "A", "it works", turn, "1/p", ""), turn, 1)
    ran(talk, "pwd", "/src")

    assert [one.result for one in actions_of(talk.story, "fa")] == ["/src"]
    assert [one.result for one in actions_of(talk.story, "froot")] == [LONG]
    assert list(actions_of(talk.story, "nothing")) == []


# ---------------------------------------------------------------------------------------------------------- the state
@pytest.mark.rows("S3-05")
def test_the_newest_end_of_each_kind_of_command_counts(talk: LedgerBuilder) -> None:
    ran(talk, "ruff check .", "All checks passed!\nExit code: 0")
    ran(talk, "pytest -q", "1 failed\nExit code: 1")
    ran(talk, "mypy .", "Found 1 error in 1 file\nExit code: 1")
    ran(talk, "pytest -q", "4 passed\nExit code: 0")
    ran(talk, "pytest -q", "")

    assert probe_state(talk.story, DEFAULT_TOOL_ROLES) == (("tests", True), ("lint", True), ("types", False))


@pytest.mark.rows("S3-05")
def test_commands_can_be_named(talk: LedgerBuilder) -> None:
    """By globs; they may be of a known kind too."""
    ran(talk, "./deploy.sh staging", "done\nExit code: 0")
    ran(talk, "pytest -q tests/e2e", "1 failed\nExit code: 1")

    told = probe_state(
        talk.story, DEFAULT_TOOL_ROLES, [("deploy", ["./deploy*"]), ("e2e", ["pytest * tests/e2e*", "npx *"])]
    )
    assert told == (("tests", False), ("deploy", True), ("e2e", False))


@pytest.mark.rows("S3-05")
def test_a_file_is_there_where_it_was_written_and_not_where_that_failed(talk: LedgerBuilder) -> None:
    ran(talk, "", "File created successfully", "Write", file_path="a.py", content="x")
    ran(talk, "", "Error: permission denied", "Write", file_path="b.py", content="x")
    ran(talk, "", "1\tx", "Read", file_path="c.py")

    assert probe_state(talk.story, DEFAULT_TOOL_ROLES) == (("a.py", True),)


def test_the_newest_files_are_told(talk: LedgerBuilder) -> None:
    for number in (0, 1, 2, 3, 4, 5, 6, 0):
        ran(talk, "", "File created successfully", "Write", file_path=f"{number}.py", content="x")

    assert [name for name, _ in probe_state(talk.story, DEFAULT_TOOL_ROLES)] == ["3.py", "4.py", "5.py", "6.py", "0.py"]
    assert MAX_FILE_PROBES == 5


# ------------------------------------------------------------------------------------------------------------- moments
def told(talk: LedgerBuilder, *, breaks: bool = False, **more: object) -> list[str]:
    """The entries that are told in a line from this request on."""
    made = plan_one_line_outputs(talk.story, moment(talk.tip, **more), count, breaks=breaks)
    assert all(isinstance(event, ResultReplaced) and event.why == MINIMAL_REASON for event in made.events)
    return [event.entry for event in made.events if isinstance(event, ResultReplaced)]


@pytest.mark.rows("S3-03")
def test_a_batch_grows_old_before_the_line_changes_for_its_sake(talk: LedgerBuilder) -> None:
    entries = []
    for number in range(MIN_BATCH_SIZE + 3):
        assert told(talk) == []
        entries.append(ran(talk, f"step {number}"))
    talk.model(("Go on.", ()))

    assert told(talk) == entries[:MIN_BATCH_SIZE]


@pytest.mark.rows("S3-03")
@pytest.mark.parametrize("free", [{"breaks": True}, {"cold": True}])
def test_where_nothing_is_lost_by_it_everything_old_is_told_in_a_line(
    talk: LedgerBuilder, free: dict[str, bool]
) -> None:
    entries = [ran(talk, f"step {number}") for number in range(5)]
    talk.model(("Go on.", ()))

    assert told(talk, **free) == entries[:2]
    assert told(talk) == []


def test_it_has_to_pay(talk: LedgerBuilder) -> None:
    """The gate: here a line that is written anew costs ten times what it saves, and one request is left."""
    for number in range(MIN_BATCH_SIZE + 3):
        ran(talk, f"step {number}")
    talk.model(("Go on.", ()))
    made = plan_one_line_outputs(
        talk.story, moment(talk.tip, requests=1, prices=CachePrices(0.01, 10.0)), count, breaks=False
    )

    assert not made.events
    assert [decision.verdict.reason for decision in made.decisions] == [GateReason.NOT_YET]


def test_what_is_told_in_a_line_already_does_not_fill_the_window(talk: LedgerBuilder) -> None:
    """Or the line would be rewritten with every batch, whatever that costs."""
    ran(talk, "long", LONG * 100)
    for number in range(3):
        ran(talk, f"early {number}")
    talk.model(("Go on.", ()))
    (first,) = plan_one_line_outputs(talk.story, moment(talk.tip, window=30_000), count, breaks=True).events
    talk.happens(first, number=1)
    for number in range(MIN_BATCH_SIZE):
        ran(talk, f"step {number}")
    talk.model(("Go on.", ()))
    dear = moment(talk.tip, requests=1, prices=CachePrices(0.01, 10.0), window=30_000)
    made = plan_one_line_outputs(talk.story, dear, count, breaks=False)

    (decision,) = made.decisions
    assert decision.verdict.rewrite.context_tokens < 10_000
    assert (made.events, decision.verdict.reason) == ((), GateReason.NOT_YET)


def test_what_is_short_or_told_in_other_words_stays(talk: LedgerBuilder) -> None:
    short = [ran(talk, f"step {number}", "ok") for number in range(4)]
    cut = ran(talk, "long", LONG)
    talk.happens(ResultReplaced(cut, "cut", "output_cap"))
    for number in range(4):
        ran(talk, f"more {number}")
    talk.model(("Go on.", ()))

    assert not {*short, cut} & set(told(talk, breaks=True))


def test_what_was_folded_is_no_output_on_the_line(talk: LedgerBuilder) -> None:
    entries = [ran(talk, f"step {number}") for number in range(6)]
    talk.happens(FrameFolded("froot", tuple(entries[:2]), "trace", entries[1]))
    talk.model(("Go on.", ()))

    assert not set(entries[:2]) & set(told(talk, breaks=True))
