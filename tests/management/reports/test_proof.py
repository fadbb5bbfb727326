"""The comparison of held-out sessions with the others, on simulated sessions: a difference is told, and none is made
up."""

from __future__ import annotations

import math
from random import Random

import pytest

from callstack_proxy.management.reports import Proof, SessionCounts, compare_groups, format_proof

SESSIONS, EDITS, SHARE = 400, 15, 0.25
SEEDS = range(100)
ENOUGH = 95


def happened(chance: Random, times: int, share: float) -> int:
    """How many of so many times something happened, by leaps from one to the next."""
    count, at = -1, 0
    while share and at <= times:
        count += 1
        at += 1 + int(math.log(1 - chance.random()) / math.log1p(-share))
    return max(count, 0)


def simulated(seed: int, failed: float, failed_held_out: float, sessions: int = SESSIONS) -> list[SessionCounts]:
    """Sessions as long and as dear as sessions are: most short, a few very long. Only edits may differ by group."""
    chance = Random(seed)
    found: list[SessionCounts] = []
    for number in range(sessions):
        held_out = chance.random() < SHARE
        requests = 1 + int(chance.lognormvariate(3, 1))
        found.append(
            SessionCounts(
                session=f"{number:03}",
                held_out=held_out,
                requests=requests,
                cost=0.01 * requests**1.5 * chance.lognormvariate(0, 0.5),
                tokens=1 + int(20_000 * requests * chance.lognormvariate(0, 0.5)),
                rereads=happened(chance, requests, 0.1),
                edits=EDITS,
                failed_edits=happened(chance, EDITS, failed_held_out if held_out else failed),
                retries=happened(chance, requests, 0.005),
                interruptions=happened(chance, requests, 0.02),
            )
        )
    return found


def verdicts(proof: Proof) -> dict[str, str]:
    return {measure.name: measure.verdict for measure in proof.measures}


@pytest.mark.long
@pytest.mark.rows("X-64")
def test_five_points_more_failed_edits_are_told_as_worse() -> None:
    told = [compare_groups(simulated(seed, failed=0.11, failed_held_out=0.06)) for seed in SEEDS]

    worse = [proof for proof in told if verdicts(proof)["failed edits"] == "worse"]
    assert len(worse) >= ENOUGH
    assert all("Worse with folds: " in proof.sentences[0] and "failed edits +" in proof.sentences[0] for proof in worse)


@pytest.mark.long
@pytest.mark.rows("X-64")
def test_without_a_difference_none_is_told() -> None:
    told = [compare_groups(simulated(seed, failed=0.06, failed_held_out=0.06)) for seed in SEEDS]

    none = [proof for proof in told if set(verdicts(proof).values()) == {"same"}]
    assert len(none) >= ENOUGH
    assert all(proof.sentences[0].startswith("No difference seen in requests, ") for proof in none)


@pytest.mark.rows("X-64")
def test_few_sessions_are_told_as_few_and_order_does_not_matter() -> None:
    few = simulated(1, failed=0.5, failed_held_out=0.0, sessions=60)
    assert set(verdicts(compare_groups(few)).values()) == {"few"}
    assert compare_groups(few).sentences[0].startswith("Not enough sessions yet: ")
    assert "none was held out" in compare_groups([]).sentences[0]

    many = simulated(2, failed=0.02, failed_held_out=0.2)
    assert compare_groups(many) == compare_groups(reversed(many))
    assert verdicts(compare_groups(many))["failed edits"] == "better"


@pytest.mark.rows("X-64")
def test_nothing_in_a_small_group_is_no_proof() -> None:
    """Twenty sessions without an interruption do not show that the others, with a few, are worse."""
    quiet = [SessionCounts(session=f"h{n}", held_out=True, requests=10, cost=0.1, tokens=1_000) for n in range(20)]
    others = [
        SessionCounts(session=f"f{n}", held_out=False, requests=10, cost=0.1, tokens=1_000, interruptions=n % 50 == 0)
        for n in range(380)
    ]
    assert verdicts(compare_groups(quiet + others)) == {
        **dict.fromkeys(("requests", "cost", "tokens", "re-reads", "retries", "interruptions"), "same"),
        "failed edits": "few",
    }


@pytest.mark.rows("X-64")
def test_a_proof_is_printed_with_its_intervals() -> None:
    proof = compare_groups(simulated(3, failed=0.11, failed_held_out=0.06))
    lines = list(format_proof(proof))

    assert lines[0] == proof.sentences[0]
    row = next(line for line in lines if line.startswith("failed edits"))
    measure = next(one for one in proof.measures if one.name == "failed edits")
    assert row.split()[2:] == [
        *(f"{measure.folded:.1f}", "%", f"{measure.held_out:.1f}", "%"),
        *(part for value in (measure.difference, measure.low, measure.high) for part in (f"{value:+.1f}", "pt")),
        "worse",
    ]


@pytest.mark.rows("X-63", "X-64")
def test_where_a_plan_paid_for_all_sessions_its_weights_are_compared_and_no_dollars_are_told() -> None:
    """A tenth less of the windows, where list prices would have said twice as much."""
    weights = {True: 1.0, False: 0.9}
    sessions = [
        SessionCounts(
            session=f"{n}", held_out=n % 2 == 0, requests=9, tokens=9, cost=2 - n % 2, plan_cost=weights[n % 2 == 0]
        )
        for n in range(40)
    ]
    proof = compare_groups(sessions)
    told = "\n".join(format_proof(proof, 120))
    (cost,) = [measure for measure in proof.measures if measure.name == "cost"]
    assert cost.difference == pytest.approx(-10)
    assert "$" not in told
    assert "$" in "\n".join(
        format_proof(compare_groups([*sessions, SessionCounts(session="x", held_out=True, cost=1.0)]), 120)
    )
