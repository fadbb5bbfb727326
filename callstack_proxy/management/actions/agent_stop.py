"""Stops the agent of a conversation until a person resumes it: its requests under way are cut off, and each further one
is refused. The stop is stored with the conversation, so it holds in every process and after a restart."""

from __future__ import annotations

from collections.abc import Callable

from proxy.core.ledger import Conversation
from proxy.exchange import CancelledCounts, Inbox
from proxy.store import Store
from proxy.telemetry import ProxyEvent

OnModeChanged = Callable[[str, str, str], None]
"""Gets a tenant, a conversation and its new mode as stored."""


async def stop_agent(
    store: Store, inbox: Inbox, conversation: Conversation, on_mode_changed: OnModeChanged
) -> CancelledCounts:
    """Refuses what comes from now on, then cuts off what is under way in this process and tells the others. Waiting
    messages are taken back. Raises StoreError."""
    await store_mode(store, conversation, conversation.chosen_mode, on_mode_changed, stopped=True)
    done = await inbox.cancel_requests(conversation.tenant, conversation.id)
    inbox.event_bus.publish(ProxyEvent("conversation.stopped", inbox.now(), conversation.tenant, conversation.id))
    return done


async def resume_agent(store: Store, inbox: Inbox, conversation: Conversation, on_mode_changed: OnModeChanged) -> bool:
    """Whether it was stopped. Raises StoreError."""
    if conversation.is_stopped:
        await store_mode(store, conversation, conversation.chosen_mode, on_mode_changed, stopped=False)
        inbox.event_bus.publish(ProxyEvent("conversation.resumed", inbox.now(), conversation.tenant, conversation.id))
    return conversation.is_stopped


async def store_mode(
    store: Store, conversation: Conversation, mode: str, on_mode_changed: OnModeChanged, *, stopped: bool | None = None
) -> None:
    """`mode` is empty for that of the configuration. What is stopped stays so unless `stopped` says otherwise. Durable
    on return. Raises StoreError."""
    told = conversation.with_mode(mode, stopped=conversation.is_stopped if stopped is None else stopped)
    await store.wait_until_durable(store.write(told.tenant, [told]))
    on_mode_changed(told.tenant, told.id, told.mode)
