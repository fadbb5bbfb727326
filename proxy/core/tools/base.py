"""What a stack tool works with: values in, an outcome out.

A tool is a function of a `Desk` (everything it may look at) and its arguments, and returns an `Outcome`: events, and
the text that the model reads as the result. A mistake by the model is text that begins with "Error" and says what to
do; it is never an exception that reaches the client.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from proxy.core.compaction import CachePrices
from proxy.core.context import FLAT_FORMAT, BlockFormat
from proxy.core.frames import FrameEvent, OpeningCall, PathState, Tree
from proxy.core.ledger import Ledger
from proxy.core.observers import DEFAULT_TOOL_ROLES, ToolRoles
from proxy.core.policy import AutonomyRules
from proxy.core.recall import StoredPiece

UNBOUNDED = 1 << 62
UNKNOWN_PRICES = CachePrices(0.1, 1.0)
"""Of a model that nobody knows."""
MAX_DIGITS = 18
"""More of them are beyond every bound, however they go on."""
_BOOLEAN_WORDS = {"true": True, "false": False}


class ToolError(Exception):
    """The model asked for something that cannot be done; the message tells it what to do instead."""


class FrameBlockBudgets(msgspec.Struct, frozen=True):
    """Tokens for the frame block and its parts (S1-48 to S1-51); `total` bounds the whole of it, tags included."""

    total: int = 4000
    ancestors: int = 1500
    siblings: int = 1500
    current: int = 800


class SubagentRules(msgspec.Struct, frozen=True):
    """How subagents are tracked. Times are milliseconds."""

    enabled: bool = True
    min_duration: int = 60_000
    min_messages: int = 3
    idle_delay: int = 300_000
    auto_complete: bool = True
    patterns: tuple[str, ...] = ()
    parent_context: bool = False
    model_may_configure: bool = False


class ToolSettings(msgspec.Struct, frozen=True):
    """What of the configuration the tools need. `recall_page` and `recall_call` are tokens."""

    budgets: FrameBlockBudgets = msgspec.field(default_factory=FrameBlockBudgets)
    child_view: str = "fork"
    isolate_above_tokens: int = 60_000
    """Tokens of the parent's line, with `child_view: auto`."""
    max_depth: int = 10
    recall_page_tokens: int = 2000
    recall_call_tokens: int = 8000
    keep_siblings: int = 3
    checkpoint_at_push: bool = False
    autonomy: AutonomyRules = msgspec.field(default_factory=AutonomyRules)
    subagents: SubagentRules = msgspec.field(default_factory=SubagentRules)
    tool_roles: ToolRoles = DEFAULT_TOOL_ROLES
    """Which tool of which client is for what."""
    block_format: BlockFormat = FLAT_FORMAT
    """How the block of a frame is written for the model that is asked."""


class CallGroup(msgspec.Struct, frozen=True):
    """What has happened so far in the group of calls at hand.

    `alone`: every call of the group is a stack call. `home` is the frame it was made in. `opened`: the frame that a
    push or activate began. `returned`: the frame it was made in has ended, and the group has left the line, so that a
    push after it hangs on the call that opened what ended last.
    """

    has_only_stack_calls: bool
    home_frame: str
    opened_frame: str = ""
    returned_opening: OpeningCall | None = None


class CrossConversationHits(msgspec.Struct, frozen=True):
    """Finished frames of other conversations that a query found, the best first, as texts to recall. `whole`: each has
    all its words."""

    pieces: tuple[StoredPiece, ...]
    has_all_words: bool


class ToolContext(msgspec.Struct, frozen=True):
    """`path_state` is the path up to this round, earlier calls of the group included; `on_line` are the entries the
    model sees now. `turn`, `call` (a `call_key`) and `number` name the call: `number` counts the calls of the whole
    turn from 0. `now` is ms since the epoch."""

    path_state: PathState
    ledger: Ledger
    call_group: CallGroup
    turn_id: str
    call_key: str
    call_number: int
    now: int
    nonce: str
    count_tokens: Callable[[str], int]
    settings: ToolSettings = msgspec.field(default_factory=ToolSettings)
    visible_entries: frozenset[str] = frozenset()
    recallable_tokens: int = UNBOUNDED
    """Tokens that may still be recalled in this turn."""
    free_tokens: int = UNBOUNDED
    """Tokens that the window still has room for, once all that may leave the line has left it."""
    related_ledgers: tuple[Ledger, ...] = ()
    """Conversations of the same tenant that this one was delegated to, or came from."""
    cross_conversation_hits: Mapping[str, CrossConversationHits] = msgspec.field(default_factory=dict)
    """What queries found in other conversations of the same tenant, by query; nothing where that is off."""
    prices: CachePrices = UNKNOWN_PRICES
    """Of the model that is asked."""
    window_tokens: int = 0
    """Tokens that the model holds; 0 where nobody knows."""

    @property
    def tree(self) -> Tree:
        return self.path_state.tree


class ToolResult(msgspec.Struct, frozen=True):
    """Events in the order they happen, and what the model is told. `group` is the group after this call, where it
    changed; `settings` are keys of `subagent` to be set for everybody, where that can be."""

    text: str
    events: tuple[FrameEvent, ...] = ()
    call_group: CallGroup | None = None
    subagent_settings: Mapping[str, Any] = msgspec.field(default_factory=dict)


class Tool(msgspec.Struct, frozen=True):
    """`op` is its name behind the dispatcher; `core` tools are offered by themselves, and those that are not `listed`
    are only offered where every tool is: they are for people rather than for the model. What one that `fits` answers
    keeps to the room there is, and may not be cut."""

    name: str
    op: str
    description: str
    parameters: Mapping[str, Any]
    run: Callable[[ToolContext, Mapping[str, Any]], ToolResult]
    is_core: bool = False
    is_listed: bool = True
    limits_own_length: bool = False


def text_argument(arguments: Mapping[str, Any], *names: str, required: str = "") -> str:
    """The first of the arguments that is there, as text. `required` says what to do when none is."""
    for name in names:
        value = arguments.get(name)
        if isinstance(value, str) and value.strip():
            return value.strip()
        if isinstance(value, int | float) and not isinstance(value, bool):
            return str(value)
    if required:
        raise ToolError(required)
    return ""


def flag_argument(arguments: Mapping[str, Any], name: str, *, default: bool = False) -> bool:
    """Yes or no, also as the word for it, as some models write it; `default` where it is left out. Raises Mistake."""
    value = arguments.get(name)
    if isinstance(value, str):
        value = _BOOLEAN_WORDS.get(value.strip().lower(), value)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise ToolError(f"Error: {name} must be true or false.")
    return value


def integer_argument(arguments: Mapping[str, Any], name: str, wanted: str = "a whole number") -> int | None:
    """A whole number, also in digits as a text; None where it is left out. Raises Mistake, which says what is
    `wanted`."""
    value = arguments.get(name)
    if isinstance(value, str) and value.strip().isdecimal():
        value = int(value.strip()[:MAX_DIGITS])
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise ToolError(f"Error: {name} must be {wanted}.")
