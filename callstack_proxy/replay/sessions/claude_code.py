"""Sessions of Claude Code: `~/.claude/projects/FOLDER/SESSION.jsonl`, one line an event (2.1).

An answer stands on several lines with one `message.id`, one block each. `parentUuid` names the line before; words of
the user whose parent lies before the last answer went back to an earlier point. Lines with `isSidechain` belong to
subagents, in the same file or in files of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
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
    objects,
    parts_in,
    seconds,
    text_in,
    tool_of,
    whole,
)

HEAD_TOKENS = 11_500
COMMAND_NOTES = ("<local-command-caveat>", "<command-name>", "<local-command-stdout>")
"""Beginnings of lines about commands that were never sent as words of the user."""


def recognises(sample: LogSample) -> bool:
    return any("sessionId" in value and ("parentUuid" in value or "message" in value) and "version" in value
               and value.get("type") in ("user", "assistant", "attachment", "system")
               and not isinstance(value.get("systemPayload"), dict) and "parts" not in (value.get("message") or {})
               for value in sample.values)  # fmt: skip


def read(path: Path) -> Iterator[Session]:
    log = _Log()
    for line in json_lines(path):
        log.add(line)
    log.end_answer()
    yield from from_threads(path.stem, log.builders(), log.version, log.folder)


@dataclass
class _Line:
    """One thread while it is read: the builder, and where each line of the log stands in it."""

    builder: ThreadBuilder = field(default_factory=ThreadBuilder)
    position: dict[str, int] = field(default_factory=dict)
    """Line -> length of the messages up to and with it."""
    last_answer: int = 0
    answer: dict[str, Any] | None = None
    """The answer whose lines are being collected."""


class _Log:
    def __init__(self) -> None:
        self.version = self.folder = ""
        self._finished: list[ThreadBuilder] = []
        self._lines: dict[str, _Line] = {}

    def builders(self) -> list[ThreadBuilder]:
        return [*self._finished, *(line.builder for line in self._lines.values())]

    def add(self, line: Json) -> None:
        """Take in one line of the file."""
        self.version = str(line.get("version") or self.version)
        self.folder = self.folder or str(line.get("cwd") or "")
        kind = line.get("type")
        if kind == "api-request-shape":
            self._take_head(line.get("shape") or {})
        if kind not in ("user", "assistant", "attachment"):
            return
        name = str(line.get("agentId") or "side") if line.get("isSidechain") else ""
        thread = self._lines.setdefault(name, _Line())
        message = line.get("message")
        if kind == "assistant" and isinstance(message, dict):
            self._add_block(thread, line, message)
            return
        self._end(thread)
        if kind == "attachment":
            self._add_attachment(thread, line)
        elif isinstance(message, dict):
            self._add_user(name, thread, line, message)

    def end_answer(self) -> None:
        for thread in self._lines.values():
            self._end(thread)

    def _take_head(self, shape: Json) -> None:
        """The system text and tools of the main thread's requests from here on."""
        main = self._lines.setdefault("", _Line())
        self._end(main)
        if main.builder.requests:
            self._finished.append(main.builder)
            main.builder = main.builder.branch(len(main.builder.messages))
        builder, text = main.builder, text_in(shape.get("system"))
        builder.tools = [
            tool_of(t.get("name"), t.get("description"), t.get("input_schema")) for t in objects(shape.get("tools"))
        ]
        if builder.messages and builder.messages[0]["role"] == "system":
            builder.messages[0] = {"role": "system", "content": text}
        elif text:
            builder.messages.insert(0, {"role": "system", "content": text})
            main.position = {line: length + 1 for line, length in main.position.items()}

    def _add_block(self, thread: _Line, line: Json, message: Json) -> None:
        """One block of an answer."""
        if line.get("isApiErrorMessage") or message.get("model") == "<synthetic>":
            return
        if thread.answer is not None and thread.answer["id"] != message.get("id"):
            self._end(thread)
        if thread.answer is None:
            thread.answer = {"id": message.get("id"), "blocks": [], "lines": [], "at": line.get("timestamp")}
        answer = thread.answer
        answer["blocks"] += list(objects(message.get("content")))
        answer["lines"].append(str(line.get("uuid")))
        answer["usage"], answer["model"] = message.get("usage") or {}, str(message.get("model") or "")

    def _end(self, thread: _Line) -> None:
        """The answer whose lines were collected is complete."""
        answer, thread.answer = thread.answer, None
        if answer is None:
            return
        blocks, usage, builder = answer["blocks"], answer["usage"], thread.builder
        counts = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
        builder.add_answer(
            LoggedAnswer(
                "\n".join(str(b.get("text")) for b in blocks if b.get("type") == "text"),
                [call_of(b.get("name"), b.get("input"), b.get("id")) for b in blocks if b.get("type") == "tool_use"],
                at_s=seconds(answer["at"]),
                model=answer["model"],
                reasoning="\n".join(
                    str(b.get("thinking") or "") for b in blocks if b.get("type") == "thinking"
                ).strip(),
                input_tokens=sum(whole(usage.get(name)) for name in counts),
                id=str(answer["id"] or ""),
            )
        )
        thread.last_answer = len(builder.messages)
        thread.position |= dict.fromkeys(answer["lines"], len(builder.messages))

    def _add_attachment(self, thread: _Line, line: Json) -> None:
        """A reminder that the client put into the conversation."""
        for one in objects(line.get("rendered")):
            role = "system" if line.get("renderedRole") == "system" else "user"
            thread.builder.add(role if thread.builder.messages else "user", text_in(one.get("content")))
        thread.position[str(line.get("uuid"))] = len(thread.builder.messages)

    def _add_user(self, name: str, thread: _Line, line: Json, message: Json) -> None:
        """Results of tools, words of the user, or a summary."""
        content = message.get("content")
        results = [block for block in objects(content) if block.get("type") == "tool_result"]
        if line.get("isCompactSummary"):
            thread.builder.add_summary(text_in(content), at_s=seconds(line.get("timestamp")))
        elif results:
            for block in results:
                thread.builder.add_result(str(block.get("tool_use_id")), parts_in(block.get("content")))
        elif not text_in(content).startswith(COMMAND_NOTES):
            thread = self._went_back(name, thread, str(line.get("parentUuid")))
            thread.builder.add("user", parts_in(content))
        thread.position[str(line.get("uuid"))] = len(thread.builder.messages)

    def _went_back(self, name: str, thread: _Line, parent: str) -> _Line:
        """The thread that goes on from `parent`: a new one where that lies before the last answer."""
        length = thread.position.get(parent)
        if length is None or length >= thread.last_answer or thread.builder.resets[-1:] > [length]:
            return thread
        self._finished.append(thread.builder)
        kept = {line: at for line, at in thread.position.items() if at <= length}
        self._lines[name] = _Line(thread.builder.branch(length), kept, length)
        return self._lines[name]


CLAUDE_CODE = SessionFormat(
    name="Claude Code",
    key="claude",
    places=(".claude/projects/**/*.jsonl", ".config/claude/projects/**/*.jsonl"),
    head_tokens=HEAD_TOKENS,
    recognises=recognises,
    read=read,
    api="messages",
)
