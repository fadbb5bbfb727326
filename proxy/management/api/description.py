"""What OpenAPI says of the whole API, made once: the routes, what stands in front of each of them, the client's side.

The law: **whatever may be answered is in it**, also what no route says itself because it is answered before one is
looked up: a body that is too large, requests that come too often.
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.routing import compile_path

from proxy.management.api import openapi as client_side

_ERROR = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
_LARGE = {"description": "A body that is larger than is read here", "content": _ERROR}
_OFTEN = "More requests than a tenant may make, or more streams; Retry-After tells seconds where they are known"


def description(api: FastAPI) -> dict[str, Any]:
    """The description of `api` with all its routes; whoever asks again is given the same object."""
    if not hasattr(api.state, "description"):
        api.state.description = _described(api)
    told: dict[str, Any] = api.state.description
    return told


def methods_at(api: FastAPI, path: str) -> list[str]:
    """What a path answers, in the order of the alphabet."""
    fitting = (of for template, of in description(api)["paths"].items() if compile_path(template)[0].fullmatch(path))
    return sorted({method.upper() for operations in fitting for method in operations})


def _described(api: FastAPI) -> dict[str, Any]:
    schema = get_openapi(title=api.title, version=api.version, description=api.description, routes=api.routes)
    for path, operations in schema["paths"].items():
        for operation in operations.values():
            responses = operation["responses"]
            responses.pop("422", None)  # the library adds it to each; what is invalid is answered 400
            if path.startswith("/stack"):
                responses |= {"413": _LARGE} if "requestBody" in operation else {}
                responses["429"] = {"description": _OFTEN, "content": _ERROR}
    return {**schema, "paths": {**client_side.described(), **schema["paths"]}}
