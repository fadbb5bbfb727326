"""What is written once is remembered, by whoever asks for it."""

from __future__ import annotations

from proxy.accounting.token_counter import estimate_tokens
from proxy.dialects import OPENAI_CHAT
from proxy.dialects.compose import DialectComposer


def test_the_texts_asked_for_last_are_remembered_up_to_a_number_of_bytes() -> None:
    words = "parcel " * 100
    room_for_four = 16 * len(words)  # a message and its key have the words three times
    writer = DialectComposer(OPENAI_CHAT, estimate_tokens, room_for_four)
    one, two = writer.user_message(f"one {words}"), writer.user_message(f"two {words}")

    assert writer.user_message(f"two {words}") is two
    for number in range(10):
        writer.user_message(f"{number} {words}")
        assert writer.user_message(f"one {words}") is one
    assert writer.user_message(f"two {words}") is not two


def test_joined_messages_are_remembered_up_to_a_number_of_bytes() -> None:
    writer = DialectComposer(OPENAI_CHAT, estimate_tokens, max_bytes=4_000)
    result, note = writer.tool_result("c", "found"), writer.user_message("note")

    assert writer.joined(result, note) is writer.joined(result, note)
    before = writer.joined(result, note)
    for words in ("parcel ", "depot "):
        writer.joined(result, writer.user_message(words * 1_000))
    assert writer.joined(result, note) is not before
