"""The commands that change the frames of a conversation, and what is kept of conversations.

`push`, `plan`, `activate`, `pop`, `invalidate` and `rename` change frames; `unfold`, `mode` and `forget` change what is
kept. All go through the management API.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Annotated, get_args

import typer

from callstack_proxy.cli.api_client import InConversation, call, command_of, conversation_path, frame_path
from callstack_proxy.cli.context import AsJson, ConfigFile, DataDirectory, one_of, settings_at
from callstack_proxy.cli.output import escape_unsafe, pluralize, print_json, print_line
from callstack_proxy.cli.store_access import opened_store
from callstack_proxy.management import find_by_id
from callstack_proxy.management.find_by_id import find_conversation
from callstack_proxy.management.operations import EndStatus, FrameCommandView, frames
from callstack_proxy.management.views import UnfoldView, conversation_rows_of, path_state_of
from proxy.config import Config, Mode
from proxy.errors import InvalidConfiguration, NotAllowed, NotFound

Criteria = Annotated[str, typer.Option("--criteria", help="When it is done; default: as its title says.")]


def _told(view: FrameCommandView, _: object) -> str:
    return view["told"]


def push(
    title: Annotated[str, typer.Argument(help="2-5 words.")],
    criteria: Criteria = "",
    conversation: InConversation = "",
    config: ConfigFile = None,
    data: DataDirectory = None,
    as_json: AsJson = False,
) -> None:
    """Begin a frame under the active one."""
    settings = settings_at(config, data)
    path = conversation_path(settings, conversation)
    if not title.strip():
        raise NotAllowed("title is missing. Give 2-5 words that name the subtask.")
    _print_result(call(settings, "POST", f"{path}/frames", {"title": title, "criteria": criteria}), as_json=as_json)


def plan(
    titles: Annotated[list[str], typer.Argument(metavar="titles", help="One frame each.")],
    criteria: Annotated[str, typer.Option("--criteria", help="When it is done; for a single frame.")] = "",
    under: Annotated[str, typer.Option("--under", help="Id or title of a frame; default: the active one.")] = "",
    conversation: InConversation = "",
    config: ConfigFile = None,
    data: DataDirectory = None,
    as_json: AsJson = False,
) -> None:
    """Plan frames under the active one."""
    if criteria and len(titles) > 1:
        raise typer.BadParameter("--criteria goes with one title; plan the frames one by one")
    settings = settings_at(config, data)
    children = [{"title": title, "criteria": criteria} for title in titles]
    body = {"plan": True, "parent": under, "children": children}
    _print_result(call(settings, "POST", f"{conversation_path(settings, conversation)}/frames", body), as_json=as_json)


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
    # Not made by `command_of`: where no frame is named, the active one of a conversation is looked up first.
    one_of(get_args(EndStatus), status, param_hint="--status")
    if frame and conversation:
        raise typer.BadParameter("--in names whose active frame ends; a frame that is named needs none")
    settings = settings_at(config, data)
    path = frame_path(settings, frame or asyncio.run(_active_frame_of(settings, conversation)))
    _print_result(call(settings, "POST", f"{path}/pop", {"status": status, "results": results}), as_json=as_json)


activate = command_of(frames.ACTIVATE, _told)
invalidate = command_of(frames.INVALIDATE, _told)
rename = command_of(frames.RENAME, _told)


# ------------------------------------------------------------------------------------------------------------- working
async def _active_frame_of(settings: Config, reference: str) -> str:
    """The id of the active frame of a conversation. Raises NotFound, also where no frame was begun there."""
    async with opened_store(settings) as store:
        ledger = await find_by_id.find_ledger(store, None, reference)
        if active := path_state_of(ledger).tree.active:
            return active
        raise NotFound(f"No frame was begun in {ledger.conversation.id}. `callstack tree` lists conversations.")


def _print_result(view: FrameCommandView, *, as_json: bool) -> None:
    if as_json:
        print_json(view)
    else:
        print_line(_told(view, None))


END_OF_TIME = 2**53
"""ms since the epoch, after any other time: a clock that ran ahead must not save a conversation from `--all`."""
MODE_CHOICES = (*get_args(Mode), "default")


def mode(
    conversation: Annotated[str, typer.Argument(help="Id, or its beginning (4 characters or more).")],
    mode: Annotated[str, typer.Argument(help="off, shadow, passive, active, or default: what the configuration says.")],
    config: ConfigFile = None,
    data: DataDirectory = None,
) -> None:
    """Turn the proxy down or away for one conversation, from its next request on."""
    one_of(MODE_CHOICES, mode)
    settings = settings_at(config, data)
    path = conversation_path(settings, _require_name(conversation))
    row = call(settings, "PUT", f"{path}/mode", {"mode": None if mode == "default" else mode})
    print_line(f"{row['id']}: mode {mode}")


def unfolding_text(view: UnfoldView, _: object) -> str:
    """What comes back, and when."""
    known = "" if view["new"] else " (asked before)"
    return f"{view['frame']} ({view['title']!r}) comes back {view['comes']}; it is never folded again{known}"


unfold = command_of(frames.UNFOLD, unfolding_text)


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
        conversation, what = asyncio.run(_describe_conversation(settings, conversation))
    else:
        what = f"everything before {before}" if before else "everything"
    if not yes:
        typer.confirm(escape_unsafe(f"Delete {what} in {settings.data} for good?"), abort=True)
    # Nothing is deleted while this process has the store open: it would keep copies in the log of the database.
    path = f"/stack/conversations/{conversation}" if conversation else f"/stack/conversations?before={max(until, 1)}"
    gone = call(settings, "DELETE", path)
    print_line(f"deleted {pluralize(gone['conversations'], 'conversation')}, {gone['bytes']:,} bytes")


async def _describe_conversation(settings: Config, reference: str) -> tuple[str, str]:
    """Its whole id, and words by which a person recognises it. Raises NotFound."""
    async with opened_store(settings) as store:
        known = await find_conversation(store, None, reference)
        rows = await conversation_rows_of(store, [known])
    if not rows:
        raise find_by_id.unknown_conversation(known.id)
    [row] = rows
    title = "it cannot be read" if "unreadable" in row else repr(row["title"])
    return row["id"], f"conversation {row['id']} ({title}, {pluralize(row['requests'], 'request')})"


def _require_name(reference: str) -> str:
    """Refuses an empty name: it means the newest conversation, which is right for looking, not for changing."""
    if not reference:
        raise InvalidConfiguration("conversation: name one; `callstack tree` shows their ids")
    return reference


def parse_local_time(text: str) -> int:
    """An ISO day or time as ms since the epoch; without a zone it is in this machine's."""
    try:
        return int(datetime.fromisoformat(text).astimezone(UTC).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise typer.BadParameter(f"{text!r} is no date; write it as 2026-01-31 or 2026-01-31T12:00") from None
