"""A small application behind the real edge and the real server, run as a process of its own by the tests beside it.

It answers what it was given as JSON, at `/status/N` with status N; `/short` streams two events and ends; `/stream`
sends an event, waits for SIGTERM, and sends another; `/endless` never ends; `/large` has 16 MiB; `/silent` has a head
and then says nothing; `/unchanged` is a 304 that tells the length of what it does not have, `/odd` has headers that no
server may send.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from callstack_proxy.config_sources import load_config, parse_assignments
from proxy.errors import InvalidConfiguration
from proxy.server.guard import Receive, RequestGuard, Scope, Send
from proxy.server.runner import ServerHooks, serve


class Echo:
    def __init__(self) -> None:
        self.draining = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await lifespan(receive, send)
        elif scope["path"] == "/short":
            await two_events(send)
        elif scope["path"] == "/silent":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await asyncio.Event().wait()
        elif scope["path"] == "/large":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": bytes(16 << 20)})
        elif scope["path"] == "/unchanged":
            await bare(send, 304, (b"content-length", b"5"), (b"etag", b'"a"'))
        elif scope["path"] == "/odd":
            await bare(send, 200, (b"x-odd", b"a\x01b"), (b"x odd", b"a"), (b"x-even", b"a"), (b"content-length", b"0"))
        elif scope["path"] in {"/stream", "/endless"}:
            await self.stream(send, endless=scope["path"] == "/endless")
        else:
            await echo(scope, receive, send)

    async def stream(self, send: Send, *, endless: bool) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        await send({"type": "http.response.body", "body": b"data: first\n\n", "more_body": True})
        while endless or not self.draining:  # noqa: ASYNC110 - set from a signal handler
            await asyncio.sleep(0.01)
        await send({"type": "http.response.body", "body": b"data: last\n\n"})


async def lifespan(receive: Receive, send: Send) -> None:
    for name in ("startup", "shutdown"):
        await receive()
        await send({"type": f"lifespan.{name}.complete"})


async def bare(send: Send, status: int, *headers: tuple[bytes, bytes]) -> None:
    await send({"type": "http.response.start", "status": status, "headers": list(headers)})
    await send({"type": "http.response.body", "body": b""})


async def two_events(send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
    for event, more in ((b"data: first\n\n", True), (b"data: last\n\n", True), (b"", False)):
        await send({"type": "http.response.body", "body": event, "more_body": more})


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    size, more = 0, True
    while more:
        message = await receive()
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
    headers = [[name.decode("latin-1"), value.decode("latin-1")] for name, value in scope["headers"]]
    told = {"method": scope["method"], "path": scope["raw_path"].decode(), "size": size, "headers": headers}
    body = json.dumps(told | {"query": scope["query_string"].decode("latin-1")}).encode()
    length = str(len(body)).encode()
    status = int(scope["path"].removeprefix("/status/")) if scope["path"].startswith("/status/") else 200
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", length)]})
    await send({"type": "http.response.body", "body": body})


def main(arguments: list[str]) -> int:
    try:
        config = load_config(parse_assignments(arguments))
        application = Echo()

        def drain() -> None:
            application.draining = True

        hooks = ServerHooks(lambda url: print(url, flush=True), drain)  # noqa: T201
        serve(RequestGuard(application, config), config, hooks)
    except InvalidConfiguration as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 2
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    sys.exit(main(sys.argv[1:]))
