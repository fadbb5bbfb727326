"""The stack tools that the model calls. `TOOLS` in `stack_tool_list.py` names them all, `tool_definitions` gives those
to offer, and `run` answers a call."""

from proxy.core.tools import frame_tools, inspect_tools, plan_tools
from proxy.core.tools.base import (
    UNBOUNDED,
    CallGroup,
    CrossConversationHits,
    FrameBlockBudgets,
    SubagentRules,
    ToolContext,
    ToolError,
    ToolResult,
    ToolSettings,
)
from proxy.core.tools.branch_tools import (
    branch_named,
    copy_texts,
    copyable_entries,
    create_checkpoint,
    due_branch_switch,
    ends_with_tool_result,
    fingerprint_of,
    numbered_messages,
    render_branch_switch,
    render_pending_injections,
    request_branch,
    request_injection,
    request_switch,
)
from proxy.core.tools.config_tool import setting_values
from proxy.core.tools.context_tools import (
    DEFAULT_PREVIEW_CHARACTERS,
    MAX_PREVIEW_CHARACTERS,
    CompactionState,
    ContextCounts,
    compaction_state_of,
    cut_with_remainder,
    measure_context,
)
from proxy.core.tools.inspect_tools import TREE_ICONS, draw_tree, known_frames_text, tree_state
from proxy.core.tools.recall_tool import has_stored_text
from proxy.core.tools.stack_tool_list import DISPATCHER, NO_MORE_CALLS, TOOLS, run, tool_definitions, tool_meant
from proxy.core.tools.subagent_tools import (
    LISTED_TITLE_CHARACTERS,
    SubagentCounts,
    matches_filter,
    subagent_end_event,
    subagents_of,
    tracked_subagent,
    was_ended_by_result,
)
