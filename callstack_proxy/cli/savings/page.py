"""The page of `savings --html`: one file that shows what each agent's sessions cost, with the proxy and without. It
needs no network and runs no script."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape

from callstack_proxy.cli.output import format_dollars
from callstack_proxy.cli.savings.summary import costs_of
from callstack_proxy.replay import ReplayResult, sum_rows

BAR_WIDTH = 560
"""Pixels of the longest bar."""
STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #667085; --line: #e3e6eb; --paper: #fff;
  --before: #c3cad5; --after: #2f6fde; --good: #137a4a; --bad: #b42318; }
@media (prefers-color-scheme: dark) { :root { --ink: #e7eaf0; --soft: #98a2b3; --line: #2a303b; --paper: #14181f;
  --before: #4a5362; --after: #6ea1ff; --good: #4cc38a; --bad: #ff8a7a; } }
body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 920px; margin: 0 auto; padding: 40px 24px 64px; }
h1 { font-size: 26px; line-height: 1.25; margin: 0 0 8px; }
h2 { font-size: 17px; margin: 40px 0 12px; }
p { margin: 6px 0; } .soft { color: var(--soft); }
.big { font-size: 44px; font-weight: 650; letter-spacing: -0.02em; margin: 18px 0 0; }
.good { color: var(--good); } .bad { color: var(--bad); }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 6px 10px; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { color: var(--soft); font-weight: 500; } th:first-child, td:first-child { text-align: left; padding-left: 0; }
svg { display: block; width: 100%; height: auto; } svg text { font: 13px system-ui, sans-serif; fill: var(--ink); }
.before { fill: var(--before); } .after { fill: var(--after); } .table { overflow-x: auto; }
.key { display: inline-block; width: 10px; height: 10px; border-radius: 2px; margin: 0 6px 0 14px; }
"""


def savings_page(done: Sequence[ReplayResult], summary: Sequence[str], limits: str) -> str:
    """The page as HTML. `summary` and `limits` are the sentences of the command."""
    row = sum_rows(done)
    kind, word = ("good", "saved") if row.saved_after >= 0 else ("bad", "lost")
    share = f"{100 * abs(row.saved_after) / row.cost_untouched:.0f} % {word}" if row.cost_untouched else word
    sentences = "".join(f"<p>{escape(line)}</p>" for line in summary)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>What callstack would have saved</title><style>{STYLE}</style></head><body><main>"
        "<h1>What callstack would have saved</h1>"
        f'<p class="big {kind}">{format_dollars(abs(row.saved_after), (row.cost_untouched,))} {word}</p>'
        f'<p class="soft">{share}, of '
        f"{format_dollars(row.cost_untouched)}</p>{sentences}"
        f"<h2>By agent</h2>{_legend()}{_bars(done)}<h2>By session</h2>{_table(done)}"
        f'<p class="soft">{escape(limits)}</p></main></body></html>\n'
    )


def _legend() -> str:
    return (
        '<p class="soft"><span class="key" style="background:var(--before);margin-left:0"></span>without us'
        '<span class="key" style="background:var(--after)"></span>with us</p>'
    )


def _bars(done: Sequence[ReplayResult]) -> str:
    """Two bars for each agent, the dearest first."""
    agents: dict[str, list[ReplayResult]] = {}
    for one in done:
        agents.setdefault(one.client or "other recordings", []).append(one)
    rows = sorted(((name, sum_rows(of)) for name, of in agents.items()), key=lambda pair: -pair[1].cost_untouched)
    most = max(max(row.cost, row.cost_untouched) for _, row in rows) or 1.0
    drawn = []
    for at, (name, row) in enumerate(rows):
        top = at * 52
        drawn.append(f'<text x="0" y="{top + 22}">{escape(name)}</text>')
        for below, (kind, amount) in enumerate((("before", row.cost_untouched), ("after", row.cost))):
            width = max(2.0, BAR_WIDTH * amount / most)
            y = top + 4 + below * 18
            drawn.append(f'<rect class="{kind}" x="150" y="{y}" width="{width:.1f}" height="14" rx="2"/>')
            drawn.append(f'<text x="{158 + width:.1f}" y="{y + 12}">{format_dollars(amount, (most,))}</text>')
    return f'<svg viewBox="0 0 800 {len(rows) * 52}" role="img" aria-label="Cost by agent">{"".join(drawn)}</svg>'


def _table(done: Sequence[ReplayResult]) -> str:
    heading = _line("th", ("session", "began", "requests", "largest", "without us", "with us", "saved"))
    ordered, costs = sorted(done, key=lambda one: -one.row.cost_untouched), costs_of(done)
    return f'<div class="table"><table>{heading}{"".join(_session(one, costs) for one in ordered)}</table></div>'


def _session(one: ReplayResult, beside: Sequence[float]) -> str:
    row = one.row
    began = datetime.fromtimestamp(one.started_s, UTC).strftime("%Y-%m-%d %H:%M") if one.started_s else "-"
    share = f"{100 * row.saved_after / row.cost_untouched:.0f} %" if row.cost_untouched else "-"
    name = f"{one.client or one.dialect} {one.name.partition(' ')[2][:12]}"
    if one.title:
        name = f"{one.title} ({name})"
    amounts = (format_dollars(row.cost_untouched, beside), format_dollars(row.cost, beside), share)
    return _line("td", (name, began, f"{row.requests:,}", f"{row.peak_in:,}", *amounts))


def _line(kind: str, cells: Iterable[str]) -> str:
    return f"<tr>{''.join(f'<{kind}>{escape(cell)}</{kind}>' for cell in cells)}</tr>"
