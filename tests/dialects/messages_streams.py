"""Answers of the messages API as its servers send them, streamed and whole, and a strict client that puts a stream
together: shared by the tests of this folder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from proxy.dialects.messages.response import MessagesResponseWriter
from proxy.dialects.sse import SseDecoder
from tests.dialects.playing import JSON, SSE, StreamResult, played


def event(kind: str, **said: Any) -> bytes:
    body = json.dumps({"type": kind, **said}, ensure_ascii=False, separators=(",", ":")).encode()
    return b"event: " + kind.encode() + b"\ndata: " + body + b"\n\n"


def start(of: str = "1", **more: Any) -> bytes:
    """How round `of` begins; its input is 100 tokens per round, of which ten were read from the cache."""
    usage = {
        "input_tokens": 100 * int(of) - 10,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 10,
        "output_tokens": 1,
        "service_tier": "standard",
    }
    said: dict[str, Any] = {
        "type": "message",
        "role": "assistant",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }
    told = {"id": f"msg_{of}", "model": f"model-{of}", **said, "usage": usage}
    return event("message_start", message={**told, **more}) + event("ping")


def opens(index: int, **block: Any) -> bytes:
    return event("content_block_start", index=index, content_block=block)


def grows(index: int, **delta: Any) -> bytes:
    return event("content_block_delta", index=index, delta=delta)


def closes(index: int) -> bytes:
    return event("content_block_stop", index=index)


def text(index: int, *texts: str) -> bytes:
    said = [grows(index, type="text_delta", text=piece) for piece in texts]
    return b"".join([opens(index, type="text", text=""), *said, closes(index)])


def thinking(index: int, *thoughts: str, signature: str = "SIG+/=") -> bytes:
    said = [grows(index, type="thinking_delta", thinking=piece) for piece in thoughts]
    signed = grows(index, type="signature_delta", signature=signature)
    return b"".join([opens(index, type="thinking", thinking="", signature=""), *said, signed, closes(index)])


def call(index: int, name: str, *inputs: str, id_: str = "") -> bytes:
    """A call whose input comes in these pieces."""
    said = [grows(index, type="input_json_delta", partial_json=piece) for piece in inputs]
    begins = opens(index, type="tool_use", id=id_ or f"toolu_{index}", name=name, input={})
    return b"".join([begins, *said, closes(index)])


def ends(reason: str = "end_turn", *, output: int = 10, **more: Any) -> bytes:
    delta = {"stop_reason": reason, "stop_sequence": None}
    return event("message_delta", delta=delta, usage={"output_tokens": output}, **more) + event("message_stop")


def text_round(*texts: str, of: str = "1", reason: str = "end_turn") -> bytes:
    return start(of) + text(0, *texts) + ends(reason)


def hidden_round(*texts: str, of: str = "1", name: str = "stack_frame_push", arguments: str = '{"title":"A"}') -> bytes:
    """Text, if any, then a call of ours in pieces."""
    said = text(0, *texts) if texts else b""
    half = len(arguments) // 2
    pieces = ("", arguments[:half], arguments[half:])
    return start(of) + said + call(len(texts[:1]), name, *pieces, id_=f"toolu_h{of}") + ends("tool_use")


HIDDEN, OWN = "stack_frame_push", "bash"
CITED = {"type": "web_search_result_location", "url": "u", "encrypted_index": "Eo8B", "cited_text": "a"}
RESULT = {"type": "web_search_result", "title": "t", "url": "u", "encrypted_content": "x", "page_age": None}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srv", "content": [{**RESULT, "score": 1.5}]}
SEARCHED = b"".join(
    [
        start(),
        opens(0, type="server_tool_use", id="srv", name="web_search", input={}),
        grows(0, type="input_json_delta", partial_json='{"query":"a"}'),
        closes(0),
        opens(1, **FOUND) + closes(1),
        opens(2, type="text", text=""),
        grows(2, type="citations_delta", citation=CITED),
        grows(2, type="text_delta", text="Found."),
        closes(2),
        ends(),
    ]
)
"""The answer of a model that searched the web at the provider."""
MIXED = b"".join(
    [
        start(),
        thinking(0, "Let me ", "think."),
        text(1, "Let me look. ", "\u2028 \u00e9\U0001f600"),
        call(2, "bash", "", '{"cmd":', '"ls"}', id_="toolu_a"),
        call(3, "stack_frame_pop", "", '{"status"', ':"completed"}', id_="toolu_b"),
        call(4, "read", '{"path":"a.py"}', id_="toolu_c"),
        ends("tool_use", output=7),
    ]
)
"""Thinking, words, and a call of ours between two of the client's."""
SPOKEN_FIRST = start("3") + thinking(0, "hm") + text(1, "On.") + call(2, "stack", '{"op":"tree"}') + ends("tool_use")
"""A round that thinks and speaks before a call of ours."""
OVERLOADED = event("error", error={"type": "overloaded_error", "message": "Overloaded"})
FAILED = b'{"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}'
"""The same as a whole reply."""
SIGNED = {"type": "thinking", "thinking": "hm", "signature": "SIG+/="}
LATE = event("content_block_delta", index=0, delta={"type": "text_delta", "text": "behind the end"})
STACK_FREE = {
    "text": text_round("Hel", "lo \u00e9\U0001f600", " \u2028 world"),
    "calls": MIXED.replace(b"stack_frame_pop", b"edit"),
    "server_tools": SEARCHED,
    "redacted": start() + opens(0, type="redacted_thinking", data="Eu8B") + closes(0) + text(1, "a") + ends(),
    "thinking_alone": start() + thinking(0, "hm") + ends("refusal"),
    "pause": start() + thinking(0, "hm") + opens(1, type="server_tool_use", id="s", input={}) + ends("pause_turn"),
    "comments": b": hello\n\n" + text_round("a"),
    "crlf": text_round("a", "b").replace(b"\n", b"\r\n"),
    "no_space": text_round("a").replace(b"data: ", b"data:"),
    "bom_and_no_last_blank_line": b"\xef\xbb\xbf" + text_round("a")[:-2],
    "behind_the_end": text_round("a") + LATE + ends("max_tokens"),
    "error": start() + text(0, "half") + event("error", error={"type": "overloaded_error", "message": "stack_"}),
    "no_ending": start() + text(0, "half"),
    "nothing": start() + ends(),
    "terminator_alone": event("message_stop"),
    "unknown": start()
    + event("novelty", index=0)
    + opens(0, type="novel", data=[1])
    + grows(0, type="novel_delta", data=[2])
    + closes(0)
    + ends("novel_reason"),
    "no_json": start() + b"event: x\ndata: {not json}\n\n" + b"data: \xff\xfe\n\n" + text(0, "a") + ends(),
    "odd_members": start()
    + event("content_block_start", index="0", content_block={"type": "text"})
    + event("content_block_start", index=0, content_block="text")
    + event("content_block_delta", index=None, delta=None)
    + event("content_block_stop")
    + event("message_delta", delta=None, usage=7)
    + event("message_start", message=None),
    "from_1": start() + text(1, "a") + call(2, "bash", "{}") + ends("tool_use"),
    "two_texts": start() + text(0, "a") + text(1, " ") + text(2, "b") + ends("stop_sequence"),
}
"""Answers that call nothing of ours."""


def used(name: str, given_: object = None, id_: str = "toolu_1") -> dict[str, Any]:
    return {"type": "tool_use", "id": id_, "name": name, "input": given_ or {}}


def said(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def plain(*blocks: dict[str, Any], of: str = "1", reason: str = "", **more: Any) -> bytes:
    """A whole answer of round `of`."""
    calls = any(block["type"] == "tool_use" for block in blocks)
    usage = {"input_tokens": 100 * int(of), "cache_read_input_tokens": 10, "output_tokens": 10}
    told = {
        "id": f"msg_{of}",
        "type": "message",
        "role": "assistant",
        "model": f"model-{of}",
        "content": list(blocks),
        "stop_reason": reason or ("tool_use" if calls else "end_turn"),
        "stop_sequence": None,
        "usage": usage | {"server_tool_use": {"web_search_requests": 1}},
        "x_vendor": 1.50,
        **more,
    }
    return json.dumps(told, indent=1).encode()


def play(
    *rounds: bytes,
    places: Sequence[int] = (),
    intercept: bool = True,
    stream: bool = True,
    kind: str = "",
    encoded: bool = False,
) -> StreamResult:
    """All `rounds` through one answer, each cut at `places`."""
    answer = MessagesResponseWriter(stream=stream, wants_usage=True, intercept=intercept)
    return played(answer, rounds, places, kind or (SSE if stream else JSON), encoded=encoded)


@dataclass
class Client:
    """What a strict client makes of a stream: it checks the order of events and the count of blocks."""

    message: dict[str, Any] = field(default_factory=dict)
    blocks: list[dict[str, Any]] = field(default_factory=list)
    open: int = -1
    """The block that has begun and not stopped."""
    ends: list[str] = field(default_factory=list)
    """Every end it was told, in order."""
    usage: dict[str, Any] = field(default_factory=dict)
    others: list[str] = field(default_factory=list)

    @property
    def texts(self) -> list[str]:
        return [block["text"] for block in self.blocks if block["type"] == "text"]

    @property
    def calls(self) -> list[tuple[str, str, str]]:
        return [(b["id"], b["name"], b["written"]) for b in self.blocks if b["type"] == "tool_use"]


def client(stream: bytes) -> Client:
    events = SseDecoder()
    seen = Client()
    for sent in [*events.feed(stream), *events.end()]:
        if sent.data:
            said = json.loads(sent.data)
            assert f"event: {said['type']}".encode() in sent.raw
            _take(seen, said)
    return seen


def _take(seen: Client, said: dict[str, Any]) -> None:
    kind = said["type"]
    if kind == "message_start":
        assert not seen.message
        seen.message, seen.usage = said["message"], dict(said["message"]["usage"])
    elif kind == "content_block_start":
        assert seen.message
        assert seen.open == -1
        assert said["index"] == len(seen.blocks)
        seen.open = said["index"]
        seen.blocks.append({**said["content_block"], "written": ""})
    elif kind == "content_block_delta":
        assert said["index"] == seen.open
        _grow(seen.blocks[seen.open], said["delta"])
    elif kind == "content_block_stop":
        assert said["index"] == seen.open
        seen.open = -1
    elif kind == "message_delta":
        assert seen.open == -1
        seen.ends.append(said["delta"]["stop_reason"])
        seen.usage |= said["usage"]
    else:
        if kind == "message_stop":
            seen.ends.append("stop")
        seen.others.append(kind)


def _grow(block: dict[str, Any], delta: dict[str, Any]) -> None:
    for member, into in (("text", "text"), ("thinking", "thinking"), ("partial_json", "written")):
        if member in delta:
            block[into] += delta[member]
    if "signature" in delta:
        block["signature"] = delta["signature"]
    if "citation" in delta:
        block.setdefault("citations", []).append(delta["citation"])
