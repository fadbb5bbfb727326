"""Decides what may leave the context, whether that pays, and what text replaces it; also shortens a context that does
not fit the model's window."""

from proxy.core.compaction import compaction_plan
from proxy.core.compaction.compaction_plan import (
    CompactionDecision,
    CompactionInput,
    CompactionPlan,
    TraceWriter,
    is_compaction_due,
    plan_compaction,
)
from proxy.core.compaction.context_overflow import (
    KEPT_WINDOW_SHARE,
    OverflowNotes,
    drop_oldest,
    drop_oldest_messages,
    droppable_tokens,
    withhold_results,
)
from proxy.core.compaction.facts import REASON_SEPARATOR, artifacts_in_facts, facts_of, facts_of_span
from proxy.core.compaction.fold_cost import (
    PRESSURE_SHARE,
    CachePrices,
    LongRequestPrice,
    evaluate_rewrite,
    expected_requests,
    untouched_cost,
    within_outlay,
)
from proxy.core.compaction.kept_user_messages import user_messages
from proxy.core.compaction.llm_summary import (
    MIN_SPAN_TOKENS,
    SummarySpan,
    describe_active_frame,
    newest_fitting,
    quote_message,
    span_of,
    summary_heading,
    summary_instructions,
    usable_summary,
)
from proxy.core.compaction.one_line_outputs import plan_one_line_outputs
from proxy.core.compaction.repeated_blocks import leave_out_repeats
from proxy.core.compaction.segments import FoldingLevel, FoldRules, original_tokens, reasoning_tokens, tokens_in_context
from proxy.core.compaction.tidy_outputs import tidy_outputs
from proxy.core.compaction.trace import TRACE_START, SpanFacts
from proxy.core.compaction.truncate_outputs import (
    NO_OUTPUT_RULES,
    OutputRule,
    OutputRules,
    clear_old_outputs,
    cut_long_outputs,
    tokens_removed_by_cuts,
)
from proxy.core.compaction.unfold import UnfoldTarget, find_unfold_target, plan_unfolds, unfoldable_frames
from proxy.core.compaction.window_pressure import WindowLimits, count_context_tokens, pressure_change, pressure_note

__all__ = [
    "KEPT_WINDOW_SHARE",
    "MIN_SPAN_TOKENS",
    "NO_OUTPUT_RULES",
    "PRESSURE_SHARE",
    "REASON_SEPARATOR",
    "TRACE_START",
    "CachePrices",
    "CompactionDecision",
    "CompactionInput",
    "CompactionPlan",
    "FoldRules",
    "FoldingLevel",
    "LongRequestPrice",
    "OutputRule",
    "OutputRules",
    "OverflowNotes",
    "SpanFacts",
    "SummarySpan",
    "TraceWriter",
    "UnfoldTarget",
    "WindowLimits",
    "artifacts_in_facts",
    "clear_old_outputs",
    "compaction_plan",
    "count_context_tokens",
    "cut_long_outputs",
    "describe_active_frame",
    "drop_oldest",
    "drop_oldest_messages",
    "droppable_tokens",
    "evaluate_rewrite",
    "expected_requests",
    "facts_of",
    "facts_of_span",
    "find_unfold_target",
    "is_compaction_due",
    "leave_out_repeats",
    "newest_fitting",
    "original_tokens",
    "plan_compaction",
    "plan_one_line_outputs",
    "plan_unfolds",
    "pressure_change",
    "pressure_note",
    "quote_message",
    "reasoning_tokens",
    "span_of",
    "summary_heading",
    "summary_instructions",
    "tidy_outputs",
    "tokens_in_context",
    "tokens_removed_by_cuts",
    "unfoldable_frames",
    "untouched_cost",
    "usable_summary",
    "user_messages",
    "withhold_results",
    "within_outlay",
]
