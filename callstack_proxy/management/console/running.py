"""`/console/running`: which agents are at work now, what each does, and the button that stops it. Pages that show this
ask for it every two seconds, so it is made from memory alone. It knows the requests of this process."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callstack_proxy.management.api import ApiContext, now_ms
from callstack_proxy.management.console.rendering import render, visitor_of
from callstack_proxy.management.views import in_flight_rows, task_title
from proxy.core.ledger import EntryKind, Ledger

MAX_CONVERSATIONS = 10_000
"""The most recently used among which agents at work are looked for; memory holds fewer."""
TOOLS_TIMEOUT_MS = 10 * 60_000
"""An agent that has run its tools for so long without asking again is taken to be gone."""
TELLING_ARGUMENTS = ("command", "cmd", "file_path", "filePath", "pattern", "query", "path", "url", "title")
"""Arguments of a call that say what it is about, the most telling first."""
PATH_ARGUMENTS = ("file_path", "filePath", "path")
PATH_PARTS = 3
"""Of a long path these last ones are told: its beginning is the same in all rows."""


@dataclass(frozen=True, slots=True)
class Running:
    """An agent at work. `since` is ms since the epoch; `what` is empty where the model has said nothing yet."""

    conversation: str
    title: str
    doing: str
    what: str
    since: int


def running_now(context: ApiContext, scope: str | None, conversation: str = "") -> Sequence[Running]:
    """Agents at work, the longest first: of one conversation, or of all that `scope` may see."""
    rows: list[Running] = []
    for cached in context.inbox.conversation_cache.recently_used(scope, MAX_CONVERSATIONS):
        if conversation in ("", cached.ledger.conversation.id):
            found = _answering(context, cached.tenant, cached.ledger) or _running_tools(cached.ledger)
            rows += [found] if found is not None else []
    return sorted(rows, key=lambda row: row.since)


def _answering(context: ApiContext, tenant: str, ledger: Ledger) -> Running | None:
    flights = context.inbox.in_flight.in_conversation(tenant, ledger.conversation.id)
    if not flights:
        return None
    newest = in_flight_rows(flights[-1:])[0]
    doing, what = "the model reads the request", ""
    if newest["calls"]:
        call = newest["calls"][-1]
        doing, what = "the model calls", call_words(call["name"], call["arguments"])
    elif newest["text"].strip():
        doing, what = "the model writes", newest["text"][-200:]
    return Running(ledger.conversation.id, task_title(ledger), doing, what, flights[0].created)


def _running_tools(ledger: Ledger) -> Running | None:
    """The agent between two requests: the newest answer ended with calls, and nothing has come since."""
    tip = ledger.newest_tip()
    if tip is None or tip.kind is not EntryKind.TURN or ledger.conversation.is_stopped:
        return None
    rounds = ledger.rounds.get(tip.id, ())
    calls = rounds[-1].spoken.client_calls if rounds and rounds[-1].last else ()
    if not calls or now_ms() - rounds[-1].created > TOOLS_TIMEOUT_MS:
        return None
    what = ", ".join(call_words(call.name, call.arguments) for call in calls[:3])
    return Running(ledger.conversation.id, task_title(ledger), "the agent runs", what, rounds[-1].created)


def call_words(name: str, arguments: str) -> str:
    """A call in a few words: its tool, and the argument that tells most."""
    return f"{name} {told}" if (told := _telling_argument(arguments)) else name


def _telling_argument(arguments: str) -> str:
    try:
        values = json.loads(arguments)
    except (ValueError, RecursionError):  # it still arrives, or the model does not stop opening brackets
        return ""
    if not isinstance(values, dict):
        return ""
    values |= {name: _end_of_path(values[name]) for name in PATH_ARGUMENTS if isinstance(values.get(name), str)}
    named: Iterable[object] = (values.get(name) for name in TELLING_ARGUMENTS)
    return next(filter(None, map(_as_words, (*named, *values.values()))), "")


def _end_of_path(path: str) -> str:
    names = path.rsplit("/", PATH_PARTS)
    return "/".join(("…", *names[1:])) if len(names) > PATH_PARTS and names[0] else path


def _as_words(value: object) -> str:
    """A text, or a command as a list of its words; empty for anything else."""
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return " ".join(value)
    return value if isinstance(value, str) else ""


async def show(request: Request) -> Response:
    visitor = visitor_of(request)
    conversation = request.query_params.get("conversation", "")
    place = request.query_params.get("from", "overview")
    running = running_now(visitor.context, visitor.scope, conversation)
    return render(request, "_running.html", running=running, of=conversation, place="" if conversation else place)


ROUTES = [Route("/console/running", show)]
