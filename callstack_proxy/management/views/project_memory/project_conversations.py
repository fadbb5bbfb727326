"""Finds out which conversations belong to a project: those whose agent told that it works in the project's folder or
below it. A conversation that tells no folder belongs to that of the conversation it was delegated from."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from callstack_proxy.management.find_by_id import ConversationUnreadable, translate_read_errors
from callstack_proxy.management.reports import is_in_project
from callstack_proxy.management.views.totals import decode_receipt
from proxy.core.ledger import Conversation
from proxy.store import Store, TenantScope

REQUESTS_READ = 20
"""The newest requests of a conversation in which its folder is looked for."""
MAX_KNOWN = 10_000
"""Conversations whose folders are remembered."""
MAX_LOOKED_AT = 1_000
"""The conversations that were active last, among which those of a project are looked for."""

Folders = frozenset[str]


@dataclass(slots=True)
class ProjectConversations:
    """Remembers the folders of conversations: a client tells its folder from the first request on."""

    known: dict[tuple[str, str], Folders] = field(default_factory=dict)
    """By tenant and id of the conversation."""

    async def is_inside(self, store: Store, tenant: str, conversation: str, project: Collection[str]) -> bool:
        """Whether the conversation belongs to the project whose folder has one of these names; all do without any."""
        if not project:
            return True
        folders = await self.folders_of(store, tenant, conversation)
        return any(is_in_project(folder, project) for folder in folders or ("",))

    async def recently_active(
        self, store: Store, scope: TenantScope, project: Collection[str], limit: int
    ) -> list[Conversation]:
        """Conversations of the project, the one that was active last first."""
        if not project:
            return list(await store.recently_active(scope, limit))
        found: list[Conversation] = []
        for conversation in await store.recently_active(scope, MAX_LOOKED_AT):
            if len(found) == limit:
                break
            if await self.is_inside(store, conversation.tenant, conversation.id, project):
                found.append(conversation)
        return found

    async def folders_of(self, store: Store, tenant: str, conversation: str) -> Folders:
        """Folders that its newest requests tell, else those of the conversation it was delegated from."""
        key = (tenant, conversation)
        if key not in self.known:
            folders, is_settled = await _told_folders(store, tenant, conversation)
            if not folders and (parent := await _parent_of(store, tenant, conversation)):
                folders, _ = await _told_folders(store, tenant, parent)
            if not is_settled:
                return folders
            if len(self.known) >= MAX_KNOWN:
                self.known.clear()
            self.known[key] = folders
        return self.known[key]


async def _told_folders(store: Store, tenant: str, conversation: str) -> tuple[Folders, bool]:
    """The folders, and whether any of the requests has been answered."""
    records = await store.requests(tenant, conversation, REQUESTS_READ)
    receipts = [receipt for record in records if (receipt := decode_receipt(record)) is not None]
    return frozenset(receipt.project for receipt in receipts if receipt.project), bool(receipts)


async def _parent_of(store: Store, tenant: str, conversation: str) -> str:
    try:
        with translate_read_errors(conversation):
            ledger = await store.load(tenant, conversation)
    except ConversationUnreadable:
        return ""
    return ledger.conversation.parent if ledger else ""
