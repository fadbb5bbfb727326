"""Replaces older tool outputs by one line each, for models with a small window.

The newest three outputs, and those the model has not read, stay whole; an older one becomes `name → result` with its
recall ref, once and for good. The context changes only if this request breaks the prefix anyway, nothing is cached, or
a whole batch passes the cost gate.
"""

from __future__ import annotations

from collections.abc import Sequence

from proxy.core.compaction.compaction_plan import CompactionDecision, CompactionPlan
from proxy.core.compaction.fold_cost import CompactionInput, ContextRewrite
from proxy.core.compaction.segments import original_tokens, tokens_in_context
from proxy.core.compaction.truncate_outputs import (
    NO_OUTPUT_RULES,
    OutputRules,
    ToolOutput,
    old_tool_outputs,
    recall_ref,
    unread_entries,
)
from proxy.core.context import MAX_ACTIONS, context_entries, format_action
from proxy.core.frames import PathEntry, PathState, ResultReplaced
from proxy.core.observers import ToolExecution
from proxy.core.text import CountTokens

MIN_BATCH_SIZE = 7
"""Old outputs needed before the context is changed for them alone."""
MINIMAL_REASON = "minimal"
"""The reason stored with the event."""
RECALL_HINT = '; all of it: stack_recall with ref="{ref}"'


def plan_one_line_outputs(
    path_state: PathState,
    compaction_input: CompactionInput,
    count: CountTokens,
    *,
    breaks: bool,
    rules: OutputRules = NO_OUTPUT_RULES,
) -> CompactionPlan:
    """Outputs to shorten now; outputs that a rule keeps whole are left alone. `breaks` means that this request breaks
    the cached prefix anyway."""
    context = context_entries(path_state)
    outputs = old_tool_outputs(path_state, {path_entry.path_id for path_entry in context})
    waiting = sum(
        1 for path_entry in unread_entries(path_state) if path_entry.entry.message and path_entry.entry.message.answers
    )
    old = outputs[: max(0, len(outputs) - max(0, MAX_ACTIONS - waiting))]
    replaced = [(output, words) for output in old if len(words := one_line_text(output)) < len(output.text)]
    replaced = [pair for pair in replaced if pair[0].path_entry.entry.id not in path_state.tree.replaced_results]
    if rules:
        replaced = [pair for pair in replaced if not ((rule := rules.rule_for(pair[0].call.name)) and rule.keep_whole)]
    free = breaks or compaction_input.cold
    if not replaced or (len(replaced) < MIN_BATCH_SIZE and not free):
        return CompactionPlan()
    rewrite = _rewrite_figures(path_state, context, replaced, compaction_input, count)
    verdict = compaction_input.evaluate(rewrite, cold=free)
    decision = CompactionDecision("minimize", (path_state.tree.active,), verdict)
    if not verdict.is_worth_it:
        return CompactionPlan((), (decision,))
    return CompactionPlan(
        tuple(ResultReplaced(o.path_entry.entry.id, words, MINIMAL_REASON) for o, words in replaced), (decision,)
    )


def one_line_text(output: ToolOutput) -> str:
    execution = ToolExecution(output.call, output.text, failed=output.failed)
    return format_action(execution) + RECALL_HINT.format(ref=recall_ref(output.path_entry))


def _rewrite_figures(
    path_state: PathState,
    context: Sequence[PathEntry],
    replaced: Sequence[tuple[ToolOutput, str]],
    compaction_input: CompactionInput,
    count: CountTokens,
) -> ContextRewrite:
    tokens = [tokens_in_context(path_state, path_entry, count) for path_entry in context]
    first = replaced[0][0].path_entry
    start = next(position for position, path_entry in enumerate(context) if path_entry is first)
    removed = sum(original_tokens(output.path_entry) for output, _ in replaced)
    new_tokens = sum(count(words) for _, words in replaced)
    behind = sum(tokens[start:]) - removed
    return ContextRewrite(removed, new_tokens, behind, compaction_input.head + sum(tokens))
