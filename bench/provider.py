"""The provider behind the benchmark: answers at once, keeps nothing, and is told what to answer by the model's name.

`bench-text` a sentence, `bench-call` a tool call with an id of its own, `bench-stream-CHUNKS-GAP` that many events
GAP ms apart (0: as fast as they go), `bench-calls-CHUNKS-GAP` the same with a tool call in each. It must cost less than
whatever is measured in front of it, so it never parses a body.
"""

import argparse
import asyncio
import itertools
import json
import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import uvicorn

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

MODEL = re.compile(rb'"model":\s*"bench-([a-z]+)(?:-(\d+)-(\d+))?"')
CALLS = itertools.count()


def answer(kind: bytes) -> bytes:
    """An unstreamed completion of that kind."""
    message: dict[str, Any] = {"role": "assistant", "content": "The parcels are counted: there are forty-two of them."}
    if kind == b"call":
        function = {"name": "load_0", "arguments": '{"path":"src/parcel/parcel_load.py","limit":200}'}
        message["tool_calls"] = [{"id": f"call_{next(CALLS):024x}", "type": "function", "function": function}]
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if kind == b"call" else "stop"}
    usage = {"prompt_tokens": 1000, "completion_tokens": 20, "total_tokens": 1020}
    whole = {"id": "chatcmpl-bench", "object": "chat.completion", "created": 1, "model": "bench", "choices": [choice]}
    return json.dumps({**whole, "usage": usage}).encode()


def event(delta: dict[str, Any], finish: str | None = None) -> bytes:
    """One server-sent event of a completion."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    chunk = {
        "id": "chatcmpl-bench",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "bench",
        "choices": [choice],
    }
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


FIRST, WORD, LAST = event({"role": "assistant", "content": ""}), event({"content": " parcel"}), event({}, "stop")


def call_event(number: int) -> bytes:
    """A whole tool call in one event."""
    function = {"name": "load_0", "arguments": json.dumps({"path": f"src/part_{number}.py"})}
    return event({"tool_calls": [{"index": number, "id": f"call_{number}", "type": "function", "function": function}]})


async def stream(send: Send, chunks: int, gap_ms: int, *, calls: bool = False) -> None:
    """A whole streamed completion. Each event leaves by itself."""
    headers = [(b"content-type", b"text/event-stream")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    said = map(call_event, range(chunks)) if calls else itertools.repeat(WORD, chunks)
    for part in itertools.chain([FIRST], said, [LAST + b"data: [DONE]\n\n"]):
        await send({"type": "http.response.body", "body": part, "more_body": True})
        if gap_ms:
            await asyncio.sleep(gap_ms / 1000)
    await send({"type": "http.response.body", "body": b""})


async def app(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
    """Every POST is a completion, every GET says that we are there."""
    if scope["type"] == "lifespan":
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        await send({"type": "lifespan.shutdown.complete"})
        return
    parts = []
    while (message := await receive()).get("more_body"):
        parts.append(message["body"])
    found = MODEL.search(b"".join([*parts, message.get("body", b"")]))
    if found and found[1] in (b"stream", b"calls"):
        await stream(send, int(found[2]), int(found[3]), calls=found[1] == b"calls")
        return
    said = answer(found[1] if found else b"text")
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(said)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": said})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    uvicorn.run(app, host="127.0.0.1", port=parser.parse_args().port, log_level="warning", access_log=False)
