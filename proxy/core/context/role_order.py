"""Puts our texts where a model accepts them that is strict about the order of roles.

`append_notes_to_results` is for models that take no user message behind a tool result. `alternate_roles` is for chat
templates that want an answer in words between two user messages; calls and results do not count for them. A client's
own order of roles is never mended: without us the model would have got it too. Which model is strict is decided by
`context_form_for` in `proxy/exchange/thread/context_policy.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from functools import cached_property
from typing import Protocol

from proxy.core.ledger import ROUND_SEPARATOR, Message

LEFT_OUT_ANSWER = "(The answer that stood here has left this conversation; what was done is summarized above.)"
"""Stands for an answer that is not shown, where two of the client's messages would follow each other without it."""
LEFT_OUT_WORK = "(What was done here has left this conversation; it is summarized below.)"
"""Stands in front of a trace, because the message before it was sent already and has to stay as it is."""


class MessageJoiner(Protocol):
    """Writes joined messages in the wire format of the context."""

    def with_content(self, message: Message, text: str) -> Message: ...

    def joined(self, first: Message, second: Message) -> Message | None: ...

    def assistant_message(self, text: str) -> Message: ...


class AnswersLeftOut:
    """Whether an answer in words stands between two messages of a `history`, where they follow each other elsewhere.
    Positions are looked up at the first question: few contexts ask."""

    def __init__(self, history: Iterable[Message | None]) -> None:
        self._history = history

    @cached_property
    def _messages(self) -> list[Message | None]:
        return list(self._history)

    @cached_property
    def _positions(self) -> dict[int, int]:
        return {id(message): number for number, message in enumerate(self._messages)}

    def __call__(self, before: Message, after: Message) -> bool:
        first, last = self._positions.get(id(before), -1), self._positions.get(id(after), -1)
        between = self._messages[first + 1 : max(last, 0)] if first >= 0 else ()
        return any(message is not None and message.role == "assistant" and not message.calls for message in between)


def append_notes_to_results(
    messages: Iterable[Message], ours: Container[int], composer: MessageJoiner
) -> Iterable[Message]:
    """Append each of our notes (`ours` are Python ids of messages) to the tool result in front of it."""
    last: Message | None = None
    for message in messages:
        is_note = id(message) in ours and message.role == "user"
        if last and last.answers and is_note and not last.loaded_tools:  # a reference stands alone in its result
            last = composer.joined(last, message) or composer.with_content(
                last, f"{last.text}{ROUND_SEPARATOR}{message.text}"
            )
            continue
        if last:
            yield last
        last = message
    if last:
        yield last


def alternate_roles(
    messages: Sequence[Message],
    ours: Container[int],
    composer: MessageJoiner,
    answer_left_out: Callable[[Message, Message], bool] = lambda *_: False,
    traces: Container[int] = (),
) -> tuple[Message, ...]:
    """The messages with ours (Python ids) joined to the tool result or user message beside them; `traces` follow
    `LEFT_OUT_WORK` instead.

    `answer_left_out` says whether the client had an answer in words between two of its user messages that is not in
    `messages`. They are joined then, or `LEFT_OUT_ANSWER` stands between them where calls do.
    """
    placed: list[Message] = []
    user: Message | None = None
    """The client's newest user message since the last answer in words."""
    ours_waits = False
    """A user message of ours stands by itself, and no answer in words followed."""
    for message in messages:
        if message.role != "user" or message.answers:
            if message.role == "assistant" and not message.calls:
                user, ours_waits = None, False
            placed.append(message)
            continue
        last = placed[-1] if placed else None
        if id(message) in traces and last is not None:
            if last.role != "assistant" or last.calls:
                placed.append(composer.assistant_message(LEFT_OUT_WORK))
            placed.append(message)
            user, ours_waits = None, True
            continue
        is_ours = id(message) in ours
        is_second = not is_ours and (ours_waits or (user is not None and answer_left_out(user, message)))
        wants_place = last is not None and (last.role == "user" or (is_ours and bool(last.answers)))
        joined = composer.joined(last, message) if last and wants_place and (is_ours or is_second) else None
        if joined is not None:
            placed[-1] = joined
        else:
            if is_second and not wants_place:
                placed.append(composer.assistant_message(LEFT_OUT_ANSWER))
            placed.append(message)
            ours_waits = ours_waits or is_ours
        if not is_ours:
            user, ours_waits = message, False
    return tuple(placed)
