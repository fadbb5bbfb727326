"""Queued messages and requests in flight as rows. A message that was not delivered in time is shown as expired, whether
or not that was stored."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from callstack_proxy.management.views.logs import state_without_result
from callstack_proxy.management.views.schemas import CallView, InFlightRow, MessageRow, MessageState
from proxy.core.ledger import Call, DeliveryState, QueuedMessage, waiting_messages

if TYPE_CHECKING:  # commands that read the store need nothing of the exchange
    from proxy.exchange import InFlightRequest

MAX_CHARACTERS_SHOWN = 20_000
"""The newest characters of an answer in flight, and of the arguments of each of its calls."""


def message_rows(queue: Iterable[QueuedMessage], now: int) -> list[MessageRow]:
    """In queue order, at `now` (ms)."""
    messages = tuple(queue)
    positions = {message.id: position for position, message in enumerate(waiting_messages(messages, now), 1)}
    return [
        {
            "id": message.id,
            "lane": str(message.lane),
            "thread": message.thread or None,
            "text": message.text,
            "state": _message_state(message, positions),
            "position": positions.get(message.id),
            "created": message.created,
            "expires": message.expires,
            "delivered": message.settled if message.state is DeliveryState.DELIVERED else None,
            "entry": message.entry or None,
        }
        for message in messages
    ]


def _message_state(message: QueuedMessage, positions: dict[str, int]) -> MessageState:
    if message.state is DeliveryState.DELIVERED:
        return "delivered"
    return "waiting" if message.id in positions else "expired"


def in_flight_rows(flights: Iterable[InFlightRequest]) -> list[InFlightRow]:
    return [_in_flight_row(flight) for flight in flights]


def _in_flight_row(flight: InFlightRequest) -> InFlightRow:
    snapshot = flight.take_snapshot()
    return {
        "request": flight.request_id,
        "thread": flight.thread,
        "frame": snapshot.frame,
        "status": flight.status,
        "created": flight.created,
        "round": snapshot.round,
        "text": snapshot.text[-MAX_CHARACTERS_SHOWN:],
        "calls": [_call_view(call) for call in snapshot.calls],
    }


def _call_view(call: Call) -> CallView:
    arguments = call.arguments[-MAX_CHARACTERS_SHOWN:]
    return {"id": call.id, "name": call.name, "arguments": arguments, "state": state_without_result(call, whole=False)}
