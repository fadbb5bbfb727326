"""When a provider wants to be asked again, in every way in which providers say it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from unittest.mock import patch

import pytest

from proxy.config import UpstreamSettings
from proxy.upstream import Answer, Upstream, is_resting, note_rest, retry_after_s
from tests.clocks import HOUR_MS

NOW = 1_784_116_800_000
"""2026-07-15 12:00:00 UTC, in ms."""
TOLD = [
    ([(b"retry-after", b"17")], 17.0),
    ([(b"retry-after", b" 0.25 ")], 0.25),
    ([(b"retry-after", b"-3")], 0.0),
    ([(b"retry-after-ms", b"1500"), (b"retry-after", b"2")], 1.5),
    ([(b"retry-after-ms", b"soon"), (b"retry-after", b"2")], 2.0),
    ([(b"retry-after", b"Wed, 15 Jul 2026 12:00:30 GMT")], 30.0),
    ([(b"retry-after", b"Wed, 15 Jul 2026 11:59:00 GMT")], 0.0),
    ([(b"retry-after", b"nan")], None),
    ([(b"retry-after", b"inf")], None),
    ([(b"retry-after", b"later")], None),
    ([(b"retry-after", b"")], None),
    ([(b"content-type", b"text/html")], None),
]


@pytest.mark.rows("X-51")
@pytest.mark.parametrize(("headers", "seconds"), TOLD)
def test_the_time_is_read(headers: list[tuple[bytes, bytes]], seconds: float | None) -> None:
    assert retry_after_s(headers, NOW) == seconds


@pytest.mark.rows("X-51")
def test_the_time_is_read_from_the_body_where_no_header_names_it() -> None:
    body = b'[{"error": {"details": [{"@type": "google.rpc.RetryInfo", "retryDelay": "31.5s"}]}}]'
    assert retry_after_s([], NOW, body) == 31.5
    assert retry_after_s([(b"retry-after", b"17")], NOW, body) == 17.0
    assert retry_after_s([], NOW, b'{"retryDelay": "soon"}') is None


class _Busy(Answer):
    def __init__(self, status: int, *headers: tuple[bytes, bytes]) -> None:
        self.status, self.headers = status, list(headers)

    async def chunks(self) -> AsyncIterator[bytes]:
        yield b""

    async def aclose(self) -> None:
        pass


class _Provider(Upstream):
    async def send(self, *_: object) -> Answer:
        raise NotImplementedError


@pytest.mark.rows("X-51")
def test_a_provider_rests_until_the_latest_time_that_it_named() -> None:
    """A12: by a clock that does not jump, whatever the machine's says."""
    provider = _Provider("p", UpstreamSettings(url="http://127.0.0.1"))
    date = (b"retry-after", b"Wed, 15 Jul 2026 12:00:20 GMT")
    with patch("proxy.upstream.retry_after.time") as clock:
        clock.monotonic.return_value = 1.0
        for status, wait in ((429, b"30"), (503, b"10"), (400, b"900"), (429, b"soon")):
            note_rest(provider, _Busy(status, (b"retry-after", wait)), NOW)
        note_rest(provider, _Busy(429, date), NOW)

        clock.monotonic.return_value = 30.9
        assert is_resting(provider)
        clock.monotonic.return_value = 31.0
        assert not is_resting(provider)
        for jumped in (NOW - HOUR_MS, NOW + HOUR_MS):
            note_rest(provider, _Busy(429, (b"retry-after", b"5")), jumped)
        clock.monotonic.return_value = 36.0
        assert not is_resting(provider)
        note_rest(provider, _Busy(429, (b"retry-after", b"99999999")), NOW)
        clock.monotonic.return_value += 24 * 3600
        assert not is_resting(provider)
