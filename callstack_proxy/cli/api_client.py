"""The management API as the commands call it: one path, whether a proxy runs on the data directory or not.

Where one runs, it is asked over HTTP, because it keeps conversations in memory. Where none runs, the same application
answers in this process, on the store of the data directory.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import secrets
import time
from collections.abc import Mapping, MutableMapping
from typing import Any

from starlette.types import ASGIApp

from callstack_proxy.cli.context import DELETION_TIMEOUT_S, find_running_proxy, opened_store, send_request
from proxy.accounting import TokenCounter
from proxy.auth import Tenant
from proxy.config import Config, LiveSettings
from proxy.errors import InvalidConfiguration, NotAllowed, NotFound, ProxyError, StoreError
from proxy.exchange import Inbox
from proxy.store import ConversationCache, Store, find_by_id

ERRORS_BY_STATUS = {400: InvalidConfiguration, 404: NotFound, 409: NotAllowed}


def call(
    settings: Config,
    method: str,
    path: str,
    body: object = None,
    *,
    credentials: Mapping[str, str] | None = None,
    as_text: bool = False,
) -> Any:
    """The API's answer, parsed from JSON. `credentials` are headers of somebody else, who sees what their key may see;
    without them it is the owner of the data directory who asks. Raises the error that the API answers with, or
    ProxyError for silence."""
    server = find_running_proxy(settings.data)
    if server is None:
        if credentials is not None and settings.tenancy != "single":
            raise InvalidConfiguration(
                f"no proxy runs on {settings.data}, and only a running one can tell whose key that is; start "
                "`callstack serve` there"
            )
        return asyncio.run(_call_in_process(settings, method, path, body, as_text=as_text))
    try:
        status, answer = send_request(server, method, path, body, DELETION_TIMEOUT_S, credentials)
    except (OSError, http.client.HTTPException) as error:
        raise ProxyError(
            f"the proxy at {server.url} did not answer: {error}; start it again", code="proxy_silent"
        ) from None
    return parse_answer(status, answer, as_text=as_text)


def conversation_path(settings: Config, reference: str) -> str:
    """The API path of the conversation with this id, beginning of an id, or of the newest one where it is empty."""

    async def find() -> str:
        async with opened_store(settings) as store:
            return (await find_by_id.find_ledger(store, None, reference)).conversation.id

    return f"/stack/conversations/{asyncio.run(find())}"


def frame_path(settings: Config, reference: str) -> str:
    """The API path of the frame with this id, beginning of an id, or title."""

    async def find() -> str:
        async with opened_store(settings) as store:
            _, _, frame = await find_by_id.find_frame_in_store(store, None, reference)
            return frame.id

    return f"/stack/frames/{asyncio.run(find())}"


def parse_answer(status: int, answer: bytes, *, as_text: bool = False) -> Any:
    """What the API answered: JSON, or text where that was asked for. Raises the error that it answered with."""
    if as_text and status < http.client.BAD_REQUEST:
        return answer.decode("utf-8", "backslashreplace")
    value = json.loads(answer)
    if status < http.client.BAD_REQUEST:
        return value
    raise ERRORS_BY_STATUS.get(status, StoreError)(value["error"]["message"], code=value["error"]["code"])


async def _call_in_process(settings: Config, method: str, path: str, body: object, *, as_text: bool) -> Any:
    async with opened_store(settings) as store:
        # Errors are raised inside the block, which adds to them where the store lies.
        status, answer = await _send_to_app(await _build_app(settings, store), method, path, body)
        return parse_answer(status, answer, as_text=as_text)


async def _build_app(settings: Config, store: Store) -> ASGIApp:
    # FastAPI takes 0.3 s to import, which commands that only read the store do not pay.
    from callstack_proxy.management.api import OPERATOR_TENANT, ApiContext, build_api

    live = LiveSettings(settings.subagent, store)
    await live.refresh()
    counter = TokenCounter()
    inbox = Inbox(store, ConversationCache(store), settings.queue_hours, _now, lambda: secrets.token_hex(16))

    def operator(_: object) -> Tenant:
        return OPERATOR_TENANT

    def ignore(*_: object) -> None:
        """Nothing is kept in memory that a change would have to reach."""

    return build_api(
        ApiContext(
            store=store,
            tenant_of=operator,
            on_deleted=ignore,
            on_mode_changed=ignore,
            on_events_stored=ignore,
            inbox=inbox,
            is_draining=lambda: False,
            started=_now(),
            live_settings=live,
            counter_name=lambda: counter.name,
            config=settings,
            count_tokens=counter.count,
        )
    )


async def _send_to_app(app: ASGIApp, method: str, path: str, body: object) -> tuple[int, bytes]:
    """Status and body of the answer to one request."""
    path, _, query = path.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": [(b"content-type", b"application/json")],
        "client": None,
        "server": None,
    }
    content = b"" if body is None else json.dumps(body).encode()
    messages: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": content, "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        messages.append(message)

    await app(scope, receive, send)
    return messages[0]["status"], b"".join(message.get("body", b"") for message in messages[1:])


def _now() -> int:
    return time.time_ns() // 1_000_000
