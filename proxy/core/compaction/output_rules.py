"""How much of a tool's outputs is told on the line, as somebody wrote it down: by the tool's name, or by what it is
for.

    keep whole    it stands there as it came: no `output_cap` cuts it, and it is not cleared when it grows old
    cap           tokens from which a new output is cut, instead of `output_cap`
    head, tail    tokens of its beginning and its end that stay when it is cleared

Of several rules the one with the tool's own name counts, then the first pattern that fits, then that of its role.

The law: **what no rule is about is told as if there were none**. Nothing here looks at what an output says.

What this module does not do: it shortens nothing (`pruning` and `minimizing` do), and knows no window.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

import msgspec

from proxy.core.observers.tool_roles import NAMES, Names, Role, plain_name
from proxy.core.text import CHARACTERS_PER_TOKEN


class OutputRule(msgspec.Struct, frozen=True):
    """One rule, by the words it stands under. `cap`, `head` and `tail` are tokens; a cap of 0 is that of all."""

    name: str
    whole: bool = False
    cap: int = 0
    head: int = 0
    tail: int = 0

    def kept_of(self, text: str) -> tuple[str, str]:
        """Beginning and end of an old output as they stay, in tokens of so many characters as clearing estimates."""
        head = text[: self.head * CHARACTERS_PER_TOKEN]
        tail = text[len(head) :][-self.tail * CHARACTERS_PER_TOKEN :] if self.tail else ""
        return head, tail


class OutputRules(msgspec.Struct, frozen=True):
    """All rules, in the order they were written; `names` says what tools are for."""

    rules: Sequence[OutputRule] = ()
    names: Names = msgspec.field(default=NAMES)

    def __bool__(self) -> bool:
        return bool(self.rules)

    def of(self, tool: str) -> OutputRule | None:
        """The rule that the outputs of `tool` come under."""
        return next(self._about(tool), None)

    def _about(self, tool: str) -> Iterator[OutputRule]:
        plain, role = plain_name(tool), self.names.role(tool)
        yield from (rule for rule in self.rules if plain_name(rule.name) == plain)
        yield from (rule for rule in self.rules if rule.name not in ROLES and fnmatchcase(tool, rule.name))
        yield from (rule for rule in self.rules if role is not None and rule.name == role)


ROLES = frozenset(Role)
NO_RULES = OutputRules()
