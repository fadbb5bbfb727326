"""The command `regrets`: which tools read again what had left the line, and which rule their outputs come under.

It reads the store itself, whether a proxy runs or not. The rules are those of the configuration as it stands now; what
was read again may have left under other ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

import typer
from typing_extensions import TypedDict

from proxy.cli.context import AsJson, ConfigFile, DataDirectory, at, opened, run
from proxy.cli.output import columns, say, say_json
from proxy.config.model import Config
from proxy.management.views import lookup
from proxy.management.views.totals import sums

NO_RULE = "none"


class RegretRow(TypedDict):
    """`times` counts files that were read again after they had left the line; `rule` is None where there is none."""

    tool: str
    times: int
    rule: str | None


def regrets(
    conversation: Annotated[str, typer.Option(help="Only this one: an id, or its beginning.")] = "",
    config: ConfigFile = None,
    data: DataDirectory = None,
    as_json: AsJson = False,
) -> None:
    """Files that were read again after they had left the line: by tool, with the rule of `outputs` it comes under."""
    rows = run(_rows(at(config, data), conversation))
    if as_json:
        say_json({"regrets": rows})
        return
    for line in regrets_text(rows):
        say(line)


async def _rows(config: Config, reference: str) -> list[RegretRow]:
    """The most frequent first."""
    async with opened(config) as store:
        only = (await lookup.ledger_named(store, None, reference)).conversation.id if reference else ""
        told = await sums(store, None, "conversation", only, names=config.observed_tools)
        by_tool = told["total"]["rereads_gone_by"] or {}
    found: list[RegretRow] = []
    for tool, times in sorted(by_tool.items(), key=lambda row: (-row[1], row[0])):
        rule = config.output_rules.of(tool)
        found.append({"tool": tool, "times": times, "rule": rule.name if rule else None})
    return found


def regrets_text(rows: Sequence[RegretRow]) -> Iterator[str]:
    if not rows:
        yield "Nothing that had left the line was read again."
        return
    cells = [(row["tool"], f"{row['times']:,}", row["rule"] or NO_RULE) for row in rows]
    yield from columns([("tool", "read again", "rule"), *cells], right=(1,))
    yield "A rule in `outputs` says how much of a tool's outputs stays: docs/configuration.md."
