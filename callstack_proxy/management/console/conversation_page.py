"""`/console/conversations/ID`: the tree of frames, an icicle of the context at any request, and the requests in a
row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from callstack_proxy.management.console.parts.balance import money_causes, token_balance
from callstack_proxy.management.console.parts.frame_tree import tree_rows, ways_back
from callstack_proxy.management.console.parts.icicle import Icicle, lay_out, tokens_of
from callstack_proxy.management.console.parts.request_sentence import request_sentence, sentence_facts
from callstack_proxy.management.console.rendering import render, visitor_of
from callstack_proxy.management.console.running import call_words, running_now
from callstack_proxy.management.find_by_id import newest_path_state, path_state_of_tip
from callstack_proxy.management.reports import without_plan_prices
from callstack_proxy.management.views import (
    conversations,
    decode_receipt,
    help_begins,
    message_rows,
    newest_telling,
    task_title,
)
from proxy.accounting import Receipt
from proxy.config import Config
from proxy.core.frames import PathState, path_to
from proxy.core.ledger import EntryKind, Ledger
from proxy.errors import BadRequest
from proxy.store import RequestRecord

MAX_REQUESTS = 3_000
"""Requests of one conversation in the row; the newest."""
MAX_TIMELINE_COLUMNS = 240
MAX_COLUMN_WIDTH = 50
"""Of the 1000 that the timeline is wide."""
ROWS_IN_TABLE, ROWS_OF_OLDER = 30, 100
FATE_WORDS = {
    "sent": "in context",
    "folded": "put away: can be recalled",
    "recalled": "brought back",
    "hidden": "between us and the model only",
}
TIMELINE_HEIGHT = 72
CONTEXT_ELEMENT = "context"
"""The id of the part of the page that a step of the slider replaces."""


@dataclass(frozen=True, slots=True)
class Step:
    """An answered request: `came` and `sent` in tokens, `cached` of the sent ones; `number` counts from 1."""

    number: int
    receipt: Receipt
    entry: str
    cached: int
    marks: Sequence[str]

    @property
    def came(self) -> int:
        return self.receipt.tokens_in

    @property
    def sent(self) -> int:
        """Of all rounds."""
        return self.receipt.tokens_sent


@dataclass(frozen=True, slots=True)
class Column:
    """A request in the timeline, in units of the drawing (1000 wide, `TIMELINE_HEIGHT` high)."""

    step: Step
    x: float
    width: float
    came: float
    sent: float
    cached: float


async def show(request: Request) -> Response:
    visitor = visitor_of(request)
    context = visitor.context
    ledger = await visitor.memory.ledger_of(context, visitor.scope, request.path_params["conversation"])
    tenant, conversation = ledger.conversation.tenant, ledger.conversation.id
    records = await visitor.memory.requests_of(context.store, visitor.scope, conversation, MAX_REQUESTS)
    path_state = await run_in_threadpool(newest_path_state, ledger)
    wanted = request.query_params.get("at", "")
    only_sent = request.query_params.get("view", "was") == "sent"
    picture = await run_in_threadpool(_picture, ledger, path_state, records, wanted, only_sent=only_sent)
    if asked := request.query_params.get("request"):
        steps = picture["steps"]
        chosen = f"requests/{steps[_chosen_step(asked, len(steps)) - 1].receipt.id}" if steps else "conversations"
        return RedirectResponse(f"/console/{chosen}", 303)
    if request.headers.get("hx-target") == CONTEXT_ELEMENT:  # a step of the slider
        return render(request, "_context.html", **picture)
    stored = records if len(records) < MAX_REQUESTS else None
    row = await conversations.conversation_row(context.store, ledger, path_state=path_state, stored=stored)
    messages = message_rows(await context.inbox.list_messages(tenant, conversation), context.inbox.now())
    told = newest_telling(step.receipt for step in reversed(picture["steps"]))
    steps, before = picture["steps"], request.query_params.get("before", "")
    last = _chosen_step(before, len(picture["steps"]))

    def build() -> dict[str, Any]:
        rows = steps[max(0, last - (ROWS_OF_OLDER if before else ROWS_IN_TABLE)) : last]
        newest = list(reversed(rows))
        price = input_price(context.config, newest[0].receipt) if newest else 0.0
        facts = sentence_facts(ledger, path_state.tree, price)
        about = {step.number: about_request(ledger, step.entry) for step in newest}
        return {
            "columns": columns_of(steps),
            "newest": newest,
            "about": about,
            "told_of": {
                step.number: request_sentence(step.receipt, facts, in_list=bool(about[step.number])) for step in newest
            },
            "causes": money_causes(without_plan_prices(step.receipt) for step in steps),
        }

    values = await run_in_threadpool(build)
    return render(
        request,
        "conversation.html",
        row=row,
        ledger=ledger,
        models=sorted({thread.model for thread in ledger.threads.values() if thread.model}),
        task=task_title(ledger),
        running=running_now(context, visitor.scope, conversation),
        plan=row["plan"],
        of=conversation,
        place="",
        messages=[message for message in messages if message["state"] == "waiting"],
        told=told,
        begins=help_begins(told, context.config.wake_at_tokens),
        timeline_height=TIMELINE_HEIGHT,
        done=request.query_params.get("done", ""),
        **picture,
        **values,
    )


def _picture(
    ledger: Ledger, path_state: PathState, records: Sequence[RequestRecord], wanted: str, *, only_sent: bool
) -> dict[str, Any]:
    """What `_context.html` shows: the context at one request. Raises BadRequest."""
    steps = steps_of(records)
    at = _chosen_step(wanted, len(steps))
    step = steps[at - 1] if steps else None
    then = path_state_at(ledger, step.entry) if step and step.entry in ledger.entries else None
    icicle = icicle_of(then, path_state, only_sent=only_sent) if then else Icicle()
    shown = then if then and at < len(steps) else path_state  # the newest has what its answer began as well
    costs, returning = _cost_by_frame(steps[:at]), ways_back(ledger, path_state)
    return {
        "conversation": ledger.conversation.id,
        "steps": steps,
        "at": at,
        "step": step,
        "icicle": icicle,
        "ours": _own_tokens_beside(step.receipt, icicle) if step else 0,
        "tree": tree_rows(ledger, shown, icicle.by_frame, costs, returning),
        "returning": returning,
        "recalls": sum(each.receipt.recalls for each in steps[:at]),
        "most_tokens": max((sum(each.values()) for each in icicle.by_frame.values()), default=0),
        "most_cost": max(costs.values(), default=0.0),
        "active_path": _active_path(shown),
        "tokens": token_balance(each.receipt for each in steps[:at]),
        "view": "sent" if only_sent else "was",
        "fates": FATE_WORDS,
    }


def _own_tokens_beside(receipt: Receipt, icicle: Icicle) -> int:
    """Of our tools and texts those that the picture does not show: it has the rounds between us and the model."""
    return max(0, receipt.own_tools + receipt.own_texts - icicle.tokens["hidden"])


def _cost_by_frame(steps: Sequence[Step]) -> dict[str, float]:
    """USD; nothing of what a plan paid for."""
    costs: dict[str, float] = {}
    for step in steps:
        costs[step.receipt.frame] = costs.get(step.receipt.frame, 0.0) + without_plan_prices(step.receipt).cost
    return costs


def _active_path(path_state: PathState) -> list[str]:
    """Titles from the root to the active frame; empty if none is active."""
    tree = path_state.tree
    return [frame.title for frame in path_to(tree, tree.active)] if tree.active else []


# ----------------------------------------------------------------------------------------------------------- requests
def steps_of(records: Sequence[RequestRecord]) -> list[Step]:
    """Answered requests, oldest first."""
    steps: list[Step] = []
    for record in reversed(records):
        receipt = decode_receipt(record)
        if receipt is not None:
            steps.append(Step(len(steps) + 1, receipt, record.entry, _cached_tokens(receipt), _marks(receipt)))
    return steps


def _cached_tokens(receipt: Receipt) -> int:
    """Of what was sent, in the tokens that we count, as far as the provider reported it."""
    usage = receipt.usage
    if receipt.basis != "reported" or not usage.input:
        return receipt.sent.cached
    return usage.cached * receipt.tokens_sent // usage.input


EVENT_WORDS = {
    "rooted": "a task began",
    "planned": "planned",
    "pushed": "a frame began",
    "popped": "a frame ended",
    "parted": "a frame ended",
    "invalidated": "given up",
    "delegated": "a subagent began",
    "woken": "help began",
    "looped": "warned of a loop",
    "summarised": "summary",
}
"""What happened with a request, by the kind of event. Other kinds are told by its sentence, or not."""


def _marks(receipt: Receipt) -> list[str]:
    """What happened with a request, in words."""
    events = [EVENT_WORDS.get(event.partition(" ")[0], "") for event in receipt.events]
    return [words for words in dict.fromkeys(events) if words]


def input_price(config: Config, receipt: Receipt) -> float:
    """USD of a token of input at full price."""
    return config.tariff_of(config.upstream_model_of(receipt.model)).input * receipt.price_factor / 1_000_000


def about_request(ledger: Ledger, entry: str) -> str:
    """What the model did with a request, in a few words: its first call, or what it said."""
    turns = ledger.turns_by_parent.get(entry, ())
    rounds = ledger.rounds.get(turns[-1], ()) if turns else ()
    if not rounds:
        return ""
    calls, text = rounds[-1].spoken.client_calls, rounds[-1].spoken.message.text
    if not calls:
        return text[:400]
    more = f" and {len(calls) - 1} more" if len(calls) > 1 else ""
    return call_words(calls[0].name, calls[0].arguments) + more


def columns_of(steps: Sequence[Step]) -> list[Column]:
    """At most `MAX_TIMELINE_COLUMNS`, the newest."""
    shown = steps[-MAX_TIMELINE_COLUMNS:]
    largest = max((max(step.came, step.sent) for step in shown), default=0) or 1
    width = min(MAX_COLUMN_WIDTH, 1000 / max(1, len(shown)))
    scale = TIMELINE_HEIGHT / largest
    return [
        Column(
            step,
            round(at * width, 2),
            round(max(0.5, width * 0.8), 2),
            round(step.came * scale, 1),
            round(step.sent * scale, 1),
            round(min(step.cached, step.sent) * scale, 1),
        )
        for at, step in enumerate(shown)
    ]


def _chosen_step(text: str, count: int) -> int:
    """A number from 1 to `count`; the last one where none was asked for."""
    if not text:
        return count
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise BadRequest("`at` is the number of a request, from 1.")
    return max(1, min(int(text), count))


def icicle_of(path_state: PathState, newest: PathState, *, only_sent: bool) -> Icicle:
    """The context of a path. The whole width is the newest path."""
    full = sum(map(tokens_of, newest.entries))
    return lay_out(path_state, max(full, sum(map(tokens_of, path_state.entries))), only_sent=only_sent)


def path_state_at(ledger: Ledger, entry: str) -> PathState:
    """The path on which a request was answered; an empty one where its entry is not known."""
    known = ledger.entries.get(entry)
    if known is None:
        return PathState()
    if known.kind is EntryKind.TURN and known.parent in ledger.entries:
        known = ledger.entries[known.parent]
    return path_state_of_tip(ledger, known)


ROUTES = [Route("/console/conversations/{conversation}", show)]
