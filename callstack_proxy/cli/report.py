"""The commands `report` and `regrets`.

Both read the store. On a terminal the tables have the columns that fit;
piped, they have all, unless COLUMNS says otherwise. The rules that `regrets` names are those configured now; what was
read again may have left under other ones.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_args

import msgspec
import typer
from typing_extensions import TypedDict

from callstack_proxy.cli.context import AsCsv, AsJson, ConfigFile, DataDirectory, one_of, project_folders, settings_at
from callstack_proxy.cli.output import (
    align_columns,
    one_line,
    output_width,
    pluralize,
    print_balance,
    print_csv,
    print_json,
    print_line,
)
from callstack_proxy.cli.store_access import opened_store
from callstack_proxy.management import find_by_id
from callstack_proxy.management.reports import (
    GroupBy,
    Period,
    ReceiptTotals,
    dearer_conversations,
    dearer_sentence,
    format_amounts,
    format_balance,
    format_plan,
    format_proof,
    format_statement,
    format_table,
    is_paid_by_plan,
    percent_saved,
    plan_requests,
    read_period,
    reason_meaning,
    shown_key,
    sum_plans,
)
from callstack_proxy.management.views import (
    compare_sessions,
    load_receipts,
    local_zone,
    only_dollars_paid,
    only_of_project,
    sum_receipts_by,
    totals_view,
)
from proxy.accounting import OWN_REQUEST_STATUSES, Receipt
from proxy.config import Config
from proxy.store import Store

GROUPINGS: tuple[GroupBy, ...] = get_args(GroupBy)
DEFAULT_GROUPING: GroupBy = "day"
MAX_DEARER_SHOWN = 3


# ------------------------------------------------------------------------------------------------------------- report
def report(
    by: Annotated[str, typer.Option(help=f"{', '.join(GROUPINGS[:-1])} or {GROUPINGS[-1]}.")] = DEFAULT_GROUPING,
    conversation: Annotated[str, typer.Option(help="Only this one: an id, or its beginning.")] = "",
    project: Annotated[Path | None, typer.Option(help="Only agents that worked in this folder, or below it.")] = None,
    today: Annotated[bool, typer.Option("--today", help="Only today's requests.")] = False,
    week: Annotated[bool, typer.Option("--week", help="Only those of the last 7 days, today included.")] = False,
    month: Annotated[bool, typer.Option("--month", help="Only those of the last 30 days.")] = False,
    since: Annotated[str, typer.Option(metavar="YYYY-MM-DD", help="From this day on.")] = "",
    until: Annotated[str, typer.Option(metavar="YYYY-MM-DD", help="Up to this day, which counts.")] = "",
    proof: Annotated[bool, typer.Option("--proof", help="Sessions with folds against those held out.")] = False,
    without_fixed: Annotated[
        bool, typer.Option("--without-fixed", help="Leave out the client's own tools and system text.")
    ] = False,
    dollars: Annotated[
        bool, typer.Option("--dollars", help="Dollars at list prices, also of what a plan paid for.")
    ] = False,
    config: ConfigFile = None,
    data: DataDirectory = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Tokens and money: what the agents sent, what was sent for it, what was saved."""
    if as_json and as_csv:
        raise typer.BadParameter("--json and --csv: choose one")
    named = [name for name, is_chosen in (("today", today), ("week", week), ("month", month)) if is_chosen]
    if len(named) > 1:
        raise typer.BadParameter(f"--{named[0]} and --{named[1]}: choose one")
    wanted, settings = one_of(GROUPINGS, by, param_hint="--by"), settings_at(config, data)
    period = read_period("".join(named), since, until)
    if proof:
        others = {"--by": by != DEFAULT_GROUPING, "--conversation": conversation, "--project": project}
        _refuse_beside_proof({**others, "--csv": as_csv, "--without-fixed": without_fixed})
        asyncio.run(_print_proof(settings, period, as_json=as_json))
        return
    chosen = _Chosen(wanted, conversation, project_folders(project), period, fixed=not without_fixed, dollars=dollars)
    if as_json or as_csv:
        view = asyncio.run(_load_totals(settings, chosen))
        if as_json:
            print_json(view)
        else:
            columns = sorted(ReceiptTotals.__struct_fields__, key=lambda name: name not in ("key", "title", "status"))
            print_csv(columns, msgspec.to_builtins(view["rows"]))
    else:
        asyncio.run(_print_report(settings, chosen))


def _refuse_beside_proof(options: Mapping[str, object]) -> None:
    if named := [name for name, value in options.items() if value]:
        raise typer.BadParameter(f"--proof compares whole sessions of all agents: leave out {' and '.join(named)}")


async def _print_proof(config: Config, period: Period, *, as_json: bool) -> None:
    async with opened_store(config) as store:
        proof, capped = await compare_sessions(store, None, config.observed_tools, period)
    if as_json:
        print_json({**msgspec.to_builtins(proof), "capped": capped})
        return
    for line in format_proof(proof, output_width()):
        print_line(line)
    if capped:
        print_line("only the newest requests are compared; there are older ones")


@dataclass(frozen=True, slots=True)
class _Chosen:
    """Which requests are told, and how. `conversation` is an id or its beginning, `project` the names of a folder, both
    empty for all; `fixed`: with the client's tools and system text; `dollars`: at list prices, also of what a plan paid
    for."""

    by: GroupBy
    conversation: str
    project: tuple[str, ...]
    period: Period
    fixed: bool
    dollars: bool = False


async def _load_totals(config: Config, chosen: _Chosen) -> Any:
    names, fixed, period = config.observed_tools, chosen.fixed, chosen.period
    async with opened_store(config) as store:
        only = await _conversation_id(store, chosen)
        return await totals_view(
            store, None, chosen.by, only, names=names, fixed=fixed, project=chosen.project, period=period
        )


async def _conversation_id(store: Store, chosen: _Chosen) -> str:
    """Empty for all conversations."""
    found = await find_by_id.find_ledger(store, None, chosen.conversation) if chosen.conversation else None
    return found.conversation.id if found else ""


async def _print_report(config: Config, chosen: _Chosen) -> None:
    by = chosen.by
    async with opened_store(config) as store:
        only = await _conversation_id(store, chosen)
        every = await load_receipts(store, None, only, fixed=chosen.fixed, period=chosen.period)
        read = only_of_project(every if chosen.dollars else only_dollars_paid(every), chosen.project)
        added = await sum_receipts_by(store, None, by, read, config.observed_tools)
    if not added.rows and not read.unsettled:
        print_line(_nothing_text(chosen))
        return
    if added.rows:
        plan = sum_plans(receipt.plan for receipt in sorted(read.receipts, key=lambda receipt: receipt.created))
        if plan:
            about = "" if chosen.fixed else " (with the client's tools and system text)"
            print_line(f"taken {chosen.period.words}: {format_plan(plan)}{about}", "cyan")
        if plan and not is_paid_by_plan(read.receipts):
            by_plan, paid = plan_requests(read.receipts)
            money_of = "all, at list prices" if chosen.dollars else "the others"
            print_line(
                f"by {by_plan:,} of {paid:,} requests, for which a plan paid; dollars are those of {money_of}", "cyan"
            )
        money = chosen.dollars or not is_paid_by_plan(read.receipts)
        if failed := failures_text(read.receipts):
            print_line(failed, "red")  # above the balance: what was never answered saved nothing
        if money:
            _print_answer(added.total, read.receipts, chosen.period)
        heading = f"day, {local_zone()}" if by == "day" else by
        rows = [_escape_row(row) for row in added.rows]
        print_line(format_table(rows, by=by, heading=heading, width=output_width(), money=money))
        print_line()
        print_line(totals_line(added.total), "cyan")
        if money:
            print_line(format_statement(added.total, fixed=chosen.fixed, width=output_width()))
    if read.unsettled:
        print_line(f"{pluralize(read.unsettled, 'request')} without a receipt: still being answered, or cut off")
    if read.capped:
        print_line(f"only the newest {len(read.receipts) + read.unsettled:,} requests; there are older ones")


def _nothing_text(chosen: _Chosen) -> str:
    period, filters = chosen.period, []
    if chosen.conversation:
        filters.append(f"--conversation {one_line(chosen.conversation)}")
    if chosen.project:
        filters.append(f"--project {one_line(chosen.project[0])}")
    if filters:
        return f"No requests {period.words} match {' and '.join(filters)}. Without a filter, all are added up."
    if period.is_everything:
        return "No requests yet. Point a client at the proxy, and look again."
    return f"No requests {period.words}. Without a period, all are added up."


def _print_answer(whole: ReceiptTotals, receipts: Sequence[Receipt], period: Period) -> None:
    """Prints what was saved, and which conversations cost more than they would have."""
    text = format_balance(whole.saved_after, whole.cost_untouched, period.words, whole.cost_caused)
    print_balance(whole.saved_after, text)
    worse = dearer_conversations(receipts)
    print_line(dearer_sentence(worse, "conversation"))
    for row in worse[:MAX_DEARER_SHOWN]:
        amount, percent = format_amounts([-row.saved])[0], percent_saved(-row.saved, row.cost_untouched)
        print_line(f"  {one_line(row.key)[:12]}  ${amount}{'' if percent is None else f' ({percent:.1f} %)'}")
    print_line()


def failures_text(receipts: Sequence[Receipt]) -> str:
    """How many requests the provider did not answer, and why most of them; empty where it answered all."""
    asked = [receipt for receipt in receipts if receipt.status not in OWN_REQUEST_STATUSES]
    failed = [each.reason for each in asked if each.status == "error" and each.reason.startswith("upstream_")]
    if not failed:
        return ""
    ((reason, _),) = Counter(failed).most_common(1)
    count = f"All {len(failed):,}" if len(failed) == len(asked) else f"{len(failed):,} of {len(asked):,}"
    which = "The only request" if len(asked) == 1 else f"{count} requests"
    mostly = ", mostly" if len(set(failed)) > 1 else ""
    return f"{which} failed{mostly}: {reason_meaning(reason)}."


def totals_line(row: ReceiptTotals) -> str:
    tokens = f"{row.tokens_in:,} tokens from the agents, {row.tokens_sent:,} sent"
    return f"total: {pluralize(row.requests, 'request')}; {tokens}"


def _escape_row(row: ReceiptTotals) -> ReceiptTotals:
    """Titles come from models; they must be escaped before column widths are computed."""
    return msgspec.structs.replace(
        row, key=one_line(shown_key(row.key)), title=one_line(row.title), status=one_line(row.status)
    )


# ------------------------------------------------------------------------------------------------------------ regrets
NO_RULE = "none"


class RegretRow(TypedDict):
    """`times` counts files that were read again after they had left the context; `rule` is None where none matches."""

    tool: str
    times: int
    rule: str | None


def regrets(
    conversation: Annotated[str, typer.Option(help="Only this one: an id, or its beginning.")] = "",
    config: ConfigFile = None,
    data: DataDirectory = None,
    as_json: AsJson = False,
) -> None:
    """Files that were read again after they were put away: by tool, with its rule in `outputs`."""
    rows = asyncio.run(_load_rows(settings_at(config, data), conversation))
    if as_json:
        print_json({"regrets": rows})
        return
    for line in regrets_text(rows):
        print_line(line)


async def _load_rows(config: Config, reference: str) -> list[RegretRow]:
    """The most frequent first."""
    async with opened_store(config) as store:
        only = (await find_by_id.find_ledger(store, None, reference)).conversation.id if reference else ""
        view = await totals_view(store, None, "conversation", only, names=config.observed_tools)
        by_tool = view["total"].rereads_gone_by or {}
    found: list[RegretRow] = []
    for tool, times in sorted(by_tool.items(), key=lambda row: (-row[1], row[0])):
        rule = config.output_rules.rule_for(tool)
        found.append({"tool": tool, "times": times, "rule": rule.name if rule else None})
    return found


def regrets_text(rows: Sequence[RegretRow]) -> Iterator[str]:
    if not rows:
        yield "Nothing that was put away was read again."
        return
    cells = [(row["tool"], f"{row['times']:,}", row["rule"] or NO_RULE) for row in rows]
    yield from align_columns([("tool", "read again", "rule"), *cells], right=(1,))
    yield "A rule in `outputs` says how much of a tool's outputs stays: docs/configuration.md."
