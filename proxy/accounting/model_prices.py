"""Prices, prompt-cache rules, context windows and reasoning rules of models.

`TARIFFS` holds the built-in rows, as of `PRICES_AS_OF`, from the sources named beside them: estimates, not invoices.
`Tariffs` puts the rows of the configuration before them. The longest name that matches wins, because variants differ
(`gpt-5.4-pro` costs twelve times as much as `gpt-5.4`); a model that matches no row is marked as unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeVar

import msgspec
from msgspec.structs import replace

from proxy.core.memo import memoize

PRICES_AS_OF = "2026-11-21"
MINUTE = 60
HOUR = 60 * MINUTE
DAY = 24 * HOUR

HOUR_WRITE_MULTIPLE = 2.0
"""Price of a token that the cache shall keep for an hour, as a multiple of the input price."""

ReasoningBinding = Literal["none", "drop", "error"]
"""What happens to reasoning whose prefix changed: nothing, it is dropped, or the request is refused."""
AfterTool = Literal["message", "suffix"]
"""Whether a user message may stand behind tool results, or must be appended to the message before it."""
RoleOrder = Literal["any", "alternate"]
"""Whether messages may come in any order of roles, or user and assistant must alternate. Calls and results do not
count: between two user messages there must be an answer in words."""
ThinkingInLoop = Literal["required", "optional"]
Appendable = Literal["system", "tools"]


class Tariff(msgspec.Struct, frozen=True):
    """One row. `names` are lower-case globs without provider and date.

    Prices are USD per million tokens; `read` and `write` are multiples of the input price for cached and for newly
    cached tokens. `minimum`: a shorter prefix, in tokens, is not cached; cached tokens are a multiple of `step`; a
    prefix lives `ttl_s` seconds since its last use. `window` and `max_output` are tokens.
    """

    names: tuple[str, ...]
    input: float
    output: float | None = None
    """None: not found in our sources; output then costs nothing in any sum, and receipts say so."""
    read: float = 0.1
    write: float = 1.0
    minimum: int = 1024
    step: int = 1
    ttl_s: int = 5 * MINUTE
    window: int = 128_000
    max_output: int = 32_000
    long_context: int = 0
    """A request with more tokens of input than this costs `long_input` times as much for all of it, cached tokens
    included, and its answer `long_output` times; 0 where every request costs the same."""
    long_input: float = 2.0
    long_output: float = 1.5
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
    known: bool = True
    """False: a declared price stands in for the one we do not know."""
    window_known: bool = True
    """False: a declared window stands in; nothing may be trimmed because of it."""
    as_of: str = PRICES_AS_OF
    """The day the prices were seen, as YYYY-MM-DD; empty where nobody said."""
    source: str = "built-in"
    """Where the row stands: `built-in`, `default_tariff`, or the key in the configuration."""

    @property
    def write_long(self) -> float:
        """As `write`, for an hour. Where writing costs nothing extra, that does not either."""
        return max(self.write, HOUR_WRITE_MULTIPLE) if self.write > 1 else self.write

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
    as_of="",
    roles="alternate",
    source="default_tariff",
)
"""For every other model: read 0.1, write 1.0, and a round price, so that shares of it still mean something. Chat
templates of local models often insist on alternating roles."""
KNOWN_APIS: Mapping[str, Mapping[str, Any]] = {
    "claude": {"roles": "any", "most_tools": 0},
    **{family: {"roles": "any"} for family in ("chatgpt", "deepseek", "gemini", "gpt", "grok", "o")},
}
"""What the APIs of families accept, whatever the model of the family is; `o` is for `o3`."""


class ConfiguredTariff(msgspec.Struct, frozen=True):
    """A row of the configuration: `key` is where it is written, `names` are lower-case globs, `says` the fields of
    `Tariff` that it sets. What it leaves out is as the model has it without the row."""

    key: str
    names: tuple[str, ...]
    overrides: Mapping[str, Any]


# Input prices, read and write multiples, minimum prefixes and lifetimes: provider pages and price tables collected for
# this project up to AS_OF (platform.claude.com prompt caching; docs.rs synaps_cli::pricing 0.10.2; OpenAI and Azure
# prompt-caching guides; morphllm, tokenmix, laxima, techjacksolutions and chandanbhagat price pages; deepseekai.guide).
# Windows, output limits and output prices: platform.claude.com model overviews; docs.venice.ai and wavespeed.ai model
# pages (GPT); ofox.ai and factquire.com (DeepSeek); llmreference.com (Gemini). What long requests cost:
# developers.openai.com model pages, tokencost.app (GPT-5.5), glbgpt.com (Gemini). Traits: the providers' own pages on
# preserved thinking, thought signatures and thinking mode.
TARIFFS: tuple[Tariff, ...] = (
    # ------------------------------------------------------------------------------------------------------ Anthropic
    # Writes at 1.25 are the five-minute cache; the hour costs 2.0. Of the 5.5 family the write price is assumed.
    Tariff(
        ("claude-fable-5[-.][12]", "claude-mythos-5[-.][12]"),
        10.0,
        50.0,
        0.025,
        1.25,
        1024,
        window=1_000_000,
        max_output=128_000,
        binding="error",
        append=("system", "tools"),
        most_tools=0,
    ),
    Tariff(
        ("claude-opus-5[-.]5",),
        4.0,
        20.0,
        0.05,
        1.25,
        1024,
        window=1_000_000,
        max_output=128_000,
        binding="error",
        append=("system", "tools"),
        most_tools=0,
    ),
    Tariff(
        ("claude-sonnet-5[-.]5",),
        2.0,
        None,
        0.05,
        1.25,
        1024,
        window=1_000_000,
        max_output=128_000,
        binding="error",
        append=("system", "tools"),
        most_tools=0,
    ),
    Tariff(("claude-opus-5",), 5.0, 25.0, 0.1, 1.25, 512, window=1_000_000, max_output=128_000, most_tools=0),
    Tariff(("claude-opus-4[-.]8",), 5.0, 25.0, 0.1, 1.25, 1024, window=1_000_000, max_output=128_000, most_tools=0),
    Tariff(("claude-opus-4[-.]7",), 5.0, 25.0, 0.1, 1.25, 2048, window=1_000_000, max_output=128_000, most_tools=0),
    Tariff(("claude-opus-4[-.]6",), 5.0, 25.0, 0.1, 1.25, 4096, window=1_000_000, max_output=128_000, most_tools=0),
    Tariff(
        ("claude-opus-4[-.]5",),
        5.0,
        25.0,
        0.1,
        1.25,
        4096,
        window=200_000,
        max_output=64_000,
        thinking_in_loop="required",
        most_tools=0,
    ),
    # An open issue of the vendor's SDK sees 2,048 in practice for Sonnet 4.6.
    Tariff(
        ("claude-sonnet-4", "claude-sonnet-4[-.]5", "claude-4-sonnet"),
        3.0,
        15.0,
        0.1,
        1.25,
        1024,
        window=200_000,
        max_output=64_000,
        thinking_in_loop="required",
        most_tools=0,
    ),
    Tariff(("claude-sonnet-4[-.]6",), 3.0, 15.0, 0.1, 1.25, 2048, window=1_000_000, max_output=64_000, most_tools=0),
    Tariff(
        ("claude-haiku-4[-.]5",),
        1.0,
        5.0,
        0.1,
        1.25,
        4096,
        window=200_000,
        max_output=64_000,
        thinking_in_loop="required",
        most_tools=0,
    ),
    # --------------------------------------------------------------------------------------------------------- OpenAI
    # Cached in steps of 128; "minutes" is taken as ten. A long request makes "the full session" dear, which is taken as
    # that request. Of the 5.6 family no such line was found.
    Tariff(("gpt-5.5",), 5.0, 30.0, 0.1, 1.0, 1024, 128, 10 * MINUTE, 1_000_000, 128_000, 272_000),
    Tariff(("gpt-5.4",), 2.5, 15.0, 0.1, 1.0, 1024, 128, 10 * MINUTE, 1_050_000, 128_000, 272_000),
    Tariff(("gpt-5.4-mini",), 0.75, None, 0.1, 1.0, 1024, 128, 10 * MINUTE, 400_000, 128_000),
    # The first family whose writes cost more. Its lifetime and window were not found: those of the one before it.
    Tariff(
        ("gpt-5.6-sol", "gpt-5.6"),
        5.0,
        None,
        0.1,
        1.25,
        1024,
        128,
        10 * MINUTE,
        1_000_000,
        128_000,
        binding="drop",
        append=("system", "tools"),
    ),
    Tariff(
        ("gpt-5.6-terra",),
        2.5,
        None,
        0.1,
        1.25,
        1024,
        128,
        10 * MINUTE,
        1_000_000,
        128_000,
        binding="drop",
        append=("system", "tools"),
    ),
    Tariff(
        ("gpt-5.6-luna",),
        1.0,
        None,
        0.1,
        1.25,
        1024,
        128,
        10 * MINUTE,
        1_000_000,
        128_000,
        binding="drop",
        append=("system", "tools"),
    ),
    # --------------------------------------------------------------------------------------------------------- Google
    # The implicit cache: it is not guaranteed, and its lifetime is not published.
    Tariff(
        ("gemini-3.1-pro", "gemini-3.1-pro-preview"),
        2.0,
        12.0,
        0.1,
        1.0,
        2048,
        window=1_048_576,
        max_output=65_536,
        long_context=200_000,
        required=("thought_signature",),
    ),
    Tariff(
        ("gemini-3.1-flash-lite", "gemini-3.1-flash-lite-preview"),
        0.25,
        1.5,
        0.1,
        1.0,
        1024,
        window=1_048_576,
        max_output=65_536,
        required=("thought_signature",),
    ),
    # ------------------------------------------------------------------------------------------------------- DeepSeek
    # On disk, best effort, in units of 64 tokens; 1,024 and more are advised. A minimum told too large would make a
    # saving
    # look larger, so the unit stands here.
    Tariff(
        ("deepseek-v4-flash", "deepseek-chat", "deepseek-reasoner"),
        0.14,
        0.28,
        0.02,
        1.0,
        64,
        64,
        DAY,
        1_000_000,
        384_000,
        required=("reasoning_content",),
    ),
    # -------------------------------------------------------------------------------------------------------- Mistral
    # Prices were not looked up; the trait is what its API answers ("Unexpected role 'user' after role 'tool'").
    Tariff(
        ("mistral-*", "magistral-*", "devstral-*", "codestral-*", "ministral-*"),
        1.0,
        step=128,
        after_tool="suffix",
        roles="alternate",
        known=False,
        window_known=False,
        as_of="",
    ),
)

_REGION_AND_VENDOR = re.compile(r"^(?:[a-z]{2,6}\.)?(?:anthropic|openai|google|deepseek|mistral)\.")
_ONE_OF = re.compile(r"\[[^]]+\]")
_DATE_OR_ROUTING_SUFFIX = re.compile(r"(?:[-@](?:20\d{6}|20\d\d-\d\d-\d\d|latest)|-v\d+(?::\d+)?|:[a-z]+)$")


def family_of(model: str) -> str:
    """Whose reasoning a model can read, told by the first word of its plain name: `claude`, `gpt`, `gemini`."""
    found = re.match(r"[a-z]+", plain_name(model))
    return found[0] if found else ""


def plain_name(model: str) -> str:
    """A model's name without provider, region, date and routing suffix: `openai/GPT-5.4-2026-03-05` is `gpt-5.4`."""
    name = _REGION_AND_VENDOR.sub("", model.strip().lower().rpartition("/")[2])
    while (shorter := _DATE_OR_ROUTING_SUFFIX.sub("", name)) != name:
        name = shorter
    return name


def glob_length(glob: str) -> int:
    """How much of a name a glob spells out; a choice of characters is one of them."""
    return len(_ONE_OF.sub("?", glob))


AnyRow = TypeVar("AnyRow", Tariff, ConfiguredTariff)


class Tariffs:
    """The rows of a configuration before the built-in ones, and a default for what fits none.

    The longest name that fits wins; of two as long, the configured one. A configured name is also held against the
    model as it was written, so that `openrouter/*` can be a name. Values, made once: a changed configuration is a new
    object.
    """

    def __init__(
        self,
        configured: Sequence[ConfiguredTariff] = (),
        default: Tariff = UNKNOWN_TARIFF,
        built_in: Sequence[Tariff] = TARIFFS,
    ) -> None:
        self.configured, self.default, self.built_in = tuple(configured), default, tuple(built_in)
        self._defaults = {
            family: replace(
                default, **{n: v for n, v in traits.items() if getattr(default, n) == getattr(UNKNOWN_TARIFF, n)}
            )
            for family, traits in KNOWN_APIS.items()
        }
        self.tariff_of = memoize(1024)(self._find_tariff)

    def _find_tariff(self, model: str) -> Tariff:
        name, written = plain_name(model), model.strip().lower()
        base, built_in_length = _longest_match(self.built_in, (name,))
        row, length = _longest_match(self.configured, (name, written))
        base = base or self._default_of(model)
        return base if row is None or length < built_in_length else _apply_overrides(base, row)

    def _default_of(self, model: str) -> Tariff:
        return self._defaults.get(family_of(model), self.default)

    def all_tariffs(self) -> tuple[Tariff, ...]:
        """Every row as its first name gets it, the configured ones first, the default last."""
        return (
            *(_apply_overrides(self._base_of(row), row) for row in self.configured),
            *self.built_in,
            self.default,
        )

    def _base_of(self, row: ConfiguredTariff) -> Tariff:
        return _longest_match(self.built_in, (plain_name(row.names[0]),))[0] or self._default_of(row.names[0])


def _longest_match(rows: Iterable[AnyRow], names: Sequence[str]) -> tuple[AnyRow | None, int]:
    """The row with the longest glob that fits any of `names`, the first of several, and that length; None and 0."""
    fitting = [
        (row, glob_length(glob)) for row in rows for glob in row.names if any(fnmatchcase(name, glob) for name in names)
    ]
    return max(fitting, key=lambda found: found[1], default=(None, 0))


def _apply_overrides(base: Tariff, row: ConfiguredTariff) -> Tariff:
    """`base` with what a configured row says. A price that nobody dated is not as old as the one it replaces."""
    priced, sized = "input" in row.overrides, "window" in row.overrides
    made = replace(
        base,
        **{"as_of": "" if priced else base.as_of, **row.overrides},
        names=row.names,
        source=row.key,
        known=base.known or priced,
        window_known=base.window_known or sized,
    )
    fits = made.max_output < made.window or "max_output" in row.overrides
    return made if fits else replace(made, max_output=made.window // 4)


BUILT_IN_TARIFFS = Tariffs()
"""What holds where no configuration is at hand."""


def tariff_for(model: str) -> Tariff:
    """The row of a model in `TARIFFS` alone. Where a configuration is at hand, ask `Config.tariff_of`."""
    return BUILT_IN_TARIFFS.tariff_of(model)
