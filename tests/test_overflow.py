"""S9: a refusal for length is told from throttling, whatever the provider's words."""

import pytest

from proxy.overflow import is_overflow
from proxy.scripted.wordings import OVERFLOWS, THROTTLES, Wording


@pytest.mark.parametrize("wording", OVERFLOWS, ids=lambda w: w.name)
def test_every_known_wording_of_overflow_is_recognised(wording: Wording) -> None:
    assert is_overflow(wording.status, wording.body(210_000, 200_000), tokens=210_000)


@pytest.mark.parametrize("wording", THROTTLES, ids=lambda w: w.name)
def test_throttling_is_never_taken_for_overflow(wording: Wording) -> None:
    assert not is_overflow(wording.status, wording.body(210_000, 200_000), tokens=210_000)


@pytest.mark.parametrize(
    "body",
    [
        b'{"error":{"message":"Invalid value for \'temperature\'"}}',
        b'{"error":{"message":"max_tokens is too large: 99999"}}',
        b"<html>Request Entity Too Large</html>",
        b"",
    ],
)
def test_other_refusals_are_none(body: bytes) -> None:
    assert not is_overflow(400, body)


def test_a_refusal_without_a_word_counts_only_for_a_large_request() -> None:
    assert is_overflow(400, b"", tokens=50_000)
    assert not is_overflow(400, b"", tokens=500)
    assert not is_overflow(500, b"", tokens=50_000)
