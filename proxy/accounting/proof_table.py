"""The comparison of held-out sessions as text: its sentences, then a table of its measures."""

from __future__ import annotations

from collections.abc import Iterator

from proxy.accounting.proof import NO_DIFFERENCE, NOT_ENOUGH, ComparedMeasure, Proof
from proxy.accounting.text_tables import TableColumn, format_columns

MEANINGS = {"better": "better", "worse": "worse", "same": NO_DIFFERENCE, "few": NOT_ENOUGH}
EXPLANATION = (
    "Requests, cost and tokens are those of a typical session (geometric mean); re-reads, retries and interruptions "
    "are in a hundred requests, failed edits in a hundred edits. A session counts with its subagents."
)


def format_proof(proof: Proof, width: int | None = None) -> Iterator[str]:
    """The table only where something was compared. `width` in cells of the terminal, None for unlimited."""
    yield from proof.sentences
    if not proof.held_out:
        return
    yield f"{proof.folded:,} session{'' if proof.folded == 1 else 's'} with folds, {proof.held_out:,} held out"
    yield ""
    rows = proof.measures
    yield from format_columns(
        [
            TableColumn("measure", tuple(row.name for row in rows), is_number=False),
            TableColumn("with folds", tuple(_figure(row, row.folded) for row in rows)),
            TableColumn("held out", tuple(_figure(row, row.held_out) for row in rows)),
            TableColumn("difference", tuple(_change(row, row.difference) for row in rows)),
            TableColumn("from", tuple(_change(row, row.low) for row in rows), 1),
            TableColumn("to", tuple(_change(row, row.high) for row in rows), 1),
            TableColumn("verdict", tuple(MEANINGS[row.verdict] for row in rows), is_number=False),
        ],
        width,
    )
    yield EXPLANATION


def _change(row: ComparedMeasure, value: float | None) -> str:
    return "-" if value is None else f"{value:+.1f} {'%' if row.unit == 'percent' else 'pt'}"


def _figure(row: ComparedMeasure, value: float | None) -> str:
    if value is None:
        return "-"
    if row.unit == "points":
        return f"{value:.1f} %"
    return f"${value:.4f}" if row.name == "cost" else f"{value:,.0f}"
