"""How much one may ask of `/stack`: how often, and that a body is here and not too large before any route is looked up.

The laws: **one tenant cannot keep the others waiting**: each has a pace of its own; and **an operator is not counted**,
for whoever may end the process need not be kept from asking it. So there is no pace with `tenancy: single`. With
`tenancy: credential`, which is for loopback alone, whoever makes up credentials is a new tenant with each: a pace for
programs that run away, not for those who mean harm.

How large a body may be is the edge's: it counts while we read, and answers what is too large.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proxy.auth import Tenant
from proxy.errors import RateLimited
from proxy.management.api.base import error_response

MAX_TENANTS = 1024
"""So many are remembered; of whom is forgotten, the minute begins anew."""
MINUTE_S = 60.0


class RequestRateLimiter:
    """`per_minute` requests a minute of each tenant, 0 for any number; a whole minute's may come at once. `clock` tells
    seconds."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_minute = per_minute
        self._clock = clock
        self._spent: OrderedDict[str, float] = OrderedDict()
        """Until when what a tenant asked is worked off, at the even pace; who asked longest ago first."""

    def admit(self, tenant: Tenant) -> None:
        """Count one request. Raises TooOften, and does not count it."""
        if tenant.admin or not self._per_minute:
            return
        now = self._clock()
        spent = max(now, self._spent.get(tenant.id, now)) + MINUTE_S / self._per_minute
        wait = spent - now - MINUTE_S
        if wait > 0:
            seconds = math.ceil(wait)
            raise RateLimited(
                f"More than {self._per_minute} requests a minute (api_requests_per_minute). Ask again in {seconds} s.",
                retry_after_s=seconds,
            )
        self._spent[tenant.id] = spent
        self._spent.move_to_end(tenant.id)
        if len(self._spent) > MAX_TENANTS:
            self._spent.popitem(last=False)


class LimitsMiddleware:
    """Stands behind `Identity`, in front of the routes."""

    def __init__(self, app: ASGIApp, pace: RequestRateLimiter) -> None:
        self._app = app
        self._pace = pace

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises TooLarge, which the edge answers."""
        if scope["type"] == "http":
            try:
                if tenant := scope.get("state", {}).get("tenant"):
                    self._pace.admit(tenant)
            except RateLimited as error:
                await error_response(error)(scope, receive, send)
                return
            receive = await _read_whole_body(receive)
        await self._app(scope, receive, send)


async def _read_whole_body(receive: Receive) -> Receive:
    """The body as one message, then what else comes. Read here, for the framework tells every error while it reads a
    body, also that of the edge, as one of JSON."""
    pieces = []
    while True:
        message = await receive()
        pieces.append(message.get("body", b""))
        if not message.get("more_body", False):
            break
    first = [message if message["type"] == "http.disconnect" else {"type": "http.request", "body": b"".join(pieces)}]

    async def told() -> Message:
        return first.pop() if first else await receive()

    return told
