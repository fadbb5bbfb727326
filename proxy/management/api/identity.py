"""Who is asking: a guard in front of the routes, so that no route can be added that forgets it.

`/health` is open, for probes have no key; it tells nothing of anybody. Everything else, paths without a route
included, needs a tenant.
"""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from proxy.auth import Headers, Tenant, is_operator
from proxy.errors import ProxyError
from proxy.management.api.backstage import Backstage
from proxy.management.api.base import error_answer

OPEN = frozenset({"/health"})
OPERATOR = Tenant("operator", "operator", admin=True)
"""Whoever can read the file in which this process left its token: the user it runs as."""


class Identity:
    """Puts the tenant, and what the routes look at, into the request's state, or answers without a tenant."""

    def __init__(self, app: ASGIApp, backstage: Backstage) -> None:
        self._app = app
        self._backstage = backstage
        self._token = backstage.operator_token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            state = scope.setdefault("state", {})
            state["backstage"] = self._backstage
            try:
                state["tenant"] = None if scope["path"] in OPEN else self._tenant(scope["headers"])
            except ProxyError as error:
                await error_answer(error)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _tenant(self, headers: Headers) -> Tenant:
        return OPERATOR if is_operator(headers, self._token) else self._backstage.tenant_of(headers)
