"""Sessions of mini-swe-agent: a `*.traj.json` where `-o` says, or `last_mini_run.traj.json` (2.4).

An answer without a call is not kept in the history: the message that complains of it holds it in `extra.response`.
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
    json_object,
    objects,
    seconds,
    text_in,
    whole,
)

HEAD_TOKENS = 750


def recognises(sample: LogSample) -> bool:
    first = sample.values[0] if sample.values else {}
    return str(first.get("trajectory_format", "")).startswith("mini-swe-agent")


def read(path: Path) -> Iterator[Session]:
    said = json_object(path)
    info = said.get("info") or {}
    builder = ThreadBuilder(model=_model_of(info))
    for message in objects(said.get("messages")):
        _add_message(builder, message)
    yield from from_threads(path.name.removesuffix(".json"), [builder], str(info.get("mini_version") or ""))


def _model_of(info: Json) -> str:
    model = (info.get("config") or {}).get("model") or {}
    return str(model.get("model_name") or "")


def _add_message(builder: ThreadBuilder, message: Json) -> None:
    extra = message.get("extra") or {}
    response = extra.get("response") or {}
    if message.get("role") == "assistant":
        _add_answer(builder, message, response, extra)
    elif message.get("role") == "tool":
        builder.add_result(str(message.get("tool_call_id")), text_in(message.get("content")))
    elif message.get("role") in ("system", "user"):
        answer = next((one.get("message") for one in objects(response.get("choices"))), None)
        if isinstance(answer, dict):
            _add_answer(builder, answer, response, extra, kept=False)
        builder.add(message["role"], text_in(message.get("content")))


def _add_answer(
    builder: ThreadBuilder, message: Json, response: Json, extra: dict[str, Any], *, kept: bool = True
) -> None:
    functions = [(call, call.get("function") or {}) for call in objects(message.get("tool_calls"))]
    builder.add_answer(
        LoggedAnswer(
            text_in(message.get("content")),
            [call_of(function.get("name"), function.get("arguments"), call.get("id")) for call, function in functions],
            at_s=seconds(extra.get("timestamp") or response.get("created")),
            model=str(response.get("model") or ""),
            input_tokens=whole((response.get("usage") or {}).get("prompt_tokens")),
        ),
        kept=kept,
    )


MINI_SWE_AGENT = SessionFormat(
    name="mini-swe-agent",
    key="mini",
    places=(".config/mini-swe-agent/**/*.traj.json",),
    head_tokens=HEAD_TOKENS,
    recognises=recognises,
    read=read,
)
