"""Usage as providers report it, in one unit, and the usage that the client of several rounds sees.

`Usage.input` is the size of the whole prompt. OpenAI's `prompt_tokens` includes cached tokens and Anthropic's
`input_tokens` does not, so only the latter are added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from proxy.core.ledger import Usage

FieldPath = tuple[str, str]
"""Where a figure stands: a member, and the one inside of it, or "" for the member itself."""

# Gateways pass on what Gemini tells under Gemini's own names (`promptTokenCount`), in bodies that are else OpenAI's.
INPUT_FIELDS: tuple[FieldPath, ...] = (("prompt_tokens", ""), ("input_tokens", ""), ("promptTokenCount", ""))
OUTPUT_FIELDS: tuple[FieldPath, ...] = (("completion_tokens", ""), ("output_tokens", ""), ("candidatesTokenCount", ""))
CACHE_READ_FIELDS: tuple[FieldPath, ...] = (
    ("prompt_tokens_details", "cached_tokens"),
    ("input_tokens_details", "cached_tokens"),
    ("prompt_cache_hit_tokens", ""),  # DeepSeek, which tells the misses beside it
    ("cache_read_input_tokens", ""),
    ("cached_tokens", ""),  # Moonshot (Kimi): beside `prompt_tokens`, in no details
    ("cachedContentTokenCount", ""),
)
CACHE_WRITE_FIELDS: tuple[FieldPath, ...] = (
    ("cache_creation_input_tokens", ""),
    # What gateways to providers that charge for writing (Anthropic) put among details of OpenAI's form, in two words.
    ("prompt_tokens_details", "cache_write_tokens"),
    ("prompt_tokens_details", "cache_creation_tokens"),
    ("input_tokens_details", "cache_write_tokens"),
)
HOUR_CACHE_WRITE_FIELDS: tuple[FieldPath, ...] = (("cache_creation", "ephemeral_1h_input_tokens"),)
REASONING_FIELDS: tuple[FieldPath, ...] = (
    ("completion_tokens_details", "reasoning_tokens"),
    ("output_tokens_details", "reasoning_tokens"),
)
CACHE_MEMBERS = frozenset(member for member, _ in (*CACHE_READ_FIELDS, *CACHE_WRITE_FIELDS))
"""Where none of these is told, nothing is said of a cache."""
OUTPUT_MEMBERS = ("completion_tokens", "output_tokens")
MAX_PLAUSIBLE_TOKENS = 10**12
"""Tokens that a figure can mean. What is more is no count, and would make every sum it stands in worthless."""
MAX_PLAUSIBLE_COST = 10_000.0
"""USD that one answer can cost."""
COST_HEADER = b"x-litellm-response-cost"
"""In which a proxy of litellm names the cost of an answer that is not streamed."""
_NUMBER = (int, float)
OUTPUT_DETAILS = ("completion_tokens_details", "output_tokens_details", "server_tool_use")


class ReportedTokens(NamedTuple):
    """What a provider says of the prompt, in its own measure, of the answer, and of what the cache held and took."""

    prompt: int
    output: int
    cached: int = 0
    written: int = 0


def usage_of(told: Mapping[str, Any]) -> Usage:
    """The figures of one round. What is absent, null or no number is 0."""
    sides = _reported_tokens(told)
    whole, output, cached, written = sides
    output += _token_count(told.get("thoughtsTokenCount")) + _uncounted_reasoning(told, sides)
    # Anthropic's `input_tokens` leaves out what the cache read and took. Gateways put Anthropic's two figures beside
    # OpenAI's `prompt_tokens`, which holds them already: added there, a prompt would count twice.
    if "prompt_tokens" not in told and ("cache_read_input_tokens" in told or "cache_creation_input_tokens" in told):
        whole += cached + written
    long = min(written, _first(told, HOUR_CACHE_WRITE_FIELDS)) if written else 0
    return Usage(whole, output, cached, written, long)


def tells_cached_tokens(told: Mapping[str, Any]) -> bool:
    """Whether the provider says how much it read from its cache, be it nothing."""
    figures = (
        _at(told[member], within) if within else told[member] for member, within in CACHE_READ_FIELDS if member in told
    )
    return any(map(_is_number, figures))


def usage_of_timings(told: Mapping[str, Any]) -> Usage | None:
    """The figures of one round that llama.cpp tells beside its times, also in streams whose client asked for no usage:
    `cache_n` tokens of the prompt were in its cache and `prompt_n` were read. None where they are not told."""
    read, cached = _token_count(told.get("prompt_n")), _token_count(told.get("cache_n"))
    return Usage(read + cached, _token_count(told.get("predicted_n")), cached) if read else None


def cost_of_usage(told: Mapping[str, Any]) -> float | None:
    """What the answer names as its cost, in USD (OpenRouter's `cost`; with a key of the user's own that is a fee, and
    what its provider charges stands beside it). None where it names none."""
    cost, details = told.get("cost"), told.get("cost_details")
    # With a key of the user's own `cost` is OpenRouter's fee alone; the bill, many times that, comes from the provider.
    beside = _at(details, "upstream_inference_cost") if told.get("is_byok") else None
    amounts = [float(amount) for amount in (cost, beside) if isinstance(amount, _NUMBER) and amount is not True]
    total = sum(amounts)
    return total if 0 < total < MAX_PLAUSIBLE_COST else None


def cost_of_header(value: str) -> float | None:
    """The same from a header, in USD; None where it is none."""
    try:
        cost = float(value)
    except ValueError:
        return None
    return cost if 0 < cost < MAX_PLAUSIBLE_COST else None


def compaction_usages(told: Mapping[str, Any]) -> tuple[Usage, ...]:
    """What the provider did before it answered, each time that it compacted what it was sent: billed like a round, and
    in none of the other figures (Anthropic's `iterations`)."""
    done = told.get("iterations")
    each = done if isinstance(done, list) else ()
    return tuple(usage_of(one) for one in each if isinstance(one, dict) and one.get("type") == "compaction")


def merge_usage(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """The usage of one round that is told in parts, each a total so far: the newest counts, but a part that says
    nothing or 0 takes nothing back."""
    return dict(before) | {name: told for name, told in now.items() if told or not before.get(name)}


def usage_for_client(rounds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the client reads as the usage of its answer, in the provider's own words: the input side of the last round
    (how full the window is), the output side of all rounds, the total of the two. `rounds` is not empty."""
    # opencode, Codex, Qwen Code and pi compact by this figure alone (2026-11): the whole history in it, or the sum of
    # all rounds, would make them throw work away that still fits.
    told = dict(rounds[-1])
    for name in OUTPUT_MEMBERS:
        if name in told:
            told[name] = sum(_token_count(r.get(name)) for r in rounds)
    for name in OUTPUT_DETAILS:
        if isinstance(told.get(name), dict):
            told[name] = _summed([d for r in rounds if isinstance(d := r.get(name), dict)])
    if "total_tokens" in told:
        thoughts = sum(_uncounted_reasoning(r, _reported_tokens(r)) for r in rounds)
        told["total_tokens"] = _first(told, INPUT_FIELDS) + _first(told, OUTPUT_FIELDS) + thoughts
    return told


def _summed(details: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    total = dict(details[-1])
    for name, figure in total.items():
        if _is_number(figure):
            total[name] = sum(_token_count(d.get(name)) for d in details)
    return total


def _reported_tokens(told: Mapping[str, Any]) -> ReportedTokens:
    prompt, output = _first(told, INPUT_FIELDS), _first(told, OUTPUT_FIELDS)
    if CACHE_MEMBERS.isdisjoint(told):
        return ReportedTokens(prompt, output)
    return ReportedTokens(prompt, output, _first(told, CACHE_READ_FIELDS), _first(told, CACHE_WRITE_FIELDS))


def _uncounted_reasoning(told: Mapping[str, Any], sides: ReportedTokens) -> int:
    """Reasoning that the output does not hold: the total says it. xAI tells it among the details as well; gateways to
    Gemini leave it out of both. What the cache did is none of it, where a total holds that on top of the prompt."""
    whole, output, cached, written = sides
    rest = _token_count(told.get("total_tokens")) - whole - output
    if rest <= 0 or not whole:
        return 0
    if thoughts := _first(told, REASONING_FIELDS):
        return thoughts if rest == thoughts else 0
    return 0 if rest in (cached, written, cached + written) else rest


def _first(told: Mapping[str, Any], places: Sequence[FieldPath]) -> int:
    """The first of `places` that holds more than 0."""
    for member, within in places:
        if member in told and (figure := _token_count(_at(told[member], within) if within else told[member])):
            return figure
    return 0


def _at(details: object, name: str) -> object:
    return details.get(name) if isinstance(details, dict) else None


def _is_number(found: object) -> bool:
    return isinstance(found, _NUMBER) and not isinstance(found, bool)


def _token_count(found: object) -> int:
    """A count of tokens; 0 for what cannot be one, infinity and what is no number among it (JSON allows `1e400`)."""
    return int(found) if isinstance(found, _NUMBER) and found is not True and 0 < found <= MAX_PLAUSIBLE_TOKENS else 0
