"""The answers of every dialect, as the laws that hold in all of them need them: a new dialect is one more entry.

The law: **an entry holds no check**. What is checked stands once, in `test_every_answer.py`; what holds in one dialect
alone is tested beside that dialect.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proxy.dialects import (
    ANTHROPIC_MESSAGES,
    OPENAI_CHAT,
    OPENAI_RESPONSES,
    Dialect,
    ParseCache,
    ResponseWriter,
)
from tests.dialects import chat_streams as chat
from tests.dialects import messages_streams as messages
from tests.dialects import responses_streams as responses
from tests.dialects.messages_streams import FOUND, OVERLOADED, SIGNED
from tests.dialects.playing import StreamResult

AT_LAST = b'{"error": {"message": "overloaded"}}'
NOTHING_OF_OURS = (AT_LAST, b'{"object": "odd" }', b"[]", b"", b"{oops")
"""Whole replies that pass in any dialect."""


@dataclass(frozen=True)
class DialectCase:
    """One dialect."""

    dialect: Dialect
    asked: Mapping[str, Any]
    """A request, less whether it wants a stream."""
    play: Callable[..., StreamResult]
    plays: Sequence[Mapping[str, Any]]
    """How else an answer may be wanted: more arguments of `play`."""

    # ------------------------------------------------------------------------------------------------------- streams
    stack_free: Mapping[str, bytes]
    mixed: bytes
    """Words, calls of the client's and of ours."""
    hidden: bytes
    """The word A and a call of ours: a first round."""
    goes_on: Sequence[bytes]
    """Rounds that another follows."""
    last: Sequence[bytes]
    """Rounds that none follows."""
    words: bytes
    """A third round that says B."""
    long: Callable[[], bytes]
    """With a line of 10 MB."""
    finish: str
    """Why an answer ends that calls nothing."""
    failing: Mapping[str, bytes]
    """Replies with an error in them."""
    lost: Mapping[str, bytes]
    """Second rounds that fail before a word of theirs."""
    terminator: bytes
    """The end of a stream alone, without an answer."""
    texts: Callable[[bytes], list[str]]
    """What a strict client reads in the rounds of a stream."""
    ended: Callable[[bytes], bool]
    """Whether a strict client was told one regular end."""

    # ----------------------------------------------------------------------------------------------------- not streams
    bodies: Sequence[bytes]
    """Whole answers without a call of ours."""
    said: bytes
    """A whole answer that says something."""
    called: bytes
    """The word A and a call of ours, whole."""
    error: bytes
    """What the provider says instead of an answer."""

    def answer(self, *, stream: bool = True) -> ResponseWriter:
        """Nothing of it is written yet."""
        request = self.dialect.parse_request(json.dumps({**self.asked, "stream": stream}).encode(), ParseCache())
        return self.dialect.new_response_writer(request, intercept=True)


HI = {"role": "user", "content": "hi"}
OVERLOADED_CHUNK = chat.sse({"error": {"message": "overloaded"}})
CHAT = DialectCase(
    OPENAI_CHAT,
    asked={"model": "m", "messages": [HI], "stream_options": {"include_usage": True}},
    play=chat.play,
    plays=({"wants_usage": True}, {"wants_usage": False}),
    stack_free=chat.STACK_FREE,
    mixed=chat.MIXED,
    hidden=chat.hidden_round("A"),
    goes_on=(chat.hidden_round("Go.", of="1"), chat.hidden_round(of="2"), chat.hidden_round("\n", "On.", of="3")),
    last=(chat.MIXED, chat.text_round("B", "C", of="4"), chat.hidden_round("End.", of="5")),
    words=chat.text_round("B", of="3"),
    long=lambda: chat.text_round("x" * 10_000_000, "y"),
    finish="stop",
    failing={
        "in_a_chunk": chat.role()
        + chat.sse({"id": "x", "choices": [], "error": {"code": 502, "message": "provider failed"}})
        + chat.DONE,
        "alone": OVERLOADED_CHUNK,
        "terminator_alone": chat.DONE,
    },
    lost={"alone": OVERLOADED_CHUNK},
    terminator=chat.DONE,
    texts=lambda stream: chat.client(stream).text.split("\n\n"),
    ended=lambda stream: chat.client(stream).done == 1,
    bodies=(chat.plain("hi"), chat.plain(None, ("bash", "{}"))),
    said=chat.plain("hello"),
    called=chat.plain("A", ("stack_recall", "{}")),
    error=b'{"error":{"message":"overloaded"}}',
)

THOUGHT = messages.start("2") + messages.thinking(0, "hm")
MESSAGES = DialectCase(
    ANTHROPIC_MESSAGES,
    asked={"model": "m", "max_tokens": 9, "messages": [HI]},
    play=messages.play,
    plays=({},),
    stack_free=messages.STACK_FREE,
    mixed=messages.MIXED,
    hidden=messages.hidden_round("A"),
    goes_on=(messages.hidden_round("Go.", of="1"), messages.hidden_round(of="2"), messages.SPOKEN_FIRST),
    last=(
        messages.MIXED,
        messages.text_round("B", "C", of="4"),
        messages.SEARCHED,
        messages.hidden_round("End.", of="5"),
    ),
    words=messages.text_round("B", of="3"),
    long=lambda: messages.text_round("x" * 10_000_000, "y"),
    finish="end_turn",
    failing={
        "begun": messages.start() + OVERLOADED,
        "alone": OVERLOADED,
        "terminator_alone": messages.event("message_stop"),
    },
    lost={"in_thoughts": THOUGHT + OVERLOADED},
    terminator=messages.event("message_stop"),
    texts=lambda stream: messages.client(stream).texts,
    ended=lambda stream: messages.client(stream).ends[1:] == ["stop"],
    bodies=(
        messages.plain(messages.said("hi")),
        messages.plain(SIGNED, messages.used("bash")),
        messages.plain(messages.said(""), messages.said("\n")),
        messages.plain(FOUND, reason="pause_turn"),
        b'{"content": 7, "stop_reason": "end_turn"}',
        b'{"content": [7, "a", null]}',
        messages.FAILED,
    ),
    said=messages.plain(messages.said("hello")),
    called=messages.plain(messages.said("A"), messages.used("stack_recall")),
    error=messages.FAILED,
)

SAID_A = responses.message("A")
LOST = responses.events_of(responses.thought("lost"), of=2)[:-1]
FAULTS = {"error": responses.ERROR, "failed": responses.FAILED}
RESPONSES = DialectCase(
    OPENAI_RESPONSES,
    asked={"model": "m", "input": "hi"},
    play=responses.play,
    plays=({},),
    stack_free=responses.STACK_FREE,
    mixed=responses.MIXED,
    hidden=responses.round_(SAID_A, responses.hidden()),
    goes_on=(
        responses.round_(responses.message("Go."), responses.hidden()),
        responses.round_(responses.thought("Hm."), responses.hidden("2"), of=2),
        responses.round_(responses.message("On.", id_="msg_3"), responses.hidden("3", "{}", "stack"), of=3),
    ),
    last=(
        responses.MIXED,
        responses.words("B", "C", of=4),
        responses.round_(responses.message("End.", id_="msg_5"), responses.hidden("5"), of=5),
    ),
    words=responses.words("B", of=3),
    # The words come again in every event that ends something: 15 MB in all.
    long=lambda: responses.round_(responses.message("x" * 3_000_000), responses.message("y", id_="msg_2")),
    finish="completed",
    failing={name: responses.numbered([*responses.events_of(SAID_A)[:5], fault]) for name, fault in FAULTS.items()},
    lost={name: responses.numbered([*LOST, fault]) for name, fault in FAULTS.items()},
    terminator=responses.DONE,
    texts=lambda stream: responses.client(stream).text,
    ended=lambda stream: responses.client(stream).ends == ["completed"],
    bodies=(
        responses.plain(responses.message("hi"), responses.call()),
        responses.plain(responses.thought("a"), responses.search(), responses.spoken_thought("b")),
        responses.plain(responses.message("half"), status="incomplete"),
        responses.plain(status="in_progress"),
        responses.plain(status="failed", error={"code": "server_error", "message": "x"}),
        b'{"object": "response", "output": null}',
        b'{"output": [1, {"type": null}, "x"]}',
    ),
    said=responses.plain(responses.message("hello")),
    called=responses.plain(SAID_A, responses.hidden()),
    error=b'{"error": {"message":"overloaded"}}',
)

FORMS = {"chat": CHAT, "messages": MESSAGES, "responses": RESPONSES}
"""By the short name of the dialect."""
