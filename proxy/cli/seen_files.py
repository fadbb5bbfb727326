"""The command `map`: which symbols are where, of the files that a conversation has seen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from proxy.accounting.tokens import TokenCounter
from proxy.cli.context import AsJson, ConfigFile, DataDirectory, at, opened, run
from proxy.cli.inspect import Conversation
from proxy.cli.output import counted, one_line, say, say_json
from proxy.config.model import Config
from proxy.core.filemap import BUDGET
from proxy.core.filemap.render import PARTS
from proxy.management.views import conversations, lookup
from proxy.management.views.seen_files import SeenFilesTold, seen_files


def map(
    conversation: Conversation = "",
    tokens: Annotated[int, typer.Option(min=100, max=16_000, help="At most so many are told.")] = BUDGET,
    config: ConfigFile = None,
    data: DataDirectory = None,
    as_json: AsJson = False,
) -> None:
    """Which symbols are where, of the files that were read or written; those first that others refer to most."""
    told = run(_mapped(at(config, data), conversation, tokens))
    if as_json:
        say_json(told)
        return
    for line in map_text(told):
        say(line)


async def _mapped(config: Config, reference: str, tokens: int) -> SeenFilesTold:
    async with opened(config) as store:
        ledger = await lookup.ledger_named(store, None, reference)
        return seen_files(ledger, conversations.story_of(ledger), config, tokens, TokenCounter().count)


def map_text(told: SeenFilesTold) -> Iterator[str]:
    """A file, below it what it defines; last how much of all that is."""
    if not told["files"]:
        yield "No file was seen here that defines anything." if told["seen"] else "No file was seen here."
        return
    for file in told["files"]:
        yield one_line(file["path"]) + ("" if file["whole"] else PARTS)
        for symbol in file["symbols"]:
            yield f"{symbol['line'] or '':>6} {one_line(symbol['text'])}"
    yield ""
    symbols = sum(len(file["symbols"]) for file in told["files"])
    named = f"{counted(symbols, 'symbol')} of {counted(len(told['files']), 'file')}"
    yield f"{named} in {told['tokens']:,} tokens; {counted(told['seen'], 'file')} seen in all"
