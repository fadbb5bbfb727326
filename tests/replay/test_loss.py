"""What left the context and what of it was needed later, on values alone: nothing is told in our favour."""

from typing import Any

import pytest

from callstack_proxy.replay.loss import FAR_REQUESTS, LossTracker, NameReader, ObservedRequest
from callstack_proxy.replay.recording import body_start_and_end, encode_json
from proxy.core.frames.path_state import PathEntry, PathState
from proxy.core.frames.tree import Frame, Removal, Status, Tree
from proxy.core.ledger.ledger import Entry, EntryKind
from proxy.core.ledger.messages import Message, Request
from proxy.dialects import OPENAI_CHAT, ParseCache

Json = dict[str, Any]
NAME = "token_bucket_size"


def user(text: str) -> Json:
    return {"role": "user", "content": text}


def says(text: str) -> Json:
    return {"role": "assistant", "content": text}


def request(*messages: Json, tools: str = "") -> Request:
    described = [{"type": "function", "function": {"name": "f", "description": tools}}] if tools else []
    before, behind = body_start_and_end("m", {"tools": described} if described else {})
    return OPENAI_CHAT.parse_request(before + b",".join(map(encode_json, messages)) + behind, ParseCache())


def read(message: Json) -> Message:
    return request(message).messages[0]


def frame(name: str, parent: str = "", title: str = "a task") -> Frame:
    return Frame(name, parent, title, "", "", Status.COMPLETED, 0, "request", 0, 0)


def story(client: Request, owners: list[str], trims: tuple[Removal, ...] = ()) -> PathState:
    """Each message of the client is the entry `e0`, `e1`, ... and belongs to a frame."""
    entries = [
        Entry(f"e{at}", "", at, EntryKind.MESSAGE, "main", message) for at, message in enumerate(client.messages)
    ]
    path_entry = tuple(PathEntry(e, f"{owner}#1", path_id=e.id) for e, owner in zip(entries, owners, strict=False))
    tree = Tree({"froot": frame("froot"), "fone": frame("fone", "froot", "First task")}, "froot", removals=trims)
    return PathState(tree, path_entry)


def watched(*seen: ObservedRequest) -> LossTracker:
    loss = LossTracker(NameReader())
    for one in seen:
        loss.observe(one)
    return loss


HISTORY = [user("begin"), says(f"I set {NAME}."), user("now go on")]
PATH = ("e0", "e1", "e2")
OWNERS = ["froot", "fone", "froot"]


def seen(sent: list[Json], answer: Json, trims: tuple[Removal, ...] = ()) -> ObservedRequest:
    client = request(*HISTORY)
    return ObservedRequest(1, "c", client, request(*sent), read(answer), PATH, story(client, OWNERS, trims))


def test_what_is_sent_as_it_came_has_lost_nothing() -> None:
    loss = watched(seen(HISTORY, says(f"see {NAME}")))

    assert (loss.left, loss.missed) == ([], [])
    assert (loss.needs.used, loss.needs.in_context) == (1, 1)


def test_what_is_missing_belongs_to_its_frame_once_however_long_it_is_gone() -> None:
    gone = seen([HISTORY[0], HISTORY[2]], says("ok"))

    (left,) = watched(gone, gone).left

    assert (left.frame, left.title, left.messages, left.ref) == ("fone", "First task", 1, False)


@pytest.mark.parametrize("ref", ["fone", "froot"])
def test_a_ref_to_the_frame_or_one_above_it_leads_there(ref: str) -> None:
    trace = user(f'<stack-context>gone, ref="{ref}"</stack-context>')

    loss = watched(seen([HISTORY[0], trace, HISTORY[2]], says(f"see {NAME}")))

    assert [missed.ref for missed in loss.missed] == [ref]
    assert (loss.needs.behind_ref, loss.needs.lost) == (1, 0)


def test_a_ref_to_something_else_does_not_count() -> None:
    trace = user('<stack-context>gone, ref="fother"</stack-context>')

    loss = watched(seen([HISTORY[0], trace, HISTORY[2]], says(f"see {NAME}")))

    assert [missed.ref for missed in loss.missed] == [""]
    assert loss.needs.lost == 1


def test_a_ref_that_the_client_wrote_itself_does_not_count() -> None:
    client = request(user('see ref="fone"'), *HISTORY[1:])
    sent = request(user('see ref="fone"'), HISTORY[2])

    loss = watched(ObservedRequest(1, "c", client, sent, read(says(NAME)), PATH, story(client, OWNERS)))

    assert loss.needs.lost == 1


def test_the_trace_of_a_cut_leads_to_what_it_stands_for() -> None:
    trace = '<stack-context>cut, ref="fcut"</stack-context>'
    trim = Removal(frozenset({"e1"}), trace, "e0")

    loss = watched(seen([HISTORY[0], user(trace), HISTORY[2]], says(f"see {NAME}"), (trim,)))

    assert [missed.ref for missed in loss.missed] == ["fcut"]


def test_a_name_that_a_trace_tells_is_in_the_context() -> None:
    trace = user(f'<stack-context>names: {NAME} ref="fone"</stack-context>')

    loss = watched(seen([HISTORY[0], trace, HISTORY[2]], says(f"see {NAME}")))

    assert loss.needs.in_context == 1
    assert loss.missed == []


@pytest.mark.parametrize(("told", "left"), [("unchanged. Here it is: 1, 2, 3", 0), ('cut, ref="froot"', 1)])
def test_a_result_in_other_words_has_left_only_where_a_ref_stands_for_it(told: str, left: int) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    made: Json = {"role": "assistant", "content": None, "tool_calls": [call]}
    result: Json = {"role": "tool", "tool_call_id": "c1", "content": "unchanged"}
    client, sent = request(user("read"), made, result), request(user("read"), made, result | {"content": told})

    loss = watched(ObservedRequest(1, "c", client, sent, None, PATH, story(client, ["froot"] * 3)))

    assert len(loss.left) == left


def test_names_of_the_system_text_and_the_tools_do_not_count() -> None:
    history = [{"role": "system", "content": f"use {NAME}"}, user("max_open_files and token_bucket_size")]
    client = request(*history, tools="sets max_open_files")

    loss = watched(ObservedRequest(1, "c", client, client, read(says(f"{NAME} and max_open_files"))))

    assert loss.needs.used == 0


def test_parameter_names_do_not_count_and_escapes_are_read() -> None:
    arguments = '{"replacement_text": "\\tmaxOpenFiles = 3"}'
    call = {"id": "c1", "type": "function", "function": {"name": "edit", "arguments": arguments}}

    names = NameReader().names_in(read({"role": "assistant", "content": None, "tool_calls": [call]}))

    assert names == {"maxOpenFiles"}


def test_how_long_ago_a_name_was_said_is_counted_in_requests() -> None:
    history = [user(f"{NAME}"), *[m for at in range(FAR_REQUESTS - 1) for m in (says(f"{at}"), user("more"))]]
    near, far = request(*history[:-2]), request(*history)

    for client, count in ((near, 0), (far, 1)):
        assert watched(ObservedRequest(1, "c", client, client, read(says(NAME)))).needs.far_used == count


def test_a_client_that_drops_its_history_has_lost_it_itself() -> None:
    first, second = request(user(NAME)), request(user("summary of before"))

    loss = watched(
        ObservedRequest(1, "c", first, first, None), ObservedRequest(2, "c", second, second, read(says(NAME)))
    )

    assert loss.needs.used == 0


def test_the_worst_is_told_first() -> None:
    history = [user("lost_for_good"), says("behind_a_ref"), user("go on")]
    client = request(*history)
    trace = user('<stack-context>ref="fone"</stack-context>')
    told = PathState(story(client, ["", "fone", ""]).tree, story(client, ["", "fone", ""]).entries)

    loss = watched(
        ObservedRequest(
            1, "c", client, request(trace, history[2]), read(says("behind_a_ref lost_for_good")), PATH, told
        )
    )

    assert [missed.name for missed in loss.missed] == ["lost_for_good", "behind_a_ref"]
