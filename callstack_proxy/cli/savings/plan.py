"""What `savings --plan` tells to people who pay by window: how much less of it their sessions would have taken.

Nobody publishes what a token weighs in a plan, and a log does not tell how large a window is. So there is no share of a
week here, only how the two compare, for three weights of a cached token. No dollars.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from callstack_proxy.cli.output import align_columns, pluralize
from callstack_proxy.replay import ReplayResult
from proxy.accounting import Tariff

READ_WEIGHTS = (("0", 0.0), ("1/70", 1 / 70), ("1/10", 0.1))
"""Of a cached token beside a fresh one, and how that is written: others measured 0 to 1/70, the list price is 1/10."""
USUAL = 1
"""The place of the weight by which sessions are told apart."""
SAME_PERCENT = 0.05
"""A difference below this is none."""
MUCH_MORE = 1.01
"""From this ratio on a session is told to take more."""
OUTPUT_RATIO = 5.0
"""What an answered token weighs where its price is not known."""
TariffOf = Callable[[str], Tariff]


class WindowUse(NamedTuple):
    """What a plan's window pays, in USD of fresh input that weigh as much: so all models count together."""

    taken: float
    untouched: float


def window_use(done: Sequence[ReplayResult], read: float, tariff_of: TariffOf) -> WindowUse:
    """`read`: what a cached token weighs, as a multiple of a fresh one. Written and answered tokens weigh what the list
    says."""
    taken = untouched = 0.0
    for one in done:
        row, tariff = one.row, tariff_of(one.model)
        answers = row.reported_output * (tariff.output / tariff.input if tariff.output else OUTPUT_RATIO)
        sent = row.sent_uncached + read * row.sent_cached + tariff.write * row.sent_written
        came = row.untouched_uncached + read * row.untouched_cached + tariff.write * row.untouched_written
        taken += tariff.input * (sent + answers)
        untouched += tariff.input * (came + answers)
    return WindowUse(taken, untouched)


def plan_sentences(done: Sequence[ReplayResult], tariff_of: TariffOf) -> Iterator[str]:
    """What the windows would have paid, and in how many sessions more."""
    compared = [(word, window_use(done, read, tariff_of)) for word, read in READ_WEIGHTS]
    told = ", ".join(f"{compared_text(use)} where it weighs {word}" for word, use in compared)
    yield (
        "A plan pays by shares of its windows, and nobody publishes what a token weighs there. Beside a fresh token a "
        f"cached one was measured at 0 to 1/70, and its list price is 1/10. With the proxy these sessions would have "
        f"taken: {told}."
    )
    read = READ_WEIGHTS[USUAL][1]
    uses = [window_use([one], read, tariff_of) for one in done]
    more = sum(use.taken > MUCH_MORE * use.untouched for use in uses)
    told = f"{pluralize(more, 'session')} of {len(done):,}" if more else f"none of {pluralize(len(done), 'session')}"
    yield f"Over 1 % more than without us, at {READ_WEIGHTS[USUAL][0]}: {told}."
    yield (
        "How large your windows are no log tells. Once an agent works through the proxy, its answers do: "
        '`callstack report` then says "4.1 % of your week, without us 6.0 %", by weights that are measured for you.'
    )


def compared_text(use: WindowUse) -> str:
    if not use.untouched:
        return "as much"
    percent = 100 * (use.untouched - use.taken) / use.untouched
    if abs(percent) < SAME_PERCENT:
        return "as much"
    return f"{abs(percent):.1f} % {'less' if percent > 0 else 'more'}"


def plan_detail_lines(done: Sequence[ReplayResult], tariff_of: TariffOf) -> Iterator[str]:
    """One line for each session, the largest first."""
    yield ""
    heading = ("session", "requests", "largest", *(f"at {word}" for word, _ in READ_WEIGHTS))
    rows = [
        (
            f"{one.name.partition(' ')[0]} {one.name.partition(' ')[2][:12]}",
            f"{one.row.requests:,}",
            f"{one.row.peak_in:,}",
            *(compared_text(window_use([one], read, tariff_of)) for _, read in READ_WEIGHTS),
        )
        for one in sorted(done, key=lambda each: -each.row.tokens_in)
    ]
    yield from align_columns([heading, *rows], right=(1, 2, 3, 4, 5))
    yield ""
