"""Reads the price list that is shipped, `models.toml`, and lists in the same form or in that of litellm.

A list becomes rows (`Tariff`) in two kinds: `exact` ones for names that are listed, and `family` ones for names that
are not, flagged as unknown. `facts_of_litellm` takes prices, windows and cache rules from litellm's table of models.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from proxy.accounting.tariff import HOUR, MINUTE, ModelTraits, Tariff

log = logging.getLogger(__name__)
MODELS_FILE = Path(__file__).with_name("models.toml")
MILLION = 1_000_000
LITELLM = "litellm"
STALE_DAYS = 60
"""A row whose figures were checked longer ago than this is told as old."""
_LITELLM_BAND = re.compile(r"input_cost_per_token_above_(\d+)k_tokens")
_LITELLM_MODES = frozenset({"chat", "responses", "completion"})


class PriceBand(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Prices of requests with more tokens of input than `above`; cached and written tokens scale as input does."""

    above: int
    input: float
    output: float


class PriceChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"day": "from"}):
    """Prices from a day on."""

    day: date
    input: float
    output: float
    cached: float


class ModelFacts(ModelTraits, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A row of the file; its head explains the fields. Prices are USD per million tokens. Every row says what its
    model holds."""

    names: tuple[str, ...]
    source: str
    checked: date
    input: float
    output: float | None
    cached: float
    minimum: int
    window: int
    max_output: int
    writes: dict[str, float] = msgspec.field(default_factory=dict)
    lifetime: int = 0
    stands_for: tuple[str, ...] = ()
    band: PriceBand | None = None
    later: PriceChange | None = None
    note: str = ""


class FactsFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    models: tuple[ModelFacts, ...]


class FactRows(msgspec.Struct, frozen=True):
    """The rows of a list. `family` has one row for each glob of names that it stands in for."""

    exact: tuple[Tariff, ...] = ()
    family: tuple[Tariff, ...] = ()


def read_facts(path: Path) -> tuple[ModelFacts, ...]:
    """The rows of a file: TOML as the one that is shipped, or JSON of litellm's table. Raises OSError where it cannot
    be read and ValueError where it is neither."""
    raw = path.read_bytes()
    if path.suffix == ".toml":
        return msgspec.toml.decode(raw, type=FactsFile).models
    if raw.startswith(b'{"models":['):
        return msgspec.json.decode(raw, type=FactsFile).models
    table = msgspec.json.decode(raw, type=dict[str, Any])
    return facts_of_litellm(table, datetime.fromtimestamp(path.stat().st_mtime, UTC).date())


def write_facts(path: Path, facts: Sequence[ModelFacts]) -> None:
    """Write rows as JSON, which is read in milliseconds also where there are thousands."""
    path.touch(mode=0o600)  # as all that lies in a data directory
    path.write_bytes(msgspec.json.encode(FactsFile(tuple(facts))))


def updated_rows(path: Path) -> tuple[Tariff, ...]:
    """The rows of an update, at the prices of today; none where there was none, or where it cannot be read."""
    try:
        return rows_of(read_facts(path), datetime.now(UTC).date()).exact
    except FileNotFoundError:
        return ()
    except (OSError, ValueError) as error:
        log.warning("an update of prices cannot be read and is left out: %s: %s", path, error)
        return ()


@cache
def built_in_rows() -> FactRows:
    """Today's rows of the list that is shipped."""
    return rows_of(read_facts(MODELS_FILE), datetime.now(UTC).date())


def rows_of(facts: Iterable[ModelFacts], today: date) -> FactRows:
    """The rows of a list, at the prices of the day."""
    exact, family = [], []
    for fact in facts:
        row = tariff_of_facts(fact, today)
        if fact.names:
            exact.append(row)
        for glob in fact.stands_for:
            like = fact.names[0].replace("[-.]", ".") if fact.names else glob
            family.append(replace(row, names=(glob,), known=False, window_known=False, source=f"family of {like}"))
    return FactRows(tuple(exact), tuple(family))


def tariff_of_facts(fact: ModelFacts, today: date) -> Tariff:
    change = fact.later if fact.later and fact.later.day <= today else None
    priced = change or fact
    lifetimes = sorted((int(seconds), price) for seconds, price in fact.writes.items())
    write = _multiple(lifetimes[0][1], fact.input) if lifetimes else 1.0
    long = lifetimes[-1] if len(lifetimes) > 1 else None
    band = fact.band
    traits = {name: getattr(fact, name) for name in ModelTraits.__struct_fields__}
    return Tariff(
        names=fact.names,
        input=priced.input,
        output=priced.output,
        read=_multiple(priced.cached, priced.input),
        write=write,
        long_write=_multiple(long[1], fact.input) if long else 2.0,
        ttl_s=lifetimes[0][0] if lifetimes else fact.lifetime,
        long_ttl_s=long[0] if long else HOUR,
        long_context=band.above if band else 0,
        long_input=_multiple(band.input, fact.input) if band else 2.0,
        long_output=_multiple(band.output, fact.output) if band and fact.output else 1.5,
        as_of=fact.checked.isoformat(),
        read_at=fact.source,
        **traits,
    )


def _multiple(price: float, of: float) -> float:
    return round(price / of, 9) if of else 1.0


def age_days(row: Tariff, today: date) -> int | None:
    """Days since the figures of a row were checked; None where nobody said when."""
    try:
        return (today - date.fromisoformat(row.as_of)).days
    except ValueError:
        return None


def facts_of_litellm(table: Mapping[str, Any], checked: date) -> tuple[ModelFacts, ...]:
    """Rows of litellm's table of models (`model_prices_and_context_window.json`), of those that chat and have prices. A
    model that several providers serve is taken from the shortest path of a name, that of its own maker."""
    found: dict[str, ModelFacts] = {}
    for name, told in sorted(table.items(), key=lambda row: row[0].count("/")):
        plain = name.rpartition("/")[2].lower()
        if plain in found or not isinstance(told, dict) or told.get("mode") not in _LITELLM_MODES:
            continue
        fact = _fact_of_litellm(plain, told, checked)
        if fact is not None:
            found[plain] = fact
    return tuple(found.values())


def _fact_of_litellm(name: str, told: Mapping[str, Any], checked: date) -> ModelFacts | None:
    numbers = {key: value for key, value in told.items() if isinstance(value, float | int)}
    price = {key: value * MILLION for key, value in numbers.items() if "cost_per_token" in key or "token_cost" in key}
    fresh, output = price.get("input_cost_per_token", 0.0), price.get("output_cost_per_token")
    window, answer = told.get("max_input_tokens"), told.get("max_output_tokens")
    if fresh <= 0 or not isinstance(window, int) or not isinstance(answer, int) or window <= 0 or answer <= 0:
        return None
    write = price.get("cache_creation_input_token_cost", 0.0)
    hour = price.get("cache_creation_input_token_cost_above_1hr", 0.0)
    half_day = price.get("cache_creation_input_token_cost_above_12hr", 0.0)
    writes = {300: write, HOUR: hour} if hour else {30 * MINUTE: write, 12 * HOUR: half_day}
    return ModelFacts(
        names=(name,),
        source=LITELLM,
        checked=checked,
        input=_rounded(fresh),
        output=None if output is None else _rounded(output),
        cached=_rounded(price.get("cache_read_input_token_cost", fresh)),
        writes={str(seconds): _rounded(cost) for seconds, cost in writes.items() if write > fresh and cost},
        lifetime=5 * MINUTE,
        minimum=int(told.get("prompt_cache_min_tokens") or 1024),
        window=window,
        max_output=min(answer, window // 2),
        band=_band_of_litellm(price, output),
    )


def _band_of_litellm(price: Mapping[str, float], output: float | None) -> PriceBand | None:
    for key, cost in price.items():
        if found := _LITELLM_BAND.fullmatch(key):
            dear = price.get(f"output_cost_per_token_above_{found[1]}k_tokens", output or 0.0)
            return PriceBand(int(found[1]) * 1000, _rounded(cost), _rounded(dear))
    return None


def _rounded(price: float) -> float:
    return round(price, 9)
