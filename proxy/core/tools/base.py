"""What a stack tool works with: values in, an outcome out.

A tool is a function of a `Desk` (everything it may look at) and its arguments, and returns an `Outcome`: events, and
the text that the model reads as the result. A mistake by the model is text that begins with "Error" and says what to
do; it is never an exception that reaches the client.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from proxy.core.compaction.cost_gate import Prices
from proxy.core.context.block_format import FLAT, Form
from proxy.core.frames.events import FrameEvent
from proxy.core.frames.path_state import Story
from proxy.core.frames.tree import Opening, Tree
from proxy.core.ledger.ledger import Ledger
from proxy.core.observers import NAMES, Names
from proxy.core.policy.autonomy_rules import Autonomy
from proxy.core.recall.stored_texts import Piece

UNBOUNDED = 1 << 62
UNKNOWN_PRICES = Prices(0.1, 1.0)
"""Of a model that nobody knows."""
MOST_DIGITS = 18
"""More of them are beyond every bound, however they go on."""
_WORDS = {"true": True, "false": False}


class Mistake(Exception):
    """The model asked for something that cannot be done; the message tells it what to do instead."""


class Budgets(msgspec.Struct, frozen=True):
    """Tokens for the frame block and its parts (S1-48 to S1-51); `total` bounds the whole of it, tags included."""

    total: int = 4000
    ancestors: int = 1500
    siblings: int = 1500
    current: int = 800


class Subagents(msgspec.Struct, frozen=True):
    """How subagents are tracked. Times are milliseconds."""

    enabled: bool = True
    min_duration: int = 60_000
    min_messages: int = 3
    idle_delay: int = 300_000
    auto_complete: bool = True
    patterns: tuple[str, ...] = ()
    parent_context: bool = False
    model_may_configure: bool = False


class Settings(msgspec.Struct, frozen=True):
    """What of the configuration the tools need. `recall_page` and `recall_call` are tokens."""

    budgets: Budgets = msgspec.field(default_factory=Budgets)
    child_view: str = "fork"
    isolate_above: int = 60_000
    """Tokens of the parent's line, with `child_view: auto`."""
    max_depth: int = 10
    recall_page: int = 2000
    recall_call: int = 8000
    keep_siblings: int = 3
    checkpoint_at_push: bool = False
    autonomy: Autonomy = msgspec.field(default_factory=Autonomy)
    subagents: Subagents = msgspec.field(default_factory=Subagents)
    names: Names = NAMES
    """Which tool of which client is for what."""
    form: Form = FLAT
    """How the block of a frame is written for the model that is asked."""


class Group(msgspec.Struct, frozen=True):
    """What has happened so far in the group of calls at hand.

    `alone`: every call of the group is a stack call. `home` is the frame it was made in. `opened`: the frame that a
    push or activate began. `returned`: the frame it was made in has ended, and the group has left the line, so that a
    push after it hangs on the call that opened what ended last.
    """

    alone: bool
    home: str
    opened: str = ""
    returned: Opening | None = None


class Elsewhere(msgspec.Struct, frozen=True):
    """Finished frames of other conversations that a query found, the best first, as texts to recall. `whole`: each has
    all its words."""

    pieces: tuple[Piece, ...]
    whole: bool


class Desk(msgspec.Struct, frozen=True):
    """`story` is the path up to this round, earlier calls of the group included; `on_line` are the entries the model
    sees now. `turn`, `call` (a `call_key`) and `number` name the call: `number` counts the calls of the whole turn
    from 0. `now` is ms since the epoch."""

    story: Story
    ledger: Ledger
    group: Group
    turn: str
    call: str
    number: int
    now: int
    nonce: str
    count: Callable[[str], int]
    settings: Settings = msgspec.field(default_factory=Settings)
    on_line: frozenset[str] = frozenset()
    recallable: int = UNBOUNDED
    """Tokens that may still be recalled in this turn."""
    room: int = UNBOUNDED
    """Tokens that the window still has room for, once all that may leave the line has left it."""
    beside: tuple[Ledger, ...] = ()
    """Conversations of the same tenant that this one was delegated to, or came from."""
    elsewhere: Mapping[str, Elsewhere] = msgspec.field(default_factory=dict)
    """What queries found in other conversations of the same tenant, by query; nothing where that is off."""
    prices: Prices = UNKNOWN_PRICES
    """Of the model that is asked."""
    window: int = 0
    """Tokens that the model holds; 0 where nobody knows."""

    @property
    def tree(self) -> Tree:
        return self.story.tree


class Outcome(msgspec.Struct, frozen=True):
    """Events in the order they happen, and what the model is told. `group` is the group after this call, where it
    changed; `settings` are keys of `subagent` to be set for everybody, where that can be."""

    text: str
    events: tuple[FrameEvent, ...] = ()
    group: Group | None = None
    settings: Mapping[str, Any] = msgspec.field(default_factory=dict)


class Tool(msgspec.Struct, frozen=True):
    """`op` is its name behind the dispatcher; `core` tools are offered by themselves, and those that are not `listed`
    are only offered where every tool is: they are for people rather than for the model. What one that `fits` answers
    keeps to the room there is, and may not be cut."""

    name: str
    op: str
    description: str
    parameters: Mapping[str, Any]
    run: Callable[[Desk, Mapping[str, Any]], Outcome]
    core: bool = False
    listed: bool = True
    fits: bool = False


def text_of(arguments: Mapping[str, Any], *names: str, required: str = "") -> str:
    """The first of the arguments that is there, as text. `required` says what to do when none is."""
    for name in names:
        value = arguments.get(name)
        if isinstance(value, str) and value.strip():
            return value.strip()
        if isinstance(value, int | float) and not isinstance(value, bool):
            return str(value)
    if required:
        raise Mistake(required)
    return ""


def flag_of(arguments: Mapping[str, Any], name: str, *, default: bool = False) -> bool:
    """Yes or no, also as the word for it, as some models write it; `default` where it is left out. Raises Mistake."""
    value = arguments.get(name)
    if isinstance(value, str):
        value = _WORDS.get(value.strip().lower(), value)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise Mistake(f"Error: {name} must be true or false.")
    return value


def whole_of(arguments: Mapping[str, Any], name: str, wanted: str = "a whole number") -> int | None:
    """A whole number, also in digits as a text; None where it is left out. Raises Mistake, which says what is
    `wanted`."""
    value = arguments.get(name)
    if isinstance(value, str) and value.strip().isdecimal():
        value = int(value.strip()[:MOST_DIGITS])
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise Mistake(f"Error: {name} must be {wanted}.")
