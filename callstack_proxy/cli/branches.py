"""The commands `checkpoint`, `branch`, `switch` and `inject`.

`--list` reads the store: all checkpoints or branches, or the messages at the one that is named. Changes go through the
management API.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar

import typer

from callstack_proxy.cli.api_client import call, conversation_path
from callstack_proxy.cli.context import AsJson, ConfigFile, DataDirectory, opened_store, settings_at
from callstack_proxy.cli.output import align_columns, pluralize, print_json, print_line
from callstack_proxy.management.actions import (
    BranchMessage,
    BranchRow,
    BranchSwitchView,
    CheckpointRow,
    ConversationPath,
    InjectionView,
    branches,
)
from callstack_proxy.management.views import local_time, path_state_of
from proxy.config import Config
from proxy.core.frames import PathState
from proxy.core.ledger import Ledger
from proxy.core.text import cut_at_word
from proxy.store import find_by_id

InConversation = Annotated[
    str, typer.Option("--in", help="Id, or its beginning (4 characters or more); default: the newest.")
]
ListFlag = Annotated[bool, typer.Option("--list", help="Only list what there is; with a name, the messages there.")]
Reason = Annotated[str, typer.Option("--reason", help="For the model: why.")]
MAX_MESSAGE_LENGTH = 160
"""Characters of a message in a list, where the terminal is wide enough."""
Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Listing(Generic[Row]):
    """How checkpoints or branches are listed: the `member` of the JSON, all rows, one by name, a line for each row."""

    member: str
    rows: Callable[[PathState], list[Row]]
    detail: Callable[[Ledger, PathState, str], Any]
    lines: Callable[[Sequence[Row]], Iterator[str]]


def checkpoint(
    name: Annotated[str, typer.Argument(help="Letters, digits, dots, dashes, underscores; default: a fresh one.")] = "",
    conversation: InConversation = "",
    listed: ListFlag = False,
    config: ConfigFile = None,
    data: DataDirectory = None,
    as_json: AsJson = False,
) -> None:
    """Name the newest point of a conversation, so that a branch can begin there."""
    settings = settings_at(config, data)
    if listed:
        _print_listing(settings, conversation, CHECKPOINT_LISTING, name, as_json=as_json)
        return
    path = conversation_path(settings, conversation)
    row: CheckpointRow = call(settings, "POST", f"{path}/checkpoints", {"name": name})
    _print(as_json, row, [f"checkpoint {row['name']} is set on {row['branch']}"])


def branch(
    name: Annotated[str, typer.Argument(help="Of the new branch; default: a fresh one.")] = "",
    start: Annotated[str, typer.Option("--from", help="The checkpoint it begins at; default: the newest.")] = "",
    reason: Reason = "",
    conversation: InConversation = "",
    listed: ListFlag = False,
    config: ConfigFile = None,
    data: DataDirectory = None,
    as_json: AsJson = False,
) -> None:
    """Begin a new line of work at a checkpoint, with the user's next message."""
    settings = settings_at(config, data)
    if listed:
        _print_listing(settings, conversation, BRANCH_LISTING, name, as_json=as_json)
        return
    body = {"checkpoint": start, "name": name, "reason": reason}
    view: BranchSwitchView = call(settings, "POST", f"{conversation_path(settings, conversation)}/branches", body)
    _print(as_json, view, [f"branch {view['branch']} begins at checkpoint {view['checkpoint']} {view['comes']}"])


def switch(
    name: Annotated[str, typer.Argument(metavar="branch", help="The branch to go on with; main is the first line.")],
    reason: Reason = "",
    conversation: InConversation = "",
    config: ConfigFile = None,
    data: DataDirectory = None,
    as_json: AsJson = False,
) -> None:
    """Go on with another branch, as it was left, with the user's next message."""
    settings = settings_at(config, data)
    body = {"branch": name, "reason": reason}
    view: BranchSwitchView = call(settings, "POST", f"{conversation_path(settings, conversation)}/switch", body)
    _print(as_json, view, [f"the work goes on, on {view['branch']} {view['comes']}"])


def inject(
    source: Annotated[str, typer.Argument(metavar="branch", help="The branch to copy from.")],
    messages: Annotated[
        list[int] | None, typer.Argument(help="Numbers, as `callstack branch BRANCH --list` tells them.")
    ] = None,
    frame: Annotated[str, typer.Option("--frame", help="Instead: what this frame of the branch returned.")] = "",
    to: Annotated[
        str, typer.Option("--to", help="The branch to copy to; default: where the next request stands.")
    ] = "",
    conversation: InConversation = "",
    config: ConfigFile = None,
    data: DataDirectory = None,
    as_json: AsJson = False,
) -> None:
    """Copy messages of a branch, or what a frame of it returned, once to the end of another."""
    settings = settings_at(config, data)
    body = {"branch": source, "messages": messages or [], "frame": frame, "to": to}
    view: InjectionView = call(settings, "POST", f"{conversation_path(settings, conversation)}/inject", body)
    line = f"{pluralize(view['texts'], 'text')} of {source} will be copied to {view['branch']} {view['comes']}"
    _print(as_json, view, [line])


# ------------------------------------------------------------------------------------------------------------- working
async def _load_newest_path(settings: Config, reference: str) -> ConversationPath:
    async with opened_store(settings) as store:
        ledger = await find_by_id.find_ledger(store, None, reference)
        return ConversationPath(ledger, path_state_of(ledger), time.time_ns() // 1_000_000)


def _print_listing(settings: Config, reference: str, listing: Listing[Any], name: str, *, as_json: bool) -> None:
    """All there are, or the messages of the one with this name."""
    path = asyncio.run(_load_newest_path(settings, reference))
    if name:
        detail = listing.detail(path.ledger, path.path_state, name)
        _print(as_json, detail, branch_messages_text(detail["messages"]))
    else:
        rows = listing.rows(path.path_state)
        _print(as_json, {listing.member: rows}, listing.lines(rows))


def _print(as_json: bool, value: object, lines: Sequence[str] | Iterator[str]) -> None:  # noqa: FBT001 - the option of every command
    if as_json:
        print_json(value)
        return
    for line in lines:
        print_line(line)


def checkpoints_text(rows: Sequence[CheckpointRow]) -> Iterator[str]:
    """One line for each, the oldest first."""
    if not rows:
        yield "There is no checkpoint here. `callstack branch checkpoint NAME` sets one."
        return
    cells = [(row["name"], row["branch"], local_time(row["created"])) for row in rows]
    yield from align_columns([("checkpoint", "branch", "set"), *cells])


def branches_text(rows: Sequence[BranchRow]) -> Iterator[str]:
    """One line for each, the main one first."""
    cells = [(row["name"], row["checkpoint"] or "", _standing(row)) for row in rows]
    yield from align_columns([("branch", "begins at", ""), *cells])


def branch_messages_text(rows: Sequence[BranchMessage]) -> Iterator[str]:
    """One line for each, with the number by which it is copied."""
    cells = [(str(row["number"]), row["role"], cut_at_word(row["text"], MAX_MESSAGE_LENGTH)) for row in rows]
    yield from align_columns([("number", "role", "text"), *cells], right=(0,), cuts=True)


CHECKPOINT_LISTING = Listing("checkpoints", branches.checkpoint_rows, branches.checkpoint_detail, checkpoints_text)
BRANCH_LISTING = Listing("branches", branches.branch_rows, branches.branch_detail, branches_text)


def _standing(row: BranchRow) -> str:
    return "next" if row["wanted"] else "current" if row["current"] else ""
