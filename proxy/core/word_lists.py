"""Reads tables of words, which are TOML files beside the modules that use them."""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Mapping
from typing import TypeVar

import msgspec

T = TypeVar("T")
TYPED_APOSTROPHES = "['\u2019]"
"""What matches an apostrophe in a list: people and models type either."""
_PART = re.compile(r"«(\w+)»")


class PhraseList(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Phrases with white space between them; in `spaced` ones `_` is a space and `*` any word. `unspaced` are those of
    scripts without spaces, whose words have no boundaries to match."""

    spaced: str = ""
    unspaced: str = ""

    @property
    def pattern(self) -> str:
        """An expression for any of the phrases as whole words, longest first."""
        alternatives = f"|{any_of(self.unspaced)})" if self.unspaced else ")"
        return rf"(?:(?<!\w)(?:{any_of(self.spaced)})(?!\w)" + alternatives


def any_of(phrases: str) -> str:
    """An expression for any of the phrases, longest first. A space matches any white space."""
    longest_first = sorted(set(phrases.split()), key=lambda phrase: (-len(phrase), phrase))
    escaped = (re.escape(phrase).replace("_", r"\s+").replace(r"\*", r"\w+") for phrase in longest_first)
    return "|".join(phrase.replace("'", TYPED_APOSTROPHES) for phrase in escaped)


def with_parts(expression: str, parts: Mapping[str, str]) -> str:
    """The expression with each part in the place of its name, which stands in «»."""
    return _PART.sub(lambda named: with_parts(parts[named[1]], parts), expression)


def read_table(package: str, name: str, shape: type[T]) -> T:
    """The file `name` of a package: shipped with the module that asks, and read at its import, as the module is."""
    return msgspec.toml.decode(pkgutil.get_data(package, name) or b"", type=shape)
