"""What a person does from a page: change frames, say something, stop and resume, choose a mode. Each answers with the
page it came from and a sentence on what was done. The work is that of the `/stack` routes."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from callstack_proxy.management.actions import (
    CommandTarget,
    resume_agent,
    run_command,
    stop_agent,
    stop_all,
    store_mode,
    store_unfold_request,
)
from callstack_proxy.management.api import ApiContext, now_ms
from callstack_proxy.management.console.parts.frame_tree import has_returned
from callstack_proxy.management.console.rendering import one_line, read_form, visitor_of
from callstack_proxy.management.views import UnfoldView
from proxy.core.commands import (
    ActivateCommand,
    FrameCommand,
    FrameSpec,
    InvalidateCommand,
    PlanCommand,
    PopCommand,
    PushCommand,
    RenameCommand,
)
from proxy.core.frames import Frame
from proxy.core.ledger import Conversation, Lane, waiting_messages
from proxy.errors import BadRequest, NotFound
from proxy.exchange import MAX_MESSAGE_CHARACTERS
from proxy.store import find_by_id

MAX_TITLE, MAX_WORDS = 500, 20_000
POP_STATUSES = ("completed", "failed", "blocked")
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
MODES = ("", "off", "shadow", "passive", "active")


async def change_frame(request: Request) -> Response:
    form = await read_form(request)
    visitor = visitor_of(request)
    context, frame = visitor.context, request.path_params["frame"]
    action = request.path_params["action"]
    if action not in DONE_WORDS and action != "unfold":
        raise NotFound("There is no such action on a frame. Use the buttons of its page.")
    ledger, path_state = await find_by_id.ledger_with_frame(context.store, visitor.scope, frame)
    tenant, conversation = ledger.conversation.tenant, ledger.conversation.id
    if action == "unfold":
        place = f"/console/conversations/{conversation}" if form.get("from") == "tree" else f"/console/frames/{frame}"
        if has_returned(ended := path_state.tree.as_shown.frames[frame]):
            return _back(place, await _ask_to_recall(context, ledger.conversation, ended))
        wanted = await store_unfold_request(context.store, ledger, frame, now=form.get("now") == "yes", at=now_ms())
        context.on_events_stored(tenant, conversation, wanted.events)
        return _back(place, _returns_words(wanted.view, frame))
    command = _command(action, frame, form)
    _, events = await run_command(context.store, context.config, CommandTarget(ledger, path_state, now_ms()), command)
    context.on_events_stored(tenant, conversation, events)
    return _back(f"/console/frames/{frame}", f"{DONE_WORDS[action]} It holds from the agent's next request on.")


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


def _command(action: str, frame: str, form: Mapping[str, str]) -> FrameCommand:
    """Raises BadRequest for what is missing or too long."""
    if action == "activate":
        return ActivateCommand(frame)
    if action == "pop":
        status = form.get("status", "completed")
        for allowed in POP_STATUSES:
            if allowed == status:
                return PopCommand(frame, allowed, _words(form, "results"))
        raise BadRequest("A frame ends as completed, failed or blocked. Choose one of them.")
    if action == "invalidate":
        return InvalidateCommand(frame, _required(form, "reason", 2_000))
    if action == "rename":
        return RenameCommand(frame, _required(form, "title", MAX_TITLE), _words(form, "criteria"))
    spec = FrameSpec(_required(form, "title", MAX_TITLE), _words(form, "criteria"))
    return PlanCommand((spec,), frame) if action == "plan" else PushCommand(spec, frame)


def _required(form: Mapping[str, str], name: str, most: int) -> str:
    text = form.get(name, "").strip()
    if not text:
        raise BadRequest(f"The {name} is missing. Go back and fill it in.")
    if len(text) > most:
        raise BadRequest(f"The {name} has {len(text)} characters; {most} is the most. Go back and shorten it.")
    return text


def _words(form: Mapping[str, str], name: str) -> str:
    text = form.get(name, "").strip()
    if len(text) > MAX_WORDS:
        raise BadRequest(f"The {name} has {len(text)} characters; {MAX_WORDS} is the most. Go back and shorten it.")
    return text


def _back(path: str, done: str) -> Response:
    """To the page, which says what was done. Only our own words go into the address, never a title or a message."""
    return RedirectResponse(f"{path}?{urlencode({'done': done[:300]})}", status_code=303)


# ------------------------------------------------------------------------------------------------------- conversation
async def say(request: Request) -> Response:
    form = await read_form(request)
    visitor = visitor_of(request)
    conversation = request.path_params["conversation"]
    tenant = await find_by_id.tenant_of_conversation(visitor.context.store, visitor.scope, conversation)
    text = _required(form, "text", MAX_MESSAGE_CHARACTERS)
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
        stopped, events = await stop_all(context.store, context.config, ledger, now_ms())
        context.on_events_stored(stored.tenant, conversation, events)
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
    mode = form.get("mode")  # a form in which none is chosen sends none
    if mode not in MODES:
        raise BadRequest("There is no such mode; choose one of the list.")
    stored = (await find_by_id.ledger_of(context.store, visitor.scope, conversation)).conversation
    await store_mode(context.store, stored, mode, context.on_mode_changed)
    words = f"The mode is {mode}" if mode else "The mode is again that of the configuration"
    return _back(f"/console/conversations/{conversation}", f"{words}, from the next request on.")


ROUTES = [
    Route(
        "/console/frames/{frame}/{action}",
        change_frame,
        methods=["POST"],
    ),
    Route("/console/conversations/{conversation}/say", say, methods=["POST"]),
    Route("/console/conversations/{conversation}/messages/{message}/take-back", take_back, methods=["POST"]),
    Route("/console/conversations/{conversation}/stop", stop, methods=["POST"]),
    Route("/console/conversations/{conversation}/resume", resume, methods=["POST"]),
    Route("/console/conversations/{conversation}/mode", set_mode, methods=["POST"]),
]
