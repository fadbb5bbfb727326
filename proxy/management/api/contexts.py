"""The routes that look at contexts: a line, the block as it was told, what has left, what a frame came to.

The route of the map: which symbols are where, of the files whose contents passed by.

The route that looks for words in finished frames, whatever conversation they are of.

The law: **it leaves nobody's own frames**: the tenant is in the question to the store, as on every route.
"""

from __future__ import annotations

import time
from typing import Annotated

from fastapi import APIRouter, Query, Response

from proxy.core.context.actions import with_artifacts
from proxy.core.filemap import BUDGET
from proxy.core.tools.context_tools import LONGEST, PREVIEW
from proxy.management.api.base import UNKNOWN, Asked, Id, Json, Thread, answered
from proxy.management.views import contexts, lookup
from proxy.management.views import explain as explained
from proxy.management.views.contexts import SeenFilesTold, seen_files
from proxy.management.views.conversations import story_of
from proxy.management.views.search import MOST, FoundRows, found_rows

router = APIRouter()


@router.get("/conversations/{conversation}/context", response_model=contexts.ContextTold, responses=UNKNOWN)
async def show_context(asked: Asked, conversation: Id, thread: Thread = "") -> Response:
    """What the line of the active frame is made of: budgets, what its block chose, sizes, the newest usage."""
    ledger = await lookup.ledger_of(asked.backstage.store, asked.scope, conversation)
    stage = asked.backstage
    return await answered(
        lambda: contexts.context_told(ledger, story_of(ledger, thread), stage.config, _now(), stage.count)
    )


@router.get("/conversations/{conversation}/context/preview", response_model=contexts.Preview, responses=UNKNOWN)
async def show_preview(
    asked: Asked,
    conversation: Id,
    thread: Thread = "",
    max_length: Annotated[int, Query(ge=1, le=LONGEST, description="Characters that are shown")] = PREVIEW,
) -> Response:
    """The block of the active frame as it was told; where none was, as it would be."""
    ledger = await lookup.ledger_of(asked.backstage.store, asked.scope, conversation)
    stage = asked.backstage

    def preview() -> contexts.Preview:
        story = story_of(ledger, thread, stage.config.observed_tools)
        block, told = contexts.block_of_active(ledger, story, stage.config, _now(), stage.count)
        return contexts.preview(story.tree.active, block, max_length, told=told)

    return await answered(preview)


@router.get("/conversations/{conversation}/explain", response_model=explained.Explained, responses=UNKNOWN)
async def show_explanation(asked: Asked, conversation: Id, thread: Thread = "") -> Response:
    """Why each ancestor and each finished sibling stands in the block of the active frame, or does not: its score, part
    by part, as it was when the block was told."""
    ledger = await lookup.ledger_of(asked.backstage.store, asked.scope, conversation)
    stage = asked.backstage

    def explained_now() -> explained.Explained:
        story = story_of(ledger, thread, stage.config.observed_tools)
        return explained.explained_told(ledger, story, stage.config, _now(), stage.count)

    return await answered(explained_now)


@router.get("/conversations/{conversation}/compactions", response_model=contexts.CompactionsTold, responses=UNKNOWN)
async def show_compactions(asked: Asked, conversation: Id, thread: Thread = "") -> Response:
    """What left the line, by how it did, and what waits to leave it or to come back."""
    ledger = await lookup.ledger_of(asked.backstage.store, asked.scope, conversation)
    return await answered(lambda: contexts.compactions_told(story_of(ledger, thread)))


@router.get("/frames/{frame}/summary", response_model=contexts.SummaryTold, responses=UNKNOWN)
async def show_summary(asked: Asked, frame: Id) -> Response:
    """What a frame came to, or has so far: results, artifacts, decisions."""
    _, story = await lookup.frame_of(asked.backstage.store, asked.scope, frame)
    names = asked.backstage.config.observed_tools
    return await answered(lambda: contexts.summary_told(with_artifacts(story, names).tree.frames[frame]))


def _now() -> int:
    return time.time_ns() // 1_000_000


LEAST_TOKENS, MOST_TOKENS = 100, 16_000
"""Tokens that may be asked for."""


@router.get("/conversations/{conversation}/map", response_model=SeenFilesTold, responses=UNKNOWN)
async def show_map(
    asked: Asked,
    conversation: Id,
    thread: Thread = "",
    tokens: Annotated[int, Query(ge=LEAST_TOKENS, le=MOST_TOKENS, description="At most so many are told")] = BUDGET,
) -> Response:
    """The definitions in files that were read or written, those first that others refer to most."""
    stage = asked.backstage
    ledger = await lookup.ledger_of(stage.store, asked.scope, conversation)
    return await answered(lambda: seen_files(ledger, story_of(ledger, thread), stage.config, tokens, stage.count))


MOST_CHARACTERS = 2_000
"""Of a query; the first words of it count (`finding.MOST_WORDS`)."""


@router.get("/search", response_model=FoundRows)
async def search(
    asked: Asked,
    q: Annotated[str, Query(min_length=1, max_length=MOST_CHARACTERS, description="Words; no syntax")],
    limit: Annotated[int, Query(ge=1, le=MOST, description="At most so many, the best first")] = 10,
) -> Response:
    """Finished frames that have all these words in title, criteria, results, files or decisions; where none has, those
    that come close."""
    return Json(await found_rows(asked.backstage.store, asked.scope, q, limit))
