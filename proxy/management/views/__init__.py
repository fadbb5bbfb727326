"""What people look at, as plain dicts that are JSON: the `/stack` API and the command line show the same ones.

    lookup.py         finding a conversation or a frame, and the path it lives on
    conversations.py  rows, threads, frames, the state of a conversation
    logs.py           everything a frame did, oldest first
    requests.py       what a client sent, what was sent for it, what it cost
    difference.py     a client's body against each body sent
    totals.py         receipts added up
    health.py         whether requests are welcome
    past.py           a conversation as it was at a time
    noted.py          decisions and artifacts, with the times between which they held
    resume.py         where the work stands
    tasks.py          frames as tasks and as edges
    contexts.py       what is on a line and what left it
    subagents.py      conversations that others began
    shapes.py         the types of all of it

The law: **whose it is comes with every question**. A scope is a tenant, or None for an operator who sees all; what
belongs to somebody else does not exist, and is answered in the same words as what never did.

What these modules do not do: they write nothing, and they know neither HTTP nor a terminal.
"""

from proxy.management.views import (
    as_of,
    contexts,
    conversations,
    explain,
    logs,
    lookup,
    loops,
    requests,
    resume,
    subagents,
    tasks,
    totals,
)
from proxy.management.views.as_of import MAX_TIMESTAMP_MS, ArtifactRow, DecisionRow, ledger_at, parse_timestamp
from proxy.management.views.contexts import SeenFilesView, seen_files_view
from proxy.management.views.conversations import (
    conversation_rows_of,
    frame_detail,
    path_state_of,
    recent_conversation_rows,
    tree_state_view,
    truncate_line,
)
from proxy.management.views.diff import CHANGES, FIRST_BYTES, INSERTED, KEPT, LEFT_OUT
from proxy.management.views.explain import AncestorView, ExplanationView, SiblingView, explanation_view
from proxy.management.views.health import Health, health_view
from proxy.management.views.logs import (
    MessagePosition,
    call_states_of,
    decode_lossless,
    is_error,
    log_item_of,
    message_position_of,
)
from proxy.management.views.lookup import (
    ConversationUnreadable,
    all_path_states,
    newest_path_state,
    path_state_of_tip,
    quote_reference,
    thread_tips,
)
from proxy.management.views.loops import clear_loop_warnings, loop_rows
from proxy.management.views.messages import in_flight_rows, message_rows
from proxy.management.views.resume import ResumeView, resume_view
from proxy.management.views.schemas import (
    CallState,
    ConversationRow,
    CostDecisionView,
    FrameDetail,
    FrameLog,
    FrameState,
    InFlightRow,
    LogItem,
    LoopRow,
    MessageChange,
    MessageRow,
    NamedChanges,
    ReceiptView,
    RequestDetail,
    RequestDiff,
    RequestRow,
    RoundDiff,
    ThreadRow,
    Totals,
    TreeState,
    UnfoldView,
)
from proxy.management.views.search import MAX_RESULTS, SearchResults, search_frames
from proxy.management.views.subagents import (
    API_NAMES,
    SubagentRow,
    SubagentStats,
    TrackingBody,
    TrackingInput,
    TrackingView,
    tracking_view,
)
from proxy.management.views.tasks import Edge, TaskFrame, task_frame
from proxy.management.views.totals import (
    decode_receipt,
    load_receipts,
    local_time,
    local_zone,
    sum_receipts_by,
    totals_view,
)

__all__ = [
    "API_NAMES",
    "CHANGES",
    "FIRST_BYTES",
    "INSERTED",
    "KEPT",
    "LEFT_OUT",
    "MAX_RESULTS",
    "MAX_TIMESTAMP_MS",
    "AncestorView",
    "ArtifactRow",
    "CallState",
    "ConversationRow",
    "ConversationUnreadable",
    "CostDecisionView",
    "DecisionRow",
    "Edge",
    "ExplanationView",
    "FrameDetail",
    "FrameLog",
    "FrameState",
    "Health",
    "InFlightRow",
    "LogItem",
    "LoopRow",
    "MessageChange",
    "MessagePosition",
    "MessageRow",
    "NamedChanges",
    "ReceiptView",
    "RequestDetail",
    "RequestDiff",
    "RequestRow",
    "ResumeView",
    "RoundDiff",
    "SearchResults",
    "SeenFilesView",
    "SiblingView",
    "SubagentRow",
    "SubagentStats",
    "TaskFrame",
    "ThreadRow",
    "Totals",
    "TrackingBody",
    "TrackingInput",
    "TrackingView",
    "TreeState",
    "UnfoldView",
    "all_path_states",
    "as_of",
    "call_states_of",
    "clear_loop_warnings",
    "contexts",
    "conversation_rows_of",
    "conversations",
    "decode_lossless",
    "decode_receipt",
    "explain",
    "explanation_view",
    "frame_detail",
    "health_view",
    "in_flight_rows",
    "is_error",
    "ledger_at",
    "load_receipts",
    "local_time",
    "local_zone",
    "log_item_of",
    "logs",
    "lookup",
    "loop_rows",
    "loops",
    "message_position_of",
    "message_rows",
    "newest_path_state",
    "parse_timestamp",
    "path_state_of",
    "path_state_of_tip",
    "quote_reference",
    "recent_conversation_rows",
    "requests",
    "resume",
    "resume_view",
    "search_frames",
    "seen_files_view",
    "subagents",
    "sum_receipts_by",
    "task_frame",
    "tasks",
    "thread_tips",
    "totals",
    "totals_view",
    "tracking_view",
    "tree_state_view",
    "truncate_line",
]
