"""Reads stored texts as `stack_recall` gives them to the model, for a reader who has none of them: in pages, each text
unchanged between markers. A ref that is no full id is looked for in the newest conversations of the project."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass

from typing_extensions import TypedDict

from callstack_proxy.management.find_by_id import (
    ConversationUnreadable,
    find_ledger,
    ledger_with_entry,
    ledger_with_frame,
    load_ledger,
    newest_path_state,
    quote_reference,
)
from callstack_proxy.management.views.project_memory.project_conversations import ProjectConversations
from proxy.config import Config
from proxy.config.for_core import tool_settings
from proxy.core.frames import PathState, descendants, find_frame
from proxy.core.ledger import Ledger
from proxy.core.text import CountTokens
from proxy.core.tools import TOOLS, CallGroup, ToolContext, ToolError, has_stored_text
from proxy.errors import BadRequest, NotFound
from proxy.store import Store, TenantScope

MAX_CONVERSATIONS = 10
"""The newest conversations of a project in which a title, a path or the beginning of an id is looked for."""
MAX_SUBAGENTS = 16
"""The newest conversations that were delegated from the frame, whose texts follow its own."""
NONCE_BYTES = 6
ERROR_WORD = "Error: "
_RECALL = next(tool for tool in TOOLS if tool.op == "recall")
_ENTRY = re.compile(r"([0-9a-f]{6,64})(?:/\d+)?")

Found = tuple[Ledger, PathState]


class RecalledText(TypedDict):
    """`text` has a line on what it is and which page of how many, then the stored texts between markers."""

    conversation: str
    text: str


@dataclass(frozen=True, slots=True)
class RecallRequest:
    """`ref`: id of a frame or an entry, title or file path; `query`: words in it; `page`: `2` or `2-4`; `conversation`:
    the only one that is read; `project`: the names of a folder, none for all."""

    ref: str = ""
    query: str = ""
    page: str = ""
    conversation: str = ""
    project: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class RecallSources:
    """Where stored texts come from, and how they are told."""

    store: Store
    scope: TenantScope
    folders: ProjectConversations
    config: Config
    count_tokens: CountTokens


async def recall_text(sources: RecallSources, wanted: RecallRequest) -> RecalledText:
    """Raises NotFound for a ref under which nothing is stored, BadRequest for one that says nothing, and for a page
    that is not there."""
    if not (wanted.ref or (wanted.query and wanted.conversation)):
        raise BadRequest("Give a ref: the id of a frame or an entry, a title or a file path. A search finds frames.")
    told = {"ref": wanted.ref, "query": wanted.query, "page": wanted.page}
    async for ledger, path_state in _candidates(sources, wanted):
        context = _context(sources, ledger, path_state, await _delegated(sources, ledger, path_state, wanted.ref))
        if wanted.ref and not await asyncio.to_thread(has_stored_text, context, wanted.ref):
            continue
        try:
            text = (await asyncio.to_thread(_RECALL.run, context, told)).text
        except ToolError as error:
            raise BadRequest(str(error).removeprefix(ERROR_WORD)) from None
        return {"conversation": ledger.conversation.id, "text": text}
    where = "this conversation" if wanted.conversation else f"the {MAX_CONVERSATIONS} newest conversations here"
    raise NotFound(f"Nothing is stored under {quote_reference(wanted.ref)} in {where}. A search finds frames by words.")


async def _candidates(sources: RecallSources, wanted: RecallRequest) -> AsyncIterator[Found]:
    """Conversations that may have it, each with a path: those that an id names alone."""
    store, scope = sources.store, sources.scope
    if wanted.conversation:
        ledger = await find_ledger(store, scope, wanted.conversation)
        yield ledger, await asyncio.to_thread(newest_path_state, ledger)
        return
    if (named := await _named(store, scope, wanted.ref)) is not None:
        yield named
        return
    for conversation in await sources.folders.recently_active(store, scope, wanted.project, MAX_CONVERSATIONS):
        try:
            loaded = await load_ledger(store, conversation)
            path_state = await asyncio.to_thread(newest_path_state, loaded) if loaded else None
        except ConversationUnreadable:
            continue
        if loaded is not None and path_state is not None:
            yield loaded, path_state


async def _named(store: Store, scope: TenantScope, ref: str) -> Found | None:
    """The conversation with this frame or entry."""
    try:
        return await ledger_with_frame(store, scope, ref)
    except NotFound:
        pass
    if (entry := _ENTRY.fullmatch(ref)) is None:
        return None
    try:
        return await ledger_with_entry(store, scope, entry[1])
    except NotFound:
        return None


async def _delegated(sources: RecallSources, ledger: Ledger, path_state: PathState, ref: str) -> tuple[Ledger, ...]:
    """Conversations of the subagents that the frame, or one below it, has started."""
    frame = find_frame(path_state.tree, ref) if ref else None
    named = (frame, *descendants(path_state.tree, frame.id)) if frame else ()
    ids = list(dict.fromkeys(each.conversation for each in named if each.conversation))
    loaded = [await sources.store.load(ledger.conversation.tenant, each) for each in ids[-MAX_SUBAGENTS:]]
    return tuple(each for each in loaded if each is not None)


def _context(sources: RecallSources, ledger: Ledger, path_state: PathState, related: tuple[Ledger, ...]) -> ToolContext:
    """Nothing of it stands in the reader's context. The nonce is new, so no stored text can have it."""
    return ToolContext(
        path_state,
        ledger,
        CallGroup(has_only_stack_calls=True, home_frame=path_state.tree.active),
        "",
        "",
        0,
        time.time_ns() // 1_000_000,
        secrets.token_hex(NONCE_BYTES),
        sources.count_tokens,
        tool_settings(sources.config),
        related_ledgers=related,
    )
