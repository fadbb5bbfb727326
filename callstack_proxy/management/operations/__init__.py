"""What people change in a conversation from outside its client. Changes are stored as events on its paths, so they hold
in every process and after a restart, and take effect with the next request."""

from callstack_proxy.management.operations import autonomy, branches, frames
from callstack_proxy.management.operations.autonomy import AutonomyView, autonomy_view
from callstack_proxy.management.operations.base import Decision, Input, Operation, Target
from callstack_proxy.management.operations.branches import (
    BranchDetail,
    BranchMessage,
    BranchRow,
    BranchSwitchView,
    CheckpointDetail,
    CheckpointRow,
    InjectionView,
)
from callstack_proxy.management.operations.frames import EndStatus, FrameCommandView
from callstack_proxy.management.operations.stops import (
    StopView,
    end_subagent,
    resume_agent,
    stop_agent,
    stop_all,
    store_mode,
)

OPERATIONS = (
    branches.CHECKPOINT,
    branches.BRANCH,
    branches.SWITCH,
    branches.INJECT,
    frames.FRAMES,
    frames.ACTIVATE,
    frames.POP,
    frames.INVALIDATE,
    frames.RENAME,
    frames.RETRY,
    frames.UNFOLD,
    autonomy.AUTONOMY,
    autonomy.CLEAR_SUGGESTIONS,
    autonomy.CLEAR_LOOPS,
)
"""All of them; each is a route of the API."""
