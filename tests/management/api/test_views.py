"""What the views make of ledgers and bodies that are not as expected, in values alone."""

import json

import pytest

from callstack_proxy.management.find_by_id import newest_path_state
from callstack_proxy.management.views.diff import diff_bodies
from callstack_proxy.management.views.logs import frame_log
from proxy.core.frames import FrameFolded, FrameSplit, RootStarted
from proxy.core.ledger.ledger import Entry, EntryKind, Ledger, Round
from proxy.core.ledger.messages import Call, ModelResponse
from proxy.store.interface import LedgerRecord
from tests.core.forest import LedgerBuilder, call
from tests.management.api.small_ledger import Written, message, records_of


def small_ledger() -> tuple[Ledger, Written]:
    """The small conversation as a store gives it back."""
    records, ids = records_of("t", "a")
    ledger = Ledger(records[0])  # type: ignore[arg-type] # the first record is the conversation
    for record in records:
        match record:
            case LedgerRecord(value=Entry() as entry):
                ledger.add_entry(entry)
            case LedgerRecord(value=Round() as done):
                ledger.add_round(done)
            case LedgerRecord(value=event) if hasattr(event, "subject"):
                ledger.add_event(event)  # type: ignore[arg-type] # it is one: nothing else has a subject
    return ledger, ids


@pytest.mark.rows("S0-08")
def test_a_branch_that_was_given_up_stays_in_the_log_and_is_marked() -> None:
    """S0-08: nothing is lost; a retried answer is another child of the same request."""
    ledger, ids = small_ledger()
    turns = [entry for entry in ledger.entries.values() if entry.kind is EntryKind.TURN]
    retried = Entry("retry", turns[-1].parent, ledger.next_seq, EntryKind.TURN, "t1", created=1)
    ledger.add_entry(retried)
    ledger.add_round(Round("retry", 0, ModelResponse(message("assistant", "second try"), "stop"), last=True))

    log = frame_log(ledger, newest_path_state(ledger), ids.child)

    assert [(e["text"], e["current"]) for e in log["entries"] if e["role"] == "assistant"] == [
        ("half of a pair: \ud83d", True),
        ("", False),
        ("second try", True),
    ]


def test_a_part_that_a_later_one_took_over_shows_what_left_with_it() -> None:
    """It owns none of that any more; each entry says whose it is now."""
    talk = LedgerBuilder()
    talk.client("user", "Find the leak.")
    talk.happens(RootStarted("froot", "Find the leak", ""))
    turns = []
    for number in (1, 2, 3):
        turns.append(talk.model((f"step {number}", (call(f"c{number}", "bash", command="make"),))))
        talk.client("tool", f"output {number}", answers=f"c{number}")
        if number < 3:
            talk.happens(FrameSplit(f"part{number}", "froot", f"Part {number}", "", tuple(turns)))
            talk.happens(FrameFolded(f"part{number}", tuple(turns), "<stack-context>made</stack-context>"))

    newest = newest_path_state(talk.ledger)
    logs = {part: frame_log(talk.ledger, newest, part)["entries"] for part in ("part1", "part2", "froot")}
    said = {
        part: [(each["text"], each["frame"]) for each in entries if each["calls"]] for part, entries in logs.items()
    }
    assert said == {
        "part1": [("step 1", "part2")],
        "part2": [("step 1", "part2"), ("step 2", "part2")],
        "froot": [("step 1", "part2"), ("step 2", "part2"), ("step 3", "froot")],
    }


def chat(*messages: dict[str, object]) -> bytes:
    return json.dumps({"model": "m", "messages": messages}).encode()


def test_a_body_that_was_passed_on_is_the_same() -> None:
    body = chat({"role": "user", "content": "hi"})

    assert diff_bodies(body, body)["same"]
    assert diff_bodies(body, body)["counts"] == {"kept": 1, "first bytes": 0, "left out": 0, "inserted": 0}


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b"\xff", b'{"messages":1}', b'{"messages":' + b"[" * 100_000, b'{"messages":[' * 50],
    ids=range(8),
)
def test_what_is_no_chat_request_is_compared_as_bytes(body: bytes) -> None:
    assert diff_bodies(body, chat())["readable"] is False
    assert diff_bodies(chat(), body)["readable"] is False


@pytest.mark.parametrize(
    "odd",
    [1, None, "text", {"role": 5, "content": {"x": 1}}, {"role": "user", "content": [1, None, {"type": "image"}]},
     {"role": "assistant", "tool_calls": [1, {}, {"function": 3}]}],
    ids=range(6),
)  # fmt: skip
def test_an_odd_message_is_shown_as_it_can_be(odd: object) -> None:
    body = json.dumps({"messages": [odd, {"role": "user", "content": "hi"}], "tools": [1, {}]}).encode()
    told = diff_bodies(body, chat({"role": "user", "content": "hi"}))

    assert told["counts"]["left out"] == 1
    assert told["counts"]["kept"] == 1


def test_arguments_written_anew_are_the_same_message_in_its_first_bytes() -> None:
    call = Call("c1", "read", '{"a":1, "b":2}')
    tidied = Call("c1", "read", '{"b": 2, "a": 1}')
    client = b'{"messages":[' + message("assistant", "", (tidied,)).wire + b"]}"
    sent = b'{"messages":[' + message("assistant", "", (call,)).wire + b"]}"

    assert diff_bodies(client, sent)["counts"]["first bytes"] == 1
