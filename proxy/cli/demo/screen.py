"""What the demo prints: one row for each request while it runs, then the tree and the sums.

In colour on a terminal, plain elsewhere. Nothing is computed here.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.text import Text

from proxy.accounting import Receipt, ReceiptTotals, format_table

DOING = 40
FRAME = 24
_WIDTHS = (3, DOING, FRAME, 9, 8, 6, 8, 9, 11)
_TITLES = ("#", "what the agent did", "frame", "tokens in", "sent", "rounds", "saved", "cost $", "untouched $")
LEGEND = """\
`tokens in` came from the agent, `sent` went to the model. A stack call the agent never sees is one more round upstream,
and `sent` counts every round: such a row may save less than nothing; the rows after it earn it back. `untouched $` is
what the same request would have cost without the proxy. Both costs count the provider's prompt cache."""

_TEXT_COLUMNS = 3
"""The first columns are texts, the rest figures."""


@dataclass(frozen=True, slots=True)
class DemoRow:
    """One request: what the agent did after it, and the frame of its first round."""

    number: int
    activity: str
    frame: str
    receipt: Receipt


class Screen:
    """Prints to `console`; prints nothing where it is None."""

    def __init__(self, console: Console | None) -> None:
        self._console = console

    def say(self, words: str = "", style: str = "") -> None:
        if self._console:
            self._console.print(Text(words, style=style), soft_wrap=True)

    def show_start(self, clients: str, data: Path, settings: Mapping[str, object]) -> None:
        stated = ", ".join(
            f"{key} {value:,}" if isinstance(value, int) else f"{key} {value}" for key, value in settings.items()
        )
        self.say("A scripted coding agent -> the proxy -> a scripted model, all on this machine.", "bold")
        self.say(f"proxy  {clients}\ndata   {data}\nset    {stated}")
        self.say(LEGEND)
        self.say()
        self.say(_line(_TITLES), "bold")

    def show_user_message(self, words: str) -> None:
        short = words if len(words) <= 100 else f"{words[:97]}..."
        self.say(f"    user: {short}", "cyan")

    def show_row(self, shown: DemoRow) -> None:
        receipt = shown.receipt
        counts = (receipt.tokens_in, receipt.tokens_sent, receipt.rounds, receipt.tokens_saved)
        figures = tuple(f"{count:,}" for count in counts)
        money = (f"{receipt.cost:.5f}", f"{receipt.cost_untouched:.5f}")
        words = (str(shown.number), _cut(shown.activity, DOING), _cut(shown.frame, FRAME))
        self.say(_line((*words, *figures, *money)), "red" if receipt.saved < 0 else "")

    def show_summary(self, total: ReceiptTotals, last: Receipt, tree: str, hidden: Mapping[str, int]) -> None:
        calls = ", ".join(
            f"{count} {name.removeprefix('stack_frame_').removeprefix('stack_')}" for name, count in hidden.items()
        )
        share = 100 * total.saved / total.cost_untouched if total.cost_untouched else 0.0
        self.say(f"\n{tree.rstrip()}\n")
        self.say(format_table([total], width=sum(_WIDTHS) + len(_WIDTHS)))
        self.say(
            f"\nThe last request came with {last.tokens_in:,} tokens and left with {last.tokens_last:,}; the fullest "
            f"one that left had {total.peak_sent:,}."
        )
        self.say(f"Calls the agent never saw: {calls}.")
        self.say(
            f"Money: ${total.cost:.4f} with the proxy, ${total.cost_untouched:.4f} untouched: "
            f"{'saved' if total.saved >= 0 else 'lost'} ${abs(total.saved):.4f} ({abs(share):.0f} %).",
            "bold green" if total.saved >= 0 else "bold red",
        )

    def show_next_commands(self, data: Path, conversation: str, request: str) -> None:
        self.say(f"\nEverything lies in {data}. Look further:")
        for command in (f"tree {conversation}", "report", f"diff {request}"):
            self.say(f"  callstack {command} --data {shlex.quote(str(data))}")

    def show_failure(self, words: str) -> None:
        self.say(f"\nThe demo failed: {words}", "bold red")


def _line(cells: tuple[str, ...]) -> str:
    padded = [
        cell.ljust(width) if at < _TEXT_COLUMNS and at else cell.rjust(width)
        for at, (cell, width) in enumerate(zip(cells, _WIDTHS, strict=True))
    ]
    return " ".join(padded).rstrip()


def _cut(words: str, width: int) -> str:
    return words if len(words) <= width else f"{words[: width - 1]}…"
