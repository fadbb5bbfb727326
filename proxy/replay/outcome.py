"""What came of a replay, as values: tokens and money, what left the context, and what of it was needed later.

They are JSON objects, and travel from one process to another. The law: **every figure of money and tokens is one of a
receipt**; nothing is counted here a second time in another way.

What this module does not do: it measures nothing and prints nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from proxy.accounting import ReceiptTotals


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
    """The request, from 1, in which something of it was missing for the first time."""
    ref: bool = False
    """Whether the newest request that lacked something of it held a ref under which it is recalled."""


class MissedName(msgspec.Struct, kw_only=True):
    """A name that recorded answers used again when it was no longer in the context."""

    name: str
    times: int
    """Requests whose answer used it without having it."""
    request: int
    """The first of them, from 1."""
    age: int
    """Requests since it had been said last, in the first of them."""
    said_by: str
    """Role of the message that held it."""
    ref: str
    """Under which the message that held it can be recalled; empty: under none that the request showed."""


class NameNeeds(msgspec.Struct, kw_only=True):
    """How often recorded answers used a name that stood earlier in the history, and where it was then. `far_*`: it had
    been said last ten or more requests ago."""

    used: int = 0
    in_context: int = 0
    behind_ref: int = 0
    far_used: int = 0
    far_in_context: int = 0
    far_behind_ref: int = 0

    @property
    def lost(self) -> int:
        """Neither in the context nor behind a ref that stood in it."""
        return self.used - self.in_context - self.behind_ref

    def add(self, other: NameNeeds) -> None:
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class MarkerCosts(msgspec.Struct, kw_only=True):
    """The same money where the provider caches at the markers in the requests, in USD (`markers`)."""

    cost: float = 0.0
    cost_untouched: float = 0.0


class ReplayResult(msgspec.Struct, kw_only=True):
    """One recording, played to its end."""

    name: str
    file: str
    model: str
    dialect: str
    """The API it was replayed in: chat, messages, responses."""
    row: ReceiptTotals
    """Its receipts, added up."""
    by_markers: MarkerCosts | None = None
    """In the API that has cache markers."""
    conversations: int = 0
    statuses: dict[str, int] = {}
    """How many requests were full, asleep, side, ...; with the reason where there was one."""
    events: dict[str, int] = {}
    """What was decided, by kind: woken, folded, trim, pushed, popped, ..."""
    decisions: dict[str, int] = {}
    """What receipts say was weighed, and how often."""
    left: list[RemovedContent] = []
    needs: NameNeeds = msgspec.field(default_factory=NameNeeds)
    missed: list[MissedName] = []
    """The worst first."""
    notes: list[str] = []
    without_body: int = 0
    """Requests that are not in it, because what the client sent was not kept."""
    unequal: int = 0
    """Answers that reached the client as something else than was recorded: a fault of ours."""


class ReplayFailure(msgspec.Struct, kw_only=True):
    """A file that could not be replayed."""

    file: str
    error: str
    foreign: bool = False
    """There is no recording in it, of whatever kind: in a directory it just lies beside others."""


def sum_rows(played: Iterable[ReplayResult]) -> ReceiptTotals:
    """The rows added up."""
    total = ReceiptTotals(key="total")
    for one in played:
        for name in ReceiptTotals.__struct_fields__:
            known, more = getattr(total, name), getattr(one.row, name)
            if isinstance(more, int | float):  # no texts, and nothing that was not looked up
                setattr(total, name, max(known, more) if name.startswith("peak_") else known + more)
    return total


def sum_marker_costs(played: Iterable[ReplayResult]) -> MarkerCosts | None:
    """Added up over those that have it; None where none has."""
    told = [one.by_markers for one in played if one.by_markers]
    if not told:
        return None
    return MarkerCosts(cost=sum(one.cost for one in told), cost_untouched=sum(one.cost_untouched for one in told))


def sum_needs(played: Iterable[ReplayResult]) -> NameNeeds:
    total = NameNeeds()
    for one in played:
        total.add(one.needs)
    return total
