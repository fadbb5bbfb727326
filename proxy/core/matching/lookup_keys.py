"""Keys to find a conversation in the store before it is loaded: of an opening request, of a turn by its calls and text,
of an answer by the provider's id, of a prompt that a call delegates. A key finds candidates only, because call ids
repeat and many agents open alike; `match_history` compares the content."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import chain

import msgspec

from proxy.core.ledger import Call, Ledger, Message, Request, Round, VisibleTurn, visible_calls, visible_turn

MIN_IDENTIFYING_CHARACTERS = 24
"""An answer without calls identifies a conversation only if it is at least this long."""
MAX_PROMPT_CHARACTERS = 256 * 1024
"""Characters of a prompt that its key is made of."""
MIN_PROMPT_CHARACTERS = 8
"""Shorter text arguments are no prompts. It may be low: the call must be pending, of the same tenant."""
MAX_ANCHOR_TURNS = 48
"""The newest turns of a request that are used as anchors."""


def anchors_of(request: Request) -> Iterator[tuple[str, ...]]:
    """Keys of a request's conversation in groups, most telling first, made lazily: the first group mostly suffices."""
    if not any(m.role == "assistant" for m in request.messages):
        yield (retry_anchor(request),)
        return
    yield (_opening_anchor(request.messages, with_answer=True),)
    turns = [m for m in request.messages if m.role == "assistant"]
    yield tuple(dict.fromkeys(chain.from_iterable(map(_turn_anchors, reversed(turns[-MAX_ANCHOR_TURNS:])))))
    yield (_opening_anchor(request.messages),)


def opening_anchors(request: Request) -> tuple[str, ...]:
    """Keys to store when a conversation opens: for retries, and for a follow-up to an answer that was not stored."""
    if any(m.role == "assistant" for m in request.messages):
        return (_opening_anchor(request.messages, with_answer=True), _opening_anchor(request.messages))
    return (retry_anchor(request), _opening_anchor(request.messages))


def anchors_of_turn(messages: Sequence[Message], rounds: Sequence[Round]) -> tuple[str, ...]:
    """Keys to store for a finished turn; `messages` are the client's messages before it."""
    if not rounds:
        return ()
    visible = visible_turn(rounds)
    turn_anchors = _turn_anchors(visible)
    if any(m.role == "assistant" for m in messages):
        return turn_anchors
    opening = [_prefix_anchor(messages, identity) for identity in sorted(visible.echo_identities)]
    return (*opening, *turn_anchors)


def prompt_anchors_in(rounds: Sequence[Round]) -> tuple[str, ...]:
    """Keys of all text arguments of a turn's client calls that may be prompts. A subagent's first message is its
    prompt, character for character (CLIENTS section 5)."""
    texts = (value for call in visible_calls(rounds) for value in _text_arguments(call))
    return tuple(dict.fromkeys(map(prompt_anchor, texts)))


def prompt_anchor(text: str) -> str:
    """Of a very long text, such as one with a picture in it, only the beginning and the length count."""
    words = text.strip()
    if len(words) > MAX_PROMPT_CHARACTERS:
        words = f"{words[:MAX_PROMPT_CHARACTERS]}\n{len(words)}"
    return "q" + sha256(words.encode()).hexdigest()[:32]


def _text_arguments(call: Call) -> list[str]:
    try:
        arguments = msgspec.json.decode(call.arguments)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return []
    values = arguments.values() if isinstance(arguments, dict) else ()
    return [v for v in values if isinstance(v, str) and len(v.strip()) >= MIN_PROMPT_CHARACTERS]


def side_answer_anchors(request: Request, answers: Sequence[Message]) -> tuple[str, ...]:
    """Keys of answers given beside a thread, to `request` or to one with its system text or its tools."""
    tools = "\n".join(sorted(request.tool_names))
    looks = (f"system {request.system_hash}", *([f"tools {tools}"] if tools else []))
    newest = dict.fromkeys(m.identity for m in answers[-MAX_ANCHOR_TURNS:])
    return tuple("o" + sha256(f"{look}\n{identity}".encode()).hexdigest()[:32] for identity in newest for look in looks)


def response_anchor(answer: str) -> str:
    """Key of a turn by the provider's id of its answer."""
    return "i" + sha256(answer.encode()).hexdigest()[:32]


def delegating_turn(ledger: Ledger, text: str) -> str:
    """The newest turn with a pending call that delegates `text`; empty if there is none."""
    key = prompt_anchor(text)
    for turn in reversed(tuple(ledger.rounds)[-MAX_ANCHOR_TURNS:]):
        if turn not in ledger.parent_ids and key in prompt_anchors_in(ledger.rounds[turn]):
            return turn
    return ""


def delegating_call(rounds: Sequence[Round], text: str) -> Call | None:
    """The call among `rounds` that delegates `text`."""
    key = prompt_anchor(text)
    return next((call for call in visible_calls(rounds) if key in map(prompt_anchor, _text_arguments(call))), None)


def delegated_text(calls: Iterable[Call], user_texts: Iterable[str]) -> str:
    """The longest text argument of these calls that stands in one of `user_texts`; empty if there is none. A fork is
    told its prompt among rules of its client."""
    arguments = {text.strip() for call in calls for text in _text_arguments(call)}
    texts = tuple(user_texts)
    return max((argument for argument in arguments if any(argument in text for text in texts)), key=len, default="")


def retry_anchor(request: Request) -> str:
    """Key of a whole request, byte for byte."""
    return "r" + request.digest[:32]


def _opening_anchor(messages: Sequence[Message], *, with_answer: bool = False) -> str:
    """The messages before the first assistant message, or with it. Without it many conversations open alike, so that is
    tried last."""
    index = next((i for i, m in enumerate(messages) if m.role == "assistant"), len(messages))
    return _prefix_anchor(messages[:index], messages[index].identity if with_answer else "")


def _prefix_anchor(before: Sequence[Message], first_answer: str) -> str:
    whole = "\n".join([m.identity for m in before] + [first_answer])
    return "p" + sha256(whole.encode()).hexdigest()[:32]


def _turn_anchors(turn: Message | VisibleTurn) -> tuple[str, ...]:
    text_anchor = ("s" + turn.identity,) if len(turn.text.strip()) >= MIN_IDENTIFYING_CHARACTERS else ()
    calls = ("c" + sha256(f"{call.id}\n{call.name}".encode()).hexdigest()[:32] for call in turn.calls if call.id)
    return (*calls, *text_anchor)
