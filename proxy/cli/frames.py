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

from proxy.cli.context import AsJson, ConfigFile, DataDirectory, opened_store, run_async, settings_at
from proxy.cli.output import escape_unsafe, pluralize, print_json, print_line
from proxy.cli.running import ask_proxy, find_running_proxy
from proxy.config import Config
from proxy.core.commands import (
    ActivateCommand,
    FrameCommand,
    FrameSpec,
    InvalidateCommand,
    PlanCommand,
    PopCommand,
    PushCommand,
    RenameCommand,
)
from proxy.errors import InvalidConfiguration, NotFound
from proxy.management.actions import CommandTarget, FrameCommandView, run_command
from proxy.management.actions import frames as unfolding
from proxy.management.views import UnfoldView, conversation_rows_of, lookup, path_state_of
from proxy.store import DeletionResult

FrameArgument = Annotated[str, typer.Argument(help="Id, its beginning (4 characters or more), or a title.")]
ConversationOption = Annotated[
    str, typer.Option("--in", help="Id, or its beginning (4 characters or more); default: the newest.")
]
Criteria = Annotated[str, typer.Option("--criteria", help="When it is done; default: as its title says.")]


class ProxyRoute(NamedTuple):
    """How a running proxy is asked for a deed: the end of the path, and the body."""

    method: str
    path_suffix: str
    body: object


def push(
    title: Annotated[str, typer.Argument(help="2-5 words.")],
    criteria: Criteria = "",
    conversation: ConversationOption = "",
    config: ConfigFile = None,
    data: DataDirectory = None,
    as_json: AsJson = False,
) -> None:
    """Begin a frame under the active one."""
    route = ProxyRoute("POST", "frames", {"title": title, "criteria": criteria})
    _print_result(
        run_async(
            _run_in_conversation(
                settings_at(config, data), conversation, PushCommand(FrameSpec(title, criteria)), route
            )
        ),
        as_json=as_json,
    )


def plan(
    titles: Annotated[list[str], typer.Argument(metavar="titles", help="One frame each.")],
    criteria: Annotated[str, typer.Option("--criteria", help="When it is done; for a single frame.")] = "",
    under: Annotated[str, typer.Option("--under", help="Id or title of a frame; default: the active one.")] = "",
    conversation: ConversationOption = "",
    config: ConfigFile = None,
    data: DataDirectory = None,
    as_json: AsJson = False,
) -> None:
    """Plan frames under the active one."""
    if criteria and len(titles) > 1:
        raise typer.BadParameter("--criteria goes with one title; plan the frames one by one")
    children = [{"title": title, "criteria": criteria} for title in titles]
    route = ProxyRoute("POST", "frames", {"plan": True, "parent": under, "children": children})
    command = PlanCommand(tuple(FrameSpec(title, criteria) for title in titles), under)
    _print_result(
        run_async(_run_in_conversation(settings_at(config, data), conversation, command, route)), as_json=as_json
    )


def activate(
    frame: FrameArgument,
    config: ConfigFile = None,
    data: DataDirectory = None,
    as_json: AsJson = False,
) -> None:
    """Begin a planned frame, resume a blocked one, try a failed one again."""
    _print_result(
        run_async(
            _run_on_frame(settings_at(config, data), frame, ActivateCommand(""), ProxyRoute("POST", "/activate", None))
        ),
        as_json=as_json,
    )


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
    settings, route = settings_at(config, data), ProxyRoute("POST", "/pop", {"status": status, "results": results})
    ended = frame or run_async(_active_frame_of(settings, conversation))
    _print_result(run_async(_run_on_frame(settings, ended, PopCommand("", status, results), route)), as_json=as_json)


def invalidate(
    frame: FrameArgument,
    reason: Annotated[str, typer.Option("--reason", help="Why; the model reads it.")],
    config: ConfigFile = None,
    data: DataDirectory = None,
    as_json: AsJson = False,
) -> None:
    """A frame is no longer wanted, and neither is what is planned below it."""
    route = ProxyRoute("POST", "/invalidate", {"reason": reason})
    _print_result(
        run_async(_run_on_frame(settings_at(config, data), frame, InvalidateCommand("", reason), route)),
        as_json=as_json,
    )


def rename(
    frame: FrameArgument,
    title: Annotated[str, typer.Option("--title", help="Default: as it is.")] = "",
    criteria: Annotated[str, typer.Option("--criteria", help="Default: as they are.")] = "",
    config: ConfigFile = None,
    data: DataDirectory = None,
    as_json: AsJson = False,
) -> None:
    """Other words for a frame, while it is planned."""
    route = ProxyRoute("PATCH", "", {"title": title, "criteria": criteria})
    _print_result(
        run_async(_run_on_frame(settings_at(config, data), frame, RenameCommand("", title, criteria), route)),
        as_json=as_json,
    )


# ------------------------------------------------------------------------------------------------------------- working
async def _run_in_conversation(
    settings: Config, reference: str, command: FrameCommand, route: ProxyRoute
) -> FrameCommandView:
    async with opened_store(settings) as store:
        ledger = await lookup.find_ledger(store, None, reference)
        server = find_running_proxy(settings.data)
        if server is None:
            told, _ = await run_command(store, settings, CommandTarget(ledger, path_state_of(ledger), _now()), command)
            return told
    answer: FrameCommandView = ask_proxy(
        server, route.method, f"/stack/conversations/{ledger.conversation.id}/{route.path_suffix}", route.body
    )
    return answer


async def _active_frame_of(settings: Config, reference: str) -> str:
    """The id of the active frame of a conversation. Raises UnknownFrame, also where no frame was begun there."""
    async with opened_store(settings) as store:
        ledger = await lookup.find_ledger(store, None, reference)
        if active := path_state_of(ledger).tree.active:
            return active
        raise NotFound(f"No frame was begun in {ledger.conversation.id}. `callstack tree` lists conversations.")


async def _run_on_frame(
    settings: Config,
    reference: str,
    command: ActivateCommand | PopCommand | InvalidateCommand | RenameCommand,
    route: ProxyRoute,
) -> FrameCommandView:
    async with opened_store(settings) as store:
        ledger, path_state, frame = await lookup.find_frame_in_store(store, None, reference)
        server = find_running_proxy(settings.data)
        if server is None:
            told, _ = await run_command(
                store, settings, CommandTarget(ledger, path_state, _now()), replace(command, frame=frame.id)
            )
            return told
    answer: FrameCommandView = ask_proxy(
        server, route.method, f"/stack/frames/{frame.id}{route.path_suffix}", route.body
    )
    return answer


def _print_result(told: FrameCommandView, *, as_json: bool) -> None:
    if as_json:
        print_json(told)
    else:
        print_line(told["told"])


def _now() -> int:
    return time.time_ns() // 1_000_000


END_OF_TIME = 2**53
"""ms since the epoch, behind everything: a clock that ran ahead must not save a conversation from `--all`."""
MODE_CHOICES = ("off", "shadow", "passive", "active", "default")


def mode(
    conversation: Annotated[str, typer.Argument(help="Id, or its beginning (4 characters or more).")],
    mode: Annotated[str, typer.Argument(help="off, shadow, passive, active, or default: what the configuration says.")],
    config: ConfigFile = None,
    data: DataDirectory = None,
) -> None:
    """Turn the proxy down or away for one conversation, from its next request on."""
    if mode not in MODE_CHOICES:
        raise typer.BadParameter(f"{mode!r}; allowed: {', '.join(MODE_CHOICES)}")
    settings = settings_at(config, data)
    found = run_async(_set_mode(settings, conversation, "" if mode == "default" else mode))
    print_line(f"{found}: mode {mode}")


async def _set_mode(settings: Config, reference: str, wanted: str) -> str:
    async with opened_store(settings) as store:
        known = await lookup.find_conversation(store, None, _require_name(reference))
        server = find_running_proxy(settings.data)
        if server is not None:
            ask_proxy(server, "PUT", f"/stack/conversations/{known.id}/mode", {"mode": wanted or None})
        else:
            await store.wait_until_durable(store.write(known.tenant, [replace(known, mode=wanted)]))
    return known.id


def unfold(
    frame: Annotated[str, typer.Argument(help="Id, its beginning (4 characters or more), or a title.")],
    now: Annotated[bool, typer.Option("--now", help="With the next request, whatever it costs.")] = False,
    config: ConfigFile = None,
    data: DataDirectory = None,
    as_json: AsJson = False,
) -> None:
    """Bring back what was folded wrongly, at the next moment that is cheap; it is never folded again."""
    told = run_async(_request_unfold(settings_at(config, data), frame, now=now))
    if as_json:
        print_json(told)
    else:
        print_line(unfolding_text(told))


async def _request_unfold(settings: Config, reference: str, *, now: bool) -> UnfoldView:
    async with opened_store(settings) as store:
        ledger, _, frame = await lookup.find_frame_in_store(store, None, reference)
        server = find_running_proxy(settings.data)
        if server is None:
            compaction_input = time.time_ns() // 1_000_000
            return (await unfolding.store_unfold_request(store, ledger, frame.id, now=now, at=compaction_input)).view
    told: UnfoldView = ask_proxy(server, "POST", f"/stack/frames/{frame.id}/unfold?now={str(now).lower()}")
    return told


def unfolding_text(told: UnfoldView) -> str:
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
    until = END_OF_TIME if everything else parse_local_time(before) if before else 0
    settings = settings_at(config, data)
    if conversation:
        conversation, what = run_async(_describe_conversation(settings, conversation))
    else:
        what = f"everything before {before}" if before else "everything"
    if not yes:
        typer.confirm(escape_unsafe(f"Delete {what} in {settings.data} for good?"), abort=True)
    gone = run_async(_delete_conversations(settings, conversation, until))
    print_line(f"deleted {pluralize(gone.conversations, 'conversation')}, {gone.bytes:,} bytes")


async def _describe_conversation(settings: Config, reference: str) -> tuple[str, str]:
    """Its whole id, and words by which a person knows it again. Raises UnknownFrame."""
    async with opened_store(settings) as store:
        known = await lookup.find_conversation(store, None, reference)
        rows = await conversation_rows_of(store, [known])
    if not rows:
        raise lookup.unknown_conversation(known.id)
    [row] = rows
    title = "it cannot be read" if "unreadable" in row else repr(row["title"])
    return row["id"], f"conversation {row['id']} ({title}, {pluralize(row['requests'], 'request')})"


async def _delete_conversations(settings: Config, reference: str, before: int) -> DeletionResult:
    async with opened_store(settings) as store:
        known = await lookup.find_conversation(store, None, _require_name(reference)) if not before else None
        server = find_running_proxy(settings.data)
        if server is None:
            return await store.delete_conversations(known.tenant if known else None, known.id if known else "", before)
    # Our own connection is closed first: an open one would keep copies in the log of the database.
    path = f"/stack/conversations/{known.id}" if known else f"/stack/conversations?before={before}"
    told = ask_proxy(server, "DELETE", path)
    return DeletionResult(told["conversations"], told["bytes"])


def _require_name(reference: str) -> str:
    """An empty name would mean the newest conversation: right for looking, not for changing."""
    if not reference:
        raise InvalidConfiguration("conversation: name one; `callstack tree` shows their ids")
    return reference


def parse_local_time(compaction_input: str) -> int:
    """A day or a time as ms since the epoch; without a zone it is this machine's."""
    try:
        return int(datetime.fromisoformat(compaction_input).astimezone(UTC).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise typer.BadParameter(
            f"{compaction_input!r} is no date; write it as 2026-01-31 or 2026-01-31T12:00"
        ) from None
