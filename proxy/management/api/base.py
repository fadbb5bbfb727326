"""How the API answers: JSON that can say everything, and errors in the one shape that clients of the API know.

{"error": {"message": "what happened and what to do", "type": "invalid_request_error", "param": null, "code":
"not_found"}}

What the edge refuses on these paths has the same shape; it is that of chat completions.

What the routes look at: handed in once, when the application is made.

Who asks, what of, and how routes say what they take and answer: what every module of routes begins with.

The law: **an id is described as narrow as ids are**, and whatever else comes is answered like one that is not known.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Annotated, Any, Literal

from fastapi import Depends, FastAPI, Path, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from typing_extensions import TypedDict

from proxy.auth import Headers, Tenant
from proxy.config import Config, LiveSettings
from proxy.core.ledger import LedgerEvent
from proxy.core.text import CountTokens, estimate_tokens
from proxy.errors import BadRequest, ProxyError, RateLimited
from proxy.exchange import Inbox
from proxy.management.api.openapi import methods_at
from proxy.management.views import MAX_TIMESTAMP_MS, quote_reference
from proxy.store import Store
from proxy.telemetry import EventBus

MAX_FAULTS_REPORTED = 5
"""So many are told, however many a request has."""
SEE_OPENAPI = "GET /stack/openapi.json says what each path takes."

log = logging.getLogger(__name__)


class ErrorBody(TypedDict):
    message: str
    type: Literal["invalid_request_error", "api_error"]
    param: None
    code: str


class Error(TypedDict):
    """`message` says what happened and what to do; `code` is the word for machines."""

    error: ErrorBody


class JsonResponse(JSONResponse):
    """JSON in ASCII: stored text may hold half of a surrogate pair, which UTF-8 cannot say and `\\ud83d` can."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, separators=(",", ":")).encode("ascii")


async def respond_in_thread(view: Callable[[], Any]) -> JsonResponse:
    """What `view` tells, as JSON. Of a conversation of thousands of messages that takes tenths of a second: a thread
    does, for requests that are being answered do not wait for it."""
    return await run_in_threadpool(lambda: JsonResponse(view()))


def error_response(error: ProxyError) -> JsonResponse:
    answer = _error_body_response(error.status, str(error), error.code)
    if isinstance(error, RateLimited):
        answer.headers["retry-after"] = str(error.retry_after_s)
    return answer


def _error_body_response(status: int, message: str, code: str) -> JsonResponse:
    kind = "api_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request_error"
    told = {"x-stack-status": f"error; reason={code}"}
    return JsonResponse({"error": {"message": message, "type": kind, "param": None, "code": code}}, status, told)


def add_error_handlers(api: FastAPI) -> None:
    """Every way to fail, in the one shape."""
    api.add_exception_handler(ProxyError, _handle_proxy_error)
    api.add_exception_handler(HTTPException, _handle_http_error)
    api.add_exception_handler(RequestValidationError, _handle_validation_error)
    api.add_exception_handler(Exception, _handle_unexpected_error)


async def _handle_proxy_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, ProxyError)  # noqa: S101 - registered for nothing else
    return error_response(error)


async def _handle_http_error(request: Request, error: Exception) -> Response:
    """No such path, or not with this method."""
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for nothing else
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = ", ".join(methods_at(request.app, request.url.path))
        answer = _error_body_response(error.status_code, f"This path answers {allowed}.", "method_not_allowed")
        answer.headers["allow"] = allowed
        return answer
    if error.status_code == HTTPStatus.NOT_FOUND:
        message = "There is no such path. GET /stack/openapi.json lists those there are."
        return _error_body_response(error.status_code, message, "not_found")
    # Raised by the framework alone, and only for a body: no JSON, or JSON that no reader takes in (too deep, a number
    # of thousands of digits).
    return error_response(BadRequest(f"The body cannot be read as JSON. {SEE_OPENAPI}"))


async def _handle_validation_error(_: Request, error: Exception) -> Response:
    """A parameter or a body that is not what the description says; the value itself is not repeated."""
    assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for nothing else
    faults = error.errors()
    told = [_describe_fault(fault) for fault in faults[:MAX_FAULTS_REPORTED]]
    more = [f"and {len(faults) - len(told)} more faults"] if len(faults) > len(told) else []
    return error_response(BadRequest(f"The request is not as described. {'; '.join([*told, *more])}. {SEE_OPENAPI}"))


def _describe_fault(fault: Mapping[str, Any]) -> str:
    """Where it is and what it is. A place may be named by a key that somebody made up."""
    place = ".".join(str(part) for part in fault["loc"])
    return f"{quote_reference(place)}: {fault['msg']}"


async def _handle_unexpected_error(request: Request, error: Exception) -> Response:
    """A fault of ours. The caller learns that, and the log learns which."""
    log.error("a page failed", extra={"path": request.url.path, "error": type(error).__name__})
    return _error_body_response(500, "The proxy could not answer this; its log says more.", "proxy_error")


@dataclass(frozen=True)
class ApiContext:
    """`started` is in ms since the epoch; `counter` names what counts tokens.

    `tenant_of` raises Unauthorized. `changed` is called with a tenant and a conversation (None and "" mean all) after
    something there was deleted, so that it is not kept in memory; `mode_set` with a tenant, a conversation and its new
    mode, and `decided` with what was decided about it, after that was stored; `speaking` is where people speak to what
    runs. `operator_token` is a secret of this process that opens everything, or empty; `config` is what conversations
    go by that say nothing else, `live` what is set while the proxy runs.
    """

    store: Store
    tenant_of: Callable[[Headers], Tenant]
    on_deleted: Callable[[str | None, str], None]
    on_mode_changed: Callable[[str, str, str], None]
    on_events_stored: Callable[[str, str, Sequence[LedgerEvent]], None]
    inbox: Inbox
    is_draining: Callable[[], bool]
    started: int
    live_settings: LiveSettings
    counter_name: str
    operator_token: str = ""
    config: Config = field(default_factory=Config)
    feed: EventBus = field(default_factory=EventBus)
    """Where what happens is heard."""
    count_tokens: CountTokens = estimate_tokens
    """Tokens of a text."""
    subagents_counted_since: dict[str | None, int] = field(default_factory=dict)
    """From when on subagents are counted (ms), by tenant, None for an operator; not there: all that is stored."""


ResponseDocs = dict[int | str, dict[str, Any]]
ERROR_RESPONSES: ResponseDocs = {
    400: {"model": Error, "description": "A parameter that is not as described"},
    401: {"model": Error, "description": "No key, or one that is not known here"},
    500: {"model": Error, "description": "The store could not answer"},
}
NOT_FOUND_RESPONSE: ResponseDocs = {404: {"model": Error, "description": "Not there, or not yours"}}


@dataclass(frozen=True)
class Caller:
    """Who asks, and what of. `scope` is the tenant, or None for an operator."""

    context: ApiContext
    tenant: Tenant

    @property
    def scope(self) -> str | None:
        return None if self.tenant.admin else self.tenant.id


async def caller_of(request: Request) -> Caller:
    return Caller(request.state.backstage, request.state.tenant)


CurrentCaller = Annotated[Caller, Depends(caller_of)]
Limit = Annotated[int, Query(ge=1, le=1000, description="At most so many, the newest first")]
Offset = Annotated[int, Query(ge=0, le=MAX_TIMESTAMP_MS, description="Leave out so many of the newest")]
Id = Annotated[str, Path(json_schema_extra={"pattern": "^[A-Za-z0-9_-]{1,64}$"})]
"""Described as narrow as ids are; whatever else comes is no id that anything has, and answered like an unknown one."""
Thread = Annotated[str, Query(description="The path of this thread instead of the one that grew last")]
AsOf = Annotated[
    str, Query(description="As it was known then: ms since the epoch, or an ISO time (UTC without a zone)")
]
