"""Sessions of pi: `~/.pi/agent/sessions/FOLDER/*.jsonl`, a tree of lines by `parentId` (0.73).

A line whose parent is not the line before went back: the session goes on from that parent.
"""

from __future__ import annotations

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
    parts_in,
    seconds,
    text_in,
    whole,
)

HEAD_TOKENS = 1_300


def recognises(sample: LogSample) -> bool:
    first = sample.values[0] if sample.values else {}
    return first.get("type") == "session" and "cwd" in first and "id" in first


def read(path: Path) -> Iterator[Session]:
    builders, session, folder, last = [ThreadBuilder()], path.stem, "", ""
    position: dict[str, int] = {}
    for line in json_lines(path):
        if line.get("type") == "session":
            session, folder = str(line.get("id") or session), str(line.get("cwd") or folder)
        builder, parent = builders[-1], str(line.get("parentId") or "")
        if parent and parent != last and parent in position:
            builders.append(builder := builder.branch(position[parent]))
        _add_line(builder, line)
        last = str(line.get("id") or "")
        position[last] = len(builder.messages)
    yield from from_threads(session, builders, folder=folder)


def _add_line(builder: ThreadBuilder, line: Json) -> None:
    message, kind = line.get("message"), line.get("type")
    if kind == "compaction":
        builder.add_summary(str(line.get("summary") or ""), at_s=seconds(line.get("timestamp")))
    elif kind == "message" and isinstance(message, dict):
        _add_message(builder, message)


def _add_message(builder: ThreadBuilder, message: Json) -> None:
    content, role = message.get("content"), message.get("role")
    if role == "toolResult":
        builder.add_result(str(message.get("toolCallId")), parts_in(content))
    elif role == "assistant":
        usage = message.get("usage") or {}
        builder.add_answer(
            LoggedAnswer(
                "\n".join(str(part.get("text") or "") for part in objects(content) if part.get("type") == "text"),
                [
                    call_of(part.get("name"), part.get("arguments"), part.get("id"))
                    for part in objects(content)
                    if part.get("type") == "toolCall"
                ],
                at_s=seconds(message.get("timestamp")),
                model=str(message.get("model") or ""),
                reasoning=text_in(
                    [part.get("thinking") for part in objects(content) if part.get("type") == "thinking"]
                ),
                input_tokens=sum(whole(usage.get(name)) for name in ("input", "cacheRead", "cacheWrite")),
            )
        )
    else:
        builder.add("user", parts_in(content))


PI = SessionFormat(
    name="pi",
    key="pi",
    places=(".pi/agent/sessions/**/*.jsonl",),
    head_tokens=HEAD_TOKENS,
    recognises=recognises,
    read=read,
)
