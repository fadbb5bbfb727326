"""What `build_app` is given to mount answers `/stack` and `/console`, and is built once, when it is first asked."""

from __future__ import annotations

from pathlib import Path

from starlette.responses import PlainTextResponse
from starlette.types import Message, Scope

from callstack_proxy.config_sources import load_config
from proxy.server import Doors, Mounted, RunningApp, build_app
from proxy.server.running_app import BuildMounted


async def answers(data: Path, build: BuildMounted | None, *paths: str) -> list[tuple[int, bytes]]:
    settings = load_config({"upstream": "http://127.0.0.1:9", "data": str(data)})
    app = build_app(settings, doors=Doors(build_mounted=build))
    await app.start()
    found = []
    for path in paths:
        messages: list[Message] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Message, into: list[Message] = messages) -> None:
            into.append(message)

        request: Scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b""}
        sent_by: Scope = {"http_version": "1.1", "headers": [(b"host", b"localhost")], "client": None, "server": None}
        await app({**request, **sent_by}, receive, send)
        found.append((messages[0]["status"], messages[1]["body"]))
    await app.stop()
    return found


async def test_what_is_mounted_is_built_once_and_answers(tmp_path: Path) -> None:
    built: list[RunningApp] = []

    def build(app: RunningApp) -> Mounted:
        built.append(app)
        return Mounted(stack=PlainTextResponse("the API"), console=PlainTextResponse("the console"))

    found = await answers(tmp_path, build, "/health", "/stack/conversations", "/console", "/console/x", "/stack")

    assert [status for status, _ in found] == [200] * 5
    assert [body for _, body in found[1:]] == [b"the API", b"the console", b"the console", b"the API"]
    assert len(built) == 1


async def test_without_anything_mounted_there_is_no_management(tmp_path: Path) -> None:
    found = await answers(tmp_path, None, "/stack/conversations", "/console", "/health")

    assert [status for status, _ in found] == [404, 404, 200]
    assert b"no management API" in found[0][1]
