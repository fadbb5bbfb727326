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
"""

from __future__ import annotations

from functools import cache

from fastapi import FastAPI
from starlette.types import ASGIApp

from proxy import __version__
from proxy.management.api import conversations as routes
from proxy.management.api import events
from proxy.management.api.backstage import Backstage
from proxy.management.api.base import Json, answer_errors
from proxy.management.api.identity import Identity
from proxy.management.api.limits import Bounds, Pace

__all__ = ["Backstage", "build_api"]


def build_api(backstage: Backstage) -> ASGIApp:
    """The application of `/stack` and `/health`; it has no start or stop of its own."""
    # Around the framework and not in it: it would answer what the edge is to answer.
    bounded = Bounds(application(), Pace(backstage.config.api_requests_per_minute))
    return Identity(bounded, backstage)


@cache
def application() -> FastAPI:
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
        default_response_class=Json,
    )
    for router in (routes.open_router, routes.router, events.router):
        api.include_router(router)
    answer_errors(api)
    return api
