"""The main routes of `/stack`: conversations, frames, loops, exports, requests, totals and health. Responses are
documented by `callstack_proxy.management.views.schemas` but not validated, so what is stored is what is shown."""

from __future__ import annotations

from itertools import chain
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import PlainTextResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict
from typing_extensions import TypedDict

from callstack_proxy.management import find_by_id
from callstack_proxy.management.api import branches, contexts, history, messages, subagents, usage
from callstack_proxy.management.api.base import (
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
    Projects,
    Thread,
    respond_in_thread,
)
from callstack_proxy.management.api.openapi import openapi_description
from callstack_proxy.management.api.operation_routes import add_operations
from callstack_proxy.management.api.status_line import StatusLineView
from callstack_proxy.management.export import (
    MEASURES,
    ExportOptions,
    export_formats,
    files,
    format_named,
    load_export_input,
    measure_named,
)
from callstack_proxy.management.operations import OPERATIONS, store_mode
from callstack_proxy.management.reports import GroupBy, PeriodName, read_period
from callstack_proxy.management.views import (
    MAX_TIMESTAMP_MS,
    ConversationRow,
    FrameDetail,
    FrameLog,
    FrameState,
    LoopRow,
    RequestDetail,
    RequestDiff,
    RequestRow,
    TaskFrame,
    ThreadRow,
    Totals,
    TreeState,
    conversations,
    ledger_at,
    logs,
    loop_warnings,
    parse_timestamp,
    requests,
    task_frame,
    totals,
)
from proxy.config import Mode
from proxy.core.frames import Status
from proxy.errors import StoreError
from proxy.store import DeletionResult
from proxy.telemetry import Health, health_view

router = APIRouter(prefix="/stack", responses=ERROR_RESPONSES)
open_router = APIRouter()


# -------------------------------------------------------------------------------------------------------------- loops
class LoopList(TypedDict):
    loops: list[LoopRow]


@router.get("/conversations/{conversation}/loops", response_model=LoopList, responses=NOT_FOUND_RESPONSE)
async def list_loops(caller: CurrentCaller, conversation: Id) -> Response:
    """Loops that the model was warned of, the oldest first."""
    ledger = await find_by_id.ledger_of(caller.context.store, caller.scope, conversation)
    return await respond_in_thread(lambda: {"loops": loop_warnings.loop_rows(ledger)})


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

    mode: Mode | None


@router.get("/conversations", response_model=ConversationList)
async def list_conversations(
    caller: CurrentCaller,
    limit: Limit = 200,
    offset: Offset = 0,
    project: Projects = [],  # noqa: B006  FastAPI copies it
) -> Response:
    """Conversations, the newest first; of a project, those that were active last first."""
    store, scope = caller.context.store, caller.scope
    if not project:
        rows = await conversations.conversation_rows(store, scope, limit, offset)
    else:
        folders = caller.context.project_conversations
        inside = await folders.recently_active(store, scope, project, limit + offset)
        rows = await conversations.conversation_rows_of(store, inside[offset:])
    return JsonResponse({"conversations": rows})


@router.delete("/conversations", response_model=DeletedConversations)
async def forget_conversations(
    caller: CurrentCaller, before: Annotated[int, Query(ge=1, le=MAX_TIMESTAMP_MS, description="ms since the epoch")]
) -> Response:
    """Really delete every conversation that was last written before a time."""
    deleted = await _delete_conversations(caller, before=before)
    return JsonResponse({"conversations": deleted.conversations, "bytes": deleted.bytes})


@router.get("/conversations/{conversation}", response_model=ConversationRow, responses=NOT_FOUND_RESPONSE)
async def show_conversation(caller: CurrentCaller, conversation: Id) -> Response:
    """One conversation."""
    ledger = await find_by_id.ledger_of(caller.context.store, caller.scope, conversation)
    return JsonResponse(await conversations.conversation_row(caller.context.store, ledger))


@router.delete("/conversations/{conversation}", response_model=DeletedConversations, responses=NOT_FOUND_RESPONSE)
async def forget_conversation(caller: CurrentCaller, conversation: Id) -> Response:
    """Really delete a conversation, its requests and everything that was sent for it."""
    # Not looked for before: of one that is gone a request may be left, or a copy that a reader kept in the log.
    deleted = await _delete_conversations(caller, conversation)
    if not (deleted.conversations or deleted.bytes):
        raise find_by_id.unknown_conversation(conversation)
    return JsonResponse({"conversations": deleted.conversations, "bytes": deleted.bytes})


async def _delete_conversations(caller: Caller, conversation: str = "", before: int = 0) -> DeletionResult:
    """Raises StoreError if a copy may remain in the file; the rows are deleted even then."""
    try:
        deleted = await caller.context.store.delete_conversations(caller.scope, conversation, before)
    except StoreError:
        caller.context.on_deleted(caller.scope, conversation)
        raise
    if deleted.conversations or deleted.bytes:
        caller.context.on_deleted(caller.scope, conversation)
    return deleted


@router.put("/conversations/{conversation}/mode", response_model=ConversationRow, responses=NOT_FOUND_RESPONSE)
async def set_mode(caller: CurrentCaller, conversation: Id, wanted: ModeBody) -> Response:
    """Turn the proxy down or away for one conversation, from its next request on."""
    store = caller.context.store
    stored = (await find_by_id.ledger_of(store, caller.scope, conversation)).conversation
    await store_mode(store, stored, wanted.mode or "", caller.context.on_mode_changed)
    return JsonResponse(
        await conversations.conversation_row(store, await find_by_id.ledger_of(store, stored.tenant, stored.id))
    )


@router.get("/conversations/{conversation}/threads", response_model=ThreadList, responses=NOT_FOUND_RESPONSE)
async def list_threads(caller: CurrentCaller, conversation: Id) -> Response:
    """The paths that client loops continue, the one that grew last at the end."""
    ledger = await find_by_id.ledger_of(caller.context.store, caller.scope, conversation)
    return await respond_in_thread(lambda: {"threads": conversations.thread_rows(ledger)})


# ------------------------------------------------------------------------------------------------------------- export
EXPORT_CONTENT_TYPES = {
    kind: "object" if kind == "application/json" else "string"
    for kind in sorted({files.content_type_of(each) for each in export_formats().values()})
}
"""JSON type of an export by content type."""


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
    caller: CurrentCaller,
    conversation: Id,
    kind: Annotated[
        str, Query(alias="format", description="What it is told as", json_schema_extra={"enum": list(export_formats())})
    ] = "ledger",
    thread: Thread = "",
    whole: Annotated[bool, Query(description="messages: the client's history as it was sent")] = False,
    measure: Annotated[
        str, Query(description="collapsed: what is counted", json_schema_extra={"enum": list(MEASURES)})
    ] = "tokens",
) -> Response:
    """A conversation as a file that others read: a backup, logs, a hand-over, a flame graph, spans."""
    export_format, options = format_named(kind), ExportOptions(whole, measure_named(measure))
    ledger = await find_by_id.ledger_of(caller.context.store, caller.scope, conversation)
    export_input = await load_export_input(caller.context.store, ledger, thread, caller.context.config.observed_tools)
    chunks = files.export_chunks(export_format, export_input, options)
    first = await run_in_threadpool(next, chunks, b"")  # what goes wrong at once is an error, not half a file
    name = files.file_name_for(export_format, export_input)
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(chain((first,), chunks), media_type=files.content_type_of(export_format), headers=headers)


# ------------------------------------------------------------------------------------------------------------- frames
@router.get("/conversations/{conversation}/frames", response_model=FrameList, responses=NOT_FOUND_RESPONSE)
async def list_frames(
    caller: CurrentCaller,
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
    whole = await find_by_id.ledger_of(caller.context.store, caller.scope, conversation)
    related = conversations.FrameFilter(parent, ancestors_of, descendants_of, siblings_of)

    def frames() -> dict[str, Any]:
        ledger = ledger_at(whole, at)
        path_state = conversations.path_state_of(ledger, thread, caller.context.config.observed_tools)
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
    caller: CurrentCaller,
    conversation: Id,
    thread: Thread = "",
    details: Annotated[bool, Query(description="With criteria, results and artifacts")] = False,
    as_of: AsOf = "",
    accept: Annotated[str, Header()] = "*/*",
) -> Response:
    """The tree as `stack_tree` draws it for the model, with words on where a frame comes from and whether it is
    folded; as JSON where Accept asks for it."""
    at = parse_timestamp(as_of)
    whole = await find_by_id.ledger_of(caller.context.store, caller.scope, conversation)

    def drawn() -> Response:
        ledger = ledger_at(whole, at)
        path_state = conversations.path_state_of(ledger, thread, caller.context.config.observed_tools)
        if "application/json" in accept:
            return JsonResponse(conversations.tree_state_view(ledger, path_state))
        text = conversations.tree_text(ledger, path_state, details=details)
        return PlainTextResponse(text.encode("utf-8", "backslashreplace"))

    return await run_in_threadpool(drawn)


@router.get("/conversations/{conversation}/state", response_model=TreeState, responses=NOT_FOUND_RESPONSE)
async def show_state(caller: CurrentCaller, conversation: Id, thread: Thread = "", as_of: AsOf = "") -> Response:
    """All frames of a path, whose the active one is, and the roots."""
    at = parse_timestamp(as_of)
    whole = await find_by_id.ledger_of(caller.context.store, caller.scope, conversation)

    def state() -> TreeState:
        ledger = ledger_at(whole, at)
        return conversations.tree_state_view(
            ledger, conversations.path_state_of(ledger, thread, caller.context.config.observed_tools)
        )

    return await respond_in_thread(state)


@router.get("/frames/{frame}", response_model=FrameDetail, responses=NOT_FOUND_RESPONSE)
async def show_frame(caller: CurrentCaller, frame: Id) -> Response:
    """One frame with its place in the tree."""
    ledger, path_state = await find_by_id.ledger_with_frame(caller.context.store, caller.scope, frame)
    return await respond_in_thread(
        lambda: conversations.frame_detail(ledger, path_state, frame, caller.context.config.observed_tools)
    )


@router.get("/frames/{frame}/log", response_model=FrameLog, responses=NOT_FOUND_RESPONSE)
async def show_log(
    caller: CurrentCaller,
    frame: Id,
    raw: Annotated[bool, Query(description="With each message as its stored text")] = False,
) -> Response:
    """Everything a frame did, oldest first, also what is no longer sent."""
    ledger, path_state = await find_by_id.ledger_with_frame(caller.context.store, caller.scope, frame)
    return await respond_in_thread(lambda: logs.frame_log(ledger, path_state, frame, raw=raw))


# ----------------------------------------------------------------------------------------------------------- requests
class Requests(TypedDict):
    requests: list[RequestRow]


@router.get("/requests", response_model=Requests)
async def list_requests(
    caller: CurrentCaller,
    conversation: Annotated[str, Query(description="Only requests of this conversation")] = "",
    limit: Limit = 100,
    offset: Offset = 0,
) -> Response:
    """Requests with their receipts, the newest first."""
    rows = await requests.request_rows(caller.context.store, caller.scope, conversation, limit, offset)
    return JsonResponse({"requests": rows})


@router.get("/requests/{request}", response_model=RequestDetail, responses=NOT_FOUND_RESPONSE)
async def show_request(caller: CurrentCaller, request: Id) -> Response:
    """One request: what the client sent, each body sent for it, the receipt."""
    stored = await requests.stored_request(caller.context.store, caller.scope, request)
    return await respond_in_thread(lambda: requests.request_detail(stored))


@router.get("/requests/{request}/diff", response_model=RequestDiff, responses=NOT_FOUND_RESPONSE)
async def show_difference(caller: CurrentCaller, request: Id) -> Response:
    """The client's body against each body sent, message by message."""
    stored = await requests.stored_request(caller.context.store, caller.scope, request)
    return await respond_in_thread(lambda: requests.request_diff(stored))


@router.get("/statusline", response_model=StatusLineView)
async def show_status_line(
    caller: CurrentCaller,
    session: Annotated[str, Query(max_length=200, description="What the client calls its session; empty: any")] = "",
) -> Response:
    """What a status line tells: the context of a session, its working frame, and what was saved today."""
    return JsonResponse(await caller.context.status_lines.view(caller.context.store, caller.scope, session))


@router.get("/totals", response_model=Totals)
async def show_totals(
    caller: CurrentCaller,
    by: Annotated[GroupBy, Query(description="What a row stands for")] = "day",
    conversation: Annotated[str, Query(description="Only requests of this conversation")] = "",
    client: Annotated[str, Query(description="Only requests of this client, by a row of `by=client`")] = "",
    project: Annotated[str, Query(description="Only requests of agents in this folder or below it")] = "",
    fixed: Annotated[bool, Query(description="With the client's tools and system text")] = True,
    period: Annotated[PeriodName, Query(description="The last 1, 7 or 30 days of the proxy's time zone")] = "all",
    since: Annotated[str, Query(description="From this day on, `YYYY-MM-DD`")] = "",
    until: Annotated[str, Query(description="Up to this day, which counts, `YYYY-MM-DD`")] = "",
    limit: Limit = 1000,
    offset: Offset = 0,
) -> Response:
    """Tokens and money: what the clients sent, what was sent upstream, and the difference. The newest rows stand at the
    end; `total` is that of all rows."""
    context = caller.context
    names = context.config.observed_tools
    view = await totals.totals_view(
        context.store,
        caller.scope,
        by,
        conversation,
        names=names,
        fixed=fixed,
        client=client,
        project=(project,) if project else (),
        period=read_period(period, since, until),
    )
    end = max(0, len(view["rows"]) - offset)
    return JsonResponse({**view, "rows": view["rows"][max(0, end - limit) : end]})


# ---------------------------------------------------------------------------------------------------------- the proxy
@open_router.get(
    "/health",
    response_model=Health,
    responses={503: {"model": Health, "description": "Draining: running answers end, no new request is welcome"}},
)
async def health(request: Request) -> Response:
    """Whether requests are welcome. A failing store is told, and no reason to stay away."""
    context: ApiContext = request.state.context
    view, status = health_view(context.store, context.started, context.counter_name(), draining=context.is_draining())
    return JsonResponse(view, status)


@router.get("/openapi.json", response_model=dict[str, Any])
async def openapi(request: Request) -> Response:
    """This description."""
    return JsonResponse(openapi_description(request.app))


for each in (branches, contexts, history, messages, subagents, usage):
    router.include_router(each.router)
add_operations(router, OPERATIONS)
