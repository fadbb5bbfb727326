"""The console of a whole proxy on a real port, over a store in which two tenants have a conversation each."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode

import pytest

from callstack_proxy.management.issued_keys import issue_key
from proxy.operator_token import console_code
from proxy.store.sql import open_store
from tests.management.api.small_ledger import Written, written
from tests.wire.proxied import TOKEN, ServedProxy
from tests.wire.talking import ReceivedAnswer, ask

FORM_TOKEN = re.compile(rb'name="token" value="(\w+)"')


@dataclass
class Person:
    """Somebody at a browser without scripts: keeps cookies, follows nothing."""

    origin: str
    cookies: dict[str, str] = field(default_factory=dict)

    def get(self, path: str, **headers: str) -> ReceivedAnswer:
        return self._ask("GET", path, None, headers)

    def post(self, path: str, fields: Mapping[str, str], **headers: str) -> ReceivedAnswer:
        kind = {"content-type": "application/x-www-form-urlencoded"}
        return self._ask("POST", path, urlencode(fields).encode(), kind | headers)

    def send(self, page: str, path: str, **fields: str) -> ReceivedAnswer:
        """Posts a form as the page has it, with its token."""
        found = FORM_TOKEN.search(self.get(page).body)
        assert found, page
        return self.post(path, {"token": found[1].decode(), **fields})

    def open_link(self) -> ReceivedAnswer:
        """Comes in by the link that `serve` prints."""
        return self.get(f"/console?code={console_code(TOKEN)}")

    def sign_in(self, key: str) -> ReceivedAnswer:
        return self.post("/console/sign-in", {"key": key})

    def _ask(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> ReceivedAnswer:
        cookie = {"cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items())}
        answer = ask(self.origin, body, method=method, path=path, headers=cookie | dict(headers))
        for name, value in answer.headers:
            if name.lower() == "set-cookie":
                key, _, rest = value.partition("=")
                self.cookies[key] = rest.partition(";")[0].strip('"')
        return answer


@dataclass
class Site:
    """A running proxy with what two tenants wrote, and their keys."""

    proxy: ServedProxy
    keys: dict[str, str]
    ours: Written
    theirs: Written

    def person(self) -> Person:
        return Person(self.proxy.origin)

    def operator(self) -> Person:
        person = self.person()
        assert person.open_link().status == 303
        return person

    def owner(self, name: str) -> Person:
        """Somebody who has signed in with the key of that name."""
        person = self.person()
        assert person.sign_in(self.keys[name]).status == 303
        return person


Building = Callable[..., Site]


@pytest.fixture
def build(tmp_path: Path) -> Iterator[Building]:
    with ExitStack() as stack:

        def one(title: str = "Make the suite green", **settings: object) -> Site:
            data = tmp_path / "data"
            data.mkdir(mode=0o700)
            # In a thread: Playwright has an event loop in this one.
            with ThreadPoolExecutor(1) as threads:
                ours, theirs = threads.submit(lambda: asyncio.run(_two_conversations(data, title))).result()
            keys = {
                name: issue_key(data / "keys.json", name, admin=name == "admin") for name in ("ours", "theirs", "admin")
            }
            return Site(stack.enter_context(ServedProxy("http://127.0.0.1:9", data, **settings)), keys, ours, theirs)

        yield one


async def _two_conversations(data: Path, title: str) -> tuple[Written, Written]:
    store = open_store("sqlite", data)
    await store.start()
    ours, theirs = await written(store, "key-ours", "a", title), await written(store, "key-theirs", "b", title)
    await store.close()
    return ours, theirs
