"""Converts a request body to arguments of a litellm call.

Only known members of the API become arguments, because litellm's functions also take addresses, keys, fallbacks and
mock answers. For providers that speak OpenAI's API the other members travel as `extra_body`. Members that a provider
does not know (`store` at Anthropic) are dropped, unless `options` say `drop_params: false`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from proxy.config import UpstreamSettings, WireFormat
from proxy.errors import BadRequest
from proxy.upstream.http import RawHeaders
from proxy.upstream.litellm.loader import OPENAI_PROVIDERS, LitellmLibrary

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class LitellmFunction:
    wire_format: WireFormat
    name: str
    """Dotted, below `litellm`."""
    members: frozenset[str]
    """Body members that it takes under the API's own name."""
    needed: tuple[str, ...]
    elsewhere: frozenset[str] = field(default=frozenset())
    """Members outside OpenAI's API, for other providers."""


_CHAT_MEMBERS = (
    "messages functions function_call temperature top_p n stream stream_options stop max_tokens "
    "max_completion_tokens modalities prediction audio presence_penalty frequency_penalty logit_bias "
    "user response_format seed tools tool_choice parallel_tool_calls logprobs top_logprobs "
    "reasoning_effort verbosity safety_identifier service_tier store prompt_cache_key thinking "
    "web_search_options"
)
CHAT = LitellmFunction(
    "chat",
    "acompletion",
    frozenset(_CHAT_MEMBERS.split()),
    ("model", "messages"),
    frozenset({"top_k", "context_management", "output_config"}),
)
_MESSAGES_MEMBERS = (
    "messages system max_tokens metadata stop_sequences stream temperature thinking tool_choice tools "
    "top_k top_p container context_management output_config output_format service_tier cache_control"
)
MESSAGES = LitellmFunction(
    "messages",
    "anthropic.messages.acreate",
    frozenset(_MESSAGES_MEMBERS.split()),
    ("model", "messages", "max_tokens"),
)
_RESPONSES_MEMBERS = (
    "input include instructions max_output_tokens prompt metadata parallel_tool_calls "
    "previous_response_id reasoning store background stream temperature text tool_choice tools top_p "
    "truncation user service_tier safety_identifier prompt_cache_key"
)
RESPONSES = LitellmFunction(
    "responses",
    "aresponses",
    frozenset(_RESPONSES_MEMBERS.split()),
    ("model", "input"),
)
FUNCTION_BY_PATH: Mapping[str, LitellmFunction] = {
    "/chat/completions": CHAT,
    "/messages": MESSAGES,
    "/responses": RESPONSES,
}
"""By the end of the path."""


def function_at(method: str, path: str) -> LitellmFunction | None:
    """The function for this path, or None."""
    if method != "POST":
        return None
    return next((entry for end, entry in FUNCTION_BY_PATH.items() if path.endswith(end)), None)


def build_arguments(
    entry: LitellmFunction, body: Json, headers: RawHeaders, settings: UpstreamSettings, library: LitellmLibrary
) -> Json:
    """Arguments for a request. Raises BadRequest if it names no model, or sets what only the operator may."""
    _refuse_incomplete(entry, body)
    provider = library.provider_of(body["model"])
    _refuse_litellm_tools(body.get("tools"), provider)
    found = {name: body[name] for name in body if name in entry.members}
    rest = {name: value for name, value in body.items() if name not in entry.members and name != "model"}
    if library.takes_any_member(provider):
        found |= {"extra_body": rest} if rest else {}
    else:
        found |= {name: value for name, value in rest.items() if name in entry.elsewhere}
    beta = [value.decode("latin-1") for name, value in headers if name.lower() == b"anthropic-beta"]
    if beta and entry is MESSAGES:
        found["extra_headers"] = {"anthropic-beta": ",".join(beta)}
    return {"model": body["model"], "drop_params": True, **found, **_fixed_arguments(settings, library)}


def _fixed_arguments(settings: UpstreamSettings, library: LitellmLibrary) -> Json:
    """The operator's options, and settings that keep litellm from retrying and from running tools itself."""
    timeout = library.client.Timeout(settings.idle_timeout_s, connect=settings.connect_timeout_s)
    own: Json = {"num_retries": 0, "max_retries": 0, "timeout": timeout, "_skip_mcp_handler": True}
    if settings.key is not None:
        own["api_key"] = settings.key.get_secret_value()
    if settings.url:
        own["api_base"] = settings.url
    return {**own, **settings.options}


def _refuse_incomplete(entry: LitellmFunction, body: Json) -> None:
    missing = [name for name in entry.needed if name not in body]
    if missing:
        raise BadRequest(f"The body has no {missing[0]!r}, which this API needs. Send it too.")
    if not isinstance(body["model"], str) or "://" in body["model"]:
        raise BadRequest("The model must be a name: an address is not taken from a request. Send the name alone.")


def _refuse_litellm_tools(tools: object, provider: str) -> None:
    """Refuse tools that litellm would run itself if the provider lacks them: it would query models or search stores
    with whatever keys it finds."""
    kinds = [tool.get("type") for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else []
    served = ("advisor",) if provider in OPENAI_PROVIDERS else ("advisor", "file_search")
    for kind in kinds:
        if isinstance(kind, str) and kind.startswith(served):
            raise BadRequest(f"Tools of type {kind!r} are not served here; reach a provider that has them by its URL.")
