"""The command `replay`: plays recordings, and prints tables and sentences of what it saved and what would have been
lost.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from callstack_proxy.cli.context import AsJson, ConfigFile, DataDirectory, load_settings, settings_at
from callstack_proxy.cli.output import (
    escape_unsafe,
    one_line,
    output_width,
    pluralize,
    print_error,
    print_json,
    print_line,
    progress_bar,
)
from callstack_proxy.cli.store_access import opened_store
from callstack_proxy.config_sources import parse_assignments
from callstack_proxy.management.reports import ReceiptTotals, TableColumn, dearer_sentence, format_columns
from callstack_proxy.replay import (
    FAR_REQUESTS,
    MissedName,
    NameNeeds,
    Recording,
    RemovedContent,
    ReplayFailure,
    ReplayOptions,
    ReplayOutcome,
    ReplayResult,
    cpu_count,
    recording_files_in,
    replay_files,
    replay_recording,
    stored_recording,
    sum_marker_costs,
    sum_needs,
    sum_rows,
)
from proxy.config import Config

LIMITS = (
    "The recorded next step is fixed: this shows money and what would have been missing, not whether the agent would "
    "have done better or worse. A name used again is not yet a need, what stands behind a ref can be recalled but the "
    "model must ask, and the provider's cache and the prices are estimates."
)
MAX_FRAME_TITLE_LENGTH = 60
MAX_MISSED_NAME_LENGTH = 60
MIN_NAME_WIDTH = 16
"""Characters of a recording's name that stay on a narrow terminal."""
MAX_ROWS_SHOWN = 12
"""Frames and missed names printed for each recording; --json has more."""
_MONEY_HEADINGS = (
    ("", 0), ("requests", 6), ("tokens in", 2), ("sent", 1), ("own", 5), ("peak in", 4), ("peak sent", 3),
    ("with us $", 0), ("without us $", 0), ("saved $", 0), ("ratio", 0),
)  # fmt: skip
_CONTEXT_HEADINGS = (
    ("", 0), ("wakes", 5), ("folds", 0), ("trims", 4), ("pops", 3), ("frames left", 2), ("tokens left", 1),
    ("used again", 0), ("in context", 0), ("by ref", 0), ("lost", 0),
)  # fmt: skip
"""Headings, and the rank by which a narrow terminal drops columns: the highest goes first."""


def result_tables(done: Sequence[ReplayResult], width: int | None = None) -> Iterator[str]:
    """A table of tokens and money, and one of what left and was used again. `width`: characters of the terminal."""
    money = [_money_cells(one.name, one.row) for one in done]
    context = [_context_cells(one) for one in done]
    if len(done) > 1:
        money.append(_money_cells("total", sum_rows(done)))
        context.append(_total_context_cells(done))
    yield from _table(_MONEY_HEADINGS, money, width)
    yield ""
    yield from _table(_CONTEXT_HEADINGS, context, width)


_LEFT_HEADINGS = (("frame", 0), ("status", 0), ("tokens", 0), ("from request", 0), ("ref", 0))
_MISSED_HEADINGS = (
    ("name", 0), ("times", 0), ("in request", 0), ("said by", 0), ("requests before", 0), ("ref", 0),
)  # fmt: skip
_WEIGHED_HEADINGS = (("decision", 0), ("times", 0))
_TEXT_HEADINGS = ("status", "said by", "ref")
DETAIL_INDENT = "    "


def _table(headings: Sequence[tuple[str, int]], rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    cells = zip(*([one_line(cell) for cell in row] for row in rows), strict=True)
    columns = [
        TableColumn(
            heading,
            tuple(column),
            rank,
            min_width=0 if at else MIN_NAME_WIDTH,
            is_number=at > 0 and heading not in _TEXT_HEADINGS,
        )
        for at, ((heading, rank), column) in enumerate(zip(headings, cells, strict=True))
    ]
    return format_columns(columns, width)


def _money_cells(name: str, row: ReceiptTotals) -> tuple[str, ...]:
    counts = (row.requests, row.tokens_in, row.tokens_sent, row.own, row.peak_in, row.peak_sent)
    money = (row.cost, row.cost_untouched, row.saved)
    return (name, *(f"{count:,}" for count in counts), *(f"{amount:.4f}" for amount in money), _ratio(row))


def _ratio(row: ReceiptTotals) -> str:
    return f"{row.cost / row.cost_untouched:.2f}" if row.cost_untouched else "-"


def _context_cells(one: ReplayResult) -> tuple[str, ...]:
    return _cells(one.name, Counter(one.events), one.left, one.needs)


def _total_context_cells(done: Sequence[ReplayResult]) -> tuple[str, ...]:
    events = sum((Counter(one.events) for one in done), Counter())
    return _cells("total", events, [left for one in done for left in one.left], sum_needs(done))


def _cells(name: str, events: Counter[str], left: Sequence[RemovedContent], needs: NameNeeds) -> tuple[str, ...]:
    decided = (events[kind] for kind in ("woken", "folded", "trim", "popped"))
    counts = (*decided, len(left), sum(one.tokens for one in left))
    names = (f"{needs.used:,}", _share(needs.in_context, needs.used), f"{needs.behind_ref:,}", f"{needs.lost:,}")
    return (name, *(f"{count:,}" for count in counts), *names)


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


# -------------------------------------------------------------------------------------------------------------
# sentences
def conclusion_lines(done: Sequence[ReplayResult], *, details: bool) -> Iterator[str]:
    """Money, names, requests, oddities, and the limits of a replay."""
    row, needs = sum_rows(done), sum_needs(done)
    yield _money_sentence(row)
    yield dearer_sentence([one.row for one in done], "recording")
    yield from _marker_sentences(done)
    yield from _name_sentences(needs)
    statuses = sum((Counter(one.statuses) for one in done), Counter())
    yield "Requests: " + ", ".join(f"{count:,} {status}" for status, count in statuses.most_common()) + "."
    yield from _oddity_sentences(done, row, details=details)
    yield LIMITS


def _money_sentence(row: ReceiptTotals) -> str:
    saved = row.saved_after
    share = f" ({100 * abs(saved) / row.cost_untouched:.1f} %)" if row.cost_untouched else ""
    word = "saved" if saved >= 0 else "lost"
    both = f"${row.cost:.4f} with us, ${row.cost_untouched:.4f} without us"
    return f"Money: {both}: {word} ${abs(saved):.4f}{share}{_reads_text(row)}."


def _reads_text(row: ReceiptTotals) -> str:
    if not row.caused:
        return ""
    return f", less ${row.cost_caused:.4f} to read again, before {row.caused:,.0f} edits, text that had been put away"


def _marker_sentences(done: Sequence[ReplayResult]) -> Iterator[str]:
    costs = sum_marker_costs(done)
    if costs is not None:
        both = f"${costs.cost:.4f} with us, ${costs.cost_untouched:.4f} without us"
        share = f" (ratio {costs.cost / costs.cost_untouched:.2f})" if costs.cost_untouched else ""
        yield f"Cache markers: where only those in the requests count, messages cost {both}{share}."


def _name_sentences(needs: NameNeeds) -> Iterator[str]:
    if not needs.used:
        yield "Names: no recorded answer used one that stood earlier in its history."
        return
    yield (
        f"Names: recorded answers used {needs.used:,} that stood earlier in the history. "
        f"{_share(needs.in_context, needs.used)} stood in what was sent, "
        f"{_share(needs.behind_ref, needs.used)} behind a ref in it, {_share(needs.lost, needs.used)} in neither."
    )
    if needs.far_used:
        far_lost = needs.far_used - needs.far_in_context - needs.far_behind_ref
        yield (
            f"Of the {needs.far_used:,} said last {FAR_REQUESTS} or more requests before: "
            f"{_share(needs.far_in_context, needs.far_used)}, {_share(needs.far_behind_ref, needs.far_used)}, "
            f"{_share(far_lost, needs.far_used)}."
        )


def _oddity_sentences(done: Sequence[ReplayResult], row: ReceiptTotals, *, details: bool) -> Iterator[str]:
    passed = sum(count for one in done for status, count in one.statuses.items() if status.startswith("bypass"))
    if passed:
        yield f"Aside: {pluralize(passed, 'request')} passed without us (bypass), and what left unplaced is in no sum."
    if row.unpriced:
        requests = pluralize(row.unpriced, "request")
        yield f"Prices: the model of {requests} is in no price table, a round price stands in; --model names another."
    if missing := sum(one.without_body for one in done):
        yield f"Left out: {pluralize(missing, 'request')} of the store without a body, as after an import."
    if unequal := sum(one.unequal for one in done):
        yield f"Faults: {pluralize(unequal, 'answer')} reached the client as something else than was recorded."
    if notes := sum(len(one.notes) for one in done):
        yield f"Notes: {notes:,}" + ("." if details else "; --details shows them.")


# ---------------------------------------------------------------------------------------------------------------
# details
def detail_lines(done: Sequence[ReplayResult]) -> Iterator[str]:
    """For each recording: what left, the worst missed names, the decisions, and the notes."""
    for one in done:
        yield ""
        yield f"{one.name}  ({one.model}, {one.dialect}, {pluralize(one.conversations, 'conversation')})"
        yield from _detail_section("left the context", _LEFT_HEADINGS, [_left(left) for left in one.left])
        missed = [_missed(each) for each in one.missed]
        yield from _detail_section("used again without it, first", _MISSED_HEADINGS, missed)
        weighed = [(decision.replace("_", " "), f"{count:,}") for decision, count in sorted(one.decisions.items())]
        yield from _detail_section("weighed", _WEIGHED_HEADINGS, weighed)
        yield from _detail_section("notes", (("", 0),), [(note,) for note in one.notes])


def _detail_section(title: str, headings: Sequence[tuple[str, int]], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    if not rows:
        return
    yield f"  {title}:"
    width = output_width()
    table = _table(headings, rows[:MAX_ROWS_SHOWN], width and width - len(DETAIL_INDENT))
    yield from (f"{DETAIL_INDENT}{line}" for line in table if line)
    if len(rows) > MAX_ROWS_SHOWN:
        yield f"{DETAIL_INDENT}and {len(rows) - MAX_ROWS_SHOWN:,} more"


def _left(left: RemovedContent) -> tuple[str, ...]:
    title = left.title[:MAX_FRAME_TITLE_LENGTH] or "(no frame)"
    return title, left.status, f"{left.tokens:,}", str(left.first_request), left.frame if left.ref else "none"


def _missed(missed: MissedName) -> tuple[str, ...]:
    name, where = missed.name[:MAX_MISSED_NAME_LENGTH], missed.ref or "none"
    return name, str(missed.times), str(missed.request), missed.said_by, str(missed.age), where


class ClockChoice(StrEnum):
    RECORDED = "recorded"
    FAST = "fast"


class DialectChoice(StrEnum):
    CHAT = "chat"
    MESSAGES = "messages"
    RESPONSES = "responses"


def replay(
    files: Annotated[list[Path] | None, typer.Argument(help="Recordings, or directories of them.")] = None,
    mode: Annotated[str | None, typer.Option(help="off, shadow, passive or active.")] = None,
    assigned: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any key of proxy.yaml.")
    ] = None,
    model: Annotated[
        str, typer.Option("--model", "--tariff", help="As if it were this one: its prices and window.")
    ] = "",
    clock: Annotated[
        ClockChoice,
        typer.Option(metavar="WORD", help="recorded (the default), or fast: 1 s a request.", show_default=False),
    ] = ClockChoice.RECORDED,
    dialect: Annotated[
        DialectChoice | None, typer.Option(metavar="API", help="chat, messages or responses; default: its own.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Files played at once.")] = cpu_count(),
    details: Annotated[bool, typer.Option("--details", help="What left, and the worst of what was missed.")] = False,
    quiet: Annotated[bool, typer.Option("--no-progress", help="No progress bar.")] = False,
    conversation: Annotated[str, typer.Option(help="One of the store: its id, or the beginning.")] = "",
    config: ConfigFile = None,
    data: DataDirectory = None,
    as_json: AsJson = False,
) -> None:
    """Replay recorded conversations offline: cost, savings, what would have left the context, what was needed."""
    if data is not None and not conversation:
        raise typer.BadParameter("--data says where the store lies; name one of its conversations with --conversation")
    flags: dict[str, object] = {**parse_assignments(assigned or ()), **({"mode": mode} if mode else {})}
    settings = load_settings(config, flags, asks_upstreams=False)
    task = ReplayOptions(settings, model, clock.value, dialect.value if dialect else "")
    named = recording_files_in(files or ())
    if not named and not conversation:
        where = "these directories hold no file" if files else "name recordings, or a --conversation of the store"
        raise typer.BadParameter(f"there is nothing to replay: {where}")
    with progress_bar("replaying", wanted=not quiet) as progress:
        results = [*_replay_stored(settings_at(config, data), conversation, task, progress)] if conversation else []
        results += replay_files(named, task, jobs, progress) if named else []
    done = [result for result in results if isinstance(result, ReplayResult)]
    failed = [result for result in results if isinstance(result, ReplayFailure)]
    beside = [one for one in failed if one.foreign and Path(one.file) not in (files or ())] if done else []
    _print_results(done, [one for one in failed if one not in beside], task, details=details, as_json=as_json)
    for one in beside:
        typer.echo(escape_unsafe(f"left out: {one.error}"), err=True)
    if len(failed) > len(beside):
        raise typer.Exit(1 if done else 2)


def _replay_stored(
    where: Config, conversation: str, task: ReplayOptions, progress: Callable[[float], None]
) -> Iterator[ReplayOutcome]:
    recording = asyncio.run(_load_recording(where, conversation, task))
    yield replay_recording(recording, task, f"{where.data}", progress)


async def _load_recording(where: Config, conversation: str, task: ReplayOptions) -> Recording:
    async with opened_store(where) as store:
        return await stored_recording(store, conversation, model=task.model, clock=task.clock, dialect=task.dialect)


def _print_results(
    done: Sequence[ReplayResult], failed: Sequence[ReplayFailure], task: ReplayOptions, *, details: bool, as_json: bool
) -> None:
    if as_json:
        print_json(_as_json(done, failed, task))
    elif done:
        for line in (*result_tables(done, output_width()), "", *conclusion_lines(done, details=details)):
            print_line(line)
        for line in detail_lines(done) if details else ():
            print_line(line)
    for one in failed:
        print_error(one.error)


def _as_json(done: Sequence[ReplayResult], failed: Sequence[ReplayFailure], task: ReplayOptions) -> dict[str, Any]:
    return {
        "mode": task.config.mode,
        "model": task.model or None,
        "clock": task.clock,
        "dialect": task.dialect or None,
        "recordings": msgspec.to_builtins(done),
        "total": msgspec.to_builtins(
            {"row": sum_rows(done), "by_markers": sum_marker_costs(done), "needs": sum_needs(done)}
        ),
        "failed": msgspec.to_builtins(failed),
        "limits": LIMITS,
    }
