"""How a person dismisses the loops that the model was warned of. Past warnings stay listed."""

from __future__ import annotations

from typing_extensions import TypedDict

from callstack_proxy.management.operations.base import Decision, Operation, Target
from proxy.core.frames import LoopWarningsCleared
from proxy.core.policy import LoopRules, active_loops
from proxy.store import all_path_states


class ClearedLoopCount(TypedDict):
    cleared: int


def clear_loops(target: Target, _: None) -> Decision:
    """Begin to count anew: what was done up to now is no part of a loop. The list keeps what was warned of."""
    window = LoopRules().window
    looping = [path_state for path_state in all_path_states(target.ledger) if active_loops(path_state, window)]
    view: ClearedLoopCount = {
        "cleared": len({loop.at for path_state in looping for loop in active_loops(path_state, window)})
    }
    return Decision(
        view,
        target.events_at_tips(
            (LoopWarningsCleared(path_state.tree.active, path_state.tip), path_state) for path_state in looping
        ),
    )


CLEAR_LOOPS = Operation(
    "DELETE", "/conversations/{conversation}/loops", clear_loops, None, ClearedLoopCount, refusal=""
)
