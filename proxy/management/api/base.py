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
from proxy.config.model import Config
from proxy.config.runtime import LiveSettings
from proxy.core.ledger.ledger import Event
from proxy.core.text import Count, estimate_tokens
from proxy.errors import BadRequest, ProxyError, TooOften
from proxy.exchange.background.inbox import Speaking
from proxy.management.api.openapi import methods_at
from proxy.management.views.as_of import LATEST
from proxy.management.views.lookup import shown
from proxy.store import Store
from proxy.telemetry.event_bus import Feed

MOST_FAULTS = 5
"""So many are told, however many a request has."""
DESCRIBED = "GET /stack/openapi.json says what each path takes."

log = logging.getLogger(__name__)


class ErrorBody(TypedDict):
    message: str
    type: Literal["invalid_request_error", "api_error"]
    param: None
    code: str


class Error(TypedDict):
    """`message` says what happened and what to do; `code` is the word for machines."""

    error: ErrorBody


class Json(JSONResponse):
    """JSON in ASCII: stored text may hold half of a surrogate pair, which UTF-8 cannot say and `\\ud83d` can."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, separators=(",", ":")).encode("ascii")


async def answered(view: Callable[[], Any]) -> Json:
    """What `view` tells, as JSON. Of a conversation of thousands of messages that takes tenths of a second: a thread
    does, for requests that are being answered do not wait for it."""
    return await run_in_threadpool(lambda: Json(view()))


def error_answer(error: ProxyError) -> Json:
    answer = _answer(error.status, str(error), error.code)
    if isinstance(error, TooOften):
        answer.headers["retry-after"] = str(error.retry_after_s)
    return answer


def _answer(status: int, message: str, code: str) -> Json:
    kind = "api_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request_error"
    told = {"x-stack-status": f"error; reason={code}"}
    return Json({"error": {"message": message, "type": kind, "param": None, "code": code}}, status, told)


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
        allowed = ", ".join(methods_at(request.app, request.url.path))
        answer = _answer(error.status_code, f"This path answers {allowed}.", "method_not_allowed")
        answer.headers["allow"] = allowed
        return answer
    if error.status_code == HTTPStatus.NOT_FOUND:
        message = "There is no such path. GET /stack/openapi.json lists those there are."
        return _answer(error.status_code, message, "not_found")
    # Raised by the framework alone, and only for a body: no JSON, or JSON that no reader takes in (too deep, a number
    # of thousands of digits).
    return error_answer(BadRequest(f"The body cannot be read as JSON. {DESCRIBED}"))


async def _invalid(_: Request, error: Exception) -> Response:
    """A parameter or a body that is not what the description says; the value itself is not repeated."""
    assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for nothing else
    faults = error.errors()
    told = [_fault(fault) for fault in faults[:MOST_FAULTS]]
    more = [f"and {len(faults) - len(told)} more faults"] if len(faults) > len(told) else []
    return error_answer(BadRequest(f"The request is not as described. {'; '.join([*told, *more])}. {DESCRIBED}"))


def _fault(fault: Mapping[str, Any]) -> str:
    """Where it is and what it is. A place may be named by a key that somebody made up."""
    place = ".".join(str(part) for part in fault["loc"])
    return f"{shown(place)}: {fault['msg']}"


async def _broken(request: Request, error: Exception) -> Response:
    """A fault of ours. The caller learns that, and the log learns which."""
    log.error("a page failed", extra={"path": request.url.path, "error": type(error).__name__})
    return _answer(500, "The proxy could not answer this; its log says more.", "proxy_error")


@dataclass(frozen=True)
class Backstage:
    """`started` is in ms since the epoch; `counter` names what counts tokens.

    `tenant_of` raises Unauthorized. `changed` is called with a tenant and a conversation (None and "" mean all) after
    something there was deleted, so that it is not kept in memory; `mode_set` with a tenant, a conversation and its new
    mode, and `decided` with what was decided about it, after that was stored; `speaking` is where people speak to what
    runs. `operator_token` is a secret of this process that opens everything, or empty; `config` is what conversations
    go by that say nothing else, `live` what is set while the proxy runs.
    """

    store: Store
    tenant_of: Callable[[Headers], Tenant]
    changed: Callable[[str | None, str], None]
    mode_set: Callable[[str, str, str], None]
    decided: Callable[[str, str, Sequence[Event]], None]
    speaking: Speaking
    draining: Callable[[], bool]
    started: int
    live: LiveSettings
    counter: str
    operator_token: str = ""
    config: Config = field(default_factory=Config)
    feed: Feed = field(default_factory=Feed)
    """Where what happens is heard."""
    count: Count = estimate_tokens
    """Tokens of a text."""
    counted_since: dict[str | None, int] = field(default_factory=dict)
    """From when on subagents are counted (ms), by tenant, None for an operator; not there: all that is stored."""


Documented = dict[int | str, dict[str, Any]]
ERRORS: Documented = {
    400: {"model": Error, "description": "A parameter that is not as described"},
    401: {"model": Error, "description": "No key, or one that is not known here"},
    500: {"model": Error, "description": "The store could not answer"},
}
UNKNOWN: Documented = {404: {"model": Error, "description": "Not there, or not yours"}}


@dataclass(frozen=True)
class Asking:
    """Who asks, and what of. `scope` is the tenant, or None for an operator."""

    backstage: Backstage
    tenant: Tenant

    @property
    def scope(self) -> str | None:
        return None if self.tenant.admin else self.tenant.id


async def asking(request: Request) -> Asking:
    return Asking(request.state.backstage, request.state.tenant)


Asked = Annotated[Asking, Depends(asking)]
Limit = Annotated[int, Query(ge=1, le=1000, description="At most so many, the newest first")]
Offset = Annotated[int, Query(ge=0, le=LATEST, description="Leave out so many of the newest")]
Id = Annotated[str, Path(json_schema_extra={"pattern": "^[A-Za-z0-9_-]{1,64}$"})]
"""Described as narrow as ids are; whatever else comes is no id that anything has, and answered like an unknown one."""
Thread = Annotated[str, Query(description="The path of this thread instead of the one that grew last")]
AsOf = Annotated[
    str, Query(description="As it was known then: ms since the epoch, or an ISO time (UTC without a zone)")
]
