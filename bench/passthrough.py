"""The floor: the least a proxy on this server and this client can do. Bytes in, bytes out, nothing looked at.
With `--parse` each body is parsed and written anew, as the least that rewrites requests must do.

What the product costs above this is what it does; what this costs above a direct connection is the hop. It is no
product: it has no timeouts, no errors of its own, no limits.
"""

import argparse
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import aiohttp
import msgspec
import uvicorn

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

DROPPED = {b"host", b"connection", b"content-length", b"transfer-encoding", b"accept-encoding"}
KEPT = {b"content-type", b"content-length"}


class Passthrough:
    """An ASGI application that hands each request to `upstream` and each byte of the answer back."""

    def __init__(self, upstream: str, *, parses: bool = False) -> None:
        self._upstream = upstream
        self._parses = parses
        self._client: aiohttp.ClientSession | None = None

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        parts = []
        while (message := await receive()).get("more_body"):
            parts.append(message["body"])
        body = b"".join([*parts, message.get("body", b"")])
        if self._parses and body:
            body = msgspec.json.encode(msgspec.json.decode(body))
        headers = {
            name.decode("latin1"): value.decode("latin1") for name, value in scope["headers"] if name not in DROPPED
        }
        assert self._client is not None  # noqa: S101 - the server never calls before the lifespan has started
        async with self._client.request(
            scope["method"], self._upstream + scope["path"], data=body, headers=headers
        ) as answer:
            kept = [(name, value) for name, value in answer.raw_headers if name.lower() in KEPT]
            await send({"type": "http.response.start", "status": answer.status, "headers": kept})
            async for chunk in answer.content.iter_any():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        unlimited = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=unlimited, auto_decompress=False) as self._client:
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--upstream", required=True)
    parser.add_argument("--parse", action="store_true")
    arguments = parser.parse_args()
    served = Passthrough(arguments.upstream, parses=arguments.parse)
    uvicorn.run(served, host="127.0.0.1", port=arguments.port, log_level="warning", access_log=False)
