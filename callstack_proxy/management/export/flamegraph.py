"""Tokens, money and time by frame, for speedscope and as collapsed stacks. A request counts for the frame that was
active when it was sent. Money is in millionths of a USD, because flame graph viewers use whole numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from callstack_proxy.management.export.base import JSON, TEXT, ExportFormat, MeasureName
from callstack_proxy.management.export.items import json_line
from callstack_proxy.management.export.source import ExportInput
from proxy import __version__
from proxy.accounting import Receipt
from proxy.core.frames import Tree, path_to
from proxy.core.text import cut_for_display

SPEEDSCOPE_SCHEMA = "https://www.speedscope.app/file-format-schema.json"
"""Only identifies the format; nothing is downloaded."""
NO_FRAME = "(no frame)"
"""For requests before the first frame, or in a frame of an abandoned branch."""
STACK_TITLE_CHARACTERS = 80


@dataclass(frozen=True, slots=True)
class Measure:
    """A way to weigh a request. `unit` is one of speedscope's units."""

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
    """One line per stack: titles joined by semicolons, and a whole number."""
    tree, value_of = export_input.path_state.tree, MEASURES[measure].value_of
    widths: dict[tuple[str, ...], float] = {}
    for receipt in export_input.receipts:
        stack = _frame_stack(tree, receipt)
        widths[stack] = widths.get(stack, 0) + value_of(receipt)
    for stack, width in widths.items():
        names = ";".join(_frame_label(tree, frame).replace(";", ",") for frame in stack)
        yield f"{names} {round(width)}\n".encode("utf-8", "backslashreplace")


def _frame_stack(tree: Tree, receipt: Receipt) -> tuple[str, ...]:
    """Frame ids, root first; `("",)` for a frame that is not on this path."""
    return tuple(f.id for f in path_to(tree, receipt.frame)) if receipt.frame in tree.frames else ("",)


def _frame_label(tree: Tree, frame: str) -> str:
    return f"{cut_for_display(tree.frames[frame].title, STACK_TITLE_CHARACTERS)} [{frame}]" if frame else NO_FRAME


SPEEDSCOPE = ExportFormat(
    "tokens, money and time by frame, for speedscope",
    JSON,
    ".speedscope.json",
    lambda export_input, _: render_speedscope(export_input),
)
COLLAPSED = ExportFormat(
    "the same as collapsed stacks, for any flame graph",
    TEXT,
    ".collapsed.txt",
    lambda export_input, options: render_collapsed(export_input, options.measure),
)
