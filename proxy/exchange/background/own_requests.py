"""What the proxy asks a provider on its own account: a summary, or a cache ping. Its receipt and record."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter

import msgspec

from proxy.accounting import Accountant, HashedChain, PromptChain, Receipt, RequestOutcome
from proxy.core.ledger import Usage
from proxy.errors import StoreError
from proxy.store import Body, ConversationCache, Record, RequestRecord, Store
from proxy.telemetry import Metrics
from proxy.upstream import Answer

log = logging.getLogger(__name__)


class Place(msgspec.Struct, frozen=True):
    """What in a conversation a request of our own is for. Holds no content, so deleted content is not kept here."""

    tenant: str
    conversation: str
    thread: str
    mode: str
    entry_id: str
    frame: str
    client: str = ""


@dataclass(kw_only=True)
class OwnRequest:
    """One of them. `kind` is the status of its receipt, `reason` what came of it; `created` is ms since the epoch."""

    id: str
    kind: str
    place: Place
    model: tuple[str, str]
    """Upstream, and the model there."""
    created: int
    started_at: float = field(default_factory=perf_counter)
    status: int = 0
    reason: str = "stopped"
    may_have_been_read: bool = False
    """Whether the provider may have read it: then it costs."""


@dataclass(frozen=True)
class OwnRequests:
    """What they work with. One per process. `now` returns ms since the epoch, `new_id` makes request ids."""

    conversation_cache: ConversationCache
    store: Store
    accountant: Accountant
    metrics: Metrics
    now: Callable[[], int]
    new_id: Callable[[], str]

    def settle(
        self, request: OwnRequest, chain: PromptChain | HashedChain, usage: Usage | None, added_cost: float = 0.0
    ) -> Receipt:
        """The receipt. All of it is our overhead, for without us nothing would have been sent. `added_cost` is USD that
        `usage` does not tell of."""
        place, (upstream, model) = request.place, request.model
        account = self.accountant.open([], (place.tenant, upstream, model))
        account.add_round(chain)
        outcome = RequestOutcome(
            id=request.id,
            conversation=place.conversation,
            thread=place.thread,
            frame=place.frame,
            model=model,
            upstream=upstream,
            mode=place.mode,
            status=request.kind,
            reason=request.reason,
            created=request.created,
            duration_ms=(perf_counter() - request.started_at) * 1000,
            upstream_status=request.status,
            client=place.client,
        )
        settled = account.settle(outcome, [usage])
        cost = settled.cost + added_cost
        receipt = msgspec.structs.replace(
            settled, own_rounds=settled.tokens_sent, cost=cost, cost_untouched=0.0, saved=-cost
        )
        self.metrics.count_own_request(receipt)
        return receipt

    def store_receipt(self, place: Place, receipt: Receipt, others: Sequence[Record] = ()) -> None:
        """In one write with `others`: of a conversation that was deleted meanwhile the store keeps nothing. What cannot
        be stored is logged."""
        try:
            self.store.write(place.tenant, (request_record_of(receipt, place.entry_id), *others))
        except StoreError as error:
            log.warning("receipt not kept", extra={"request": receipt.id, "reason": error.code})


def request_record_of(receipt: Receipt, entry: str, body: Body = ()) -> RequestRecord:
    """`entry`: where the request stands in its conversation."""
    place = (receipt.conversation, receipt.thread, receipt.frame, entry)
    return RequestRecord(receipt.id, *place, receipt.created, receipt.status, msgspec.json.encode(receipt), body)


async def read_bounded(got: Answer, most: int) -> bytes | None:
    """The body of an answer; None where it is longer than `most` bytes."""
    pieces, size = [], 0
    async for chunk in got.chunks():
        pieces.append(chunk)
        size += len(chunk)
        if size > most:
            return None
    return b"".join(pieces)
