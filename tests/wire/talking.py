"""A client that hides nothing: what it sends is what was written, what it tells is what came, and how it ended."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

PATIENCE_S = 30
CHAT = "/v1/chat/completions"
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": "read_file", "parameters": {"type": "object", "properties": {}}}}
]


@dataclass(frozen=True)
class ReceivedAnswer:
    """One answer, its framing taken off. `whole`: it ended as HTTP says an answer ends."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    whole: bool = True

    def header(self, name: str) -> str:
        """The first value, or empty."""
        return next((value for key, value in self.headers if key.lower() == name), "")

    @property
    def told(self) -> str:
        """`x-stack-status`."""
        return self.header("x-stack-status")

    @property
    def conversation(self) -> str:
        return self.header("x-stack-conversation")

    @property
    def request(self) -> str:
        return self.header("x-stack-request-id")

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def chunks(self) -> list[dict[str, Any]]:
        """The JSON of every event of a stream, `[DONE]` left out."""
        return [json.loads(data) for data in self.payloads if data != b"[DONE]"]

    @property
    def payloads(self) -> list[bytes]:
        """The data of every event that is whole."""
        events = self.body.split(b"\n\n")[:-1]
        return [event.removeprefix(b"data: ") for event in events if event.startswith(b"data: ")]

    @property
    def done(self) -> bool:
        return b"[DONE]" in self.body

    @property
    def text(self) -> str:
        """What the assistant said, streamed or not."""
        if not self.header("content-type").startswith("text/event-stream"):
            return str(self.json["choices"][0]["message"]["content"] or "")
        return "".join(d.get("content") or "" for d in self.deltas)

    @property
    def deltas(self) -> list[dict[str, Any]]:
        return [choice["delta"] for chunk in self.chunks for choice in chunk["choices"]]

    @property
    def finishes(self) -> list[str]:
        found = [c.get("finish_reason") for chunk in self.chunks for c in chunk.get("choices", [])]
        return [reason for reason in found if reason]


def body_of(said: str = "hi", *, awake: bool = False, stream: bool = False, **more: Any) -> dict[str, Any]:
    """A chat request. A thread whose client offers no tools never wakes (L7): so `awake` offers one."""
    tools = {"tools": TOOLS} if awake else {}
    messages = [{"role": "system", "content": "You work."}, {"role": "user", "content": said}]
    return {"model": "m", "messages": messages, **tools, **({"stream": True} if stream else {})} | more


def ask(
    origin: str,
    body: object = None,
    *,
    method: str = "POST",
    path: str = CHAT,
    headers: Mapping[str, str] | None = None,
) -> ReceivedAnswer:
    """Send a body (bytes as they are, anything else as JSON) and read to the end, however that comes."""
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    with connection(origin) as connected:
        connected.request(method, path, data, {"content-type": "application/json", **(headers or {})})
        return heard(connected)


@contextmanager
def connection(origin: str) -> Iterator[http.client.HTTPConnection]:
    connected = http.client.HTTPConnection(origin.removeprefix("http://"), timeout=PATIENCE_S)
    try:
        yield connected
    finally:
        connected.close()


def heard(connected: http.client.HTTPConnection) -> ReceivedAnswer:
    """The answer on a connection. Raises ConnectionError where not even a status came."""
    response = connected.getresponse()
    pieces, whole = [], True
    try:
        while piece := response.read1(1 << 20):
            pieces.append(piece)
        whole = not response.length  # a body shorter than announced
    except (http.client.IncompleteRead, ConnectionError) as error:
        pieces.append(getattr(error, "partial", b""))
        whole = False
    return ReceivedAnswer(response.status, tuple(response.getheaders()), b"".join(pieces), whole)


def exchange(port: int, sent: bytes, patience: float = 5.0) -> bytes:
    """Raw bytes out, raw bytes in, to the end of the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=patience) as peer:
        peer.sendall(sent)
        got = b""
        while data := peer.recv(1 << 16):
            got += data
        return got


def raw_request(body: bytes, *, path: str = CHAT, version: str = "1.1", headers: str = "") -> bytes:
    """The bytes of a request that closes its connection."""
    head = f"POST {path} HTTP/{version}\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: application/json\r\n"
    return f"{head}{headers}Content-Length: {len(body)}\r\n\r\n".encode() + body
