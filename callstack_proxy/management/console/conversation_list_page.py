"""`/console/conversations`: the conversations with their titles, clients and states, and a search through titles and
through what finished frames said. Filter, order, period and page stand in the address."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import cast
from urllib.parse import urlencode

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callstack_proxy.management.api import now_ms
from callstack_proxy.management.console.conversation_summaries import ConversationSums
from callstack_proxy.management.console.overview_filter import PERIOD_WORDS, WHOSE, client_options
from callstack_proxy.management.console.rendering import Visitor, render, visitor_of
from callstack_proxy.management.console.running import running_now
from callstack_proxy.management.find_by_id import ConversationUnreadable
from callstack_proxy.management.reports import NO_CLIENT, Period, PeriodName, client_of, read_period
from callstack_proxy.management.views import (
    help_begins,
    is_too_short,
    only_of_client,
    search_frames,
    tells_standing,
    waiting_or_quiet,
)
from proxy.accounting import Receipt
from proxy.auth import name_of_tenant
from proxy.core.ledger import Conversation
from proxy.errors import BadRequest
from proxy.store import RequestRecord

ROWS_PER_PAGE = 40
MAX_SEARCH_RESULTS = 50
MAX_CONVERSATIONS = 10_000
"""The most recently active, among which a filter chooses."""
SORTS = {
    "recent": "last active first",
    "saved": "most saved first",
    "lost": "most lost first",
    "requests": "most requests first",
}
STATES = ("all", "working", "waiting", "quiet", "too short", "passed on", "failed", "stopped")
PASSED_ON = frozenset({"asleep", "off", "shadow", "bypass", "stateless", "side"})
MAX_TITLES_SEARCHED = 100
"""The most recently active conversations of those that could be shown, since a title is read from the conversation."""
RECENT_REQUESTS = 1_000
"""Newest of all, whose clients can be chosen while no filter is set."""


@dataclass(frozen=True, slots=True)
class ListFilter:
    """What the address says. `words` is what is searched for."""

    words: str = ""
    state: str = "all"
    sort: str = "recent"
    period: PeriodName = "all"
    since: str = ""
    until: str = ""
    client: str = ""
    page: int = 1

    @property
    def days(self) -> Period:
        return read_period(self.period, self.since, self.until)

    @property
    def needs_receipts(self) -> bool:
        """Whether more has to be known than which conversations were active last."""
        return bool(self.client) or (self.state, self.sort) != ("all", "recent") or not self.days.is_everything

    def address(self, **changed: object) -> str:
        """The address of the list with this filter, or with one that differs in `changed`. Defaults are left out."""
        wanted, usual = asdict(self) | changed, asdict(ListFilter())
        query = {("q" if name == "words" else name): value for name, value in wanted.items() if value != usual[name]}
        return f"/console/conversations?{urlencode(query)}" if query else "/console/conversations"


@dataclass(frozen=True, slots=True)
class ListedConversation:
    """A row of the list. `begins` says when help begins where the conversation is too short for it. `unreadable` says
    why its title cannot be read; empty where it can."""

    id: str
    sums: ConversationSums
    title: str
    unreadable: str
    client: str
    model: str
    person: str
    state: str
    begins: str


@dataclass(frozen=True, slots=True)
class Standing:
    """What receipts say of a conversation. `newest` is the request that tells how it stands, None where the first is
    under way; `last` is when the newest came, in ms since the epoch."""

    newest: Receipt | None
    last: int
    requests: int
    saved: float


async def show(request: Request) -> Response:
    visitor, chosen = visitor_of(request), _read_filter(request)
    store, scope = visitor.context.store, visitor.scope
    running = {each.conversation: each for each in running_now(visitor.context, scope)}
    working = frozenset(running)
    first = (chosen.page - 1) * ROWS_PER_PAGE
    meaning_of = visitor.context.meaning_of
    hits = (
        await search_frames(store, scope, chosen.words, MAX_SEARCH_RESULTS, meaning_of=meaning_of)
        if chosen.words
        else None
    )
    if chosen.needs_receipts:
        everything = await visitor.memory.load_receipts(store, scope, chosen.days)
        clients = client_options(map(client_of, everything.receipts), chosen.client)
        standings = await run_in_threadpool(standings_of, only_of_client(everything, chosen.client).receipts)
        if not chosen.client and chosen.days.starts_ms <= now_ms() < chosen.days.ends_ms:
            standings = {each: Standing(None, now_ms(), 1, 0.0) for each in sorted(working)} | dict(standings)
        known = {each.id: each for each in await store.recently_active(scope, MAX_CONVERSATIONS)}
        found = _chosen([known[each] for each in standings if each in known], standings, chosen, working)
    else:
        newest = await store.requests(scope, "", RECENT_REQUESTS)
        clients = client_options(await run_in_threadpool(_clients_in, newest), "")
        most = MAX_CONVERSATIONS if hits else first + ROWS_PER_PAGE + 1
        found = list(await store.recently_active(scope, most))
    if hits:
        found = await _with_words(visitor, found, chosen.words, {hit["conversation"] for hit in hits["frames"]})
    shown, has_more = found[first : first + ROWS_PER_PAGE], len(found) > first + ROWS_PER_PAGE
    return render(
        request,
        "conversations.html",
        rows=await asyncio.gather(*(_listed(visitor, each, working) for each in shown)),
        found=hits,
        chosen=chosen,
        sorts=SORTS,
        states=STATES,
        periods=PERIOD_WORDS,
        clients=clients,
        has_more=has_more,
        running=running,
        working_elsewhere=len(working - {each.id for each in shown}),
        done=request.query_params.get("done", ""),
    )


async def _with_words(
    visitor: Visitor, found: Sequence[Conversation], words: str, with_hits: Collection[str]
) -> list[Conversation]:
    """Those whose title has all the words, or in which a finished frame was found; in the order of `found`."""
    wanted, store = words.casefold().split(), visitor.context.store
    chosen = []
    for number, each in enumerate(found):
        is_looked_at = each.id not in with_hits and number < MAX_TITLES_SEARCHED
        title = await visitor.memory.summaries.title_or_id(store, each.tenant, each.id) if is_looked_at else ""
        if each.id in with_hits or (title and all(word in title.casefold() for word in wanted)):
            chosen.append(each)
    return chosen


class _Program(msgspec.Struct):
    """What is asked of a stored receipt for the choice of clients."""

    client: str = ""


_decode_program = msgspec.json.Decoder(_Program).decode


def _clients_in(records: Iterable[RequestRecord]) -> list[str]:
    """The client of each answered request."""
    return [_decode_program(record.receipt).client or NO_CLIENT for record in records if record.receipt != b"{}"]


def _read_filter(request: Request) -> ListFilter:
    """Raises BadRequest for an order, a state, a period or a page that there is not."""
    params = request.query_params
    sort, state = params.get("sort") or "recent", params.get("state") or "all"
    if sort not in SORTS or state not in STATES:
        raise BadRequest("There is no such order or filter; choose one of those in the lists of the page.")
    since, until = params.get("since", ""), params.get("until", "")
    period = "" if since or until else params.get("period", "")
    read_period(period, since, until)
    words, client = params.get("q", "").strip(), params.get("client", "")
    page = page_number(params.get("page", "1"))
    return ListFilter(words, state, sort, cast(PeriodName, period or "all"), since, until, client, page)


def page_number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 6 and int(text) > 0):
        raise BadRequest("A page is a number from 1. Leave it out for the first.")
    return int(text)


def standings_of(receipts: Iterable[Receipt]) -> Mapping[str, Standing]:
    """By conversation. `receipts` are the oldest first."""
    found: dict[str, Standing] = {}
    for receipt in receipts:
        if receipt.conversation:
            before = found.get(receipt.conversation)
            count, saved = (before.requests, before.saved) if before else (0, 0.0)
            newest = receipt if before is None or tells_standing(receipt) else before.newest
            found[receipt.conversation] = Standing(newest, receipt.created, count + 1, saved + receipt.saved)
    return found


def _chosen(
    known: Sequence[Conversation], standings: Mapping[str, Standing], chosen: ListFilter, working: frozenset[str]
) -> list[Conversation]:
    def standing(each: Conversation) -> Standing:
        return standings[each.id]

    found = [
        each
        for each in known
        if chosen.state in ("all", state_of(each, standing(each).newest, standing(each).last, each.id in working))
    ]
    keys = {
        "recent": lambda each: -standing(each).last,
        "saved": lambda each: -standing(each).saved,
        "lost": lambda each: standing(each).saved,
        "requests": lambda each: -standing(each).requests,
    }
    return sorted(found, key=keys[chosen.sort])


def state_of(conversation: Conversation, newest: Receipt | None, last: int, is_working: bool) -> str:  # noqa: FBT001
    """One of `STATES`. `newest` is the request that tells how the conversation stands; `last`, in ms since the epoch,
    is when it was last active."""
    if conversation.is_stopped:
        return "stopped"
    if is_working:
        return "working"
    if newest is None or newest.status not in (*PASSED_ON, "error"):
        return waiting_or_quiet(last, now_ms())
    if newest.status == "error":
        return "failed" if tells_standing(newest) else waiting_or_quiet(last, now_ms())
    return "too short" if is_too_short(newest) else "passed on"


async def _listed(visitor: Visitor, conversation: Conversation, working: frozenset[str]) -> ListedConversation:
    context, tenant, summaries = visitor.context, conversation.tenant, visitor.memory.summaries
    title, unreadable = "", ""
    try:
        title = await summaries.title(context.store, tenant, conversation.id)
    except ConversationUnreadable as error:
        unreadable = str(error)
    sums = await summaries.sums_of(context.store, conversation)
    shows_person = visitor.scope is None and context.config.tenancy in WHOSE
    return ListedConversation(
        conversation.id,
        sums,
        title,
        unreadable,
        client_of(sums.newest) if sums.newest and sums.newest.client else "",
        sums.newest.model if sums.newest else "",
        name_of_tenant(tenant) if shows_person else "",
        state_of(conversation, sums.newest, sums.last_active, conversation.id in working),
        help_begins(sums.newest, context.config.wake_at_tokens),
    )


ROUTES = [Route("/console/conversations", show)]
