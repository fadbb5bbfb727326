"""Sessions of opencode: a SQLite database, `~/.local/share/opencode/opencode.db` (1.18).

`message` and `part` hold JSON in `data`. An assistant message is one answer; the results of its calls stand in the
state of its tool parts. The database is read without a lock, while the client may write it. A session with `parent_id`
is a subagent's.
"""

from __future__ import annotations

import json
import sqlite3
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
    seconds,
    whole,
)
from callstack_proxy.replay.sessions.sqlite_log import opened_log

HEAD_TOKENS = 7_100
TABLES = frozenset({"session", "message", "part"})


def recognises(sample: LogSample) -> bool:
    return sample.tables >= TABLES


def read(path: Path) -> Iterator[Session]:
    with opened_log(path) as database:
        columns = {name for (_, name, *_) in database.execute("PRAGMA table_info(session)")}
        folder = "directory" if "directory" in columns else "''"
        rows = database.execute(f"SELECT id, version, {folder} FROM session ORDER BY time_created")  # noqa: S608
        for session, version, directory in rows.fetchall():
            builder = ThreadBuilder()
            for message in _messages(database, session):
                _add_message(builder, *message)
            yield from from_threads(str(session), [builder], str(version), str(directory or ""))


def _messages(database: sqlite3.Connection, session: str) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Each message of a session with its parts, in order."""
    rows = database.execute("SELECT id, data FROM message WHERE session_id = ? ORDER BY time_created, id", (session,))
    for name, data in rows.fetchall():
        parts = database.execute("SELECT data FROM part WHERE message_id = ? ORDER BY id", (name,)).fetchall()
        if message := _object(data):
            yield message, [part for (inside,) in parts if (part := _object(inside))]


def _object(data: str) -> dict[str, Any] | None:
    try:
        value = json.loads(data)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _add_message(builder: ThreadBuilder, message: Json, parts: list[dict[str, Any]]) -> None:
    text = "\n".join(str(part.get("text") or "") for part in parts if part.get("type") == "text")
    if message.get("role") != "assistant":
        builder.add("user", text)
        return
    at_s = seconds((message.get("time") or {}).get("created"))
    if message.get("summary") is True:
        builder.add_summary(text, at_s=at_s)
        return
    tools = [part for part in parts if part.get("type") == "tool"]
    tokens = message.get("tokens") or {}
    cache = tokens.get("cache") or {}
    builder.add_answer(
        LoggedAnswer(
            text,
            [call_of(tool.get("tool"), (tool.get("state") or {}).get("input"), tool.get("callID")) for tool in tools],
            at_s=at_s,
            model=str(message.get("modelID") or ""),
            reasoning="\n".join(str(part.get("text") or "") for part in parts if part.get("type") == "reasoning"),
            input_tokens=sum(map(whole, (tokens.get("input"), cache.get("read"), cache.get("write")))),
        )
    )
    for tool in tools:
        state = tool.get("state") or {}
        builder.add_result(str(tool.get("callID")), state.get("output") or state.get("error"))


OPENCODE = SessionFormat(
    name="opencode",
    key="opencode",
    places=(".local/share/opencode/opencode*.db",),
    head_tokens=HEAD_TOKENS,
    recognises=recognises,
    read=read,
)
