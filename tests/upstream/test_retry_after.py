"""When a provider wants to be asked again, in every way in which providers say it."""

from __future__ import annotations

import pytest

from proxy.upstream import retry_after_s

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
