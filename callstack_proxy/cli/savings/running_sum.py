"""The sum so far, on one line of the terminal that is written anew as sessions are done and is gone at the end."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Sequence
from types import TracebackType

from callstack_proxy.cli.output import format_dollars, pluralize
from callstack_proxy.cli.savings.plan import READ_WEIGHTS, USUAL, TariffOf, WindowUse, compared_text, window_use
from callstack_proxy.management.reports import ReceiptTotals
from callstack_proxy.replay import ReplayOutcome, ReplayResult, sum_rows

ERASE = "\r\x1b[K"


def is_newer(one: ReplayResult, oldest_s: float) -> bool:
    """Whether the session began after `oldest_s`, in seconds since the epoch; one without a time counts as new."""
    return (one.started_s or time.time()) >= oldest_s


class RunningSum:
    """Shown only where stdout is a terminal: what is piped has the last sum alone."""

    def __init__(self, files: int, oldest_s: float, by_plan: TariffOf | None = None) -> None:
        """`by_plan`: the rows of prices, for who pays by window."""
        self.is_shown = sys.stdout.isatty()
        self._files, self._oldest_s = files, oldest_s
        self._done = self._sessions = 0
        self._row: ReceiptTotals | None = None
        self._by_plan, self._taken, self._untouched = by_plan, 0.0, 0.0

    def __enter__(self) -> RunningSum:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._write("")

    def add(self, outcomes: Sequence[ReplayOutcome]) -> None:
        """The outcomes of one more file."""
        self._done += 1
        new = [one for one in outcomes if isinstance(one, ReplayResult) and is_newer(one, self._oldest_s)]
        new = [one for one in new if one.row.requests]
        if new:
            so_far = ReplayResult(name="", file="", model="", dialect="", row=self._row) if self._row else None
            self._row = sum_rows([*([so_far] if so_far else ()), *new])
            self._sessions += len(new)
            if self._by_plan:
                use = window_use(new, READ_WEIGHTS[USUAL][1], self._by_plan)
                self._taken, self._untouched = self._taken + use.taken, self._untouched + use.untouched
        self._write(self._text())

    def _text(self) -> str:
        if self._row is None:
            return f"{self._done:,} of {pluralize(self._files, 'file')} ..."
        done = f"{self._done:,} of {pluralize(self._files, 'file')}, {pluralize(self._sessions, 'session')} so far: "
        if self._by_plan:
            return f"{done}{compared_text(WindowUse(self._taken, self._untouched))} of your windows ..."
        before, after = self._row.cost_untouched, self._row.cost
        amounts = [format_dollars(amount, (before, after)) for amount in (before, after)]
        share = f", {100 * self._row.saved_after / before:.0f} % saved" if before else ""
        return f"{done}{amounts[0]}, {amounts[1]} with us{share}, at list prices ..."

    def _write(self, text: str) -> None:
        if self.is_shown:
            sys.stdout.write(ERASE + text[: shutil.get_terminal_size().columns - 1])
            sys.stdout.flush()
