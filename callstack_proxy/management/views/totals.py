"""Sums receipts by day, model, client, frame and so on, with titles for the rows, and compares sessions that were held
out with the others. Requests in flight have no receipt and are counted apart. Days are those of this machine's time
zone, which the answer names."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import msgspec

from callstack_proxy.management import find_by_id
from callstack_proxy.management.find_by_id import all_conversations
from callstack_proxy.management.reports import (
    ALL_TIME,
    GroupBy,
    Period,
    Proof,
    ReceiptTotals,
    SessionCounts,
    WorkCounts,
    client_of,
    compare_groups,
    count_work,
    dearer_conversations,
    group_receipts,
    is_in_project,
    sum_receipts,
    without_fixed,
    without_plan_prices,
)
from callstack_proxy.management.views.schemas import ProofView, Totals
from proxy.accounting import HELD_OUT, OWN_REQUEST_STATUSES, Receipt
from proxy.core.ledger import Conversation, Ledger
from proxy.core.observers import ToolRoles
from proxy.core.recall import RereadCount, count_rereads
from proxy.store import RequestRecord, Store, TenantScope

MAX_RECEIPTS = 100_000
"""The newest receipts that are summed."""
INTERRUPTED_REASONS = frozenset({"client_left", "cancelled"})
"""How a request ends that the user stopped."""


@dataclass(frozen=True, slots=True)
class LoadedReceipts:
    """Receipts, oldest first. `unsettled` requests have no readable receipt; `capped`: older receipts exist."""

    receipts: list[Receipt]
    unsettled: int
    capped: bool
    entries: dict[str, str]
    """The last entry of each request, by request id."""


@dataclass(frozen=True, slots=True)
class ReceiptSums:
    """Rows in order of first appearance, and the grand total."""

    rows: tuple[ReceiptTotals, ...]
    total: ReceiptTotals


@dataclass(frozen=True, slots=True)
class _ConversationDetails:
    """Titles and statuses of frames and conversations by id, and re-reads by request id."""

    titles: dict[str, tuple[str, str]] = field(default_factory=dict)
    rereads: dict[str, RereadCount] = field(default_factory=dict)


def only_of_client(loaded: LoadedReceipts, client: str) -> LoadedReceipts:
    """The receipts of one client's requests; all for an empty name. What has no receipt names no client."""
    if not client:
        return loaded
    return replace(loaded, receipts=[each for each in loaded.receipts if client_of(each) == client], unsettled=0)


def only_of_project(loaded: LoadedReceipts, project: Collection[str]) -> LoadedReceipts:
    """The receipts of the folder that has one of these names, and those below it; all without a name. What has no
    receipt names no folder."""
    if not project:
        return loaded
    inside = [each for each in loaded.receipts if is_in_project(each.project, project)]
    return replace(loaded, receipts=inside, unsettled=0)


def only_dollars_paid(loaded: LoadedReceipts) -> LoadedReceipts:
    """The same without the list prices of what a plan paid for."""
    return replace(loaded, receipts=[without_plan_prices(each) for each in loaded.receipts])


async def load_receipts(  # noqa: PLR0913  whose receipts, and which of them
    store: Store,
    scope: TenantScope,
    conversation: str = "",
    *,
    fixed: bool = True,
    limit: int = MAX_RECEIPTS,
    period: Period = ALL_TIME,
) -> LoadedReceipts:
    """The newest receipts of the period. `fixed=False` subtracts the client's tools and system text."""
    records = await store.requests(scope, conversation, limit)
    return await asyncio.to_thread(_decode_receipts, records, limit, period, fixed=fixed)  # so many take seconds


def _decode_receipts(newest: Sequence[RequestRecord], limit: int, period: Period, *, fixed: bool) -> LoadedReceipts:
    since, until = period.starts_ms, period.ends_ms
    records = [record for record in newest if since <= record.created < until]
    are_older_left_out = len(newest) == limit and newest[-1].created >= since
    settled = [(record, receipt) for record in reversed(records) if (receipt := decode_receipt(record)) is not None]
    receipts = [receipt for _, receipt in settled]
    adjusted = receipts if fixed else [without_fixed(receipt) for receipt in receipts]
    entries = {receipt.id: record.entry for record, receipt in settled}
    return LoadedReceipts(adjusted, len(records) - len(receipts), are_older_left_out, entries)


def decode_receipt(record: RequestRecord) -> Receipt | None:
    """None while the request is in flight."""
    try:
        return msgspec.json.decode(record.receipt, type=Receipt)
    except msgspec.MsgspecError:
        return None


async def totals_view(  # noqa: PLR0913  whose receipts, which of them, and how they are told
    store: Store,
    scope: TenantScope,
    by: GroupBy,
    conversation: str = "",
    *,
    names: ToolRoles,
    fixed: bool = True,
    client: str = "",
    project: Collection[str] = (),
    period: Period = ALL_TIME,
) -> Totals:
    """The response of `/stack/totals`. `names` says which tools read files."""
    loaded = only_of_client(await load_receipts(store, scope, conversation, fixed=fixed, period=period), client)
    loaded = only_of_project(loaded, project)
    sums = await sum_receipts_by(store, scope, by, loaded, names)
    return {
        "by": by,
        "fixed": fixed,
        "zone": local_zone(),
        "rows": list(sums.rows),
        "total": sums.total,
        "dearer": [row.key for row in await asyncio.to_thread(dearer_conversations, loaded.receipts)],
        "unsettled": loaded.unsettled,
        "capped": loaded.capped,
    }


async def sum_receipts_by(
    store: Store, scope: TenantScope, by: GroupBy, loaded: LoadedReceipts, names: ToolRoles
) -> ReceiptSums:
    """Sums with titles, frame statuses and re-reads. A request's title is its time and that of its frame. Deleted
    conversations have no titles."""
    has_titles = by in ("conversation", "frame", "request")
    details = await _conversation_details(store, scope, loaded, names) if has_titles else None
    return await asyncio.to_thread(_sum_rows, by, loaded, details)


def _sum_rows(by: GroupBy, loaded: LoadedReceipts, details: _ConversationDetails | None) -> ReceiptSums:
    if details is None:
        return ReceiptSums(group_receipts(loaded.receipts, by, zone=None), sum_receipts(loaded.receipts))
    rows = group_receipts(loaded.receipts, by, again=details.rereads)
    for row, receipt in zip(rows, loaded.receipts, strict=True) if by == "request" else ():
        frame = details.titles.get(receipt.frame, ("", ""))[0]
        row.title, row.status = f"{local_time(receipt.created)} {frame}".rstrip(), receipt.status
    for row in rows if by != "request" else ():
        row.title, row.status = details.titles.get(row.key, ("", ""))
    return ReceiptSums(rows, sum_receipts(loaded.receipts, again=details.rereads))


async def _conversation_details(
    store: Store, scope: TenantScope, loaded: LoadedReceipts, names: ToolRoles
) -> _ConversationDetails:
    wanted: dict[str, list[Receipt]] = {}
    for receipt in loaded.receipts:
        wanted.setdefault(receipt.conversation, []).append(receipt)
    details = _ConversationDetails()
    async for conversation in all_conversations(store, scope):
        if conversation.id not in wanted:
            continue
        try:
            with find_by_id.translate_read_errors(conversation.id):
                ledger = await store.load(conversation.tenant, conversation.id)
                if ledger is not None:
                    # A fifth of a second for a thousand reads: requests that are being answered do not wait for it.
                    details.titles.update(await asyncio.to_thread(_titles, ledger))
                    receipts = wanted[conversation.id]
                    details.rereads.update(
                        await asyncio.to_thread(_rereads_by_request, ledger, receipts, loaded.entries, names)
                    )
        except find_by_id.ConversationUnreadable:  # what it cost is told all the same
            details.titles[conversation.id] = (find_by_id.UNREADABLE_TITLE, "")
    return details


def _titles(ledger: Ledger) -> dict[str, tuple[str, str]]:
    tree = find_by_id.newest_path_state(ledger).tree
    root = find_by_id.root_of(tree)
    frames = {frame.id: (frame.title, frame.status.value) for frame in tree.as_shown.frames.values()}
    return {**frames, ledger.conversation.id: (root.title if root else "", "")}


def _rereads_by_request(
    ledger: Ledger, receipts: Iterable[Receipt], entries: Mapping[str, str], names: ToolRoles
) -> dict[str, RereadCount]:
    """By request id. Of requests that ended with the same entry only the newest counts; the others were retried."""
    newest = {entries[receipt.id]: receipt for receipt in receipts if receipt.status not in OWN_REQUEST_STATUSES}
    ours = {entry for entry, receipt in newest.items() if receipt.status == "full"}
    counts = count_rereads(ledger, ours, names)
    return {receipt.id: counts[entry] for entry, receipt in newest.items() if entry in counts}


def local_time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def local_zone() -> str:
    """This machine's time zone, such as `CET (UTC+01:00)`."""
    now = datetime.now().astimezone()
    offset = now.strftime("%z")
    return f"{now.tzname()} (UTC{offset[:3]}:{offset[3:5]})" if now.utcoffset() else "UTC"


# ---------------------------------------------------------------------------------------------------------- held out
class _Work(msgspec.Struct, frozen=True):
    """What the ledger of one conversation tells."""

    counts: WorkCounts
    rereads: int
    has_tools: bool


async def proof_view(store: Store, scope: TenantScope, names: ToolRoles, period: Period = ALL_TIME) -> ProofView:
    """The response of `/stack/proof`: sessions that were held out against the others.

    A session is a conversation with its subagents and forks, and with others of the same session of the client. It
    counts where all its requests belong to one group: what began before `holdout` was set, or whose mode a person
    chose, does not. It counts whole where its first request lies in the period, and else not at all. Conversations
    without tools are left out, since nothing can be folded there. `names` says which tools read and edit files."""
    found, capped = await compare_sessions(store, scope, names, period)
    return {
        "folded": found.folded,
        "held_out": found.held_out,
        "measures": found.measures,
        "sentences": list(found.sentences),
        "capped": capped,
    }


async def compare_sessions(
    store: Store, scope: TenantScope, names: ToolRoles, period: Period = ALL_TIME, limit: int = MAX_RECEIPTS
) -> tuple[Proof, bool]:
    """The comparison, and whether older sessions of the period are left out, since only the newest requests are read.

    The ledger tells of a whole session, so its requests are counted whole too."""
    loaded = await load_receipts(store, scope, limit=limit)
    oldest = loaded.receipts[0].created if loaded.capped and loaded.receipts else float("-inf")
    receipts: dict[str, list[Receipt]] = {}
    for receipt in loaded.receipts:
        receipts.setdefault(receipt.conversation, []).append(receipt)
    known = {one.id: one async for one in all_conversations(store, scope)}
    sessions: list[SessionCounts] = []
    for session, members in _sessions(known).items():
        mine = [receipt for member in members for receipt in receipts.get(member.id, ())]
        group = _group_of(mine)
        if not group or not period.starts_ms <= min(receipt.created for receipt in mine) < period.ends_ms:
            continue
        if min(member.created for member in members) <= oldest:  # its first requests may not have been read
            continue
        asked = [member for member in members if member.id in receipts]
        work = [done for member in asked if (done := await _work_of(store, member, names)) is not None]
        if any(done.has_tools for done in work):
            sessions.append(_counts_of(session, group, mine, work))
    return await asyncio.to_thread(compare_groups, sessions), loaded.capped and oldest >= period.starts_ms


def _sessions(known: Mapping[str, Conversation]) -> dict[tuple[str, str], list[Conversation]]:
    """The conversations, by the session they belong to."""
    found: dict[tuple[str, str], list[Conversation]] = {}
    for conversation in known.values():
        root = _root_of(known, conversation)
        found.setdefault((root.tenant, root.hint or root.id), []).append(conversation)
    return found


def _root_of(known: Mapping[str, Conversation], conversation: Conversation) -> Conversation:
    seen = {conversation.id}
    while (parent := known.get(conversation.parent)) is not None and parent.id not in seen:
        conversation = parent
        seen.add(parent.id)
    return conversation


def _group_of(receipts: Iterable[Receipt]) -> str:
    """Empty where the session is in none, or not wholly in one."""
    groups = {receipt.group for receipt in receipts if receipt.status not in OWN_REQUEST_STATUSES}
    return groups.pop() if len(groups) == 1 else ""


async def _work_of(store: Store, conversation: Conversation, names: ToolRoles) -> _Work | None:
    try:
        ledger = await find_by_id.load_ledger(store, conversation)
    except find_by_id.ConversationUnreadable:
        return None
    return await asyncio.to_thread(_read_work, ledger, names) if ledger else None


def _read_work(ledger: Ledger, names: ToolRoles) -> _Work:
    rereads = sum(count.total for count in count_rereads(ledger, frozenset(), names).values())
    has_tools = any(thread.tool_names for thread in ledger.threads.values())
    return _Work(count_work(ledger, names), rereads, has_tools)


def _counts_of(
    session: tuple[str, str], group: str, receipts: Sequence[Receipt], work: Sequence[_Work]
) -> SessionCounts:
    counts = [done.counts for done in work]
    cut_off = sum(receipt.reason in INTERRUPTED_REASONS for receipt in receipts)
    return SessionCounts(
        session="\0".join(session),
        held_out=group == HELD_OUT,
        requests=sum(receipt.status not in OWN_REQUEST_STATUSES for receipt in receipts),
        cost=sum(receipt.cost for receipt in receipts),
        # Where a plan paid for all that cost anything.
        plan_cost=sum(r.plan.cost for r in receipts if r.plan) if all(r.plan for r in receipts if r.cost) else 0.0,
        tokens=sum(receipt.tokens_sent + receipt.usage.output for receipt in receipts),
        rereads=sum(done.rereads for done in work),
        edits=sum(one.edits for one in counts),
        failed_edits=sum(one.failed_edits for one in counts),
        retries=sum(one.retries for one in counts),
        interruptions=max(cut_off, sum(one.interruptions for one in counts)),  # most clients tell of one in both ways
    )
