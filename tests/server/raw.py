"""A client that speaks raw bytes to a served application, and that application as a process of its own."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

HERE = Path(__file__).parent


@dataclass
class Reply:
    """What came back on a connection until it was closed or fell silent."""

    raw: bytes
    closed: bool

    @property
    def status(self) -> int:
        """Of the first answer; 0 where there was none."""
        return int(self.raw.split(b" ", 2)[1]) if self.raw.startswith(b"HTTP/1.") else 0

    @property
    def body(self) -> Any:
        return json.loads(self.raw.partition(b"\r\n\r\n")[2])

    @property
    def statuses(self) -> list[int]:
        return [int(status) for status in re.findall(rb"HTTP/1\.1 ([0-9]{3}) ", self.raw)]


@dataclass
class Served:
    """A running process."""

    process: subprocess.Popen[str]
    url: str
    port: int = field(init=False)

    def __post_init__(self) -> None:
        self.port = urlsplit(self.url).port or 0

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=5)

    def say(self, *parts: bytes, patience: float = 2.0) -> Reply:
        """Send, then read until the connection closes, is silent for `patience` seconds, or a whole answer is there."""
        with self.connect() as connection:
            try:
                for part in parts:
                    connection.sendall(part)
            except ConnectionError:
                pass
            return read_reply(connection, patience)

    def says_all(self, *parts: bytes) -> bytes:
        """Send, each part as a packet of its own, then all that is answered until the connection is closed."""
        with self.connect() as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for part in parts:
                connection.sendall(part)
            return b"".join(iter(lambda: connection.recv(65536), b""))

    def ask(self, *headers: str, method: str = "GET", target: str = "/v1/models", host: str | None = None) -> Reply:
        lines = [f"{method} {target} HTTP/1.1", f"Host: {host or f'127.0.0.1:{self.port}'}", *headers]
        return self.say("\r\n".join([*lines, "", ""]).encode(), patience=0.5)


def read_reply(connection: socket.socket, patience: float) -> Reply:
    connection.settimeout(patience)
    raw = b""
    while True:
        try:
            part = connection.recv(65536)
        except TimeoutError:
            return Reply(raw, closed=False)
        except ConnectionError:
            return Reply(raw, closed=True)
        if not part:
            return Reply(raw, closed=True)
        raw += part
        if is_kept_and_whole(raw):
            return Reply(raw, closed=False)


def is_kept_and_whole(raw: bytes) -> bool:
    """Whether the answer is complete and its connection stays open, so that nothing more will come."""
    head, _, body = raw.partition(b"\r\n\r\n")
    lengths = [line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return bool(lengths) and b"connection: close" not in head.lower() and len(body) >= int(lengths[0])


Start = Callable[..., Served]


def run(arguments: tuple[str, ...]) -> subprocess.Popen[str]:
    environ = {**os.environ, "PYTHONPATH": str(HERE.parents[1])}
    command = [sys.executable, str(HERE / "served.py"), *arguments]
    return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def start_process(*arguments: str) -> Served:
    process = run(("port=0", *arguments))
    assert process.stdout is not None
    return Served(process, process.stdout.readline().strip())


def end(served: Served) -> None:
    """At once; what it wrote is of no interest any more."""
    served.process.kill()
    served.process.communicate()
