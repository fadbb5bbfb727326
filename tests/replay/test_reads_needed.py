"""Which files an agent would have to read again before an edit, on values alone."""

import json
from typing import Any

import pytest

from callstack_proxy.replay.loss import ObservedRequest
from callstack_proxy.replay.reads_needed import CALL_TOKENS, REQUESTS_IN_CONTEXT, REQUESTS_WITHOUT_READING, ReadsNeeded
from proxy.accounting import Tariff
from proxy.core.observers import DEFAULT_TOOL_ROLES
from tests.replay.test_loss import read, request, says, user

pytestmark = pytest.mark.rows("X-64")

LINE = "def settle(self, parcel: Parcel) -> Result:"
TARIFF = Tariff(names=("m",), input=2.0, output=10.0, read=0.1, write=1.25)


def calls(name: str, ident: str = "c1", **arguments: str) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": ident, "type": "function", "function": function}],
    }


def edit(old: str = f"    {LINE}", path: str = "src/a.py") -> dict[str, Any]:
    return calls("edit", "c9", file_path=path, old_string=old, new_string="    pass")


PATCH = calls("apply_patch", input=f"*** Begin Patch\n*** Update File: src/a.py\n@@\n-{LINE}\n+pass\n*** End Patch")
BEGIN, AFTER = user("Look at it."), user("Now change it.")
HISTORY = [BEGIN, calls("read", file_path="src/a.py"), {"role": "tool", "tool_call_id": "c1", "content": f"7\t{LINE}"}]


def seen(answer: dict[str, Any], sent: list[dict[str, Any]], number: int = 1) -> ObservedRequest:
    return ObservedRequest(number, "c", request(*HISTORY, AFTER), request(*sent), read(answer))


def needed(*requests: ObservedRequest) -> ReadsNeeded:
    reads = ReadsNeeded(TARIFF, DEFAULT_TOOL_ROLES)
    for one in requests:
        reads.observe(one)
    return reads


GONE = [BEGIN, AFTER]


@pytest.mark.parametrize(
    ("answer", "sent", "times"),
    [
        (edit(), GONE, 1),
        (PATCH, GONE, 1),
        (edit(), [*HISTORY, AFTER, user("a note")], 0),
        (edit(), [*GONE, user(f"The trace quotes: {LINE}\n{LINE}")], 0),
        (edit("a line that nobody had shown"), GONE, 0),
        (edit("}"), GONE, 0),
        (says("Done."), GONE, 0),
    ],
    ids=["gone", "gone, by a patch", "all is there", "quoted", "never seen", "too short", "no edit"],
)
def test_an_edit_needs_a_reading_where_its_lines_have_left(
    answer: dict[str, Any], sent: list[dict[str, Any]], times: int
) -> None:
    assert needed(seen(answer, sent)).times == times


def test_a_file_is_read_again_once_for_a_while() -> None:
    first, soon = seen(edit(), GONE), seen(edit(), GONE, 2)
    late = seen(edit(), GONE, 1 + REQUESTS_WITHOUT_READING)

    assert needed(first, soon, seen(edit(path="b.py"), GONE, 3), late).times == 3


def test_a_reading_costs_one_more_request_and_the_file_for_a_while() -> None:
    one = seen(edit(), GONE)
    size = next(message.tokens for message in one.client.messages if message.role == "tool")

    read_tokens = 0.1 * (one.sent.tokens + REQUESTS_IN_CONTEXT * size) + 1.25 * (size + CALL_TOKENS)
    assert needed(one).cost == pytest.approx((2.0 * read_tokens + 10.0 * CALL_TOKENS) / 1e6)
