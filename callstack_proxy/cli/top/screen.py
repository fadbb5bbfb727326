"""The screen of `callstack top` as lines: a list of conversations, and below it the frames of the chosen one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from callstack_proxy.cli.output import escape_unsafe, one_line, pluralize
from callstack_proxy.management.views import ConversationRow, waiting_or_quiet
from proxy.core.text import cell_width, cut_at_word

LIST_SHARE = 0.35
"""Share of the height that the list of conversations may take."""
WORKING_MS = 15_000
"""A conversation with a request in so many ms is at work."""
ACTIVE_MARK = "(active)"
LEGEND = "\nLegend:"
"""Begins what stands behind a tree."""
HEADS = f"  {'':9}{'last active':>12}{'requests':>10}{'frames':>8}{'saved $':>10}{'%':>6}  title"
HINT = "↑ ↓ choose, q ends"


@dataclass(frozen=True, slots=True)
class TopView:
    """`rows` most recent first; `tree` are the frames of the row at `chosen`; `now` is in ms since the epoch."""

    rows: Sequence[ConversationRow]
    tree: str
    chosen: int
    now: int


def screen_lines(view: TopView, width: int, height: int) -> list[Text]:
    """At most `height` lines of at most `width` characters."""
    lines = [_header(view, width), Text(HEADS[:width], "dim")]
    room = max(1, min(len(view.rows), int(height * LIST_SHARE)))
    first = max(0, min(view.chosen - room // 2, len(view.rows) - room))
    for at, row in enumerate(view.rows[first : first + room], first):
        text = f"{'>' if at == view.chosen else ' '} {_row_text(row, view.now)}  "
        title = cut_at_word(one_line(row["title"] or row["id"]), max(1, width - len(text)))
        lines.append(Text(_cut(text + title, width), "bold" if at == view.chosen else ""))
    if view.rows:
        lines += [Text(), *_tree_lines(view.tree, width, height - len(lines) - 1)]
    return lines[:height]


def _header(view: TopView, width: int) -> Text:
    text = Text(f"callstack top  {pluralize(len(view.rows), 'conversation')}  {_balance(view.rows)}", "bold")
    gap = width - len(text) - len(HINT)
    return text.append(" " * gap + HINT, "dim") if gap > 1 else Text(_cut(text.plain, width), "bold")


def _balance(rows: Sequence[ConversationRow]) -> str:
    """What was paid and saved, without dollars where a plan paid for all."""
    if rows and all(row["plan"] for row in rows):
        return "paid by a plan"
    cost, untouched, saved = (sum(row[key] for row in rows) for key in ("cost", "cost_untouched", "saved"))
    share = f"{100 * saved / untouched:.0f} % " if untouched else ""
    return f"paid ${cost:.2f} of ${untouched:.2f}  {share}{'saved' if saved >= 0 else 'lost'}"


def _row_text(row: ConversationRow, now: int) -> str:
    state = waiting_or_quiet(row["last_active"], now) if row["awake"] else "passed on"
    if now - row["last_active"] < WORKING_MS:
        state = "working"
    percent = "" if row["saved_percent"] is None else f"{row['saved_percent']:.0f}"
    money = "plan" if row["plan"] else f"{row['saved']:.4f}"
    figures = f"{row['requests']:>10,}{row['frames']:>8,}{money:>10}{percent:>6}"
    return f"{state:9}{_ago(now - row['last_active']):>12}{figures}"


def _ago(ms: int) -> str:
    seconds = max(0, ms) // 1000
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit} ago"
    return f"{seconds} s ago"


def _tree_lines(tree: str, width: int, room: int) -> list[Text]:
    """The part of the tree around the active frame, as much as has room."""
    lines = escape_unsafe(tree.partition(LEGEND)[0]).rstrip().splitlines()
    active = next((at for at, line in enumerate(lines) if ACTIVE_MARK in line), len(lines) - 1)
    first = max(0, min(active - room // 2, len(lines) - room))
    shown = lines[first : first + max(0, room)]
    return [Text(_cut(line, width), "bold cyan" if ACTIVE_MARK in line else "") for line in shown]


def _cut(text: str, width: int) -> str:
    """`text`, spaces and all, cut after a word where it is too long."""
    if cell_width(text) <= width:
        return text
    start = text[: len(text) - len(text.lstrip("│├└─ "))][: max(0, width - 1)]
    return start + cut_at_word(text[len(start) :], max(1, width - cell_width(start)))


def now_ms() -> int:
    return time.time_ns() // 1_000_000
