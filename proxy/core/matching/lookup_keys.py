"""Keys under which a conversation is found again in a store, before anything of it is loaded.

Of an opening request, of a turn by its calls and words, of an answer by the id its provider gave it, of a prompt that a
call hands to a subagent. The law: **a key finds candidates and decides nothing**; call ids repeat across runs and
turns, and many agents open alike, so what a key finds is held against the content (`matching`).

What this module does not do: it stores no key and reads no store.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from itertools import chain

import msgspec

from proxy.core.ledger import Call, Ledger, Message, Request, Round, VisibleTurn, visible_calls, visible_turn

MIN_IDENTIFYING_CHARACTERS = 24
"""Characters an answer without calls must have to identify a conversation by itself."""
MIN_PROMPT_CHARACTERS = 8
"""Characters a text argument must have to be taken for a prompt: a pending call of the same tenant says the rest."""
MAX_ANCHOR_TURNS = 48
"""How many of a request's newest turns are used as anchors."""


def anchors_of(request: Request) -> Iterator[tuple[str, ...]]:
    """Keys under which the conversation of this request may be known, in groups, the most telling first: mostly the
    first group is enough, and the others are not made."""
    if not any(m.role == "assistant" for m in request.messages):
        yield (retry_anchor(request),)
        return
    yield (_first_turn_anchor(request.messages),)
    turns = [m for m in request.messages if m.role == "assistant"]
    yield tuple(dict.fromkeys(chain.from_iterable(map(_turn_anchors, reversed(turns[-MAX_ANCHOR_TURNS:])))))
    yield (_opening_anchor(request.messages),)


def opening_anchors(request: Request) -> tuple[str, ...]:
    """Keys to store when a conversation opens: for its retries, and for a follow-up whose answer was never stored."""
    if any(m.role == "assistant" for m in request.messages):
        return (_first_turn_anchor(request.messages), _opening_anchor(request.messages))
    return (retry_anchor(request), _opening_anchor(request.messages))


def anchors_of_turn(messages: Sequence[Message], rounds: Sequence[Round]) -> tuple[str, ...]:
    """Keys to store for a turn that ended: `messages` are the client's before it."""
    if not rounds:
        return ()
    shown = visible_turn(rounds)
    kept = _turn_anchors(shown)
    if any(m.role == "assistant" for m in messages):
        return kept
    opened = [_prefix_anchor(messages, identity) for identity in sorted(shown.echo_identities)]
    return (*opened, *kept)


def prompt_anchors_in(rounds: Sequence[Round]) -> tuple[str, ...]:
    """Keys of what a turn's client calls may delegate: every text argument long enough to be a prompt. A subagent's
    first message is the prompt, character for character (CLIENTS section 5)."""
    texts = (value for call in visible_calls(rounds) for value in _text_arguments(call))
    return tuple(dict.fromkeys(map(prompt_anchor, texts)))


def prompt_anchor(text: str) -> str:
    return "q" + sha256(text.strip().encode()).hexdigest()[:32]


def _text_arguments(call: Call) -> list[str]:
    try:
        arguments = msgspec.json.decode(call.arguments)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return []
    values = arguments.values() if isinstance(arguments, dict) else ()
    return [v for v in values if isinstance(v, str) and len(v.strip()) >= MIN_PROMPT_CHARACTERS]


def response_anchor(answer: str) -> str:
    """Of a turn, by the id the provider gave its answer."""
    return "i" + sha256(answer.encode()).hexdigest()[:32]


def delegating_turn(ledger: Ledger, text: str) -> str:
    """The newest turn with a call that delegates `text` and has no result yet; empty when there is none."""
    key = prompt_anchor(text)
    for turn in reversed(tuple(ledger.rounds)[-MAX_ANCHOR_TURNS:]):
        if turn not in ledger.parent_ids and key in prompt_anchors_in(ledger.rounds[turn]):
            return turn
    return ""


def delegating_call(rounds: Sequence[Round], text: str) -> Call | None:
    """The call of a turn that delegates `text`."""
    key = prompt_anchor(text)
    return next((call for call in visible_calls(rounds) if key in map(prompt_anchor, _text_arguments(call))), None)


def retry_anchor(request: Request) -> str:
    """Of all that is asked, byte for byte."""
    return "r" + request.digest[:32]


def _first_turn_anchor(messages: Sequence[Message]) -> str:
    """The chain up to and including the first assistant turn."""
    at = next(i for i, m in enumerate(messages) if m.role == "assistant")
    return _prefix_anchor(messages[:at], messages[at].identity)


def _opening_anchor(messages: Sequence[Message]) -> str:
    """The chain before the first assistant turn: many conversations may open alike, so it is asked last."""
    at = next((i for i, m in enumerate(messages) if m.role == "assistant"), len(messages))
    return _prefix_anchor(messages[:at], "")


def _prefix_anchor(before: Sequence[Message], first_answer: str) -> str:
    whole = "\n".join([m.identity for m in before] + [first_answer])
    return "p" + sha256(whole.encode()).hexdigest()[:32]


def _turn_anchors(turn: Message | VisibleTurn) -> tuple[str, ...]:
    told = ("s" + turn.identity,) if len(turn.text.strip()) >= MIN_IDENTIFYING_CHARACTERS else ()
    return (*map(_call_anchor, (c for c in turn.calls if c.id)), *told) if turn.calls else told


def _call_anchor(call: Call) -> str:
    return "c" + sha256(f"{call.id}\n{call.name}".encode()).hexdigest()[:32]
