"""The routes of `/stack`, each a question to `proxy.views` with the asker's scope.

Answers are documented by the shapes of `proxy.views.shapes` and written as they are: nothing is validated on its way
out, so what is stored is what is shown.
"""

from __future__ import annotations

import time
from itertools import chain
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import PlainTextResponse, StreamingResponse
from msgspec.structs import replace
from pydantic import BaseModel, ConfigDict
from typing_extensions import TypedDict

from proxy.accounting import GroupBy
from proxy.core.frames import Status
from proxy.errors import StoreError
from proxy.management.actions import frames as unfolding
from proxy.management.api import (
    autonomy,
    branches,
    complete_subagent,
    contexts,
    frames,
    history,
    messages,
    subagents,
)
from proxy.management.api.base import (
    ERROR_RESPONSES,
    NOT_FOUND_RESPONSE,
    ApiContext,
    AsOf,
    Caller,
    CurrentCaller,
    Error,
    Id,
    JsonResponse,
    Limit,
    Offset,
    Thread,
    respond_in_thread,
)
from proxy.management.api.openapi import openapi_description
from proxy.management.export import FORMATS, MEASURES, ExportOptions, format_named, load_export_input, measure_named
from proxy.management.export import files as writing
from proxy.management.views import (
    MAX_TIMESTAMP_MS,
    ConversationRow,
    FrameDetail,
    FrameLog,
    FrameState,
    Health,
    LoopRow,
    RequestDetail,
    RequestDiff,
    RequestRow,
    TaskFrame,
    ThreadRow,
    Totals,
    TreeState,
    UnfoldView,
    conversations,
    ledger_at,
    logs,
    lookup,
    loops,
    parse_timestamp,
    requests,
    task_frame,
    totals,
)
from proxy.management.views import health_view as told_health
from proxy.store import DeletionResult as Gone

router = APIRouter(prefix="/stack", responses=ERROR_RESPONSES)
open_router = APIRouter()


# -------------------------------------------------------------------------------------------------------------- loops
class LoopList(TypedDict):
    loops: list[LoopRow]


class ClearedLoopCount(TypedDict):
    cleared: int


@router.get("/conversations/{conversation}/loops", response_model=LoopList, responses=NOT_FOUND_RESPONSE)
async def list_loops(asked: CurrentCaller, conversation: Id) -> Response:
    """Loops that the model was warned of, the oldest first."""
    ledger = await lookup.ledger_of(asked.context.store, asked.scope, conversation)
    return await respond_in_thread(lambda: {"loops": loops.loop_rows(ledger)})


@router.delete("/conversations/{conversation}/loops", response_model=ClearedLoopCount, responses=NOT_FOUND_RESPONSE)
async def clear_loops(asked: CurrentCaller, conversation: Id) -> Response:
    """Begin to count anew: what was done up to now is no part of a loop. The list keeps what was warned of."""
    ledger = await lookup.ledger_of(asked.context.store, asked.scope, conversation)
    done = await loops.clear_loop_warnings(asked.context.store, ledger, time.time_ns() // 1_000_000)
    asked.context.on_events_stored(ledger.conversation.tenant, ledger.conversation.id, done.events)
    return JsonResponse({"cleared": done.count})


# ------------------------------------------------------------------------------------------------------ conversations
class ConversationList(TypedDict):
    conversations: list[ConversationRow]


class ThreadList(TypedDict):
    threads: list[ThreadRow]


class FrameList(TypedDict):
    frames: list[FrameState] | list[TaskFrame]


class DeletedConversations(TypedDict):
    conversations: int
    bytes: int


class ModeBody(BaseModel):
    """`null` goes back to what the configuration says."""

    model_config = ConfigDict(extra="forbid")

    mode: Literal["off", "shadow", "passive", "active"] | None


@router.get("/conversations", response_model=ConversationList)
async def list_conversations(asked: CurrentCaller, limit: Limit = 200, offset: Offset = 0) -> Response:
    """Conversations, the newest first."""
    return JsonResponse(
        {"conversations": await conversations.conversation_rows(asked.context.store, asked.scope, limit, offset)}
    )


@router.delete("/conversations", response_model=DeletedConversations)
async def forget_conversations(
    asked: CurrentCaller, before: Annotated[int, Query(ge=1, le=MAX_TIMESTAMP_MS, description="ms since the epoch")]
) -> Response:
    """Really delete every conversation that was last written before a time."""
    gone = await _delete_conversations(asked, before=before)
    return JsonResponse({"conversations": gone.conversations, "bytes": gone.bytes})


@router.get("/conversations/{conversation}", response_model=ConversationRow, responses=NOT_FOUND_RESPONSE)
async def show_conversation(asked: CurrentCaller, conversation: Id) -> Response:
    """One conversation."""
    ledger = await lookup.ledger_of(asked.context.store, asked.scope, conversation)
    return JsonResponse(await conversations.conversation_row(asked.context.store, ledger))


@router.delete("/conversations/{conversation}", response_model=DeletedConversations, responses=NOT_FOUND_RESPONSE)
async def forget_conversation(asked: CurrentCaller, conversation: Id) -> Response:
    """Really delete a conversation, its requests and everything that was sent for it."""
    # Not looked for before: of one that is gone a request may be left, or a copy that a reader kept in the log.
    gone = await _delete_conversations(asked, conversation)
    if not (gone.conversations or gone.bytes):
        raise lookup.unknown_conversation(conversation)
    return JsonResponse({"conversations": gone.conversations, "bytes": gone.bytes})


async def _delete_conversations(asked: Caller, conversation: str = "", before: int = 0) -> Gone:
    """Raises StoreError where a copy may have stayed in the file; the rows are gone then too."""
    try:
        gone = await asked.context.store.delete_conversations(asked.scope, conversation, before)
    except StoreError:
        asked.context.on_deleted(asked.scope, conversation)
        raise
    if gone.conversations or gone.bytes:
        asked.context.on_deleted(asked.scope, conversation)
    return gone


@router.put("/conversations/{conversation}/mode", response_model=ConversationRow, responses=NOT_FOUND_RESPONSE)
async def set_mode(asked: CurrentCaller, conversation: Id, wanted: ModeBody) -> Response:
    """Turn the proxy down or away for one conversation, from its next request on."""
    store = asked.context.store
    known = (await lookup.ledger_of(store, asked.scope, conversation)).conversation
    mode = wanted.mode or ""
    await store.wait_until_durable(store.write(known.tenant, [replace(known, mode=mode)]))
    asked.context.on_mode_changed(known.tenant, known.id, mode)
    return JsonResponse(
        await conversations.conversation_row(store, await lookup.ledger_of(store, known.tenant, known.id))
    )


@router.get("/conversations/{conversation}/threads", response_model=ThreadList, responses=NOT_FOUND_RESPONSE)
async def list_threads(asked: CurrentCaller, conversation: Id) -> Response:
    """The paths that client loops continue, the one that grew last at the end."""
    ledger = await lookup.ledger_of(asked.context.store, asked.scope, conversation)
    return await respond_in_thread(lambda: {"threads": conversations.thread_rows(ledger)})


# ------------------------------------------------------------------------------------------------------------- export
EXPORT_CONTENT_TYPES = {
    kind: "object" if kind == "application/json" else "string"
    for kind in sorted({writing.content_type_of(each) for each in FORMATS.values()})
}
"""What an export comes as, by content type."""


@router.get(
    "/conversations/{conversation}/export",
    response_class=Response,
    responses={
        **NOT_FOUND_RESPONSE,
        200: {
            "description": "The file; an archive where the format has several",
            "content": {kind: {"schema": {"type": shape}} for kind, shape in EXPORT_CONTENT_TYPES.items()},
        },
        409: {"model": Error, "description": "What this format needs was not kept; the message says what there is"},
    },
)
async def export_conversation(
    asked: CurrentCaller,
    conversation: Id,
    kind: Annotated[
        str, Query(alias="format", description="What it is told as", json_schema_extra={"enum": list(FORMATS)})
    ] = "ledger",
    thread: Thread = "",
    whole: Annotated[bool, Query(description="messages: the client's history as it was sent")] = False,
    measure: Annotated[
        str, Query(description="collapsed: what is counted", json_schema_extra={"enum": list(MEASURES)})
    ] = "tokens",
) -> Response:
    """A conversation as a file that others read: a backup, logs, a hand-over, a flame graph, spans."""
    chosen, options = format_named(kind), ExportOptions(whole, measure_named(measure))
    ledger = await lookup.ledger_of(asked.context.store, asked.scope, conversation)
    told = await load_export_input(asked.context.store, ledger, thread, asked.context.config.observed_tools)
    pieces = writing.export_chunks(chosen, told, options)
    first = await run_in_threadpool(next, pieces, b"")  # what goes wrong at once is an error, not half a file
    name = writing.file_name_for(chosen, told)
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(chain((first,), pieces), media_type=writing.content_type_of(chosen), headers=headers)


# ------------------------------------------------------------------------------------------------------------- frames
@router.get("/conversations/{conversation}/frames", response_model=FrameList, responses=NOT_FOUND_RESPONSE)
async def list_frames(
    asked: CurrentCaller,
    conversation: Id,
    thread: Thread = "",
    status: Annotated[Status | None, Query(description="Only frames with this status")] = None,
    parent: Annotated[str, Query(description="Only children of this frame")] = "",
    ancestors_of: Annotated[str, Query(description="Only what is above this frame, the nearest first")] = "",
    descendants_of: Annotated[str, Query(description="Only what is below this frame")] = "",
    siblings_of: Annotated[str, Query(description="Only the other children of this frame's parent")] = "",
    view: Annotated[Literal["frame", "task"], Query(description="task: as tasks of three statuses")] = "frame",
    as_of: AsOf = "",
) -> Response:
    """Frames in order of birth."""
    at = parse_timestamp(as_of)
    whole = await lookup.ledger_of(asked.context.store, asked.scope, conversation)
    related = conversations.FrameFilter(parent, ancestors_of, descendants_of, siblings_of)

    def frames() -> dict[str, Any]:
        ledger = ledger_at(whole, at)
        path_state = conversations.path_state_of(ledger, thread, asked.context.config.observed_tools)
        chosen = conversations.filter_frames(path_state.tree, status or "", related)
        if view == "task":
            return {"frames": [task_frame(path_state.tree, frame.id) for frame in chosen]}
        return {"frames": conversations.frame_rows(ledger, path_state, chosen)}

    return await respond_in_thread(frames)


@router.get(
    "/conversations/{conversation}/tree",
    response_model=TreeState,
    responses={
        **NOT_FOUND_RESPONSE,
        200: {"description": "As text, or as JSON where Accept asks for it", "content": {"text/plain": {}}},
    },
)
async def show_tree(
    asked: CurrentCaller,
    conversation: Id,
    thread: Thread = "",
    details: Annotated[bool, Query(description="With criteria, results and artifacts")] = False,
    as_of: AsOf = "",
    accept: Annotated[str, Header()] = "*/*",
) -> Response:
    """The tree as `stack_tree` draws it for the model, with words on where a frame comes from and whether it is
    folded; as JSON where Accept asks for it."""
    at = parse_timestamp(as_of)
    whole = await lookup.ledger_of(asked.context.store, asked.scope, conversation)

    def drawn() -> Response:
        ledger = ledger_at(whole, at)
        path_state = conversations.path_state_of(ledger, thread, asked.context.config.observed_tools)
        if "application/json" in accept:
            return JsonResponse(conversations.tree_state_view(ledger, path_state))
        text = conversations.tree_text(ledger, path_state, details=details)
        return PlainTextResponse(text.encode("utf-8", "backslashreplace"))

    return await run_in_threadpool(drawn)


@router.get("/conversations/{conversation}/state", response_model=TreeState, responses=NOT_FOUND_RESPONSE)
async def show_state(asked: CurrentCaller, conversation: Id, thread: Thread = "", as_of: AsOf = "") -> Response:
    """All frames of a path, whose the active one is, and the roots."""
    at = parse_timestamp(as_of)
    whole = await lookup.ledger_of(asked.context.store, asked.scope, conversation)

    def state() -> TreeState:
        ledger = ledger_at(whole, at)
        return conversations.tree_state_view(
            ledger, conversations.path_state_of(ledger, thread, asked.context.config.observed_tools)
        )

    return await respond_in_thread(state)


@router.get("/frames/{frame}", response_model=FrameDetail, responses=NOT_FOUND_RESPONSE)
async def show_frame(asked: CurrentCaller, frame: Id) -> Response:
    """One frame with its place in the tree."""
    ledger, path_state = await lookup.ledger_with_frame(asked.context.store, asked.scope, frame)
    return await respond_in_thread(
        lambda: conversations.frame_detail(ledger, path_state, frame, asked.context.config.observed_tools)
    )


@router.post(
    "/frames/{frame}/unfold",
    response_model=UnfoldView,
    responses={
        **NOT_FOUND_RESPONSE,
        409: {"model": Error, "description": "Nothing of it was folded; the message says what to do"},
    },
)
async def unfold_frame(
    asked: CurrentCaller,
    frame: Id,
    now: Annotated[bool, Query(description="With the next request, whatever it costs")] = False,
) -> Response:
    """Bring back what was folded wrongly, at the next moment that is cheap; it is never folded again."""
    ledger, _ = await lookup.ledger_with_frame(asked.context.store, asked.scope, frame)
    wanted = await unfolding.store_unfold_request(
        asked.context.store, ledger, frame, now=now, at=time.time_ns() // 1_000_000
    )
    asked.context.on_events_stored(ledger.conversation.tenant, ledger.conversation.id, wanted.events)
    return JsonResponse(wanted.view)


@router.get("/frames/{frame}/log", response_model=FrameLog, responses=NOT_FOUND_RESPONSE)
async def show_log(
    asked: CurrentCaller,
    frame: Id,
    raw: Annotated[bool, Query(description="With each message as its stored text")] = False,
) -> Response:
    """Everything a frame did, oldest first, also what is no longer sent."""
    ledger, path_state = await lookup.ledger_with_frame(asked.context.store, asked.scope, frame)
    return await respond_in_thread(lambda: logs.frame_log(ledger, path_state, frame, raw=raw))


# ----------------------------------------------------------------------------------------------------------- requests
class Requests(TypedDict):
    requests: list[RequestRow]


@router.get("/requests", response_model=Requests)
async def list_requests(
    asked: CurrentCaller,
    conversation: Annotated[str, Query(description="Only requests of this conversation")] = "",
    limit: Limit = 100,
    offset: Offset = 0,
) -> Response:
    """Requests with their receipts, the newest first."""
    rows = await requests.request_rows(asked.context.store, asked.scope, conversation, limit, offset)
    return JsonResponse({"requests": rows})


@router.get("/requests/{request}", response_model=RequestDetail, responses=NOT_FOUND_RESPONSE)
async def show_request(asked: CurrentCaller, request: Id) -> Response:
    """One request: what the client sent, each body sent for it, the receipt."""
    stored = await requests.stored_request(asked.context.store, asked.scope, request)
    return await respond_in_thread(lambda: requests.request_detail(stored))


@router.get("/requests/{request}/diff", response_model=RequestDiff, responses=NOT_FOUND_RESPONSE)
async def show_difference(asked: CurrentCaller, request: Id) -> Response:
    """The client's body against each body sent, message by message."""
    stored = await requests.stored_request(asked.context.store, asked.scope, request)
    return await respond_in_thread(lambda: requests.request_diff(stored))


@router.get("/totals", response_model=Totals)
async def show_totals(
    asked: CurrentCaller,
    by: Annotated[GroupBy, Query(description="What a row stands for")] = "day",
    conversation: Annotated[str, Query(description="Only requests of this conversation")] = "",
    fixed: Annotated[bool, Query(description="With the client's tools and system text")] = True,
    limit: Limit = 1000,
    offset: Offset = 0,
) -> Response:
    """Tokens and money: what the clients sent, what was sent upstream, and the difference. The newest rows stand at the
    end; `total` is that of all rows."""
    stage = asked.context
    names = stage.config.observed_tools
    told = await totals.totals_view(stage.store, asked.scope, by, conversation, names=names, fixed=fixed)
    end = max(0, len(told["rows"]) - offset)
    return JsonResponse({**told, "rows": told["rows"][max(0, end - limit) : end]})


# ---------------------------------------------------------------------------------------------------------- the proxy
@open_router.get(
    "/health",
    response_model=Health,
    responses={503: {"model": Health, "description": "Draining: running answers end, no new request is welcome"}},
)
async def health(request: Request) -> Response:
    """Whether requests are welcome. A failing store is told, and no reason to stay away."""
    backstage: ApiContext = request.state.backstage
    told, status = told_health(
        backstage.store, backstage.started, backstage.counter_name, draining=backstage.is_draining()
    )
    return JsonResponse(told, status)


@router.get("/openapi.json", response_model=dict[str, Any])
async def openapi(request: Request) -> Response:
    """This description."""
    return JsonResponse(openapi_description(request.app))


for each in (autonomy, branches, complete_subagent, contexts, frames, history, messages, subagents):
    router.include_router(each.router)
