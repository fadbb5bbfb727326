"""Sessions of Qwen Code: `~/.qwen/projects/FOLDER/chats/*.jsonl` (0.15), and of clients with the same lines.

Messages have `parts`, as in Google's API: texts, function calls and function responses.
"""

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
    json_lines,
    objects,
    seconds,
    text_in,
    whole,
)

HEAD_TOKENS = 17_400


def recognises(sample: LogSample) -> bool:
    return any(isinstance((value.get("message") or {}), dict) and "parts" in (value.get("message") or {})
               for value in sample.values)  # fmt: skip


def read(path: Path) -> Iterator[Session]:
    builder, version, session, folder = ThreadBuilder(), "", path.stem, ""
    for line in json_lines(path):
        version, session = str(line.get("version") or version), str(line.get("sessionId") or session)
        message, folder = line.get("message"), folder or str(line.get("cwd") or "")
        if line.get("type") == "system" and line.get("subtype") == "chat_compression":
            _replace_history(builder, line.get("systemPayload") or {})
        elif isinstance(message, dict):
            _add_message(builder, line, list(objects(message.get("parts"))))
    yield from from_threads(session, [builder], version, folder)


def _add_message(builder: ThreadBuilder, line: Json, parts: list[Json]) -> None:
    text = text_in([part for part in parts if not part.get("thought")])
    if line.get("type") == "assistant":
        calls = [part["functionCall"] for part in parts if isinstance(part.get("functionCall"), dict)]
        usage = line.get("usageMetadata") or {}
        builder.add_answer(
            LoggedAnswer(
                text,
                [call_of(call.get("name"), call.get("args"), call.get("id")) for call in calls],
                at_s=seconds(line.get("timestamp")),
                model=str(line.get("model") or ""),
                reasoning=text_in([part for part in parts if part.get("thought")]),
                input_tokens=whole(usage.get("promptTokenCount")),
            )
        )
        return
    for part in parts:
        response = part.get("functionResponse")
        if isinstance(response, dict):
            builder.add_result(str(response.get("id")), _output(response.get("response")))
    builder.add("user", text)


def _output(response: object) -> str:
    output = response.get("output") if isinstance(response, dict) else response
    return output if isinstance(output, str) else json.dumps(response, ensure_ascii=False)


def _replace_history(builder: ThreadBuilder, payload: Json) -> None:
    history = list(objects(payload.get("compressedHistory")))
    builder.add_summary(text_in([part for message in history for part in objects(message.get("parts"))]))


QWEN_CODE = SessionFormat(
    name="Qwen Code",
    key="qwen",
    places=(".qwen/projects/*/chats/*.jsonl", ".qwen/tmp/*/chats/*.jsonl"),
    head_tokens=HEAD_TOKENS,
    recognises=recognises,
    read=read,
)
