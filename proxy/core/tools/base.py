"""The values a stack tool works with. A tool is a function of a `ToolContext` and its arguments that returns a
`ToolResult`: events, and the text that the model reads. A mistake by the model raises `ToolError`, whose text begins
with "Error", says what to do, and becomes the tool's result; it never reaches the client."""

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
UNKNOWN_PRICES = CachePrices(0.1, 1.0)  # for a model without known prices
MAX_DIGITS = 18  # more digits are beyond every bound
_BOOLEAN_WORDS = {"true": True, "false": False}


class ToolError(Exception):
    """The model asked for something impossible; the message says what to do instead."""


class FrameBlockBudgets(msgspec.Struct, frozen=True):
    """Tokens for a frame's block and its parts; `total` bounds the whole block, tags included."""

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
    """The settings that tools read: `tool_settings` fills each field from the setting of its name."""

    budgets: FrameBlockBudgets = msgspec.field(default_factory=FrameBlockBudgets)
    child_view: str = "fork"
    isolate_above: int = 60_000  # tokens of the parent's context, with `child_view: auto`
    max_depth: int = 10
    recall_page_tokens: int = 2000
    recall_call_tokens: int = 8000
    checkpoint_at_push: bool = False
    autonomy: AutonomyRules = msgspec.field(default_factory=AutonomyRules)
    model_may_set: tuple[str, ...] = ()  # of autonomy
    subagents: SubagentRules = msgspec.field(default_factory=SubagentRules)
    tool_roles: ToolRoles = DEFAULT_TOOL_ROLES
    block_format: BlockFormat = FLAT_FORMAT  # for the model that is asked


class CallGroup(msgspec.Struct, frozen=True):
    """State of the current group of calls (one assistant message).

    `has_only_stack_calls`: no client call is in the group. `home_frame` is the frame the group was made in;
    `opened_frame` the frame that a push or activate in it began. `returned_opening` is set once a pop has ended the
    home frame and removed the group from the context: a push after it is attached to that call, which opened what ended
    last.
    """

    has_only_stack_calls: bool
    home_frame: str
    opened_frame: str = ""
    returned_opening: OpeningCall | None = None


class CrossConversationHits(msgspec.Struct, frozen=True):
    """Finished frames of other conversations that match a query, best first. `has_all_words`: each contains every
    word, or is near in meaning."""

    pieces: tuple[StoredPiece, ...]
    has_all_words: bool


class ToolContext(msgspec.Struct, frozen=True):
    """Everything a tool may read. `path_state` is the path up to this round, earlier calls of the group included;
    `visible_entries` are the entries in the model's context. `turn_id`, `call_key` and `call_number` name the call;
    `call_number` counts the calls of the turn from 0. `now` is ms since the epoch."""

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
    recall_tokens_left: int = UNBOUNDED  # left for recall in this turn
    recalled_beside: tuple[str, ...] = ()
    """Answers of the recalls in front of this call, in the same message."""
    free_tokens: int = UNBOUNDED  # left in the window once everything compactable is compacted
    related_ledgers: tuple[Ledger, ...] = ()
    """Conversations of the same tenant that this one was delegated to or came from."""
    cross_conversation_hits: Mapping[str, CrossConversationHits] = msgspec.field(default_factory=dict)
    """By query; empty where the feature is off."""
    prices: CachePrices = UNKNOWN_PRICES
    window_tokens: int = 0  # the model's context window; 0 where unknown

    @property
    def tree(self) -> Tree:
        return self.path_state.tree


class ToolResult(msgspec.Struct, frozen=True):
    """`events` are in order; `text` is read by the model. `call_group` is the changed group, if it changed;
    `subagent_settings` are keys of the section "subagent" to set for everybody, where that is allowed."""

    text: str
    events: tuple[FrameEvent, ...] = ()
    call_group: CallGroup | None = None
    subagent_settings: Mapping[str, Any] = msgspec.field(default_factory=dict)


class Tool(msgspec.Struct, frozen=True):
    """`op` is the name behind the dispatcher. A tool that limits its own length is never truncated. `core_parameters`
    is the shorter schema that the profile `core` offers; empty where it is the same."""

    name: str
    op: str
    description: str
    parameters: Mapping[str, Any]
    run: Callable[[ToolContext, Mapping[str, Any]], ToolResult]
    limits_own_length: bool = False
    core_parameters: Mapping[str, Any] = msgspec.field(default_factory=dict)


def text_schema(description: str) -> Mapping[str, Any]:
    """The schema of an argument that is a text."""
    return {"type": "string", "description": description}


def object_schema(*required: str, **properties: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema of an object with these members."""
    schema = {"type": "object", "properties": properties}
    return {**schema, "required": list(required)} if required else schema


FRAME_SCHEMA = text_schema("id or title; default: the current frame")


FRAME_ARGUMENTS = ("frame", "frameID", "frame_id", "frameId", "sessionID", "session_id", "sessionId")
"""`frame` is the name in every schema. The others are accepted: earlier schemas and the models' own habits use them."""


def text_argument(arguments: Mapping[str, Any], *names: str, required: str = "") -> str:
    """The first argument that is present, as text. Without any, raises ToolError with the text `required`, if given."""
    for name in names:
        if text := _as_text(arguments.get(name)):
            return text
    if required:
        raise ToolError(required)
    return ""


def prose_argument(arguments: Mapping[str, Any], *names: str, required: str = "") -> str:
    """As `text_argument`. Models also write prose as a list of texts, which is joined."""
    joined = {
        name: "; ".join(filter(None, map(_as_text, value)))
        for name in names
        if isinstance(value := arguments.get(name), list)
    }
    return text_argument({**arguments, **joined}, *names, required=required)


def _as_text(value: object) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return value.strip() if isinstance(value, str) else ""


def frame_argument(arguments: Mapping[str, Any], required: str = "") -> str:
    """The frame that is named, under any of `FRAME_ARGUMENTS`. Raises ToolError as `text_argument` does."""
    return text_argument(arguments, *FRAME_ARGUMENTS, required=required)


def flag_argument(arguments: Mapping[str, Any], name: str, *, default: bool = False) -> bool:
    """A boolean, also as the word "true" or "false". Raises ToolError."""
    value = arguments.get(name)
    if isinstance(value, str):
        value = _BOOLEAN_WORDS.get(value.strip().lower(), value)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise ToolError(f"Error: {name} must be true or false.")
    return value


def integer_argument(arguments: Mapping[str, Any], name: str, wanted: str = "a whole number") -> int | None:
    """A whole number, also as digits in a text; None where it is left out. Raises ToolError, which names `wanted`."""
    value = arguments.get(name)
    if isinstance(value, str) and value.strip().isdecimal():
        value = int(value.strip()[:MAX_DIGITS])
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise ToolError(f"Error: {name} must be {wanted}.")
