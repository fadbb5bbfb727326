"""One row of the price list: prices, prompt-cache rules, context window and reasoning rules of a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

MINUTE = 60
HOUR = 60 * MINUTE
DAY = 24 * HOUR

ReasoningBinding = Literal["none", "drop", "error"]
"""What happens to reasoning whose prefix changed: nothing, it is dropped, or the request is refused."""
AfterTool = Literal["message", "suffix"]
"""Whether a user message may stand behind tool results, or must be appended to the message before it."""
RoleOrder = Literal["any", "alternate"]
"""Whether messages may come in any order of roles, or user and assistant must alternate. Calls and results do not
count: between two user messages there must be an answer in words."""
ThinkingInLoop = Literal["required", "optional"]
Appendable = Literal["system", "tools"]


class ModelTraits(msgspec.Struct, frozen=True, kw_only=True):
    """What a model holds and takes, whatever it costs. `minimum`: a shorter prefix, in tokens, is not cached; cached
    tokens are a multiple of `step`. `window` and `max_output` are tokens."""

    minimum: int = 1024
    step: int = 1
    window: int = 128_000
    max_output: int = 32_000
    binding: ReasoningBinding = "none"
    thinking_in_loop: ThinkingInLoop = "optional"
    """`required`: inside a tool loop the last assistant message must open with its reasoning."""
    required: tuple[str, ...] = ()
    """Fields that must come back with the calls they were made with."""
    after_tool: AfterTool = "message"
    append: tuple[Appendable, ...] = ()
    """What can be added in mid-conversation without touching the prefix."""
    roles: RoleOrder = "any"
    most_tools: int = 128
    """Most tools that a request may offer; 0 where there is no such limit."""


class Tariff(ModelTraits, frozen=True):
    """One row. `names` are lower-case globs without provider and date.

    Prices are USD per million tokens; `read` and `write` are multiples of the input price for cached and for newly
    cached tokens. A cached prefix lives `ttl_s` seconds since its last use.
    """

    names: tuple[str, ...]
    input: float
    output: float | None = None
    """None: not found in our sources; output then costs nothing in any sum, and receipts say so."""
    read: float = 0.1
    write: float = 1.0
    ttl_s: int = 5 * MINUTE
    long_write: float = 2.0
    """As `write`, for a cache that shall live `long_ttl_s`, where the provider sells two lifetimes."""
    long_ttl_s: int = HOUR
    long_context: int = 0
    """A request with more tokens of input than this costs `long_input` times as much for all of it, cached tokens
    included, and its answer `long_output` times; 0 where every request costs the same."""
    long_input: float = 2.0
    long_output: float = 1.5
    known: bool = True
    """False: a declared price stands in for the one we do not know."""
    window_known: bool = True
    """False: a declared window stands in; nothing may be trimmed because of it."""
    as_of: str = ""
    """The day the prices were seen, as YYYY-MM-DD; empty where nobody said."""
    source: str = "built-in"
    """Where the row stands: `built-in`, `updated`, the `family of` a built-in row, `default_tariff`, or the key in the
    configuration."""
    read_at: str = ""
    """Where the figures were read; empty where nobody said."""

    @property
    def write_long(self) -> float:
        """As `write`, for the longer lifetime. Where writing costs nothing extra, that does not either."""
        return max(self.write, self.long_write) if self.write > 1 else self.write

    def for_input(self, tokens: float) -> Tariff:
        """The prices of a request with so many tokens of input."""
        if not 0 < self.long_context < tokens:
            return self
        answer = None if self.output is None else self.output * self.long_output
        return replace(self, input=self.input * self.long_input, output=answer, long_context=0)


UNKNOWN_TARIFF = Tariff(
    ("*",),
    input=1.0,
    output=None,
    minimum=1024,
    step=128,
    known=False,
    window_known=False,
    roles="alternate",
    source="default_tariff",
)
"""For every other model: read 0.1, write 1.0, and a round price, so that shares of it still mean something. Chat
templates of local models often insist on alternating roles."""


class ConfiguredTariff(msgspec.Struct, frozen=True):
    """A row of the configuration: `key` is where it is written, `names` are lower-case globs, `says` the fields of
    `Tariff` that it sets. What it leaves out is as the model has it without the row."""

    key: str
    names: tuple[str, ...]
    overrides: Mapping[str, Any]
