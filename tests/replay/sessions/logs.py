"""Small session logs, written here in the forms of clients; the real ones are in `shared/client-logs`."""

import json
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Json = dict[str, Any]
START = "2026-11-20T10:00:{:02d}.000Z"
PART = "def part(value):  # alpha bravo charlie delta\n    return value * 31\n" * 60
"""A tool's output of about 1,000 tokens."""


def lines(path: Path, values: Iterable[object]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(value)}\n" for value in values))
    return path


def claude_lines(steps: int, *, side: bool = False, first: int = 0) -> list[Json]:
    """A task of `steps` answers, each of which but the last reads a file."""
    found: list[Json] = []

    def add(kind: str, message: Json) -> None:
        at = len(found) + first
        parent = found[-1]["uuid"] if found else None
        name = f"{'s' if side else 'm'}{at}"
        found.append(
            {
                "type": kind,
                "message": message,
                "uuid": name,
                "parentUuid": parent,
                "isSidechain": side,
                "sessionId": "s-1",
                "version": "2.1.330",
                "timestamp": START.format(at % 60),
            }
        )

    add("user", {"role": "user", "content": "Read all parts."})
    for step in range(steps):
        usage = {"input_tokens": 100, "cache_creation_input_tokens": 11_900, "cache_read_input_tokens": step}
        about = {"id": f"msg_{side}_{first}_{step}", "role": "assistant", "model": "claude-opus-4-8", "usage": usage}
        add("assistant", {**about, "content": [{"type": "text", "text": f"Part {step}."}]})
        if step + 1 < steps:
            call = {
                "type": "tool_use",
                "id": f"t{side}{first}{step}",
                "name": "Bash",
                "input": {"command": f"cat {step}"},
            }
            add("assistant", {**about, "content": [call]})
            add(
                "user",
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call["id"], "content": PART}]},
            )
    return found


def claude_log(path: Path, steps: int = 4) -> Path:
    return lines(path, claude_lines(steps))


def codex_log(path: Path, steps: int = 3) -> Path:
    def item(**payload: object) -> Json:
        return {"type": "response_item", "timestamp": START.format(1), "payload": payload}

    found: list[Json] = [
        {
            "type": "session_meta",
            "payload": {"id": "c-1", "cli_version": "0.169.0", "base_instructions": {"text": "You are."}},
        },
        {"type": "turn_context", "payload": {"model": "gpt-5.5"}},
        item(type="message", role="user", content=[{"type": "input_text", "text": "Read all parts."}]),
    ]
    for step in range(steps):
        found.append(item(type="message", role="assistant", content=[{"type": "output_text", "text": f"Part {step}."}]))
        if step + 1 < steps:
            found.append(item(type="custom_tool_call", call_id=f"c{step}", name="shell", input=f"cat {step}"))
        usage = {"last_token_usage": {"input_tokens": 8_000}}
        found.append({"type": "event_msg", "payload": {"type": "token_count", "info": usage}})
        if step + 1 < steps:
            found.append(item(type="custom_tool_call_output", call_id=f"c{step}", output=PART))
    return lines(path, found)


def opencode_log(path: Path) -> Path:
    """Two sessions, the second a subagent of the first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE session (id TEXT, version TEXT, parent_id TEXT, time_created INTEGER)")
        database.execute("CREATE TABLE message (id TEXT, session_id TEXT, time_created INTEGER, data TEXT)")
        database.execute("CREATE TABLE part (id TEXT, message_id TEXT, session_id TEXT, data TEXT)")
        for session, parent in (("ses_1", None), ("ses_2", "ses_1")):
            database.execute("INSERT INTO session VALUES (?, '1.18.33', ?, 1)", (session, parent))
            for at, (message, parts) in enumerate(_opencode_messages()):
                name = f"{session}-{at}"
                database.execute("INSERT INTO message VALUES (?, ?, ?, ?)", (name, session, at, json.dumps(message)))
                for number, part in enumerate(parts):
                    row = (f"{name}-{number}", name, session, json.dumps(part))
                    database.execute("INSERT INTO part VALUES (?, ?, ?, ?)", row)
    return path


def _opencode_messages() -> list[tuple[Json, list[Json]]]:
    tool = {"type": "tool", "tool": "bash", "callID": "c1", "state": {"input": {"command": "ls"}, "output": PART}}
    tokens = {"input": 7_000, "cache": {"read": 0, "write": 0}}
    answer = {"role": "assistant", "modelID": "gpt-5.5", "tokens": tokens, "time": {"created": 1_795_580_235_817}}
    return [
        ({"role": "user"}, [{"type": "text", "text": "Look around."}]),
        (answer, [{"type": "text", "text": "I look."}, tool]),
        (answer, [{"type": "text", "text": "Done."}]),
    ]
