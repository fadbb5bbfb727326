"""Chooses the format of a frame's block, by configuration and the client's name for the model."""

from __future__ import annotations

from functools import partial

from proxy.config import Config
from proxy.core.context import BlockFormat, DrawMap
from proxy.core.filemap import file_map_text


def uses_minimal_view(config: Config, model: str) -> bool:
    return (config.model_settings_of(model).view or config.view) == "minimal"


def block_format_for(config: Config, model: str) -> BlockFormat:
    return BlockFormat(
        (config.model_settings_of(model).block_format or config.block_format) == "nested",
        uses_minimal_view(config, model),
        config.block_figures,
        config.observed_tools,
        tuple(config.probes.items()),
        _file_map_renderer(config),
    )


def _file_map_renderer(config: Config) -> DrawMap | None:
    most = config.budgets.map
    return partial(file_map_text, max_tokens=most, tool_roles=config.observed_tools) if most else None
