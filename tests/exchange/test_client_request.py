"""What is read of a body that the proxy does not read."""

import sys

import pytest

from proxy.exchange.rounds import client_request, names_in


@pytest.mark.parametrize(
    ("body", "names"),
    [
        (rb'{"model": "m", "previous_response_id": "resp_1"}', ("m", "resp_1")),
        (b'{"model": "m", "previous_response_id": "\xff"}', ("m", "")),
        (b'{"model": "\xff", "previous_response_id": "resp_1"}', (None, "resp_1")),
        (rb'{"model": "m", "previous_response_id": "resp_1", "input": "\ud800"}', ("m", "resp_1")),
        (rb'{"model": "m", "previous_response_id": "\ud800"}', ("m", "")),
        ('{"model": "m", "previous_response_id": "resp_1"}'.encode("utf-8-sig"), ("m", "resp_1")),
        ('{"model": "m", "previous_response_id": "resp_1"}'.encode("utf-16"), ("m", "resp_1")),
        (b"[" * 100_000, (None, "")),
        (rb'{"model": 1, "previous_response_id": ["resp_1"]}', (None, "")),
        (rb'{"input": 1}', (None, "")),
        (b'{"model": "m"', (None, "")),
    ],
)
async def test_each_name_is_read_by_itself(body: bytes, names: tuple[str | None, str]) -> None:
    assert await names_in(body) == names


WORDS = b'some \\"words\\" and {brackets}, '


@pytest.mark.rows("X-54", "X-56")
@pytest.mark.parametrize(
    "body",
    [
        b'{"model": "\\u006d", "input": "' + WORDS * 250_000 + b'", "previous_response_id": "resp_1"}',
        b'{"x": [' + b"[]," * 2_000_000 + b'0], "model": "no", "previous_response_id": "resp_1", "model": "m"}',
        b'{"input": "' + b"a" * 60_000_000 + b'", "model": "m", "previous_response_id": "resp_1"}',
        b'\xef\xbb\xbf{"model": "m", "input": "' + WORDS * 250_000 + b'", "previous_response_id": "resp_1"}',
    ],
    ids=["words", "brackets", "one letter", "byte order mark"],
)
async def test_a_long_body_is_read_by_another_process(body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parser would hold the interpreter for 75 to 150 ms for 60 MB, in whichever thread it runs."""

    def never(*_: object) -> None:
        raise AssertionError("read in this process")

    monkeypatch.setattr(client_request, "read_names", never)  # what is told is the same: only here it can be seen
    assert await names_in(body) == ("m", "resp_1")


async def test_a_long_body_is_read_here_where_there_is_no_other_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "")  # an interpreter within another program has no name
    assert await names_in(b'{"input": "' + WORDS * 250_000 + b'", "model": "m"}') == ("m", "")
