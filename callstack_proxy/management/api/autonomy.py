"""Routes that show a conversation's autonomy, and of `/stack/config`, the subagent tracking settings. An operator sets
what holds for everybody; other keys only read it."""

from __future__ import annotations

from fastapi import APIRouter, Response

from callstack_proxy.management import find_by_id
from callstack_proxy.management.api.base import (
    NOT_FOUND_RESPONSE,
    CurrentCaller,
    Error,
    Id,
    JsonResponse,
    ResponseDocs,
    Thread,
    now_ms,
    respond_in_thread,
)
from callstack_proxy.management.operations import autonomy
from callstack_proxy.management.views import TrackingBody, TrackingView, conversations, tracking_view
from proxy.errors import Forbidden

router = APIRouter()


@router.get(
    "/conversations/{conversation}/autonomy", response_model=autonomy.AutonomyView, responses=NOT_FOUND_RESPONSE
)
async def show_autonomy(caller: CurrentCaller, conversation: Id, thread: Thread = "") -> Response:
    """The level, the thresholds, each heuristic's score with what it is made of, and what was suggested."""
    ledger = await find_by_id.ledger_of(caller.context.store, caller.scope, conversation)
    config = caller.context.config
    return await respond_in_thread(
        lambda: autonomy.autonomy_view(ledger, conversations.path_state_of(ledger, thread), config, now_ms())
    )


FORBIDDEN_RESPONSE: ResponseDocs = {
    403: {"model": Error, "description": "It holds for everybody, and this key is not an operator's"}
}


@router.get("/config", response_model=TrackingView)
async def show_config(caller: CurrentCaller) -> Response:
    """How subagents are tracked."""
    return JsonResponse(tracking_view(caller.context.live_settings))


@router.patch("/config", response_model=TrackingView, responses=FORBIDDEN_RESPONSE)
async def set_config(caller: CurrentCaller, wanted: TrackingBody) -> Response:
    """Set how subagents are tracked, from now on and after a restart."""
    if not caller.tenant.admin:
        raise Forbidden("This holds for everybody; it needs a key issued with --admin. GET tells what holds.")
    live = caller.context.live_settings
    await live.refresh()
    if changes := wanted.changes_by_key(live.subagent.patterns):
        await caller.context.store.wait_until_durable(live.change(changes))
    return JsonResponse(tracking_view(live))
