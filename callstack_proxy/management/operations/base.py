"""What a person may ask of a conversation, each written once as an `Operation`: where it stands, what it takes, with
limits and words, and what it decides. Its route, the route's description, and its command are made from that.

An operation decides, and stores nothing; `carry_out` of the API does.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict

from proxy.config import Config
from proxy.core.frames import FrameEvent, PathState, as_ledger_event
from proxy.core.ledger import Ledger, LedgerEvent


class Input(BaseModel):
    """What an operation takes. A field that a command takes too has `typer.Option` or `typer.Argument` beside its words
    for the API."""

    model_config = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True)
class Target:
    """A path of a conversation, and a `frame` of it where the operation is about one. `now` is in ms since the epoch,
    `fresh_id` belongs to what is decided."""

    ledger: Ledger
    path_state: PathState
    config: Config
    now: int
    frame: str = ""
    fresh_id: str = field(default_factory=lambda: secrets.token_hex(8))

    def events_at(self, placed: Iterable[tuple[FrameEvent, str, int]]) -> list[LedgerEvent]:
        """As events of the ledger: each at its entry, behind the round with this number."""
        return [
            as_ledger_event(event, entry, number, self.ledger.next_seq + n, self.now)
            for n, (event, entry, number) in enumerate(placed)
        ]

    def events_at_tips(self, placed: Iterable[tuple[FrameEvent, PathState]]) -> list[LedgerEvent]:
        """As events of the ledger: each behind the newest entry of its path."""
        return self.events_at(
            (event, path_state.tip, self.ledger.newest_round_number(path_state.tip)) for event, path_state in placed
        )


@dataclass(frozen=True, slots=True)
class Decision:
    """What is answered, and the events that make it true."""

    view: Any
    events: Sequence[LedgerEvent]


OperationInput = TypeVar("OperationInput")


@dataclass(frozen=True, slots=True)
class Operation(Generic[OperationInput]):
    """`path` is that of the API below `/stack`, with the `{conversation}` or the `{frame}` it is about. `decide` gives
    the route its name, and its docstring the words; it raises NotFound, BadRequest, and NotAllowed where there is a
    `refusal`. `input_type` is None where nothing is to say."""

    method: str
    path: str
    decide: Callable[[Target, OperationInput], Decision]
    input_type: type[OperationInput] | None
    view: Any
    refusal: str = "Not possible here; the message says what to do"
    in_query: bool = False
    """Whether the input stands in the query instead of the body."""
    thread_in_query: bool = False
    """Whether the query may name the thread whose path is meant."""

    @property
    def place(self) -> Literal["conversation", "frame"]:
        return "frame" if "{frame}" in self.path else "conversation"
