"""The commands that drive the tree by hand: `push`, `plan`, `activate`, `pop`, `invalidate`, `rename`.

A running proxy is asked, which keeps conversations in memory; where none runs, the store is.

The commands that change what is kept: `unfold`, `mode` and `forget`.

A running proxy keeps conversations in memory, so it is asked to do it; where none runs, the store is.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Annotated, NamedTuple

import typer
from msgspec.structs import replace

from proxy.cli.context import AsJson, ConfigFile, DataDirectory, at, opened, run
from proxy.cli.output import counted, harmless, say, say_json
from proxy.cli.running import ask, running
from proxy.config.model import Config
from proxy.core.commands.command_values import Activate, Deed, Invalidate, Plan, Pop, Push, Rename, Step
from proxy.errors import InvalidConfiguration, UnknownFrame
from proxy.management.actions import frames as unfolding
from proxy.management.actions.frames import At, HandTold, do
from proxy.management.views import lookup
from proxy.management.views.conversations import rows_of, story_of
from proxy.management.views.schemas import UnfoldingTold
from proxy.store import Forgotten

FrameNamed = Annotated[str, typer.Argument(help="Id, its beginning (4 characters or more), or a title.")]
Conversation = Annotated[
    str, typer.Option("--in", help="Id, or its beginning (4 characters or more); default: the newest.")
]
Criteria = Annotated[str, typer.Option("--criteria", help="When it is done; default: as its title says.")]


class Route(NamedTuple):
    """How a running proxy is asked for a deed: the end of the path, and the body."""

    method: str
    end: str
    body: object


def push(
    title: Annotated[str, typer.Argument(help="2-5 words.")],
    criteria: Criteria = "",
    conversation: Conversation = "",
    config: ConfigFile = None,
    data: DataDirectory = None,
    as_json: AsJson = False,
) -> None:
    """Begin a frame under the active one."""
    route = Route("POST", "frames", {"title": title, "criteria": criteria})
    _tell(run(_in_conversation(at(config, data), conversation, Push(Step(title, criteria)), route)), as_json=as_json)


def plan(
    titles: Annotated[list[str], typer.Argument(metavar="titles", help="One frame each.")],
    criteria: Annotated[str, typer.Option("--criteria", help="When it is done; for a single frame.")] = "",
    under: Annotated[str, typer.Option("--under", help="Id or title of a frame; default: the active one.")] = "",
    conversation: Conversation = "",
    config: ConfigFile = None,
    data: DataDirectory = None,
    as_json: AsJson = False,
) -> None:
    """Plan frames under the active one."""
    if criteria and len(titles) > 1:
        raise typer.BadParameter("--criteria goes with one title; plan the frames one by one")
    children = [{"title": title, "criteria": criteria} for title in titles]
    route = Route("POST", "frames", {"plan": True, "parent": under, "children": children})
    deed = Plan(tuple(Step(title, criteria) for title in titles), under)
    _tell(run(_in_conversation(at(config, data), conversation, deed, route)), as_json=as_json)


def activate(
    frame: FrameNamed,
    config: ConfigFile = None,
    data: DataDirectory = None,
    as_json: AsJson = False,
) -> None:
    """Begin a planned frame, resume a blocked one, try a failed one again."""
    _tell(run(_to_frame(at(config, data), frame, Activate(""), Route("POST", "/activate", None))), as_json=as_json)


def pop(
    frame: Annotated[
        str, typer.Argument(help="Id, its beginning (4 characters or more), or a title; default: the active one.")
    ] = "",
    status: Annotated[str, typer.Option("--status", help="completed, failed or blocked.")] = "completed",
    results: Annotated[str, typer.Option("--results", help="Default: the last words in it.")] = "",
    conversation: Annotated[
        str,
        typer.Option(
            "--in", help="Whose active one; id, or its beginning (4 characters or more); default: the newest."
        ),
    ] = "",
    config: ConfigFile = None,
    data: DataDirectory = None,
    as_json: AsJson = False,
) -> None:
    """End the active frame, or one above it with everything open below."""
    if status not in ("completed", "failed", "blocked"):
        raise typer.BadParameter(f"{status!r}; allowed: completed, failed, blocked", param_hint="--status")
    if frame and conversation:
        raise typer.BadParameter("--in names whose active frame ends; a frame that is named needs none")
    settings, route = at(config, data), Route("POST", "/pop", {"status": status, "results": results})
    ended = frame or run(_active(settings, conversation))
    _tell(run(_to_frame(settings, ended, Pop("", status, results), route)), as_json=as_json)


def invalidate(
    frame: FrameNamed,
    reason: Annotated[str, typer.Option("--reason", help="Why; the model reads it.")],
    config: ConfigFile = None,
    data: DataDirectory = None,
    as_json: AsJson = False,
) -> None:
    """A frame is no longer wanted, and neither is what is planned below it."""
    route = Route("POST", "/invalidate", {"reason": reason})
    _tell(run(_to_frame(at(config, data), frame, Invalidate("", reason), route)), as_json=as_json)


def rename(
    frame: FrameNamed,
    title: Annotated[str, typer.Option("--title", help="Default: as it is.")] = "",
    criteria: Annotated[str, typer.Option("--criteria", help="Default: as they are.")] = "",
    config: ConfigFile = None,
    data: DataDirectory = None,
    as_json: AsJson = False,
) -> None:
    """Other words for a frame, while it is planned."""
    route = Route("PATCH", "", {"title": title, "criteria": criteria})
    _tell(run(_to_frame(at(config, data), frame, Rename("", title, criteria), route)), as_json=as_json)


# ------------------------------------------------------------------------------------------------------------- working
async def _in_conversation(settings: Config, reference: str, deed: Deed, route: Route) -> HandTold:
    async with opened(settings) as store:
        ledger = await lookup.ledger_named(store, None, reference)
        server = running(settings.data)
        if server is None:
            told, _ = await do(store, settings, At(ledger, story_of(ledger), _now()), deed)
            return told
    answer: HandTold = ask(
        server, route.method, f"/stack/conversations/{ledger.conversation.id}/{route.end}", route.body
    )
    return answer


async def _active(settings: Config, reference: str) -> str:
    """The id of the active frame of a conversation. Raises UnknownFrame, also where no frame was begun there."""
    async with opened(settings) as store:
        ledger = await lookup.ledger_named(store, None, reference)
        if active := story_of(ledger).tree.active:
            return active
        raise UnknownFrame(f"No frame was begun in {ledger.conversation.id}. `callstack tree` lists conversations.")


async def _to_frame(
    settings: Config, reference: str, deed: Activate | Pop | Invalidate | Rename, route: Route
) -> HandTold:
    async with opened(settings) as store:
        ledger, story, frame = await lookup.frame_named(store, None, reference)
        server = running(settings.data)
        if server is None:
            told, _ = await do(store, settings, At(ledger, story, _now()), replace(deed, frame=frame.id))
            return told
    answer: HandTold = ask(server, route.method, f"/stack/frames/{frame.id}{route.end}", route.body)
    return answer


def _tell(told: HandTold, *, as_json: bool) -> None:
    if as_json:
        say_json(told)
    else:
        say(told["told"])


def _now() -> int:
    return time.time_ns() // 1_000_000


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
