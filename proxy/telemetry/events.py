"""The public events of a running proxy, made from ledger events and receipts: `frame.*`, `subagent.*`, `message.*`,
`context.generated` (a request was answered) and others; without a public name, the kind in the store. They contain ids,
statuses and figures, never text of a message, a title or a path."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from proxy.accounting import Receipt
from proxy.core.frames import ROOTED, FramePopped, decode_event
from proxy.core.ledger import Ledger, LedgerEvent

Figure = int | float | str | bool


class ProxyEvent(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """`at` is in ms since the epoch. `tenant` selects the listeners and is not published."""

    type: str
    at: int
    tenant: str
    conversation: str = ""
    frame: str = ""
    request: str = ""
    figures: dict[str, Figure] = {}

    def as_dict(self) -> dict[str, object]:
        """Flat, without empty fields."""
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
"""Public names by kind in the store; other kinds keep their name."""
KINDS_WITHOUT_FRAME = frozenset({"replaced"})
"""Kinds whose subject is not a frame."""


def proxy_events_of(ledger: Ledger, events: Sequence[LedgerEvent]) -> tuple[ProxyEvent, ...]:
    """Public events of these ledger events, which are in the ledger already."""
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


def receipt_event_of(tenant: str, receipt: Receipt) -> ProxyEvent:
    cached = receipt.usage.cached if receipt.basis == "reported" else receipt.sent.cached
    figures: dict[str, Figure] = {
        "status": receipt.status,
        "tokens_in": receipt.tokens_in,
        "tokens_sent": receipt.tokens_sent,
        "tokens_cached": cached,
        "hit": cached > 0,
        "rounds": receipt.rounds,
    }
    return ProxyEvent(
        "context.generated", receipt.created, tenant, receipt.conversation, receipt.frame, receipt.id, figures=figures
    )


def _type_of(ledger: Ledger, event: LedgerEvent) -> str:
    if event.kind == "popped":
        frame = _frame_of(event)
        if any(e.kind == "delegated" and e.subject == frame for at in ledger.events.values() for e in at):
            return "subagent.completed"
    if event.kind == ROOTED and not _opens_conversation(ledger, event):
        return "frame.created"
    return EVENT_TYPES.get(event.kind, event.kind.replace(" ", "_"))


def _frame_of(event: LedgerEvent) -> str:
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
    """Whether a conversation opened with this root: a later root has messages before it."""
    entry = ledger.entries.get(rooted.entry)
    return entry is None or not entry.parent
