"""What `client_tools: brief` would save in a replayed session, from the money that its head cost.

Where the requests hold the client's tools, their brief form is counted. Session logs hold none: there it is what was
counted in the requests of the same agents, captured on 2026-11-21. The texts that come back with first calls are not
subtracted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from callstack_proxy.replay.outcome import ReplayResult

USUAL_TOKENS: Mapping[str, Sequence[tuple[int, int]]] = {
    "Claude Code": ((18_000, 8_300),),  # with less its client defers most of these tools itself
    "Qwen Code": ((0, 800),),
    "opencode": ((0, 250),),
}
"""For each agent: from heads of so many tokens on, so many of them are descriptions that would be cut."""
ACTING_STATUS = "full"


def brief_gain(played: ReplayResult) -> float:
    """USD, at most: of requests in which the proxy acts, the share of the head's cost that those descriptions take."""
    row = played.row
    if not row.fixed_in or not row.requests:
        return 0.0
    head = row.fixed_in / row.requests
    acting = sum(count for status, count in played.statuses.items() if status.partition(";")[0] == ACTING_STATUS)
    return row.cost_fixed * min(1.0, played.brief_tokens / head) * min(1.0, acting / row.requests)


def usual_brief_tokens(played: ReplayResult) -> int:
    """What the client of a session log usually sends that would be cut; 0 where that is not known."""
    client, head = played.client, played.row.fixed_in / max(1, played.row.requests)
    return next((tokens for least, tokens in USUAL_TOKENS.get(client, ()) if head >= least), 0)
