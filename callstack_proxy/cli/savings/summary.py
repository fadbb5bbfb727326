"""The sentences and rows of `savings`: what sessions cost, what they would have cost, and what would have left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal, get_args

from callstack_proxy.cli.output import align_columns, format_dollars, one_line, pluralize
from callstack_proxy.cli.savings.plan import TariffOf, plan_sentences
from callstack_proxy.management.reports import NO_PROJECT, ReceiptTotals, dearer_sentence, shown_key
from callstack_proxy.replay import NameNeeds, ReplayResult, brief_gain, sum_needs, sum_rows

DAY_S = 86_400
MAX_GROUPS = 10
Grouping = Literal["project", "client", "model", "week"]
GROUPINGS: tuple[Grouping, ...] = get_args(Grouping)
NO_TIME = "(no time)"
MIN_TOLD_GAIN = 0.03
"""Share of the bill from which a setting that the user does not have is told."""


def summary_lines(done: Sequence[ReplayResult], copies: int = 0, by_plan: TariffOf | None = None) -> Iterator[str]:
    """What was found, what it cost, what was dearer, what left the context, and what had to be assumed. `copies`:
    requests that stand in the logs more than once. `by_plan`: the rows of prices, for who pays by window."""
    row = sum_rows(done)
    yield f"{_found(done)} with {pluralize(row.requests, 'request')}.{_copies_text(copies)}"
    if by_plan is not None:
        yield from plan_sentences(done, by_plan)
        yield _context(done)
        yield from assumption_lines(done, in_dollars=False)
        return
    yield _money(row)
    yield dearer_sentence([one.row for one in done], "session")
    yield from _nothing_to_gain(done)
    yield _context(done)
    yield from _brief_tools(done)
    yield from assumption_lines(done)


def _copies_text(copies: int) -> str:
    if not copies:
        return ""
    words = "stands" if copies == 1 else "stand"
    return f" {pluralize(copies, 'request')} more {words} in logs that were copied or forked, and counted once."


def _found(done: Sequence[ReplayResult]) -> str:
    clients = ", ".join(f"{count:,} of {name}" for name, count in Counter(map(client_of, done)).most_common())
    started = [one.started_s for one in done if one.started_s]
    days = int((max(started) - min(started)) // DAY_S) + 1 if started else 0
    span = f" in {pluralize(days, 'day')}" if days else ""
    return f"{pluralize(len(done), 'session')}{span} ({clients})"


def client_of(one: ReplayResult) -> str:
    return one.client or "other recordings"


def _money(row: ReceiptTotals) -> str:
    cost, untouched, saved = row.cost, row.cost_untouched, row.saved_after
    share = f" ({100 * abs(saved) / untouched:.0f} %)" if untouched else ""
    word = "saved" if saved >= 0 else "lost"
    before, after, between, caused = (
        format_dollars(amount, (untouched, cost)) for amount in (untouched, cost, abs(saved), row.cost_caused)
    )
    told = f"They cost {before} without us, and would have cost {after} with us: {between}{share} {word}"
    if not row.caused:
        return f"{told}."
    times = f"{row.caused:,.0f} file{'' if row.caused == 1 else 's'}"
    return f"{told}, after {caused} for reading {times} again that had been put away."


def _context(done: Sequence[ReplayResult]) -> str:
    row, needs = sum_rows(done), sum_needs(done)
    left = sum(one.tokens for result in done for one in result.left)
    if not left:
        return f"Of {_millions(row.tokens_in)} input tokens nothing would have been put away."
    sent = f"{_millions(row.tokens_sent)} of {_millions(row.tokens_in)} input tokens would have been sent"
    away = f"{_millions(left)} tokens of finished work would have been put away"
    return f"{sent}; {away}. {_used_again(needs)}"


def _used_again(needs: NameNeeds) -> str:
    """Whether the agent used a name again that was put away, and whether a note said where it is."""
    gone = needs.behind_ref + needs.lost
    if not gone:
        return "The agent used nothing of that again."
    if needs.lost:
        noted = f"in {needs.behind_ref:,} of them a note said how to recall it"
    else:
        noted = "a note said how to recall it" if gone == 1 else "each time a note said how to recall it"
    return f"The agent used a name of that again {pluralize(gone, 'time')}; {noted}."


def _nothing_to_gain(done: Sequence[ReplayResult]) -> Iterator[str]:
    """How many of several sessions nothing would have been put away in, and how large they became."""
    without = [one for one in done if not one.left]
    if without and len(without) < len(done):
        largest = max(one.row.peak_in for one in without)
        yield (
            f"Nothing to gain in {len(without):,} of them: nothing would have been put away (largest request "
            f"{largest:,} tokens)."
        )


def _brief_tools(done: Sequence[ReplayResult]) -> Iterator[str]:
    """What the setting for brief tools would add, where that is worth a line."""
    cost, gain = sum_rows(done).cost, sum(map(brief_gain, done))
    if cost and gain >= MIN_TOLD_GAIN * cost:
        yield (
            f"`client_tools: brief` would save up to {format_dollars(gain, (cost,))} more ({100 * gain / cost:.0f} %): "
            "rarely used tools with one line of description until their first call."
        )


def _millions(tokens: int) -> str:
    return f"{tokens / 1e6:,.1f} million" if tokens >= 1_000_000 else f"{tokens:,}"


def assumption_lines(done: Sequence[ReplayResult], *, in_dollars: bool = True) -> Iterator[str]:
    """One line, or none where nothing had to be assumed."""
    heads = [one for one in done if one.assumed_head]
    sizes: Mapping[str, int] = {client_of(one): one.assumed_head for one in heads}
    said = [f"{name} {size:,}" for name, size in sorted(sizes.items())]
    parts = []
    if heads:
        parts.append(
            f"the logs of {pluralize(len(heads), 'session')} lack the system text and tools, which are taken to be as "
            f"large as these agents usually send them, in tokens: {', '.join(said)}"
        )
    if unpriced := sum(one.row.unpriced for one in done):
        tokens, whole = sum(one.unpriced_tokens for one in done), sum(one.row.tokens_in for one in done)
        instead = "$1 a million tokens stands in" if in_dollars else "what its tokens weigh is assumed"
        parts.append(
            f"the model of {pluralize(unpriced, 'request')} has no list price ({share_text(tokens, whole)} of the "
            f"tokens), so {instead}"
        )
    if parts:
        yield f"Assumed: {'; '.join(parts)}."


def share_text(part: float, whole: float) -> str:
    """In percent; never 0 or 100 for what is some of it and not all."""
    if not part or not whole:
        return "0 %"
    percent = 100 * part / whole
    return "under 1 %" if percent < 1 else "over 99 %" if 99 < percent < 100 else f"{percent:.0f} %"


def group_sessions(done: Sequence[ReplayResult], by: Grouping) -> dict[str, list[ReplayResult]]:
    """The sessions of each project, client, model or week: weeks the newest first, else the dearest. A session with
    several models counts for the one that it used most. Empty where no log names a project."""
    key_of: Mapping[Grouping, Callable[[ReplayResult], str]] = {
        "project": lambda one: one.folder,
        "client": client_of,
        "model": lambda one: one.model,
        "week": _week_of,
    }
    found: dict[str, list[ReplayResult]] = {}
    for one in done:
        found.setdefault(key_of[by](one), []).append(one)
    if not any(found):
        return {}
    if by == "week":
        return dict(sorted(found.items(), reverse=True))
    return dict(sorted(found.items(), key=lambda pair: -sum(one.row.cost_untouched for one in pair[1])))


def _week_of(one: ReplayResult) -> str:
    """The Monday (UTC) of the week in which the session began."""
    if not one.started_s:
        return NO_TIME
    began = datetime.fromtimestamp(one.started_s, UTC).date()
    return (began - timedelta(days=began.weekday())).isoformat()


def group_lines(done: Sequence[ReplayResult], by: Grouping) -> Iterator[str]:
    """A line for each group, where there are several."""
    groups = group_sessions(done, by)
    if len(groups) < 2:
        return
    yield ""
    heading = ("week of" if by == "week" else by, "sessions", "without us", "with us", "saved")
    shown = list(groups.items())[:MAX_GROUPS]
    sums = [(key, len(of), sum_rows(of)) for key, of in shown]
    costs = [amount for _, _, row in sums for amount in (row.cost_untouched, row.cost)]
    rows = [
        (
            one_line(key) or shown_key(NO_PROJECT),
            f"{count:,}",
            format_dollars(row.cost_untouched, costs),
            format_dollars(row.cost, costs),
            f"{round(100 * row.saved_after / row.cost_untouched)} %" if row.cost_untouched else "-",
        )
        for key, count, row in sums
    ]
    yield from align_columns([heading, *rows], right=(1, 2, 3, 4))
    if len(groups) > len(shown):
        yield f"and {pluralize(len(groups) - len(shown), by)} more; --json has all"
    yield ""


def detail_lines(done: Sequence[ReplayResult]) -> Iterator[str]:
    """One line for each session, the dearest first, and below it what it was begun for."""
    yield ""
    heading = ("session", "began", "requests", "largest", "without us", "with us", "saved")
    costs = costs_of(done)
    ordered = sorted(done, key=lambda each: -each.row.cost_untouched)
    rows = [
        (*_name_and_day(one), f"{one.row.requests:,}", f"{one.row.peak_in:,}", *_amounts(one, costs)) for one in ordered
    ]
    first, *others = align_columns([heading, *rows], right=(2, 3, 4, 5, 6))
    yield first
    for one, text in zip(ordered, others, strict=True):
        yield text
        if one.title:
            yield f"  {one_line(one.title)}"
    yield ""


def _name_and_day(one: ReplayResult) -> tuple[str, str]:
    day = datetime.fromtimestamp(one.started_s, UTC).strftime("%Y-%m-%d") if one.started_s else "-"
    key, _, session = one.name.partition(" ")
    return f"{key} {session[:12]}", day


def costs_of(done: Sequence[ReplayResult]) -> list[float]:
    """All amounts that stand in a table of the sessions, in USD."""
    return [amount for one in done for amount in (one.row.cost_untouched, one.row.cost)]


def _amounts(one: ReplayResult, beside: Sequence[float]) -> tuple[str, str, str]:
    row = one.row
    share = f"{round(100 * row.saved_after / row.cost_untouched)} %" if row.cost_untouched else "-"
    return format_dollars(row.cost_untouched, beside), format_dollars(row.cost, beside), share
