"""The agent of the demo: an ordinary OpenAI client with file, shell and todo tools, working in one folder.

It knows nothing of frames or of a proxy: it sends its whole history each time, runs the tools it is asked for, and
appends their results. Three of four requests are streamed. Tools act only below its folder, and the shell runs only
`python`. The folder's path and durations are removed from outputs, so results are the same on every machine.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

REQUEST_TIMEOUT_S = 60
COMMAND_TIMEOUT_S = 60
UNSTREAMED_EVERY = 4
_DURATION = re.compile(r"\bin \d+\.\d+s")


class AgentError(Exception):
    """The agent cannot go on; the message says why."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    id: str
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AgentAnswer:
    """One answer as the client got it. `raw` is the body, `seconds` the time it took."""

    text: str
    calls: tuple[ToolCall, ...]
    finish: str
    headers: Mapping[str, str]
    raw: bytes
    seconds: float


# --------------------------------------------------------------------------------------------------------------- tools
def _tool(name: str, description: str, **properties: Any) -> dict[str, Any]:
    parameters = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


_PATH = {"type": "string", "description": "Path relative to the project folder"}
TOOLS = [
    _tool(
        "read_file",
        "Read a text file of the project. The result has a line number and a tab before every line; neither is part "
        "of the file. Read a file before you edit it.",
        path=_PATH,
    ),
    _tool(
        "write_file",
        "Create a file, or replace all of it. Folders are created as needed. Prefer edit_file for small changes.",
        path=_PATH,
        content={"type": "string", "description": "The whole new content"},
    ),
    _tool(
        "edit_file",
        "Replace one piece of a file by another. The old piece must stand in the file exactly once, white space "
        "included; take in enough lines around it to make it unique.",
        path=_PATH,
        old={"type": "string", "description": "The piece to replace, exactly as it stands there"},
        new={"type": "string", "description": "What stands there afterwards"},
    ),
    _tool("list_files", "All files below a folder, one path a line, with their size in bytes.", path=_PATH),
    _tool(
        "search",
        "Lines that match a regular expression in all files below a folder, as path:line: text.",
        pattern={"type": "string", "description": "A Python regular expression"},
        path=_PATH,
    ),
    _tool(
        "shell",
        "Run a command in the project folder and return what it printed and its exit code. Use it for tests and "
        "scripts; there is no network.",
        command={"type": "string"},
    ),
    _tool(
        "todo_write",
        "Replace the todo list that the user sees. Keep exactly one item in progress while you work.",
        items={
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "content": {"type": "string"},
                    "status": {"type": "string", "enum": ["pending", "in_progress", "completed"]},
                },
                "required": ["content", "status"],
            },
        },
    ),
]


def number_lines(text: str) -> str:
    """`text` with line numbers, as `read_file` shows a file."""
    return "\n".join(f"{number:>5}\t{line}" for number, line in enumerate(text.splitlines(), 1))


class Workbench:
    """The tools of the agent, acting in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()
        self.todo: list[Mapping[str, str]] = []
        self._tools: Mapping[str, Callable[..., str]] = {
            "read_file": self._read,
            "write_file": self._write,
            "edit_file": self._edit,
            "list_files": self._list,
            "search": self._search,
            "shell": self._shell,
            "todo_write": self._write_todo,
        }

    def run(self, call: ToolCall) -> str:
        """The result of a call. A mistake of the model gives a sentence that says so."""
        tool = self._tools.get(call.name)
        if tool is None:
            return f"Error: there is no tool {call.name!r}."
        try:
            return tool(**call.arguments)
        except (OSError, ValueError, TypeError) as error:
            return f"Error: {self._machine_independent(str(error))}"

    def _resolve(self, path: str) -> Path:
        found = (self._folder / path).resolve()
        if not found.is_relative_to(self._folder):
            raise ValueError(f"{path} lies outside of the project")
        return found

    def _read(self, path: str) -> str:
        return number_lines(self._resolve(path).read_text(encoding="utf-8"))

    def _write(self, path: str, content: str) -> str:
        target = self._resolve(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content, encoding="utf-8")
        return f"Wrote {path}: {len(content.splitlines())} lines."

    def _edit(self, path: str, old: str, new: str) -> str:
        target = self._resolve(path)
        text = target.read_text(encoding="utf-8")
        if text.count(old) != 1:
            raise ValueError(f"the old piece stands {text.count(old)} times in {path}, not once")
        target.write_text(text.replace(old, new), encoding="utf-8")
        return f"Edited {path}: one piece replaced."

    def _list(self, path: str) -> str:
        return "\n".join(f"{name}  {file.stat().st_size}" for name, file in self._files(path))

    def _search(self, pattern: str, path: str) -> str:
        expression = re.compile(pattern)
        hits = [
            f"{name}:{number}: {line}"
            for name, file in self._files(path)
            for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
            if expression.search(line)
        ]
        return "\n".join(hits) or "No line matches."

    def _files(self, path: str) -> list[tuple[str, Path]]:
        below = (file for file in self._resolve(path).rglob("*") if file.is_file() and "__pycache__" not in file.parts)
        return sorted((file.relative_to(self._folder).as_posix(), file) for file in below)

    def _shell(self, command: str) -> str:
        program, *arguments = shlex.split(command)
        if program != "python":
            return f"{program}: command not found\n[exit code 127]"
        # Colours and byte code would make the output depend on the machine.
        quiet = {"PYTHONPATH": ".", "PYTHONDONTWRITEBYTECODE": "1", "NO_COLOR": "1", "PYTHON_COLORS": "0"}
        done = subprocess.run(  # noqa: S603 - one fixed program, arguments from the demo's own session
            [sys.executable, *arguments],
            cwd=self._folder,
            env={**os.environ, **quiet},
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
        return f"{self._machine_independent(done.stdout + done.stderr).strip()}\n[exit code {done.returncode}]"

    def _machine_independent(self, text: str) -> str:
        return _DURATION.sub("in 0.01s", text.replace(str(self._folder), "."))

    def _write_todo(self, items: list[Mapping[str, str]]) -> str:
        self.todo = items
        done = sum(item["status"] == "completed" for item in items)
        return f"Todo list updated: {done} of {len(items)} done."


# -------------------------------------------------------------------------------------------------------------- client
class Agent:
    """One conversation. `base_url` ends in `/v1`, as for any client."""

    def __init__(self, base_url: str, folder: Path, *, model: str, system: str, key: str = "demo") -> None:
        address = urlsplit(base_url)
        self._connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=REQUEST_TIMEOUT_S)
        self._path = f"{address.path.rstrip('/')}/chat/completions"
        self._model, self._key = model, key
        self.workbench = Workbench(folder)
        self.messages: list[dict[str, Any]] = [{"role": "system", "content": system}]
        self.requests = 0

    def close(self) -> None:
        self._connection.close()

    def add_user_message(self, user: str) -> None:
        self.messages.append({"role": "user", "content": user})

    def ask(self) -> AgentAnswer:
        """Send the whole history, and append the answer to it. Raises AgentError."""
        self.requests += 1
        stream = self.requests % UNSTREAMED_EVERY != 0
        body: dict[str, Any] = {"model": self._model, "messages": self.messages, "tools": TOOLS, "stream": stream}
        if stream:
            body["stream_options"] = {"include_usage": True}
        reply = self._send(json.dumps(body).encode(), stream=stream)
        calls = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": json.dumps(c.arguments)}}
            for c in reply.calls
        ]
        answer: dict[str, Any] = {"role": "assistant", "content": reply.text or None}
        self.messages.append({**answer, "tool_calls": calls} if calls else answer)
        return reply

    def run_calls(self, reply: AgentAnswer) -> None:
        """Run the calls of an answer and append their results, in their order."""
        for call in reply.calls:
            result = self.workbench.run(call)
            self.messages.append({"role": "tool", "tool_call_id": call.id, "content": result})

    def _send(self, body: bytes, *, stream: bool) -> AgentAnswer:
        began = time.perf_counter()
        sent = {"content-type": "application/json", "authorization": f"Bearer {self._key}"}
        try:
            self._connection.request("POST", self._path, body, sent)
            response = self._connection.getresponse()
            raw = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise AgentError(f"no answer: {type(error).__name__}: {error}") from error
        if response.status != http.client.OK:
            raise AgentError(f"status {response.status}: {raw[:500].decode('utf-8', 'replace')}")
        headers = {name.lower(): value for name, value in response.getheaders()}
        text, calls, finish = (_parse_stream if stream else _parse_whole)(raw)
        return AgentAnswer(text, calls, finish, headers, raw, time.perf_counter() - began)


ParsedAnswer = tuple[str, tuple[ToolCall, ...], str]


def _parse_whole(raw: bytes) -> ParsedAnswer:
    choice = json.loads(raw)["choices"][0]
    message = choice["message"]
    calls = tuple(_parse_call(c["id"], c["function"]) for c in message.get("tool_calls") or [])
    return message.get("content") or "", calls, choice["finish_reason"]


def _parse_stream(raw: bytes) -> ParsedAnswer:
    """The answer of a stream. Raises AgentError where its terminator is missing."""
    events = [line.removeprefix(b"data: ") for line in raw.splitlines() if line.startswith(b"data: ")]
    if not events or events[-1] != b"[DONE]":
        raise AgentError("the stream ended without its terminator")
    text, finish = "", ""
    calls: dict[int, dict[str, str]] = {}
    for choice in (choice for event in events[:-1] for choice in json.loads(event)["choices"]):
        delta = choice["delta"]
        text += delta.get("content") or ""
        finish = choice.get("finish_reason") or finish
        for part in delta.get("tool_calls") or []:
            call = calls.setdefault(part["index"], {"id": "", "name": "", "arguments": ""})
            call["id"] = part.get("id") or call["id"]
            call["name"] += part["function"].get("name") or ""
            call["arguments"] += part["function"].get("arguments") or ""
    return text, tuple(_parse_call(calls[index]["id"], calls[index]) for index in sorted(calls)), finish


def _parse_call(identity: str, function: Mapping[str, str]) -> ToolCall:
    try:
        arguments = json.loads(function["arguments"])
    except ValueError as error:
        raise AgentError(f"arguments of {function['name']} are not JSON: {function['arguments'][:200]}") from error
    return ToolCall(identity, function["name"], arguments)
