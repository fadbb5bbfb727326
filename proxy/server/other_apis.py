"""Recognizes paths of provider APIs that the proxy does not speak (Gemini, Vertex AI, Bedrock), so that their clients
read what to do, instead of the 404 of a provider that does not know the path either."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import msgspec

from proxy.core.word_lists import read_table, with_parts
from proxy.errors import NotFound


class OtherApi(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`path` is a regular expression, `hosts` are the domains at which the provider itself speaks it."""

    name: str
    path: str
    hosts: tuple[str, ...]
    advice: str


class _OtherApis(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    apis: tuple[OtherApi, ...]
    parts: dict[str, str]


_TABLE = read_table(__package__, "other_apis.toml", _OtherApis)
_OTHER_APIS = tuple((re.compile(with_parts(api.path, _TABLE.parts)), api) for api in _TABLE.apis)


def other_api_of(path: str) -> OtherApi | None:
    """The API that a path (decoded) belongs to, if it is one of those that the proxy does not speak."""
    path = path.rstrip("/")
    return next((api for pattern, api in _OTHER_APIS if pattern.search(path)), None)


def refuse_other_api(api: OtherApi, upstream_url: str, host: str) -> None:
    """Raises NotFound, unless the upstream is the provider whose API it is: there the path passes as it came."""
    upstream = urlsplit(upstream_url).hostname or ""
    if any(upstream == domain or upstream.endswith(f".{domain}") for domain in api.hosts):
        return
    raise NotFound(
        f"This is a path of the API of {api.name}, which this proxy does not speak. Point the client at "
        f"http://{host}/v1 for chat completions or responses, or at http://{host} for Anthropic's messages; models of "
        f"{api.name} are reached that way through an upstream of kind litellm. {api.advice}",
        code="other_api",
    )
