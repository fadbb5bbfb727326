"""The commands `checkpoint`, `branch`, `switch` and `inject`.

`--list` reads the store: all checkpoints or branches, or the messages at the one that is named. Changes go through the
management API.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from callstack_proxy.cli.api_client import command_of
from callstack_proxy.cli.output import align_columns, pluralize
from callstack_proxy.cli.store_access import opened_store
from callstack_proxy.management import find_by_id
from callstack_proxy.management.operations import BranchMessage, BranchRow, CheckpointRow, branches
from callstack_proxy.management.views import local_time, path_state_of
from proxy.config import Config
from proxy.core.frames import PathState
from proxy.core.ledger import Ledger
from proxy.core.text import cut_at_word

MAX_MESSAGE_LENGTH = 160
"""Characters of a message in a list, where the terminal is wide enough."""


def list_checkpoints(settings: Config, conversation: str, name: str) -> tuple[object, Iterator[str]]:
    """All there are, or the messages at the one with this name."""
    ledger, path_state = _load_newest_path(settings, conversation)
    if name:
        detail = branches.checkpoint_detail(ledger, path_state, name)
        return detail, branch_messages_text(detail["messages"])
    rows = branches.checkpoint_rows(path_state)
    return {"checkpoints": rows}, checkpoints_text(rows)


def list_branches(settings: Config, conversation: str, name: str) -> tuple[object, Iterator[str]]:
    """All there are, or the messages of the one with this name."""
    ledger, path_state = _load_newest_path(settings, conversation)
    if name:
        detail = branches.branch_detail(ledger, path_state, name)
        return detail, branch_messages_text(detail["messages"])
    rows = branches.branch_rows(path_state)
    return {"branches": rows}, branches_text(rows)


def _load_newest_path(settings: Config, reference: str) -> tuple[Ledger, PathState]:
    async def load() -> Ledger:
        async with opened_store(settings) as store:
            return await find_by_id.find_ledger(store, None, reference)

    ledger = asyncio.run(load())
    return ledger, path_state_of(ledger)


def checkpoints_text(rows: Sequence[CheckpointRow]) -> Iterator[str]:
    """One line for each, the oldest first."""
    if not rows:
        yield "There is no checkpoint here. `callstack branch checkpoint NAME` sets one."
        return
    cells = [(row["name"], row["branch"], local_time(row["created"])) for row in rows]
    yield from align_columns([("checkpoint", "branch", "set"), *cells])


def branches_text(rows: Sequence[BranchRow]) -> Iterator[str]:
    """One line for each, the main one first."""
    standing = ["next" if row["wanted"] else "current" if row["current"] else "" for row in rows]
    cells = [(row["name"], row["checkpoint"] or "", how) for row, how in zip(rows, standing, strict=True)]
    yield from align_columns([("branch", "begins at", ""), *cells])


def branch_messages_text(rows: Sequence[BranchMessage]) -> Iterator[str]:
    """One line for each, with the number by which it is copied."""
    cells = [(str(row["number"]), row["role"], cut_at_word(row["text"], MAX_MESSAGE_LENGTH)) for row in rows]
    yield from align_columns([("number", "role", "text"), *cells], right=(0,), cuts=True)


# ------------------------------------------------------------------------------------------------------------- changes
checkpoint = command_of(
    branches.CHECKPOINT,
    lambda row, _: f"checkpoint {row['name']} is set on {row['branch']}",
    "Name the newest point of a conversation, so that a branch can begin there.",
    list_checkpoints,
)
branch = command_of(
    branches.BRANCH,
    lambda view, _: f"branch {view['branch']} begins at checkpoint {view['checkpoint']} {view['comes']}",
    "Begin a new line of work at a checkpoint, with the user's next message.",
    list_branches,
)
switch = command_of(
    branches.SWITCH,
    lambda view, _: f"the work goes on, on {view['branch']} {view['comes']}",
    "Go on with another branch, as it was left, with the user's next message.",
)
inject = command_of(
    branches.INJECT,
    lambda view, given: (
        f"{pluralize(view['texts'], 'text')} of {given['branch']} will be copied to {view['branch']} {view['comes']}"
    ),
    "Copy messages of a branch, or what a frame of it returned, once to the end of another.",
)
