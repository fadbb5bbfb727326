"""The commands that branch: `checkpoint`, `branch`, `switch` and `inject`.

With `--list`, `checkpoint` and `branch` say what there is, and of a name what stands there. A running proxy is asked,
which keeps conversations in memory; where none runs, the store is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar

import typer

from proxy.cli.context import AsJson, ConfigFile, DataDirectory, opened_store, run_async, settings_at
from proxy.cli.output import align_columns, pluralize, print_json, print_line
from proxy.cli.running import ask_proxy, find_running_proxy
from proxy.config import Config
from proxy.core.frames import PathState
from proxy.core.ledger import Ledger, LedgerEvent
from proxy.core.text import cut_for_display
from proxy.management.actions import (
    BranchMessage,
    BranchRow,
    BranchSwitchView,
    CheckpointRow,
    ConversationPath,
    InjectionSelection,
    InjectionView,
    branches,
)
from proxy.management.views import local_time, lookup, path_state_of
from proxy.store import Store

InConversation = Annotated[
    str, typer.Option("--in", help="Id, or its beginning (4 characters or more); default: the newest.")
]
ListFlag = Annotated[bool, typer.Option("--list", help="Only list what there is; with a name, the messages there.")]
Reason = Annotated[str, typer.Option("--reason", help="For the model: why.")]
MAX_MESSAGE_LENGTH = 80
"""Characters of a message in a list."""
BranchAction = Callable[[Store, ConversationPath], Coroutine[Any, Any, tuple[Any, Sequence[LedgerEvent]]]]
Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Listing(Generic[Row]):
    """How a kind of point is listed: the `member` of the JSON, all of them, one of them by name, a line for each."""

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

    async def set_it(store: Store, path: ConversationPath) -> tuple[CheckpointRow, Sequence[LedgerEvent]]:
        return await branches.set_checkpoint(store, path, name)

    told: CheckpointRow = run_async(
        _ask_proxy_or_store(settings, conversation, set_it, ("checkpoints", {"name": name}))
    )
    _print(as_json, told, [f"checkpoint {told['name']} is set on {told['branch']}"])


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

    async def begin(store: Store, path: ConversationPath) -> tuple[BranchSwitchView, Sequence[LedgerEvent]]:
        return await branches.begin_branch(store, path, start, name, reason)

    body = {"checkpoint": start, "name": name, "reason": reason}
    told: BranchSwitchView = run_async(_ask_proxy_or_store(settings, conversation, begin, ("branches", body)))
    _print(as_json, told, [f"branch {told['branch']} begins at checkpoint {told['checkpoint']} {told['comes']}"])


def switch(
    name: Annotated[str, typer.Argument(metavar="branch", help="The branch to go on with; main is the first line.")],
    reason: Reason = "",
    conversation: InConversation = "",
    config: ConfigFile = None,
    data: DataDirectory = None,
    as_json: AsJson = False,
) -> None:
    """Go on with another branch, as it was left, with the user's next message."""

    async def turn(store: Store, path: ConversationPath) -> tuple[BranchSwitchView, Sequence[LedgerEvent]]:
        return await branches.switch_to_branch(store, path, name, reason)

    asked = ("switch", {"branch": name, "reason": reason})
    told: BranchSwitchView = run_async(_ask_proxy_or_store(settings_at(config, data), conversation, turn, asked))
    _print(as_json, told, [f"the work goes on, on {told['branch']} {told['comes']}"])


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
    choice = InjectionSelection(source, messages or [], frame, to)

    async def copy(store: Store, path: ConversationPath) -> tuple[InjectionView, Sequence[LedgerEvent]]:
        return await branches.inject(store, path, choice)

    body = {"branch": source, "messages": choice.message_numbers, "frame": frame, "to": to}
    told: InjectionView = run_async(
        _ask_proxy_or_store(settings_at(config, data), conversation, copy, ("inject", body))
    )
    _print(
        as_json,
        told,
        [f"{pluralize(told['texts'], 'text')} of {source} will be copied to {told['branch']} {told['comes']}"],
    )


# ------------------------------------------------------------------------------------------------------------- working
async def _open_path(settings: Config, reference: str) -> ConversationPath:
    async with opened_store(settings) as store:
        return await _load_newest_path(store, reference)


def _print_listing(settings: Config, reference: str, listing: Listing[Any], name: str, *, as_json: bool) -> None:
    """All there are, or the messages of the one with this name."""
    path = run_async(_open_path(settings, reference))
    if name:
        one = listing.detail(path.ledger, path.path_state, name)
        _print(as_json, one, branch_messages_text(one["messages"]))
    else:
        rows = listing.rows(path.path_state)
        _print(as_json, {listing.member: rows}, listing.lines(rows))


async def _load_newest_path(store: Store, reference: str) -> ConversationPath:
    ledger = await lookup.find_ledger(store, None, reference)
    return ConversationPath(ledger, path_state_of(ledger), time.time_ns() // 1_000_000)


async def _ask_proxy_or_store(settings: Config, reference: str, work: BranchAction, route: tuple[str, object]) -> Any:
    """What the running proxy answers to this body at this route of the conversation, or what is done in the store."""
    async with opened_store(settings) as store:
        path = await _load_newest_path(store, reference)
        server = find_running_proxy(settings.data)
        if server is None:
            told, _ = await work(store, path)
            return told
    where, body = route
    return ask_proxy(server, "POST", f"/stack/conversations/{path.ledger.conversation.id}/{where}", body)


def _print(as_json: bool, told: object, lines: Sequence[str] | Iterator[str]) -> None:  # noqa: FBT001 - the option of every command
    if as_json:
        print_json(told)
        return
    for line in lines:
        print_line(line)


def checkpoints_text(rows: Sequence[CheckpointRow]) -> Iterator[str]:
    """One line for each, the oldest first."""
    if not rows:
        yield "There is no checkpoint here. `callstack checkpoint NAME` sets one."
        return
    cells = [(row["name"], row["branch"], local_time(row["created"])) for row in rows]
    yield from align_columns([("checkpoint", "branch", "set"), *cells])


def branches_text(rows: Sequence[BranchRow]) -> Iterator[str]:
    """One line for each, the main one first."""
    cells = [(row["name"], row["checkpoint"] or "", _standing(row)) for row in rows]
    yield from align_columns([("branch", "begins at", ""), *cells])


def branch_messages_text(rows: Sequence[BranchMessage]) -> Iterator[str]:
    """One line for each, with the number by which it is copied."""
    cells = [(str(row["number"]), row["role"], cut_for_display(row["text"], MAX_MESSAGE_LENGTH)) for row in rows]
    yield from align_columns([("number", "role", "text"), *cells], right=(0,))


CHECKPOINT_LISTING = Listing("checkpoints", branches.checkpoint_rows, branches.checkpoint_detail, checkpoints_text)
BRANCH_LISTING = Listing("branches", branches.branch_rows, branches.branch_detail, branches_text)


def _standing(row: BranchRow) -> str:
    return "next" if row["wanted"] else "current" if row["current"] else ""
