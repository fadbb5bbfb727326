"""Loads what the formats need: the conversation, one path, receipts and the newest request. All waiting happens here,
so rendering is synchronous."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from callstack_proxy.management.views import decode_receipt, path_state_of
from proxy.accounting import Receipt
from proxy.core.frames import PathState
from proxy.core.ledger import Ledger
from proxy.core.observers import DEFAULT_TOOL_ROLES, ToolRoles
from proxy.store import RequestRecord, Store

MAX_REQUESTS = 100_000
"""Only the newest requests of a conversation are exported."""


@dataclass(frozen=True)
class ExportInput:
    """`path_state` is the exported path. `records` are requests of the whole conversation, oldest first, without
    bodies; `newest_request` is the newest on the path, with its body if one was stored. `tool_roles` are the roles of
    the client's tools."""

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
        """Receipts of answered requests, oldest first."""
        return tuple(receipt for record in self.records if (receipt := decode_receipt(record)) is not None)


async def load_export_input(
    store: Store, ledger: Ledger, thread: str = "", names: ToolRoles = DEFAULT_TOOL_ROLES
) -> ExportInput:
    """Load the path that grew last, or that of a thread. Raises NotFound for an unknown thread, and StoreError."""
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
    """The newest request on the path, whose tools and system text apply; if there is none, the newest of all."""
    on_path = {entry.id for entry in ledger.path(story.tip)}
    path_entries = [record for record in newest_first if record.entry in on_path]
    for record in (*path_entries, *newest_first):
        found = await store.request(ledger.conversation.tenant, record.id)
        if found is not None and found.record.body:
            return found.record
    return None
