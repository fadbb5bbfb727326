"""What people do while one answer is made: they look at it, stop it, and say something that the next round tells.

`exchange` asks at the places of its way where that can happen. The law: **what was told stays with its round**, so a
turn that is tried again is told again, and one that went on is not.

What this module does not do: it takes no message in (`speaking`), words none (`hearing`), and answers no client.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from msgspec.structs import replace

from proxy.core.context.message_list import Line
from proxy.core.ledger.messages import Spoken
from proxy.core.ledger.queued_messages import Lane
from proxy.dialects import Writing
from proxy.errors import StoreError
from proxy.exchange.background.in_flight import Flight, Glimpse
from proxy.exchange.background.recorder import Record
from proxy.exchange.rounds import Asker, Incoming, Parts
from proxy.exchange.thread.placement import Standing
from proxy.exchange.turn import Turn

log = logging.getLogger(__name__)

ENDED = frozenset({"stop", "end_turn", "completed"})
"""How a provider says that the model has nothing more to do."""


class Meanwhile:
    """Of one request. `turn` is there once its rounds are asked for; `writing` is what the client reads now."""

    def __init__(
        self, parts: Parts, incoming: Incoming, standing: Standing, asker: Asker, writing: Callable[[], Writing]
    ) -> None:
        self.turn: Turn | None = None
        self._parts = parts
        self._asker = asker
        self._writing: Callable[[], Writing] | None = writing
        self._standing = standing
        self._flight = Flight(
            incoming.id,
            incoming.tenant,
            standing.conversation,
            standing.thread,
            standing.node,
            standing.status,
            standing.arrival.now,
            self._glimpse,
        )

    # ----------------------------------------------------------------------------------------------- seen and stopped
    def begin(self) -> None:
        """Seen from here on, and stopped where somebody wants it, until its `end`."""
        self._parts.flights.begin(self._flight)

    def end(self) -> None:
        """It is carried out, or given up."""
        self._writing = None  # it is of the request that holds this: together they would stay for the collector
        self._parts.flights.end(self._flight)

    @property
    def stopped(self) -> bool:
        """A person stopped it."""
        return self._flight.stopped

    def _glimpse(self) -> Glimpse:
        if self._writing is None:
            return Glimpse(self._standing.frame, 0, "")
        said = self._writing().so_far().message
        return self.turn.glimpse(said) if self.turn else Glimpse(self._standing.frame, 0, said.text, said.calls)

    # ------------------------------------------------------------------------------------------------------ spoken to
    def hear(self, turn: Turn, record: Record) -> None:
        """What was said meanwhile is told with the next round. A fault of ours costs it that moment. Raises
        StoreError."""
        try:
            record.ran((), turn.hear(self._parts.hearing, Lane.STEER, self._parts.now()))
        except StoreError:
            raise
        except Exception:  # the edge of what is no part of the turn itself
            log.exception("what was said could not be told", extra={"request": self._flight.request})

    def follows(self, finish: str) -> bool:
        """Whether something waits for the moment at which the model has nothing more to do."""
        turn = self.turn
        if turn is None or finish not in ENDED or turn.number + 1 >= self._parts.config.stack_rounds:
            return False
        return bool(self._parts.hearing.due(turn.standing, turn.story, Lane.FOLLOW_UP, self._parts.now()))

    async def follow_up(self, turn: Turn, spoken: Spoken, record: Record) -> Line:
        """The line of one more round, behind one that ended the answer. Raises StoreError and Unfit where it cannot
        be; what waits is told another time then."""
        now = self._parts.now()
        turn.keep(replace(spoken, message=self._parts.writer.weighed(spoken.message)), (), [], now, last=False)
        record.ran((), turn.hear(self._parts.hearing, Lane.FOLLOW_UP, now))
        return await self._asker.line(turn)
