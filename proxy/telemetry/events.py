"""What happens in a running proxy, in words and figures that anybody may read: frames that begin and end, contexts that
are sent, folds, summaries, suggestions (S1-162).

    frame.created, frame.activated, frame.completed, frame.invalidated      with the status a frame ended with
    subagent.detected, subagent.completed
    compaction, summary, suggestion
    context.generated           a request was answered: tokens, and whether the provider had its beginning cached
    loop.detected, memory.pressure, conversation.opened, conversation.idle, thread.woken
    message.queued, message.removed, message.dequeued                       what people say from beside a client
    whatever else was decided, by the name that the event has in the store

The law: **no word of a message, a title or a path**: ids, statuses and figures only.

What this module does not do: it keeps and sends nothing (`feed` does).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from proxy.accounting import Receipt
from proxy.core.frames import ROOTED, FramePopped, decode_event
from proxy.core.ledger import Ledger, LedgerEvent

Figure = int | float | str | bool


class ProxyEvent(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """`at` is ms since the epoch; `tenant` is for choosing who may hear of it, and is not told."""

    type: str
    at: int
    tenant: str
    conversation: str = ""
    frame: str = ""
    request: str = ""
    figures: dict[str, Figure] = {}

    def as_dict(self) -> dict[str, object]:
        """As it is told: flat, without what is empty."""
        ids = {"conversation": self.conversation, "frame": self.frame, "request": self.request}
        return {"type": self.type, "at": self.at, **{k: v for k, v in ids.items() if v}, **self.figures}


EVENT_TYPES = {
    ROOTED: "conversation.opened",
    "planned": "frame.created",
    "pushed": "frame.created",
    "entered": "frame.activated",
    "activated": "frame.activated",
    "popped": "frame.completed",
    "parted": "frame.completed",
    "invalidated": "frame.invalidated",
    "delegated": "subagent.detected",
    "folded": "compaction",
    "trim": "compaction",
    "summarised": "summary",
    "interim summary": "summary",
    "suggested": "suggestion",
    "looped": "loop.detected",
    "pressed": "memory.pressure",
    "woken": "thread.woken",
    "dequeued": "message.dequeued",
}
"""What an event is told as, by its kind in the store; others by that kind."""
KINDS_WITHOUT_FRAME = frozenset({"replaced"})
"""Kinds whose subject is no frame."""


def proxy_events_of(ledger: Ledger, events: Sequence[LedgerEvent]) -> tuple[ProxyEvent, ...]:
    """What these events of a conversation are told as. The ledger knows them already."""
    about = ledger.conversation
    return tuple(
        ProxyEvent(
            _type_of(ledger, event),
            event.created,
            about.tenant,
            about.id,
            "" if event.kind in KINDS_WITHOUT_FRAME else _frame_of(event),
            figures=_figures(ledger, event),
        )
        for event in events
    )


def receipt_event_of(tenant: str, told: Receipt) -> ProxyEvent:
    """A request was answered."""
    cached = told.usage.cached if told.basis == "reported" else told.sent.cached
    figures: dict[str, Figure] = {
        "status": told.status,
        "tokens_in": told.tokens_in,
        "tokens_sent": told.tokens_sent,
        "tokens_cached": cached,
        "hit": cached > 0,
        "rounds": told.rounds,
    }
    return ProxyEvent(
        "context.generated", told.created, tenant, told.conversation, told.frame, told.id, figures=figures
    )


def _type_of(ledger: Ledger, event: LedgerEvent) -> str:
    if event.kind == "popped" and _is_subagent_frame(ledger, event):
        return "subagent.completed"
    if event.kind == ROOTED and not _opens_conversation(ledger, event):
        return "frame.created"
    return EVENT_TYPES.get(event.kind, event.kind.replace(" ", "_"))


def _frame_of(event: LedgerEvent) -> str:
    """A subject is a frame, with what tells the event apart behind a slash."""
    subject = event.subject.partition("/")[0]
    return subject if subject.startswith("f") and subject.isalnum() else ""


def _figures(ledger: Ledger, event: LedgerEvent) -> dict[str, Figure]:
    if event.kind != "popped":
        named = event.kind in ("folded", "trim", "planned", "pushed")
        return (
            {"kind": event.kind} if named or (event.kind == ROOTED and not _opens_conversation(ledger, event)) else {}
        )
    ended = decode_event(event)
    return {"status": str(ended.status), "tokens": ended.tokens} if isinstance(ended, FramePopped) else {}


def _opens_conversation(ledger: Ledger, rooted: LedgerEvent) -> bool:
    """Whether a conversation opened with this root: later ones begin at a message with others before it."""
    entry = ledger.entries.get(rooted.entry)
    return entry is None or not entry.parent


def _is_subagent_frame(ledger: Ledger, ended: LedgerEvent) -> bool:
    """Whether the frame that ended was delegated."""
    frame = _frame_of(ended)
    return any(e.kind == "delegated" and e.subject == frame for at in ledger.events.values() for e in at)
