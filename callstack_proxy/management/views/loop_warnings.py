"""The loops of a conversation that the model was warned of, and how a person dismisses them. A loop stands while the
same frame goes on without a new user message. A dismissal is an event on each path; past warnings stay listed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from callstack_proxy.management.views.schemas import LoopRow
from proxy.core.frames import LoopDetected, LoopWarningsCleared, PathState, as_ledger_event, decode_event
from proxy.core.ledger import Ledger, LedgerEvent
from proxy.core.policy import LoopRules, active_loops
from proxy.store import LedgerRecord, Store, all_path_states


@dataclass(frozen=True, slots=True)
class ClearedLoops:
    """The stored events, and how many loops stood before."""

    events: Sequence[LedgerEvent]
    count: int


def loop_rows(ledger: Ledger) -> list[LoopRow]:
    """All warned loops on all paths, oldest first."""
    standing = {
        loop.at for path_state in all_path_states(ledger) for loop in active_loops(path_state, LoopRules().window)
    }
    warnings = [
        (event, looped.loop, looped.frame)
        for events in ledger.events.values()
        for event in events
        if event.kind == "looped" and isinstance(looped := decode_event(event), LoopDetected)
    ]
    return [
        {
            "kind": loop.kind,
            "calls": list(loop.shown),
            "signatures": list(loop.calls),
            "count": loop.count,
            "frame": frame,
            "entry": event.entry,
            "created": event.created,
            "standing": event.entry in standing,
        }
        for event, loop, frame in sorted(warnings, key=lambda row: (row[0].created, row[0].seq))
    ]


async def clear_loop_warnings(store: Store, ledger: Ledger, at: int) -> ClearedLoops:
    """Stores at `at` (ms since the epoch) that earlier calls count for no loop, on every path with a standing one;
    durable on return. Raises StoreError."""
    looping = [path_state for path_state in all_path_states(ledger) if active_loops(path_state, LoopRules().window)]
    events = [_cleared_event(ledger, path_state, n, at) for n, path_state in enumerate(looping)]
    if events:
        conversation = ledger.conversation
        await store.wait_until_durable(
            store.write(conversation.tenant, [LedgerRecord(conversation.id, event) for event in events])
        )
    return ClearedLoops(
        events, len({loop.at for path_state in looping for loop in active_loops(path_state, LoopRules().window)})
    )


def _cleared_event(ledger: Ledger, path_state: PathState, number: int, at: int) -> LedgerEvent:
    rounds = ledger.rounds.get(path_state.tip, ())
    event = LoopWarningsCleared(path_state.tree.active, path_state.tip)
    return as_ledger_event(event, path_state.tip, rounds[-1].number if rounds else 0, ledger.next_seq + number, at)
