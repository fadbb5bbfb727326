"""Removes credentials from a stored request body: members that an API documents as credentials. Everything else keeps
its bytes. Keys that somebody typed into a message stay."""

from __future__ import annotations

from proxy.dialects import raw_json

BODY_CREDENTIALS = frozenset({"api_key", "authorization", "extra_headers", "headers", "user_api_key"})
"""Members of the body."""
SERVER_CREDENTIALS = frozenset({"authorization", "authorization_token", "headers"})
"""Members of a tool server, which is an item of one of these arrays."""
SERVER_ARRAYS = ("mcp_servers", "tools")


def without_credentials(body: bytes) -> bytes:
    """The body without credentials; unchanged if it has none or cannot be parsed."""
    try:
        fields = raw_json.members(body)
    except raw_json.JsonSplitError:
        return body
    kept = {
        name: _redact_servers(raw) if name in SERVER_ARRAYS else raw
        for name, raw in fields.items()
        if name not in BODY_CREDENTIALS
    }
    return body if kept == fields else raw_json.join_object(kept)


def _redact_servers(array: bytes) -> bytes:
    try:
        items = raw_json.items(array)
    except raw_json.JsonSplitError:
        return array
    changed = [_redact_server(item) for item in items]
    return array if changed == items else raw_json.join_array(changed)


def _redact_server(item: bytes) -> bytes:
    try:
        fields = raw_json.members(item)
    except raw_json.JsonSplitError:
        return item
    kept = {name: raw for name, raw in fields.items() if name not in SERVER_CREDENTIALS}
    return item if len(kept) == len(fields) else raw_json.join_object(kept)
