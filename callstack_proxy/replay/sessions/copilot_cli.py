"""Sessions of Copilot's command line: `~/.copilot/session-state/ID/events.jsonl`, one line an event (1.0)."""

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
    seconds,
    text_in,
    whole,
)

HEAD_TOKENS = 10_900


def recognises(sample: LogSample) -> bool:
    first = sample.values[0] if sample.values else {}
    data = first.get("data")
    return first.get("type") == "session.start" and isinstance(data, dict) and "copilotVersion" in data


def read(path: Path) -> Iterator[Session]:
    builder, version, session, folder = ThreadBuilder(), "", path.parent.name, ""
    for line in json_lines(path):
        data = line.get("data")
        if not isinstance(data, dict):
            continue
        if line.get("type") == "session.start":
            version, builder.model = str(data.get("copilotVersion") or ""), str(data.get("selectedModel") or "")
            folder = str((data.get("context") or {}).get("cwd") or "")
        _add_event(builder, str(line.get("type")), data, seconds(line.get("timestamp")))
    yield from from_threads(session, [builder], version, folder)


def _add_event(builder: ThreadBuilder, kind: str, data: Json, at_s: float | None) -> None:
    if kind == "system.message" and not builder.requests:
        builder.messages.insert(0, {"role": "system", "content": text_in(data.get("content"))})
    elif kind == "user.message":
        builder.add("user", data.get("transformedContent") or data.get("content"))
    elif kind == "assistant.message":
        builder.add_answer(
            LoggedAnswer(
                text_in(data.get("content")),
                [
                    call_of(call.get("name"), call.get("arguments"), call.get("toolCallId"))
                    for call in objects(data.get("toolRequests"))
                ],
                at_s=at_s,
                model=str(data.get("model") or ""),
                reasoning=text_in(data.get("reasoningText")),
            )
        )
    elif kind == "tool.execution_complete":
        outcome = data.get("result") or data.get("error") or {}
        builder.add_result(str(data.get("toolCallId")), text_in(outcome.get("content") or outcome.get("message")))
    elif kind == "session.usage_record" and builder.first_input is None:
        builder.first_input = whole((data.get("usage") or {}).get("inputTokens")) or None
    elif kind == "session.compaction_complete" and data.get("summaryContent"):
        builder.add_summary(text_in(data["summaryContent"]), at_s=at_s)


COPILOT_CLI = SessionFormat(
    name="Copilot CLI",
    key="copilot",
    places=(".copilot/session-state/*/events.jsonl", ".copilot/history-session-state/*.jsonl"),
    head_tokens=HEAD_TOKENS,
    recognises=recognises,
    read=read,
)
