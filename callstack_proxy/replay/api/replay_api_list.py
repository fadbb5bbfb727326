"""The APIs in which a conversation can be replayed, by the name that users know."""

from __future__ import annotations

from collections.abc import Mapping

from callstack_proxy.replay.api.base import ReplayApi
from callstack_proxy.replay.api.chat import CHAT
from callstack_proxy.replay.api.messages import MESSAGES
from callstack_proxy.replay.api.responses import RESPONSES

APIS: Mapping[str, ReplayApi] = {api.name: api for api in (CHAT, MESSAGES, RESPONSES)}


def api_of(dialect: str) -> ReplayApi:
    """The API of a dialect, by the name that the store keeps; chat completions where there is none."""
    return next((api for api in APIS.values() if api.dialect.name == dialect), CHAT)
