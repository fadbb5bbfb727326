"""Sessions of Continue's `cn`: `~/.continue/sessions/ID.json`, one object with the whole history (1.5).

An entry of an assistant is one answer; the results of its calls stand in `toolCallStates`.
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
    json_object,
    objects,
    text_in,
    whole,
)

HEAD_TOKENS = 1_800


def recognises(sample: LogSample) -> bool:
    first = sample.values[0] if sample.values else {}
    return isinstance(first.get("history"), list) and "sessionId" in first


def read(path: Path) -> Iterator[Session]:
    said = json_object(path)
    builder = ThreadBuilder(model=str(said.get("chatModelTitle") or ""))
    for entry in objects(said.get("history")):
        message = entry.get("message")
        if isinstance(message, dict):
            _add_entry(builder, entry, message)
    folder = str(said.get("workspaceDirectory") or "")
    yield from from_threads(str(said.get("sessionId") or path.stem), [builder], folder=folder)


def _add_entry(builder: ThreadBuilder, entry: Json, message: Json) -> None:
    if summary := entry.get("conversationSummary"):
        builder.add_summary(str(summary))
    content = text_in(message.get("content"))
    if message.get("role") != "assistant":
        builder.add(str(message.get("role") or "user"), content)
        return
    usage = message.get("usage") or {}
    functions = [(call, call.get("function") or {}) for call in objects(message.get("toolCalls"))]
    builder.add_answer(
        LoggedAnswer(
            content,
            [call_of(function.get("name"), function.get("arguments"), call.get("id")) for call, function in functions],
            model=str(usage.get("model") or ""),
            input_tokens=whole(usage.get("prompt_tokens")),
        )
    )
    for state in objects(entry.get("toolCallStates")):
        builder.add_result(str(state.get("toolCallId")), text_in(state.get("output")))


CONTINUE = SessionFormat(
    name="Continue",
    key="cn",
    places=(".continue/sessions/*.json",),
    head_tokens=HEAD_TOKENS,
    recognises=recognises,
    read=read,
    lists=("sessions.json",),
)
