"""Sessions of gptme: `~/.local/share/gptme/logs/NAME/conversation.jsonl` (0.35): plain messages, the head among them.

Its calls are words of the answer, and their results system messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from callstack_proxy.replay.sessions.base import (
    LoggedAnswer,
    LogSample,
    Session,
    SessionFormat,
    ThreadBuilder,
    from_threads,
    json_lines,
    seconds,
    text_in,
    whole,
)

HEAD_TOKENS = 2_500


def recognises(sample: LogSample) -> bool:
    return sample.path.name == "conversation.jsonl" and all(
        "role" in value and "content" in value and "timestamp" in value for value in sample.values
    )


def read(path: Path) -> Iterator[Session]:
    builder = ThreadBuilder()
    for line in json_lines(path):
        about = line.get("metadata") or {}
        usage, role = about.get("usage") or {}, line.get("role")
        if role == "assistant":
            builder.add_answer(
                LoggedAnswer(
                    text_in(line.get("content")),
                    at_s=seconds(line.get("timestamp")),
                    model=str(about.get("served_model") or about.get("model") or ""),
                    input_tokens=whole(usage.get("input_tokens")) + whole(usage.get("cache_read_tokens")),
                )
            )
        else:
            builder.add(str(role or "user"), text_in(line.get("content")))
    yield from from_threads(path.parent.name, [builder])


GPTME = SessionFormat(
    name="gptme",
    key="gptme",
    places=(".local/share/gptme/logs/*/conversation.jsonl",),
    head_tokens=HEAD_TOKENS,
    recognises=recognises,
    read=read,
)
