"""The commands that drive the tree by hand: `push`, `plan`, `activate`, `pop`, `invalidate`, `rename`.

A running proxy is asked, which keeps conversations in memory; where none runs, the store is.
"""

from __future__ import annotations

import time
from typing import Annotated, NamedTuple

import typer
from msgspec.structs import replace

from proxy.cli.context import AsJson, ConfigFile, DataDirectory, at, opened, run
from proxy.cli.output import say, say_json
from proxy.cli.running import ask, running
from proxy.config.model import Config
from proxy.core.commands.values import Activate, Deed, Invalidate, Plan, Pop, Push, Rename, Step
from proxy.errors import UnknownFrame
from proxy.management.actions.frames import At, HandTold, do
from proxy.management.views import lookup
from proxy.management.views.conversations import story_of

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
