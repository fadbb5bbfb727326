"""Sessions of Codex: `~/.codex/sessions/Y/M/D/rollout-*.jsonl`, one line an item or event (0.169).

`response_item` lines are the items of the responses API as they were sent and received. An answer is what stands
between two items of the client, or up to a count of tokens. A `compacted` line holds the history that replaced all
before. Text in freeform calls becomes an argument `input`.
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
    seconds,
    text_in,
    whole,
)

HEAD_TOKENS = 6_500
CALLS = ("function_call", "custom_tool_call", "local_shell_call")
RESULTS = ("function_call_output", "custom_tool_call_output")


def recognises(sample: LogSample) -> bool:
    first = sample.values[0] if sample.values else {}
    return first.get("type") == "session_meta" and isinstance(first.get("payload"), dict)


def read(path: Path) -> Iterator[Session]:
    log = _Log()
    for line in json_lines(path):
        payload = line.get("payload")
        if isinstance(payload, dict):
            log.add(str(line.get("type")), payload, seconds(line.get("timestamp")))
    log.end_answer()
    yield from from_threads(log.session or path.stem, [log.builder], log.version, log.folder)


class _Log:
    def __init__(self) -> None:
        self.session = self.version = self.folder = self._model = ""
        self.builder = ThreadBuilder()
        self._items: list[Json] = []
        """The items of the answer that is being collected."""
        self._at_s: float | None = None

    def add(self, kind: str, payload: Json, at_s: float | None) -> None:
        """Take in one line of the file."""
        if kind == "session_meta" and not self.session:
            self.session = str(payload.get("id") or payload.get("session_id") or "")
            self.version = str(payload.get("cli_version") or "")
            self.folder = str(payload.get("cwd") or "")
            instructions = payload.get("base_instructions") or payload.get("instructions")
            self.builder.add("system", text_in(instructions))
        elif kind == "turn_context":
            self._model = str(payload.get("model") or self._model)
        elif kind == "response_item":
            self._add_item(payload, at_s)
        elif kind == "compacted":
            self._replace_history(payload, at_s)
        elif payload.get("type") == "token_count":
            self._count(payload)

    def end_answer(self) -> None:
        """The answer whose items were collected is complete."""
        items, self._items = self._items, []
        if not items:
            return
        self.builder.add_answer(
            LoggedAnswer(
                "\n".join(text_in(item.get("content")) for item in items if item.get("type") == "message"),
                [_call(item) for item in items if item.get("type") in CALLS],
                at_s=self._at_s,
                model=self._model,
                reasoning="\n".join(text_in(item.get("summary")) for item in items if item.get("type") == "reasoning"),
            )
        )

    def _add_item(self, item: Json, at_s: float | None) -> None:
        kind = item.get("type")
        if kind in CALLS or kind == "reasoning" or (kind == "message" and item.get("role") == "assistant"):
            self._at_s = at_s if not self._items else self._at_s
            self._items.append(item)
            return
        self.end_answer()
        if kind in RESULTS:
            self.builder.add_result(str(item.get("call_id")), text_in(item.get("output")))
        elif kind == "message":
            self.builder.add(str(item.get("role") or "user"), text_in(item.get("content")))

    def _replace_history(self, payload: Json, at_s: float | None) -> None:
        self.end_answer()
        kept = list(objects(payload.get("replacement_history")))
        self.builder.add_summary(str(payload.get("message") or "") or text_in(kept[-1:]), at_s=at_s)
        for item in kept:
            self._add_item(item, at_s)

    def _count(self, payload: Json) -> None:
        """An answer ends with its count of tokens."""
        self.end_answer()
        info = payload.get("info")
        usage = info.get("last_token_usage") if isinstance(info, dict) else None
        if isinstance(usage, dict) and len(self.builder.requests) == 1 and self.builder.first_input is None:
            self.builder.first_input = whole(usage.get("input_tokens")) or None


def _call(item: Json) -> Json:
    if item.get("type") == "function_call":
        return call_of(item.get("name"), item.get("arguments"), item.get("call_id"))
    arguments = {"input": item.get("input")} if "input" in item else item.get("action")
    return call_of(item.get("name") or "shell", arguments, item.get("call_id") or item.get("id"))


CODEX = SessionFormat(
    name="Codex",
    key="codex",
    places=(".codex/sessions/**/*.jsonl", ".codex/archived_sessions/*.jsonl"),
    head_tokens=HEAD_TOKENS,
    recognises=recognises,
    read=read,
    api="responses",
)
