"""What clients tell of themselves in headers: session ids (measured, CLIENTS.md sections 1 and 8), and their name.

A session header names a thread; a parent or agent header marks it as delegated. Cache keys and request ids do not
count, because clients share or repeat them. The cache of conversations offers only those of the same session; which of
them it is, their content decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

# `x-client-request-id` and `prompt_cache_key` look like ids and are none: Codex repeats the first in all requests and
# shares the second among its agents (0.169), so two threads would become one.
SESSION_HEADERS = (
    b"x-stack-session",
    b"x-session-id",
    b"x-session-affinity",
    b"thread-id",
    b"x-claude-code-session-id",
    b"thread_id",
    b"conversation_id",
    b"session_id",
)
"""Ours first; opencode's two, which are equal; Codex; Claude Code; pi, older Codex, gateways, the narrowest first."""
AGENT_HEADER = b"x-claude-code-agent-id"
"""One of the agents that share a Claude Code session; the main agent sends none."""
PARENT_HEADERS = (b"x-parent-session-id", b"x-codex-parent-thread-id")
"""The session that delegated this one (opencode, Codex)."""
MAX_SESSION_BYTES = 200
_PRODUCT = re.compile(rb"[A-Za-z][\w.+-]{0,39}(?:/[A-Za-z][\w.+-]{0,19})?")
"""The first product of a user agent. Behind the slash stands a version, which begins with a digit, or the language of
an SDK (`OpenAI/Python 1.54`)."""

Headers = Iterable[tuple[bytes, bytes]]
"""Names in lower case."""


def session_hint(headers: Headers) -> str:
    """The client's session id, with the agent's id where there is one; or empty."""
    values = dict(headers)
    if values.keys().isdisjoint(SESSION_HEADERS):
        return ""
    # Claude Code's agents share the session's id; without the agent's own, their histories would be taken for branches.
    session, agent = _first_header(values, SESSION_HEADERS), _first_header(values, (AGENT_HEADER,))
    return f"{session}/{agent}" if session and agent else session


def parent_hint(headers: Headers) -> str:
    """The session that delegated this one, or empty."""
    values = dict(headers)
    return _first_header(values, PARENT_HEADERS) or (
        _first_header(values, SESSION_HEADERS) if _first_header(values, (AGENT_HEADER,)) else ""
    )


def client_name(headers: Headers) -> str:
    """The client's program by its user agent, without version and machine: `claude-cli`, `OpenAI/Python`; or empty."""
    found = _PRODUCT.match(dict(headers).get(b"user-agent", b"").strip())
    return found[0].decode("ascii", "replace") if found else ""


def _first_header(values: Mapping[bytes, bytes], names: tuple[bytes, ...]) -> str:
    for name in names:
        if name in values and (value := values[name].strip()):
            return value[:MAX_SESSION_BYTES].decode("latin-1").strip()
    return ""
