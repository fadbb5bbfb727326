"""How `callstack mcp` asks the management API: of the proxy that runs on the data directory, of the store where none
runs, or of a proxy elsewhere by its address and a client key."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from callstack_proxy.cli.api_client import call, parse_answer
from proxy.auth import STACK_KEY_HEADER
from proxy.config import Config
from proxy.errors import InvalidConfiguration, ProxyError

TIMEOUT_S = 60.0
"""Seconds. The first search of a process reads all finished frames."""
KEY_HEADER = STACK_KEY_HEADER.decode()


@dataclass(frozen=True, slots=True)
class OwnProxy:
    """The proxy of a data directory, or its store. Without a key it shows what its owner may see."""

    settings: Config
    key: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Two that look for the proxy at once would see each other's lock."""

    def __call__(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        credentials: Mapping[str, str] | None = None,
        as_text: bool = False,
    ) -> Any:
        given = {KEY_HEADER: self.key} if credentials is None and self.key else credentials
        with self.lock:
            return call(self.settings, method, path, body, credentials=given, as_text=as_text)


@dataclass(frozen=True, slots=True)
class DistantProxy:
    """A proxy at an address, such as a team's. A key goes to a distant one by TLS alone."""

    url: str
    key: str = ""

    def __post_init__(self) -> None:
        address = urlsplit(self.url)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise InvalidConfiguration(f"--url: {self.url!r} is no address; write https://proxy.example.com")
        if address.scheme == "http" and address.hostname not in ("127.0.0.1", "localhost", "::1"):
            raise InvalidConfiguration("--url: the client key would travel in the clear; use https://")

    def __call__(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        credentials: Mapping[str, str] | None = None,
        as_text: bool = False,
    ) -> Any:
        own = {KEY_HEADER: self.key} if self.key else {}
        headers = {"content-type": "application/json", **(own if credentials is None else credentials)}
        connection = _connection_to(self.url)
        try:
            connection.request(
                method,
                urlsplit(self.url).path.rstrip("/").removesuffix("/v1") + path,
                json.dumps(body) if body is not None else None,
                headers,
            )
            answer = connection.getresponse()
            return parse_answer(answer.status, answer.read(), as_text=as_text)
        except (OSError, http.client.HTTPException) as error:
            raise ProxyError(
                f"the proxy at {self.url} did not answer: {error}; start it again", code="proxy_silent"
            ) from None
        except json.JSONDecodeError:
            raise ProxyError(
                f"what answers at {self.url} is no callstack proxy; name another --url", code="proxy_silent"
            ) from None
        finally:
            connection.close()


def _connection_to(url: str) -> http.client.HTTPConnection:
    address = urlsplit(url)
    host = address.hostname or ""
    if address.scheme == "http":
        return http.client.HTTPConnection(host, address.port, timeout=TIMEOUT_S)
    return http.client.HTTPSConnection(host, address.port, timeout=TIMEOUT_S, context=ssl.create_default_context())
