"""Receipts added up by request, frame, conversation, model, day, client or project.

The sum over the rows is the sum over the receipts; only what folds caused is above a rate, which single rows may not
be. `without_fixed` leaves out the client's tools and system text on
both sides at the same price, so that no saving changes. Days are in the time zone that the caller passes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from operator import attrgetter
from pathlib import PurePosixPath, PureWindowsPath
from typing import Literal

import msgspec

from callstack_proxy.management.reports.read_again import ReadAgain
from proxy.accounting import ANSWERED_STATUS, OWN_REQUEST_STATUSES, CacheUse, PlanCost, Receipt, RequestAmounts
from proxy.core.ledger import Usage
from proxy.core.recall import RereadCount

GroupBy = Literal["request", "frame", "conversation", "model", "day", "client", "project"]
NO_FRAME = "(no frame)"
NO_CLIENT = "(unnamed)"
NO_PROJECT = "(not told)"
"""Stands for the folder of agents that tell none."""
NAMELESS_WORDS = {NO_CLIENT: "unknown client", NO_PROJECT: "unknown folder", NO_FRAME: "in no frame"}
"""What people read in place of the keys of rows for what names nothing."""
EVEN_SHARE = 0.001
"""A conversation is dearer from this share of its untouched cost on."""


class Balance(msgspec.Struct, kw_only=True, gc=False):
    """The money of many receipts: USD. `saved` is after what folds caused, and negative for a loss."""

    cost: float = 0.0
    cost_untouched: float = 0.0
    saved: float = 0.0
    cost_caused: float = 0.0

    @property
    def saved_percent(self) -> float | None:
        return percent_saved(self.saved, self.cost_untouched)


class _Amounts(Balance, kw_only=True, gc=False):
    """What is asked of a stored receipt for a balance; a single one does not tell what folds caused."""

    status: str = ""
    plan: PlanCost | None = None
    rereads: int = 0
    rereads_gone: int = 0
    cost_rereads: float = 0.0


def percent_saved(saved: float, untouched: float) -> float | None:
    """What was saved in percent of what the untouched run would have cost; None where that is nothing."""
    return round(100 * saved / untouched, 2) if untouched else None


def sum_balances(receipts: Iterable[bytes]) -> Balance:
    """The balance of stored receipts. Those of requests that are still being answered count nothing, nor do list prices
    of what a plan paid for."""
    total, again = Balance(), ReadAgain()
    for raw in receipts:
        try:
            part = _decode_amounts(raw)
        except msgspec.MsgspecError:
            continue
        if part.plan is not None:
            continue
        total.cost += part.cost
        total.cost_untouched += part.cost_untouched
        total.saved += part.saved
        again.add(part.status, part.rereads, part.rereads_gone, part.cost_rereads)
    total.cost_caused = again.cost_caused
    total.saved -= total.cost_caused
    return total


_decode_amounts = msgspec.json.Decoder(_Amounts).decode


class ReceiptTotals(RequestAmounts, frozen=False, kw_only=True):  # type: ignore[misc]  # sums grow, receipts do not
    """Receipts added up under one key. Tokens of ours unless they are reported; money is USD."""

    key: str
    title: str = ""
    """What the key is called: of a conversation or a frame its title, of a request when it came."""
    status: str = ""
    """Of a frame, how it stands; of a request, how it was answered."""
    requests: int = 0
    recalls: int = 0
    rereads: int | None = None
    """Files read that had been read before; None where that was not looked up."""
    rereads_gone: int | None = None
    """Of `rereads`, those of what we had taken out of the context."""
    rereads_gone_by: dict[str, int] | None = None
    """The same by the tool that asked."""
    untouched_cached: int = 0
    """How the cache would have taken `tokens_in`; `sent_*` is how it took `tokens_sent`, as estimated."""
    untouched_written: int = 0
    untouched_uncached: int = 0
    sent_cached: int = 0
    sent_written: int = 0
    sent_uncached: int = 0
    own: int = 0
    """Our tools, texts and hidden rounds, in tokens; contained in `tokens_sent`."""
    lost_reasoning: int = 0
    """Reasoning that had to be left out; the model may think it again."""
    peak_in: int = 0
    peak_sent: int = 0
    """The fullest single request, with everything in it."""
    reported: int = 0
    """Requests of which the provider told the usage of every round; `reported_sent` is what we counted for these."""
    reported_sent: int = 0
    reported_input: int = 0
    reported_output: int = 0
    reported_cached: int = 0
    reported_written: int = 0
    saved_percent: float | None = None
    """Of `cost_untouched`, negative for a loss; None where the untouched run cost nothing."""
    read_again: ReadAgain = msgspec.field(default_factory=ReadAgain)
    caused: float = 0.0
    """Files read again because their text had left, above the rate at which agents do so where nothing left."""
    cost_caused: float = 0.0
    """What these took of `cost_untouched`."""
    saved_after: float = 0.0
    """`saved` less `cost_caused`: what sentences tell as saved."""
    saved_after_percent: float | None = None
    estimated: int = 0
    """Requests whose cost is an estimate."""
    by_plan: int = 0
    """Requests that a plan paid for; `by_plan_cost` and `by_plan_untouched` are their list prices in the sums above."""
    by_plan_cost: float = 0.0
    by_plan_untouched: float = 0.0
    unpriced: int = 0
    """Requests whose model is in no table."""
    output_unpriced: int = 0
    """Requests whose model is in a table without a price of its output, which counts as free."""

    def add(self, receipts: Sequence[Receipt]) -> None:
        for name, amount in _AMOUNT_BY_NAME.items():
            setattr(self, name, getattr(self, name) + sum(map(amount, receipts)))
        self.saved_percent = percent_saved(self.saved, self.cost_untouched)
        for receipt in receipts:
            self.read_again.add(receipt.status, receipt.rereads, receipt.rereads_gone, receipt.cost_rereads)
        self.set_caused(self.read_again.caused, self.read_again.cost_caused)
        self.peak_in = max((self.peak_in, *(each.tokens_in for each in receipts)))
        self.peak_sent = max((self.peak_sent, *(each.tokens_last for each in receipts)))

    def set_caused(self, times: float, cost: float) -> None:
        """What folds caused, in USD."""
        self.caused, self.cost_caused, self.saved_after = times, cost, self.saved - cost
        self.saved_after_percent = percent_saved(self.saved_after, self.cost_untouched)

    def add_rereads(self, again: RereadCount) -> None:
        self.rereads = (self.rereads or 0) + again.total
        self.rereads_gone = (self.rereads_gone or 0) + again.of_removed
        self.rereads_gone_by = dict(Counter(self.rereads_gone_by or {}) + Counter(again.tools))


def _is_request(receipt: Receipt) -> bool:
    return receipt.status not in OWN_REQUEST_STATUSES


def _has_full_usage(receipt: Receipt) -> bool:
    return (bool(receipt.rounds) or receipt.status == ANSWERED_STATUS) and None not in receipt.usage_by_round


_AMOUNT_BY_NAME: Mapping[str, Callable[[Receipt], float]] = {
    **{name: attrgetter(name) for name in (*RequestAmounts.__struct_fields__, "recalls", "lost_reasoning")},
    **{
        f"{of}_{how}": attrgetter(f"{of}.{how}")
        for of in ("untouched", "sent")
        for how in ("cached", "written", "uncached")
    },
    **{f"reported_{what}": attrgetter(f"usage.{what}") for what in ("input", "output", "cached", "written")},
    "requests": _is_request,
    "own": lambda r: r.own_tools + r.own_texts + r.own_rounds,
    "reported": lambda r: _is_request(r) and _has_full_usage(r),
    "reported_sent": lambda r: r.tokens_sent if _has_full_usage(r) else 0,
    "by_plan": lambda r: r.plan is not None and _is_request(r),
    "by_plan_cost": lambda r: r.cost if r.plan else 0.0,
    "by_plan_untouched": lambda r: r.cost_untouched if r.plan else 0.0,
    "estimated": lambda r: r.basis == "estimated" and r.cost > 0 and _is_request(r),
    "unpriced": lambda r: not r.priced and _is_request(r) and r.status != ANSWERED_STATUS,
    "output_unpriced": lambda r: r.priced and not r.output_priced and _is_request(r) and r.status != ANSWERED_STATUS,
}
"""What a receipt adds to each sum."""


def day_of(created: int, zone: tzinfo | None) -> str:
    """The day of a time in ms since 1970, as YYYY-MM-DD. `zone` None: this machine's, summer time as it was then."""
    return datetime.fromtimestamp(created / 1000, zone).date().isoformat()


def client_of(receipt: Receipt) -> str:
    """The client's program, under one name for all that name none, and for what was stored before clients were."""
    return receipt.client or NO_CLIENT


def shown_key(key: str) -> str:
    """The key of a row, in words where it stands for what names nothing."""
    return NAMELESS_WORDS.get(key, key)


def project_of(receipt: Receipt) -> str:
    """The folder in which the client works, under one name for all that tell none."""
    return receipt.project or NO_PROJECT


def is_in_project(folder: str, names: Collection[str]) -> bool:
    """Whether work in `folder` belongs to the project whose folder has one of these `names`; all does without any."""
    if not folder:
        return not names or NO_PROJECT in names
    path = PureWindowsPath(folder) if "\\" in folder else PurePosixPath(folder)
    return not names or any(path.is_relative_to(name) for name in names)


def group_receipts(
    receipts: Iterable[Receipt],
    by: GroupBy = "conversation",
    *,
    zone: tzinfo | None = UTC,
    again: Mapping[str, RereadCount] | None = None,
) -> tuple[ReceiptTotals, ...]:
    """One row per key, in the order in which the keys first appear; days are those of `zone`. `again`: what requests
    read again, by their ids."""
    key_of: Mapping[GroupBy, Callable[[Receipt], str]] = {
        "request": lambda receipt: receipt.id,
        "frame": lambda receipt: receipt.frame or NO_FRAME,
        "conversation": lambda receipt: receipt.conversation,
        "model": lambda receipt: receipt.model,
        "day": lambda receipt: day_of(receipt.created, zone),
        "client": client_of,
        "project": project_of,
    }
    groups: dict[str, list[Receipt]] = {}
    for receipt in receipts:
        groups.setdefault(key_of[by](receipt), []).append(receipt)
    return tuple(_sum(ReceiptTotals(key=key), group, again) for key, group in groups.items())


def is_dearer(row: ReceiptTotals) -> bool:
    """Whether the proxy cost more than it saved, by more than what is a matter of rounding."""
    return row.cost > row.cost_untouched * (1 + EVEN_SHARE)


def dearer_conversations(receipts: Iterable[Receipt]) -> tuple[ReceiptTotals, ...]:
    """A row for each conversation that was dearer than untouched, the greatest loss first."""
    dearer_by: dict[str, float] = defaultdict(float)
    known = [each for each in receipts if each.conversation]
    for receipt in known:
        dearer_by[receipt.conversation] += receipt.cost - receipt.cost_untouched
    rows = filter(is_dearer, group_receipts(each for each in known if dearer_by[each.conversation] > 0))
    return tuple(sorted(rows, key=lambda row: row.saved))


def sum_receipts(receipts: Iterable[Receipt], *, again: Mapping[str, RereadCount] | None = None) -> ReceiptTotals:
    """All of them in one row."""
    row = (
        ReceiptTotals(key="total")
        if again is None
        else ReceiptTotals(key="total", rereads=0, rereads_gone=0, rereads_gone_by={})
    )
    return _sum(row, list(receipts), again)


def _sum(row: ReceiptTotals, receipts: Sequence[Receipt], again: Mapping[str, RereadCount] | None) -> ReceiptTotals:
    row.add(receipts)
    if again is not None:
        for receipt in receipts:
            row.add_rereads(again.get(receipt.id, RereadCount()))
    return row


def without_fixed(receipt: Receipt) -> Receipt:
    """The receipt less the client's tools and system text. What is sent of them again in hidden rounds stays: that is
    our cost. What the provider reports cannot be split and goes; the fullest request stays whole."""
    once, untouched = receipt.fixed_once, receipt.fixed_untouched
    return msgspec.structs.replace(
        receipt,
        tokens_in=receipt.tokens_in - untouched.total,
        tokens_sent=receipt.tokens_sent - once.total,
        sent=_subtract(receipt.sent, once),
        untouched=_subtract(receipt.untouched, untouched),
        usage=Usage(),
        usage_by_round=(None,) * receipt.rounds,
        cost=receipt.cost - receipt.cost_fixed,
        cost_untouched=receipt.cost_untouched - receipt.cost_fixed,
        cost_fixed=0.0,
        fixed_in=0,
        fixed_sent=receipt.fixed_sent - once.total,
    )


def without_plan_prices(receipt: Receipt) -> Receipt:
    """The receipt without list prices where a plan pays for it: nobody pays those."""
    if receipt.plan is None:
        return receipt
    return msgspec.structs.replace(
        receipt, cost=0.0, cost_untouched=0.0, saved=0.0, cost_fixed=0.0, cost_rereads=0.0, priced=True
    )


def _subtract(use: CacheUse, part: CacheUse) -> CacheUse:
    return CacheUse(use.cached - part.cached, use.written - part.written, use.uncached - part.uncached)
