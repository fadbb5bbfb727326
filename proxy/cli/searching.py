"""The command `search`: finished frames with certain words, whatever conversation they are of.

It reads the store itself, whether a proxy runs or not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from proxy.cli.context import AsJson, ConfigFile, DataDirectory, at, opened, run
from proxy.cli.output import one_line, say, say_json
from proxy.config.model import Config
from proxy.management.views.search import MOST, FoundRows, found_rows
from proxy.management.views.totals import moment

SHORT_ID = 12


def search(
    words: Annotated[list[str], typer.Argument(help="What it was about; quotes and signs mean nothing.")],
    limit: Annotated[int, typer.Option("--limit", min=1, max=MOST, help="At most so many.")] = 10,
    config: ConfigFile = None,
    data: DataDirectory = None,
    as_json: AsJson = False,
) -> None:
    """Finished frames with these words, of all conversations, the best first."""
    found = run(_found(at(config, data), " ".join(words), limit))
    if as_json:
        say_json(found)
        return
    for line in found_text(found):
        say(line)


async def _found(config: Config, query: str, limit: int) -> FoundRows:
    async with opened(config) as store:
        return await found_rows(store, None, query, limit)


def found_text(found: FoundRows) -> Iterator[str]:
    """Two lines for each: which frame it is, and a line of what it says."""
    if not found["frames"]:
        yield "No finished frame has any of these words."
        return
    if not found["all_words"]:
        yield "No finished frame has all of these words; these come close:"
    for row in found["frames"]:
        about = f"{moment(row['ended'])}  {row['status']:<9}  {row['conversation'][:SHORT_ID]}"
        yield f"{row['frame']}  {about}  {one_line(row['title'])}"
        if row["excerpt"]:
            yield f"    {one_line(row['excerpt'])}"
    yield "Everything a frame did: callstack log FRAME"
