"""Finds keys and passwords among the members of a request, so that the stored copy of its body is without them.

A secret is the text of a member whose name says so (`api_key`, `headers`, `authorization`), a text in the form of a
known kind of key, or an address with a password. Messages, instructions and the schemas of tools are content and stay
as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from proxy.core.memo import memoize
from proxy.dialects import raw_json

LEFT_OUT = b'"(not stored)"'
"""Stands for a secret in a stored body."""
MIN_SECRET_BYTES = 10
"""With its quotes. A shorter text is no secret, and may stand elsewhere in the body by chance."""
MAX_DEPTH = 8
"""Levels below a member that are looked through."""
MAX_NAME_CHARS = 64
MAX_SEARCHED_BYTES = 128 << 10
"""Bytes of a member that is searched: half a million small values took 2.5 s, and everybody waited."""
MAX_SEARCHED_TOOLS_BYTES = 1 << 20
"""A tool is long, so there are few."""

_CONTENT_MEMBERS = frozenset({"messages", "input", "system", "instructions", "prompt"})
_SCHEMA_MEMBERS = frozenset({"properties", "parameters", "input_schema", "inputSchema", "schema", "json_schema"})
_SECRET_NAME = re.compile(
    r"(?:.*[_-])?(?:api[_-]?keys?|authorization|auth|password|passwd|secret|credentials?|cookies?|headers)(?:[_-]token)?"
    r"|(?:.*[_-])?(?:access|auth|session|bearer|refresh|id|security|authorization)[_-]?token|token|.*secret[_-].*"
    r"|aws[_-]access[_-]key[_-]id|.*[_-]credentials[_-]?\w*|private[_-]key\w*",
    re.IGNORECASE,
)
_SECRET_TEXT = re.compile(
    rb'"(?:(?:Bearer|Basic) [^\s"]{6,}|(?:sk|pk|rk)-[\w-]{8,}|csk_\w|gh[pousr]_\w{8}|github_pat_|xox[abprs]-'
    rb'|AKIA[A-Z0-9]{8}|AIza[\w-]{8}|eyJ[\w-]+\.[\w-]+|[a-z][a-z0-9+.-]*://[^/\s"@:]*:[^/\s"@]+@)'
)
_SIGNS_IN_TOOLS = (b'"mcp"', b"uthorization")
"""One of these is in an array of tools that holds a secret: such arrays are long, and nearly none does."""


def without_secrets(body: tuple[bytes, ...], fields: Mapping[str, bytes]) -> tuple[bytes, ...]:
    """A body cut at the borders of its messages, as it may be stored. `fields` are the members of the client's request;
    all but the messages stand in the first and the last piece."""
    secrets = sorted(set(secrets_in(fields)), key=len, reverse=True)
    if not secrets or not body:
        return body
    pieces = list(body)
    for at in {0, len(pieces) - 1}:
        for secret in secrets:
            pieces[at] = pieces[at].replace(secret, LEFT_OUT)
    return tuple(pieces)


def secrets_in(fields: Mapping[str, bytes]) -> Iterator[bytes]:
    """The secrets of a request as JSON strings, as they are written; a member that is too long to be searched counts as
    one, whole."""
    for name, raw in fields.items():
        if name in _CONTENT_MEMBERS or raw[:1] not in b'"{[':
            continue
        if name == "tools" and not any(sign in raw for sign in _SIGNS_IN_TOOLS):
            continue
        if len(raw) > (MAX_SEARCHED_TOOLS_BYTES if name == "tools" else MAX_SEARCHED_BYTES):
            yield raw
            continue
        yield from _secrets_of(raw, is_secret=_is_secret_name(name))


def _secrets_of(raw: bytes, *, is_secret: bool, depth: int = 0) -> Iterator[bytes]:
    start = raw[:1]
    if start == b'"':
        if len(raw) >= MIN_SECRET_BYTES and (is_secret or _SECRET_TEXT.match(raw)):
            yield raw
        return
    if start not in (b"{", b"[") or depth == MAX_DEPTH:
        return
    try:
        if start == b"[":
            for item in raw_json.items(raw):
                yield from _secrets_of(item, is_secret=is_secret, depth=depth + 1)
            return
        for name, value in raw_json.members(raw).items():
            if name not in _SCHEMA_MEMBERS:
                yield from _secrets_of(value, is_secret=is_secret or _is_secret_name(name), depth=depth + 1)
    except raw_json.JsonSplitError:
        return


@memoize(512)
def _is_secret_name(name: str) -> bool:
    return len(name) <= MAX_NAME_CHARS and _SECRET_NAME.fullmatch(name) is not None
