"""What the demo prints: while it runs a line that says what the agent does, or with `--all` one row for each request;
then the result. In colour on a terminal, plain elsewhere. Nothing is computed here.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.text import Text

from callstack_proxy.cli.output import pluralize, wrap_text
from callstack_proxy.management.reports import ReceiptTotals
from proxy.accounting import Receipt
from proxy.core.text import cut_at_word

_TITLES = ("#", "what the agent did", "frame", "tokens in", "sent", "rounds", "saved", "with us $", "without us $")
_FIGURE_WIDTHS = (9, 8, 6, 8, 9, 12)
_LEFT_AWAY = ("rounds", "saved", "without us $")
"""Columns that a narrow terminal has no room for."""
WIDE = 119
"""Cells of a row with all columns."""
LEGEND = (
    "`tokens in` came from the agent, `sent` went to the model. A stack call the agent never sees is one more round "
    "upstream, and `sent` counts every round: such a row may save less than nothing; the rows after it earn it back. "
    "`with us $` counts the provider's prompt cache."
)
UNTOUCHED_LEGEND = " So does `without us $`: what the same request would have cost without the proxy."

TREE_LEGEND = (
    "The work as a call stack of frames. ✓ is done, → goes on. What is put away is not sent any more; the model can "
    "recall it."
)
TOP_LEVEL = "→✓├└"
"""How lines of frames begin that are roots or right below one."""
MAX_TREE_LINES, SHORT_ID = 8, 12
_ID = re.compile(r" \[f\w+\]( ?)")
CHECKED = "Each answer reached the agent as the model gave it. Beside it, and unseen by the agent, the model"
CALL_WORDS = {
    "stack_frame_plan": ("planned frames",),
    "stack_frame_activate": ("began", "planned frame"),
    "stack_frame_push": ("began", "new frame"),
    "stack_frame_pop": ("ended", "frame"),
    "stack_recall": ("recalled", "text"),
}
"""What each of the model's calls to the proxy does, and to what; without the latter it is told how often."""


@dataclass(frozen=True, slots=True)
class DemoRow:
    """One request: what the agent did after it, and the frame of its first round."""

    number: int
    activity: str
    frame: str
    receipt: Receipt


class Screen:
    """Prints to `console`; prints nothing where it is None. `shows_all`: every request has a row."""

    def __init__(self, console: Console | None, *, shows_all: bool = False) -> None:
        self._console = console
        self._shows_all = shows_all
        self._width = console.width if console else WIDE
        figures = [(t, w) for t, w in zip(_TITLES[3:], _FIGURE_WIDTHS, strict=True) if not self._drops(t)]
        room = self._width - 3 - sum(width + 1 for _, width in figures) - 2
        frame = 15 if self._width < WIDE else 24
        self._row_widths = (3, max(8, room - frame), frame, *(width for _, width in figures))
        self._status = console.status("") if console and console.is_terminal and not shows_all else None

    def _drops(self, title: str) -> bool:
        return title in _LEFT_AWAY and self._width < WIDE

    def say(self, words: str = "", style: str = "", *, whole: bool = False) -> None:
        """Print lines, which go on below where they are too long. `whole`: one to copy, which does not."""
        if self._console:
            fitted = words if whole else "\n".join(wrap_text(words, self._width, hang=0))
            self._console.print(Text(fitted, style=style), soft_wrap=True)

    def show_start(self, clients: str, data: Path, settings: Mapping[str, object]) -> None:
        stated = ", ".join(
            f"{key} {value:,}" if isinstance(value, int) else f"{key} {value}" for key, value in settings.items()
        )
        self.say("A scripted coding agent -> the proxy -> a scripted model, all on this machine.", "bold")
        if self._status:
            self._status.start()
        if not self._shows_all:
            return
        self.say(f"proxy  {clients}\ndata   {data}\nset    {stated}")
        self.say(LEGEND + ("" if self._drops("without us $") else UNTOUCHED_LEGEND))
        self.say()
        self.say(self._line(_TITLES), "bold")

    def close(self) -> None:
        """Takes the line away that says what the agent does."""
        if self._status:
            self._status.stop()

    def show_user_message(self, words: str) -> None:
        if not self._shows_all:
            return
        self.say(f"    user: {cut_at_word(words, self._width - 10)}", "cyan")

    def show_row(self, shown: DemoRow) -> None:
        if self._status:
            self._status.update(f"request {shown.number}: {cut_at_word(shown.activity, self._width - 20)}")
        if not self._shows_all:
            return
        receipt = shown.receipt
        counts = (receipt.tokens_in, receipt.tokens_sent, receipt.rounds, receipt.tokens_saved)
        figures = tuple(f"{count:,}" for count in counts)
        money = (f"{receipt.cost:.5f}", f"{receipt.cost_untouched:.5f}")
        cells = (str(shown.number), shown.activity, shown.frame, *figures, *money)
        self.say(self._line(cells), "red" if receipt.saved < 0 else "")

    def _line(self, cells: tuple[str, ...]) -> str:
        number, activity, frame, *figures = (
            c for c, title in zip(cells, _TITLES, strict=True) if not self._drops(title)
        )
        widths = self._row_widths
        texts = (
            cut_at_word(text, width).ljust(width) for text, width in zip((activity, frame), widths[1:3], strict=True)
        )
        return " ".join(
            (
                number.rjust(widths[0]),
                *texts,
                *(f"{figure:>{width}}" for figure, width in zip(figures, widths[3:], strict=True)),
            )
        )

    def show_summary(self, total: ReceiptTotals, last: Receipt, tree: str, hidden: Mapping[str, int]) -> None:
        """The result, in one screen of 80 by 24 unless all rows are shown."""
        calls = ", ".join(_call_words(name, count) for name, count in hidden.items())
        rows = [
            ("tokens of the last request", last.tokens_in, last.tokens_last),
            ("tokens of the fullest request", total.peak_in, total.peak_sent),
            ("tokens of all requests", total.tokens_in, total.tokens_sent),
        ]
        self.say(f"\n{_result_line(f'{total.requests} requests', 'without us', 'with us', 'less')}", "bold")
        for name, untouched, sent in rows:
            self.say(_result_line(name, f"{untouched:,}", f"{sent:,}", _share(untouched - sent, untouched)))
        money = (f"${total.cost_untouched:.4f}", f"${total.cost:.4f}", _share(total.saved, total.cost_untouched))
        self.say(_result_line("cost; the cache counts on both sides", *money), "green" if total.saved >= 0 else "red")
        self.say(f"\n{TREE_LEGEND}")
        lines = tree.rstrip().splitlines()
        top = [_ID.sub(r"\1\1", line) for line in lines if line and line[0] in TOP_LEVEL]
        shown = lines if self._shows_all else top[:MAX_TREE_LINES]
        for line in shown:
            self.say("\n".join(wrap_text(f"  {line}", self._width)))
        self.say(f"\n{CHECKED} {calls}.")

    def show_next_commands(self, data: Path | None, conversation: str, request: str) -> None:
        if data is None:
            self.say("\n--all shows every request; --data DIR keeps it all, for `callstack console`.")
            return
        self.say(f"\nEverything lies in {data}. Look further:", whole=True)
        for command in ("console", f"tree {conversation[:SHORT_ID]}", f"diff {request[:SHORT_ID]}"):
            self.say(f"  callstack {command} --data {shlex.quote(str(data))}", whole=True)

    def show_failure(self, words: str) -> None:
        self.say(f"\nThe demo failed: {words}", "bold red")


def _call_words(name: str, count: int) -> str:
    """For example `began 3 planned frames`."""
    verb, *objects = CALL_WORDS.get(name, (f"called {name}",))
    if not objects:
        return f"{verb} {'once' if count == 1 else f'{count} times'}"
    return f"{verb} {pluralize(count, *objects)}"


def _result_line(name: str, untouched: str, proxied: str, less: str) -> str:
    return f"{name:37}{untouched:>13}{proxied:>13}{less:>8}"


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "-"
