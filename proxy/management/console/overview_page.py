"""`/console`: money and tokens over time, and the tables of `callstack report` with a CSV and a JSON behind each. The
numbers are those of `/stack/totals`, made by the same function."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Sequence
from typing import cast, get_args

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from proxy.accounting import GroupBy, Receipt
from proxy.errors import BadRequest
from proxy.management.api import JsonResponse
from proxy.management.console.rendering import render, visitor_of
from proxy.management.views import load_receipts, sum_receipts_by, totals_view

GROUPS: tuple[GroupBy, ...] = ("day", "model", "conversation", "frame")
MAX_CHART_POINTS = 400
MAX_ROWS = 200
ACTING_STATUSES = frozenset({"full", "passive"})
STATUS_MEANINGS = {
    "full": "rewritten: the model got what the current task needs",
    "passive": "rewritten, without tools of the proxy",
    "asleep": "passed on unchanged: the conversation is too short for folding to pay",
    "side": "passed on unchanged: a small question of the client beside the conversation, such as a title",
    "off": "passed on unchanged: the proxy is switched off",
    "shadow": "passed on unchanged: shadow mode only measures",
    "stateless": "passed on unchanged: nothing of it is kept",
    "answered": "answered by the proxy itself",
    "bypass": "passed on unchanged because the proxy could not follow it; the reason stands beside",
    "error": "ended with an error",
    "summary": "asked by the proxy, for a summary",
}


async def show(request: Request) -> Response:
    visitor = visitor_of(request)
    by = _group_of(request)
    context, scope = visitor.context, visitor.scope
    loaded = await load_receipts(context.store, scope)
    sums = await sum_receipts_by(context.store, scope, by, loaded, context.config.observed_tools)
    rows = list(sums.rows)[-MAX_ROWS:]
    rows.reverse()
    return render(
        request,
        "overview.html",
        by=by,
        groups=GROUPS,
        rows=rows,
        left_out=max(0, len(sums.rows) - MAX_ROWS),
        total=sums.total,
        unsettled=loaded.unsettled,
        capped=loaded.capped,
        chart=await run_in_threadpool(_chart_points, loaded.receipts),
        statuses=_status_rows(loaded.receipts),
        wake_at=context.config.wake_at_tokens,
        mode=context.config.mode,
    )


def _group_of(request: Request) -> GroupBy:
    by = request.query_params.get("by", "day")
    if by not in get_args(GroupBy):
        raise BadRequest(f"There is no table by that name; there are {', '.join(GROUPS)}.")
    return cast(GroupBy, by)


def _chart_points(receipts: Sequence[Receipt]) -> str:
    """JSON of four lists for the chart: seconds since the epoch, USD untouched, USD paid, USD of our own overhead, each
    added up so far. A long history is thinned out; the last point is always there."""
    times: list[float] = []
    untouched, paid, own = [], [], []
    sum_untouched = sum_paid = sum_own = 0.0
    for receipt in sorted(receipts, key=lambda each: each.created):
        sum_untouched += receipt.cost_untouched
        sum_paid += receipt.cost
        sum_own += _own_cost(receipt)
        times.append(receipt.created / 1000)
        untouched.append(round(sum_untouched, 6))
        paid.append(round(sum_paid, 6))
        own.append(round(sum_own, 6))
    step = max(1, len(times) // MAX_CHART_POINTS)
    kept = [*range(0, len(times) - 1, step), len(times) - 1] if times else []
    return json.dumps([[values[at] for at in kept] for values in (times, untouched, paid, own)])


def _own_cost(receipt: Receipt) -> float:
    """The share of the cost that our tools, texts and hidden rounds had, by tokens."""
    own = receipt.own_tools + receipt.own_texts + receipt.own_rounds
    return receipt.cost * min(1.0, own / receipt.tokens_sent) if receipt.tokens_sent else 0.0


def _status_rows(receipts: Sequence[Receipt]) -> list[dict[str, object]]:
    counted = Counter((receipt.status, receipt.reason if receipt.status == "bypass" else "") for receipt in receipts)
    return [
        {"status": status, "reason": reason, "count": count, "meaning": STATUS_MEANINGS.get(status, "")}
        for (status, reason), count in counted.most_common()
    ]


async def totals_json(request: Request) -> Response:
    visitor = visitor_of(request)
    context = visitor.context
    view = await totals_view(context.store, visitor.scope, _group_of(request), names=context.config.observed_tools)
    return JsonResponse(view)


async def totals_csv(request: Request) -> Response:
    visitor = visitor_of(request)
    context = visitor.context
    by = _group_of(request)
    view = await totals_view(context.store, visitor.scope, by, names=context.config.observed_tools)
    columns = [name for name, value in view["total"].items() if not isinstance(value, dict)]
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, extrasaction="ignore")
    writer.writeheader()
    writer.writerows({**row, "title": _harmless_cell(row["title"])} for row in view["rows"])
    return Response(
        text.getvalue().encode("utf-8", "backslashreplace"),
        media_type="text/csv; charset=utf-8",
        headers={"content-disposition": f'attachment; filename="callstack-{by}.csv"'},
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
