"""Routes to queue messages for a running agent, show requests in flight, and cancel them."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from callstack_proxy.management import find_by_id
from callstack_proxy.management.api.base import NOT_FOUND_RESPONSE, Caller, CurrentCaller, Error, Id, JsonResponse
from callstack_proxy.management.api.operation_routes import carry_out
from callstack_proxy.management.operations import StopView, resume_agent, stop_agent, stop_all
from callstack_proxy.management.views import InFlightRow, MessageRow, in_flight_rows, message_rows
from proxy.core.ledger import Lane
from proxy.exchange import MAX_MESSAGE_CHARACTERS, MAX_WAITING_MESSAGES

router = APIRouter()


class MessageBody(BaseModel):
    """What an agent is to be told. `steer`: with its next request to the provider; `follow_up`: when the model has
    nothing more to do. `thread`: only there."""

    model_config = ConfigDict(extra="forbid")

    text: Annotated[str, Field(min_length=1, max_length=MAX_MESSAGE_CHARACTERS)]
    lane: Literal["steer", "follow_up"] = "steer"
    thread: Annotated[str, Field(max_length=64)] = ""


class CancelBody(BaseModel):
    """`tree`: also block the frames that are under way, and give up those that are planned."""

    model_config = ConfigDict(extra="forbid")

    tree: bool = False


class QueuedPosition(TypedDict):
    queued: Literal[True]
    position: int
    id: str


class MessageList(TypedDict):
    messages: list[MessageRow]


class RemovedCount(TypedDict):
    removed: int


class RequestsInFlight(TypedDict):
    requests: list[InFlightRow]


class StoppedView(TypedDict):
    """Whether the agent is stopped now, how many of its requests were cut off, and how many waiting messages were taken
    back."""

    stopped: bool
    requests: int
    messages: int


class CancellationView(TypedDict):
    """How many requests were stopped, how many messages that waited were taken back, and what became of the frames
    where that was asked for."""

    requests: int
    messages: int
    tree: StopView | None


async def _owner(caller: Caller, conversation: str) -> str:
    return await find_by_id.tenant_of_conversation(caller.context.store, caller.scope, conversation)


@router.post(
    "/conversations/{conversation}/messages",
    status_code=202,
    response_model=QueuedPosition,
    responses={
        **NOT_FOUND_RESPONSE,
        409: {
            "model": Error,
            "description": f"Nobody would hear it, or {MAX_WAITING_MESSAGES} wait already; the message says what to do",
        },
    },
)
async def say(caller: CurrentCaller, conversation: Id, wanted: MessageBody) -> Response:
    """Say something to a running agent. It waits until the model can be told, is told once, and stays where it was
    told."""
    inbox, tenant = caller.context.inbox, await _owner(caller, conversation)
    message, position = await inbox.add_message(tenant, conversation, wanted.text, Lane(wanted.lane), wanted.thread)
    return JsonResponse({"queued": True, "position": position, "id": message.id}, 202)


@router.get("/conversations/{conversation}/messages", response_model=MessageList, responses=NOT_FOUND_RESPONSE)
async def list_messages(caller: CurrentCaller, conversation: Id) -> Response:
    """What was said here, the oldest first: what waits, what the model was told, what expired."""
    inbox = caller.context.inbox
    queue = await inbox.list_messages(await _owner(caller, conversation), conversation)
    return JsonResponse({"messages": message_rows(queue, inbox.now())})


@router.delete("/conversations/{conversation}/messages", response_model=RemovedCount, responses=NOT_FOUND_RESPONSE)
async def clear_messages(caller: CurrentCaller, conversation: Id) -> Response:
    """Take back whatever waits."""
    return JsonResponse(
        {"removed": await caller.context.inbox.clear_messages(await _owner(caller, conversation), conversation)}
    )


@router.delete(
    "/conversations/{conversation}/messages/{message}",
    response_model=RemovedCount,
    responses={**NOT_FOUND_RESPONSE, 409: {"model": Error, "description": "The model was told of it already"}},
)
async def remove_message(caller: CurrentCaller, conversation: Id, message: Id) -> Response:
    """Take back one message."""
    await caller.context.inbox.remove_message(await _owner(caller, conversation), conversation, message)
    return JsonResponse({"removed": 1})


@router.get("/conversations/{conversation}/live", response_model=RequestsInFlight, responses=NOT_FOUND_RESPONSE)
async def show_live(caller: CurrentCaller, conversation: Id) -> Response:
    """What is under way: the text of each answer so far, and its calls, pending while their arguments arrive and
    running from then on."""
    in_flight = await caller.context.inbox.list_in_flight(await _owner(caller, conversation), conversation)
    return JsonResponse({"requests": in_flight_rows(in_flight)})


@router.post("/conversations/{conversation}/cancel", response_model=CancellationView, responses=NOT_FOUND_RESPONSE)
async def cancel(caller: CurrentCaller, conversation: Id, wanted: CancelBody) -> Response:
    """Stop every request of the conversation that is under way, at once, and take back whatever waits. The text that
    had arrived is kept and never sent again."""
    context, tenant = caller.context, await _owner(caller, conversation)
    cancelled = await context.inbox.cancel_requests(tenant, conversation)
    tree: StopView | None = None
    if wanted.tree:
        ledger = await find_by_id.ledger_of(context.store, tenant, conversation)
        stopped = stop_all(ledger, context.config, context.inbox.now())
        tree = await carry_out(context, ledger.conversation, stopped)
    return JsonResponse({"requests": cancelled.requests, "messages": cancelled.messages, "tree": tree})


@router.post("/conversations/{conversation}/stop", response_model=StoppedView, responses=NOT_FOUND_RESPONSE)
async def stop(caller: CurrentCaller, conversation: Id) -> Response:
    """Stop the agent: as cancel, and every further request of the conversation is refused until it is resumed."""
    context = caller.context
    stored = (await find_by_id.ledger_of(context.store, caller.scope, conversation)).conversation
    done = await stop_agent(context.store, context.inbox, stored, context.on_mode_changed)
    return JsonResponse({"stopped": True, "requests": done.requests, "messages": done.messages})


@router.post("/conversations/{conversation}/resume", response_model=StoppedView, responses=NOT_FOUND_RESPONSE)
async def resume(caller: CurrentCaller, conversation: Id) -> Response:
    """Take the agent's requests again."""
    context = caller.context
    stored = (await find_by_id.ledger_of(context.store, caller.scope, conversation)).conversation
    await resume_agent(context.store, context.inbox, stored, context.on_mode_changed)
    return JsonResponse({"stopped": False, "requests": 0, "messages": 0})
