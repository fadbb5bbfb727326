"""A provider that takes whatever it is sent and answers whatever it is told to, and JSON with something wrong in it.

Lenient    a server on a real socket, which refuses nothing; the scripted provider refuses what an API would
spoiled    a value with a few of its parts dropped, doubled, exchanged or replaced by something odd
ANSWERS    what a model says, as each API tells it: whole, or as the events of a stream
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from random import Random
from typing import Any

Json = dict[str, Any]
NAMES = ("type", "role", "id", "name", "content", "text", "status", "call_id", "arguments", "input", "tool_calls")
WORDS = (
    "", "\x00", "\ud800", "null", "user", "assistant", "tool", "system", "text", "tool_use", "function_call", "call_1",
    "stack_frame_push", "stack", "/stack tree", "</stack-context>", "data: x\n\n", "{", "x" * 2_000,
)  # fmt: skip
WAIT_S = 10
LENGTH = re.compile(rb"(?i)content-length: (\d+)")
NUMBERS = (0, -1, 10**30, 1.5, 1e308, True)


def odd_value(chance: Random, depth: int = 0) -> Any:
    """Any value of JSON, mostly a word that means something elsewhere."""
    kind = chance.randrange(8)
    if kind == 0:
        return None
    if kind == 1:
        return chance.choice(NUMBERS)
    if kind == 2 and depth < 2:
        return [odd_value(chance, depth + 1) for _ in range(chance.randrange(3))]
    if kind == 3 and depth < 2:
        return {chance.choice(NAMES): odd_value(chance, depth + 1) for _ in range(chance.randrange(3))}
    return chance.choice(WORDS)


def spoiled(value: Any, chance: Random, times: int) -> Any:
    """A copy of `value` that is wrong in so many places."""
    copy = json.loads(json.dumps(value))
    for _ in range(times):
        places = list(_places(copy))
        if places:
            _spoil(*chance.choice(places), chance)
    return copy


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inside:
        yield value, key
        yield from _places(each)


def _spoil(holder: Any, key: Any, chance: Random) -> None:
    how = chance.randrange(5)
    if how == 0:
        del holder[key]
    elif how == 1 and isinstance(holder, list):
        holder.insert(key, holder[key])
    elif how == 2 and isinstance(holder, dict):
        holder[chance.choice(NAMES)] = holder[key]
    elif how == 3 and isinstance(holder[key], str):
        holder[key] += chance.choice(WORDS)
    else:
        holder[key] = odd_value(chance)


# --------------------------------------------------------------------------------------------------------- the provider
class RawProvider:
    """`answers(body)` gives the events of a stream, or one whole answer, for the body of a request."""

    def __init__(self) -> None:
        self.port = 0
        self.answers: Callable[[Json], tuple[list[Any], bool]] = lambda _: ([{}], False)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                size = next(
                    int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")
                )
                said, streamed = self.answers(json.loads(await reader.readexactly(size)))
                body = b"".join(map(_event, said)) + b"data: [DONE]\n\n" if streamed else _written(said[0])
                kind = b"text/event-stream" if streamed else b"application/json"
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n" % (kind, len(body)))
                writer.write(body)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def _written(value: Any) -> bytes:
    return json.dumps(value).encode()


def _event(value: Any) -> bytes:
    kind = value.get("type") if isinstance(value, dict) else None
    named = (
        b"event: " + kind.encode() + b"\n" if isinstance(kind, str) and kind.replace(".", "_").isidentifier() else b""
    )
    return named + b"data: " + _written(value) + b"\n\n"


@contextmanager
def lenient() -> Iterator[RawProvider]:
    provider, ready = RawProvider(), threading.Event()
    leave: list[Callable[[], object]] = []

    async def run() -> None:
        loop, left = asyncio.get_running_loop(), asyncio.Event()
        leave.append(lambda: loop.call_soon_threadsafe(left.set))
        async with await asyncio.start_server(provider.serve, "127.0.0.1", 0) as server:
            provider.port = server.sockets[0].getsockname()[1]
            ready.set()
            await left.wait()

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    assert ready.wait(WAIT_S)
    yield provider
    leave[0]()
    thread.join()


# -------------------------------------------------------------------------------------------------------------- answers
Called = tuple[str, Json]


def _chat(text: str, calls: list[Called], number: int) -> tuple[Json, list[Json]]:
    made = [
        {"id": f"c{number}_{at}", "type": "function", "function": {"name": name, "arguments": json.dumps(said)}}
        for at, (name, said) in enumerate(calls)
    ]
    same = {"id": f"chatcmpl-{number}", "created": 1, "model": "m"}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    finish = "tool_calls" if calls else "stop"
    message = {"role": "assistant", "content": text, **({"tool_calls": made} if made else {})}
    whole: Json = {**same, "object": "chat.completion", "usage": usage}
    whole["choices"] = [{"index": 0, "message": message, "finish_reason": finish}]
    deltas: list[tuple[Json, str | None]] = [({"role": "assistant", "content": ""}, None), ({"content": text}, None)]
    deltas += [({"tool_calls": [{"index": at, **call}]}, None) for at, call in enumerate(made)]
    chunks = [
        {**same, "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": end}]}
        for delta, end in [*deltas, ({}, finish)]
    ]
    return whole, [*chunks, {**same, "object": "chat.completion.chunk", "choices": [], "usage": usage}]


def _messages(text: str, calls: list[Called], number: int) -> tuple[Json, list[Json]]:
    blocks: list[Json] = [{"type": "text", "text": text}]
    blocks += [
        {"type": "tool_use", "id": f"t{number}_{at}", "name": name, "input": said}
        for at, (name, said) in enumerate(calls)
    ]
    usage = {"input_tokens": 10, "output_tokens": 5}
    whole: Json = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "m", "content": blocks}
    whole |= {"stop_reason": "tool_use" if calls else "end_turn", "usage": usage}
    begun: Json
    delta: Json
    events: list[Json] = [{"type": "message_start", "message": {**whole, "content": [], "stop_reason": None}}]
    for at, block in enumerate(blocks):
        if block["type"] == "text":
            begun, delta = {**block, "text": ""}, {"type": "text_delta", "text": text}
        else:
            begun = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        events.append({"type": "content_block_start", "index": at, "content_block": begun})
        events.append({"type": "content_block_delta", "index": at, "delta": delta})
        events.append({"type": "content_block_stop", "index": at})
    events.append({"type": "message_delta", "delta": {"stop_reason": whole["stop_reason"]}, "usage": usage})
    return whole, [*events, {"type": "message_stop"}]


def _responses(text: str, calls: list[Called], number: int) -> tuple[Json, list[Json]]:
    said = {"type": "output_text", "text": text, "annotations": []}
    items: list[Json] = [{"type": "message", "id": f"msg_{number}", "role": "assistant", "content": [said]}]
    items += [
        {"type": "function_call", "id": f"fc_{number}_{at}", "call_id": f"c{number}_{at}", "name": name}
        | {"arguments": json.dumps(arguments)}
        for at, (name, arguments) in enumerate(calls)
    ]
    usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
    whole: Json = {"id": f"resp_{number}", "object": "response", "status": "completed", "model": "m", "output": items}
    whole |= {"usage": usage}
    events: list[Json] = [{"type": "response.created", "response": {**whole, "output": [], "status": "in_progress"}}]
    for at, item in enumerate(items):
        events.append({"type": "response.output_item.added", "output_index": at, "item": item})
        events.append({"type": "response.output_item.done", "output_index": at, "item": item})
    return whole, [*events, {"type": "response.completed", "response": whole}]


ANSWERS: Mapping[str, Callable[[str, list[Called], int], tuple[Json, list[Json]]]] = {
    "/v1/chat/completions": _chat,
    "/v1/messages": _messages,
    "/v1/responses": _responses,
}
