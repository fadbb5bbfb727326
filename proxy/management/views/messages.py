"""What people said into a conversation, and what is under way in it, as rows.

Its law: **the state is that of the moment it is asked for**: a message that nobody told the model of in time is
expired, whether or not anything wrote that down.
"""

from __future__ import annotations

from collections.abc import Iterable

from proxy.core.ledger.messages import Call
from proxy.core.ledger.queued_messages import Queued, State, waiting
from proxy.exchange.background.in_flight import Flight
from proxy.management.views.logs import under_way
from proxy.management.views.schemas import CallMade, FlightRow, MessageRow, MessageState

MOST_SHOWN = 20_000
"""Characters of an answer that is under way, and of the arguments of each of its calls: the newest."""


def message_rows(queue: Iterable[Queued], now: int) -> list[MessageRow]:
    """In the order in which they were said, at `now` (ms)."""
    said = tuple(queue)
    places = {each.id: place for place, each in enumerate(waiting(said, now), 1)}
    return [
        {
            "id": each.id,
            "lane": str(each.lane),
            "thread": each.thread or None,
            "text": each.text,
            "state": _state(each, places),
            "position": places.get(each.id),
            "created": each.created,
            "expires": each.expires,
            "delivered": each.settled if each.state is State.DELIVERED else None,
            "entry": each.entry or None,
        }
        for each in said
    ]


def _state(said: Queued, places: dict[str, int]) -> MessageState:
    if said.state is State.DELIVERED:
        return "delivered"
    return "waiting" if said.id in places else "expired"


def flight_rows(flights: Iterable[Flight]) -> list[FlightRow]:
    """The oldest first."""
    return [_flight(flight) for flight in flights]


def _flight(flight: Flight) -> FlightRow:
    seen = flight.glimpse()
    return {
        "request": flight.request,
        "thread": flight.thread,
        "frame": seen.frame,
        "status": flight.status,
        "created": flight.created,
        "round": seen.round,
        "text": seen.text[-MOST_SHOWN:],
        "calls": [_call(call) for call in seen.calls],
    }


def _call(call: Call) -> CallMade:
    arguments = call.arguments[-MOST_SHOWN:]
    return {"id": call.id, "name": call.name, "arguments": arguments, "state": under_way(call, whole=False)}
