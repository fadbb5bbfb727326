"""The command `explain`: why each ancestor and each finished sibling stands in a frame's block, or does not."""

from __future__ import annotations

import time
from collections.abc import Iterator

from proxy.accounting.tokens import TokenCounter
from proxy.cli.context import AsJson, ConfigFile, DataDirectory, at, opened, run
from proxy.cli.inspect import Conversation
from proxy.cli.output import columns, one_line, say, say_json
from proxy.config.model import Config
from proxy.core.text import cut_for_display
from proxy.management.views import conversations, lookup
from proxy.management.views.explain import AncestorTold, Explained, SiblingTold, explained_told
from proxy.management.views.totals import moment

TITLE = 40
"""Characters of a title in a row."""


def explain(
    conversation: Conversation = "",
    config: ConfigFile = None,
    data: DataDirectory = None,
    as_json: AsJson = False,
) -> None:
    """Why each frame stands in the block of the active frame, or does not: its score, part by part."""
    told = run(_explained(at(config, data), conversation))
    if as_json:
        say_json(told)
        return
    for line in explained_text(told):
        say(line)


async def _explained(config: Config, reference: str) -> Explained:
    async with opened(config) as store:
        ledger = await lookup.ledger_named(store, None, reference)
        story, now = conversations.story_of(ledger, names=config.observed_tools), time.time_ns() // 1_000_000
        return explained_told(ledger, story, config, now, TokenCounter().count)


def explained_text(told: Explained) -> Iterator[str]:
    """A table of ancestors and one of siblings; the score stands behind its parts."""
    how = "which was not told; as it would be now" if told["at"] is None else f"as it was told at {moment(told['at'])}"
    yield f"The block of {told['frame']} ({one_line(told['title'])}), {how}"
    yield ""
    if told["ancestors"]:
        names = ("ancestor", "depth", "nearness", "recency", "status", "results", "artifacts", "score", "tokens", "")
        yield from columns([names, *map(_above, told["ancestors"])], right=range(1, 9))
    else:
        yield "No frame stands above it."
    yield ""
    if not told["siblings"]:
        yield "Nothing was finished beside it, nor beside those above it."
        return
    names = ("sibling", "level", "relevance", "recency", "results", "artifacts", "status", "score", "tokens", "")
    yield from columns([names, *map(_beside, told["siblings"])], right=range(1, 9))
    yield ""
    yield f"A sibling stands from a relevance of {told['minimum_relevance']} on, and the three newest in any case."


def _above(row: AncestorTold) -> tuple[str, ...]:
    parts = row["parts"]
    figures = (parts["nearness"], parts["recency"], parts["status"], parts["results"], parts["artifacts"])
    return (_named(row), str(row["depth"]), *map(_figure, figures), *_ending(row))


def _beside(row: SiblingTold) -> tuple[str, ...]:
    rest = row["rest"]
    figures = (row["relevance"], rest["recency"], rest["results"], rest["artifacts"], rest["status"])
    return (_named(row), str(row["level"]), *map(_figure, figures), *_ending(row))


def _named(row: AncestorTold | SiblingTold) -> str:
    return f"{row['frame']} {cut_for_display(row['title'], TITLE)}"


def _ending(row: AncestorTold | SiblingTold) -> tuple[str, str, str]:
    stands = "stands" if row["kept"] else "left out"
    return _figure(row["score"]), str(row["tokens"]), f"{stands}: {row['why']}"


def _figure(points: float) -> str:
    """Whole points without a fraction."""
    return f"{points:.1f}".removesuffix(".0")
