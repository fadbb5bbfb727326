"""Speaking into what runs, looking at it, and stopping it: `/stack/conversations/{id}/messages`, `/live`, `/cancel`."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from proxy.core.ledger.queued_messages import Lane
from proxy.exchange.background.inbox import LONGEST, MOST_WAITING
from proxy.management.actions.frames import TreeStopped, stop_all
from proxy.management.api.base import UNKNOWN, Asked, Asking, Error, Id, Json
from proxy.management.views import lookup
from proxy.management.views.messages import flight_rows, message_rows
from proxy.management.views.schemas import FlightRow, MessageRow

router = APIRouter()


class Wanted(BaseModel):
    """What an agent is to be told. `steer`: with its next request to the provider; `follow_up`: when the model has
    nothing more to do. `thread`: only there."""

    model_config = ConfigDict(extra="forbid")

    text: Annotated[str, Field(min_length=1, max_length=LONGEST)]
    lane: Literal["steer", "follow_up"] = "steer"
    thread: Annotated[str, Field(max_length=64)] = ""


class CancelWanted(BaseModel):
    """`tree`: also block the frames that are under way, and give up those that are planned."""

    model_config = ConfigDict(extra="forbid")

    tree: bool = False


class Queued(TypedDict):
    queued: Literal[True]
    position: int
    id: str


class Messages(TypedDict):
    messages: list[MessageRow]


class Removed(TypedDict):
    removed: int


class Live(TypedDict):
    requests: list[FlightRow]


class Cancelled(TypedDict):
    """How many requests were stopped, how many messages that waited were taken back, and what became of the frames
    where that was asked for."""

    requests: int
    messages: int
    tree: TreeStopped | None


async def _owner(asked: Asking, conversation: str) -> str:
    return await lookup.tenant_of(asked.backstage.store, asked.scope, conversation)


@router.post(
    "/conversations/{conversation}/messages",
    status_code=202,
    response_model=Queued,
    responses={
        **UNKNOWN,
        409: {
            "model": Error,
            "description": f"Nobody would hear it, or {MOST_WAITING} wait already; the message says what to do",
        },
    },
)
async def say(asked: Asked, conversation: Id, wanted: Wanted) -> Response:
    """Say something to a running agent. It waits until the model can be told, is told once, and stays where it was
    told."""
    speaking, tenant = asked.backstage.speaking, await _owner(asked, conversation)
    said, position = await speaking.say(tenant, conversation, wanted.text, Lane(wanted.lane), wanted.thread)
    return Json({"queued": True, "position": position, "id": said.id}, 202)


@router.get("/conversations/{conversation}/messages", response_model=Messages, responses=UNKNOWN)
async def list_messages(asked: Asked, conversation: Id) -> Response:
    """What was said here, the oldest first: what waits, what the model was told, what expired."""
    speaking = asked.backstage.speaking
    queue = await speaking.queue(await _owner(asked, conversation), conversation)
    return Json({"messages": message_rows(queue, speaking.now())})


@router.delete("/conversations/{conversation}/messages", response_model=Removed, responses=UNKNOWN)
async def clear_messages(asked: Asked, conversation: Id) -> Response:
    """Take back whatever waits."""
    return Json({"removed": await asked.backstage.speaking.clear(await _owner(asked, conversation), conversation)})


@router.delete(
    "/conversations/{conversation}/messages/{message}",
    response_model=Removed,
    responses={**UNKNOWN, 409: {"model": Error, "description": "The model was told of it already"}},
)
async def remove_message(asked: Asked, conversation: Id, message: Id) -> Response:
    """Take back one message."""
    await asked.backstage.speaking.remove(await _owner(asked, conversation), conversation, message)
    return Json({"removed": 1})


@router.get("/conversations/{conversation}/live", response_model=Live, responses=UNKNOWN)
async def show_live(asked: Asked, conversation: Id) -> Response:
    """What is under way: the text of each answer so far, and its calls, pending while their arguments arrive and
    running from then on."""
    flying = await asked.backstage.speaking.live(await _owner(asked, conversation), conversation)
    return Json({"requests": flight_rows(flying)})


@router.post("/conversations/{conversation}/cancel", response_model=Cancelled, responses=UNKNOWN)
async def cancel(asked: Asked, conversation: Id, wanted: CancelWanted) -> Response:
    """Stop every request of the conversation that is under way, at once, and take back whatever waits. The text that
    had arrived is kept and never sent again."""
    backstage, tenant = asked.backstage, await _owner(asked, conversation)
    done = await backstage.speaking.cancel(tenant, conversation)
    tree: TreeStopped | None = None
    if wanted.tree:
        ledger = await lookup.ledger_of(backstage.store, tenant, conversation)
        tree, events = await stop_all(backstage.store, backstage.config, ledger, backstage.speaking.now())
        backstage.decided(tenant, conversation, events)
    return Json({"requests": done.requests, "messages": done.messages, "tree": tree})
