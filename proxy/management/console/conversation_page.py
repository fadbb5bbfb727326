"""`/console/conversations/ID`: the tree of frames, an icicle of the context at any request, and the requests in a
row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from proxy.accounting import Receipt, plan_words
from proxy.core.context import owner_of
from proxy.core.frames import Frame, PathState, children, path_to
from proxy.core.ledger import EntryKind, Ledger
from proxy.errors import BadRequest
from proxy.management.console.balance import money_causes, token_balance
from proxy.management.console.icicle import Icicle, lay_out, tokens_of
from proxy.management.console.rendering import render, visitor_of
from proxy.management.views import (
    FrameState,
    conversations,
    decode_receipt,
    in_flight_rows,
    lookup,
    message_rows,
    newest_path_state,
    path_state_of_tip,
    tree_state_view,
)
from proxy.store import RequestRecord

MAX_REQUESTS = 3_000
"""Requests of one conversation in the row; the newest."""
MAX_TIMELINE_COLUMNS = 240
ROWS_IN_TABLE = 30
ORIGIN_WORDS = {
    "request": "a request of the user",
    "plan": "an item of the agent's plan",
    "subagent": "delegated to a subagent",
    "auto": "set apart by the proxy",
    "model": "begun by the model",
    "human": "begun by a person",
}
FATE_WORDS = {
    "sent": "in the request",
    "folded": "folded: not in the request, can be recalled",
    "recalled": "asked back: in the request again",
    "hidden": "between proxy and model only",
}
TIMELINE_HEIGHT = 72
CONTEXT_ELEMENT = "context"
"""The id of the part of the page that a step of the slider replaces."""


@dataclass(frozen=True, slots=True)
class TreeRow:
    """One frame in the tree. `tokens` are of its own messages, `cost` (USD) of the requests made in it."""

    frame: Frame
    state: FrameState
    active: bool
    tokens: int
    cost: float
    origin: str
    children: Sequence[TreeRow]


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
    ledger = await lookup.ledger_of(context.store, visitor.scope, request.path_params["conversation"])
    tenant, conversation = ledger.conversation.tenant, ledger.conversation.id
    records = await context.store.requests(tenant, conversation, MAX_REQUESTS)
    path_state = await run_in_threadpool(newest_path_state, ledger)
    wanted = request.query_params.get("at", "")
    only_sent = request.query_params.get("view", "was") == "sent"
    picture = await run_in_threadpool(_picture, ledger, path_state, records, wanted, only_sent=only_sent)
    if request.headers.get("hx-target") == CONTEXT_ELEMENT:  # a step of the slider
        return render(request, "_context.html", **picture)
    row = await conversations.conversation_row(context.store, ledger, path_state=path_state)
    in_flight = await context.inbox.list_in_flight(tenant, conversation)
    messages = message_rows(await context.inbox.list_messages(tenant, conversation), context.inbox.now())
    steps, shows_all = picture["steps"], request.query_params.get("rows", "") == "all"

    def build() -> dict[str, Any]:
        totals = _tokens_by_frame(path_state)
        return {
            "tree": tree_rows(ledger, path_state, totals, _cost_by_frame(steps)),
            "most_tokens": max(totals.values(), default=0),
            "most_cost": max(_cost_by_frame(steps).values(), default=0.0),
            "columns": columns_of(steps),
            "newest": list(reversed(steps if shows_all else steps[-ROWS_IN_TABLE:])),
            "tokens": token_balance(step.receipt for step in steps),
            "causes": money_causes(step.receipt for step in steps),
            "plan": plan_words(step.receipt for step in steps),
            "active_path": _active_path(path_state),
        }

    values = await run_in_threadpool(build)
    return render(
        request,
        "conversation.html",
        row=row,
        ledger=ledger,
        models=sorted({thread.model for thread in ledger.threads.values() if thread.model}),
        in_flight=in_flight_rows(in_flight),
        messages=[message for message in messages if message["state"] == "waiting"],
        wake_at=context.config.wake_at_tokens,
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
    return {
        "conversation": ledger.conversation.id,
        "steps": steps,
        "at": at,
        "step": steps[at - 1] if steps else None,
        "icicle": icicle_at(ledger, steps[at - 1].entry, path_state, only_sent=only_sent) if steps else Icicle(),
        "view": "sent" if only_sent else "was",
        "fates": FATE_WORDS,
    }


# --------------------------------------------------------------------------------------------------------------- tree
def tree_rows(
    ledger: Ledger, path_state: PathState, tokens: Mapping[str, int], costs: Mapping[str, float]
) -> list[TreeRow]:
    """The roots, in order of creation, each with what is below it."""
    tree = path_state.tree.told
    states = tree_state_view(ledger, path_state)["frames"]

    def rows(parent: str) -> list[TreeRow]:
        return [
            TreeRow(
                frame,
                states[frame.id],
                tree.active == frame.id,
                tokens.get(frame.id, 0),
                costs.get(frame.id, 0.0),
                ORIGIN_WORDS.get(frame.origin, ""),
                rows(frame.id),
            )
            for frame in children(tree, parent)
        ]

    return rows("")


def _tokens_by_frame(path_state: PathState) -> dict[str, int]:
    tokens: dict[str, int] = {}
    for path_entry in path_state.entries:
        frame = owner_of(path_state, path_entry).partition("#")[0]
        tokens[frame] = tokens.get(frame, 0) + tokens_of(path_entry)
    return tokens


def _cost_by_frame(steps: Sequence[Step]) -> dict[str, float]:
    costs: dict[str, float] = {}
    for step in steps:
        costs[step.receipt.frame] = costs.get(step.receipt.frame, 0.0) + step.receipt.cost
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


def _marks(receipt: Receipt) -> list[str]:
    """What happened with a request, in words: `pushed`, `popped`, `fold`, `recall`, ..."""
    events = [event.partition(" ")[0] for event in receipt.events]
    done = [decision.kind for decision in receipt.decisions if decision.done]
    recalls = ["recall"] * bool(receipt.recalls)
    return list(dict.fromkeys([*events, *done, *recalls]))


def columns_of(steps: Sequence[Step]) -> list[Column]:
    """At most `MAX_TIMELINE_COLUMNS`, the newest."""
    shown = steps[-MAX_TIMELINE_COLUMNS:]
    largest = max((max(step.came, step.sent) for step in shown), default=0) or 1
    width = 1000 / max(1, len(shown))
    scale = TIMELINE_HEIGHT / largest
    return [
        Column(
            step,
            round(at * width, 2),
            round(max(0.5, min(width * 0.8, 40)), 2),
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


def icicle_at(ledger: Ledger, entry: str, newest: PathState, *, only_sent: bool) -> Icicle:
    """The context with which a request was answered. The whole width is the newest path."""
    full = sum(map(tokens_of, newest.entries))
    if entry not in ledger.entries:
        return Icicle()
    path_state = path_state_at(ledger, entry)
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
