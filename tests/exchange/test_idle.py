"""When conversations go idle, by a clock of the test's own (S1-99, S1-71h)."""

from __future__ import annotations

import pytest

from proxy.exchange.background import idle as idling
from proxy.exchange.background.idle import IdleTracker


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0
        self.busy: set[str] = set()
        self.idling = IdleTracker(lambda: 300, lambda: self.now, lambda _, conversation: conversation in self.busy)


@pytest.mark.rows("S1-99")
def test_a_conversation_goes_idle_once_after_its_delay() -> None:
    """S1-99: clock + N, one event; and one more for the next rest."""
    at = Clock()
    at.idling.start_resting("a", "c1")
    at.now += 299
    assert at.idling.take_idle() == []
    at.now += 1
    assert at.idling.take_idle() == [("a", "c1", "")]
    at.now += 10_000
    assert at.idling.take_idle() == []

    at.idling.start_resting("a", "c1")
    at.now += 300
    assert at.idling.take_idle() == [("a", "c1", "")]


@pytest.mark.rows("S1-99")
def test_a_further_request_begins_the_rest_anew() -> None:
    at = Clock()
    at.idling.start_resting("a", "c1")
    at.now += 200
    at.idling.start_resting("a", "c1")
    at.now += 200
    assert at.idling.take_idle() == []
    at.now += 100
    assert at.idling.take_idle() == [("a", "c1", "")]


@pytest.mark.rows("S1-99")
def test_what_has_a_request_under_way_is_not_idle() -> None:
    at = Clock()
    at.idling.start_resting("a", "c1")
    at.idling.start_resting("b", "c2")
    at.busy.add("c1")
    at.now += 400
    assert at.idling.take_idle() == [("b", "c2", "")]

    at.busy.clear()
    at.idling.start_resting("a", "c1")
    at.now += 300
    assert at.idling.take_idle() == [("a", "c1", "")]


@pytest.mark.rows("S1-71h")
def test_what_is_idle_is_forgotten_and_what_rests_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """S1-71h: memory holds what was asked lately, and no more than so many."""
    at = Clock()
    for number in range(5):
        at.idling.start_resting("a", f"c{number}")
    assert len(at.idling) == 5
    at.now += 3_600
    assert len(at.idling.take_idle()) == 5
    assert len(at.idling) == 0

    monkeypatch.setattr(idling, "MAX_RESTING", 3)  # fifty thousand take a while
    for number in range(5):
        at.idling.start_resting("a", f"c{number}")
    assert len(at.idling) == 3
