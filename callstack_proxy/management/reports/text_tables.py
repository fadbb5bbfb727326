"""Receipt totals as text: a table with one line per row, or a statement of all of them.

Columns fit the terminal: the least important are left out first, and names are cut before figures are, because a figure
is shown whole or not at all. Widths are cells of the terminal; None means unlimited.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from callstack_proxy.management.reports.totals import GroupBy, ReceiptTotals, is_dearer, percent_saved
from proxy.core.text import cell_width, cut_at_word, dollar_decimals

GAP = "  "


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A heading and one cell a row. `rank` 0 stays; of the others the one with the highest goes first.

    `min_width`: a text may be cut to this width, after a word and with `…`, an id anywhere, as its beginning stands for
    it; 0: it is shown whole.
    """

    heading: str
    cells: tuple[str, ...]
    rank: int = 0
    min_width: int = 0
    is_number: bool = True
    is_id: bool = False

    @property
    def width(self) -> int:
        return max(map(cell_width, (self.heading, *self.cells)))

    def shortened(self, width: int) -> TableColumn:
        """At most `width` wide, and never less than its heading and `min_width` ask for."""
        width = max(width, self.min_width, len(self.heading))
        cells = (cell[:width] if self.is_id else cut_at_word(cell, width) for cell in self.cells)
        return replace(self, cells=tuple(cells))


def format_columns(columns: Sequence[TableColumn], width: int | None = None) -> list[str]:
    """The columns side by side, headings first. A column without a single word in it is left away."""
    shown = [column for column in columns if any(column.cells) or column.rank == 0]
    if width is not None:
        shown = _fit_columns(shown, width)
    rows = zip(*((column.heading, *column.cells) for column in shown), strict=True)
    return [GAP.join(_padded(cell, column) for cell, column in zip(row, shown, strict=True)).rstrip() for row in rows]


def _fit_columns(columns: Sequence[TableColumn], width: int) -> list[TableColumn]:
    """Names cut as far as they may be, then columns left out, then the names given what room there is, ids last."""
    shown = list(columns)
    while _min_total_width(shown) > width and (least := max(shown, key=lambda column: column.rank)).rank:
        shown.remove(least)
    room = width - _min_total_width(shown)
    for at, column in sorted(enumerate(shown), key=lambda pair: pair[1].is_id):
        if column.min_width:
            cut = column.shortened(column.shortened(0).width + max(0, room))
            room -= cut.width - column.shortened(0).width
            shown[at] = cut
    return shown


def _min_total_width(columns: Sequence[TableColumn]) -> int:
    widths = [column.shortened(0).width if column.min_width else column.width for column in columns]
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _padded(cell: str, column: TableColumn) -> str:
    gap = " " * (column.width - cell_width(cell))
    return gap + cell if column.is_number else cell + gap


TITLE, TIMED_TITLE = 30, 48
"""Characters of a title, where there is room; with a day and a time in front of it."""
ID = 12
"""Characters of an id, where there is none: any command takes its beginning."""
MIN_TITLE_WIDTH, MIN_TIMED_TITLE_WIDTH = 19, 28
"""Characters of a title, before columns are left out for it."""
SMALL_AMOUNT_USD = 0.01
"""USD: where all amounts are smaller, two more decimals are shown."""
_KEYED_BY_ID: tuple[GroupBy, ...] = ("request", "frame", "conversation")


def format_table(
    rows: Sequence[ReceiptTotals],
    *,
    by: GroupBy | None = None,
    heading: str = "",
    width: int | None = None,
    money: bool = True,
) -> str:
    """A line for each row. `by` says what the rows stand for; without `money` no amounts are told."""
    is_id = by in _KEYED_BY_ID
    title_width = TIMED_TITLE if by == "request" else TITLE
    amounts = [amount for row in rows for amount in (row.cost, row.cost_untouched, row.saved_after)]

    def counted(name: str, of: Callable[[ReceiptTotals], int], rank: int = 0) -> TableColumn:
        return TableColumn(name, tuple(f"{of(row):,}" for row in rows), rank)

    def looked_up(name: str, of: Callable[[ReceiptTotals], int | None], rank: int) -> TableColumn:
        return TableColumn(name, tuple("" if (count := of(row)) is None else f"{count:,}" for row in rows), rank)

    def paid(name: str, of: Callable[[ReceiptTotals], float], rank: int = 0) -> TableColumn:
        return TableColumn(name, format_amounts([of(row) for row in rows], amounts), rank)

    named = by in ("frame", "conversation")
    columns = (
        TableColumn(
            heading, tuple(row.key for row in rows), min_width=ID if is_id else 2 * ID, is_number=False, is_id=is_id
        ),
        TableColumn(
            "title",
            tuple(cut_at_word(row.title, title_width) for row in rows),
            1,
            min_width=MIN_TIMED_TITLE_WIDTH if by == "request" else MIN_TITLE_WIDTH,
            is_number=False,
        ),
        TableColumn("status", tuple(row.status for row in rows), 5, is_number=False),
        counted("requests", lambda row: row.requests, 2 if named else 16 if by == "request" else 0),
        counted("rounds", lambda row: row.rounds, 13),
        counted("recalls", lambda row: row.recalls, 6 if named else 14),
        looked_up("re-reads", lambda row: row.rereads, 7),
        looked_up("gone", lambda row: row.rereads_gone, 7),
        counted("tokens in", lambda row: row.tokens_in),
        counted("sent", lambda row: row.tokens_sent),
        counted("cached", lambda row: row.sent_cached, 8),
        counted("written", lambda row: row.sent_written, 10),
        counted("uncached", lambda row: row.sent_uncached, 9),
        TableColumn("usage", tuple(format_reported_input(row) for row in rows), 7),
        counted("own", lambda row: row.own, 11),
        counted("saved", lambda row: row.tokens_saved, 4),
        counted("peak in", lambda row: row.peak_in, 15),
        counted("peak sent", lambda row: row.peak_sent, 12),
        *(
            (
                paid("with us $", lambda row: row.cost),
                paid("without us $", lambda row: row.cost_untouched, 3),
                paid("caused $", lambda row: row.cost_caused, 17),
                paid("saved $", lambda row: row.saved_after),
            )
            if money
            else ()
        ),
    )
    return "\n".join(format_columns(columns, width))


def format_statement(row: ReceiptTotals, *, fixed: bool = True, width: int | None = None) -> str:
    """All of it: what came, what was sent, what of that is ours, what the provider says, what was saved."""
    cost, untouched, saved, caused = format_amounts([row.cost, row.cost_untouched, row.saved_after, row.cost_caused])
    first_heading = "from the agents" if fixed else "from the agents, less the fixed part"
    known = [
        (first_heading, row.tokens_in, row.untouched_cached, row.untouched_written, row.untouched_uncached, untouched),
        ("sent", row.tokens_sent, row.sent_cached, row.sent_written, row.sent_uncached, cost),
    ]
    cells = [(name, *(f"{count:,}" for count in counts), money) for name, *counts, money in known]
    if row.own:
        cells.append(("  added by us", f"{row.own:,}", "", "", "", ""))
    if row.reported_input:
        counted = (row.reported_input, row.reported_cached, row.reported_written)
        rest = max(0, row.reported_input - row.reported_cached - row.reported_written)
        cells.append(("the provider counted", *(f"{count:,}" for count in (*counted, rest)), ""))
    if row.cost_caused:
        cells.append(("read again", "", "", "", "", caused))
    cells.append(("saved", f"{row.tokens_saved:,}", "", "", "", saved))
    headings = (("", 0), ("tokens", 0), ("cached", 1), ("written", 3), ("uncached", 2), ("USD", 0))
    columns = [
        TableColumn(name, tuple(cell), rank, is_number=name != "")
        for (name, rank), cell in zip(headings, zip(*cells, strict=True), strict=True)
    ]
    return "\n".join([*format_columns(columns, width), *_explanations(row)])


def _explanations(row: ReceiptTotals) -> list[str]:
    """What the figures need to be understood."""
    requests = f"{row.requests:,} request{'' if row.requests == 1 else 's'}"
    words = [f"{requests}, {row.rounds:,} rounds, {row.recalls:,} recalls by the model{_share(row)}"]
    if row.rereads:
        by = ", ".join(f"{tool} {times:,}" for tool, times in (row.rereads_gone_by or {}).items())
        told_by = f" ({by})" if by else ""
        of_ours = f", {row.rereads_gone:,} of them after it was put away{told_by}" if row.rereads_gone else ""
        words.append(f"{row.rereads:,} reads of what had been read before{of_ours}")
    if row.caused:
        words.append(f"{caused_words(row.caused, row.cost_caused)}; that is taken off what was saved")
    if row.own:
        texts = f"texts {row.own_texts:,}" + (f" (traces {row.own_traces:,})" if row.own_traces else "")
        words.append(
            f"added by us: tools {row.own_tools:,}, {texts}, rounds that only the model saw {row.own_rounds:,}"
        )
    if row.lost_reasoning:
        words.append(f"{row.lost_reasoning:,} tokens of reasoning left out; the model may think them again")
    if row.reported_input:
        words.append(f"the provider told its count for {row.reported:,} of {requests}{_apart(row)}")
    if row.estimated:
        words.append(
            f"cost estimated for {row.estimated:,} of {row.requests:,}: no usage, or no cached tokens, reported"
        )
    if row.unpriced:
        words.append(f"{row.unpriced:,} of {row.requests:,}: model in no price table, its prices are assumed")
    if free := row.output_unpriced:
        words.append(f"{free:,} of {row.requests:,}: the price of output is not known, it counts as free")
    return words


def _apart(row: ReceiptTotals) -> str:
    """How far the provider's count is from ours; empty where it did not count all of it."""
    if row.reported < row.requests or not row.reported_sent:
        return ""
    percent = 100 * (row.reported_input / row.reported_sent - 1)
    return f": {abs(percent):.1f} % {'less' if percent < 0 else 'more'} than ours"


def format_balance(saved: float, untouched: float, when: str = "so far", caused: float = 0.0) -> str:
    """`saved so far: $0.0312 of $0.2690 (11.6 %)`; a loss has a minus. `caused`: what of it was taken off before."""
    amount, whole, taken_off = format_amounts([abs(saved), untouched, caused])
    percent = percent_saved(saved, untouched)
    share = "" if percent is None else f" ({percent:.1f} %)"
    after = f", after ${taken_off} for reading again what was put away" if caused and float(taken_off) else ""
    return f"saved {when}: {'-' if saved < 0 else ''}${amount} of ${whole}{share}{after}"


def caused_words(times: float, cost: float) -> str:
    """`3 reads more than where nothing is put away: $0.0040`."""
    (amount,) = format_amounts([cost])
    count = max(1, round(times))
    return f"{count:,} {'read' if count == 1 else 'reads'} more than where nothing is put away: ${amount}"


def dearer_sentence(rows: Sequence[ReceiptTotals], noun: str) -> str:
    """How many of `rows` cost more with the proxy than untouched, and how much; `noun` is what a row stands for."""
    worse = [row for row in rows if is_dearer(row)]
    if not worse:
        return "Dearer with us: none."
    more = sum(row.cost - row.cost_untouched for row in worse)
    count = f"{len(worse):,} {noun}{'' if len(worse) == 1 else 's'}"
    sentence = f"Dearer with us: {count}, ${more:.{dollar_decimals([more])}f} in all"
    shares = [row.cost / row.cost_untouched - 1 for row in worse if row.cost_untouched]
    return f"{sentence}, at most {100 * max(shares):.1f} %." if len(shares) == len(worse) else f"{sentence}."


def _share(row: ReceiptTotals) -> str:
    """How much of the money was saved."""
    if not row.cost_untouched:
        return ""
    saved = row.saved_after
    return f"; {100 * abs(saved) / row.cost_untouched:.0f} % of the money {'lost' if saved < 0 else 'saved'}"


def format_reported_input(row: ReceiptTotals) -> str:
    """Input tokens as the provider reports them; with `?` where it did not for every request, empty where for none."""
    if not row.reported_input:
        return ""
    return f"{row.reported_input:,}{'' if row.reported == row.requests else '?'}"


def format_amounts(money: Sequence[float], beside: Sequence[float] = ()) -> tuple[str, ...]:
    """USD with four decimals, with six where all of them are small, and all that stand `beside` them."""
    shown = (*money, *beside)
    places = 4 if not any(shown) or max(map(abs, shown)) >= SMALL_AMOUNT_USD else 6
    return tuple(f"{amount:.{places}f}" for amount in money)
