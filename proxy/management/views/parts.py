"""What became of each call: whether its arguments are still arriving, its tool runs, or it came back, and how.

Its law: **a result belongs to the newest call of its id before it**; ids repeat, also within one conversation. Whether
a tool failed is judged as the observers judge it, so what is shown is what frames go by.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping

import msgspec

from proxy.core.frames.path_state import Placed
from proxy.core.ledger.messages import Call, Message
from proxy.core.observers.results import tells_failure
from proxy.management.views.schemas import PartState

_BEGINS = re.compile(
    r"[\s<\[(*#]*(?:tool[ _-]?)?(?:error|fatal|traceback|exception|permission denied)\b", re.IGNORECASE
)

Place = tuple[str, int]
"""An entry, and the number of the round in it (-1: it is no turn)."""


def place_of(placed: Placed) -> Place:
    return placed.entry.id, placed.round.number if placed.round else -1


def is_error(result: Message) -> bool:
    """Whether a call went wrong: the client says so, or the result does, by its first word or in one of the ways that
    tools have."""
    return result.failed or _BEGINS.match(result.text) is not None or tells_failure(result.text)


def states_of(path: Iterable[Placed]) -> Mapping[Place, tuple[PartState, ...]]:
    """The state of every call on a path, oldest first, by the place of its message and in call order."""
    found: dict[Place, list[PartState]] = {}
    waiting: dict[str, deque[tuple[Place, int]]] = defaultdict(deque)
    for placed in path:
        said = placed.round.spoken.message if placed.round else placed.entry.message
        if said is None:
            continue
        if said.answers:
            _came_back(found, waiting, said)
            continue
        at = place_of(placed)
        whole = placed.round is None or placed.round.spoken.complete
        found[at] = [under_way(call, whole=whole) for call in said.calls]
        asked: dict[str, deque[tuple[Place, int]]] = defaultdict(deque)
        for number, call in enumerate(said.calls):
            asked[call.id].append((at, number))
        waiting.update(asked)
        for result in placed.round.results if placed.round else ():
            _came_back(found, waiting, result)
    return {at: tuple(states) for at, states in found.items()}


def under_way(call: Call, *, whole: bool) -> PartState:
    """Before its result: pending while its arguments arrive, running once they are whole."""
    return "running" if whole or _is_json(call.arguments) else "pending"


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return False
    return True


def _came_back(
    found: Mapping[Place, list[PartState]], waiting: Mapping[str, deque[tuple[Place, int]]], result: Message
) -> None:
    asked = waiting.get(result.answers)
    if asked:
        at, number = asked.popleft()
        found[at][number] = "error" if is_error(result) else "completed"
