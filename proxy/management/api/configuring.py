"""The routes of `/stack/config`: how subagents are tracked, as `stack_config` tells the model, and setting it while the
proxy runs (S1-118).

The law: **what holds for everybody is set by an operator**; any other key only reads.
"""

from __future__ import annotations

from fastapi import APIRouter, Response

from proxy.errors import Forbidden
from proxy.management.api.asking import Asked, Documented
from proxy.management.api.base import Error, Json
from proxy.management.views.tracking import Tracking, TrackingWanted, told

router = APIRouter()

FOR_OPERATORS: Documented = {
    403: {"model": Error, "description": "It holds for everybody, and this key is not an operator's"}
}


@router.get("/config", response_model=Tracking)
async def show_config(asked: Asked) -> Response:
    """How subagents are tracked."""
    return Json(told(asked.backstage.live))


@router.patch("/config", response_model=Tracking, responses=FOR_OPERATORS)
async def set_config(asked: Asked, wanted: TrackingWanted) -> Response:
    """Set how subagents are tracked, from now on and after a restart."""
    if not asked.tenant.admin:
        raise Forbidden("This holds for everybody; it needs a key issued with --admin. GET tells what holds.")
    live = asked.backstage.live
    await live.refresh()
    if said := wanted.by_key(live.subagent.patterns):
        await asked.backstage.store.durable(live.change(said))
    return Json(told(live))
