"""The store of the data directory: for commands that read it themselves, and with the management API on it where no
proxy runs."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from callstack_proxy.cli.output import print_note
from callstack_proxy.management import find_by_id
from proxy.accounting import TokenCounter
from proxy.config import Config
from proxy.config.runtime import LiveSettings
from proxy.errors import InvalidConfiguration, NotFound, StoreError
from proxy.store import ConversationCache, Store

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from proxy.auth import Tenant


@asynccontextmanager
async def opened_store(config: Config) -> AsyncIterator[Store]:
    """The configured store, open inside the block. Notes on its file are printed on stderr.

    A damaged file stays where it is; only `serve`, which has to go on, sets it aside. Raises InvalidConfiguration where
    there is no store yet.
    """
    path = config.store_path
    if config.is_store_in_memory:
        raise InvalidConfiguration("store: it is kept in memory; ask the running proxy, at /stack")
    if path is not None and config.data.exists() and not config.data.is_dir():
        raise InvalidConfiguration(f"data: {config.data} is not a directory; name one with --data")
    if path is not None and not path.is_file():
        raise InvalidConfiguration(
            f"data: there is no store at {path} yet; run `callstack serve`, or name its directory with --data"
        )
    from proxy.store.sql import open_store  # SQLAlchemy takes 0.3 s to import, which `--help` does not need

    store = open_store(config.store, config.data, sets_aside=False)
    try:
        await store.start()
        yield store
    except NotFound as error:
        # Most often the data is in another directory, named by `serve --data`.
        elsewhere = "; --data names another directory" if path else ""
        raise NotFound(f"{error} Looked in {config.store_place}{elsewhere}.") from None
    except StoreError as error:
        if error.code != "store_corrupt":
            raise
        message = (
            f"{error}; {path} was left as it is. Keep a copy: `callstack serve` sets it aside and begins a new one"
        )
        raise StoreError(message, code=error.code) from None
    finally:
        await store.close()
        for note in store.health().notes:
            print_note(note)


async def find_conversation_id(config: Config, reference: str) -> str:
    """The id of the conversation with this id, beginning of an id, or of the newest one where it is empty."""
    async with opened_store(config) as store:
        return (await find_by_id.find_ledger(store, None, reference)).conversation.id


async def find_frame_id(config: Config, reference: str) -> str:
    """The id of the frame with this id, beginning of an id, or title."""
    async with opened_store(config) as store:
        _, _, frame = await find_by_id.find_frame_in_store(store, reference)
        return frame.id


async def read_store(settings: Config, read: Callable[[Store], Awaitable[Any]]) -> Any:
    async with opened_store(settings) as store:
        return await read(store)


async def call_in_process(
    settings: Config, method: str, path: str, body: object, parse: Callable[[int, bytes], Any]
) -> Any:
    """What `parse` makes of status and body that the management API answers, which runs in this process."""
    async with opened_store(settings) as store:
        # Errors are raised inside the block, which adds to them where the store lies.
        return parse(*await _send_to_app(await _build_app(settings, store), method, path, body))


async def _build_app(settings: Config, store: Store) -> ASGIApp:
    # FastAPI and the exchange take 0.5 s to import, which commands that only read the store do not pay.
    from callstack_proxy.management.api import OPERATOR_TENANT, ApiContext, build_api
    from proxy.exchange import Inbox

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
