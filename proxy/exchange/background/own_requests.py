"""The receipt and record of a request that the proxy sends on its own account: a summary, or a cache ping."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec

from proxy.accounting import Receipt, RequestAccount, RequestOutcome
from proxy.core.ledger import Usage
from proxy.errors import StoreError
from proxy.store import Record, RequestRecord, Store
from proxy.upstream import Answer

log = logging.getLogger(__name__)


async def read_bounded(got: Answer, most: int) -> bytes | None:
    """The body of an answer; None where it is longer than `most` bytes."""
    pieces, size = [], 0
    async for chunk in got.chunks():
        pieces.append(chunk)
        size += len(chunk)
        if size > most:
            return None
    return b"".join(pieces)


def settle_own_request(
    account: RequestAccount, outcome: RequestOutcome, usage: Usage | None, added_cost: float = 0.0
) -> Receipt:
    """All of it is our overhead, for without us nothing would have been sent. `added_cost` is USD that `usage` does not
    tell of."""
    settled = account.settle(outcome, [usage])
    cost = settled.cost + added_cost
    return msgspec.structs.replace(settled, own_rounds=settled.tokens_sent, cost=cost, cost_untouched=0.0, saved=-cost)


def store_own_request(
    store: Store, tenant: str, receipt: Receipt, entry_id: str, others: Sequence[Record] = ()
) -> None:
    """In one write: of a conversation that was deleted meanwhile the store keeps nothing. What cannot be stored is
    logged."""
    row = RequestRecord(
        receipt.id,
        receipt.conversation,
        receipt.thread,
        receipt.frame,
        entry_id,
        receipt.created,
        receipt.status,
        msgspec.json.encode(receipt),
    )
    try:
        store.write(tenant, (row, *others))
    except StoreError as error:
        log.warning("receipt not kept", extra={"request": receipt.id, "reason": error.code})
