"""Sessions of Mistral Vibe: `~/.vibe/logs/session/unified/ID/`, a folder (3.0).

The newest generation's `manifest.json` names the chunks of the conversation, and `journal/` holds what was asked of the
model, with system text and tools, and what it used. The folder is known by its `meta.json`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
    json_object,
    json_value,
    objects,
    seconds,
    text_in,
    tool_of,
    whole,
)

HEAD_TOKENS = 7_500


def recognises(sample: LogSample) -> bool:
    first = sample.values[0] if sample.values else {}
    return sample.path.name == "meta.json" and "session_id" in first and (sample.path.parent / "generations").is_dir()


def read(path: Path) -> Iterator[Session]:
    folder, about = path.parent, json_object(path)
    builder = ThreadBuilder(model=str((about.get("config") or {}).get("model_name") or ""))
    times = _read_journal(folder, builder)
    started = seconds(about.get("start_time"))
    for message in _messages(folder):
        _add_message(builder, message, times.pop(0) if times else started)
    yield from from_threads(str(about.get("session_id") or folder.name), [builder])


def _read_journal(folder: Path, builder: ThreadBuilder) -> list[float | None]:
    """Takes the head and the size of the first request from the journal; returns when each answer was made."""
    times: list[float | None] = []
    for file in sorted((folder / "journal").glob("*.jsonl")):
        for line in json_lines(file):
            payload = line.get("payload") or {}
            if line.get("type") == "action_intent" and payload.get("kind") == "completion" and not builder.messages:
                _take_head(builder, (payload.get("request") or {}).get("model_input") or {})
            told = (payload.get("result") or {}).get("result")
            if line.get("type") == "action_result" and isinstance(told, dict) and "usage" in told:
                times.append(seconds(line.get("created_at")))
                usage = told.get("usage") or {}
                builder.first_input = builder.first_input or whole(usage.get("input_tokens")) or None
    return times


def _take_head(builder: ThreadBuilder, asked: Json) -> None:
    for message in objects((asked.get("messages") or {}).get("messages")):
        if message.get("role") == "system":
            builder.add("system", text_in(message.get("content")))
    catalog = objects((asked.get("tool_catalog") or {}).get("tools"))
    builder.tools = [tool_of(tool.get("name"), tool.get("description"), tool.get("parameters")) for tool in catalog]


def _messages(folder: Path) -> Iterator[dict[str, Any]]:
    """The messages of the newest generation."""
    manifests = sorted((folder / "generations").glob("*/manifest.json"))
    if not manifests:
        return
    manifest = json_object(manifests[-1])
    for name in (manifest.get("checkpoint") or {}).get("chunks") or ():
        chunk = folder / "chunks" / f"{Path(str(name)).name}.json"
        for entry in objects(json_value(chunk)):
            if isinstance(message := entry.get("message"), dict):
                yield message


def _add_message(builder: ThreadBuilder, message: Json, at_s: float | None) -> None:
    parts, role = list(objects(message.get("content"))), message.get("role")
    if role == "tool":
        builder.add_result(str(message.get("tool_call_id")), text_in(parts))
    elif role == "assistant":
        calls = [part for part in parts if part.get("type") == "tool_call"]
        builder.add_answer(
            LoggedAnswer(
                text_in([part for part in parts if part.get("type") == "text"]),
                [call_of(part.get("name"), (part.get("arguments") or {}).get("raw"), part.get("id")) for part in calls],
                at_s=at_s,
                reasoning=text_in([part for part in parts if part.get("type") == "reasoning"]),
            )
        )
    else:
        builder.add("user", text_in(parts))


MISTRAL_VIBE = SessionFormat(
    name="Mistral Vibe",
    key="vibe",
    places=(".vibe/logs/session/unified/*/meta.json",),
    head_tokens=HEAD_TOKENS,
    recognises=recognises,
    read=read,
)
