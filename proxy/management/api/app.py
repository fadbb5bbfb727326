"""`/stack` and `/health` over HTTP: what `proxy.views` knows, as JSON, described by OpenAPI.

    __init__.py   the application
    backstage.py  what the routes look at
    identity.py   who is asking, before any route is looked up
    answers.py    JSON that can say everything, and the one shape of an error
    bounds.py     how often a tenant may ask
    asking.py     what every module of routes begins with
    description   what OpenAPI says of all of it
    routes.py     the routes; those of one subject are modules of their own, which it includes
    client_side   what OpenAPI says of `/v1`

The law: **nobody sees what is not theirs, on any route**. The tenant comes from the same credentials as in `/v1`, is
known before a route is looked up, and is in every question to the store; what belongs to another tenant is answered
like what never existed. An operator (an admin key, the token of this process, or the one user of a `single` proxy) sees
all.

FastAPI costs 0.3 s to import, so nothing but `app` imports this package, and only `serve` imports `app`.

Who is asking: a guard in front of the routes, so that no route can be added that forgets it.

`/health` is open, for probes have no key; it tells nothing of anybody. Everything else, paths without a route
included, needs a tenant.
"""

from __future__ import annotations

from functools import cache

from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from proxy import __version__
from proxy.auth import Headers, Tenant, has_operator_token
from proxy.errors import ProxyError
from proxy.management.api import conversations as routes
from proxy.management.api import events
from proxy.management.api.base import ApiContext, JsonResponse, add_error_handlers, error_response
from proxy.management.api.limits import LimitsMiddleware, RequestRateLimiter

PUBLIC_PATHS = frozenset({"/health"})
OPERATOR_TENANT = Tenant("operator", "operator", admin=True)
"""Whoever can read the file in which this process left its token: the user it runs as."""


class IdentityMiddleware:
    """Puts the tenant, and what the routes look at, into the request's state, or answers without a tenant."""

    def __init__(self, app: ASGIApp, backstage: ApiContext) -> None:
        self._app = app
        self._backstage = backstage
        self._token = backstage.operator_token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            state = scope.setdefault("state", {})
            state["backstage"] = self._backstage
            try:
                state["tenant"] = None if scope["path"] in PUBLIC_PATHS else self._authenticate(scope["headers"])
            except ProxyError as error:
                await error_response(error)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _authenticate(self, headers: Headers) -> Tenant:
        return OPERATOR_TENANT if has_operator_token(headers, self._token) else self._backstage.tenant_of(headers)


__all__ = ["ApiContext", "build_api"]


def build_api(backstage: ApiContext) -> ASGIApp:
    """The application of `/stack` and `/health`; it has no start or stop of its own."""
    # Around the framework and not in it: it would answer what the edge is to answer.
    bounded = LimitsMiddleware(build_routes(), RequestRateLimiter(backstage.config.api_requests_per_minute))
    return IdentityMiddleware(bounded, backstage)


@cache
def build_routes() -> FastAPI:
    """The routes. They are the same for every proxy of a process, and what they look at comes with the request: to make
    them takes 0.2 s, most of it with the first one."""
    # The pages FastAPI brings load scripts from elsewhere, and its schema route would know no tenant: ours stands in
    # `routes`. A redirect for a slash at the end would be a second answer to one question.
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
    for router in (routes.open_router, routes.router, events.router):
        api.include_router(router)
    add_error_handlers(api)
    return api
