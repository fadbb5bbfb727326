"""`/console/requests/ID`: what came in, what went up in each round, and what differs, with the decisions behind it, the
receipt, and the bytes to copy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby

from msgspec.structs import asdict
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callstack_proxy.management.console.conversation_page import (
    MAX_REQUESTS,
    Step,
    about_request,
    input_price,
    path_state_at,
    steps_of,
)
from callstack_proxy.management.console.parts.body_diff import (
    DiffRow,
    WordChange,
    cached_until,
    diff_rows,
    read_messages,
    word_changes,
)
from callstack_proxy.management.console.parts.request_sentence import (
    CHANGED_STATUSES,
    SentenceFacts,
    context_changes,
    request_sentence,
    sentence_facts,
)
from callstack_proxy.management.console.rendering import Visitor, as_sentence, render, visitor_of
from callstack_proxy.management.find_by_id import ConversationUnreadable, find_conversation, newest_path_state
from callstack_proxy.management.reports import decision_meaning, plan_lines
from callstack_proxy.management.views import decode_receipt, requests, task_title
from proxy.accounting import GateDecision, Receipt
from proxy.config import Config
from proxy.core.context import owner_of
from proxy.core.frames import frame_id_of
from proxy.core.ledger import Ledger, Message, Usage
from proxy.dialects import Dialect, dialect_named
from proxy.errors import BadRequest, NotFound
from proxy.store import StoredRequest

VIEWS = {
    "in": "from the agent",
    "up": "what was sent",
    "diff": "what was changed",
    "previous": "against the request before",
}
LAST_ROUND = "last"
MAX_ROWS = 400
PUTTING_AWAY = frozenset({"folded", "popped"})
"""Words of the events of a receipt with which the work of the frame behind them leaves, or left when it ended."""
MAX_EARLIER = 20
"""Requests before one among which the one that changed the context last is looked for."""
MAX_TEXT = 60_000
"""Characters of one message that are shown; the bytes are behind the link to the raw body."""
DECISION_WORDS = {
    "wake": "begin to help in this conversation",
    "fold": "put finished work away",
    "trim": "shorten the context because it does not fit",
    "view": "show less of a frame",
    "unfold": "bring work back",
}


@dataclass(frozen=True, slots=True)
class ShownRow:
    """A row of the page. `frame` is the id and the title of the frame that a message belongs to, where it is known."""

    diff: DiffRow
    frame: tuple[str, str] | None
    words: Sequence[WordChange] = ()


@dataclass(frozen=True, slots=True)
class RowGroup:
    """One row, or neighbours of one frame that were left out together."""

    rows: Sequence[ShownRow]

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(row.diff.size for row in self.rows)


@dataclass(frozen=True, slots=True)
class ShownBody:
    """Rows of one view. `cached` says before which message the provider's cached prefix ends, None where that is not
    known."""

    groups: Sequence[RowGroup]
    cut: int
    cached: int | None
    bytes: int
    readable: bool = True


async def show(request: Request) -> Response:
    visitor = visitor_of(request)
    stored = await requests.stored_request(visitor.context.store, visitor.scope, request.path_params["request"])
    view, round_number = chosen = _chosen(request, stored)
    ledger = await _ledger_of(visitor, stored)
    frames = await run_in_threadpool(_frames_by_identity, ledger, stored.record.entry) if ledger else {}
    place = await _place(visitor, stored)
    previous = await _previous_body(visitor, place.before) if view == "previous" else None
    receipt = decode_receipt(stored.record)
    dialect = await _dialect_of(visitor, stored, ledger)
    body = await run_in_threadpool(_body_of_view, stored, dialect, chosen, frames, previous)
    side = "in" if view == "in" or not stored.sent else str(round_number)
    return render(
        request,
        "request.html",
        stored=stored,
        record=stored.record,
        frame_title=dict(frames.values()).get(stored.record.frame, "frame"),
        receipt=receipt,
        sentence=await run_in_threadpool(_sentence, visitor.context.config, receipt, ledger),
        last_change=await run_in_threadpool(_last_change, visitor.context.config, receipt, place.earlier, ledger),
        about=about_request(ledger, stored.record.entry) if ledger else "",
        task=task_title(ledger) if ledger else "",
        balance_words=balance_words(receipt) if receipt else "",
        plan=plan_lines(receipt.plan) if receipt and receipt.plan else [],
        views=VIEWS,
        view=view,
        round=round_number,
        body=body,
        side=side,
        put_away_with=place.put_away_with,
        number=place.number,
        of=place.of,
        before=place.before,
        after=place.after,
        message_path=lambda row: _message_path(row, view, side, stored.record.id, place.before),
        decisions=[_decision(each) for each in (receipt.decisions if receipt else ())],
    )


def _chosen(request: Request, stored: StoredRequest) -> tuple[str, int]:
    view, text = request.query_params.get("view", "diff"), request.query_params.get("round", "")
    if view not in VIEWS:
        raise BadRequest(f"There is no such view; there are {', '.join(VIEWS)}.")
    last = len(stored.sent) - 1
    if not text:
        return view, max(0, last)
    if not (text.isascii() and text.isdigit() and len(text) <= 4 and int(text) <= last):
        raise NotFound(f"There is no round {text[:9]}: this request took {last + 1}. Open it from the request's page.")
    return view, int(text)


async def _ledger_of(visitor: Visitor, stored: StoredRequest) -> Ledger | None:
    if not stored.record.conversation:
        return None
    try:
        return await visitor.memory.ledger_of(visitor.context, visitor.scope, stored.record.conversation)
    except (NotFound, ConversationUnreadable):  # the request is shown all the same
        return None


async def _dialect_of(visitor: Visitor, stored: StoredRequest, ledger: Ledger | None) -> Dialect:
    """The API of the request's bodies, also where the conversation's ledger cannot be read."""
    conversation = ledger.conversation if ledger is not None else None
    with suppress(NotFound):
        conversation = conversation or await find_conversation(
            visitor.context.store, visitor.scope, stored.record.conversation
        )
    return dialect_named(conversation.dialect if conversation else "")


def _frames_by_identity(ledger: Ledger, entry: str) -> Mapping[str, tuple[str, str]]:
    """The frame of each message that the ledger knows, by the message's identity."""
    found: dict[str, tuple[str, str]] = {}
    path_state = path_state_at(ledger, entry)
    for path_entry in path_state.entries:
        message = path_entry.message
        frame = path_state.tree.as_shown.frames.get(frame_id_of(owner_of(path_state, path_entry)))
        if message is not None and frame is not None:
            found.setdefault(message.identity, (frame.id, frame.title))
    return found


def _sentence(config: Config, receipt: Receipt | None, ledger: Ledger | None) -> str:
    """Empty without a receipt, as while the request is being answered."""
    if receipt is None:
        return ""
    if ledger is None:
        return request_sentence(receipt, SentenceFacts())
    tree = newest_path_state(ledger).tree
    return request_sentence(receipt, sentence_facts(ledger, tree, input_price(config, receipt)))


def _last_change(
    config: Config, receipt: Receipt | None, earlier: Sequence[Step], ledger: Ledger | None
) -> tuple[Step, str] | None:
    """The newest of the `earlier` requests that changed the context, and what it changed as a sentence. None for a
    request that was sent as it came, or that changed the context itself."""
    if ledger is None or receipt is None or receipt.status not in CHANGED_STATUSES or not earlier:
        return None
    tree = newest_path_state(ledger).tree

    def changes_of(each: Receipt) -> str:
        return "; ".join(context_changes(each, sentence_facts(ledger, tree, input_price(config, each))))

    if changes_of(receipt):
        return None
    return next(((step, as_sentence(words)) for step in earlier if (words := changes_of(step.receipt))), None)


@dataclass(frozen=True, slots=True)
class RequestPlace:
    """Where a request stands. `number` counts the answered requests of its conversation from 1, 0 where that is not
    known; `before` and `after` are the ids of its neighbours in its thread, or empty. `put_away_with` has the number
    of the request up to this one with which the work of a frame was put away last, by the frame. `earlier` are those
    before this one, the newest first."""

    number: int = 0
    of: int = 0
    before: str = ""
    after: str = ""
    put_away_with: Mapping[str, int] = field(default_factory=dict)
    earlier: Sequence[Step] = ()


async def _place(visitor: Visitor, stored: StoredRequest) -> RequestPlace:
    record = stored.record
    if not record.conversation:
        return RequestPlace()
    store = visitor.context.store
    known = await visitor.memory.requests_of(store, visitor.scope, record.conversation, MAX_REQUESTS)
    steps = await run_in_threadpool(steps_of, known)
    number = next((step.number for step in steps if step.receipt.id == record.id), 0)
    events = ((step.number, event.partition(" ")) for step in steps[:number] for event in step.receipt.events)
    put_away_with = {frame: count for count, (word, _, frame) in events if word in PUTTING_AWAY}
    earlier = [steps[count - 1] for count in sorted({*put_away_with.values()} - {number}, reverse=True)]
    ids = [each.id for each in reversed(known) if each.thread == record.thread]
    at = ids.index(record.id) if record.id in ids else len(ids)
    return RequestPlace(
        number,
        len(steps),
        ids[at - 1] if 0 < at < len(ids) else "",
        ids[at + 1] if at + 1 < len(ids) else "",
        put_away_with,
        earlier[:MAX_EARLIER],
    )


async def _previous_body(visitor: Visitor, request: str) -> bytes:
    if not request:
        return b""
    before = await visitor.context.store.request(visitor.scope, request)
    if before is None:
        return b""
    return b"".join(before.sent[-1].body) if before.sent else b"".join(before.record.body)


def _body_of_view(
    stored: StoredRequest,
    dialect: Dialect,
    chosen: tuple[str, int],
    frames: Mapping[str, tuple[str, str]],
    previous: bytes | None,
) -> ShownBody:
    view, round_number = chosen
    came = b"".join(stored.record.body)
    sent = b"".join(stored.sent[round_number].body) if stored.sent else came if _was_passed_on(stored) else b""
    shown = came if view == "in" else sent
    new = read_messages(shown, dialect)
    compared = {"diff": came, "previous": previous or b""}.get(view)
    old = new if compared is None else read_messages(compared, dialect)
    if new is None or old is None:
        return ShownBody((), 0, None, len(shown), readable=view == "previous" and not previous)
    rows = _single_rows(new) if view in ("in", "up") else diff_rows(old, new)
    usage = _usage_of_round(stored, round_number)
    cached = None
    if usage and view != "in":
        cached = cached_until(new, usage.cached, usage.input, len(shown))
    groups = _groups([_shown(row, frames) for row in rows[:MAX_ROWS]])
    return ShownBody(groups, max(0, len(rows) - MAX_ROWS), cached, len(shown))


def _groups(rows: Sequence[ShownRow]) -> list[RowGroup]:
    def key(numbered: tuple[int, ShownRow]) -> object:
        number, row = numbered
        return (row.frame, "left out") if row.diff.change == "left out" else number

    return [RowGroup([row for _, row in group]) for _, group in groupby(enumerate(rows), key)]


def _single_rows(messages: Sequence[Message]) -> list[DiffRow]:
    return [DiffRow("same", n, n, message, 1, len(message.wire)) for n, message in enumerate(messages)]


def _shown(row: DiffRow, frames: Mapping[str, tuple[str, str]]) -> ShownRow:
    words = word_changes(row.previous.text[:MAX_TEXT], row.message.text[:MAX_TEXT]) if row.previous else ()
    return ShownRow(row, frames.get(row.message.identity), words)


def _was_passed_on(stored: StoredRequest) -> bool:
    """Whether it was sent as it came: no body is stored then but the one that came."""
    receipt = decode_receipt(stored.record)
    return receipt is not None and receipt.rounds > 0 and not stored.sent


def _usage_of_round(stored: StoredRequest, round_number: int) -> Usage | None:
    receipt = decode_receipt(stored.record)
    by_round = receipt.usage_by_round if receipt else ()
    return by_round[round_number] if round_number < len(by_round) else None


def _message_path(row: DiffRow, view: str, side: str, request: str, before: str) -> str:
    """Where the whole message of a row is: that of one that left is in the body it left, another's on this `side`."""
    if row.new is None:
        return f"{request}/messages/in/{row.old}" if view == "diff" else f"{before}/messages/{LAST_ROUND}/{row.old}"
    return f"{request}/messages/{side}/{row.new}"


def balance_words(receipt: Receipt) -> str:
    """Why a request was dearer than untouched; empty for one that was not."""
    if receipt.saved >= 0:
        return ""
    came, sent = receipt.untouched, receipt.sent
    anew = sent.written + sent.uncached - came.written - came.uncached
    causes = []
    if more := receipt.rounds - 1:
        causes.append(f"the model called us, which took {more} more round{'s' if more > 1 else ''}")
    if anew > 0:
        causes.append(f"{anew:,} more tokens were paid in full or written to the cache instead of being read from it")
    if own := receipt.own_tools + receipt.own_texts:
        causes.append(f"{own:,} tokens are our tools and texts")
    return f"Dearer with us: {'; '.join(causes)}." if causes else ""


def _decision(decision: GateDecision) -> dict[str, object]:
    words = {"words": DECISION_WORDS.get(decision.kind, decision.kind), "why": decision_meaning(decision.reason)}
    return {**asdict(decision), **words}


# ----------------------------------------------------------------------------------------------------- parts of a page
async def show_message(request: Request) -> Response:
    """One message of a body, loaded when it is opened."""
    visitor = visitor_of(request)
    stored = await requests.stored_request(visitor.context.store, visitor.scope, request.path_params["request"])
    dialect = await _dialect_of(visitor, stored, await _ledger_of(visitor, stored))
    messages = await run_in_threadpool(read_messages, _raw_body(stored, request.path_params["side"]), dialect)
    position = request.path_params["position"]
    if messages is None or not 0 <= position < len(messages):
        raise NotFound("There is no such message in this body. Open it from the request's page.")
    message = messages[position]
    return render(
        request, "_message.html", message=message, text=message.text[:MAX_TEXT], more=len(message.text) - MAX_TEXT
    )


async def show_raw(request: Request) -> Response:
    """The bytes of a body."""
    visitor = visitor_of(request)
    stored = await requests.stored_request(visitor.context.store, visitor.scope, request.path_params["request"])
    return Response(_raw_body(stored, request.path_params["side"]), media_type="text/plain; charset=utf-8")


def _raw_body(stored: StoredRequest, side: str) -> bytes:
    """`in`, `last`, or the number of a round. Raises NotFound."""
    if side == "in" or (side == LAST_ROUND and not stored.sent):
        return b"".join(stored.record.body)
    if side == LAST_ROUND:
        return b"".join(stored.sent[-1].body)
    if side.isascii() and side.isdigit() and len(side) <= 4 and int(side) < len(stored.sent):
        return b"".join(stored.sent[int(side)].body)
    raise NotFound(f"There is no such round: this request took {len(stored.sent)}. Open it from its page.")


ROUTES = [
    Route("/console/requests/{request}", show),
    Route("/console/requests/{request}/raw/{side}", show_raw),
    Route("/console/requests/{request}/messages/{side}/{position:int}", show_message),
]
