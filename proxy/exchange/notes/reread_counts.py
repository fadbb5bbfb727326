"""Counts tool calls that read again what was read before, and which of them for want of what had left the context.

Counts the latter by tool and logs the rule of `outputs` that applied. It changes nothing in the request, and a failure
costs only the count. A tool that the client did not offer is counted as "other", because the model made up its name.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from proxy.core.compaction import NO_OUTPUT_RULES, OutputRules
from proxy.core.ledger import Entry, EntryKind
from proxy.core.recall import new_rereads
from proxy.exchange.thread.placement import Placement
from proxy.telemetry import OTHER_LABEL, Metrics

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RereadCounter:
    """A note that adds no text. It looks at requests that pass untouched as well: they tell what is usual."""

    metrics: Metrics
    output_rules: OutputRules = NO_OUTPUT_RULES

    def __call__(self, placement: Placement) -> Placement:
        results = _new_results(placement)
        turn = placement.ledger.entries.get(results[0].parent) if results else None
        if turn is None or turn.kind is not EntryKind.TURN:
            return placement
        path_state = placement.cached_conversation.path_state(turn.parent)
        found = new_rereads(
            placement.ledger, turn, path_state, results, self.output_rules.names, is_ours=path_state.tree.is_awake
        )
        offered = placement.request.tool_names
        self._count([tool if tool in offered else OTHER_LABEL for tool in found.count.tools], placement)
        return replace(placement, rereads=found)

    def _count(self, tools: Sequence[str], placement: Placement) -> None:
        self.metrics.count_rereads(tools)
        for tool in tools:
            rule = self.output_rules.rule_for(tool)
            fields = {"tool": tool, "rule": rule.name if rule else "", "conversation": placement.conversation}
            log.info("regret", extra=fields)


def _new_results(placement: Placement) -> list[Entry]:
    """The results that arrived with this request, right behind the turn that asked for them; oldest first."""
    found: list[Entry] = []
    entry = placement.ledger.entries.get(placement.entry_id)
    while (
        entry is not None and entry.message and entry.message.answers and entry.created >= placement.parsed_request.now
    ):
        found.append(entry)
        entry = placement.ledger.entries.get(entry.parent)
    return found[::-1]
