"""The lines at the top of the overview: what was saved this week, what runs now, what was worked on last, who used the
proxy most, and what there is to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import UTC, datetime

from starlette.concurrency import run_in_threadpool

from callstack_proxy.management import find_by_id
from callstack_proxy.management.api import ApiContext
from callstack_proxy.management.console.overview_filter import WHOSE
from callstack_proxy.management.console.rendering import Visitor
from callstack_proxy.management.console.running import Running, running_now
from callstack_proxy.management.reports import (
    ReceiptTotals,
    dearer_conversations,
    plan_part_words,
    plan_words,
    read_period,
    reason_meaning,
    sum_receipts,
)
from callstack_proxy.management.views import LoadedReceipts, only_dollars_paid, truncate_line
from proxy.accounting import Receipt
from proxy.auth import days_since_1970, name_of_tenant
from proxy.errors import NotFound
from proxy.store import UsageRecord

MAX_STOPPED = 200
"""Conversations, the most recently active, among which those that a person has stopped are looked for."""
NAMED = 3
"""Conversations or models that are named in a line; an overview shows how many more there are."""
WEEK_DAYS = 7
MIN_FAILURES = 3
"""Newest requests in a row that failed, all of them, before somebody has to look."""


@dataclass(frozen=True, slots=True)
class Advice:
    """Something to do, and the page where it is done; `link` is empty where there is none."""

    words: str
    link: str = ""
    link_words: str = ""


@dataclass(frozen=True, slots=True)
class TenantUse:
    """What a client key, a user or a credential used. `share` is of all that was paid, in percent; None for nothing."""

    tenant: str
    name: str
    used: UsageRecord
    share: float | None


async def find_used_most(visitor: Visitor) -> Sequence[TenantUse]:
    """Who used the proxy in the last seven days (UTC), the most money first; empty where there is but one tenant, or
    for a visitor who may see only one."""
    context = visitor.context
    if visitor.scope is not None or context.config.tenancy not in WHOSE:
        return ()
    by_tenant: dict[str, UsageRecord] = {}
    today = days_since_1970(datetime.now(UTC))
    for tenant, used in await context.store.usage_days(None, today - WEEK_DAYS + 1):
        by_tenant[tenant] = by_tenant.get(tenant, UsageRecord(0)).plus(used)
    paid = sum(used.cost for used in by_tenant.values())
    uses = [
        TenantUse(tenant, name_of_tenant(tenant), used, 100 * used.cost / paid if paid else None)
        for tenant, used in by_tenant.items()
    ]
    return sorted(uses, key=lambda each: (-each.used.cost, -each.used.tokens, each.name))


@dataclass(frozen=True, slots=True)
class NewestWork:
    """A conversation that is at rest. `asked` is when its newest request came, in ms since the epoch."""

    conversation: str
    title: str
    asked: int


@dataclass(frozen=True, slots=True)
class Answers:
    """`week` covers the last seven days, `plan` says what they took where a plan pays for all (else empty), `plan_part`
    for which part of it one paid where that is not all, `dearer` are the week's conversations that cost more with the
    proxy than without."""

    week: ReceiptTotals
    plan: str
    plan_part: str
    conversations: int
    dearer: Sequence[ReceiptTotals]
    running: Sequence[Running]
    newest: Sequence[NewestWork]
    to_do: Sequence[Advice]
    titles: Mapping[str, str]
    """Of those of `dearer` that are told by name, by id."""


async def find_answers(visitor: Visitor, loaded: LoadedReceipts | None) -> Answers:
    """`loaded`: the receipts of the visitor from all time, if they are at hand."""
    context, scope, week = visitor.context, visitor.scope, read_period("week")
    receipts = only_dollars_paid(loaded or await visitor.memory.load_receipts(context.store, scope, week)).receipts
    since = week.starts_ms
    of_week = [each for each in receipts if each.created >= since]
    dearer = await run_in_threadpool(dearer_conversations, of_week)
    running = running_now(context, scope)
    return Answers(
        await run_in_threadpool(sum_receipts, of_week),
        await run_in_threadpool(plan_words, of_week),
        await run_in_threadpool(plan_part_words, of_week),
        len({receipt.conversation for receipt in of_week} - {""}),
        dearer,
        running,
        await _newest_work(visitor, of_week, {row.conversation for row in running}),
        await _to_do(context, visitor, of_week),
        {row.key: await _title_of(visitor, row.key) for row in dearer[:NAMED]},
    )


async def _newest_work(visitor: Visitor, receipts: Sequence[Receipt], running: Set[str]) -> list[NewestWork]:
    """The newest first; what runs has a line of its own."""
    asked = await run_in_threadpool(_last_asked, receipts)
    newest = sorted(asked.keys() - running, key=lambda conversation: -asked[conversation])[:NAMED]
    return [NewestWork(each, await _title_of(visitor, each), asked[each]) for each in newest]


def _last_asked(receipts: Sequence[Receipt]) -> dict[str, int]:
    """When the newest request of each conversation came, in ms since the epoch."""
    asked: dict[str, int] = {}
    for receipt in receipts:
        asked[receipt.conversation] = max(receipt.created, asked.get(receipt.conversation, 0))
    asked.pop("", None)
    return asked


async def _title_of(visitor: Visitor, conversation: str) -> str:
    """The beginning of its id where it cannot be read, or was deleted."""
    store = visitor.context.store
    try:
        tenant = await find_by_id.tenant_of_conversation(store, visitor.scope, conversation)
    except NotFound:
        return conversation[:12]
    return truncate_line(await visitor.memory.summaries.title_or_id(store, tenant, conversation), 60)


async def _to_do(context: ApiContext, visitor: Visitor, receipts: Sequence[Receipt]) -> list[Advice]:
    """Empty for nothing. The most pressing first."""
    found: list[Advice] = []
    if (trouble := context.store.write_error()) is not None:
        found.append(Advice(f"The store takes nothing new: {trouble}.", "/console/operation", "Look at the store"))
    if (failing := _failing(receipts)) is not None:
        words = f"The newest requests failed: {reason_meaning(failing.reason)}. Look whether the provider is there."
        found.append(Advice(words, f"/console/requests/{failing.id}", "Open the newest"))
    recent = await context.store.recently_active(visitor.scope, MAX_STOPPED)
    if stopped := [each.id for each in recent if each.is_stopped]:
        titles = [await _title_of(visitor, each) for each in stopped[:NAMED]]
        found.append(_stopped_advice(stopped, titles))
    models = sorted({each.model for each in receipts if not each.priced and each.model})
    if models:
        named = ", ".join(models[:NAMED])
        words = f"No price is known for {named}, so its figures are guesses. Set tariffs in proxy.yaml."
        found.append(Advice(words))
    return found


def _stopped_advice(stopped: Sequence[str], titles: Sequence[str]) -> Advice:
    named = ", ".join(f"“{title}”" for title in titles) + (", …" if len(stopped) > len(titles) else "")
    if len(stopped) == 1:
        words = f"An agent is stopped ({named}): its requests are refused until you resume it."
        return Advice(words, f"/console/conversations/{stopped[0]}", "Go there to resume")
    words = f"{len(stopped)} agents are stopped ({named}): their requests are refused until you resume them."
    return Advice(words, "/console/conversations?state=stopped", "Go there to resume")


def _failing(receipts: Sequence[Receipt]) -> Receipt | None:
    """The newest request, if the last few all failed by no person's wish."""
    newest = receipts[-MIN_FAILURES:]
    failed = [each for each in newest if each.status == "error" and each.reason.startswith("upstream")]
    return newest[-1] if len(failed) == MIN_FAILURES else None
