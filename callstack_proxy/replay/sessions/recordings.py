"""A logged session as a recording that can be replayed: all its threads, their requests in the order of time.

Few logs hold the head, the system text and tools that stood in every request. What is missing is made up for by words
that mean nothing, so that tokens and money are as they were. Its size is what the provider counted for the first
request, less what the log holds of that request; or, where a log has no such count, the usual size of the client's
head.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

from callstack_proxy.replay.api.base import RecordedConversation, ReplayApi
from callstack_proxy.replay.api.replay_api_list import APIS
from callstack_proxy.replay.recording import (
    ClockMode,
    Json,
    RecordedStep,
    Recording,
    RequestTimes,
    body_start_and_end,
    encode_json,
)
from callstack_proxy.replay.sessions.base import Session, SessionFormat, Thread, text_in
from callstack_proxy.replay.validation import head_length
from proxy.core.ledger import INSTRUCTION_ROLES

UNNAMED_MODEL = "not recorded"
MESSAGES_API_MODELS = "claude"
"""Models whose clients speak the messages API, whatever client it is."""
FILLER_WORD = " the"
"""One token of every tokenizer in use."""


@dataclass(frozen=True, slots=True)
class Head:
    """`text` is added to the system text. `assumed`: its tokens, where nothing in the log tells the size."""

    text: str
    assumed: int = 0


@dataclass(frozen=True, slots=True)
class SessionConverter:
    """Makes recordings of one client's sessions. `count` counts the tokens of a text. `model` and `dialect` replace
    those of the log. `copied` are keys of requests that were counted with another session."""

    known: SessionFormat
    count: Callable[[str], int]
    model: str = ""
    clock: ClockMode = "recorded"
    dialect: str = ""
    copied: Container[bytes] = ()

    def recording_of(self, session: Session) -> Recording:
        main, known = session.threads[0], self.known
        model = self.model or main.model or UNNAMED_MODEL
        api = APIS[self.dialect or ("messages" if MESSAGES_API_MODELS in model.lower() else known.api)]
        heads = [missing_head(thread, known, self.count) for thread in session.threads]
        found = [
            request
            for thread, head in zip(session.threads, heads, strict=True)
            for request in _requests_of(_with_head(thread, head.text), api, self.model)
        ]
        times = RequestTimes(self.clock)
        steps = [
            RecordedStep(
                each.before,
                each.messages,
                each.behind,
                each.answer,
                times.next(each.at_s),
                is_copy=each.key in self.copied,
            )
            for each in sorted(found, key=attrgetter("order"))
        ]
        return Recording(
            name=f"{known.key} {session.id}",
            model=model,
            steps=tuple(steps),
            dialect=api.name,
            client=known.name,
            started_s=session.started_s,
            assumed_head=max(head.assumed for head in heads),
            folder=session.folder,
        )


def _with_head(thread: Thread, text: str) -> Thread:
    """The thread with one more system message behind its head."""
    if not text:
        return thread
    at = head_length(thread.messages)
    messages = [*thread.messages[:at], {"role": "system", "content": text}, *thread.messages[at:]]
    requests = [type(one)(one.at + 1, one.answer, one.at_s, one.key) for one in thread.requests]
    return Thread(thread.model, messages, requests, [reset + 1 for reset in thread.resets], thread.tools)


class _Request(NamedTuple):
    """Its place in time, its time in seconds if known, its body in three parts, its answer and its key."""

    order: float
    at_s: float | None
    before: bytes
    messages: tuple[bytes, ...]
    behind: bytes
    answer: Json
    key: bytes


def _requests_of(thread: Thread, api: ReplayApi, model: str) -> Iterator[_Request]:
    messages = [_plain_role(message, at, head_length(thread.messages)) for at, message in enumerate(thread.messages)]
    model = model or thread.model or UNNAMED_MODEL
    written = api.write(RecordedConversation(model, messages, thread.tools, thread.resets))
    before, behind = body_start_and_end(model, written.others, api.messages_key)
    head, last = head_length(messages), 0.0
    for request in thread.requests:
        start = max([head, *(reset for reset in thread.resets if reset < request.at)])
        last = max(last, request.at_s or 0.0)
        if sent := written.messages_between(start, request.at):
            answer = api.answer_from_chat(request.answer)
            yield _Request(last, request.at_s, before, sent, behind, answer, request.key)


def _plain_role(message: Json, at: int, head: int) -> Json:
    """A system message behind the head keeps its role only in the APIs that know it there: it is told as the user's."""
    if at < head or message["role"] not in INSTRUCTION_ROLES:
        return message
    changed: dict[str, Any] = {**message, "role": "user"}
    return changed


def missing_head(thread: Thread, known: SessionFormat, count: Callable[[str], int]) -> Head:
    """What the log lacks of the head."""
    if thread.first_input:
        missing = thread.first_input - _tokens_of_first_request(thread, count)
        return Head(FILLER_WORD * max(0, missing))
    held = _tokens_of_head(thread, count)
    missing = max(0, known.head_tokens - held)
    return Head(FILLER_WORD * missing, missing)


def _tokens_of_head(thread: Thread, count: Callable[[str], int]) -> int:
    system = [text_in(m.get("content")) for m in thread.messages if m["role"] in ("system", "developer")]
    return sum(map(count, system[:1])) + count(encode_json(thread.tools).decode())


def _tokens_of_first_request(thread: Thread, count: Callable[[str], int]) -> int:
    """Counted roughly: what the tokens around messages take is part of what is made up for."""
    before = thread.messages[: thread.first_length]
    texts = [text_in(message.get("content")) for message in before]
    calls = [encode_json(calls).decode() for message in before if (calls := message.get("tool_calls"))]
    return sum(map(count, (*texts, *calls))) + (count(encode_json(thread.tools).decode()) if thread.tools else 0)
