"""Older results told in a line each, for models with a small window (S3-03).

Of the outputs on the line the newest three stand as they came, those the model has not read yet among them; what was
done before is `name → result`, with the ref that `stack_recall` takes. A call keeps its result and its place, only the
words change, once and for good.

The law: **the line changes at moments, not with every request** (L2). That is where something else breaks the prefix
anyway, where nothing of it is cached, or where a whole batch has grown old and the gate says that it pays.

What this module does not do: it cuts no arguments of a call, and nothing the model has not read.
"""

from __future__ import annotations

from collections.abc import Sequence

from proxy.core.compaction.compaction_plan import CompactionDecision, CompactionInput, CompactionPlan
from proxy.core.compaction.cost_gate import ContextRewrite, evaluate_rewrite
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
"""Outputs that must have grown old before the line changes for their sake alone."""
MINIMAL_REASON = "minimal"
"""Why an output is told in other words."""
RECALL_HINT = '; all of it: stack_recall with ref="{ref}"'


def plan_one_line_outputs(
    path_state: PathState,
    compaction_input: CompactionInput,
    count: CountTokens,
    *,
    breaks: bool,
    rules: OutputRules = NO_OUTPUT_RULES,
) -> CompactionPlan:
    """The outputs that are told in a line from now on, none that a rule keeps whole. `breaks`: the prefix breaks with
    this request anyway."""
    line = context_entries(path_state)
    read = old_tool_outputs(path_state, {path_entry.path_id for path_entry in line})
    waiting = sum(
        1 for path_entry in unread_entries(path_state) if path_entry.entry.message and path_entry.entry.message.answers
    )
    old = read[: max(0, len(read) - max(0, MAX_ACTIONS - waiting))]
    told = [(output, words) for output in old if len(words := one_line_text(output)) < len(output.text)]
    told = [each for each in told if each[0].path_entry.entry.id not in path_state.tree.replaced_results]
    if rules:
        told = [each for each in told if not ((rule := rules.rule_for(each[0].call.name)) and rule.keep_whole)]
    free = breaks or compaction_input.cold
    if not told or (len(told) < MIN_BATCH_SIZE and not free):
        return CompactionPlan()
    verdict = evaluate_rewrite(
        _rewrite_figures(path_state, line, told, compaction_input, count),
        compaction_input.prices,
        compaction_input.requests,
        cold=free,
        window=compaction_input.window,
    )
    decision = CompactionDecision("minimize", (path_state.tree.active,), verdict)
    if not verdict.is_worth_it:
        return CompactionPlan((), (decision,))
    return CompactionPlan(
        tuple(ResultReplaced(o.path_entry.entry.id, words, MINIMAL_REASON) for o, words in told), (decision,)
    )


def one_line_text(output: ToolOutput) -> str:
    """What stands for it: the tool, what came of the call, and how all of it is had again."""
    done = ToolExecution(output.call, output.text, failed=output.failed)
    return format_action(done) + RECALL_HINT.format(ref=recall_ref(output.path_entry))


def _rewrite_figures(
    path_state: PathState,
    line: Sequence[PathEntry],
    told: Sequence[tuple[ToolOutput, str]],
    compaction_input: CompactionInput,
    count: CountTokens,
) -> ContextRewrite:
    tokens = [tokens_in_context(path_state, path_entry, count) for path_entry in line]
    first = told[0][0].path_entry
    start = next(at for at, path_entry in enumerate(line) if path_entry is first)
    removed = sum(original_tokens(output.path_entry) for output, _ in told)
    kept = sum(count(words) for _, words in told)
    behind = sum(tokens[start:]) - removed
    return ContextRewrite(removed, kept, behind, compaction_input.head + sum(tokens))
