"""Wire formats: bytes to values and back, without I/O.

`DIALECTS` maps the end of a request's path to its dialect: how a request is parsed and rendered, how messages of ours
look in it, and the writer of its responses. Bytes that need no change are never re-encoded.
"""

from __future__ import annotations

from collections.abc import Mapping

from proxy.core.memo import memoize
from proxy.dialects.base import Dialect
from proxy.dialects.chat.request import OPENAI_CHAT
from proxy.dialects.messages.request import ANTHROPIC_MESSAGES
from proxy.dialects.responses.request import OPENAI_RESPONSES

DIALECTS: Mapping[str, Dialect] = {
    "/chat/completions": OPENAI_CHAT,
    "/v1/messages": ANTHROPIC_MESSAGES,
    "/responses": OPENAI_RESPONSES,
}
"""By the end of the path."""

PATHS = 256
"""Of so many is remembered what is spoken there."""


@memoize(PATHS)
def dialect_at(path: str) -> Dialect | None:
    """The dialect of requests posted to `path`; None for endpoints that are none of ours."""
    return next((dialect for end, dialect in DIALECTS.items() if path.endswith(end)), None)


def dialect_named(name: str) -> Dialect:
    """The dialect of a stored conversation; old ones have no name and use chat."""
    return next((dialect for dialect in DIALECTS.values() if dialect.name == name), OPENAI_CHAT)
