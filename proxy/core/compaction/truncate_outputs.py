"""Shortens tool outputs: `cut_long_outputs` cuts the middle of a new output above `output_cap`; `clear_old_outputs`
replaces outputs older than the newest 40,000 tokens of them by a breadcrumb that says what they were. Rules
(`output_rules`) change this by tool name, name pattern or tool role, in that order.

Each result keeps its place; only the text changes, once, through an event with the new text, which names the ref of the
stored original. Clearing in a warm cache costs more than it saves, so it is used only if the context does not fit
otherwise.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import takewhile

import msgspec

from proxy.core.context import Context
from proxy.core.frames import READ, LoadingGroup, PathEntry, PathState, ResultReplaced, is_same_file
from proxy.core.ledger import Call, Message, OpenCalls
from proxy.core.observers import (
    DEFAULT_TOOL_ROLES,
    ToolRole,
    ToolRoles,
    clean_name,
    exit_code,
    files_touched_by,
    normalize_name,
    rank_names,
)
from proxy.core.recall import requested_part
from proxy.core.text import CHARACTERS_PER_TOKEN, CountTokens, cut_for_display


class OutputRule(msgspec.Struct, frozen=True):
    """One rule. `cap`, `head` and `tail` are tokens; a `cap` of 0 means the general one."""

    name: str
    keep_whole: bool = False
    cap: int = 0
    head: int = 0
    tail: int = 0

    def head_and_tail(self, text: str) -> tuple[str, str]:
        """The beginning and end of an old output that stay."""
        head = text[: self.head * CHARACTERS_PER_TOKEN]
        tail = text[len(head) :][-self.tail * CHARACTERS_PER_TOKEN :] if self.tail else ""
        return head, tail


class OutputRules(msgspec.Struct, frozen=True):
    """All rules in configured order; `names` gives the role of each tool."""

    rules: Sequence[OutputRule] = ()
    names: ToolRoles = msgspec.field(default=DEFAULT_TOOL_ROLES)

    def __bool__(self) -> bool:
        return bool(self.rules)

    def rule_for(self, tool: str) -> OutputRule | None:
        """The rule for the outputs of `tool`, if any."""
        return next(self._matching_rules(tool), None)

    def _matching_rules(self, tool: str) -> Iterator[OutputRule]:
        plain, role = normalize_name(tool), self.names.role_of(tool)
        yield from (rule for rule in self.rules if normalize_name(rule.name) == plain)
        yield from (rule for rule in self.rules if rule.name not in ROLE_NAMES and fnmatchcase(tool, rule.name))
        yield from (rule for rule in self.rules if role is not None and rule.name == role)


ROLE_NAMES = frozenset(ToolRole)
NO_OUTPUT_RULES = OutputRules()


PROTECTED_TOKENS = 40_000
"""The newest outputs, up to so many tokens, are never cleared."""
MIN_SAVED_TOKENS = 20_000
"""Clearing must save so many tokens, or nothing is cleared."""
CLEARED_PREFIX = "[Old tool result content cleared]"
"""The first words of a cleared output."""
CUT_REASON, PRUNED_REASON = "output_cap", "pruned"
"""Reasons stored with the events."""
HEAD_SHARE = 0.6
"""Share of a cut output that goes to its beginning; the rest is its end, where results and errors are."""
ENTRY_REF_CHARACTERS = 12
"""Characters of an entry id in a ref; recall accepts any unique prefix."""
MAX_PATHS, MAX_SYMBOLS = 24, 12
"""Maximum names in a breadcrumb."""
COMMAND_CHARACTERS = 100


# ---------------------------------------------------------------------------------------------------------------- cut
def cut_long_outputs(
    path_state: PathState, cap: int, count: CountTokens, rules: OutputRules = NO_OUTPUT_RULES, most: int = 0
) -> tuple[ResultReplaced, ...]:
    """Cut each output behind the last answer that is longer than `cap` tokens, or than the cap of its rule. A cap of 0
    is no cap; a rule never allows more than `most` tokens."""
    return tuple(
        ResultReplaced(
            path_entry.entry.id,
            cut_middle(message.text, message.tokens, limit, recall_ref(path_entry), count),
            CUT_REASON,
        )
        for path_entry, message, limit in _outputs_over_cap(path_state, cap, rules, most)
    )


def tokens_removed_by_cuts(path_state: PathState, cap: int, rules: OutputRules = NO_OUTPUT_RULES, most: int = 0) -> int:
    """An estimate of the tokens saved, without cutting anything."""
    return sum(message.tokens - limit for _, message, limit in _outputs_over_cap(path_state, cap, rules, most))


def _outputs_over_cap(
    path_state: PathState, cap: int, rules: OutputRules, most: int
) -> list[tuple[PathEntry, Message, int]]:
    """New outputs to cut, newest first, each with its token limit."""
    called = _unread_calls(path_state) if rules else OpenCalls[str]()
    found: list[tuple[PathEntry, Message, int]] = []
    for path_entry in reversed(list(unread_entries(path_state))):
        message = path_entry.entry.message
        if message is None or not message.answers or message.loaded_tools:
            continue
        name = called.find(message.answers)
        limit = _cap_of(None if name is None else rules.rule_for(name), cap, most)
        if limit and message.tokens > limit and path_entry.entry.id not in path_state.tree.replaced_results:
            found.append((path_entry, message, limit))
    return found[::-1]


def _cap_of(rule: OutputRule | None, cap: int, most: int) -> int:
    if rule is None or not (rule.keep_whole or rule.cap):
        return cap
    return min(filter(None, (rule.cap, most)), default=0)


def _unread_calls(path_state: PathState) -> OpenCalls[str]:
    """The calls whose results are unread, as the names of their tools."""
    calls = OpenCalls[str]()
    for path_entry in reversed(path_state.entries):
        message = path_entry.message
        if message is not None and message.role == "assistant":
            calls.add((call.id, call.name) for call in message.calls)
            break
    return calls


def unread_entries(path_state: PathState) -> Iterator[PathEntry]:
    """Entries behind the last answer, newest first."""
    for path_entry in reversed(path_state.entries):
        if path_entry.round is not None or (path_entry.entry.message and path_entry.entry.message.role == "assistant"):
            return
        yield path_entry


def cut_middle(text: str, tokens: int, cap: int, ref: str, count: CountTokens) -> str:
    """`text` (of `tokens` tokens) cut to at most `cap`: its beginning, a line about the gap, its end. Deterministic."""
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
"""Each further attempt keeps less, so the loop ends."""


def recall_ref(path_entry: PathEntry) -> str:
    """The ref under which recall returns an entry."""
    return path_entry.entry.id[:ENTRY_REF_CHARACTERS]


# ------------------------------------------------------------------------------------------------------------- cleared
class ToolOutput(msgspec.Struct, frozen=True):
    """A result of a client's tool with its call. `text` is the present wording; `failed` is what the client said."""

    path_entry: PathEntry
    call: Call
    text: str
    failed: bool = False


def clear_old_outputs(
    path_state: PathState, context: Context, rules: OutputRules = NO_OUTPUT_RULES
) -> tuple[ResultReplaced, ...]:
    """Breadcrumbs for old outputs, newest first; empty if they save too little. Outputs that a rule keeps whole are
    skipped."""
    spared, saved = 0, 0
    in_view: list[Call] = []
    """Calls that read files and whose outputs stay, newest first."""
    replaced: list[ResultReplaced] = []
    for output in reversed(old_tool_outputs(path_state, context.entries)):
        rule = rules.rule_for(output.call.name) if rules else None
        if output.text.startswith(CLEARED_PREFIX) or (rule and rule.keep_whole):
            continue
        spared += estimate_output_tokens(output.text)
        if spared <= PROTECTED_TOKENS:
            in_view.append(output.call)
            continue
        crumb = breadcrumb(output, rule, rules.names, is_read_again=_was_read_again(output.call, in_view, rules.names))
        gain = estimate_output_tokens(output.text) - estimate_output_tokens(crumb)
        if gain > 0:
            saved += gain
            replaced.append(ResultReplaced(output.path_entry.entry.id, crumb, PRUNED_REASON))
    return tuple(replaced) if saved > MIN_SAVED_TOKENS else ()


def clear_results_beside(
    path_state: PathState, context: Sequence[PathEntry], searches: Iterable[LoadingGroup], names: ToolRoles
) -> tuple[ResultReplaced, ...]:
    """Breadcrumbs for the other results in the groups of tool searches that stay where the work around them leaves."""
    replaced: list[ResultReplaced] = []
    for search in searches:
        group = [(context[at], message) for at in search.positions if (message := context[at].message)]
        calls = {call.id: call for _, message in group for call in message.calls}
        for path_entry, message in group:
            is_new = path_entry.entry.id not in path_state.tree.replaced_results
            if message.answers in calls and is_new and not message.loaded_tools:
                crumb = breadcrumb(ToolOutput(path_entry, calls[message.answers], message.text), None, names)
                if estimate_output_tokens(crumb) < estimate_output_tokens(message.text):
                    replaced.append(ResultReplaced(path_entry.entry.id, crumb, PRUNED_REASON))
    return tuple(replaced)


def estimate_output_tokens(text: str) -> int:
    """A quarter of the characters: exact enough for this choice."""
    return max(0, round(len(text) / 4))


def old_tool_outputs(path_state: PathState, in_context: Container[str]) -> list[ToolOutput]:
    """Results of the client's tools in the context, oldest first, without its newest entries. Only results behind the
    newest trace: those before it were kept on purpose."""
    traced = frozenset(trim.at for trim in path_state.tree.removals)
    calls = OpenCalls[Call]()
    outputs: list[ToolOutput] = []
    for path_entry in _entries_before_newest(path_state):
        message = path_entry.message
        if message is not None:
            calls.add((c.id, c) for c in message.calls)
            call = calls.find(message.answers) if message.answers else None
            is_output = call is not None and not call.is_stack_call and not message.loaded_tools
            if call is not None and is_output and path_entry.path_id in in_context:
                text = path_state.tree.replaced_results.get(path_entry.entry.id, message.text)
                outputs.append(ToolOutput(path_entry, call, text, message.failed))
        if path_entry.path_id in traced or path_entry.entry.id in traced:
            outputs.clear()
    return outputs


def _entries_before_newest(path_state: PathState) -> Iterator[PathEntry]:
    """Entries before the client's newest ones; those are sent unchanged, even behind rounds that the client does not
    see."""
    newest = path_state.newest_client_entries[0] if path_state.newest_client_entries else None
    return takewhile(lambda path_entry: path_entry is not newest, path_state.entries)


def _was_read_again(call: Call, later: Sequence[Call], names: ToolRoles) -> bool:
    """Whether each file that `call` read was read whole or in the same part by one of `later`."""
    read = _read_paths(call, names)
    again = [_read_paths(other, names) for other in later if requested_part(other) in ("", requested_part(call))]
    return bool(read) and all(any(is_same_file(path, other) for paths in again for other in paths) for path in read)


def _read_paths(call: Call, names: ToolRoles) -> Sequence[str]:
    return [touched.path for touched in files_touched_by(call, names) if touched.how == READ]


def breadcrumb(
    output: ToolOutput,
    rule: OutputRule | None = None,
    names: ToolRoles = DEFAULT_TOOL_ROLES,
    *,
    is_read_again: bool = False,
) -> str:
    """What remains of an output: its call, size, exit code, the names in it, whether a newer reading of its file stays,
    the ref, and the beginning and end that its rule keeps."""
    text = output.text
    code = exit_code(text)
    parts = [
        f"{CLEARED_PREFIX} {describe_call(output.call, names)}: {text.count(chr(10)) + 1:,} lines, "
        f"{len(text):,} characters",
        f"exit code {code}" if code is not None else "",
        *_describe_names(text),
        "read again later" if is_read_again else "",
        f'all of it: stack_recall with ref="{recall_ref(output.path_entry)}"',
    ]
    crumb = "; ".join(part for part in parts if part)
    head, tail = rule.head_and_tail(text) if rule else ("", "")
    kept = (("its beginning", head), ("its end", tail))
    return "\n".join([crumb, *(f"[{where}:]\n{words}" for where, words in kept if words)])


def describe_call(call: Call, names: ToolRoles) -> str:
    """In one line: `read src/a.py`, or the tool and the beginning of its arguments."""
    if paths := [touched.path for touched in files_touched_by(call, names)]:
        return f"{call.name} {', '.join(paths[:MAX_PATHS])}"
    return f"{call.name} {cut_for_display(call.arguments, COMMAND_CHARACTERS)}"


def _describe_names(text: str) -> list[str]:
    """Paths in an output, and the other names it mentions most."""
    named = [name for name in rank_names([Message("tool", b"", "", text)]) if clean_name(name)]
    paths = [name for name in named if "/" in name]
    symbols = [name for name in named if "/" not in name]
    groups = (("paths", paths[:MAX_PATHS], len(paths)), ("names", symbols[:MAX_SYMBOLS], len(symbols)))
    return [
        f"{what}: {', '.join(kept)}{f' +{n - len(kept)}' if n > len(kept) else ''}" for what, kept, n in groups if kept
    ]
