"""Answers of chat completions as providers send them, streamed and whole, and a client that puts a stream together:
shared by the tests of this folder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from proxy.dialects.chat.response import ChatResponseWriter
from proxy.dialects.sse import SseDecoder
from tests.dialects.playing import JSON, SSE, StreamResult, played

DONE = b"data: [DONE]\n\n"


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


MIXED = b"".join(
    [
        role(),
        delta({"content": "Let me look. "}),
        calls(part(0, "bash", "", "call_a")),
        calls(part(0, arguments='{"cmd":')),
        calls(part(1, "stack_frame_pop", "", "call_b")),
        calls(part(0, arguments='"ls"}'), part(1, arguments='{"status"')),
        calls(part(2, "read", "", "call_c")),
        calls(part(1, arguments=':"completed"}')),
        calls(part(2, arguments='{"path":"a.py"}')),
        delta(finish="tool_calls"),
        usage(50, 7),
        DONE,
    ]
)
STACK_FREE = {
    "text": text_round("Hel", "lo \u00e9\U0001f600", " \u2028 world"),
    "calls": MIXED.replace(b"stack_frame_pop", b"edit"),
    "comments": b": OPENROUTER PROCESSING\n\n" + text_round("a"),
    "crlf": text_round("a").replace(b"\n\n", b"\r\n\r\n"),
    "no_space": text_round("a").replace(b"data: ", b"data:"),
    "bom_and_no_last_blank_line": b"\xef\xbb\xbf" + text_round("a")[: -len(DONE)] + b"data: [DONE]",
    "behind_the_end": text_round("a") + delta({"content": "behind the end"}),
    "two_endings": delta({"role": "assistant", "content": "x"}) + delta(finish="stop") + delta(finish="stop"),
    "no_json": role() + b"data: {not json}\n\n" + b"data: \xff\xfe\n\n" + delta(finish="stop") + DONE,
    "no_opening": delta({"content": "no opening"}) + b"event: x\nid: 3\ndata: {}\n\n" + DONE,
    "reasoning": role() + delta({"reasoning_content": "hm"}) + delta({"content": "ok"}) + delta(finish="stop") + DONE,
    "signed_reasoning": role()
    + delta({"reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}]})
    + delta(finish="stop")
    + DONE,
    "odd_indexes": role()
    + calls(part(3, "bash", "{}", "c"))
    + calls(part(None, "edit", "{}", "d"))
    + delta(finish="tool_calls"),
    "split_name": role() + calls(part(0, None, "", "c")) + calls(part(0, "st")) + calls(part(0, "ring", "{}")) + DONE,
    "role_behind_the_words": delta({"content": "a", "role": "assistant"}, usage={"prompt_tokens": 1})
    + delta(finish="stop")
    + DONE,
}
"""Answers that call nothing of ours."""


def plain(content: str | None, *called: tuple[str, str], of: str = "1", finish: str = "", **more: Any) -> bytes:
    """A whole answer of round `of`; `called` are names and arguments."""
    listed = [
        {"id": f"call_{of}{i}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for i, (name, arguments) in enumerate(called)
    ]
    message = {"role": "assistant", "content": content, **({"tool_calls": listed} if listed else {}), **more}
    told = {
        "id": f"chatcmpl-{of}",
        "object": "chat.completion",
        "created": 1700000000 + int(of),
        "model": f"model-{of}",
        "choices": [
            {"index": 0, "message": message, "finish_reason": finish or ("tool_calls" if listed else "stop")},
        ],
        "usage": {"prompt_tokens": 100 * int(of), "completion_tokens": 10, "total_tokens": 100 * int(of) + 10},
        "x_vendor": 1.50,
    }
    return json.dumps(told, indent=1).encode()


def play(
    *rounds: bytes,
    places: Sequence[int] = (),
    wants_usage: bool = True,
    intercept: bool = True,
    stream: bool = True,
    kind: str = "",
    encoded: bool = False,
) -> StreamResult:
    """All `rounds` through one answer, each cut at `places`."""
    answer = ChatResponseWriter(stream=stream, wants_usage=wants_usage, intercept=intercept)
    return played(answer, rounds, places, kind or (SSE if stream else JSON), encoded=encoded)


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
    events = SseDecoder()
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
