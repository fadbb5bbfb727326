"""Sessions of cline's command line: `~/.cline/data/sessions/ID/ID.messages.json` (3.0), messages in blocks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from callstack_proxy.replay.sessions.base import (
    Json,
    LoggedAnswer,
    LogSample,
    Session,
    SessionFormat,
    ThreadBuilder,
    call_of,
    from_threads,
    json_object,
    objects,
    seconds,
    text_in,
    whole,
)

HEAD_TOKENS = 5_250


def recognises(sample: LogSample) -> bool:
    first = sample.values[0] if sample.values else {}
    return isinstance(first.get("messages"), list) and "sessionId" in first and "origin" in first


def read(path: Path) -> Iterator[Session]:
    said = json_object(path)
    builder = ThreadBuilder()
    builder.add("system", text_in(said.get("system_prompt")))
    for message in objects(said.get("messages")):
        _add_message(builder, message)
    origin = said.get("origin") or {}
    yield from from_threads(str(said.get("sessionId") or path.stem), [builder], str(origin.get("version") or ""))


def _add_message(builder: ThreadBuilder, message: Json) -> None:
    blocks = list(objects(message.get("content")))
    text = text_in([block for block in blocks if block.get("type") == "text"]) or text_in(message.get("content"))
    if message.get("role") != "assistant":
        results = [block for block in blocks if block.get("type") == "tool_result"]
        for block in results:
            content = block.get("content")  # the client sends the list of its results as JSON text
            sent = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
            builder.add_result(str(block.get("tool_use_id")), sent)
        builder.add("user", "" if results and len(results) == len(blocks) else text)
        return
    metrics = message.get("metrics") or {}
    builder.add_answer(
        LoggedAnswer(
            text_in([block for block in blocks if block.get("type") == "text"]),
            [
                call_of(block.get("name"), block.get("input"), block.get("id"))
                for block in blocks
                if block.get("type") == "tool_use"
            ],
            at_s=seconds(message.get("ts")),
            model=str((message.get("modelInfo") or {}).get("id") or ""),
            reasoning="\n".join(
                str(block.get("thinking") or "") for block in blocks if block.get("type") == "thinking"
            ),
            input_tokens=whole(metrics.get("inputTokens")),
        )
    )


CLINE = SessionFormat(
    name="cline",
    key="cline",
    places=(".cline/data/sessions/*/*.messages.json",),
    head_tokens=HEAD_TOKENS,
    recognises=recognises,
    read=read,
)
