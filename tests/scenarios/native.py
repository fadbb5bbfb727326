"""Clients that speak each API in its own words, for what the words of chat completions do not tell.

A client keeps what it got, block by block or item by item, and gives all of it back. What left for the provider is read
off `provider.received`; the provider checks each request as the real one does, so a request that the API forbids is a
400 in front of the test.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from llm_test_provider import ScriptedCall
from tests.wire.proxied import ServedProxy
from tests.wire.talking import ReceivedAnswer, ask

Json = dict[str, Any]
SCHEMA: Json = {"type": "object", "properties": {"command": {"type": "string"}}}
READABLE = "reasoning.encrypted_content"


@dataclass
class Native:
    """What both clients are: a history, members of the request that it sends each time, and headers."""

    proxy: ServedProxy
    model: str = "scripted-model"
    options: Json = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    history: list[Json] = field(default_factory=list)
    heard: ReceivedAnswer = field(default_factory=lambda: ReceivedAnswer(0, (), b""))

    path = ""

    def body(self) -> Json:
        raise NotImplementedError

    def keep(self, answer: Json) -> None:
        raise NotImplementedError

    def asks(self) -> Json:
        """One request with all of the history; the answer joins it."""
        self.heard = self._asked({})
        assert self.heard.status == 200, self.heard
        self.keep(self.heard.json)
        return dict(self.heard.json)

    def streams(self) -> list[Json]:
        """The same as a stream, of which nothing is kept: its events."""
        self.heard = self._asked({"stream": True})
        assert self.heard.status == 200, self.heard
        lines = self.heard.body.decode().split("\n")
        return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]

    def returns(self, *texts: str) -> Json:
        raise NotImplementedError

    def _asked(self, more: Json) -> ReceivedAnswer:
        body = json.dumps(self.body() | more, separators=(",", ":"))
        return ask(self.proxy.origin, body.encode(), path=self.path, headers=self.headers)

    def says(self, text: str) -> Json:
        self.history.append({"role": "user", "content": text})
        return self.asks()

    @property
    def status(self) -> str:
        return self.heard.told.partition(";")[0]

    @property
    def receipt(self) -> Json:
        """Of the newest request."""
        return dict(self.proxy.page("/stack/requests?limit=1")["requests"][0]["receipt"])


class Chat(Native):
    """As the clients of chat completions speak; reasoning is given back in plain words."""

    path = "/v1/chat/completions"

    def body(self) -> Json:
        tool = {"type": "function", "function": {"name": "bash", "description": "Runs it.", "parameters": SCHEMA}}
        told = [{"role": "system", "content": "You work."}, *self.history]
        return {"model": self.model, "tools": [tool], "messages": told} | self.options

    def keep(self, answer: Json) -> None:
        self.history.append(answer["choices"][0]["message"])

    def returns(self, *texts: str) -> Json:
        """Answers the calls of the newest message, in order."""
        calls = [call["id"] for call in self.history[-1]["tool_calls"]]
        self.history += [
            {"role": "tool", "tool_call_id": call, "content": text} for call, text in zip(calls, texts, strict=True)
        ]
        return self.asks()


class Messages(Native):
    """As Claude Code and the SDK speak. Results of a group travel in one user message."""

    path = "/v1/messages"

    def body(self) -> Json:
        tool = {"name": "bash", "description": "Runs a command.", "input_schema": SCHEMA}
        own = {"model": self.model, "max_tokens": 8_000, "system": "You work.", "tools": [tool]}
        return own | {"messages": self.history} | self.options

    def keep(self, answer: Json) -> None:
        self.history.append({"role": "assistant", "content": answer["content"]})

    def returns(self, *texts: str) -> Json:
        """Answers the calls of the newest message, in order."""
        calls = [block["id"] for block in self.history[-1]["content"] if block["type"] == "tool_use"]
        results = [
            {"type": "tool_result", "tool_use_id": call, "content": text}
            for call, text in zip(calls, texts, strict=True)
        ]
        self.history.append({"role": "user", "content": results})
        return self.asks()


class Responses(Native):
    """As Codex speaks: nothing is kept by the provider, and reasoning comes and goes encrypted."""

    path = "/v1/responses"

    def body(self) -> Json:
        tool = {"type": "function", "name": "bash", "description": "Runs a command.", "parameters": SCHEMA}
        own = {"model": self.model, "instructions": "You work.", "tools": [tool], "store": False}
        return own | {"include": [READABLE], "input": self.history} | self.options

    def keep(self, answer: Json) -> None:
        self.history += answer["output"]

    def returns(self, *texts: str) -> Json:
        """Answers the newest calls, in order."""
        answered = {item["call_id"] for item in self.history if item.get("type") == "function_call_output"}
        calls = [
            i["call_id"] for i in self.history if i.get("type") == "function_call" and i["call_id"] not in answered
        ]
        self.history += [
            {"type": "function_call_output", "call_id": call, "output": text}
            for call, text in zip(calls, texts, strict=True)
        ]
        return self.asks()


def bash(command: str = "ls") -> ScriptedCall:
    return ScriptedCall("bash", {"command": command})


def padded(text: str, words: int = 600) -> str:
    """A result that is worth folding."""
    return f"{text} " + " ".join(f"{text}-{n % 7}" for n in range(words))
