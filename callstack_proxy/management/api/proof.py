"""The route of `/stack/proof`: conversations that were held out against the others."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from callstack_proxy.management.api.base import CurrentCaller, JsonResponse
from callstack_proxy.management.reports import PeriodName, read_period
from callstack_proxy.management.views import ProofView, proof_view

router = APIRouter()


@router.get("/proof", response_model=ProofView)
async def show_proof(
    caller: CurrentCaller,
    period: Annotated[PeriodName, Query(description="The last 1, 7 or 30 days of the proxy's time zone")] = "all",
    since: Annotated[str, Query(description="From this day on, `YYYY-MM-DD`")] = "",
    until: Annotated[str, Query(description="Up to this day, which counts, `YYYY-MM-DD`")] = "",
) -> Response:
    """Whether sessions with folds went better, worse, or without a difference seen, against those that `holdout`
    passed untouched."""
    context, days = caller.context, read_period(period, since, until)
    return JsonResponse(await proof_view(context.store, caller.scope, context.config.observed_tools, days))
