"""What every format is made from: the conversation, the path that is told, its receipts, the newest request on it.

All that has to be waited for is read here, so what makes the files waits for nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from proxy.accounting import Receipt
from proxy.core.frames import PathState
from proxy.core.ledger import Ledger
from proxy.core.observers import DEFAULT_TOOL_ROLES, ToolRoles
from proxy.management.views import decode_receipt, path_state_of
from proxy.store import RequestRecord, Store

MAX_REQUESTS = 100_000
"""Requests of one conversation that are told of: the newest."""


@dataclass(frozen=True)
class ExportInput:
    """`path_state` is the path that is told; `records` are the requests of the whole conversation, oldest first,
    without bodies. `request` is the newest one on that path, with the client's body, where one was kept. `names`
    say what the client's tools are for."""

    ledger: Ledger
    path_state: PathState
    records: tuple[RequestRecord, ...] = ()
    newest_request: RequestRecord | None = None
    tool_roles: ToolRoles = DEFAULT_TOOL_ROLES

    @property
    def id(self) -> str:
        return self.ledger.conversation.id

    @cached_property
    def receipts(self) -> tuple[Receipt, ...]:
        """Of the requests that were answered, oldest first."""
        return tuple(receipt for record in self.records if (receipt := decode_receipt(record)) is not None)


async def load_export_input(
    store: Store, ledger: Ledger, thread: str = "", names: ToolRoles = DEFAULT_TOOL_ROLES
) -> ExportInput:
    """Of the path that grew last, or of a thread. Raises UnknownFrame for a thread that is not there, StoreError."""
    story = await asyncio.to_thread(
        path_state_of, ledger, thread, names
    )  # requests that are being answered do not wait
    owner = ledger.conversation
    records = await store.requests(owner.tenant, owner.id, MAX_REQUESTS)
    newest = await _newest_request(store, ledger, story, records)
    return ExportInput(ledger, story, tuple(reversed(records)), newest, names)


async def _newest_request(
    store: Store, ledger: Ledger, story: PathState, newest_first: Sequence[RequestRecord]
) -> RequestRecord | None:
    """The newest request that stands on the path: beside it lie side requests and branches, with other tools and
    another system text. Where none does, the newest of all."""
    on_path = {entry.id for entry in ledger.path(story.tip)}
    path_entries = [record for record in newest_first if record.entry in on_path]
    for record in (*path_entries, *newest_first):
        found = await store.request(ledger.conversation.tenant, record.id)
        if found is not None and found.record.body:
            return found.record
    return None
