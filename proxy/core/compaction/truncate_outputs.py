"""Outputs of tools told in fewer words: one that is too long for the line, and old ones when a line would overflow.

    cut       one new output that alone is longer than `output_cap`: its beginning and its end stay
    cleared   old outputs behind the newest 40,000 tokens of them: a breadcrumb stays, which names what was there

How long an output has to be for that, and what more of it stays, may be told by tool (`output_rules`).

The law: **marked, never deleted**. A call keeps its result and every result its place; only the words change, once and
for good, by an event with the new text. What was stored stays as it was, and the new text says under which ref
`stack_recall` gives it back.

What this module does not do: it never decides that pruning pays. Clearing in a warm cache costs more than it saves
(S4-36, C25), so it is asked for only where the line does not fit otherwise.

How much of a tool's outputs is told on the line, as somebody wrote it down: by the tool's name, or by what it is
for.

    keep whole    it stands there as it came: no `output_cap` cuts it, and it is not cleared when it grows old
    cap           tokens from which a new output is cut, instead of `output_cap`
    head, tail    tokens of its beginning and its end that stay when it is cleared

Of several rules the one with the tool's own name counts, then the first pattern that fits, then that of its role.

The law: **what no rule is about is told as if there were none**. Nothing here looks at what an output says.

What this module does not do: it shortens nothing (`pruning` and `minimizing` do), and knows no window.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import takewhile

import msgspec

from proxy.core.context.message_list import Line
from proxy.core.frames.events import Replaced
from proxy.core.frames.path_state import Placed, Story
from proxy.core.ledger.messages import Call, Message
from proxy.core.observers.call_outcomes import exit_code
from proxy.core.observers.files import touched_by
from proxy.core.observers.keywords import ranked_names
from proxy.core.observers.tool_roles import NAMES, Names, Role, plain_name
from proxy.core.text import CHARACTERS_PER_TOKEN, Count, cut_for_display


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


PROTECTED = 40_000
"""Tokens of the newest outputs that are never cleared (S4-30)."""
LEAST_SAVED = 20_000
"""Tokens that clearing must save, or nothing is cleared (S4-31)."""
CLEARED = "[Old tool result content cleared]"
"""How a cleared output begins (S4-34)."""
CUT, PRUNED = "output_cap", "pruned"
"""Why an output is told in other words."""
HEAD_SHARE = 0.6
"""Of what stays of a cut output, what stays of its beginning; the rest is its end, where results and errors stand."""
ENTRY_SHOWN = 12
"""Characters of an entry's id in a ref: recall takes any unique beginning."""
PATHS, SYMBOLS = 24, 12
"""Names that a breadcrumb keeps at most."""
WHAT = 100
"""Characters of a command in a breadcrumb."""


# ---------------------------------------------------------------------------------------------------------------- cut
def cuts(story: Story, cap: int, count: Count, rules: OutputRules = NO_RULES, most: int = 0) -> tuple[Replaced, ...]:
    """The outputs behind the last answer that alone are longer than `cap` tokens, or than their rule says, cut to that
    (L4, S4-64). 0 is no cap; whatever a rule says, nothing stays longer than `most`."""
    return tuple(
        Replaced(placed.entry.id, cut(message.text, message.tokens, own, ref_of(placed), count), CUT)
        for placed, message, own in _too_long(story, cap, rules, most)
    )


def removed_by_cuts(story: Story, cap: int, rules: OutputRules = NO_RULES, most: int = 0) -> int:
    """Tokens that these cuts take off the line, about; nothing is cut for it."""
    return sum(message.tokens - own for _, message, own in _too_long(story, cap, rules, most))


def _too_long(story: Story, cap: int, rules: OutputRules, most: int) -> Iterator[tuple[Placed, Message, int]]:
    """New outputs that are cut, each with the tokens it may have."""
    called = _callers(story) if rules else {}
    for placed in unread(story):
        message = placed.entry.message
        if message and message.answers and placed.entry.id not in story.tree.replaced:
            own = _cap_of(rules.of(called[message.answers]) if message.answers in called else None, cap, most)
            if own and message.tokens > own:
                yield placed, message, own


def _cap_of(rule: OutputRule | None, cap: int, most: int) -> int:
    if rule is None or not (rule.whole or rule.cap):
        return cap
    return min(filter(None, (rule.cap, most)), default=0)


def _callers(story: Story) -> dict[str, str]:
    """The tools whose results have not been read, by the ids of their calls."""
    for placed in reversed(story.placed):
        message = placed.round.spoken.message if placed.round else placed.entry.message
        if message is not None and message.role == "assistant":
            return {call.id: call.name for call in message.calls}
    return {}


def unread(story: Story) -> Iterator[Placed]:
    """What stands behind the last answer, the newest first."""
    for placed in reversed(story.placed):
        if placed.round is not None or (placed.entry.message and placed.entry.message.role == "assistant"):
            return
        yield placed


def cut(text: str, tokens: int, cap: int, ref: str, count: Count) -> str:
    """`text` of so many tokens, cut to about `cap`, never more: its beginning, a line of ours, its end. The same text
    is cut the same way always."""
    share = cap / max(tokens, 1)
    while True:
        kept = int(len(text) * share)
        head = text[: int(kept * HEAD_SHARE)]
        tail = text[len(text) - (kept - len(head)) :] if kept > len(head) else ""
        missing = len(text) - len(head) - len(tail)
        line = (
            f"[{missing:,} of {len(text):,} characters left out here: this output alone is longer than {cap:,} tokens. "
            f'All of it is stored: stack_recall with ref="{ref}"]'
        )
        short = f"{head}\n{line}\n{tail}"
        if kept == 0 or (counted := count(short)) <= cap:
            return short
        share *= min(SHRINK, cap / counted)  # the ends may hold more tokens to the character than the whole


SHRINK = 0.97
"""Less stays in each further try, or there would be no end to them."""


def ref_of(placed: Placed) -> str:
    """Under which ref recall gives the stored text of an entry."""
    return placed.entry.id[:ENTRY_SHOWN]


# ------------------------------------------------------------------------------------------------------------- cleared
class Output(msgspec.Struct, frozen=True):
    """The result of a client's tool on the line, with the call it answers; `text` as the line tells it,
    `failed` as the client does."""

    placed: Placed
    call: Call
    text: str
    failed: bool = False


def candidates(story: Story, line: Line, rules: OutputRules = NO_RULES) -> tuple[Replaced, ...]:
    """The old outputs on the line, cleared, the newest first; nothing where that saves too little (S4-30 to S4-36).
    What a rule keeps whole is none of them."""
    spared, saved = 0, 0
    found: list[Replaced] = []
    for output in reversed(outputs(story, line.entries)):
        rule = rules.of(output.call.name) if rules else None
        if output.text.startswith(CLEARED) or (rule and rule.whole):
            continue
        spared += estimated(output.text)
        if spared <= PROTECTED:
            continue
        crumb = breadcrumb(output, rule, rules.names)
        gain = estimated(output.text) - estimated(crumb)
        if gain > 0:
            saved += gain
            found.append(Replaced(output.placed.entry.id, crumb, PRUNED))
    return tuple(found) if saved > LEAST_SAVED else ()


def estimated(text: str) -> int:
    """Tokens as a quarter of the characters: exact enough to choose by (S4-35)."""
    return max(0, round(len(text) / 4))


def outputs(story: Story, on_line: Container[str]) -> list[Output]:
    """Results of the client's own tools among the entries on the line, oldest first: those before its newest ones,
    behind the newest trace. What stands before a trace was chosen to stay when that was written (S4-32)."""
    traced = frozenset(trim.at for trim in story.tree.trims)
    calls: dict[str, Call] = {}
    found: list[Output] = []
    for placed in _answered(story):
        message = placed.round.spoken.message if placed.round else placed.entry.message
        if message is not None:
            calls |= {c.id: c for c in message.calls}
            call = calls.get(message.answers) if message.answers else None
            if call is not None and not call.is_ours and placed.at in on_line:
                text = story.tree.replaced.get(placed.entry.id, message.text)
                found.append(Output(placed, call, text, message.failed))
        if placed.at in traced or placed.entry.id in traced:
            found.clear()
    return found


def _answered(story: Story) -> Iterator[Placed]:
    """What stands before what the client sent last: that stays as it was sent, also behind rounds that the client does
    not see (L4)."""
    newest = story.newest[0] if story.newest else None
    return takewhile(lambda placed: placed is not newest, story.placed)


def breadcrumb(output: Output, rule: OutputRule | None = None, names: Names = NAMES) -> str:
    """What stays of an output: which call it was, how large it was, how it ended, the names in it, and the ref
    (S2-12 to S2-14); below it what of its beginning and its end its rule keeps (S2-44)."""
    text = output.text
    code = exit_code(text)
    parts = [
        f"{CLEARED} {_what(output.call, names)}: {text.count(chr(10)) + 1:,} lines, {len(text):,} characters",
        f"exit code {code}" if code is not None else "",
        *_names(text),
        f'all of it: stack_recall with ref="{ref_of(output.placed)}"',
    ]
    crumb = "; ".join(part for part in parts if part)
    head, tail = rule.kept_of(text) if rule else ("", "")
    kept = (("its beginning", head), ("its end", tail))
    return "\n".join([crumb, *(f"[{where}:]\n{words}" for where, words in kept if words)])


def _what(call: Call, names: Names) -> str:
    """`read src/a.py`, or the tool and the beginning of its arguments."""
    if paths := [touched.path for touched in touched_by(call, names)]:
        return f"{call.name} {', '.join(paths[:PATHS])}"
    return f"{call.name} {cut_for_display(call.arguments, WHAT)}"


def _names(text: str) -> list[str]:
    """The paths that an output showed, and the other names it spoke of most."""
    named = ranked_names([Message("tool", b"", "", text)])
    paths = [name for name in named if "/" in name]
    symbols = [name for name in named if "/" not in name]
    told = (("paths", paths[:PATHS], len(paths)), ("names", symbols[:SYMBOLS], len(symbols)))
    return [
        f"{what}: {', '.join(kept)}{f' +{n - len(kept)}' if n > len(kept) else ''}" for what, kept, n in told if kept
    ]
