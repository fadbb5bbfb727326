"""The OpenAPI description of the whole API: the routes of `/stack`, responses that middlewares send before any route,
and the client's API with its `x-stack-*` headers. Client bodies are plain objects, because whatever the provider
understands passes."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.routing import compile_path

REQUEST_HEADERS = {
    "x-stack-session": "The session this request belongs to, where the client knows one",
    "x-stack-mode": "off, shadow, passive or active, for this request",
}
RESPONSE_HEADERS = {
    "x-stack-status": "full, asleep, side, off, shadow, answered, stateless, bypass or error, "
    "then `; reason=word` where there is one, and `; form=word` (strict, mild, bare, own) where more was refused",
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


def client_api_paths() -> dict[str, Any]:
    """OpenAPI paths of the client's API and `/metrics`."""
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
    headers = {name: {"description": meaning, "schema": _TEXT} for name, meaning in RESPONSE_HEADERS.items()}
    parameters = [
        {"name": name, "in": "header", "required": False, "description": meaning, "schema": _TEXT}
        for name, meaning in REQUEST_HEADERS.items()
    ]
    answer = {
        "description": "The provider's answer, as a stream where the request asks for one",
        "headers": headers,
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
        "parameters": parameters,
        "requestBody": {"required": True, "content": {"application/json": _OBJECT}},
        "responses": {"200": answer} | {s: {"description": why, "content": _ERROR} for s, why in refused.items()},
    }


_LARGE = {"description": "A body that is larger than is read here", "content": _ERROR}
_OFTEN = "More requests than a tenant may make, or more streams; Retry-After tells seconds where they are known"


def openapi_description(api: FastAPI) -> dict[str, Any]:
    """The description of `api`, built once."""
    if not hasattr(api.state, "description"):
        api.state.description = _build_description(api)
    description: dict[str, Any] = api.state.description
    return description


def methods_at(api: FastAPI, path: str) -> list[str]:
    """Methods of a path, sorted."""
    matching = (
        operations_at
        for template, operations_at in openapi_description(api)["paths"].items()
        if compile_path(template)[0].fullmatch(path)
    )
    return sorted({method.upper() for operations in matching for method in operations})


def _build_description(api: FastAPI) -> dict[str, Any]:
    schema = get_openapi(title=api.title, version=api.version, description=api.description, routes=api.routes)
    for path, operations in schema["paths"].items():
        for operation in operations.values():
            responses = operation["responses"]
            responses.pop("422", None)  # the library adds it to each; what is invalid is answered 400
            if path.startswith("/stack"):
                responses |= {"413": _LARGE} if "requestBody" in operation else {}
                responses["429"] = {"description": _OFTEN, "content": _ERROR}
    return {**schema, "paths": {**client_api_paths(), **schema["paths"]}}
