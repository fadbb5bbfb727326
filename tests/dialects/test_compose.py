"""What is written once is remembered, by whoever asks for it."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest

from proxy.accounting.token_counter import estimate_tokens
from proxy.dialects import compose as scribe
from proxy.dialects.compose import DialectComposer
from proxy.dialects.dialect_list import OPENAI_CHAT


class Shared(OrderedDict[Any, Any]):
    """What was just looked up is forgotten, as by another thread that had its turn then."""

    def get(self, key: Any, default: Any = None) -> Any:
        found = super().get(key, default)
        self.clear()
        return found

    def pop(self, key: Any, default: Any = None) -> Any:
        found = super().pop(key, default)
        self.clear()
        return found


def test_another_thread_may_forget_what_is_asked_for() -> None:
    """A history that comes whole is thought over in a thread, while the loop writes for others."""
    writer = DialectComposer(OPENAI_CHAT, estimate_tokens)
    writer._written = Shared()  # threads cannot be made to take turns at this one step
    first = writer.user_message("hello")

    assert writer.user_message("hello") is first
    assert writer.user_message("bye").text == "bye"
    assert writer.user_message("hello") == first


def test_the_texts_asked_for_last_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scribe, "MAX_CACHED_MESSAGES", 2)  # the third one shows the same as the 4,097th
    writer = DialectComposer(OPENAI_CHAT, estimate_tokens)
    one, two = writer.user_message("one"), writer.user_message("two")

    assert writer.user_message("one") is one
    writer.user_message("three")
    assert writer.user_message("one") is one
    assert writer.user_message("two") is not two
