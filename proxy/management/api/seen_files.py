"""The route of the map: which symbols are where, of the files whose contents passed by."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from proxy.core.filemap import BUDGET
from proxy.management.api.asking import UNKNOWN, Asked, Id, Thread
from proxy.management.api.base import answered
from proxy.management.views import lookup
from proxy.management.views.conversations import story_of
from proxy.management.views.seen_files import SeenFilesTold, seen_files

router = APIRouter()

LEAST, MOST = 100, 16_000
"""Tokens that may be asked for."""


@router.get("/conversations/{conversation}/map", response_model=SeenFilesTold, responses=UNKNOWN)
async def show_map(
    asked: Asked,
    conversation: Id,
    thread: Thread = "",
    tokens: Annotated[int, Query(ge=LEAST, le=MOST, description="At most so many are told")] = BUDGET,
) -> Response:
    """The definitions in files that were read or written, those first that others refer to most."""
    stage = asked.backstage
    ledger = await lookup.ledger_of(stage.store, asked.scope, conversation)
    return await answered(lambda: seen_files(ledger, story_of(ledger, thread), stage.config, tokens, stage.count))
