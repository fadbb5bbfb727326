"""Which row of the price list a model gets, by its name.

Rows of the configuration stand before those of an update, and these before the built-in ones (`models.toml`). The
longest name that matches wins, because variants differ (`gpt-5.4-pro` costs twelve times as much as `gpt-5.4`). A name
without a row gets that of its family, or a default, and is marked as unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from msgspec.structs import replace

from proxy.accounting.model_facts import LITELLM, FactRows, built_in_rows
from proxy.accounting.tariff import UNKNOWN_TARIFF, ConfiguredTariff, Tariff
from proxy.core.memo import memoize

KNOWN_APIS: Mapping[str, Mapping[str, Any]] = {
    "claude": {"roles": "any", "most_tools": 0},
    **{family: {"roles": "any"} for family in ("chatgpt", "deepseek", "gemini", "gpt", "grok", "o")},
}
"""What the APIs of families accept, whatever the model of the family is; `o` is for `o3`."""


PRICE_FIELDS = (
    "input", "output", "read", "write", "long_write", "long_context", "long_input", "long_output", "as_of", "read_at",
)  # fmt: skip
SIZE_FIELDS = ("ttl_s", "long_ttl_s", "minimum", "step", "window", "max_output")
_REGION_AND_VENDOR = re.compile(r"^(?:[a-z]{2,6}\.)?(?:anthropic|openai|google|deepseek|mistral)\.")
_ONE_OF = re.compile(r"\[[^]]+\]")
_DATE_OR_ROUTING_SUFFIX = re.compile(r"(?:[-@](?:20\d{6}|20\d\d-\d\d-\d\d|latest)|-v\d+(?::\d+)?|:[a-z]+|\[\w+])$")


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


AnyRow = TypeVar("AnyRow", Tariff, ConfiguredTariff)


class Tariffs:
    """The rows of a configuration before those of an update and the built-in ones, and a default for what fits none.

    The longest name that fits wins; of two as long, the configured one. A configured name is also held against the
    model as it was written, so that `openrouter/*` can be a name. Values, made once: a changed configuration is a new
    object.
    """

    def __init__(
        self,
        configured: Sequence[ConfiguredTariff] = (),
        default: Tariff = UNKNOWN_TARIFF,
        built_in: FactRows | None = None,
        updated: Sequence[Tariff] = (),
    ) -> None:
        self.configured, self.default = tuple(configured), default
        self._built_in, self._updated = built_in, tuple(updated)
        self._defaults = {
            family: replace(
                default, **{n: v for n, v in traits.items() if getattr(default, n) == getattr(UNKNOWN_TARIFF, n)}
            )
            for family, traits in KNOWN_APIS.items()
        }
        self.tariff_of = memoize(1024)(self._find_tariff)

    def __reduce__(self) -> tuple[type[Tariffs], tuple[Any, ...]]:
        """What it is made of: what it remembers stays in its process."""
        return Tariffs, (self.configured, self.default, self._built_in, self._updated)

    @property
    def built_in(self) -> FactRows:
        """Read when it is first asked for: most commands need no prices."""
        return built_in_rows() if self._built_in is None else self._built_in

    def _find_tariff(self, model: str) -> Tariff:
        name, written = plain_name(model), model.strip().lower()
        row, length = _longest_match(self.configured, (name, written))
        base, known_length = self._find_base(name, model)
        return base if row is None or length < known_length else _apply_overrides(base, row)

    def _base_of(self, model: str) -> Tariff:
        return self._find_base(plain_name(model), model)[0]

    def _find_base(self, name: str, model: str) -> tuple[Tariff, int]:
        """What a model has without the configuration, and the length of its name in the built-in rows, 0 for none."""
        listed, length = _longest_match(self.built_in.exact, (name,))
        newer = _longest_match(self._updated, (name,))[0]
        of_family = _longest_match(self.built_in.family, (name,))[0]
        base = listed or of_family or self._defaults.get(family_of(model), self.default)
        return base if newer is None else _with_new_prices(base, newer), length

    def all_tariffs(self) -> tuple[Tariff, ...]:
        """Every row as its first name gets it, the configured ones first, then those that stand for families, the
        default last."""
        built_in = self.built_in
        return (
            *(_apply_overrides(self._base_of(row.names[0]), row) for row in self.configured),
            *(self._base_of(row.names[0]) for row in self._updated),
            *built_in.exact,
            *built_in.family,
            self.default,
        )


def _longest_match(rows: Iterable[AnyRow], names: Sequence[str]) -> tuple[AnyRow | None, int]:
    """The row with the longest glob that fits any of `names`, the first of several, and that length; None and 0."""
    fitting = [
        (row, len(_ONE_OF.sub("?", glob)))  # as many characters as it spells out
        for row in rows
        for glob in row.names
        if any(fnmatchcase(name, glob) for name in names)
    ]
    return max(fitting, key=lambda found: found[1], default=(None, 0))


def _with_new_prices(base: Tariff, newer: Tariff) -> Tariff:
    """`base`, whose traits an update does not know, with the figures of an update. What litellm says of windows and
    caches is less than what a row of ours says."""
    names = PRICE_FIELDS if base.known and newer.read_at == LITELLM else (*PRICE_FIELDS, *SIZE_FIELDS)
    figures = {name: getattr(newer, name) for name in names}
    return replace(base, **figures, names=newer.names, known=True, window_known=True, source="updated")


def _apply_overrides(base: Tariff, row: ConfiguredTariff) -> Tariff:
    """`base` with what a configured row says. A price that nobody dated is not as old as the one it replaces."""
    priced, sized = "input" in row.overrides, "window" in row.overrides
    made = replace(
        base,
        **{"as_of": "" if priced else base.as_of, **row.overrides},
        names=row.names,
        source=row.key,
        read_at="" if priced else base.read_at,
        known=base.known or priced,
        window_known=base.window_known or sized,
    )
    fits = made.max_output < made.window or "max_output" in row.overrides
    return made if fits else replace(made, max_output=made.window // 4)


BUILT_IN_TARIFFS = Tariffs()
"""What holds where no configuration is at hand."""


def tariff_for(model: str) -> Tariff:
    """The built-in row of a model. Where a configuration is at hand, ask `Config.tariff_of`."""
    return BUILT_IN_TARIFFS.tariff_of(model)
