"""How a model is told where a frame stands: the form of the block, by configuration and by the model's name.

The law: **the client's name for a model counts**, as everywhere in `models`.

What this module does not do: it writes no block (`stack.block_forms`).
"""

from __future__ import annotations

from functools import partial

from proxy.config.model import Config
from proxy.core.context.block_format import DrawMap, Form
from proxy.core.filemap import frame_map


def is_minimal(config: Config, model: str) -> bool:
    """Whether a model is told no more than it needs to know."""
    return (config.for_model(model).view or config.view) == "minimal"


def form_of(config: Config, model: str) -> Form:
    """The form of its blocks."""
    return Form(
        (config.for_model(model).block_format or config.block_format) == "nested",
        is_minimal(config, model),
        config.block_figures,
        config.observed_tools,
        tuple(config.probes.items()),
        _map(config),
    )


def _map(config: Config) -> DrawMap | None:
    """What draws the map of seen files, where one is wanted."""
    most = config.budgets.map
    return partial(frame_map, most=most, names=config.observed_tools) if most else None
