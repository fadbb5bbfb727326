"""Answers of the responses API as its servers send them, streamed and whole, and a strict client that puts a stream
together: shared by the tests of this folder."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from proxy.core.ledger.messages import Request
from proxy.dialects.parse_cache import ParseCache
from proxy.dialects.responses.request import OPENAI_RESPONSES
from proxy.dialects.responses.response import ResponsesResponseWriter
from proxy.dialects.sse import SseDecoder
from tests.dialects.playing import JSON, SSE, StreamResult, played

read = OPENAI_RESPONSES.parse_request

DONE = b"data: [DONE]\n\n"
Event = dict[str, Any]


# -------------------------------------------------------------------------------------------------------------- items
@dataclass(frozen=True)
class Made:
    """An output item, and the events that tell it, less what counts them."""

    item: dict[str, Any]
    events: list[Event]


def _told(item: dict[str, Any], opened: dict[str, Any], inside: Iterable[Event]) -> Made:
    added = {"type": "response.output_item.added", "item": item | {"status": "in_progress"} | opened}
    done = {"type": "response.output_item.done", "item": item}
    told = [{"item_id": item["id"], **event} for event in inside]
    return Made(item, [added, *told, done])


def message(*texts: str, id_: str = "msg_1") -> Made:
    part = {"type": "output_text", "annotations": [], "logprobs": [], "text": "".join(texts)}
    item = {"id": id_, "type": "message", "status": "completed", "role": "assistant", "content": [part]}
    at = {"content_index": 0}
    deltas = [{"type": "response.output_text.delta", **at, "delta": text, "logprobs": []} for text in texts]
    inside = [
        {"type": "response.content_part.added", **at, "part": part | {"text": ""}},
        *deltas,
        {"type": "response.output_text.done", **at, "text": part["text"], "logprobs": []},
        {"type": "response.content_part.done", **at, "part": part},
    ]
    return _told(item, {"content": []}, inside)


def thought(*summaries: str, id_: str = "rs_1", signed: str | None = "SIG+/=") -> Made:
    """Reasoning that is told in a summary; `signed` is its encrypted content, which comes at its end."""
    part = {"type": "summary_text", "text": "".join(summaries)}
    item: dict[str, Any] = {"id": id_, "type": "reasoning", "summary": [part] if summaries else []}
    at = {"summary_index": 0}
    deltas = [{"type": "response.reasoning_summary_text.delta", **at, "delta": text} for text in summaries]
    inside = [
        {"type": "response.reasoning_summary_part.added", **at, "part": part | {"text": ""}},
        *deltas,
        {"type": "response.reasoning_summary_text.done", **at, "text": part["text"]},
        {"type": "response.reasoning_summary_part.done", **at, "part": part},
    ]
    made = _told(item | ({"encrypted_content": signed} if signed else {}), {"summary": []}, inside if summaries else [])
    made.events[0]["item"].pop("encrypted_content", None)
    return made


def spoken_thought(*texts: str, id_: str = "rs_1") -> Made:
    """Reasoning in plain words, as servers of open models tell it."""
    item = {
        "id": id_,
        "type": "reasoning",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "".join(texts)}],
    }
    at = {"content_index": 0}
    return _told(
        item, {"content": []}, [{"type": "response.reasoning_text.delta", **at, "delta": text} for text in texts]
    )


def call(name: str = "bash", arguments: str = '{"cmd":"ls"}', id_: str = "1", *, pieces: int = 2) -> Made:
    item = {
        "id": f"fc_{id_}",
        "type": "function_call",
        "status": "completed",
        "arguments": arguments,
        "call_id": f"call_{id_}",
        "name": name,
    }
    size = max(1, -(-len(arguments) // max(1, pieces)))
    parts = [arguments[i : i + size] for i in range(0, len(arguments), size)] if pieces else []
    inside = [{"type": "response.function_call_arguments.delta", "delta": part} for part in parts]
    done = {"type": "response.function_call_arguments.done", "name": name, "arguments": arguments}
    return _told(item, {"arguments": ""}, [*inside, done])


def hidden(id_: str = "h", arguments: str = '{"title":"A"}', name: str = "stack_frame_push") -> Made:
    return call(name, arguments, id_)


def custom(name: str = "apply_patch", text: str = "*** Begin Patch", id_: str = "c") -> Made:
    item = {
        "id": f"ctc_{id_}",
        "type": "custom_tool_call",
        "status": "completed",
        "call_id": f"call_{id_}",
        "name": name,
        "input": text,
    }
    inside = [
        {"type": "response.custom_tool_call_input.delta", "delta": text},
        {"type": "response.custom_tool_call_input.done", "input": text},
    ]
    return _told(item, {"input": ""}, inside)


def search(id_: str = "ws_1") -> Made:
    """A call that runs at the provider."""
    item = {
        "id": id_,
        "type": "web_search_call",
        "status": "completed",
        "action": {"type": "search", "query": "queues"},
    }
    steps = ("in_progress", "searching", "completed")
    return _told(item, {}, [{"type": f"response.web_search_call.{step}"} for step in steps])


# ------------------------------------------------------------------------------------------------------------- rounds
def usage(of: int, output: int = 10) -> dict[str, Any]:
    return {
        "input_tokens": 100 * of,
        "input_tokens_details": {"cached_tokens": 10 * of, "cache_write_tokens": 0},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": 4},
        "total_tokens": 100 * of + output,
    }


def response(*made: Made, of: int = 1, status: str = "completed", **more: Any) -> dict[str, Any]:
    """The whole response of round `of`."""
    ended = status in ("completed", "incomplete")
    cut_ = {"reason": "max_output_tokens"} if status == "incomplete" else None
    return {
        "id": f"resp_{of}",
        "object": "response",
        "created_at": 1700000000 + of,
        "status": status,
        "error": None,
        "incomplete_details": cut_,
        "instructions": None,
        "model": f"model-{of}",
        "output": [m.item for m in made] if ended else [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": usage(of) if ended else None,
        "x_vendor": 1.50,
    } | more


def sse(event: Event) -> bytes:
    data = json.dumps(event, ensure_ascii=False, separators=(",", ":"))
    return f"event: {event['type']}\ndata: {data}\n\n".encode()


def numbered(events: Iterable[Event]) -> bytes:
    """The events with their sequence numbers, as servers write them: behind the type."""
    return b"".join(sse({"type": event["type"], "sequence_number": at, **event}) for at, event in enumerate(events))


def events_of(*made: Made, of: int = 1, status: str = "completed", **more: Any) -> list[Event]:
    """The events of a round, not numbered yet."""
    opened = response(of=of, status="in_progress", **more)
    told: list[Event] = [{"type": f"response.{kind}", "response": opened} for kind in ("created", "in_progress")]
    for at, one in enumerate(made):
        told += [{"type": event["type"], "output_index": at, **event} for event in one.events]
    return [*told, {"type": f"response.{status}", "response": response(*made, of=of, status=status, **more)}]


def round_(*made: Made, of: int = 1, status: str = "completed", **more: Any) -> bytes:
    return numbered(events_of(*made, of=of, status=status, **more))


def words(*texts: str, of: int = 1) -> bytes:
    """A round of one message."""
    return round_(message(*texts, id_=f"msg_{of}"), of=of)


def plain(*made: Made, of: int = 1, status: str = "completed", **more: Any) -> bytes:
    return json.dumps(response(*made, of=of, status=status, **more), indent=1).encode()


MIXED = round_(
    thought("Hm. ", "Well."),
    message("Let me ", "look. \u00e9\U0001f600"),
    call("bash", '{"cmd":"ls"}', "a"),
    hidden("b"),
    custom("apply_patch", "*** Begin", "c"),
    hidden("d", "{}", "stack"),
    call("read", '{"path":"a.py"}', "e"),
)
STACK_FREE = {
    "text": words("Hel", "lo \u00e9\U0001f600", " \u2028 world"),
    "everything": round_(thought("Hm."), search(), message("a"), call(), custom()),
    "interleaved": numbered(
        [
            *events_of(message("a", "b"))[:5],
            *[{"output_index": 1, **event} for event in thought("Hm.").events],
            *events_of(message("a", "b"))[5:],
        ]
    ),
    "bare_reasoning": round_(thought()),
    "reasoning_behind_the_words": round_(message("a"), thought()),
    "spoken_reasoning": round_(spoken_thought("a", "b"), message("c")),
    "crlf": MIXED.replace(b"stack_frame_push", b"edit").replace(b'"stack"', b'"x"').replace(b"\n", b"\r\n"),
    "no_space": words("a").replace(b"data: ", b"data:"),
    "bom_and_no_last_line": b"\xef\xbb\xbf" + words("a")[:-2],
    "terminator": words("a") + DONE,
    "behind_the_end": words("a") + sse({"type": "response.output_text.delta", "delta": "late"}) + DONE,
    "two_ends": words("a") + words("b"),
    "not_json": words("a").replace(b"event: response.completed", b"data: {oops}\n\nevent: response.completed"),
    "not_utf8": words("a")[:-2] + b"\n" + b"data: \xff\xfe\n\n",
    "unknown_events": numbered(
        [
            *events_of(message("a"))[:-1],
            {"type": "keepalive"},
            {"type": "response.new.delta", "output_index": 7, "delta": {"x": 1}},
            {"type": "response.rate_limits", "response": None},
            events_of(message("a"))[-1],
        ]
    ),
    "odd_members": numbered(
        [event | {"output_index": "0", "delta": None, "content_index": None} for event in events_of(message("a"))]
    ),
    "no_numbers": b"".join(map(sse, events_of(message("a"), call()))),
    "counted_from_1": numbered(
        [{**e, "output_index": e["output_index"] + 1} if "output_index" in e else e for e in events_of(call())]
    ),
    "error": words("a").replace(b"event: response.completed", b'data: {"error":{"message":"x"}}\n\nevent: none'),
    "multi_line_data": b'event: response.created\ndata: {"type":"response.created",\ndata: "response":{"id":"r"}}\n\n',
    "comments": b": ping\n\n" + words("a") + b": pong\n\n",
}
"""Answers that call nothing of ours."""
ERROR: Event = {"type": "error", "code": "server_error", "message": "overloaded", "param": None}
FAILED: Event = {
    "type": "response.failed",
    "response": response(status="failed", error={"code": "server_error", "message": "x"}),
}


# --------------------------------------------------------------------------------------------------------------- play
def request(*, stream: bool = True, **more: Any) -> Request:
    return read(json.dumps({"model": "m", "input": "hi", "stream": stream} | more).encode(), ParseCache())


def play(
    *rounds: bytes,
    places: Sequence[int] = (),
    intercept: bool = True,
    stream: bool = True,
    kind: str = "",
    encoded: bool = False,
    asked: Request | None = None,
) -> StreamResult:
    """All `rounds` through one answer, each cut at `places`."""
    answer = ResponsesResponseWriter(asked or request(stream=stream), intercept=intercept)
    return played(answer, rounds, places, kind or (SSE if stream else JSON), encoded=encoded)


# ------------------------------------------------------------------------------------------------------------- client
@dataclass
class Client:
    """What a strict client makes of a stream. It refuses what a server would never send."""

    items: list[dict[str, Any]] = field(default_factory=list)
    deltas: dict[int, str] = field(default_factory=dict)
    open: set[int] = field(default_factory=set)
    sequence: int = -1
    ids: set[str] = field(default_factory=set)
    models: set[str] = field(default_factory=set)
    last: dict[str, Any] | None = None
    ends: list[str] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)

    @property
    def text(self) -> list[str]:
        return ["".join(p["text"] for p in i["content"]) for i in self.items if i["type"] == "message"]

    @property
    def calls(self) -> list[tuple[str, str]]:
        return [(i["name"], str(i.get("arguments", i.get("input")))) for i in self.items if "name" in i]

    def take(self, event: Event) -> None:
        kind = event["type"]
        self.kinds.append(kind)
        assert event["sequence_number"] == self.sequence + 1, event
        self.sequence += 1
        if "response" in event:
            self.ids.add(event["response"]["id"])
            self.models.add(event["response"]["model"])
        at = event.get("output_index", -1)
        if kind == "response.output_item.added":
            assert at == len(self.items), event
            self.items.append(event["item"])
            self.open.add(at)
        elif kind == "response.output_item.done":
            self.open.remove(at)
            assert self.items[at]["id"] == event["item"]["id"]
            self.items[at] = event["item"]
        elif at >= 0:
            assert at in self.open, event
            assert event["item_id"] == self.items[at]["id"], event
            self.deltas[at] = self.deltas.get(at, "") + event.get("delta", "")
        elif kind in ("response.completed", "response.incomplete", "response.failed"):
            assert not self.ends, event
            self.ends.append(kind.removeprefix("response."))
            self.last = event["response"]


def client(stream: bytes) -> Client:
    events, seen = SseDecoder(), Client()
    for event in [*events.feed(stream), *events.end()]:
        if event.data == b"[DONE]":
            seen.ends.append("done")
        elif event.data:
            seen.take(json.loads(event.data))
    if seen.last and not seen.last.get("error"):
        assert not seen.open
        assert seen.last["output"] == seen.items
    return seen
