"""What is read of a body that the proxy does not read."""

import sys
from typing import Any

import msgspec
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


RUN = b"a" * 70_000


@pytest.mark.rows("X-56")
@pytest.mark.parametrize(
    ("body", "read"),
    [
        (b'{"input": "' + b"a" * 1_000_000 + b'", "model": "m"}', 200_000),
        (b'{"input": "' + RUN * 4 + b'\\u0041\\"' + RUN * 4 + b'", "model": "m"}', 300_000),
        (b'{"model": "m", "input": "\\' + b"n" * 200_000 + b"\xe4\xb8\x80" * 70_000 + b'"}', 400_000),
        (b'{"input": [' + b"1, 2, " * 50_000 + b'3], "model": "m"}', 400_000),
        (b'{"input": 1' + b" " * 1_000_000 + b', "model": "m"}', 200_000),
    ],
    ids=["one letter", "escapes", "escape at a border", "numbers", "blanks"],
)
async def test_long_runs_are_not_read_by_the_parser(body: bytes, read: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parser holds up everybody as long as it reads. Whatever the borders of runs fall on, the names are found."""
    given, decode = list[bytes](), msgspec.json.decode

    def watched(raw: bytes, **told: Any) -> object:
        given.append(raw)
        return decode(raw, **told)

    monkeypatch.setattr(msgspec.json, "decode", watched)  # what is told is the same: only here it can be seen
    for shift in range(0, 70_000, 9_973):
        shifted = b" " * shift + body
        given.clear()
        assert await names_in(shifted) == ("m", "")
        assert sum(map(len, given)) < read


WORDS = b'some \\"words\\" and {brackets}, '


@pytest.mark.rows("X-54")
@pytest.mark.parametrize(
    "body",
    [
        b'{"model": "\\u006d", "input": "' + WORDS * 250_000 + b'", "previous_response_id": "resp_1"}',
        b'{"x": [' + b"[]," * 2_000_000 + b'0], "model": "no", "previous_response_id": "resp_1", "model": "m"}',
        b'\xef\xbb\xbf{"model": "m", "input": "' + WORDS * 250_000 + b'", "previous_response_id": "resp_1"}',
    ],
    ids=["words", "brackets", "byte order mark"],
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
