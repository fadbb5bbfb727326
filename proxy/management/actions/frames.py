"""What a person does to the frames of a conversation from beside it, put into the store.

It hangs on the newest entry of a path, so it holds on that path, in every process and after a restart. It takes effect
with the next request there, and the model is told of it then.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace
from typing_extensions import TypedDict

from proxy.accounting.tokens import estimate
from proxy.config.model import Config
from proxy.core.commands.frames import Hand, did, hung
from proxy.core.commands.values import Deed
from proxy.core.frames.path_state import Story
from proxy.core.ledger.ledger import Event, Ledger
from proxy.exchange.resolver import tool_settings
from proxy.exchange.thread.policy import suffixed
from proxy.management.views.conversations import state
from proxy.management.views.schemas import FrameState
from proxy.store import Owned, Store


class HandTold(TypedDict):
    """What came of it: the frames it was about as they are now, the active one, and the same in words."""

    conversation: str
    frames: list[FrameState]
    activeFrameID: str
    told: str


@dataclass(frozen=True, slots=True)
class At:
    """Where a person does something: a path of a conversation, at `now` (ms)."""

    ledger: Ledger
    story: Story
    now: int


async def do(store: Store, config: Config, at: At, deed: Deed) -> tuple[HandTold, Sequence[Event]]:
    """Do it; durable when this returns. Raises UnknownFrame, NotAllowed, StoreError."""
    ledger, conversation = at.ledger, at.ledger.conversation
    hand = Hand(
        at.story, ledger, secrets.token_hex(8), at.now, estimate, tool_settings(config), suffixed(config, _model(at))
    )
    done = did(hand, deed)
    events = hung(hand, done)
    await store.durable(store.write(conversation.tenant, [Owned(conversation.id, event) for event in events]))
    frames = state(ledger, replace(at.story, tree=done.tree))["frames"]
    told: HandTold = {
        "conversation": conversation.id,
        "frames": [frames[frame] for frame in done.frames],
        "activeFrameID": done.tree.active,
        "told": done.told,
    }
    return told, events


def _model(at: At) -> str:
    """Of the newest request there; empty where nobody knows it."""
    tip = at.ledger.entries.get(at.story.tip)
    thread = at.ledger.threads.get(tip.thread) if tip else None
    return thread.model if thread else ""
