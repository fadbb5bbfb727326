"""What a person does from a page: change frames, say something, stop and resume, choose a mode. Each answers with the
page it came from and a sentence on what was done. The work is that of the `/stack` routes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, get_args
from urllib.parse import urlencode

from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from callstack_proxy.management import find_by_id
from callstack_proxy.management.api import ApiContext, MessageBody, carry_out, find_target, now_ms, perform
from callstack_proxy.management.console.parts.frame_tree import has_returned
from callstack_proxy.management.console.rendering import one_line, read_form, visitor_of
from callstack_proxy.management.operations import (
    Operation,
    Target,
    frames,
    resume_agent,
    stop_agent,
    stop_all,
    store_mode,
)
from callstack_proxy.management.views import UnfoldView
from proxy.config import Mode
from proxy.core.frames import Frame
from proxy.core.ledger import Conversation, Lane, waiting_messages
from proxy.errors import BadRequest, NotFound

Kind = TypeVar("Kind", bound=BaseModel)
OPERATIONS: Mapping[str, Operation[Any]] = {
    "activate": frames.ACTIVATE,
    "pop": frames.POP,
    "invalidate": frames.INVALIDATE,
    "rename": frames.RENAME,
    "push": frames.FRAMES,
    "plan": frames.FRAMES,
}
MISSING = "The {name} is missing. Go back and fill it in."
TOO_LONG = "The {name} has {length} characters; {most} is the most. Go back and shorten it."
OTHER_STATUS = "A frame ends as completed, failed or blocked. Choose one of them."
DONE_WORDS = {
    "activate": "The work goes on in this frame.",
    "pop": "The frame is ended.",
    "invalidate": "The frame is given up.",
    "rename": "The frame has its new words.",
    "push": "A frame was begun below this one.",
    "plan": "A frame was planned below this one.",
}
"""Told behind an action. Titles stay out of it, because it stands in an address."""
PLACES = {"overview": "/console", "list": "/console/conversations"}
"""Pages beside that of a conversation from which it can be stopped."""
RECALL_TEXT = "Before you go on, read again what was done in “{title}”: call stack_recall with ref={frame}."
"""Said to the model for a person who wants the work of an ended frame back. The work comes as the result of that call:
no earlier part of the request changes, so nothing that is cached is paid again."""
MODES = ("", *get_args(Mode))


async def change_frame(request: Request) -> Response:
    form = await read_form(request)
    visitor = visitor_of(request)
    context, frame = visitor.context, request.path_params["frame"]
    action = request.path_params["action"]
    if action not in OPERATIONS and action != "unfold":
        raise NotFound("There is no such action on a frame. Use the buttons of its page.")
    target = await find_target(context, visitor.scope, frame=frame)
    if action == "unfold":
        return await _unfold(context, target, form)
    operation = OPERATIONS[action]
    below = {"parent": frame, "plan": action == "plan"} if operation is frames.FRAMES else {}
    operation_input = _read(operation.input_type, form, **below) if operation.input_type else None
    await perform(context, operation, target, operation_input)
    return _back(f"/console/frames/{frame}", f"{DONE_WORDS[action]} It holds from the agent's next request on.")


async def _unfold(context: ApiContext, target: Target, form: Mapping[str, str]) -> Response:
    conversation, frame = target.ledger.conversation, target.frame
    place = f"/console/conversations/{conversation.id}" if form.get("from") == "tree" else f"/console/frames/{frame}"
    if has_returned(ended := target.path_state.tree.as_shown.frames[frame]):
        return _back(place, await _ask_to_recall(context, conversation, ended))
    operation_input = frames.UnfoldQuery(now=form.get("now") == "yes")
    return _back(place, _returns_words(await perform(context, frames.UNFOLD, target, operation_input), frame))


def _returns_words(view: UnfoldView, frame: str) -> str:
    what = "This work" if view["frame"] == frame else "This work, and what was put away together with it,"
    later = "" if view["now"] else " Press “At once” if the agent needs it before."
    return f"{what} comes back {view['comes']}, and then stays in the context.{later}"


async def _ask_to_recall(context: ApiContext, conversation: Conversation, frame: Frame) -> str:
    """Asks the model to read the work of an ended frame again, once; returns what was done in words."""
    text = RECALL_TEXT.format(frame=frame.id, title=one_line(frame.title))
    queue = await context.inbox.list_messages(conversation.tenant, conversation.id)
    if any(each.text == text for each in waiting_messages(queue, context.inbox.now())):
        return "The model is asked already: it waits for the agent's next request."
    await context.inbox.add_message(conversation.tenant, conversation.id, text, Lane.STEER, "")
    return (
        "With the agent's next request the model is asked to read this work again with stack_recall. Until then you "
        "can take it back in the conversation."
    )


def _read(input_type: type[Kind], form: Mapping[str, str], **known: object) -> Kind:
    """The input that the fields of a form make, with what is `known` beside it. A title has to be there, though an
    operation may do without. Raises BadRequest for what is missing or too long."""
    fields = {name: text for name in input_type.model_fields if (text := form.get(name, "").strip())}
    try:
        if "title" in input_type.model_fields and "title" not in fields:
            raise BadRequest(MISSING.format(name="title"))
        return input_type.model_validate({**fields, **known})
    except ValidationError as error:
        fault = error.errors()[0]
        words = {"missing": MISSING, "literal_error": OTHER_STATUS}.get(fault["type"], TOO_LONG)
        most, length = fault.get("ctx", {}).get("max_length"), len(str(fault["input"]))
        raise BadRequest(words.format(name=fault["loc"][0], length=length, most=most)) from None


def _back(path: str, done: str) -> Response:
    """To the page, which says what was done. Only our own words go into the address, never a title or a message."""
    return RedirectResponse(f"{path}?{urlencode({'done': done[:300]})}", status_code=303)


# ------------------------------------------------------------------------------------------------------- conversation
async def say(request: Request) -> Response:
    form = await read_form(request)
    visitor = visitor_of(request)
    conversation = request.path_params["conversation"]
    tenant = await find_by_id.tenant_of_conversation(visitor.context.store, visitor.scope, conversation)
    text = _read(MessageBody, {"text": form.get("text", "")}).text
    lane = Lane.FOLLOW_UP if form.get("lane") == "follow_up" else Lane.STEER
    _, position = await visitor.context.inbox.add_message(tenant, conversation, text, lane, "")
    when = "when the model has nothing more to do" if lane is Lane.FOLLOW_UP else "with the agent's next request"
    return _back(f"/console/conversations/{conversation}", f"The model is told {when} (place {position}).")


async def take_back(request: Request) -> Response:
    await read_form(request)
    visitor = visitor_of(request)
    inbox, conversation = visitor.context.inbox, request.path_params["conversation"]
    tenant = await find_by_id.tenant_of_conversation(visitor.context.store, visitor.scope, conversation)
    await inbox.remove_message(tenant, conversation, request.path_params["message"])
    return _back(f"/console/conversations/{conversation}", "The message is taken back: the model is not told of it.")


async def stop(request: Request) -> Response:
    form = await read_form(request)
    visitor = visitor_of(request)
    context, conversation = visitor.context, request.path_params["conversation"]
    stored = (await find_by_id.ledger_of(context.store, visitor.scope, conversation)).conversation
    cut = await stop_agent(context.store, context.inbox, stored, context.on_mode_changed)
    done = f"{_cut_off_words(cut.requests)}. The agent's next requests are refused, until you press Resume."
    if cut.messages:
        which = (
            "The message that waited for the agent was"
            if cut.messages == 1
            else f"{cut.messages} waiting messages were"
        )
        done += f" {which} taken back and will not be told: say it again after Resume if it still holds."
    if form.get("tree") == "yes":
        ledger = await find_by_id.ledger_of(context.store, stored.tenant, conversation)
        stopped = await carry_out(context, ledger.conversation, stop_all(ledger, context.config, now_ms()))
        done += f" {len(stopped['blocked'])} frames are blocked, {len(stopped['invalidated'])} given up."
    return _back(_place(form, conversation), done)


def _cut_off_words(requests: int) -> str:
    if not requests:
        return "Stopped: no request was under way"
    what = "the request under way was" if requests == 1 else f"{requests} requests under way were"
    return f"Stopped: {what} cut off"


async def resume(request: Request) -> Response:
    form = await read_form(request)
    visitor = visitor_of(request)
    context, conversation = visitor.context, request.path_params["conversation"]
    stored = (await find_by_id.ledger_of(context.store, visitor.scope, conversation)).conversation
    was_stopped = await resume_agent(context.store, context.inbox, stored, context.on_mode_changed)
    done = "Its requests are taken again: tell the agent to go on." if was_stopped else "It was not stopped."
    return _back(_place(form, conversation), done)


def _place(form: Mapping[str, str], conversation: str) -> str:
    """The page from which a form was sent that stands on several."""
    return PLACES.get(form.get("from", ""), f"/console/conversations/{conversation}")


async def set_mode(request: Request) -> Response:
    form = await read_form(request)
    visitor = visitor_of(request)
    context, conversation = visitor.context, request.path_params["conversation"]
    mode = form.get("mode", "-")  # a form in which none is chosen sends none
    if mode not in MODES:
        raise BadRequest("There is no such mode; choose one of the list.")
    stored = (await find_by_id.ledger_of(context.store, visitor.scope, conversation)).conversation
    await store_mode(context.store, stored, mode, context.on_mode_changed)
    words = f"The mode is {mode}" if mode else "The mode is again that of the configuration"
    return _back(f"/console/conversations/{conversation}", f"{words}, from the next request on.")


ROUTES = [
    Route("/console/frames/{frame}/{action}", change_frame, methods=["POST"]),
    Route("/console/conversations/{conversation}/say", say, methods=["POST"]),
    Route("/console/conversations/{conversation}/messages/{message}/take-back", take_back, methods=["POST"]),
    Route("/console/conversations/{conversation}/stop", stop, methods=["POST"]),
    Route("/console/conversations/{conversation}/resume", resume, methods=["POST"]),
    Route("/console/conversations/{conversation}/mode", set_mode, methods=["POST"]),
]
