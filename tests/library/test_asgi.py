"""The ASGI middleware, around a gateway in FastAPI that asks the provider."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import aiohttp
import pytest
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse

from callstack_proxy.asgi import CallstackASGI
from llm_test_provider import ScriptedProvider, call, says
from tests.harness import WAIT_S, does, push
from tests.library.test_session import MODEL, SETTINGS, TOOLS, opening
from tests.ports import held_port, port_of

Ask = Callable[..., bytes]


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider() as running:
        yield running


def gateway(provider: ScriptedProvider) -> FastAPI:
    app = FastAPI()

    @app.get("/hello")
    def hello() -> str:
        return "hello"

    @app.post("/v1/chat/completions")
    async def chat(request: Request) -> StreamingResponse:
        body = await request.body()
        if b"fail now" in body:
            raise ZeroDivisionError
        session = aiohttp.ClientSession()
        got = await session.post(f"{provider.url}/v1/chat/completions", data=body)

        async def pieces() -> AsyncIterator[bytes]:
            async for piece in got.content.iter_any():
                yield piece
            await session.close()

        return StreamingResponse(pieces(), got.status, media_type=got.content_type)

    return app


@pytest.fixture
def ask(provider: ScriptedProvider, tmp_path: Path) -> Iterator[Ask]:
    app, place = gateway(provider), held_port()
    app.add_middleware(CallstackASGI, data=tmp_path, settings=SETTINGS)
    server = uvicorn.Server(uvicorn.Config(app, port=port_of(place), log_config=None, lifespan="on"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started and thread.is_alive():
        thread.join(0.01)

    def asked(path: str, body: dict[str, Any] | None = None) -> bytes:
        data = json.dumps(body).encode() if body is not None else None
        headers = {"content-type": "application/json", "authorization": "Bearer sk-test"}
        request = urllib.request.Request(f"http://127.0.0.1:{port_of(place)}{path}", data, headers)
        with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
            return bytes(answer.read())

    yield asked
    server.should_exit = True
    thread.join(WAIT_S)
    place.close()


@pytest.mark.rows("X-67")
@pytest.mark.parametrize("streamed", [False, True])
def test_a_gateway_has_frames(provider: ScriptedProvider, ask: Ask, tmp_path: Path, *, streamed: bool) -> None:
    provider.will(does(push("Find the bug")), does(call("read", path="a.py")), says("hello"))
    body = {"model": MODEL, "messages": opening(), "tools": TOOLS, "stream": streamed}

    said = ask("/v1/chat/completions", body).decode()

    assert '"read"' in said
    assert "stack_" not in said
    assert said.endswith("data: [DONE]\n\n") == streamed
    assert len(provider.received) == 2
    assert ask("/hello") == b'"hello"'
    with pytest.raises(HTTPError, match="50"):
        ask("/v1/chat/completions", {**body, "messages": opening("fail now")})
