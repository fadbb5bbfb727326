"""What all route modules share: the API context, the caller, JSON responses, parameter types, and errors in one shape.

{"error": {"message": "what happened and what to do", "type": "invalid_request_error", "param": null, "code":
"not_found"}}

That is the shape of chat completions, and of what the server's guard refuses.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Annotated, Any, Literal

import msgspec
from fastapi import Depends, FastAPI, Path, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from callstack_proxy.management.api.openapi import methods_at
from callstack_proxy.management.api.status_line import StatusLines
from callstack_proxy.management.find_by_id import quote_reference
from callstack_proxy.management.views import MAX_TIMESTAMP_MS, MeaningOf, ProjectConversations
from proxy.auth import Headers, Tenant
from proxy.config import Config
from proxy.config.runtime import LiveSettings
from proxy.core.ledger import LedgerEvent
from proxy.core.text import CountTokens, estimate_tokens
from proxy.errors import BadRequest, ProxyError, RateLimited
from proxy.exchange import Inbox
from proxy.store import Store
from proxy.telemetry import EventBus
from proxy.upstream import LearnedTrait

MAX_FAULTS_REPORTED = 5
"""Faults of a request that the message lists."""
SEE_OPENAPI = "GET /stack/openapi.json says what each path takes."

log = logging.getLogger(__name__)


class ErrorBody(BaseModel):
    message: str
    type: Literal["invalid_request_error", "api_error"]
    param: None
    code: str


# A model and no TypedDict: each of 60 routes names it five times, and pydantic builds the schema of a model once.
class Error(BaseModel):
    """`message` says what happened and what to do; `code` is the word for machines."""

    error: ErrorBody


class JsonResponse(JSONResponse):
    """JSON in ASCII: stored text may hold half of a surrogate pair, which UTF-8 cannot encode and `\\ud83d` can.
    Structs in it are objects."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, separators=(",", ":"), default=msgspec.to_builtins).encode("ascii")


async def respond_in_thread(view: Callable[[], Any]) -> JsonResponse:
    """Renders a view as JSON in a thread: for thousands of messages it takes tenths of a second, during which requests
    in flight must not wait."""
    return await run_in_threadpool(lambda: JsonResponse(view()))


def error_response(error: ProxyError) -> JsonResponse:
    answer = _error_body_response(error.status, str(error), error.code)
    if isinstance(error, RateLimited):
        answer.headers["retry-after"] = str(error.retry_after_s)
    return answer


def _error_body_response(status: int, message: str, code: str) -> JsonResponse:
    kind = "api_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request_error"
    headers = {"x-stack-status": f"error; reason={code}"}
    return JsonResponse({"error": {"message": message, "type": kind, "param": None, "code": code}}, status, headers)


def add_error_handlers(api: FastAPI) -> None:
    api.add_exception_handler(ProxyError, _handle_proxy_error)
    api.add_exception_handler(HTTPException, _handle_http_error)
    api.add_exception_handler(RequestValidationError, _handle_validation_error)
    api.add_exception_handler(Exception, _handle_unexpected_error)


async def _handle_proxy_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, ProxyError)  # noqa: S101 - registered for nothing else
    return error_response(error)


async def _handle_http_error(request: Request, error: Exception) -> Response:
    """Unknown path or method, or an unreadable body."""
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
    """The message does not repeat the invalid value."""
    assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for nothing else
    faults = error.errors()
    described = [_describe_fault(fault) for fault in faults[:MAX_FAULTS_REPORTED]]
    more = [f"and {len(faults) - len(described)} more faults"] if len(faults) > len(described) else []
    return error_response(
        BadRequest(f"The request is not as described. {'; '.join([*described, *more])}. {SEE_OPENAPI}")
    )


def _describe_fault(fault: Mapping[str, Any]) -> str:
    """The place and the fault. The place is quoted, because it may contain a key that the caller chose."""
    place = ".".join(str(part) for part in fault["loc"])
    return f"{quote_reference(place)}: {fault['msg']}"


async def _handle_unexpected_error(request: Request, error: Exception) -> Response:
    """The log names the error, the response does not."""
    log.error("a page failed", extra={"path": request.url.path, "error": type(error).__name__})
    return _error_body_response(500, "The proxy could not answer this; its log says more.", "proxy_error")


@dataclass(frozen=True)
class ApiContext:
    """What the routes work with.

    `tenant_of` raises Unauthorized. `on_deleted` drops caches of a tenant and a conversation (None and "" mean all)
    after a deletion; `on_mode_changed` gets a tenant, a conversation and its new mode, and `on_events_stored` the
    events, once they are stored. `inbox` reaches running requests. `started` is in ms since the epoch.
    `counter_name` returns the name of the token counter, and loads its vocabulary (0.2 s) if nobody has counted yet.
    `operator_token` is a secret of this process that grants everything, or empty. `config` holds unless a conversation
    sets something else; `live_settings` may change while the proxy runs.
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
    counter_name: Callable[[], str]
    operator_token: str = ""
    config: Config = field(default_factory=Config)
    feed: EventBus = field(default_factory=EventBus)
    """Publishes events to listeners."""
    count_tokens: CountTokens = estimate_tokens
    subagents_counted_since: dict[str | None, int] = field(default_factory=dict)
    """Start of the subagent statistics (ms) by tenant, None for an operator; missing: everything stored counts."""
    learned_traits: Callable[[], Sequence[LearnedTrait]] = tuple
    """What the upstreams' refusals have taught this process."""
    status_lines: StatusLines = field(default_factory=StatusLines)
    project_conversations: ProjectConversations = field(default_factory=ProjectConversations)
    meaning_of: MeaningOf | None = None
    """The vector of a query for the search by meaning; None where that is off."""


ResponseDocs = dict[int | str, dict[str, Any]]
ERROR_RESPONSES: ResponseDocs = {
    400: {"model": Error, "description": "A parameter that is not as described"},
    401: {"model": Error, "description": "No key, or one that is not known here"},
    500: {"model": Error, "description": "The store could not answer"},
}
NOT_FOUND_RESPONSE: ResponseDocs = {404: {"model": Error, "description": "Not there, or not yours"}}


@dataclass(frozen=True)
class Caller:
    """The caller of a route. `scope` is the tenant, or None for an operator."""

    context: ApiContext
    tenant: Tenant

    @property
    def scope(self) -> str | None:
        return None if self.tenant.admin else self.tenant.id


def now_ms() -> int:
    """The time in ms since the epoch."""
    return time.time_ns() // 1_000_000


async def caller_of(request: Request) -> Caller:
    return Caller(request.state.context, request.state.tenant)


CurrentCaller = Annotated[Caller, Depends(caller_of)]
Limit = Annotated[int, Query(ge=1, le=1000, description="At most so many, the newest first")]
Offset = Annotated[int, Query(ge=0, le=MAX_TIMESTAMP_MS, description="Leave out so many of the newest")]
Id = Annotated[str, Path(json_schema_extra={"pattern": "^[A-Za-z0-9_-]{1,64}$"})]
"""The pattern is documentation only: any other value is answered like an unknown id."""
Thread = Annotated[str, Query(description="The path of this thread instead of the one that grew last")]
Projects = Annotated[
    list[str],
    Query(
        alias="project",
        max_length=8,
        description="Only of agents in a folder of this name or below it; several are names of one",
    ),
]
AsOf = Annotated[
    str, Query(description="As it was known then: ms since the epoch, or an ISO time (UTC without a zone)")
]
