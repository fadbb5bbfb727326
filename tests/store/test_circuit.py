"""The circuit breaker, on a clock of its own."""

from __future__ import annotations

from proxy.store.database_errors import CircuitBreaker


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def failing(clock: Clock, times: int, every: float) -> CircuitBreaker:
    circuit = CircuitBreaker(clock)
    for _ in range(times):
        clock.now += every
        circuit.record_failure()
    return circuit


def test_four_failures_leave_it_closed_and_the_fifth_opens_it() -> None:
    assert not failing(Clock(), 4, 1).is_open
    assert failing(Clock(), 5, 1).is_open


def test_failures_spread_over_more_than_30_seconds_leave_it_closed() -> None:
    assert failing(Clock(), 5, 7.5).is_open
    assert not failing(Clock(), 50, 7.6).is_open


def test_a_probe_is_due_after_ten_seconds() -> None:
    clock = Clock()
    circuit = failing(clock, 5, 1)

    assert circuit.seconds_until_probe() == 10
    clock.now += 11
    assert circuit.seconds_until_probe() == 0


def test_a_failed_probe_makes_it_rest_again_and_one_that_succeeds_closes_it() -> None:
    clock = Clock()
    circuit = failing(clock, 5, 1)
    clock.now += 11
    circuit.record_failure()
    assert circuit.seconds_until_probe() == 10

    circuit.reset()

    assert circuit.seconds_until_probe() is None
    circuit.record_failure()
    assert not circuit.is_open


def test_tripped_it_is_open_at_the_first_failure_and_probes_like_any_other() -> None:
    clock = Clock()
    circuit = failing(clock, 1, 1)
    circuit.trip()

    assert circuit.is_open
    assert circuit.seconds_until_probe() == 10
    circuit.reset()
    assert not circuit.is_open
