"""Routes that show contexts: the context of a conversation, its block and why, compactions, frame summaries, the file
map, and the search for finished frames."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from callstack_proxy.filemap import DEFAULT_MAP_TOKENS
from callstack_proxy.management import find_by_id
from callstack_proxy.management.api.base import (
    NOT_FOUND_RESPONSE,
    CurrentCaller,
    Id,
    JsonResponse,
    Projects,
    Thread,
    now_ms,
    respond_in_thread,
)
from callstack_proxy.management.views import (
    MAX_RESULTS,
    RecalledText,
    RecallRequest,
    RecallSources,
    SearchResults,
    SeenFilesView,
    StructSchema,
    contexts,
    explain,
    path_state_of,
    recall_text,
    search_frames,
    seen_files_view,
)
from proxy.core.context import with_open_frame_artifacts
from proxy.core.tools import DEFAULT_PREVIEW_CHARACTERS, MAX_PREVIEW_CHARACTERS, CompactionState, compaction_state_of

router = APIRouter()


@router.get("/conversations/{conversation}/context", response_model=contexts.ContextView, responses=NOT_FOUND_RESPONSE)
async def show_context(caller: CurrentCaller, conversation: Id, thread: Thread = "") -> Response:
    """What the line of the active frame is made of: budgets, what its block chose, sizes, the newest usage."""
    ledger = await find_by_id.ledger_of(caller.context.store, caller.scope, conversation)
    context = caller.context
    return await respond_in_thread(
        lambda: contexts.context_view(
            ledger, path_state_of(ledger, thread), context.config, now_ms(), context.count_tokens
        )
    )


@router.get(
    "/conversations/{conversation}/context/preview", response_model=contexts.BlockPreview, responses=NOT_FOUND_RESPONSE
)
async def show_preview(
    caller: CurrentCaller,
    conversation: Id,
    thread: Thread = "",
    max_length: Annotated[
        int, Query(ge=1, le=MAX_PREVIEW_CHARACTERS, description="Characters that are shown")
    ] = DEFAULT_PREVIEW_CHARACTERS,
) -> Response:
    """The block of the active frame as it was told; where none was, as it would be."""
    ledger = await find_by_id.ledger_of(caller.context.store, caller.scope, conversation)
    context = caller.context

    def preview() -> contexts.BlockPreview:
        path_state = path_state_of(ledger, thread, context.config.observed_tools)
        block, told = contexts.active_block(ledger, path_state, context.config, now_ms(), context.count_tokens)
        return contexts.block_preview(path_state.tree.active, block, max_length, told=told)

    return await respond_in_thread(preview)


@router.get(
    "/conversations/{conversation}/explain", response_model=explain.ExplanationView, responses=NOT_FOUND_RESPONSE
)
async def show_explanation(caller: CurrentCaller, conversation: Id, thread: Thread = "") -> Response:
    """Why each ancestor and each finished sibling stands in the block of the active frame, or does not: its score, part
    by part, as it was when the block was told."""
    ledger = await find_by_id.ledger_of(caller.context.store, caller.scope, conversation)
    context = caller.context

    def explanation() -> explain.ExplanationView:
        path_state = path_state_of(ledger, thread, context.config.observed_tools)
        return explain.explanation_view(ledger, path_state, context.config, now_ms(), context.count_tokens)

    return await respond_in_thread(explanation)


@router.get(
    "/conversations/{conversation}/compactions",
    response_model=Annotated[CompactionState, StructSchema()],
    responses=NOT_FOUND_RESPONSE,
)
async def show_compactions(caller: CurrentCaller, conversation: Id, thread: Thread = "") -> Response:
    """What left the line, by how it did, and what waits to leave it or to come back."""
    ledger = await find_by_id.ledger_of(caller.context.store, caller.scope, conversation)
    return await respond_in_thread(lambda: compaction_state_of(path_state_of(ledger, thread).tree))


@router.get("/frames/{frame}/summary", response_model=contexts.FrameSummaryView, responses=NOT_FOUND_RESPONSE)
async def show_summary(caller: CurrentCaller, frame: Id) -> Response:
    """What a frame came to, or has so far: results, artifacts, decisions."""
    _, path_state = await find_by_id.ledger_with_frame(caller.context.store, caller.scope, frame)
    names = caller.context.config.observed_tools
    return await respond_in_thread(
        lambda: contexts.frame_summary_view(with_open_frame_artifacts(path_state, names).tree.frames[frame])
    )


MIN_MAP_TOKENS, MAX_MAP_TOKENS = 100, 16_000


@router.get("/conversations/{conversation}/map", response_model=SeenFilesView, responses=NOT_FOUND_RESPONSE)
async def show_map(
    caller: CurrentCaller,
    conversation: Id,
    thread: Thread = "",
    tokens: Annotated[
        int, Query(ge=MIN_MAP_TOKENS, le=MAX_MAP_TOKENS, description="At most so many are told")
    ] = DEFAULT_MAP_TOKENS,
) -> Response:
    """The definitions in files that were read or written, those first that others refer to most."""
    context = caller.context
    ledger = await find_by_id.ledger_of(context.store, caller.scope, conversation)
    return await respond_in_thread(
        lambda: seen_files_view(ledger, path_state_of(ledger, thread), context.config, tokens, context.count_tokens)
    )


MAX_QUERY_LENGTH = 2_000
"""Characters of a query, whose first words count."""


@router.get("/search", response_model=SearchResults)
async def search(
    caller: CurrentCaller,
    q: Annotated[str, Query(min_length=1, max_length=MAX_QUERY_LENGTH, description="Words; no syntax")],
    limit: Annotated[int, Query(ge=1, le=MAX_RESULTS, description="At most so many, the best first")] = 10,
    project: Projects = [],  # noqa: B006  FastAPI copies it
    evidence: Annotated[bool, Query(description="With results, files, and commands with how they ended")] = False,
) -> Response:
    """Finished frames that have all these words in title, criteria, results, files or decisions, and where an embedding
    model is configured those near in meaning; where none has all words, also those that come close."""
    context = caller.context
    found = await search_frames(
        context.store,
        caller.scope,
        q,
        limit,
        project=project,
        folders=context.project_conversations,
        evidence=context.config.observed_tools if evidence else None,
        meaning_of=context.meaning_of,
    )
    return JsonResponse(found)


@router.get("/recall", response_model=RecalledText, responses=NOT_FOUND_RESPONSE)
async def recall(
    caller: CurrentCaller,
    ref: Annotated[str, Query(max_length=MAX_QUERY_LENGTH, description="Id, title or file path")] = "",
    q: Annotated[str, Query(max_length=MAX_QUERY_LENGTH, description="Words in it")] = "",
    page: Annotated[str, Query(max_length=40, description="2, or 2-4")] = "",
    conversation: Annotated[str, Query(description="Only there")] = "",
    project: Projects = [],  # noqa: B006  FastAPI copies it
) -> Response:
    """What was said, as `stack_recall` gives it to the model: in pages, unchanged between markers. A title, a path or
    the beginning of an id is looked for in the newest conversations of the project."""
    context = caller.context
    sources = RecallSources(
        context.store, caller.scope, context.project_conversations, context.config, context.count_tokens
    )
    return JsonResponse(await recall_text(sources, RecallRequest(ref.strip(), q.strip(), page, conversation, project)))
