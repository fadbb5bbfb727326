"""Clients for the scripted provider that hide nothing: one over `http.client`, one over a bare socket.

A fixture that is a function keeps the tests free of imports from each other.
"""

import http.client
import json
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from llm_test_provider import ScriptedProvider

Heard = tuple[int, dict[str, str], bytes]


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider() as running:
        yield running


@pytest.fixture
def ask() -> Callable[..., Heard]:
    """Post a chat request; status, headers in lower case, and the body with its framing taken off."""

    def post(
        provider: ScriptedProvider, content: str = "hi", *, path: str = "/v1/chat/completions", **body: Any
    ) -> Heard:
        asked = {"model": "m", "messages": [{"role": "user", "content": content}]} | body
        connection = http.client.HTTPConnection(provider.host, provider.port, timeout=5)
        try:
            connection.request("POST", path, json.dumps(asked), {"content-type": "application/json"})
            response = connection.getresponse()
            return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
        finally:
            connection.close()

    return post


@pytest.fixture
def exchange() -> Callable[..., tuple[bytes, str]]:
    """Write bytes and read to the end; what was read, and how it ended: `fin`, `reset` or `open` (silent)."""

    def talk(provider: ScriptedProvider, request: bytes, timeout: float = 5) -> tuple[bytes, str]:
        heard = b""
        with socket.create_connection((provider.host, provider.port), timeout=timeout) as peer:
            peer.sendall(request)
            try:
                while data := peer.recv(65536):
                    heard += data
            except ConnectionResetError:
                return heard, "reset"
            except TimeoutError:
                return heard, "open"
        return heard, "fin"

    return talk


@pytest.fixture
def chat_request() -> Callable[..., bytes]:
    """The bytes of a chat request."""

    def build(version: str = "HTTP/1.1", headers: str = "", **body: Any) -> bytes:
        asked = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]} | body
        content = json.dumps(asked).encode()
        head = f"POST /v1/chat/completions {version}\r\nHost: here\r\n{headers}Content-Length: {len(content)}\r\n\r\n"
        return head.encode() + content

    return build


@pytest.fixture
def chunks() -> Callable[[bytes], list[dict[str, Any]]]:
    """The JSON of every event of a plain stream, `[DONE]` left out."""

    def read(body: bytes) -> list[dict[str, Any]]:
        data = [event.removeprefix(b"data: ") for event in body.split(b"\n\n") if event.startswith(b"data: ")]
        return [json.loads(payload) for payload in data if payload != b"[DONE]"]

    return read
