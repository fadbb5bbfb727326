"""The route that tells how subagents are tracked, as `stack_config` tells the model (S1-118). It is set in the
configuration, and holds until the proxy ends."""

from __future__ import annotations

from fastapi import APIRouter, Response
from typing_extensions import TypedDict

from proxy.api.answers import Json
from proxy.api.asking import Asked
from proxy.reception import tool_settings
from proxy.stack.tools.configuring import values

router = APIRouter()


class Tracking(TypedDict):
    """Times are milliseconds."""

    enabled: bool
    minDuration: int
    minMessageCount: int
    autoCompleteOnIdle: bool
    idleCompletionDelay: int
    injectParentContext: bool
    propagateSummaries: bool


@router.get("/config", response_model=Tracking)
async def show_config(asked: Asked) -> Response:
    """How subagents are tracked."""
    return Json(values(tool_settings(asked.backstage.config).subagents))
