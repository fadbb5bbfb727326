"""Decides what may leave the context, whether that pays, and what text replaces it; also shortens a context that does
not fit the model's window."""

from proxy.core.compaction import compaction_plan
from proxy.core.compaction.compaction_plan import CompactionDecision, CompactionPlan, is_compaction_due, plan_compaction
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
    CompactionInput,
    LongRequestPrice,
    expected_requests,
    untouched_cost,
    within_outlay,
)
from proxy.core.compaction.fold_events import TraceWriter
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
from proxy.core.compaction.repeated_blocks import leave_out_repeats, tell_whole_again
from proxy.core.compaction.segments import (
    FoldingLevel,
    FoldRules,
    is_assistant,
    original_tokens,
    reasoning_tokens,
    tokens_in_context,
)
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
from proxy.core.compaction.unfold import plan_unfolds
from proxy.core.compaction.window_pressure import WindowLimits, count_context_tokens, pressure_change, pressure_note
