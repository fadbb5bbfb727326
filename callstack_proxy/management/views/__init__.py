"""Views of stored data as plain dicts ready for JSON, for the `/stack` API and the command line. Every query takes a
scope: a tenant, or None for an operator. What belongs to another tenant counts as missing."""

from callstack_proxy.management.views import (
    as_of,
    contexts,
    conversations,
    explain,
    logs,
    loop_warnings,
    requests,
    resume,
    subagents,
    tasks,
    totals,
)
from callstack_proxy.management.views.as_of import (
    MAX_TIMESTAMP_MS,
    ArtifactRow,
    DecisionRow,
    ledger_at,
    parse_timestamp,
)
from callstack_proxy.management.views.contexts import SeenFilesView, seen_files_view
from callstack_proxy.management.views.conversations import (
    conversation_rows_of,
    frame_detail,
    path_state_of,
    recent_conversation_rows,
    task_title,
    tree_state_view,
    truncate_line,
)
from callstack_proxy.management.views.diff import CHANGES, FIRST_BYTES, INSERTED, KEPT, LEFT_OUT
from callstack_proxy.management.views.explain import AncestorView, ExplanationView, SiblingView, explanation_view
from callstack_proxy.management.views.logs import (
    MessagePosition,
    call_states_of,
    decode_lossless,
    is_error,
    log_item_of,
    message_position_of,
)
from callstack_proxy.management.views.loop_warnings import loop_rows
from callstack_proxy.management.views.messages import in_flight_rows, message_rows
from callstack_proxy.management.views.project_memory import (
    ProjectConversations,
    RecalledText,
    RecallRequest,
    RecallSources,
    recall_text,
)
from callstack_proxy.management.views.resume import ResumeView, resume_view
from callstack_proxy.management.views.schemas import (
    CallState,
    ConversationRow,
    FrameDetail,
    FrameLog,
    FrameLogItem,
    FrameState,
    InFlightRow,
    LogItem,
    LoopRow,
    MessageChange,
    MessageRow,
    MessageView,
    NamedChanges,
    ProofView,
    RequestDetail,
    RequestDiff,
    RequestRow,
    RoundDiff,
    ThreadRow,
    Totals,
    TreeState,
    UnfoldView,
)
from callstack_proxy.management.views.search import MAX_RESULTS, MeaningOf, SearchResults, search_frames
from callstack_proxy.management.views.struct_schema import StructSchema
from callstack_proxy.management.views.subagents import (
    API_NAMES,
    SubagentRow,
    SubagentStats,
    TrackingBody,
    TrackingInput,
    TrackingView,
    tracking_view,
)
from callstack_proxy.management.views.tasks import Edge, TaskFrame, task_frame
from callstack_proxy.management.views.too_short import (
    BROKEN_OFF,
    LENGTH_REASONS,
    help_begins,
    is_too_short,
    newest_telling,
    tells_standing,
    waiting_or_quiet,
)
from callstack_proxy.management.views.totals import (
    LoadedReceipts,
    compare_sessions,
    decode_receipt,
    load_receipts,
    local_time,
    local_zone,
    only_dollars_paid,
    only_of_client,
    only_of_project,
    proof_view,
    sum_receipts_by,
    totals_view,
)
