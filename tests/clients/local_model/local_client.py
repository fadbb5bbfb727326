"""A client of a local model: it keeps its history, runs its one tool, and asks whole and streamed in turn."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.clients.local_model.model_server import ANSWER_LIMIT_S, Json, json_parts

READ_FILE = {
    "name": "read_file",
    "description": "Reads a file.",
    "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
}
TOOLS = [{"type": "function", "function": READ_FILE}]
FILE = "".join(f"The invoice of customer {number} is open.\n" for number in range(50))
"""Some 600 tokens, so that a history with two of it is worth folding."""
SHORT_FILE = "The invoice of customer 7 is open.\n"
MOST_ROUNDS = 3
"""Rounds of calls for one request of the user; a tiny model does not always find an end."""


def system(text: str = "Be brief.") -> Json:
    return {"role": "system", "content": text}


def user(text: str) -> Json:
    return {"role": "user", "content": text}


def answer(text: str) -> Json:
    return {"role": "assistant", "content": text}


def reads(*numbers: int) -> Json:
    """An answer that reads these files at once."""
    return {"role": "assistant", "content": None, "tool_calls": [_call(number) for number in numbers]}


def _call(number: int) -> Json:
    function = {"name": READ_FILE["name"], "arguments": json.dumps({"path": f"a{number}.txt"})}
    return {"id": f"call_{number}", "type": "function", "function": function}


def result(number: int, text: str = FILE) -> Json:
    return {"role": "tool", "tool_call_id": f"call_{number}", "content": text}


def files_were_read(*numbers: int) -> list[Json]:
    """A history to go on from: in each of its turns one file was read."""
    history = [system("You read files with the tool read_file.")]
    for number in numbers:
        history += [user(f"Read a{number}.txt."), reads(number), result(number), answer(f"I read a{number}.txt.")]
    return history


@dataclass(frozen=True, slots=True)
class Heard:
    """One answer as it reached the client."""

    status: int
    stack_status: str
    raw: bytes

    @property
    def is_complete(self) -> bool:
        """Whether the answer came to its end: it says why it ended, and a stream says that nothing follows."""
        ends = [choice.get("finish_reason") for part in self._parts for choice in part["choices"]]
        is_stream = not self.raw.startswith(b"{")
        return any(ends) and (not is_stream or self.raw.rstrip().endswith(b"data: [DONE]"))

    @property
    def message(self) -> Json:
        """The assistant's message, in the form it is sent back in."""
        text, calls = "", dict[int, Json]()
        for choice in (choice for part in self._parts for choice in part["choices"]):
            said = choice.get("message") or choice["delta"]
            text += said.get("content") or ""
            for at, piece in enumerate(said.get("tool_calls") or []):
                blank: Json = {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
                call = calls.setdefault(piece.get("index", at), blank)
                call["id"] += piece.get("id", "")
                for member, more in piece["function"].items():
                    call["function"][member] += more
        if calls:
            return {"role": "assistant", "content": text or None, "tool_calls": list(calls.values())}
        return answer(text)

    @property
    def _parts(self) -> list[Json]:
        return [json.loads(part) for part in json_parts(self.raw)]


def ask(url: str, messages: list[Json], **options: object) -> Heard:
    """Asks for a completion at this base URL, without chance in what is said."""
    wanted = {"model": "local", "messages": messages, "tools": TOOLS, "temperature": 0, **options}
    request = urllib.request.Request(f"{url}/chat/completions", json.dumps(wanted).encode())
    request.add_header("content-type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_LIMIT_S) as said:
            return Heard(said.status, said.headers.get("x-stack-status", ""), said.read())
    except urllib.error.HTTPError as refused:
        with refused:
            return Heard(refused.code, refused.headers.get("x-stack-status", ""), refused.read())


@dataclass(slots=True)
class LocalClient:
    """A client of the proxy at `url`."""

    url: str
    history: list[Json]
    heard: list[Heard] = field(default_factory=list)

    def says(self, text: str) -> Heard:
        """Says `text`, runs what the model calls, and gives the last answer."""
        self.history.append(user(text))
        for answered in self._rounds():
            calls = answered.message.get("tool_calls", [])
            self.history += [{"role": "tool", "tool_call_id": each["id"], "content": SHORT_FILE} for each in calls]
            if not calls:
                break
        return self.heard[-1]

    def _rounds(self) -> Iterator[Heard]:
        for _ in range(MOST_ROUNDS):
            answered = ask(self.url, self.history, max_tokens=40, stream=bool(len(self.heard) % 2))
            self.heard.append(answered)
            assert answered.status == 200, answered.raw
            self.history.append(answered.message)
            yield answered
