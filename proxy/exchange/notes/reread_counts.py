"""Counts along what the model had to read again because it had left the line: the price that no receipt shows (S2-44).

It looks at the results that came with a request: did the turn they answer ask for what had been read before, and no
longer stood on the line? By tool, so that one sees whose outputs should stay longer; the log says which rule of
`outputs` its outputs come under, so that one sees what to change. `callstack regrets` tells both of all that is stored.

The law: **it says and changes nothing**; a fault of it costs the figure. A tool that the client did not offer has a
name of the model's own making, and counts as another one.

What this module does not do: it judges no read (`stack.read_again`), and is no report: that looks at whole
conversations.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from proxy.core.compaction.truncate_outputs import NO_RULES, OutputRules
from proxy.core.ledger.ledger import Entry, Kind
from proxy.core.recall.reread_stats import regretted
from proxy.exchange.thread.placement import Standing
from proxy.telemetry.metrics import OTHER, Metrics

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Regret:
    """A note that says nothing."""

    metrics: Metrics
    rules: OutputRules = NO_RULES

    def __call__(self, standing: Standing) -> Standing:
        tree = standing.story.tree
        if tree.trims or tree.replaced or tree.told:  # else nothing has left
            results = _new_results(standing)
            turn = standing.ledger.entries.get(results[0].parent) if results else None
            if turn is not None and turn.kind is Kind.TURN:
                story = standing.shelved.story(turn.parent)
                if story.tree.awake:
                    tools = regretted(standing.ledger, turn, story, results, self.rules.names)
                    offered = standing.request.tool_names
                    self._count([tool if tool in offered else OTHER for tool in tools], standing)
        return standing

    def _count(self, tools: Sequence[str], standing: Standing) -> None:
        self.metrics.regretted(tools)
        for tool in tools:
            rule = self.rules.of(tool)
            told = {"tool": tool, "rule": rule.name if rule else "", "conversation": standing.conversation}
            log.info("regret", extra=told)


def _new_results(standing: Standing) -> list[Entry]:
    """Results that came with this request for the first time, right behind the turn that asked for them; the oldest
    first."""
    found: list[Entry] = []
    entry = standing.ledger.entries.get(standing.node)
    while entry is not None and entry.message and entry.message.answers and entry.created >= standing.arrival.now:
        found.append(entry)
        entry = standing.ledger.entries.get(entry.parent)
    return found[::-1]
