"""Captured requests of a real client of the messages API, taken apart and written again (P1, X-02; CLIENTS 2).

The captures are other people's, so they stay outside the project: without them these tests skip and say so.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from proxy.core.context.message_list import unpaired_calls
from proxy.core.ledger.messages import Request
from proxy.dialects.base import RenderOptions
from proxy.dialects.messages.request import ANTHROPIC_MESSAGES, client_body, extend_head, render
from proxy.dialects.parse_cache import ParseCache

read = ANTHROPIC_MESSAGES.parse_request

CAPTURES = Path(__file__).resolve().parents[3] / "shared" / "captures"
SESSIONS = sorted(CAPTURES.glob("*/*.jsonl"))

pytestmark = pytest.mark.skipif(not SESSIONS, reason="the captured sessions are not beside this checkout")


def captured() -> list[tuple[str, dict[str, Any]]]:
    """The completion requests of every capture, each with its thread."""
    return [
        (f"{session.stem} {line['truth']['thread']} {line['truth']['kind']}", line["body"])
        for session in SESSIONS
        for line in map(json.loads, session.read_text().splitlines())
        if line["path"].endswith("/messages") and line["body"]
    ]


@pytest.fixture(scope="module")
def requests() -> list[tuple[str, bytes, Request]]:
    known = ParseCache()
    bodies = [(thread, json.dumps(body, separators=(",", ":")).encode()) for thread, body in captured()]
    return [(thread, body, read(body, known)) for thread, body in bodies]


Requests = list[tuple[str, bytes, Request]]


def test_p1_every_captured_request_survives(requests: Requests) -> None:
    assert len(requests) > 50
    for _, body, asked in requests:
        assert b"".join(client_body(asked)) == body
        sent = render(asked, asked.messages, extend_head(asked, ""), RenderOptions())
        assert json.loads(b"".join(sent)) == json.loads(body)


def test_every_call_of_a_captured_request_is_answered_where_it_must_be(requests: Requests) -> None:
    assert sum(len(m.calls) for _, _, asked in requests for m in asked.messages) > 250
    for _, _, asked in requests:
        assert unpaired_calls(asked.messages) == ()


@pytest.mark.rows("X-03")
def test_x02_a_captured_request_goes_on_from_the_one_before_it(requests: Requests) -> None:
    """The client moves its cache markers with every request; nothing else of its history changes, but where it
    compacts."""
    went_on, started = 0, 0
    before: dict[str, Request] = {}
    for thread, _, asked in requests:
        if (last := before.get(thread)) is not None:
            same = [m.identity for m in asked.messages[: len(last.messages)]] == [m.identity for m in last.messages]
            went_on, started = went_on + same, started + (not same)
        before[thread] = asked
    assert went_on > 40
    assert started <= 1
