"""What people do while an answer is produced: watch it, cancel it, or send a message for the next round. A delivered
message stays with its round: a retried turn gets it again, a continued one does not."""

from __future__ import annotations

import logging
from collections.abc import Callable

from msgspec.structs import replace

from proxy.core.context import Context
from proxy.core.ledger import Lane, ModelResponse
from proxy.dialects import ResponseWriter
from proxy.errors import StoreError
from proxy.exchange.background.in_flight import InFlightRequest, Snapshot
from proxy.exchange.background.recorder import RequestRecordBuilder
from proxy.exchange.rounds import ClientRequest, ContextFitter, Services
from proxy.exchange.thread.placement import Placement
from proxy.exchange.turn import Turn

log = logging.getLogger(__name__)

FINAL_FINISH_REASONS = frozenset({"stop", "end_turn", "completed"})
"""Finish reasons that say that the model has nothing more to do."""


class Interrupts:
    """The interrupts of one request. `turn` is set once rounds are requested; `writing` returns the client's current
    writer."""

    def __init__(
        self,
        services: Services,
        client_request: ClientRequest,
        placement: Placement,
        context_fitter: ContextFitter,
        writing: Callable[[], ResponseWriter],
    ) -> None:
        self.turn: Turn | None = None
        self._services = services
        self._context_fitter = context_fitter
        self._current_writer: Callable[[], ResponseWriter] | None = writing
        self._placement = placement
        self._in_flight_request = InFlightRequest(
            client_request.id,
            client_request.tenant,
            placement.conversation,
            placement.thread,
            placement.entry_id,
            placement.status,
            placement.parsed_request.now,
            self._snapshot,
        )

    # ----------------------------------------------------------------------------------------------- seen and stopped
    def register(self) -> None:
        """Make the request visible and cancellable until `unregister`."""
        self._services.in_flight.register(self._in_flight_request)

    def unregister(self) -> None:
        self._current_writer = None  # breaks a reference cycle with the request
        self._services.in_flight.unregister(self._in_flight_request)

    @property
    def cancelled_by_user(self) -> bool:
        return self._in_flight_request.cancelled_by_user

    def _snapshot(self) -> Snapshot:
        if self._current_writer is None:
            return Snapshot(self._placement.frame, 0, "")
        said = self._current_writer().partial_response().message
        return self.turn.snapshot(said) if self.turn else Snapshot(self._placement.frame, 0, said.text, said.calls)

    # ------------------------------------------------------------------------------------------------------ spoken to
    def deliver_steering_messages(self, turn: Turn, record: RequestRecordBuilder) -> None:
        """Add waiting messages to the next round; on a fault of ours they wait longer. Raises StoreError."""
        try:
            record.add_stack_calls(
                (), turn.deliver_messages(self._services.message_delivery, Lane.STEER, self._services.now())
            )
        except StoreError:
            raise
        except Exception:  # the edge of what is no part of the turn itself
            log.exception("what was said could not be told", extra={"request": self._in_flight_request.request_id})

    def has_follow_up(self, finish: str) -> bool:
        """Whether a message waits for the moment at which the model has nothing more to do."""
        turn = self.turn
        if (
            turn is None
            or finish not in FINAL_FINISH_REASONS
            or turn.round_number + 1 >= self._services.config.stack_rounds
        ):
            return False
        return bool(
            self._services.message_delivery.due_messages(
                turn.placement, turn.path_state, Lane.FOLLOW_UP, self._services.now()
            )
        )

    async def build_follow_up_context(self, turn: Turn, spoken: ModelResponse, record: RequestRecordBuilder) -> Context:
        """The context of one more round after one that ended the answer. Raises StoreError and ContextRejected; the
        messages then go on waiting."""
        now = self._services.now()
        turn.store_round(
            replace(spoken, message=self._services.composer.with_token_count(spoken.message)), (), [], now, last=False
        )
        record.add_stack_calls((), turn.deliver_messages(self._services.message_delivery, Lane.FOLLOW_UP, now))
        return await self._context_fitter.build(turn)
