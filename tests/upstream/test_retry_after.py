"""When a provider wants to be asked again, in every way in which providers say it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from proxy.config import UpstreamSettings
from proxy.upstream import Answer, Upstream, is_resting, note_rest, retry_after_s

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
    provider, now = _Provider("p", UpstreamSettings(url="http://127.0.0.1")), 1_000
    for status, wait in ((429, b"30"), (503, b"10"), (400, b"900"), (429, b"soon")):
        note_rest(provider, _Busy(status, (b"retry-after", wait)), now)

    assert is_resting(provider, now + 29_999)
    assert not is_resting(provider, now + 30_000)
    note_rest(provider, _Busy(429, (b"retry-after", b"99999999")), now)
    assert not is_resting(provider, now + 24 * 3_600_000)
