"""The trace: the text that replaces the messages of an inferred frame, or of a part of one.

It is a note that a colleague could work from, written without a model: what was said, what came of it, the steps,
decisions, edits, files, errors and what was open, and last a few names. It begins with whose work it is and how to get
it back, by its one `ref`. The same values give the same bytes, all in the past tense, so that the model does not answer
old messages again. A trace that replaces an older one takes over its items. Read `write_trace.py` first.
"""

from proxy.core.compaction.trace.parse_trace import parse_traces
from proxy.core.compaction.trace.sections import (
    BROKEN_SECTION,
    MAX_WRITTEN_TOKENS,
    RESULTS_SHARE,
    TRACE_SECTIONS,
    facts_elements,
)
from proxy.core.compaction.trace.span_facts import UNDONE_LATER, SpanFacts, merge_facts
from proxy.core.compaction.trace.write_trace import (
    MAX_TRACE_TOKENS,
    MIN_TRACE_TOKENS,
    TRACE_SHARE,
    TRACE_START,
    trace_budget,
    trace_text,
)
