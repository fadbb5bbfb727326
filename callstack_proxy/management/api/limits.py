"""Limits of `/stack`: the rate of each tenant's requests, and complete bodies before a route is looked up.

Operators are not limited, and so nobody is with `tenancy: single`. With `tenancy: credential`, which is for loopback
only, a caller with invented credentials is a new tenant each time: the limit stops runaway programs, not attackers. The
server's guard limits the size of bodies while they are read.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from callstack_proxy.management.api.base import error_response
from proxy.auth import Tenant
from proxy.errors import RateLimited

MAX_TENANTS = 1024
"""Tenants to remember; a forgotten one starts a new minute."""
MINUTE_S = 60.0


class RequestRateLimiter:
    """Admits `per_minute` requests a minute of each tenant, 0 for any number; a burst may use a whole minute's. `clock`
    returns seconds."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_minute = per_minute
        self._clock = clock
        self._spent: OrderedDict[str, float] = OrderedDict()
        """When each tenant's requests are worked off at the even rate; least recent tenant first."""

    def admit(self, tenant: Tenant) -> None:
        """Counts one request. Raises RateLimited without counting it."""
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
    """Runs behind `IdentityMiddleware`, in front of the routes."""

    def __init__(self, app: ASGIApp, pace: RequestRateLimiter) -> None:
        self._app = app
        self._pace = pace

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises TooLarge, which the server's guard answers."""
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
    """Reads the body as one message. Done here because the framework reports every error while it reads a body, the
    guard's too, as invalid JSON."""
    chunks = []
    while True:
        message = await receive()
        chunks.append(message.get("body", b""))
        if not message.get("more_body", False):
            break
    remaining = [
        message if message["type"] == "http.disconnect" else {"type": "http.request", "body": b"".join(chunks)}
    ]

    async def told() -> Message:
        return remaining.pop() if remaining else await receive()

    return told
