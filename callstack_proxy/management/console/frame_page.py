"""`/console/frames/ID`: what a frame came to, what it did in full, what the model reads in its place, and why it stands
in a block or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from callstack_proxy.management.api import now_ms
from callstack_proxy.management.console.conversation_list_page import page_number
from callstack_proxy.management.console.parts.call_markup import shown_call
from callstack_proxy.management.console.parts.frame_tree import (
    ORIGIN_WORDS,
    has_returned,
    long_title,
    tree_mark,
    ways_back,
)
from callstack_proxy.management.console.rendering import render, visitor_of
from callstack_proxy.management.views import FrameLogItem, explanation_view, frame_detail, logs, task_title
from proxy.core.frames import PathState, Status, path_to
from proxy.errors import NotFound

ENTRIES_PER_PAGE = 40
MAX_ENTRY_TEXT = 4_000
"""Characters of one log entry that the page shows; the whole text is behind a link."""
INCLUSION_WORDS = {
    "root": "it is the root",
    "parent": "it is the parent",
    "score": "its score was high enough",
    "retried": "it is an earlier attempt",
    "words": "it shares words with the active frame",
    "newest": "it is one of the three newest",
    "other words": "it shares too few words with the active frame",
    "no room": "there was no room left",
    "in view": "the context before it shows it already",
    "view": "its view was narrowed",
}


async def show(request: Request) -> Response:
    visitor = visitor_of(request)
    context = visitor.context
    frame_id = request.path_params["frame"]
    ledger, path_state = await visitor.memory.ledger_with_frame(context, visitor.scope, frame_id)
    page = page_number(request.query_params.get("page", "1"))

    def build() -> dict[str, Any]:
        detail = frame_detail(ledger, path_state, frame_id, context.config.observed_tools)
        entries = logs.frame_log(ledger, path_state, frame_id)["entries"]
        said = [each["text"] for each in entries if each["role"] == "assistant" and each["text"]]
        last_page = max(1, -(-len(entries) // ENTRIES_PER_PAGE))
        at = min(page, last_page)
        tree = path_state.tree.as_shown
        return {
            "detail": detail,
            "frame": tree.frames[frame_id],
            "title": long_title(tree.frames[frame_id]),
            "result_words": result_words(str(detail.get("results", "")), str(detail["origin"]), said),
            "ancestors": [tree.frames[each] for each in reversed(detail["ancestors"])],
            "children": [tree.frames[each] for each in detail["children"]],
            "entries": list(enumerate(entries))[(at - 1) * ENTRIES_PER_PAGE : at * ENTRIES_PER_PAGE],
            "entry_count": len(entries),
            "page": at,
            "last_page": last_page,
            "stands_in": stand_in_text(path_state, frame_id),
            "returns": ways_back(ledger, path_state).get(frame_id, ""),
            "mark": tree_mark(ledger, path_state, frame_id, has_worked=bool(entries)),
            "is_recalled": has_returned(tree.frames[frame_id]),
            "newest_words": said[-1] if said else "",
            "possible": possible_actions(path_state, detail, frame_id),
        }

    values = await run_in_threadpool(build)

    def explain() -> Mapping[str, object] | None:
        try:
            view = explanation_view(ledger, path_state, context.config, now_ms(), context.count_tokens)
        except NotFound:  # no frame is active
            return None
        rows = [*view["ancestors"], *view["siblings"]]
        return next((dict(row) for row in rows if row["frame"] == frame_id), None)

    return render(
        request,
        "frame.html",
        ledger=ledger,
        explanation=await run_in_threadpool(explain),
        inclusion_words=INCLUSION_WORDS,
        origins=ORIGIN_WORDS,
        max_text=MAX_ENTRY_TEXT,
        shown_call=shown_call,
        task=task_title(ledger),
        done=request.query_params.get("done", ""),
        **values,
    )


def result_words(results: str, origin: str, said: Sequence[str]) -> str:
    """What the result is called: where neither the model nor a person gave any, something that the agent said stands
    for it."""
    is_said = bool(results) and any(results in each for each in said)
    return "Last words" if origin != "model" and is_said else "Result"


def stand_in_text(path_state: PathState, frame: str) -> str:
    """What the model reads where the work of the frame stood; empty while the work itself stands there."""
    tree = path_state.tree
    for removal in reversed(tree.removals):
        if removal.frame == frame:
            return removal.trace
    details = tree.frames[frame]
    has_returned = details.status in (Status.COMPLETED, Status.FAILED, Status.BLOCKED) and details.opening is not None
    return details.results_compacted or details.results if has_returned else ""


def possible_actions(path_state: PathState, detail: Mapping[str, object], frame: str) -> Sequence[str]:
    """What a person may do with the frame now; the commands themselves decide in the end."""
    tree = path_state.tree
    status = tree.frames[frame].status
    is_open = bool(tree.active) and frame in (each.id for each in path_to(tree, tree.active))
    possible = []
    if status is Status.PLANNED:
        possible += ["activate", "rename"]
    if status in (Status.BLOCKED, Status.FAILED) and tree.active:
        possible.append("activate")
    if is_open and tree.frames[frame].parent:
        possible.append("pop")
    if status in (Status.PLANNED, Status.IN_PROGRESS, Status.BLOCKED) and tree.frames[frame].parent:
        possible.append("invalidate")
    if tree.active == frame:
        possible += ["push", "plan"]
    return possible


async def show_entry(request: Request) -> Response:
    """The whole text of one entry of the log."""
    visitor = visitor_of(request)
    frame_id = request.path_params["frame"]
    ledger, path_state = await visitor.memory.ledger_with_frame(visitor.context, visitor.scope, frame_id)
    log = await run_in_threadpool(logs.frame_log, ledger, path_state, frame_id)
    number: int = request.path_params["number"]
    if number >= len(log["entries"]):
        raise NotFound("The log of this frame has no such entry. Open it from the log.")
    return PlainTextResponse(_entry_text(log["entries"][number]).encode("utf-8", "backslashreplace"))


def _entry_text(entry: FrameLogItem) -> str:
    calls = "".join(f"\n\n{call['name']} {call['arguments']}" for call in entry["calls"])
    results = "".join(f"\n\n{result['text']}" for result in entry["results"])
    return f"{entry['text']}{calls}{results}"


ROUTES = [Route("/console/frames/{frame}", show), Route("/console/frames/{frame}/log/{number:int}", show_entry)]
