"""Builds the application of `/console`: who is asking, the routes, and what every answer carries.

Style sheets, scripts and the sign-in page are open; everything else needs a session. A form must send its session's
token. Every answer has a strict Content-Security-Policy: nothing from elsewhere, nothing inline.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from callstack_proxy.management.api import ApiContext, LimitsMiddleware, RequestRateLimiter
from callstack_proxy.management.console import (
    conversation_list_page,
    conversation_page,
    frame_actions,
    frame_page,
    live_feed,
    operation_page,
    overview_page,
    request_page,
    running,
)
from callstack_proxy.management.console.page_memory import PageMemory
from callstack_proxy.management.console.parts import static_files
from callstack_proxy.management.console.rendering import Visitor, read_form, render, visitor_of
from callstack_proxy.management.console.sessions import Sessions
from callstack_proxy.management.console.store_trouble import LOST_FORM_WORDS, agents_meanwhile, slow_words, unread_words
from proxy.auth import Tenant
from proxy.errors import ProxyError, StoreError, Unauthorized

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
SECURITY_HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
}
SAFE_METHODS = frozenset({"GET", "HEAD"})
PAGE_TIMEOUT_S = 120.0
"""A page that takes longer is given up: a disk that hangs gives no answer and no error."""
EVENTS_PATH = "/console/events"

log = logging.getLogger(__name__)


def build_console(context: ApiContext, sessions: Sessions, memory: PageMemory) -> ASGIApp:
    routes = [
        Route("/console/sign-in", _sign_in, methods=["GET", "POST"]),
        Route("/console/sign-out", _sign_out, methods=["POST"]),
        *static_files.ROUTES,
        *overview_page.ROUTES,
        *conversation_list_page.ROUTES,
        *conversation_page.ROUTES,
        *frame_page.ROUTES,
        *frame_actions.ROUTES,
        *request_page.ROUTES,
        *operation_page.ROUTES,
        *running.ROUTES,
        *live_feed.ROUTES,
    ]
    handlers: Mapping[Any, Any] = {
        StoreError: _show_store_error,
        ProxyError: _show_error,
        HTTPException: _show_http_error,
        Exception: _show_unexpected_error,
    }
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.router.redirect_slashes = False
    return _ConsoleAccess(
        LimitsMiddleware(app, RequestRateLimiter(context.config.api_requests_per_minute)), context, sessions, memory
    )


class _ConsoleAccess:
    """Puts the visitor into the request's state, or answers with the sign-in page; adds the headers of every answer."""

    def __init__(self, app: ASGIApp, context: ApiContext, sessions: Sessions, memory: PageMemory) -> None:
        self._app = app
        self._context = context
        self._sessions = sessions
        self._memory = memory

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_begun = False

        async def send_with_headers(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        request = Request(scope)
        cookie = request.cookies.get(cookie_name(request), "")
        headers = scope["headers"]

        def find_tenant() -> Tenant | None:
            return self._sessions.with_headers(headers) or (self._sessions.tenant_in(cookie) if cookie else None)

        tenant = find_tenant()
        state = scope.setdefault("state", {})
        token = self._sessions.form_token(cookie, tenant) if tenant else ""
        state["visitor"] = Visitor(self._context, tenant, token, self._memory)
        state["newest_event"] = self._context.feed.newest_number  # before the page reads what it shows
        state["sessions"] = self._sessions
        state["tenant"] = tenant
        state["is_signed_in"] = lambda: find_tenant() is not None
        answer = self._early_answer(request, scope["state"]["visitor"])
        try:
            async with asyncio.timeout(None if scope["path"] == EVENTS_PATH else PAGE_TIMEOUT_S):
                await (answer or self._app)(scope, receive, send_with_headers)
        except TimeoutError:
            if not has_begun:
                await _show_trouble(request, 503, slow_words(PAGE_TIMEOUT_S))(scope, receive, send_with_headers)

    def _early_answer(self, request: Request, visitor: Visitor) -> Response | None:
        """The answer to who is not signed in, or None."""
        code = request.query_params.get("code", "")
        if code:
            return self._open_with_code(request, code)
        is_open = request.url.path.startswith(static_files.STATIC_PATH) or request.url.path == "/console/sign-in"
        if is_open or visitor.tenant is not None:
            return None
        return _sign_in_page(request, "", status=401)

    def _open_with_code(self, request: Request, code: str) -> Response:
        try:
            tenant = self._sessions.with_code(code)
        except Unauthorized as error:
            return _sign_in_page(request, str(error), status=401)
        rest = [(name, value) for name, value in request.query_params.multi_items() if name != "code"]
        return _with_cookie(request, tenant_cookie=self._sessions.cookie_of(tenant), query=urlencode(rest))


def cookie_name(request: Request) -> str:
    """Browsers send cookies to every port of a host, so the name has the port."""
    return f"callstack_{request.url.port or request.url.scheme}"


def _with_cookie(request: Request, tenant_cookie: str, query: str = "") -> Response:
    """Goes on to the page that was asked for, signed in."""
    path = request.url.path if request.url.path != "/console/sign-in" else "/console"
    answer = RedirectResponse(path + (f"?{query}" if query else ""), status_code=303)
    answer.set_cookie(
        cookie_name(request),
        tenant_cookie,
        max_age=30 * 86_400,
        path="/console",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
    return answer


def _sign_in_page(request: Request, message: str, *, status: int = 200) -> Response:
    sessions: Sessions = request.state.sessions
    return render(request, "sign_in.html", status=status, message=message, takes_keys=sessions.takes_keys)


async def _sign_in(request: Request) -> Response:
    if request.method in SAFE_METHODS:
        return _sign_in_page(request, "")
    sessions: Sessions = request.state.sessions
    form = await read_form(request, check_token=False)
    try:
        # Hashing takes a moment, and a wrong key is told like any other: no wait betrays which names exist.
        tenant = await asyncio.to_thread(sessions.with_key, form.get("key", ""))
    except Unauthorized as error:
        return _sign_in_page(request, str(error), status=401)
    return _with_cookie(request, sessions.cookie_of(tenant))


async def _sign_out(request: Request) -> Response:
    await read_form(request)
    sessions: Sessions = request.state.sessions
    await asyncio.to_thread(sessions.end, request.cookies.get(cookie_name(request), ""))
    answer = RedirectResponse("/console/sign-in", status_code=303)
    answer.delete_cookie(cookie_name(request), path="/console", httponly=True, samesite="strict")
    return answer


# ------------------------------------------------------------------------------------------------------------- errors
async def _show_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ProxyError)  # noqa: S101 - registered for nothing else
    return render(request, "error.html", status=error.status, message=str(error))


async def _show_store_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, StoreError)  # noqa: S101 - registered for nothing else
    return _show_trouble(request, error.status, unread_words(error))


def _show_trouble(request: Request, status: int, message: str) -> Response:
    """A page that tries again by itself, unless a form was sent."""
    is_safe = request.method in SAFE_METHODS
    meanwhile = agents_meanwhile(visitor_of(request).context)
    lost = "" if is_safe else LOST_FORM_WORDS
    return render(request, "store_error.html", status=status, message=message, meanwhile=meanwhile, lost=lost)


async def _show_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for nothing else
    message = {
        404: "There is no such page. The menu above lists those there are.",
        405: "This page cannot be asked for in this way. Go back and use the buttons of the page.",
    }.get(error.status_code, error.detail)
    return render(request, "error.html", status=error.status_code, message=message)


async def _show_unexpected_error(request: Request, error: Exception) -> Response:
    """The log names the error, the page does not."""
    log.error("a page of the console failed", extra={"path": request.url.path}, exc_info=error)
    return render(request, "error.html", status=500, message="The page failed; the proxy's log says more.")
