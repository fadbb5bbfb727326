"""What a request held is let go with its end, and not when the collector of cycles comes by: a body is large."""

from __future__ import annotations

import gc
import time

from llm_test_provider import ScriptedProvider, says
from proxy.exchange.request_handler import RequestHandler
from tests.harness import Conversation, does, push

PATIENCE_S = 5.0


def test_what_an_answered_request_held_is_gone_without_a_collection(
    chat: Conversation, provider: ScriptedProvider
) -> None:
    """Hidden rounds, and an answer at once; the task that answers ends a moment after the client has all of it."""
    provider.will(does(push("Auth")), says("one"), says("two"), says("three"))
    gc.collect()
    gc.disable()
    try:
        for text in ("first", "second", "third"):
            chat.says(text)
        until = time.monotonic() + PATIENCE_S
        while held() and time.monotonic() < until:
            time.sleep(0.01)  # there is no event for the end of a task in another thread
        assert not held()
    finally:
        gc.enable()


def held() -> list[RequestHandler]:
    return [each for each in gc.get_objects() if isinstance(each, RequestHandler)]
