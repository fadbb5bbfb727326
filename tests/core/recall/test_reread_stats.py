"""S2-15: which files were read again, and which of them for want of what our line no longer had."""

from typing import Any

import pytest

from proxy.core.frames.events import FrameFolded, FramePopped, FramePushed, ResultReplaced, RootStarted, ThreadWoken
from proxy.core.frames.tree import Status
from proxy.core.ledger.ledger import Entry, Ledger
from proxy.core.recall import reread_stats as reading
from proxy.core.recall.reread_stats import RereadCount, count_rereads, new_rereads
from proxy.core.recall.unchanged_notes import STORED_CONTENT_HEADER
from tests.core.forest import LedgerBuilder, call

CONTENT = "1\tdef add(a, b):\n2\t    return a + b\n"
NOTE = "File unchanged since last read."
KEPT, GONE = RereadCount(1), RereadCount(1, 1)


@pytest.fixture
def talk() -> LedgerBuilder:
    begun = LedgerBuilder()
    begun.client("user", "Fix the sum")
    begun.happens(RootStarted("froot", "Fix the sum", "It adds."))
    begun.happens(ThreadWoken("guidance", "[]"))
    return begun


def reads(talk: LedgerBuilder, path: str = "src/a.py", result: str = CONTENT, **more: object) -> str:
    """The model reads a file; the entry of the result."""
    ident = f"call-{len(talk.ledger.entries)}"
    talk.model(("", (call(ident, "Read", file_path=path, **more),)))
    return talk.client("tool", result, ident)


def leaves(talk: LedgerBuilder, *entries: str) -> None:
    """The results leave the line with the request that ends here."""
    talk.happens(FrameFolded("froot", entries, "trace", entries[0]))


def counted(talk: LedgerBuilder, *, ours: bool = True) -> list[RereadCount]:
    """What each request asked for again, where it did."""
    return list(count_rereads(talk.ledger, talk.ledger.entries if ours else ()).values())


@pytest.mark.rows("S2-15")
def test_what_still_stands_on_the_line_is_read_again_by_the_agents_own_choice(talk: LedgerBuilder) -> None:
    """S2-15."""
    reads(talk)
    asked = reads(talk, "b.py")
    reads(talk)

    assert count_rereads(talk.ledger, {asked}) == {asked: KEPT}


@pytest.mark.rows("S2-15")
def test_what_we_took_off_the_line_is_read_again_at_our_cost(talk: LedgerBuilder) -> None:
    """S2-15."""
    first = reads(talk)
    leaves(talk, first)
    reads(talk)

    assert counted(talk) == [GONE]


@pytest.mark.rows("S2-15")
def test_what_left_only_after_it_was_asked_for_is_not_our_cost(talk: LedgerBuilder) -> None:
    """S2-15: what counts is the line that the model asked from."""
    first = reads(talk)
    reads(talk)
    leaves(talk, first)

    assert counted(talk) == [KEPT]


@pytest.mark.rows("S2-15")
def test_one_of_two_earlier_reads_on_the_line_is_enough(talk: LedgerBuilder) -> None:
    """S2-15."""
    first = reads(talk)
    reads(talk)
    leaves(talk, first)
    reads(talk)

    assert counted(talk) == [KEPT, KEPT]


@pytest.mark.rows("S2-15")
def test_a_request_that_passed_as_the_client_sent_it_lacked_nothing(talk: LedgerBuilder) -> None:
    """S2-15: shadow, off and bypassed requests have what the client has."""
    leaves(talk, reads(talk))
    reads(talk)

    assert counted(talk, ours=False) == [KEPT]


@pytest.mark.rows("S2-15")
@pytest.mark.parametrize(
    ("first", "second", "again"),
    [
        ({}, {}, True),
        ({}, {"offset": 10, "limit": 20}, True),
        ({"offset": 10, "limit": 20}, {"offset": 10, "limit": 20}, True),
        ({"offset": 10, "limit": 20}, {"offset": 30, "limit": 20}, False),
        ({"offset": 10, "limit": 20}, {}, False),
        ({"offset": 10, "limit": 20}, {"offset": 15, "limit": 15}, True),
        ({"offset": 10, "limit": 20}, {"offset": 15, "limit": 16}, False),
        ({"limit": 20}, {"offset": 2, "limit": 5}, True),
        ({"offset": 10}, {"offset": 900, "limit": 50}, True),
        ({"offset": 10, "limit": 20}, {"offset": 12}, False),
        ({"offset": -20}, {"offset": 1, "limit": 5}, False),
        ({"offset": 10, "limit": 20}, {"offset": 10, "limit": -1}, False),
    ],
)
def test_only_what_had_been_read_before_is_read_again(
    talk: LedgerBuilder, first: dict[str, Any], second: dict[str, Any], *, again: bool
) -> None:
    """S2-15: the next part of a file is new."""
    reads(talk, **first)
    reads(talk, **second)

    assert counted(talk) == [KEPT] * again


@pytest.mark.rows("S2-15")
def test_a_file_is_known_by_either_form_of_its_path(talk: LedgerBuilder) -> None:
    """S2-15."""
    reads(talk, "/srv/shop/src/a.py")
    reads(talk, "src/a.py")
    reads(talk, "other/a.py")

    assert counted(talk) == [KEPT]


@pytest.mark.rows("S2-15")
def test_a_read_that_failed_has_read_nothing(talk: LedgerBuilder) -> None:
    """S2-15: neither as the first one nor as the second."""
    reads(talk, result="Error: no such file")
    reads(talk)
    reads(talk, result="Error: the disk is gone")

    assert counted(talk) == []


@pytest.mark.rows("S2-15")
def test_an_output_that_was_cut_no_longer_has_what_is_asked_for(talk: LedgerBuilder) -> None:
    """S2-15: a part of it had left."""
    first = reads(talk)
    talk.happens(ResultReplaced(first, "1\tdef add [cut]", "output_cap"))
    reads(talk, offset=2)

    assert counted(talk) == [GONE]


@pytest.mark.rows("S2-15")
@pytest.mark.parametrize(("told", "expected"), [(NOTE, GONE), (f"{NOTE}\n{STORED_CONTENT_HEADER}\n{CONTENT}", KEPT)])
def test_a_note_is_no_content_unless_that_was_given_with_it(
    talk: LedgerBuilder, told: str, expected: RereadCount
) -> None:
    """S2-15."""
    first = reads(talk)
    leaves(talk, first)
    noted = reads(talk, result=NOTE)
    if told != NOTE:
        talk.happens(ResultReplaced(noted, told, "unchanged"))
    reads(talk)

    assert counted(talk) == [GONE, expected]


@pytest.mark.rows("S2-15")
def test_a_frame_that_ended_in_a_hidden_round_has_left_before_the_next_one(talk: LedgerBuilder) -> None:
    """S2-15: the model pops and asks again in one answer."""
    talk.happens(FramePushed("fsub", "froot", "Look", "Seen.", talk.tip, "k", ""))
    reads(talk)
    turn = talk.model(
        ("", (call("pop", "stack_frame_pop"),)),
        ("", (call("again", "Read", file_path="src/a.py"),)),
    )
    talk.happens(FramePopped("fsub", Status.COMPLETED, "seen", ""), turn, 1)
    talk.client("tool", CONTENT, "again")

    assert counted(talk) == [GONE]


@pytest.mark.rows("S2-15")
def test_what_the_client_dropped_by_itself_is_not_our_cost(talk: LedgerBuilder) -> None:
    """S2-15: a compaction of the client's own goes on from the old path, which the model no longer sees."""
    reads(talk)
    left, talk.tip = talk.tip, ""
    talk.client("user", "Summary of what was done", adopts=left)
    reads(talk)

    assert counted(talk) == [KEPT]


@pytest.mark.rows("S2-15")
def test_what_was_read_on_another_branch_was_not_read_here(talk: LedgerBuilder) -> None:
    """S2-15."""
    start = talk.tip
    reads(talk)
    talk.tip = start
    talk.client("user", "Something else instead")
    reads(talk)

    assert counted(talk) == []


def test_other_files_of_the_same_name_are_not_looked_at_closer(
    talk: LedgerBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where every folder has a file of one name, each read of one was judged with each new one: nearly half of the time
    that a request of a long thread took to be placed, for a figure."""
    read = [reads(talk, f"src/part{n}/__init__.py") for n in range(30)]
    leaves(talk, read[0], read[1])
    path_state = talk.story
    ident = reads(talk, "src/part0/__init__.py")
    result = talk.ledger.entries[ident]
    asked: list[str] = []
    judged = reading._file_read_of

    def counting(ledger: Ledger, entry: Entry, *seen: Any) -> Any:
        asked.append(entry.id)
        return judged(ledger, entry, *seen)

    monkeypatch.setattr(
        reading, "_file_read_of", counting
    )  # which are judged is asked here; a time would tell of the machine
    assert new_rereads(talk.ledger, talk.ledger.entries[result.parent], path_state, [result]).count.tools == ("Read",)
    assert asked == [ident, read[0]]
