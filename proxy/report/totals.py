"""Receipts added up: by request, frame, conversation, model or day.

The law: **the sum over the rows is the sum over the receipts**, whatever they are grouped by. Negative sums are shown
as negative.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal

import msgspec

from proxy.report.receipts import Receipt
from proxy.tariffs import AS_OF

By = Literal["request", "frame", "conversation", "model", "day"]


class Row(msgspec.Struct, kw_only=True):
    """Receipts added up under one key."""

    key: str
    requests: int = 0
    rounds: int = 0
    recalls: int = 0
    tokens_in: int = 0
    tokens_sent: int = 0
    tokens_saved: int = 0
    fixed_in: int = 0
    fixed_sent: int = 0
    own: int = 0
    """Our tools, texts and hidden rounds, in tokens; contained in `tokens_sent`."""
    peak_in: int = 0
    peak_sent: int = 0
    """The fullest single request."""
    reported_input: int = 0
    reported_cached: int = 0
    cost: float = 0.0
    cost_untouched: float = 0.0
    saved: float = 0.0
    estimated: int = 0
    """Requests whose cost is an estimate."""
    unpriced: int = 0
    """Requests whose model is not in the table."""

    def add(self, receipt: Receipt) -> None:
        self.requests += 1
        for name in _SUMMED:
            setattr(self, name, getattr(self, name) + getattr(receipt, name))
        self.own += receipt.own_tools + receipt.own_texts + receipt.own_rounds
        self.peak_in = max(self.peak_in, receipt.tokens_in)
        self.peak_sent = max(self.peak_sent, receipt.tokens_last)
        self.reported_input += receipt.usage.input
        self.reported_cached += receipt.usage.cached
        self.estimated += receipt.basis == "estimated"
        self.unpriced += not receipt.priced


_SUMMED = (
    "rounds", "recalls", "tokens_in", "tokens_sent", "tokens_saved", "fixed_in", "fixed_sent",
    "cost", "cost_untouched", "saved",
)  # fmt: skip
_KEYS: Mapping[By, Callable[[Receipt], str]] = {
    "request": lambda receipt: receipt.id,
    "frame": lambda receipt: receipt.frame or "(no frame)",
    "conversation": lambda receipt: receipt.conversation,
    "model": lambda receipt: receipt.model,
    "day": lambda receipt: datetime.fromtimestamp(receipt.created / 1000, UTC).date().isoformat(),
}


def totals(receipts: Iterable[Receipt], by: By = "conversation") -> tuple[Row, ...]:
    """One row per key, in the order in which the keys first appear."""
    rows: dict[str, Row] = {}
    for receipt in receipts:
        key = _KEYS[by](receipt)
        rows.setdefault(key, Row(key=key)).add(receipt)
    return tuple(rows.values())


def total(receipts: Iterable[Receipt]) -> Row:
    """All of them in one row."""
    row = Row(key="total")
    for receipt in receipts:
        row.add(receipt)
    return row


_HEADINGS = ("", "requests", "tokens in", "sent", "saved", "peak in", "peak sent", "cost $", "untouched $", "saved $")


def table(rows: Sequence[Row], *, fixed: bool = True) -> str:
    """The rows as text. Without `fixed`, the client's own tools and system text are left out of the token sums."""
    lines = [_HEADINGS, *(_cells(row, fixed=fixed) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_HEADINGS))]
    text = [
        "  ".join(
            [line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))]
        )
        for line in lines
    ]
    estimated, requests = sum(row.estimated for row in rows), sum(row.requests for row in rows)
    notes = []
    if estimated:
        notes.append(f"{estimated} of {requests} requests: cost estimated, no usage or no cached tokens were reported")
    if unpriced := sum(row.unpriced for row in rows):
        notes.append(f"{unpriced} requests: model not in the price table of {AS_OF}, a round price stands in")
    return "\n".join([*text, *notes])


def _cells(row: Row, *, fixed: bool) -> tuple[str, ...]:
    came = row.tokens_in - (0 if fixed else row.fixed_in)
    went = row.tokens_sent - (0 if fixed else row.fixed_sent)
    counts = (row.requests, came, went, came - went if row.tokens_sent else 0, row.peak_in, row.peak_sent)
    money = (row.cost, row.cost_untouched, row.saved)
    return (row.key, *(f"{count:,}" for count in counts), *(f"{amount:.4f}" for amount in money))
