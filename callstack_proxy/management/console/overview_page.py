"""`/console`: money and tokens over time, and the tables of `callstack report` with a CSV and a JSON behind each. The
numbers are those of `/stack/totals`, made by the same function."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Sequence

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callstack_proxy.management.api import JsonResponse
from callstack_proxy.management.console.overview_answers import NAMED, find_answers, find_used_most
from callstack_proxy.management.console.overview_filter import (
    CHARTS,
    GROUPS,
    PERIOD_WORDS,
    WHOSE,
    Chart,
    client_options,
    read_filter,
    tenant_options,
)
from callstack_proxy.management.console.parts.balance import token_balance
from callstack_proxy.management.console.rendering import render, visitor_of
from callstack_proxy.management.reports import (
    client_of,
    dearer_conversations,
    outcome_meaning,
    plan_part_words,
    plan_words,
    reason_meaning,
)
from callstack_proxy.management.views import (
    BROKEN_OFF,
    Totals,
    only_dollars_paid,
    only_of_client,
    sum_receipts_by,
    totals_view,
)
from proxy.accounting import HELD_OUT, Receipt

MAX_CHART_POINTS = 400
MAX_ROWS = 200
BY_MONEY = ("model", "client", "project")
"""Groups that are few, shown with the dearest first; of the others the newest is first."""


async def show(request: Request) -> Response:
    visitor = visitor_of(request)
    chosen = read_filter(request)
    context, scope, by = visitor.context, chosen.scope_of(visitor), chosen.by
    everything = only_dollars_paid(await visitor.memory.load_receipts(context.store, scope, chosen.days))
    loaded = only_of_client(everything, chosen.client)
    sums = await sum_receipts_by(context.store, scope, by, loaded, context.config.observed_tools)
    rows = list(sums.rows)[-MAX_ROWS:]
    rows.reverse()
    if by in BY_MONEY:
        rows.sort(key=lambda row: -row.cost_untouched)
    plan = await run_in_threadpool(plan_words, loaded.receipts)
    plan_part = await run_in_threadpool(plan_part_words, loaded.receipts)
    # Of a plan there is no money to draw: nobody pays its list prices.
    chart: Chart = "tokens" if plan else chosen.chart
    return render(
        request,
        "overview.html",
        by=by,
        groups=GROUPS,
        charts=("tokens",) if plan else CHARTS,
        chart=chart,
        chosen=chosen,
        clients=client_options(map(client_of, everything.receipts), chosen.client),
        tenants=await tenant_options(visitor, chosen.tenant),
        whose=WHOSE.get(context.config.tenancy, ""),
        periods=PERIOD_WORDS,
        named=NAMED,
        dearer=await run_in_threadpool(dearer_conversations, loaded.receipts),
        conversations=len({receipt.conversation for receipt in loaded.receipts} - {""}),
        held_out=len({receipt.conversation for receipt in loaded.receipts if receipt.group == HELD_OUT}),
        rows=rows,
        left_out=max(0, len(sums.rows) - MAX_ROWS),
        total=sums.total,
        plan=plan,
        plan_part=plan_part,
        unsettled=loaded.unsettled,
        capped=loaded.capped,
        points=await run_in_threadpool(_chart_points, loaded.receipts, chart),
        statuses=_status_rows(loaded.receipts),
        answers=await find_answers(visitor, None if chosen.is_narrowed else everything),
        used_most=await find_used_most(visitor),
        done=request.query_params.get("done", ""),
        tokens=await run_in_threadpool(token_balance, loaded.receipts),
    )


def _chart_points(receipts: Sequence[Receipt], chart: Chart) -> str:
    """JSON of four lists for the chart: seconds since the epoch, untouched, as it was, of it our own overhead; USD or
    tokens, each added up so far. A long history is thinned out; the last point is always there."""
    amounts_of = _money if chart == "money" else _tokens
    times: list[float] = []
    lines: list[list[float]] = [[], [], []]
    sums = [0.0, 0.0, 0.0]
    for receipt in sorted(receipts, key=lambda each: each.created):
        times.append(receipt.created / 1000)
        for at, amount in enumerate(amounts_of(receipt)):
            sums[at] += amount
            lines[at].append(round(sums[at], 6))
    step = max(1, len(times) // MAX_CHART_POINTS)
    kept = [*range(0, len(times) - 1, step), len(times) - 1] if times else []
    return json.dumps([[values[at] for at in kept] for values in (times, *lines)])


def _money(receipt: Receipt) -> tuple[float, float, float]:
    """The cost of our overhead is its share of the tokens."""
    share = min(1.0, _own_tokens(receipt) / receipt.tokens_sent) if receipt.tokens_sent else 0.0
    return receipt.cost_untouched, receipt.cost, receipt.cost * share


def _tokens(receipt: Receipt) -> tuple[float, float, float]:
    return receipt.tokens_in, receipt.tokens_sent, min(_own_tokens(receipt), receipt.tokens_sent)


def _own_tokens(receipt: Receipt) -> int:
    """Of our tools, texts and hidden rounds."""
    return receipt.own_tools + receipt.own_texts + receipt.own_rounds


def _status_rows(receipts: Sequence[Receipt]) -> list[dict[str, object]]:
    """The most frequent first. Reasons are told apart where the proxy stood aside, or somebody ended the request."""
    counted = Counter(
        (receipt.status, receipt.reason if receipt.status == "bypass" or receipt.reason in BROKEN_OFF else "")
        for receipt in receipts
    )
    return [
        {
            "status": status,
            "reason": reason,
            "count": count,
            "meaning": reason_meaning(reason) if status == "error" and reason else outcome_meaning(status, reason),
        }
        for (status, reason), count in counted.most_common()
    ]


async def totals_json(request: Request) -> Response:
    return JsonResponse(await _totals(request))


async def _totals(request: Request) -> Totals:
    visitor, chosen = visitor_of(request), read_filter(request)
    store, names = visitor.context.store, visitor.context.config.observed_tools
    scope, days = chosen.scope_of(visitor), chosen.days
    return await totals_view(store, scope, chosen.by, names=names, client=chosen.client, period=days)


async def totals_csv(request: Request) -> Response:
    view = await _totals(request)
    columns = [name for name, value in msgspec.to_builtins(view["total"]).items() if not isinstance(value, dict)]
    columns.sort(key=lambda name: name not in ("key", "title", "status"))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, extrasaction="ignore")
    writer.writeheader()
    writer.writerows({**msgspec.to_builtins(row), "title": _harmless_cell(row.title)} for row in view["rows"])
    return Response(
        text.getvalue().encode("utf-8", "backslashreplace"),
        media_type="text/csv; charset=utf-8",
        headers={"content-disposition": f'attachment; filename="callstack-{view["by"]}.csv"'},
    )


def _harmless_cell(text: str) -> str:
    """A title that a table program does not take for a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


ROUTES = [
    Route("/console", show),
    Route("/console/", show),
    Route("/console/totals.json", totals_json),
    Route("/console/totals.csv", totals_csv),
]
