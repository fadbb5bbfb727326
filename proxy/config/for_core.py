"""What the configuration says in the words of the core. Apart from the package's face, because reading a configuration
needs nothing of the tools."""

from __future__ import annotations

from proxy.config.model import Config
from proxy.core.context import FLAT_FORMAT, BlockFormat, DrawMap
from proxy.core.tools import FrameBlockBudgets, ToolSettings


def tool_settings(config: Config) -> ToolSettings:
    """Each field is the setting of its name, but for those that are made of several, or for a model."""
    budgets = config.budgets
    made = {
        "budgets": FrameBlockBudgets(budgets.total, budgets.ancestors, budgets.siblings, budgets.current),
        "autonomy": config.autonomy_rules,
        "tool_roles": config.observed_tools,
        "block_format": FLAT_FORMAT,
    }
    settings = {name: getattr(config, name) for name in ToolSettings.__struct_fields__ if name in Config.model_fields}
    return ToolSettings(**(settings | made))


def uses_minimal_view(config: Config, model: str) -> bool:
    return (config.model_settings_of(model).view or config.view) == "minimal"


def block_format_for(config: Config, model: str, draw_map: DrawMap | None = None) -> BlockFormat:
    """The format of a frame's block, by configuration and the client's name for the model."""
    return BlockFormat(
        (config.model_settings_of(model).block_format or config.block_format) == "nested",
        uses_minimal_view(config, model),
        config.block_figures,
        config.observed_tools,
        tuple(config.probes.items()),
        draw_map,
    )


def forbids_user_after_result(config: Config, model: str) -> bool:
    """By the client's model name: whether it rejects a user message behind a result."""
    return config.tariff_of(config.upstream_model_of(model)).after_tool == "suffix"
