"""A path folded: in time that grows with its length alone."""

from __future__ import annotations

import time

from proxy.core.frames.path_state import replay
from proxy.core.ledger.ledger import Conversation, Entry, EntryKind, Ledger
from proxy.core.ledger.messages import Message

ENTRIES = 10_000


def grown(every: int) -> tuple[Ledger, str]:
    """A path with a note of ours behind each of so many entries, and its end."""
    ledger, tip = Ledger(Conversation("c" * 32, "tenant")), ""
    for n in range(ENTRIES):
        said = Message("user", b"{}", f"i{n}", f"said {n}")
        ledger.add_entry(Entry(f"e{n}", tip, ledger.next_seq, EntryKind.MESSAGE, "main", said))
        tip = f"e{n}"
        if n % every == 0:
            ledger.add_entry(
                Entry(f"o{n}", tip, ledger.next_seq, EntryKind.OVERLAY, "main", Message("user", b"{}", "", "a note"))
            )
    return ledger, tip


def test_notes_on_a_long_path_cost_what_they_are() -> None:
    """A thousand of them took twelve times as long as the path without, where each looked at all before it."""
    took = {}
    for every in (ENTRIES, 10):
        ledger, tip = grown(every)
        path = ledger.path(tip)
        began = time.process_time()
        path_state = replay(ledger, path, {})
        took[every] = time.process_time() - began
        assert len(path_state.entries) == ENTRIES + ENTRIES // every

    assert took[10] < 4 * took[ENTRIES]
