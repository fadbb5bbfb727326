"""The result of a replay as values: tokens and money, what left the context, and what of it was needed later.

They are JSON objects and pass between processes. Every figure of money and tokens is taken from a receipt.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from callstack_proxy.management.reports import ReceiptTotals, percent_saved
from callstack_proxy.replay.recording import RecordingFacts


class RemovedContent(msgspec.Struct, kw_only=True):
    """What left the context of one frame."""

    frame: str
    """Empty where no frame owned it."""
    title: str
    status: str = ""
    conversation: str = ""
    messages: int = 0
    tokens: int = 0
    first_request: int = 0
    """The first request, counted from 1, in which something of it was missing."""
    ref: bool = False
    """Whether the newest request that lacked something of it showed a ref that recalls it."""


class MissedName(msgspec.Struct, kw_only=True):
    """A name that recorded answers used again when it was no longer in the context."""

    name: str
    times: int
    """Requests whose answer used it without having it."""
    request: int
    """The first of them, from 1."""
    age: int
    """Requests since the name last occurred, at the first of them."""
    said_by: str
    """Role of the message that last held the name."""
    ref: str
    """A ref in the request that recalls a message with the name; empty where there was none."""


class NameNeeds(msgspec.Struct, kw_only=True):
    """How often recorded answers used a name from earlier in the history, and where the name was then. `far_*`: it last
    occurred ten or more requests ago."""

    used: int = 0
    in_context: int = 0
    behind_ref: int = 0
    far_used: int = 0
    far_in_context: int = 0
    far_behind_ref: int = 0

    @property
    def lost(self) -> int:
        """Names neither in the context nor behind a ref that was in it."""
        return self.used - self.in_context - self.behind_ref

    def add(self, other: NameNeeds) -> None:
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class MarkerCosts(msgspec.Struct, kw_only=True):
    """The same money in USD where the provider caches only at the cache markers of requests (`cache_markers`)."""

    cost: float = 0.0
    cost_untouched: float = 0.0


class ReplayResult(RecordingFacts, frozen=False, kw_only=True):  # type: ignore[misc]  # it grows with each step
    """One recording, played to its end."""

    file: str
    row: ReceiptTotals
    """Its receipts, added up; `caused` is what the agent would have had to read again (`reads_needed`)."""
    brief_tokens: int = 0
    """Tokens of descriptions of the client's tools that `client_tools: brief` would leave out of a request; 0 where it
    is on, or nothing is known of the tools."""
    by_markers: MarkerCosts | None = None
    """Only in the messages API, which has cache markers."""
    conversations: int = 0
    statuses: dict[str, int] = msgspec.field(default_factory=dict)
    """Requests by status (full, asleep, side, ...), with the reason where there was one."""
    events: dict[str, int] = msgspec.field(default_factory=dict)
    """Ledger events by kind: woken, folded, trim, pushed, popped, ..."""
    decisions: dict[str, int] = msgspec.field(default_factory=dict)
    """Decisions of the cost gate in the receipts, by kind, answer and reason."""
    left: list[RemovedContent] = msgspec.field(default_factory=list)
    needs: NameNeeds = msgspec.field(default_factory=NameNeeds)
    missed: list[MissedName] = msgspec.field(default_factory=list)
    """The worst first."""
    notes: list[str] = msgspec.field(default_factory=list)
    unequal: int = 0
    """Answers that reached the client changed: a fault of the proxy."""
    title: str = ""
    """What its longest conversation was begun for, in one line."""
    copied: int = 0
    """Requests that were counted with another session, and are in no figure of this one."""
    unpriced_tokens: int = 0
    """Of the row's `tokens_in`, those of requests whose model has no list price."""


class ReplayFailure(msgspec.Struct, kw_only=True):
    """A file that could not be replayed."""

    file: str
    error: str
    foreign: bool = False
    """The file holds no recording of any kind; in a directory it is just another file."""


def sum_rows(played: Iterable[ReplayResult]) -> ReceiptTotals:
    """The rows added up."""
    total = ReceiptTotals(key="total")
    for result in played:
        for name in ReceiptTotals.__struct_fields__:
            so_far, value = getattr(total, name), getattr(result.row, name)
            if isinstance(value, int | float) and not name.endswith("_percent"):  # no texts, no None, no ratio
                setattr(total, name, max(so_far, value) if name.startswith("peak_") else so_far + value)
        total.saved_percent = percent_saved(total.saved, total.cost_untouched)
        total.saved_after_percent = percent_saved(total.saved_after, total.cost_untouched)
    return total


def sum_marker_costs(played: Iterable[ReplayResult]) -> MarkerCosts | None:
    """The sum over the results that have it; None where none has."""
    costs = [result.by_markers for result in played if result.by_markers]
    if not costs:
        return None
    return MarkerCosts(cost=sum(one.cost for one in costs), cost_untouched=sum(one.cost_untouched for one in costs))


def sum_needs(played: Iterable[ReplayResult]) -> NameNeeds:
    total = NameNeeds()
    for result in played:
        total.add(result.needs)
    return total
