"""The loops of a conversation that the model was warned of. A loop stands while the same frame goes on without a new
user message."""

from __future__ import annotations

from callstack_proxy.management.find_by_id import all_path_states
from callstack_proxy.management.views.schemas import LoopRow
from proxy.core.frames import LoopDetected, decode_event
from proxy.core.ledger import Ledger
from proxy.core.policy import LoopRules, active_loops


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
