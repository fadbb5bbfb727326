"""How the API answers: JSON that can say everything, and errors in the one shape that clients of the API know.

{"error": {"message": "what happened and what to do", "type": "invalid_request_error", "code": "not_found"}}
"""

from __future__ import annotations

import json
import logging
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route
from typing_extensions import TypedDict

from proxy.errors import BadRequest, ProxyError

log = logging.getLogger(__name__)


class ErrorBody(TypedDict):
    message: str
    type: str
    code: str


class Error(TypedDict):
    """`message` says what happened and what to do; `code` is the word for machines."""

    error: ErrorBody


class Json(JSONResponse):
    """JSON in ASCII: stored text may hold half of a surrogate pair, which UTF-8 cannot say and `\\ud83d` can."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, separators=(",", ":")).encode("ascii")


def error_answer(error: ProxyError) -> Json:
    return _answer(error.status, str(error), error.code)


def _answer(status: int, message: str, code: str) -> Json:
    kind = "server_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request_error"
    told = {"x-stack-status": f"error; reason={code}"}
    return Json({"error": {"message": message, "type": kind, "code": code}}, status, told)


def answer_errors(api: FastAPI) -> None:
    """Every way to fail, in the one shape."""
    api.add_exception_handler(ProxyError, _refused)
    api.add_exception_handler(HTTPException, _no_route)
    api.add_exception_handler(RequestValidationError, _invalid)
    api.add_exception_handler(Exception, _broken)


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, ProxyError)  # noqa: S101 - registered for nothing else
    return error_answer(error)


async def _no_route(request: Request, error: Exception) -> Response:
    """No such path, or not with this method."""
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for nothing else
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = ", ".join(sorted(_methods_at(request)))
        answer = _answer(error.status_code, f"This path answers {allowed}.", "method_not_allowed")
        answer.headers["allow"] = allowed
        return answer
    if error.status_code == HTTPStatus.NOT_FOUND:
        message = "There is no such path. GET /stack/openapi.json lists those there are."
        return _answer(error.status_code, message, "not_found")
    return _answer(error.status_code, str(error.detail), "bad_request")


def _methods_at(request: Request) -> set[str]:
    """All methods of the path; the framework names those of the first route that fits it."""
    fitting = (route for route in request.app.state.pages if route.matches(request.scope)[0] is not Match.NONE)
    return {method for route in fitting if isinstance(route, Route) for method in route.methods or ()}


async def _invalid(_: Request, error: Exception) -> Response:
    """A parameter or a body that is not what the description says; the value itself is not repeated."""
    assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for nothing else
    faults = (f"{'.'.join(str(part) for part in fault['loc'])}: {fault['msg']}" for fault in error.errors())
    return error_answer(BadRequest("; ".join(faults)))


async def _broken(request: Request, error: Exception) -> Response:
    """A fault of ours. The caller learns that, and the log learns which."""
    log.error("a page failed", extra={"path": request.url.path, "error": type(error).__name__})
    return _answer(500, "The proxy could not answer this; its log says more.", "proxy_error")
