"""What people said into a conversation, and what is under way in it, as rows.

Its law: **the state is that of the moment it is asked for**: a message that nobody told the model of in time is
expired, whether or not anything wrote that down.
"""

from __future__ import annotations

from collections.abc import Iterable

from proxy.core.ledger import Call, DeliveryState, QueuedMessage, waiting_messages
from proxy.exchange import InFlightRequest
from proxy.management.views.logs import state_without_result
from proxy.management.views.schemas import CallView, InFlightRow, MessageRow, MessageState

MAX_CHARACTERS_SHOWN = 20_000
"""Characters of an answer that is under way, and of the arguments of each of its calls: the newest."""


def message_rows(queue: Iterable[QueuedMessage], now: int) -> list[MessageRow]:
    """In the order in which they were said, at `now` (ms)."""
    said = tuple(queue)
    places = {each.id: place for place, each in enumerate(waiting_messages(said, now), 1)}
    return [
        {
            "id": each.id,
            "lane": str(each.lane),
            "thread": each.thread or None,
            "text": each.text,
            "state": _message_state(each, places),
            "position": places.get(each.id),
            "created": each.created,
            "expires": each.expires,
            "delivered": each.settled if each.state is DeliveryState.DELIVERED else None,
            "entry": each.entry or None,
        }
        for each in said
    ]


def _message_state(said: QueuedMessage, places: dict[str, int]) -> MessageState:
    if said.state is DeliveryState.DELIVERED:
        return "delivered"
    return "waiting" if said.id in places else "expired"


def in_flight_rows(flights: Iterable[InFlightRequest]) -> list[InFlightRow]:
    """The oldest first."""
    return [_in_flight_row(flight) for flight in flights]


def _in_flight_row(flight: InFlightRequest) -> InFlightRow:
    seen = flight.take_snapshot()
    return {
        "request": flight.request_id,
        "thread": flight.thread,
        "frame": seen.frame,
        "status": flight.status,
        "created": flight.created,
        "round": seen.round,
        "text": seen.text[-MAX_CHARACTERS_SHOWN:],
        "calls": [_call_view(call) for call in seen.calls],
    }


def _call_view(call: Call) -> CallView:
    arguments = call.arguments[-MAX_CHARACTERS_SHOWN:]
    return {"id": call.id, "name": call.name, "arguments": arguments, "state": state_without_result(call, whole=False)}
