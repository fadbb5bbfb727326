"""The API behind its guard, on a real socket, over each kind of store, with two tenants and an operator in it."""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import uvicorn

from callstack_proxy.management.api.app import ApiContext, build_api
from callstack_proxy.management.issued_keys import issue_key
from proxy.auth import KeyRing, TenantResolver
from proxy.config.model import Config
from proxy.config.runtime import LiveSettings
from proxy.config.sections import SubagentSettings
from proxy.exchange.background.inbox import Inbox
from proxy.server.app import now_ms
from proxy.server.guard import RequestGuard
from proxy.store.conversation_cache import ConversationCache
from proxy.store.interface import Store
from proxy.store.sql import open_store
from proxy.telemetry.event_bus import EventBus
from tests.management.api.small_ledger import Written, written

TOKEN = "operator-token"


@dataclass
class Answer:
    status: int
    body: bytes
    kind: str

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Served:
    """The API while it runs: what two tenants wrote, their keys, and what it reported as changed."""

    url: str
    store: Store
    keys: dict[str, str]
    ours: Written
    theirs: Written
    client: aiohttp.ClientSession
    changed: list[tuple[str | None, str]] = field(default_factory=list)
    draining: bool = False
    speaking: Inbox = field(init=False)

    def __post_init__(self) -> None:
        self.speaking = Inbox(self.store, ConversationCache(self.store), 24.0, now_ms, lambda: secrets.token_hex(16))

    feed: EventBus = field(default_factory=EventBus)

    async def ask(self, path: str, key: str | None = "ours", method: str = "GET", **kwargs: Any) -> Answer:
        """`key` is a name of `keys`, or None for nobody."""
        headers = dict(kwargs.pop("headers", {}))
        if key is not None:
            headers["x-stack-key"] = self.keys[key]
        async with self.client.request(method, self.url + path, headers=headers, **kwargs) as answer:
            return Answer(answer.status, await answer.read(), answer.content_type)


@pytest.fixture(params=["memory:", "sqlite"])
async def served(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Served]:
    store = open_store(request.param, tmp_path)
    await store.start()
    ours, theirs = await written(store, "key-ours", "a"), await written(store, "key-theirs", "b")
    file = tmp_path / "keys.json"
    keys = {name: issue_key(file, name) for name in ("ours", "theirs")}
    keys |= {"admin": issue_key(file, "admin", admin=True), "token": TOKEN}
    async with aiohttp.ClientSession() as client:
        here = Served("", store, keys, ours, theirs, client)
        tenancy = TenantResolver("key", KeyRing(file), await store.secret())
        stage = ApiContext(
            store=store,
            tenant_of=tenancy.tenant_of,
            on_deleted=lambda tenant, conversation: here.changed.append((tenant, conversation)),
            on_mode_changed=lambda tenant, conversation, mode: here.changed.append((tenant, conversation)),
            on_events_stored=lambda tenant, conversation, events: here.changed.append((tenant, conversation)),
            inbox=here.speaking,
            is_draining=lambda: here.draining,
            started=7,
            live_settings=LiveSettings(SubagentSettings(), store),
            counter_name=lambda: "o200k_base",
            operator_token=TOKEN,
            feed=here.feed,
        )
        config = uvicorn.Config(
            RequestGuard(build_api(stage), Config()), port=0, log_config=None, lifespan="off", ws="none"
        )
        server = uvicorn.Server(config)
        running = asyncio.create_task(server.serve())
        while not server.started:  # noqa: ASYNC110 - the library has no event for it
            await asyncio.sleep(0.005)
        here.url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        yield here
        server.should_exit = True
        await running
    await store.close()
