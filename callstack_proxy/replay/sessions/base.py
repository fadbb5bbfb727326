"""What a session log of a client says, whatever the client: the requests it made, in order, as chat completions.

A reader fills a `ThreadBuilder` from its format. A log rarely holds the client's system text and tools (the head),
which stand in every request; `head.py` adds them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec

Json = Mapping[str, Any]
NO_RESULT_TEXT = "(the log holds no result of this call)"
SUMMARY_REQUEST_TEXT = "Summarize the conversation so far, so that the work can go on from the summary."
"""Stands for the words with which a client asks for its summary; logs do not hold them."""
KEY_BYTES = 12
"""Of a request's key: of a hundred million requests no two are likely to share one."""
MILLISECONDS_ABOVE = 1e11
"""A time above this is in ms since the epoch, below in seconds."""


@dataclass(frozen=True, slots=True)
class LoggedRequest:
    """One request: the history is what stands before message `at`, since the last reset."""

    at: int
    answer: Json
    """An assistant message of chat completions."""
    at_s: float | None
    key: bytes = b""
    """The same in every copy of this request: clients that resume or fork a session write its beginning again."""


@dataclass(frozen=True, slots=True)
class Thread:
    """One line of work of a session: the main one, a subagent's, or one that began again at an earlier point.

    `resets` are messages from which the client resent only what follows. `first_input` is what the provider counted for
    the first request, in tokens, or None.
    """

    model: str
    messages: Sequence[Json]
    requests: Sequence[LoggedRequest]
    resets: Sequence[int] = ()
    tools: Sequence[Json] = ()
    first_input: int | None = None
    first_length: int = 0
    """How many messages `first_input` counts."""


@dataclass(frozen=True, slots=True)
class Session:
    """What one run of a client left behind. `id` is the client's own name for it, `folder` where it worked; empty where
    the log does not say."""

    id: str
    threads: Sequence[Thread]
    version: str = ""
    folder: str = ""

    @property
    def keys(self) -> Iterator[bytes]:
        """Of all its requests."""
        return (request.key for thread in self.threads for request in thread.requests)

    @property
    def started_s(self) -> float | None:
        """When the main thread began, in seconds since the epoch; None where the log does not say."""
        return next((one.at_s for thread in self.threads[:1] for one in thread.requests if one.at_s), None)


@dataclass(frozen=True, slots=True)
class LogSample:
    """The beginning of a file, by which a reader knows its own. `values` are the JSON values of its first lines, or the
    one value of the whole file; `tables` the tables of a SQLite database."""

    path: Path
    values: Sequence[Json] = ()
    tables: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class SessionFormat:
    """One client. `places` are patterns below the home directory, `head_tokens` the size of its head where a log cannot
    tell, and `api` is the API that the client speaks."""

    name: str
    key: str
    """As users name it with `--client`."""
    places: tuple[str, ...]
    head_tokens: int
    recognises: Callable[[LogSample], bool]
    read: Callable[[Path], Iterator[Session]]
    api: str = "chat"
    lists: tuple[str, ...] = ()
    """Names of files in `places` that list the sessions and are none."""


@dataclass(frozen=True, slots=True)
class LoggedAnswer:
    """An answer as a log tells it. `calls` are from `call_of`; `input_tokens` is what the provider counted for its
    request, 0 where that is not told; `id` is the provider's or the client's name for the answer, or empty."""

    text: str
    calls: Sequence[Json] = ()
    at_s: float | None = None
    model: str = ""
    reasoning: str = ""
    input_tokens: int = 0
    id: str = ""


@dataclass
class ThreadBuilder:
    """Collects the messages and requests of one thread in the order of the log."""

    model: str = ""
    tools: Sequence[Json] = ()
    first_input: int | None = None
    messages: list[Json] = field(default_factory=list)
    requests: list[LoggedRequest] = field(default_factory=list)
    resets: list[int] = field(default_factory=list)
    first_length: int = 0
    """How many messages `first_input` counts; 0 stands for those of the first request."""
    _open: dict[str, None] = field(default_factory=dict)
    """Calls without a result so far."""
    _models: Counter[str] = field(default_factory=Counter)
    _history: Any = field(default_factory=partial(blake2b, digest_size=KEY_BYTES))
    """A hash of the first `_hashed` messages, kept where answers have neither a name nor a time."""
    _hashed: int = 0

    def add(self, role: str, content: object) -> None:
        """A message that is neither an answer nor a result: user, system or developer."""
        if content:
            self._close_calls()
            self.messages.append({"role": role, "content": content})

    def add_answer(self, answer: LoggedAnswer, *, kept: bool = True) -> None:
        """A request and its answer. `kept`: the client's history goes on with the answer."""
        self._close_calls()
        if not self.messages:  # a log that was cut at its beginning
            return
        message: dict[str, Any] = {"role": "assistant", "content": answer.text or (None if answer.calls else "")}
        if answer.reasoning:
            message["reasoning_content"] = answer.reasoning
        if answer.calls:
            message["tool_calls"] = list(answer.calls)
        self._models[answer.model or self.model] += 1
        if not self.requests and answer.input_tokens:
            self.first_input = answer.input_tokens
        self.requests.append(LoggedRequest(len(self.messages), message, answer.at_s, self._key_of(answer, message)))
        if kept:
            self.messages.append(message)
            self._open.update(dict.fromkeys(call["id"] for call in answer.calls))

    def _key_of(self, answer: LoggedAnswer, message: Json) -> bytes:
        """By the answer's name, time and content; by the whole history where it has neither name nor time. The name
        alone would not do: local servers count their answers from 1 in every session."""
        named = [answer.id, str(answer.at_s), json.dumps(message, sort_keys=True)]
        if answer.id or answer.at_s is not None:
            return blake2b("\0".join(named).encode(errors="surrogatepass"), digest_size=KEY_BYTES).digest()
        for known in self.messages[self._hashed :]:
            self._history.update(json.dumps(known, sort_keys=True).encode())
        self._hashed = len(self.messages)
        whole_history = self._history.copy()
        whole_history.update(named[-1].encode())
        return bytes(whole_history.digest())

    def add_result(self, call: str, content: object) -> None:
        """The result of a call; one that no call is open for is left out, as a client would not send it."""
        if call in self._open:
            del self._open[call]
            self.messages.append({"role": "tool", "tool_call_id": call, "content": content or ""})

    def add_summary(self, summary: object, *, at_s: float | None = None) -> None:
        """The client's own compaction: a request for a summary, and a history that begins with it."""
        self._close_calls()
        if self.messages:
            self.messages.append({"role": "user", "content": SUMMARY_REQUEST_TEXT})
            self.add_answer(LoggedAnswer(text_in(summary), at_s=at_s), kept=False)
        self.resets.append(len(self.messages))
        self.add("user", summary)

    def branch(self, length: int) -> ThreadBuilder:
        """A new thread that begins with the first `length` messages of this one; its requests come later."""
        inside = [reset for reset in self.resets if reset < length]
        counted = self.first_length or (self.requests[0].at if self.requests else 0)
        return ThreadBuilder(self.model, self.tools, self.first_input, self.messages[:length], [], inside, counted)

    def finish(self) -> Iterator[Thread]:
        """The thread, unless no request of it is known."""
        self._close_calls()
        if self.requests:
            model = self._models.most_common(1)[0][0] or self.model
            tools = self.tools or [_bare_tool(name) for name in self._called_names()]
            counted = self.first_length or self.requests[0].at
            yield Thread(model, self.messages, self.requests, self.resets, tools, self.first_input, counted)

    def _close_calls(self) -> None:
        """Open calls get a result, because every API wants one."""
        for call in list(self._open):
            self.add_result(call, NO_RESULT_TEXT)

    def _called_names(self) -> list[str]:
        calls = (call for message in self.messages for call in message.get("tool_calls") or ())
        return list(dict.fromkeys(call["function"]["name"] for call in calls))


def _bare_tool(name: str) -> Json:
    """A tool of which only the name is known. What its definition takes is part of the head that is added."""
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}


def call_of(name: object, arguments: object, call_id: object) -> Json:
    """A call of chat completions; arguments may be an object or JSON text."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments if arguments is not None else {})
    return {"id": str(call_id), "type": "function", "function": {"name": str(name), "arguments": text}}


def tool_of(name: object, description: object, parameters: object) -> Json:
    """A tool definition of chat completions."""
    return {
        "type": "function",
        "function": {"name": str(name), "description": str(description or ""), "parameters": parameters or {}},
    }


def text_in(content: object) -> str:
    """The text of a content: a text, a block, or a list of either."""
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        return text_in(content.get("text") or content.get("content") or "")
    if isinstance(content, list):
        return "\n".join(text for part in content if (text := text_in(part)))
    return ""


def parts_in(content: object) -> object:
    """A content of blocks as chat completions write it: a text, or parts where there is a picture."""
    blocks = content if isinstance(content, list) else []
    if not any(isinstance(block, dict) and block.get("type") == "image" for block in blocks):
        return text_in(content)
    return [part for block in blocks if (part := _part(block))]


def _part(block: object) -> Json | None:
    if isinstance(block, dict) and block.get("type") == "image":
        source = block.get("source") or block
        kind, data = source.get("media_type") or source.get("mimeType") or "image/png", source.get("data")
        return {"type": "image_url", "image_url": {"url": source.get("url") or f"data:{kind};base64,{data}"}}
    text = text_in(block)
    return {"type": "text", "text": text} if text else None


def seconds(value: object) -> float | None:
    """A time of a log in seconds since the epoch: a number of seconds or ms, or ISO 8601."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value / 1000 if value > MILLISECONDS_ABOVE else float(value)
    if isinstance(value, str):
        try:
            return datetime.fromisoformat(value).timestamp()
        except ValueError:
            return None
    return None


def whole(value: object) -> int:
    """A count of tokens; 0 where it is missing or no number."""
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0


def objects(values: object) -> Iterator[dict[str, Any]]:
    """The objects of a list, which may be anything."""
    return (one for one in values if isinstance(one, dict)) if isinstance(values, list) else iter(())


def json_value(path: Path) -> Any:
    """The one JSON value of a file. Raises ValueError."""
    return json.loads(path.read_bytes())


def json_object(path: Path) -> dict[str, Any]:
    """The JSON object of a file. Raises ValueError."""
    value = json_value(path)
    if not isinstance(value, dict):
        raise ValueError("it is no object")  # noqa: TRY004 - a fault of the file, like one of its JSON
    return value


def json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a file, one on each line. A line that is no JSON is passed over: the last one of a session that
    was killed is often half written."""
    with path.open("rb") as file:
        for line in file:
            try:
                value = _parsed(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(value, dict):
                yield value


def _parsed(line: bytes) -> Any:
    """As `json.loads`, which takes what the fast reader refuses: `NaN`, and half a surrogate pair."""
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError):
        return json.loads(line)


def from_threads(
    session: str, builders: Iterable[ThreadBuilder], version: str = "", folder: str = ""
) -> Iterator[Session]:
    """The session, unless none of its threads made a request."""
    threads = [thread for builder in builders for thread in builder.finish()]
    if threads:
        yield Session(session, threads, version, folder)
