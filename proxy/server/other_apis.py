"""Recognizes paths of provider APIs that the proxy does not speak (Gemini, Vertex AI, Bedrock), so that their clients
read what to do, instead of the 404 of a provider that does not know the path either."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from proxy.errors import NotFound


@dataclass(frozen=True, slots=True)
class OtherApi:
    """`hosts` are the domains at which the provider itself speaks it."""

    name: str
    path: re.Pattern[str]
    hosts: tuple[str, ...]
    advice: str


_VERBS = (
    "generateContent|streamGenerateContent|countTokens|embedContent|batchEmbedContents|generateAnswer|predict"
    "|predictLongRunning|rawPredict|streamRawPredict|serverStreamingPredict|computeTokens|batchGenerateContent"
)
_OTHER_APIS = (
    OtherApi(
        "Vertex AI",
        re.compile(rf"/projects/[^/]+/locations/|/publishers/[^/]+/models/[^/]+:(?:{_VERBS})$"),
        ("googleapis.com",),
        "For Claude Code, unset CLAUDE_CODE_USE_VERTEX and set ANTHROPIC_BASE_URL.",
    ),
    OtherApi(
        "Gemini",
        re.compile(rf":(?:{_VERBS})$|^/v1(?:beta|alpha)\d*/(?:models|tunedModels|cachedContents|interactions)(?:/|$)"),
        ("googleapis.com",),
        "Choose a provider of the kind OpenAI-compatible in the client.",
    ),
    OtherApi(
        "Bedrock",
        re.compile(
            r"/model/.+/(?:invoke|invoke-with-response-stream|invoke-with-bidirectional-stream|converse"
            r"|converse-stream|count-tokens)$|^/foundation-models(?:/|$)"
        ),
        ("amazonaws.com", "amazonaws.com.cn"),
        "For Claude Code, unset CLAUDE_CODE_USE_BEDROCK and set ANTHROPIC_BASE_URL.",
    ),
)


def other_api_of(path: str) -> OtherApi | None:
    """The API that a path (decoded) belongs to, if it is one of those that the proxy does not speak."""
    path = path.rstrip("/")
    return next((api for api in _OTHER_APIS if api.path.search(path)), None)


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
