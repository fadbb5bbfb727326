"""Streams of the messages API as its servers send them, and a strict client that puts one together: shared by the tests
of this folder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from proxy.dialects.anthropic_answer import Answer
from proxy.dialects.sse import Events
from proxy.stack.transcript import Spoken
from tests.dialects.chat_streams import cut

SSE = "text/event-stream; charset=utf-8"


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


@dataclass
class Played:
    out: bytes
    pieces: list[bytes]
    spoken: list[Spoken]
    answer: Answer


def play(
    *rounds: bytes,
    places: Sequence[int] = (),
    intercept: bool = True,
    stream: bool = True,
    kind: str = "",
    encoded: bool = False,
) -> Played:
    """All `rounds` through one answer, each cut at `places`."""
    answer = Answer(stream=stream, wants_usage=True, intercept=intercept)
    pieces, spoken = [], []
    for body in rounds:
        answer.begin_round(200, kind or (SSE if stream else "application/json"), encoded=encoded)
        pieces += [answer.feed(chunk) for chunk in cut(body, places)]
        spoken.append(answer.end_round(complete=True))
    pieces.append(answer.finish())
    return Played(b"".join(pieces), pieces, spoken, answer)


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
    events = Events()
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
