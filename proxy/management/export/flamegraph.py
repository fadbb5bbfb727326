"""Where tokens, money and time went, by frame: for speedscope, and as collapsed stacks for every flame graph.

A request is paid for by the frame that was active when it was sent; the stack is the way from the root to it. The law:
**the widths add up to the totals** that `callstack report` prints for the same conversation.

Money is told in millionths of a USD: viewers of flame graphs think in whole numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from proxy import __version__
from proxy.accounting import Receipt
from proxy.core.frames import Tree, path_to
from proxy.core.text import cut_for_display
from proxy.management.export.items import json_line
from proxy.management.export.source import ExportInput

SPEEDSCOPE_SCHEMA = "https://www.speedscope.app/file-format-schema.json"
"""What a speedscope file says it is; nothing is fetched from there."""
NO_FRAME = "(no frame)"
"""Of requests that were answered before there was a frame, or in one of a branch that was given up."""
STACK_TITLE_CHARACTERS = 80
"""Characters of a title in a stack."""

MeasureName = Literal["tokens", "output", "cost", "time"]


@dataclass(frozen=True, slots=True)
class Measure:
    """One way to say how wide a request is. `unit` is one of the units speedscope knows."""

    title: str
    unit: Literal["none", "milliseconds"]
    value_of: Callable[[Receipt], float]


MEASURES: Mapping[MeasureName, Measure] = {
    "tokens": Measure("tokens sent", "none", lambda receipt: receipt.tokens_sent),
    "output": Measure("tokens the model wrote", "none", lambda receipt: receipt.usage.output),
    "cost": Measure("cost in millionths of a USD", "none", lambda receipt: receipt.cost * 1e6),
    "time": Measure("time in ms", "milliseconds", lambda receipt: receipt.duration_ms),
}


def render_speedscope(export_input: ExportInput) -> Iterator[bytes]:
    """One profile for each measure; a sample is a request."""
    tree = export_input.path_state.tree
    index = {frame: at for at, frame in enumerate((*tree.frames, ""))}
    frames = [{"name": _frame_label(tree, frame)} for frame in index]
    title = next((cut_for_display(f.title, STACK_TITLE_CHARACTERS) for f in tree.frames.values()), export_input.id)
    head = {
        "$schema": SPEEDSCOPE_SCHEMA,
        "name": title,
        "exporter": f"callstack {__version__}",
        "activeProfileIndex": 0,
    }
    yield json_line({**head, "shared": {"frames": frames}}).rstrip()[:-1] + b',"profiles":['
    samples = [[index[frame] for frame in _frame_stack(tree, receipt)] for receipt in export_input.receipts]
    for number, measure in enumerate(MEASURES.values()):
        weights = [measure.value_of(receipt) for receipt in export_input.receipts]
        profile = {
            "type": "sampled",
            "name": measure.title,
            "unit": measure.unit,
            "startValue": 0,
            "endValue": sum(weights),
            "samples": samples,
            "weights": weights,
        }
        yield (b"," if number else b"") + json_line(profile)
    yield b"]}\n"


def render_collapsed(export_input: ExportInput, measure: MeasureName = "tokens") -> Iterator[bytes]:
    """A line for each frame that did something: the stack, its titles joined by semicolons, and the whole number."""
    tree, of = export_input.path_state.tree, MEASURES[measure].value_of
    widths: dict[tuple[str, ...], float] = {}
    for receipt in export_input.receipts:
        stack = _frame_stack(tree, receipt)
        widths[stack] = widths.get(stack, 0) + of(receipt)
    for stack, width in widths.items():
        names = ";".join(_frame_label(tree, frame).replace(";", ",") for frame in stack)
        yield f"{names} {round(width)}\n".encode("utf-8", "backslashreplace")


def _frame_stack(tree: Tree, receipt: Receipt) -> tuple[str, ...]:
    """The root first. A frame that is not on this path has a place of its own."""
    return tuple(f.id for f in path_to(tree, receipt.frame)) if receipt.frame in tree.frames else ("",)


def _frame_label(tree: Tree, frame: str) -> str:
    """Its title, and its id: two frames of one title are two."""
    return f"{cut_for_display(tree.frames[frame].title, STACK_TITLE_CHARACTERS)} [{frame}]" if frame else NO_FRAME
