"""What OpenAPI says beside the routes of `/stack`: the client's API with the headers of ours around it, and `/metrics`.

Bodies belong to the client and the provider: they are described as objects and nothing more, because whatever the
provider understands passes.
"""

from __future__ import annotations

from typing import Any

HEADERS_IN = {
    "x-stack-session": "The session this request belongs to, where the client knows one",
    "x-stack-mode": "off, shadow, passive or active, for this request",
}
HEADERS_OUT = {
    "x-stack-status": "full, asleep, side, off, shadow, answered, stateless, bypass or error, "
    "then `; reason=word` where there is one",
    "x-stack-request-id": "For /stack/requests",
    "x-stack-conversation": "For /stack/conversations",
    "x-stack-thread": "The path of the conversation that this request continues",
    "x-stack-frame": "The frame that was active when the first round was sent",
    "x-stack-tokens-in": "Tokens of the client's request",
    "x-stack-tokens-sent": "Tokens sent upstream, as far as they are known when the answer begins",
    "x-stack-tokens-saved": "The difference",
    "x-stack-tokens-would-send": "In mode shadow: what mode active would have sent",
    "x-stack-cost": "USD, where the answer is not streamed",
    "x-stack-cost-untouched": "USD of the same request without the proxy, where the answer is not streamed",
    "x-stack-priced": "false where the model is not in the price table, and a round price stands in",
    "x-stack-overhead-ms": "Milliseconds until the first byte left for the provider",
}
_TEXT = {"type": "string"}
_ERROR = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
_OBJECT = {"schema": {"type": "object"}}


def described() -> dict[str, Any]:
    """Paths of OpenAPI, to stand beside those of `/stack`."""
    return {"/v1/chat/completions": {"post": _chat_completions()}, "/metrics": {"get": _metrics()}}


def _metrics() -> dict[str, Any]:
    refused = {"401": "No client key, or one that is not known here", "403": "A key that sees only its own tenant"}
    page = {"description": "The text format of Prometheus", "content": {"text/plain": {"schema": _TEXT}}}
    return {
        "summary": "Metrics",
        "description": "What the process counts, of all tenants together: it needs an operator's key.",
        "operationId": "metrics",
        "responses": {"200": page} | {s: {"description": why, "content": _ERROR} for s, why in refused.items()},
    }


def _chat_completions() -> dict[str, Any]:
    told = {name: {"description": meaning, "schema": _TEXT} for name, meaning in HEADERS_OUT.items()}
    asked = [
        {"name": name, "in": "header", "required": False, "description": meaning, "schema": _TEXT}
        for name, meaning in HEADERS_IN.items()
    ]
    answer = {
        "description": "The provider's answer, as a stream where the request asks for one",
        "headers": told,
        "content": {"application/json": _OBJECT, "text/event-stream": {"schema": _TEXT}},
    }
    refused = {
        "400": "A mode that there is not, or a model that no upstream serves",
        "401": "No client key, or one that is not known here",
        "413": "Larger than `body_limit_bytes`",
        "499": "A person stopped it before anything of the answer had left",
        "502": "The provider cannot be reached, or hung up",
        "504": "The provider was silent for too long",
        "default": "Whatever the provider answered, unchanged",
    }
    return {
        "summary": "Chat completions",
        "description": "A chat completion; every other path under /v1 passes to the provider as it is.",
        "operationId": "chat_completions",
        "parameters": asked,
        "requestBody": {"required": True, "content": {"application/json": _OBJECT}},
        "responses": {"200": answer} | {s: {"description": why, "content": _ERROR} for s, why in refused.items()},
    }
