"""The dialects as a scripted client speaks them and as the judge reads them: one file and one line each.

tongue.py     what a tongue is          chat.py      chat completions, the neutral form itself
messages.py   the messages API          responses.py the responses API
"""

from __future__ import annotations

from tests.client_dialects.chat import Chat
from tests.client_dialects.messages import Messages
from tests.client_dialects.responses import Responses
from tests.client_dialects.tongue import ClientAnswer, TestDialect, neutral

__all__ = ["CHAT", "MESSAGES", "RESPONSES", "TONGUES", "ClientAnswer", "TestDialect", "neutral", "tongue_at"]

CHAT = Chat()
MESSAGES = Messages()
RESPONSES = Responses()
TONGUES: dict[str, TestDialect] = {tongue.name: tongue for tongue in (CHAT, MESSAGES, RESPONSES)}
"""By the name of the dialect."""


def tongue_at(path: str) -> TestDialect | None:
    """The tongue of requests posted to `path`; None for other endpoints."""
    return next((tongue for tongue in TONGUES.values() if path == tongue.path), None)
