"""What people change in a conversation from outside its client. Changes are stored as events on its paths, so they hold
in every process and after a restart, and take effect with the next request."""

from callstack_proxy.management.actions import autonomy, branches, frames
from callstack_proxy.management.actions.agent_stop import resume_agent, stop_agent, store_mode
from callstack_proxy.management.actions.autonomy import (
    AutonomyView,
    autonomy_view,
    change_rules,
    clear_pending_suggestions,
)
from callstack_proxy.management.actions.branches import (
    BranchDetail,
    BranchMessage,
    BranchRow,
    BranchSwitchView,
    CheckpointDetail,
    CheckpointRow,
    ConversationPath,
    InjectionSelection,
    InjectionView,
)
from callstack_proxy.management.actions.frames import (
    CommandTarget,
    FrameCommandView,
    StopView,
    end_subagent,
    run_command,
    stop_all,
    store_unfold_request,
)

__all__ = [
    "AutonomyView",
    "BranchDetail",
    "BranchMessage",
    "BranchRow",
    "BranchSwitchView",
    "CheckpointDetail",
    "CheckpointRow",
    "CommandTarget",
    "ConversationPath",
    "FrameCommandView",
    "InjectionSelection",
    "InjectionView",
    "StopView",
    "autonomy",
    "autonomy_view",
    "branches",
    "change_rules",
    "clear_pending_suggestions",
    "end_subagent",
    "frames",
    "resume_agent",
    "run_command",
    "stop_agent",
    "stop_all",
    "store_mode",
    "store_unfold_request",
]
