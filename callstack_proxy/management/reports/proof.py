"""Compares sessions that the proxy folded with sessions that it held out: are they better, worse, or is no difference
seen?

Pure: it takes the counts of each session and returns figures with intervals. The session is the unit, never the
request, because what happens inside one session is alike. An interval spans three standard errors to each side, a
little more for few sessions: seven measures are told at once, and of a hundred comparisons without a difference at most
five may tell of one. Amounts (requests, cost, tokens) are compared by their logarithms, so that a few long sessions do
not decide alone; rates by their sums, with the spread between sessions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

import msgspec

from callstack_proxy.management.reports.text_tables import TableColumn, format_columns

MIN_SESSIONS = 20
"""Sessions that each group needs before it is compared."""
STANDARD_ERRORS = 3.0
NOT_ENOUGH = "not enough sessions yet"
NO_DIFFERENCE = "no difference seen"
MEANINGS = {"better": "better", "worse": "worse", "same": NO_DIFFERENCE, "few": NOT_ENOUGH}
EXPLANATION = (
    "Requests, cost and tokens are those of a typical session (geometric mean); re-reads, retries and interruptions "
    "are in a hundred requests, failed edits in a hundred edits. A session counts with its subagents."
)

Verdict = Literal["better", "worse", "same", "few"]


class SessionCounts(msgspec.Struct, frozen=True, kw_only=True):
    """What one session took, with the subagents and forks that it began."""

    session: str
    held_out: bool
    requests: int = 0
    cost: float = 0.0
    """USD."""
    plan_cost: float = 0.0
    """What a plan that paid for all of it was asked for, by the weights of its windows; 0 where none paid for all."""
    tokens: int = 0
    """Sent upstream, and answered."""
    rereads: int = 0
    """Files that were read again, for whatever reason."""
    edits: int = 0
    failed_edits: int = 0
    retries: int = 0
    """Answers that the client asked for again."""
    interruptions: int = 0
    """By the user."""


class ComparedMeasure(msgspec.Struct, frozen=True, kw_only=True):
    """One measure of both groups; less is better in all. `difference`, `low` and `high` are percent of the held-out
    figure where `unit` is `percent`, and points where it is `points`; None without enough sessions."""

    name: str
    unit: Literal["percent", "points"]
    folded: float | None
    """Amounts: of a typical session (geometric mean). Rates: percent."""
    held_out: float | None
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    verdict: Verdict = "few"


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """`folded` and `held_out` count sessions. `sentences` tell the result."""

    folded: int
    held_out: int
    measures: tuple[ComparedMeasure, ...]
    sentences: tuple[str, ...]
    by_plan: bool = False
    """A plan paid for all sessions: `cost` is by the weights of its windows, and no money."""


class _Difference(NamedTuple):
    estimate: float
    half_width: float


_AMOUNTS: dict[str, Callable[[SessionCounts], float]] = {
    "requests": lambda counts: counts.requests,
    "cost": lambda counts: counts.cost,
    "tokens": lambda counts: counts.tokens,
}
_RATES: dict[str, tuple[Callable[[SessionCounts], float], Callable[[SessionCounts], float]]] = {
    "re-reads": (lambda counts: counts.rereads, lambda counts: counts.requests),
    "failed edits": (lambda counts: counts.failed_edits, lambda counts: counts.edits),
    "retries": (lambda counts: counts.retries, lambda counts: counts.requests),
    "interruptions": (lambda counts: counts.interruptions, lambda counts: counts.requests),
}
"""Each rate is a count over another: failed edits of a hundred edits, the others of a hundred requests."""


def compare_groups(sessions: Iterable[SessionCounts]) -> Proof:
    """The same sessions give the same proof, in whatever order."""
    ordered = sorted(sessions, key=lambda counts: counts.session)
    folded = [counts for counts in ordered if not counts.held_out]
    held_out = [counts for counts in ordered if counts.held_out]
    by_plan = bool(ordered) and all(counts.plan_cost for counts in ordered)
    amounts = _AMOUNTS | {"cost": lambda counts: counts.plan_cost} if by_plan else _AMOUNTS
    measures = (
        *(_compare_amounts(name, amount, folded, held_out) for name, amount in amounts.items()),
        *(_compare_rates(name, rate, folded, held_out) for name, rate in _RATES.items()),
    )
    sentences = tuple(_sentences(len(folded), len(held_out), measures))
    return Proof(folded=len(folded), held_out=len(held_out), measures=measures, sentences=sentences, by_plan=by_plan)


# -------------------------------------------------------------------------------------------------------------- amounts
def _compare_amounts(
    name: str,
    amount: Callable[[SessionCounts], float],
    folded: Sequence[SessionCounts],
    held_out: Sequence[SessionCounts],
) -> ComparedMeasure:
    ours, theirs = ([math.log(value) for one in group if (value := amount(one)) > 0] for group in (folded, held_out))
    figures = [math.exp(_mean(group)) if group else None for group in (ours, theirs)]
    measure = ComparedMeasure(name=name, unit="percent", folded=figures[0], held_out=figures[1])
    if min(len(ours), len(theirs)) < MIN_SESSIONS:
        return measure
    spread = [_variance(group) / len(group) for group in (ours, theirs)]
    found = _difference(_mean(ours) - _mean(theirs), spread, (len(ours), len(theirs)))
    return _judged(measure, found, lambda log_ratio: 100 * math.expm1(log_ratio))


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _variance(values: Sequence[float]) -> float:
    middle = _mean(values)
    return math.fsum((value - middle) ** 2 for value in values) / (len(values) - 1)


# ---------------------------------------------------------------------------------------------------------------- rates
def _compare_rates(
    name: str,
    rate: tuple[Callable[[SessionCounts], float], Callable[[SessionCounts], float]],
    folded: Sequence[SessionCounts],
    held_out: Sequence[SessionCounts],
) -> ComparedMeasure:
    count, base = rate
    ours, theirs = ([(count(one), base(one)) for one in group if base(one) > 0] for group in (folded, held_out))
    rates = [_rate_of(group) if group else None for group in (ours, theirs)]
    figures = [None if found is None else 100 * found for found in rates]
    measure = ComparedMeasure(name=name, unit="points", folded=figures[0], held_out=figures[1])
    if rates[0] is None or rates[1] is None or min(len(ours), len(theirs)) < MIN_SESSIONS:
        return measure
    both = [*ours, *theirs]
    # A small group in which nothing happened shows no spread of its own: it is taken to have at least that of all.
    spread = [max(_spread(group, group), _spread(both, group)) for group in (ours, theirs)]
    found = _difference(rates[0] - rates[1], spread, (len(ours), len(theirs)))
    return _judged(measure, found, lambda share: 100 * share)


_Pairs = Sequence[tuple[float, float]]


def _rate_of(pairs: _Pairs) -> float:
    return math.fsum(count for count, _ in pairs) / math.fsum(base for _, base in pairs)


def _spread(shown: _Pairs, group: _Pairs) -> float:
    """The variance of the group's rate, by how much the sessions in `shown` differ from their common rate."""
    common = _rate_of(shown)
    each = math.fsum((count - common * base) ** 2 for count, base in shown) / (len(shown) - 1)
    return len(group) * each / math.fsum(base for _, base in group) ** 2


# ------------------------------------------------------------------------------------------------------------ intervals
def _difference(estimate: float, spread: Sequence[float], sizes: tuple[int, int]) -> _Difference:
    """`spread`: the variance of each group's figure."""
    whole = math.fsum(spread)
    if not whole:
        return _Difference(estimate, 0.0)
    freedom = whole**2 / math.fsum(part**2 / (size - 1) for part, size in zip(spread, sizes, strict=True))
    return _Difference(estimate, _quantile(freedom) * math.sqrt(whole))


def _quantile(freedom: float) -> float:
    """Student's quantile where the normal one is `STANDARD_ERRORS` (Cornish and Fisher's expansion)."""
    z = STANDARD_ERRORS
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def _judged(measure: ComparedMeasure, found: _Difference, told: Callable[[float], float]) -> ComparedMeasure:
    low, high = found.estimate - found.half_width, found.estimate + found.half_width
    tiny = 1e-12
    verdict: Verdict = "worse" if low > tiny else "better" if high < -tiny else "same"
    return msgspec.structs.replace(
        measure, difference=told(found.estimate), low=told(low), high=told(high), verdict=verdict
    )


# ------------------------------------------------------------------------------------------------------------ sentences
def _sentences(folded: int, held_out: int, measures: Sequence[ComparedMeasure]) -> Iterator[str]:
    if not held_out:
        yield f"{NOT_ENOUGH.capitalize()}: none was held out. `holdout: 0.05` passes one session in twenty untouched."
        return
    if min(folded, held_out) < MIN_SESSIONS:
        yield f"{NOT_ENOUGH.capitalize()}: {folded:,} with folds and {held_out:,} held out; each needs {MIN_SESSIONS}."
        return
    for verdict, words in (("worse", "Worse with folds"), ("better", "Better with folds")):
        if found := [measure for measure in measures if measure.verdict == verdict]:
            yield f"{words}: {'; '.join(map(_told, found))}."
    if same := [measure.name for measure in measures if measure.verdict == "same"]:
        yield f"{NO_DIFFERENCE.capitalize()} in {', '.join(same)}."
    if few := [measure.name for measure in measures if measure.verdict == "few"]:
        yield f"{NOT_ENOUGH.capitalize()} for {', '.join(few)}."


def _told(measure: ComparedMeasure) -> str:
    unit = " %" if measure.unit == "percent" else " points"
    return f"{measure.name} {measure.difference:+.1f}{unit} ({measure.low:+.1f} to {measure.high:+.1f})"


# ---------------------------------------------------------------------------------------------------------------- table
def format_proof(proof: Proof, width: int | None = None) -> Iterator[str]:
    """The table only where something was compared. `width` in cells of the terminal, None for unlimited."""
    yield from proof.sentences
    if not proof.held_out:
        return
    yield f"{proof.folded:,} session{'' if proof.folded == 1 else 's'} with folds, {proof.held_out:,} held out"
    yield ""
    rows = proof.measures
    yield from format_columns(
        [
            TableColumn("measure", tuple(row.name for row in rows), is_number=False),
            TableColumn("with folds", tuple(_figure(row, row.folded, by_plan=proof.by_plan) for row in rows)),
            TableColumn("held out", tuple(_figure(row, row.held_out, by_plan=proof.by_plan) for row in rows)),
            TableColumn("difference", tuple(_change(row, row.difference) for row in rows)),
            TableColumn("from", tuple(_change(row, row.low) for row in rows), 1),
            TableColumn("to", tuple(_change(row, row.high) for row in rows), 1),
            TableColumn("verdict", tuple(MEANINGS[row.verdict] for row in rows), is_number=False),
        ],
        width,
    )
    yield EXPLANATION


def _change(row: ComparedMeasure, value: float | None) -> str:
    return "-" if value is None else f"{value:+.1f} {'%' if row.unit == 'percent' else 'pt'}"


def _figure(row: ComparedMeasure, value: float | None, *, by_plan: bool) -> str:
    if value is None or (by_plan and row.name == "cost"):
        return "-"
    if row.unit == "points":
        return f"{value:.1f} %"
    return f"${value:.4f}" if row.name == "cost" else f"{value:,.0f}"
