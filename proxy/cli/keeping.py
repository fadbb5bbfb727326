"""The commands that change what is kept: `unfold`, `mode` and `forget`.

A running proxy keeps conversations in memory, so it is asked to do it; where none runs, the store is.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Annotated

import typer
from msgspec.structs import replace

from proxy.cli.context import AsJson, ConfigFile, DataDirectory, at, opened, run
from proxy.cli.output import counted, harmless, say, say_json
from proxy.cli.running import ask, running
from proxy.config.model import Config
from proxy.errors import InvalidConfiguration
from proxy.management.actions import unfolding
from proxy.management.views import lookup
from proxy.management.views.conversations import rows_of
from proxy.management.views.schemas import UnfoldingTold
from proxy.store import Forgotten

END_OF_TIME = 2**53
"""ms since the epoch, behind everything: a clock that ran ahead must not save a conversation from `--all`."""
MODES = ("off", "shadow", "passive", "active", "default")


def mode(
    conversation: Annotated[str, typer.Argument(help="Id, or its beginning (4 characters or more).")],
    mode: Annotated[str, typer.Argument(help="off, shadow, passive, active, or default: what the configuration says.")],
    config: ConfigFile = None,
    data: DataDirectory = None,
) -> None:
    """Turn the proxy down or away for one conversation, from its next request on."""
    if mode not in MODES:
        raise typer.BadParameter(f"{mode!r}; allowed: {', '.join(MODES)}")
    settings = at(config, data)
    found = run(_set_mode(settings, conversation, "" if mode == "default" else mode))
    say(f"{found}: mode {mode}")


async def _set_mode(settings: Config, reference: str, wanted: str) -> str:
    async with opened(settings) as store:
        known = await lookup.named(store, None, _named(reference))
        server = running(settings.data)
        if server is not None:
            ask(server, "PUT", f"/stack/conversations/{known.id}/mode", {"mode": wanted or None})
        else:
            await store.durable(store.write(known.tenant, [replace(known, mode=wanted)]))
    return known.id


def unfold(
    frame: Annotated[str, typer.Argument(help="Id, its beginning (4 characters or more), or a title.")],
    now: Annotated[bool, typer.Option("--now", help="With the next request, whatever it costs.")] = False,
    config: ConfigFile = None,
    data: DataDirectory = None,
    as_json: AsJson = False,
) -> None:
    """Bring back what was folded wrongly, at the next moment that is cheap; it is never folded again."""
    told = run(_unfold(at(config, data), frame, now=now))
    if as_json:
        say_json(told)
    else:
        say(unfolding_text(told))


async def _unfold(settings: Config, reference: str, *, now: bool) -> UnfoldingTold:
    async with opened(settings) as store:
        ledger, _, frame = await lookup.frame_named(store, None, reference)
        server = running(settings.data)
        if server is None:
            moment = time.time_ns() // 1_000_000
            return (await unfolding.ask_back(store, ledger, frame.id, now=now, at=moment)).told
    told: UnfoldingTold = ask(server, "POST", f"/stack/frames/{frame.id}/unfold?now={str(now).lower()}")
    return told


def unfolding_text(told: UnfoldingTold) -> str:
    """What comes back, and when."""
    known = "" if told["new"] else " (asked before)"
    return f"{told['frame']} ({told['title']!r}) comes back {told['comes']}; it is never folded again{known}"


def forget(
    conversation: Annotated[str, typer.Argument(help="Id, or its beginning (4 characters or more).")] = "",
    before: Annotated[str, typer.Option(help="Everything last written before this day or time (ISO 8601).")] = "",
    everything: Annotated[bool, typer.Option("--all", help="Everything there is.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    config: ConfigFile = None,
    data: DataDirectory = None,
) -> None:
    """Really delete conversations: frames, requests and bodies; no copy stays."""
    if sum((bool(conversation), bool(before), everything)) != 1:
        raise typer.BadParameter("name one conversation, or --before DATE, or --all")
    until = END_OF_TIME if everything else milliseconds(before) if before else 0
    settings = at(config, data)
    if conversation:
        conversation, what = run(_described(settings, conversation))
    else:
        what = f"everything before {before}" if before else "everything"
    if not yes:
        typer.confirm(harmless(f"Delete {what} in {settings.data} for good?"), abort=True)
    gone = run(_forget(settings, conversation, until))
    say(f"deleted {counted(gone.conversations, 'conversation')}, {gone.bytes:,} bytes")


async def _described(settings: Config, reference: str) -> tuple[str, str]:
    """Its whole id, and words by which a person knows it again. Raises UnknownFrame."""
    async with opened(settings) as store:
        known = await lookup.named(store, None, reference)
        rows = await rows_of(store, [known])
    if not rows:
        raise lookup.unknown(known.id)
    [row] = rows
    title = "it cannot be read" if "unreadable" in row else repr(row["title"])
    return row["id"], f"conversation {row['id']} ({title}, {counted(row['requests'], 'request')})"


async def _forget(settings: Config, reference: str, before: int) -> Forgotten:
    async with opened(settings) as store:
        known = await lookup.named(store, None, _named(reference)) if not before else None
        server = running(settings.data)
        if server is None:
            return await store.forget(known.tenant if known else None, known.id if known else "", before)
    # Our own connection is closed first: an open one would keep copies in the log of the database.
    path = f"/stack/conversations/{known.id}" if known else f"/stack/conversations?before={before}"
    told = ask(server, "DELETE", path)
    return Forgotten(told["conversations"], told["bytes"])


def _named(reference: str) -> str:
    """An empty name would mean the newest conversation: right for looking, not for changing."""
    if not reference:
        raise InvalidConfiguration("conversation: name one; `callstack tree` shows their ids")
    return reference


def milliseconds(moment: str) -> int:
    """A day or a time as ms since the epoch; without a zone it is this machine's."""
    try:
        return int(datetime.fromisoformat(moment).astimezone(UTC).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise typer.BadParameter(f"{moment!r} is no date; write it as 2026-01-31 or 2026-01-31T12:00") from None
