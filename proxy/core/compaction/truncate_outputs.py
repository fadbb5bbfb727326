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

from proxy.core.context import Context
from proxy.core.frames import PathEntry, PathState, ResultReplaced
from proxy.core.ledger import Call, Message
from proxy.core.observers import (
    DEFAULT_TOOL_ROLES,
    ToolRole,
    ToolRoles,
    exit_code,
    files_touched_by,
    normalize_name,
    rank_names,
)
from proxy.core.text import CHARACTERS_PER_TOKEN, CountTokens, cut_for_display


class OutputRule(msgspec.Struct, frozen=True):
    """One rule, by the words it stands under. `cap`, `head` and `tail` are tokens; a cap of 0 is that of all."""

    name: str
    keep_whole: bool = False
    cap: int = 0
    head: int = 0
    tail: int = 0

    def head_and_tail(self, text: str) -> tuple[str, str]:
        """Beginning and end of an old output as they stay, in tokens of so many characters as clearing estimates."""
        head = text[: self.head * CHARACTERS_PER_TOKEN]
        tail = text[len(head) :][-self.tail * CHARACTERS_PER_TOKEN :] if self.tail else ""
        return head, tail


class OutputRules(msgspec.Struct, frozen=True):
    """All rules, in the order they were written; `names` says what tools are for."""

    rules: Sequence[OutputRule] = ()
    names: ToolRoles = msgspec.field(default=DEFAULT_TOOL_ROLES)

    def __bool__(self) -> bool:
        return bool(self.rules)

    def rule_for(self, tool: str) -> OutputRule | None:
        """The rule that the outputs of `tool` come under."""
        return next(self._matching_rules(tool), None)

    def _matching_rules(self, tool: str) -> Iterator[OutputRule]:
        plain, role = normalize_name(tool), self.names.role_of(tool)
        yield from (rule for rule in self.rules if normalize_name(rule.name) == plain)
        yield from (rule for rule in self.rules if rule.name not in ROLE_NAMES and fnmatchcase(tool, rule.name))
        yield from (rule for rule in self.rules if role is not None and rule.name == role)


ROLE_NAMES = frozenset(ToolRole)
NO_OUTPUT_RULES = OutputRules()


PROTECTED_TOKENS = 40_000
"""Tokens of the newest outputs that are never cleared (S4-30)."""
MIN_SAVED_TOKENS = 20_000
"""Tokens that clearing must save, or nothing is cleared (S4-31)."""
CLEARED_PREFIX = "[Old tool result content cleared]"
"""How a cleared output begins (S4-34)."""
CUT_REASON, PRUNED_REASON = "output_cap", "pruned"
"""Why an output is told in other words."""
HEAD_SHARE = 0.6
"""Of what stays of a cut output, what stays of its beginning; the rest is its end, where results and errors stand."""
ENTRY_REF_CHARACTERS = 12
"""Characters of an entry's id in a ref: recall takes any unique beginning."""
MAX_PATHS, MAX_SYMBOLS = 24, 12
"""Names that a breadcrumb keeps at most."""
COMMAND_CHARACTERS = 100
"""Characters of a command in a breadcrumb."""


# ---------------------------------------------------------------------------------------------------------------- cut
def cut_long_outputs(
    path_state: PathState, cap: int, count: CountTokens, rules: OutputRules = NO_OUTPUT_RULES, most: int = 0
) -> tuple[ResultReplaced, ...]:
    """The outputs behind the last answer that alone are longer than `cap` tokens, or than their rule says, cut to that
    (L4, S4-64). 0 is no cap; whatever a rule says, nothing stays longer than `most`."""
    return tuple(
        ResultReplaced(
            placed.entry.id, cut_middle(message.text, message.tokens, own, recall_ref(placed), count), CUT_REASON
        )
        for placed, message, own in _outputs_over_cap(path_state, cap, rules, most)
    )


def tokens_removed_by_cuts(path_state: PathState, cap: int, rules: OutputRules = NO_OUTPUT_RULES, most: int = 0) -> int:
    """Tokens that these cuts take off the line, about; nothing is cut for it."""
    return sum(message.tokens - own for _, message, own in _outputs_over_cap(path_state, cap, rules, most))


def _outputs_over_cap(
    path_state: PathState, cap: int, rules: OutputRules, most: int
) -> Iterator[tuple[PathEntry, Message, int]]:
    """New outputs that are cut, each with the tokens it may have."""
    called = _tool_names_by_call(path_state) if rules else {}
    for placed in unread_entries(path_state):
        message = placed.entry.message
        if message and message.answers and placed.entry.id not in path_state.tree.replaced_results:
            own = _cap_of(rules.rule_for(called[message.answers]) if message.answers in called else None, cap, most)
            if own and message.tokens > own:
                yield placed, message, own


def _cap_of(rule: OutputRule | None, cap: int, most: int) -> int:
    if rule is None or not (rule.keep_whole or rule.cap):
        return cap
    return min(filter(None, (rule.cap, most)), default=0)


def _tool_names_by_call(path_state: PathState) -> dict[str, str]:
    """The tools whose results have not been read, by the ids of their calls."""
    for placed in reversed(path_state.entries):
        message = placed.round.spoken.message if placed.round else placed.entry.message
        if message is not None and message.role == "assistant":
            return {call.id: call.name for call in message.calls}
    return {}


def unread_entries(path_state: PathState) -> Iterator[PathEntry]:
    """What stands behind the last answer, the newest first."""
    for placed in reversed(path_state.entries):
        if placed.round is not None or (placed.entry.message and placed.entry.message.role == "assistant"):
            return
        yield placed


def cut_middle(text: str, tokens: int, cap: int, ref: str, count: CountTokens) -> str:
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
        share *= min(SHRINK_FACTOR, cap / counted)  # the ends may hold more tokens to the character than the whole


SHRINK_FACTOR = 0.97
"""Less stays in each further try, or there would be no end to them."""


def recall_ref(placed: PathEntry) -> str:
    """Under which ref recall gives the stored text of an entry."""
    return placed.entry.id[:ENTRY_REF_CHARACTERS]


# ------------------------------------------------------------------------------------------------------------- cleared
class ToolOutput(msgspec.Struct, frozen=True):
    """The result of a client's tool on the line, with the call it answers; `text` as the line tells it,
    `failed` as the client does."""

    path_entry: PathEntry
    call: Call
    text: str
    failed: bool = False


def clear_old_outputs(
    path_state: PathState, line: Context, rules: OutputRules = NO_OUTPUT_RULES
) -> tuple[ResultReplaced, ...]:
    """The old outputs on the line, cleared, the newest first; nothing where that saves too little (S4-30 to S4-36).
    What a rule keeps whole is none of them."""
    spared, saved = 0, 0
    found: list[ResultReplaced] = []
    for output in reversed(old_tool_outputs(path_state, line.entries)):
        rule = rules.rule_for(output.call.name) if rules else None
        if output.text.startswith(CLEARED_PREFIX) or (rule and rule.keep_whole):
            continue
        spared += estimate_output_tokens(output.text)
        if spared <= PROTECTED_TOKENS:
            continue
        crumb = breadcrumb(output, rule, rules.names)
        gain = estimate_output_tokens(output.text) - estimate_output_tokens(crumb)
        if gain > 0:
            saved += gain
            found.append(ResultReplaced(output.path_entry.entry.id, crumb, PRUNED_REASON))
    return tuple(found) if saved > MIN_SAVED_TOKENS else ()


def estimate_output_tokens(text: str) -> int:
    """Tokens as a quarter of the characters: exact enough to choose by (S4-35)."""
    return max(0, round(len(text) / 4))


def old_tool_outputs(path_state: PathState, on_line: Container[str]) -> list[ToolOutput]:
    """Results of the client's own tools among the entries on the line, oldest first: those before its newest ones,
    behind the newest trace. What stands before a trace was chosen to stay when that was written (S4-32)."""
    traced = frozenset(trim.at for trim in path_state.tree.removals)
    calls: dict[str, Call] = {}
    found: list[ToolOutput] = []
    for placed in _entries_before_newest(path_state):
        message = placed.round.spoken.message if placed.round else placed.entry.message
        if message is not None:
            calls |= {c.id: c for c in message.calls}
            call = calls.get(message.answers) if message.answers else None
            if call is not None and not call.is_stack_call and placed.path_id in on_line:
                text = path_state.tree.replaced_results.get(placed.entry.id, message.text)
                found.append(ToolOutput(placed, call, text, message.failed))
        if placed.path_id in traced or placed.entry.id in traced:
            found.clear()
    return found


def _entries_before_newest(path_state: PathState) -> Iterator[PathEntry]:
    """What stands before what the client sent last: that stays as it was sent, also behind rounds that the client does
    not see (L4)."""
    newest = path_state.newest_client_entries[0] if path_state.newest_client_entries else None
    return takewhile(lambda placed: placed is not newest, path_state.entries)


def breadcrumb(output: ToolOutput, rule: OutputRule | None = None, names: ToolRoles = DEFAULT_TOOL_ROLES) -> str:
    """What stays of an output: which call it was, how large it was, how it ended, the names in it, and the ref
    (S2-12 to S2-14); below it what of its beginning and its end its rule keeps (S2-44)."""
    text = output.text
    code = exit_code(text)
    parts = [
        f"{CLEARED_PREFIX} {_describe_call(output.call, names)}: {text.count(chr(10)) + 1:,} lines, "
        f"{len(text):,} characters",
        f"exit code {code}" if code is not None else "",
        *_describe_names(text),
        f'all of it: stack_recall with ref="{recall_ref(output.path_entry)}"',
    ]
    crumb = "; ".join(part for part in parts if part)
    head, tail = rule.head_and_tail(text) if rule else ("", "")
    kept = (("its beginning", head), ("its end", tail))
    return "\n".join([crumb, *(f"[{where}:]\n{words}" for where, words in kept if words)])


def _describe_call(call: Call, names: ToolRoles) -> str:
    """`read src/a.py`, or the tool and the beginning of its arguments."""
    if paths := [touched.path for touched in files_touched_by(call, names)]:
        return f"{call.name} {', '.join(paths[:MAX_PATHS])}"
    return f"{call.name} {cut_for_display(call.arguments, COMMAND_CHARACTERS)}"


def _describe_names(text: str) -> list[str]:
    """The paths that an output showed, and the other names it spoke of most."""
    named = rank_names([Message("tool", b"", "", text)])
    paths = [name for name in named if "/" in name]
    symbols = [name for name in named if "/" not in name]
    told = (("paths", paths[:MAX_PATHS], len(paths)), ("names", symbols[:MAX_SYMBOLS], len(symbols)))
    return [
        f"{what}: {', '.join(kept)}{f' +{n - len(kept)}' if n > len(kept) else ''}" for what, kept, n in told if kept
    ]
