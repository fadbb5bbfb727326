"""Counts what shows how well the work of a conversation went: edits, edits that failed, answers that were asked for
again, and interruptions by the user."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from proxy.core.frames import CHANGED
from proxy.core.ledger import Entry, Ledger
from proxy.core.observers import DEFAULT_TOOL_ROLES, ToolExecution, ToolRole, ToolRoles, call_failed, files_touched_by
from proxy.core.recall import requesting_call

_NOT_AN_EDIT = frozenset({ToolRole.DELETE, ToolRole.MOVE})
_INTERRUPTED = re.compile(r"\s*\[?(?:request\s)?(?:interrupted|aborted)\s(?:by\s)?(?:the\s)?user\b", re.IGNORECASE)
"""How clients tell the model that the user stopped it, in a message of its own."""


class WorkCounts(msgspec.Struct, frozen=True):
    edits: int = 0
    failed_edits: int = 0
    retries: int = 0
    interruptions: int = 0


def count_work(ledger: Ledger, names: ToolRoles = DEFAULT_TOOL_ROLES) -> WorkCounts:
    """The counts of a whole conversation, its branches included. `names` says which tools edit files."""
    edits = list(_edits(ledger, names))
    stopped = (entry for entry in ledger.entries.values() if _tells_interruption(entry))
    return WorkCounts(
        edits=len(edits),
        failed_edits=sum(edits),
        retries=sum(len(turns) - 1 for turns in ledger.turns_by_parent.values() if turns),
        interruptions=sum(1 for _ in stopped),
    )


def _edits(ledger: Ledger, names: ToolRoles) -> Iterator[bool]:
    """For each edit with a result, once, whether it failed."""
    seen: set[tuple[str, str]] = set()
    for entry in sorted(ledger.entries.values(), key=lambda entry: entry.seq):
        message = entry.message
        request = requesting_call(ledger, entry, message.answers) if message and message.answers else None
        if message is None or request is None:
            continue
        asking, call = request
        is_new = (asking.id, call.id) not in seen
        seen.add((asking.id, call.id))
        is_edit = names.role_of(call.name) not in _NOT_AN_EDIT and any(
            touched.how == CHANGED for touched in files_touched_by(call, names)
        )
        if is_new and is_edit:
            yield call_failed(ToolExecution(call, message.text, entry.id, failed=message.failed))


def _tells_interruption(entry: Entry) -> bool:
    message = entry.message
    return message is not None and message.role == "user" and bool(_INTERRUPTED.match(message.text))
