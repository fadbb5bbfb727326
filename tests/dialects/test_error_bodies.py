"""What a refusal says, whatever shape a provider or a gateway gives it, and how each API tells it in a stream."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.dialects.error_bodies import ProviderFailure, anthropic_error_body, read_failure
from tests.dialects.forms import FORMS, DialectCase
from tests.dialects.playing import SSE

pytestmark = pytest.mark.rows("X-51")
every_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)

BODIES = {
    "chat": (b'{"error": {"message": "slow", "code": 1}}', "slow"),
    "messages": (b'{"type": "error", "error": {"type": "t", "message": "slow"}, "request_id": "r"}', "slow"),
    "an error in words": (b'{"error": "slow"}', "slow"),
    "a detail": (b'{"detail": "slow"}', "slow"),
    "details": (b'{"detail": [{"loc": ["body"]}]}', '[{"loc":["body"]}]'),
    "a list": (b'[{"error": {"message": "slow"}}]', "slow"),
    "an event": (b'event: error\ndata: {"error": {"message": "slow"}}\n\n', "slow"),
    "a page": (b"<html><style>p {}</style><h1>Bad &amp; slow</h1>\n<p>nginx</p></html>", "Bad & slow nginx"),
    "plain words": (b"upstream connect error", "upstream connect error"),
    "nothing": (b"", "The provider answered 503."),
    "an object of no words": (b"{}", "{}"),
    "no text at all": (b'{"error": {"message": 5}}', "The provider answered 503."),
}


@pytest.mark.parametrize(("body", "words"), BODIES.values(), ids=BODIES.keys())
def test_its_words_are_found(body: bytes, words: str) -> None:
    assert read_failure(503, body).words == words


def test_a_failure_that_came_as_a_success_is_one_of_a_gateway() -> None:
    assert read_failure(200, b'{"error": {"message": "busy"}}').status == 502


def test_the_time_to_come_back_is_told_once() -> None:
    assert read_failure(429, b'{"error": {"message": "slow"}}', 17.0).words == "slow. Please try again in 17s."
    said = b'{"error": {"message": "Please try again in 2.5s."}}'
    assert read_failure(429, said, 17.0).words == "Please try again in 2.5s."


def test_the_providers_own_members_are_kept() -> None:
    failure = read_failure(429, b'{"error": {"message": "slow", "type": "tokens", "x": [1]}}', 1.5)

    told = {"message": "slow. Please try again in 1.5s.", "type": "tokens", "x": [1], "retry_after": 1.5}
    assert failure.told_error("other") == told


FAILURE = ProviderFailure(429, "slow down", {"type": "rate_limit_error"}, retry_after_s=17.0)


def _last_event(out: bytes) -> dict[str, Any]:
    last = out.rstrip(b"\n").rpartition(b"\n\n")[2]
    found: dict[str, Any] = json.loads(last.partition(b"data: ")[2])
    return found


@every_form
def test_a_stream_that_has_begun_ends_with_it(form: DialectCase) -> None:
    answer = form.answer()
    answer.begin_round(200, SSE)
    out = answer.feed(form.hidden)
    answer.end_round(complete=True)

    told = _last_event(out + answer.failed_end(FAILURE))

    kind = told.get("type")
    error = told["response"]["error"] if kind == "response.failed" else told["error"]
    assert error["message"] == "slow down. Please try again in 17s."
    assert error["retry_after"] == 17
    if kind == "response.failed":
        first = json.loads(out.partition(b"data: ")[2].partition(b"\n\n")[0])
        assert error["code"] == "rate_limit_exceeded"
        assert told["response"]["status"] == "failed"
        assert told["response"]["id"] == first["response"]["id"]
        assert "stack_" not in json.dumps(told["response"]["output"])
    elif kind is None:
        assert "choices" not in told


@every_form
def test_nothing_is_told_behind_an_end_or_in_an_answer_that_is_no_stream(form: DialectCase) -> None:
    assert form.answer().failed_end(FAILURE) == b""
    assert form.answer(stream=False).failed_end(FAILURE) == b""
    ended = form.answer()
    ended.begin_round(200, SSE)
    ended.feed(form.words)
    ended.end_round(complete=True)
    ended.finish()
    assert ended.failed_end(FAILURE) == b""


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, "invalid_request_error"), (401, "authentication_error"), (429, "rate_limit_error"), (503, "api_error")],
)
def test_an_error_of_ours_has_the_shape_of_the_api(status: int, kind: str) -> None:
    assert json.loads(anthropic_error_body(status, "No.", "why")) == {
        "type": "error", "error": {"type": kind, "message": "No.", "code": "why"}
    }  # fmt: skip
