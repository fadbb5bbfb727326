"""Builds the application of `/stack` and `/health`.

A middleware finds the tenant, by the same credentials as for `/v1`, before any route is looked up, so no route can
forget it. The tenant is in every query of the store, and what belongs to another one looks as if it did not exist. An
operator (an admin key, the token of this process, or the user of a `single` proxy) sees all. `/health` is open.
"""

from __future__ import annotations

from functools import cache

from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from callstack_proxy.management.api import conversations, events
from callstack_proxy.management.api.base import ApiContext, JsonResponse, add_error_handlers, error_response
from callstack_proxy.management.api.limits import LimitsMiddleware, RequestRateLimiter
from proxy import __version__
from proxy.auth import Headers, Tenant, has_operator_token
from proxy.errors import ProxyError

__all__ = ["ApiContext", "build_api"]

PUBLIC_PATHS = frozenset({"/health"})
OPERATOR_TENANT = Tenant("operator", "operator", admin=True)
"""Tenant of requests with this process's token, which is in a file that only its user can read."""


class IdentityMiddleware:
    """Puts the tenant and the API context into the request's state, or refuses the request."""

    def __init__(self, app: ASGIApp, context: ApiContext) -> None:
        self._app = app
        self._context = context
        self._token = context.operator_token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            state = scope.setdefault("state", {})
            state["context"] = self._context
            try:
                state["tenant"] = None if scope["path"] in PUBLIC_PATHS else self._authenticate(scope["headers"])
            except ProxyError as error:
                await error_response(error)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _authenticate(self, headers: Headers) -> Tenant:
        return OPERATOR_TENANT if has_operator_token(headers, self._token) else self._context.tenant_of(headers)


def build_api(context: ApiContext) -> ASGIApp:
    """The application of `/stack` and `/health`; it has no lifespan events."""
    # Around the framework and not in it: it would answer what the edge is to answer.
    bounded = LimitsMiddleware(build_routes(), RequestRateLimiter(context.config.api_requests_per_minute))
    return IdentityMiddleware(bounded, context)


@cache
def build_routes() -> FastAPI:
    """The routes, built once per process in 0.2 s. The API context comes with each request."""
    # The pages FastAPI brings load scripts from elsewhere, and its schema route would know no tenant: ours is
    # `openapi`. A redirect for a slash at the end would be a second answer to one question.
    api = FastAPI(
        title="callstack",
        version=__version__,
        description="What the proxy keeps: conversations, frames, requests, and what they cost.",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        default_response_class=JsonResponse,
    )
    for router in (conversations.open_router, conversations.router, events.router):
        api.include_router(router)
    add_error_handlers(api)
    return api
