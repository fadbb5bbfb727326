"""What a token weighs in a plan that is paid by window instead of by the token.

A provider tells with each answer how much of a window of hours or days is used. From that movement `fit_weights` learns
what a cached, a written and an answered token weigh beside a fresh one. Sums are in USD at list prices, so that all
models of a plan count together. Nothing is said of prices here: a plan's weights make a row of prices (`plan_tariff`),
and everything that works with prices works with it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from proxy.accounting.plans.plan_window import WindowReading
from proxy.accounting.tariff import Tariff
from proxy.core.ledger import Usage

MILLION = 1_000_000
RESET_TOLERANCE_S = 120
"""Two times of a reset that are closer than this are one: some headers tell the seconds that are left."""

READ_PRIOR, READ_PRIOR_ERROR = 1 / 140, 1 / 70
"""A cached token before anything is known, as a multiple of a fresh one: others measured 0 to 1/70."""
LIST_PRIOR_ERROR = 0.5
"""By how much the weight of a written or answered token may differ from its list price before anything is known."""
MIN_MOVEMENT_STEPS = 4
"""Steps of a header that a window must have moved before anything is read out of it."""
JUMP_STEPS = 3.0
"""A reading that is further above what our requests explain than so many steps was moved by something else."""
ROUNDS_OF_FIT = 5
LEAST_FRESH = 0.1
"""The least that a fresh token weighs, as a share of what is expected: everything else is told beside it."""
CAUTIOUS_ERRORS = 2
"""By so many errors less than measured a cached token may weigh."""
CAUTIOUS_ROUNDS = 30
"""With fewer answered rounds nothing is built on what was measured."""
DEFAULT_OUTPUT_RATIO = 5.0
"""Output price as a multiple of the input price, where a row has none."""


class ListUse(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What one answered round used, in USD at list prices. `read` is in USD at the price of fresh input, because its
    weight has nothing to do with its list price."""

    fresh: float = 0.0
    read: float = 0.0
    written: float = 0.0
    output: float = 0.0

    def __add__(self, other: ListUse) -> ListUse:
        return ListUse(
            self.fresh + other.fresh, self.read + other.read, self.written + other.written, self.output + other.output
        )

    @property
    def as_vector(self) -> tuple[float, float, float, float]:
        return self.fresh, self.read, self.written, self.output


class PlanWeights(msgspec.Struct, frozen=True, gc=False):
    """What a USD of each kind of token weighs, at the list prices that `ListUse` goes by. Measured, that is a share of
    the window; before, only how the four compare. Errors are one standard deviation, and large where the requests so
    far do not tell one kind from another."""

    fresh: float = 1.0
    read: float = READ_PRIOR
    write: float = 1.0
    output: float = 1.0
    fresh_error: float = LIST_PRIOR_ERROR
    read_error: float = READ_PRIOR_ERROR
    write_error: float = LIST_PRIOR_ERROR
    output_error: float = LIST_PRIOR_ERROR
    rounds: int = 0
    """From how many answered rounds they were read; 0: nothing was measured yet."""
    counts_itself: bool = False
    """Whether the headers of an answer count the answer itself, by what fits better."""

    @property
    def read_ratio(self) -> float:
        """What a cached token weighs, as a multiple of a fresh one."""
        return self.read / self.fresh

    @property
    def cautious_read_ratio(self) -> float:
        """The least of it: what leaves the context gains so much, and perhaps more. 0 before enough was measured."""
        if self.rounds < CAUTIOUS_ROUNDS:
            return 0.0
        return max(0.0, self.read - CAUTIOUS_ERRORS * self.read_error) / self.fresh

    @property
    def four(self) -> tuple[float, float, float, float]:
        return self.fresh, self.read, self.write, self.output

    @property
    def uncertainty(self) -> float:
        """All errors together, as a multiple of what a fresh token weighs."""
        return (self.fresh_error + self.read_error + self.write_error + self.output_error) / self.fresh


NOTHING_MEASURED = PlanWeights()


# --------------------------------------------------------------------------------------------------------------- prices
def list_use(usage: Usage, tariff: Tariff) -> ListUse:
    """What a reported round used, in USD at list prices."""
    fresh = max(0, usage.input - usage.cached - usage.written)
    short = usage.written - usage.written_long
    price = tariff.input / MILLION
    return ListUse(
        fresh * price,
        usage.cached * price,
        (short * tariff.write + usage.written_long * tariff.write_long) * price,
        usage.output * _output_price(tariff) / MILLION,
    )


def plan_tariff(tariff: Tariff, weights: PlanWeights, *, cautious: bool = False) -> Tariff:
    """The row of prices by which a plan pays for a model: USD of fresh input that weigh as much. Windows know no bands.
    `cautious`: with the least that a cached token may weigh, for the question whether a rewrite pays."""
    read = weights.cautious_read_ratio if cautious else weights.read_ratio
    write, output = weights.write / weights.fresh, weights.output / weights.fresh
    return replace(
        tariff,
        read=read,
        write=max(tariff.write * write, read),
        long_write=max(tariff.long_write * write, read),
        output=_output_price(tariff) * output,
        long_context=0,
    )


def _output_price(tariff: Tariff) -> float:
    return tariff.input * DEFAULT_OUTPUT_RATIO if tariff.output is None else tariff.output


# ------------------------------------------------------------------------------------------------------------------ fit
class WindowRecord(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One answered round: what it used, and what its answer said of the window afterwards. `use` is None where the
    provider did not say what it used. `is_after_gap`: rounds before it are not known, as after a restart."""

    use: ListUse | None
    reading: WindowReading
    is_after_gap: bool = False


_Vector = list[float]
_Matrix = list[list[float]]
_READ, _UNIT = 1, 4
"""Positions in the vector; the common unit stands behind fresh, read, written and output: what a list dollar weighs."""
_PRIORS = ((1.0, LIST_PRIOR_ERROR), (READ_PRIOR, READ_PRIOR_ERROR), (1.0, LIST_PRIOR_ERROR), (1.0, LIST_PRIOR_ERROR))
"""For each of the four, the expected multiple of the unit and its error."""


class _Segment(msgspec.Struct):
    """Readings between two resets, as sums of what was used before each."""

    sums: list[tuple[float, float, float, float]] = []
    used: list[float] = []


def fit_weights(records: Sequence[WindowRecord]) -> PlanWeights:
    """The weights that explain best how the readings of one window moved, oldest record first.

    Least squares with weights of at least 0, drawn to what is expected where the readings say nothing. A reading is a
    rounded figure, and begins anew with each reset of the window and with each jump that our requests do not explain.
    Whether an answer's headers count the answer itself is not documented: what fits better is taken.
    """
    if not records:
        return NOTHING_MEASURED
    step = records[-1].reading.step
    fits = [_fit_with_lag(records, step, counts_itself=counts) for counts in (False, True)]
    known = [fit for fit in fits if fit is not None]
    return min(known, key=lambda fit: fit[1])[0] if known else NOTHING_MEASURED


def fit_scale(records: Sequence[WindowRecord], weights: PlanWeights) -> tuple[float, float]:
    """How much of a window a USD of fresh input takes, and the error of that; zeros while the window has hardly moved.
    `weights` may come from another window of the same plan: what a token weighs is the same there."""
    if not records:
        return 0.0, 0.0
    step, ratios = records[-1].reading.step, [weight / weights.fresh for weight in weights.four]
    segments: list[_Segment] = []
    parts = _segments(records, step, counts_itself=weights.counts_itself)
    scale = across = 0.0
    while len(parts) > len(segments):  # a jump makes the scale too large, so others may show once it is left out
        segments = parts
        if _movement(segments) < MIN_MOVEMENT_STEPS * step:
            return 0.0, 0.0
        scale, across = _unit_of(segments, ratios)
        expected = [max(0.0, scale) * ratio for ratio in ratios]
        parts = [part for segment in segments for part in _split_at_jumps(segment, expected, step)]
    return (scale, step / math.sqrt(12 * across)) if scale > 0 else (0.0, 0.0)


def _fit_with_lag(
    records: Sequence[WindowRecord], step: float, *, counts_itself: bool
) -> tuple[PlanWeights, float] | None:
    """The weights, and the mean square of what they leave unexplained."""
    segments = _segments(records, step, counts_itself=counts_itself)
    first = _fit_segments(segments, step)
    if first is None:
        return None
    without_jumps = [part for segment in segments for part in _split_at_jumps(segment, first[2], step)]
    best = (_fit_segments(without_jumps, step) if len(without_jumps) > len(segments) else None) or first
    return replace(best[0], counts_itself=counts_itself), best[1]


def _segments(records: Sequence[WindowRecord], step: float, *, counts_itself: bool) -> list[_Segment]:
    """Cut where a window was reset, at a gap, and between two readings that differ by a round that did not say what it
    used."""
    segments = [_Segment()]
    total, before, use_before = ListUse(), records[0].reading, records[0].use
    for record in records:
        now = record.reading
        was_reset = now.used < before.used - step / 2 or abs(now.resets_at - before.resets_at) > RESET_TOLERANCE_S
        is_unreported = (record.use if counts_itself else use_before) is None
        if (was_reset or is_unreported or record.is_after_gap) and segments[-1].used:
            segments.append(_Segment())
            total = ListUse()
        used = record.use or ListUse()
        segments[-1].sums.append((total + used if counts_itself else total).as_vector)
        segments[-1].used.append(now.used)
        total, before, use_before = total + used, now, record.use
    return segments


def _split_at_jumps(segment: _Segment, weights: Sequence[float], step: float) -> list[_Segment]:
    parts = [_Segment()]
    before: tuple[Sequence[float], float] | None = None
    for sums, used in zip(segment.sums, segment.used, strict=True):
        if before is not None:
            explained = sum(w * (now - then) for w, now, then in zip(weights, sums, before[0], strict=True))
            if used - before[1] > 2 * explained + JUMP_STEPS * step:
                parts.append(_Segment())
        parts[-1].sums.append(sums)
        parts[-1].used.append(used)
        before = sums, used
    return parts


def _fit_segments(segments: Sequence[_Segment], step: float) -> tuple[PlanWeights, float, _Vector] | None:
    moved = _movement(segments) / step
    if moved < MIN_MOVEMENT_STEPS:
        return None
    unit, _ = _unit_of(segments, [ratio for ratio, _ in _PRIORS])
    if unit <= 0:
        return None
    weights = [ratio * unit for ratio, _ in _PRIORS]
    count = sum(len(segment.used) for segment in segments)
    normal, right = _normal_equations(segments)
    # Readings that stay on one step repeat one rounding: together they say no more than one.
    repeats = max(1.0, count / moved)
    noise, square = repeats * step * step / 12, 0.0
    covariance: _Matrix = []
    for _ in range(ROUNDS_OF_FIT):
        (*weights, unit), covariance = _solve_from_zero(*_with_priors(normal, right, noise, unit, weights))
        if unit <= 0:
            return None
        weights[0] = max(weights[0], LEAST_FRESH * unit)
        square = _residuals(segments, weights)
        noise = repeats * max(step * step / 12, square / max(1, count - len(segments) - len(weights)))
    return _as_weights(weights, covariance, count), square / count, weights


def _movement(segments: Sequence[_Segment]) -> float:
    return sum(segment.used[-1] - segment.used[0] for segment in segments)


def _unit_of(segments: Sequence[_Segment], ratios: Sequence[float]) -> tuple[float, float]:
    """What a list dollar weighs if the four kinds weigh so many times as much, and how much the sum of them varies."""
    up = across = 0.0
    for segment in segments:
        expected = [_dot(ratios, sums) for sums in segment.sums]
        mean, mean_used = sum(expected) / len(expected), sum(segment.used) / len(expected)
        up += sum((x - mean) * (y - mean_used) for x, y in zip(expected, segment.used, strict=True))
        across += sum((x - mean) ** 2 for x in expected)
    return (up / across, across) if across > 0 else (0.0, 0.0)


def _residuals(segments: Sequence[_Segment], weights: Sequence[float]) -> float:
    """The sum of squares of what the weights leave unexplained."""
    square = 0.0
    for segment in segments:
        left = [used - _dot(weights, sums) for used, sums in zip(segment.used, segment.sums, strict=True)]
        begin = sum(left) / len(left)
        square += sum((each - begin) ** 2 for each in left)
    return square


def _normal_equations(segments: Sequence[_Segment]) -> tuple[_Matrix, _Vector]:
    """Sums of squares and products around the mean of each segment: where it began is not known."""
    normal, right = [[0.0] * _UNIT for _ in range(_UNIT)], [0.0] * _UNIT
    for segment in segments:
        n = len(segment.used)
        means, mean = [sum(column) / n for column in zip(*segment.sums, strict=True)], sum(segment.used) / n
        for sums, used in zip(segment.sums, segment.used, strict=True):
            x, y = [value - m for value, m in zip(sums, means, strict=True)], used - mean
            for i in range(_UNIT):
                right[i] += x[i] * y
                for j in range(_UNIT):
                    normal[i][j] += x[i] * x[j]
    return normal, right


def _with_priors(
    normal: _Matrix, right: _Vector, noise: float, unit: float, weights: _Vector
) -> tuple[_Matrix, _Vector]:
    """The equations in units of the noise, with each weight drawn to its expected multiple of the unit, which nothing
    else determines. The farther the weight of a cached token lies off, the less it is drawn: where readings say that it
    weighs what it costs, they win."""
    whole = [*([value / noise for value in row] + [0.0] for row in normal), [0.0] * (_UNIT + 1)]
    for at, (ratio, error) in enumerate(_PRIORS):
        off = weights[at] - ratio * unit if at == _READ else 0.0
        pull = 1 / ((error * unit) ** 2 + off * off)
        whole[at][at] += pull
        whole[at][_UNIT] -= pull * ratio
        whole[_UNIT][at] -= pull * ratio
        whole[_UNIT][_UNIT] += pull * ratio * ratio
    return whole, [*(value / noise for value in right), 0.0]


def _solve_from_zero(normal: _Matrix, right: Sequence[float]) -> tuple[_Vector, _Matrix]:
    """The solution without negative values, and the covariance of it; what is held at 0 keeps its own variance."""
    free = list(range(len(right)))
    while True:
        inverse = _inverse([[normal[i][j] for j in free] for i in free])
        found = [_dot(row, [right[j] for j in free]) for row in inverse]
        lowest = min(range(len(free)), key=found.__getitem__)
        if found[lowest] >= 0 or len(free) == 1:
            break
        free.pop(lowest)
    values = [0.0] * len(right)
    covariance = [[0.0] * len(right) for _ in right]
    for at, i in enumerate(free):
        values[i] = max(0.0, found[at])
        for to, j in enumerate(free):
            covariance[i][j] = inverse[at][to]
    for i in set(range(len(right))) - set(free):
        covariance[i][i] = 1 / normal[i][i]
    return values, covariance


def _inverse(matrix: _Matrix) -> _Matrix:
    """By Gauss and Jordan. The matrix is symmetric and, with the priors, positive; its scale is taken out first."""
    size = len(matrix)
    scales = [1 / math.sqrt(matrix[i][i]) if matrix[i][i] > 0 else 1.0 for i in range(size)]
    rows = [
        [matrix[i][j] * scales[i] * scales[j] + (1e-12 if i == j else 0.0) for j in range(size)]
        + [1.0 if i == j else 0.0 for j in range(size)]
        for i in range(size)
    ]
    for at in range(size):
        best = max(range(at, size), key=lambda i: abs(rows[i][at]))
        rows[at], rows[best] = rows[best], rows[at]
        pivot = rows[at][at] or 1e-300
        rows[at] = [value / pivot for value in rows[at]]
        for other in range(size):
            if other != at and (factor := rows[other][at]):
                rows[other] = [a - factor * b for a, b in zip(rows[other], rows[at], strict=True)]
    return [[rows[i][size + j] * scales[i] * scales[j] for j in range(size)] for i in range(size)]


def _as_weights(weights: Sequence[float], covariance: _Matrix, count: int) -> PlanWeights:
    fresh, read, write, output = weights
    errors = [math.sqrt(max(0.0, covariance[i][i])) for i in range(len(weights))]
    return PlanWeights(fresh, read, write, output, errors[0], errors[1], errors[2], errors[3], rounds=count)


def _dot(left: Sequence[float], right: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(left, right, strict=True))
