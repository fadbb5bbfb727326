"""Streams as providers send them, and a client that puts one together: shared by the tests of this folder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from proxy.dialects.chat_answer import Answer
from proxy.dialects.sse import Events
from proxy.stack.transcript import Spoken

DONE = b"data: [DONE]\n\n"
SSE = "text/event-stream; charset=utf-8"


def sse(chunk: object) -> bytes:
    return b"data: " + json.dumps(chunk, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


def delta(said: dict[str, Any] | None = None, *, finish: str | None = None, of: str = "1", **more: Any) -> bytes:
    """One chunk of round `of`."""
    return sse(
        {
            "id": f"chatcmpl-{of}",
            "object": "chat.completion.chunk",
            "created": 1700000000 + int(of),
            "model": f"model-{of}",
            "choices": [{"index": 0, "delta": said or {}, "finish_reason": finish}],
            **more,
        }
    )


def part(
    index: object, name: str | None = None, arguments: str | None = None, id_: str | None = None
) -> dict[str, Any]:
    """One item of `tool_calls` in a delta; what is None is absent."""
    function = {k: v for k, v in (("name", name), ("arguments", arguments)) if v is not None}
    item = {"index": index, "id": id_, "type": "function" if id_ else None, "function": function}
    return {k: v for k, v in item.items() if v is not None}


def calls(*parts: dict[str, Any], of: str = "1", **more: Any) -> bytes:
    return delta({"tool_calls": list(parts), **more}, of=of)


def usage(prompt: int, completion: int, of: str = "1", **more: Any) -> bytes:
    told = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion, **more}
    return sse({"id": f"chatcmpl-{of}", "created": 1, "model": f"model-{of}", "choices": [], "usage": told})


def role(of: str = "1") -> bytes:
    return delta({"role": "assistant", "content": ""}, of=of)


def text_round(*texts: str, of: str = "1", finish: str = "stop") -> bytes:
    said = [delta({"content": text}, of=of) for text in texts]
    return b"".join([role(of), *said, delta(finish=finish, of=of), usage(100 * int(of), 10, of=of), DONE])


def hidden_round(*texts: str, of: str = "1", name: str = "stack_frame_push", arguments: str = '{"title":"A"}') -> bytes:
    """Text, then a call of ours in pieces."""
    half = len(arguments) // 2
    said = [delta({"content": text}, of=of) for text in texts]
    called = [
        calls(part(0, name, "", f"call_{of}"), of=of),
        calls(part(0, arguments=arguments[:half]), of=of),
        calls(part(0, arguments=arguments[half:]), of=of),
    ]
    ending = [delta(finish="tool_calls", of=of), usage(100 * int(of), 10, of=of), DONE]
    return b"".join([role(of), *said, *called, *ending])


def cut(stream: bytes, places: Sequence[int]) -> list[bytes]:
    borders = [0, *sorted(p % (len(stream) + 1) for p in places), len(stream)]
    return [stream[a:b] for a, b in pairwise(borders)]


@dataclass
class Played:
    out: bytes
    pieces: list[bytes]
    spoken: list[Spoken]
    answer: Answer


def play(
    *rounds: bytes,
    places: Sequence[int] = (),
    wants_usage: bool = True,
    intercept: bool = True,
    stream: bool = True,
    kind: str = "",
    status: int = 200,
) -> Played:
    """All `rounds` through one answer, each cut at `places`."""
    answer = Answer(stream=stream, wants_usage=wants_usage, intercept=intercept)
    pieces, spoken = [], []
    for body in rounds:
        answer.begin_round(status, kind or (SSE if stream else "application/json"))
        pieces += [answer.feed(chunk) for chunk in cut(body, places)]
        spoken.append(answer.end_round(complete=True))
    pieces.append(answer.finish())
    return Played(b"".join(pieces), pieces, spoken, answer)


@dataclass
class Client:
    """What a client makes of a stream."""

    text: str = ""
    reasoning: str = ""
    calls: dict[int, dict[str, str]] = field(default_factory=dict)
    finishes: list[str] = field(default_factory=list)
    usages: list[dict[str, Any]] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    models: set[str] = field(default_factory=set)
    done: int = 0

    @property
    def ends(self) -> list[str]:
        """Every end it was told, in order."""
        return [*self.finishes, *(["usage"] * len(self.usages)), *(["done"] * self.done)]


def client(stream: bytes) -> Client:
    events = Events()
    seen = Client()
    for event in [*events.feed(stream), *events.end()]:
        if event.data == b"[DONE]":
            seen.done += 1
        elif event.data:
            _take(seen, json.loads(event.data))
    return seen


def _take(seen: Client, chunk: dict[str, Any]) -> None:
    seen.ids.add(chunk["id"])
    seen.models.add(chunk["model"])
    if chunk.get("usage"):
        seen.usages.append(chunk["usage"])
    for choice in chunk["choices"]:
        said = choice["delta"]
        seen.text += said.get("content") or ""
        seen.reasoning += said.get("reasoning_content") or ""
        for item in said.get("tool_calls") or ():
            call = seen.calls.setdefault(item["index"], {"id": "", "name": "", "arguments": ""})
            call["id"] = item.get("id") or call["id"]
            for member in ("name", "arguments"):
                call[member] += item.get("function", {}).get(member) or ""
        if choice.get("finish_reason"):
            seen.finishes.append(choice["finish_reason"])
