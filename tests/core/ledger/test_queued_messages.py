"""What a person said, while it waits and as it is told."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from proxy.core.ledger.queued_messages import (
    HEADING,
    DeliveryState,
    Lane,
    QueuedMessage,
    has_waiting_message,
    render_queued_messages,
    waiting_messages,
)


def said(text: str, **about: object) -> QueuedMessage:
    return replace(QueuedMessage(text, text, Lane.STEER, "", created=0, expires=100), **about)


@pytest.mark.rows("S4-42", "C16")
def test_each_message_is_one_bullet_whatever_is_in_it() -> None:
    """A text that looks like more bullets stays under its own."""
    text = render_queued_messages([said("use tabs"), said("\nlike this:\n- one\n- two\n"), said("be brief")])

    assert text == f"{HEADING}\n- use tabs\n- like this:\n  - one\n  - two\n- be brief"


@pytest.mark.rows("S4-40", "S4-45")
def test_what_waits_keeps_its_order_and_ends_with_its_time() -> None:
    queue = [
        said("b"),
        said("told", state=DeliveryState.DELIVERED),
        said("a"),
        said("gone", state=DeliveryState.REMOVED),
    ]
    late = said("late", expires=50)

    assert [each.text for each in waiting_messages([*queue, late], 49)] == ["b", "a", "late"]
    assert [each.text for each in waiting_messages([*queue, late], 50)] == ["b", "a"]
    assert waiting_messages(queue, 100) == ()


def test_what_is_for_one_thread_waits_for_no_other() -> None:
    assert has_waiting_message([said("x")], "main", 0)
    assert has_waiting_message([said("x", thread="main")], "main", 0)
    assert not has_waiting_message([said("x", thread="other")], "main", 0)
    assert not has_waiting_message([], "main", 0)
