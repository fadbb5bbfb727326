"""`callstack replay`: plays recorded conversations through the proxy without a network, and reports what came of it.

A request takes the same way as through `callstack serve`, with the product's own parts; only the provider, the clock
and the store are replaced. Read `player.py` first; `recording_formats.py` and `captures.py` turn files into recordings.
"""

from callstack_proxy.replay.brief_heads import brief_gain
from callstack_proxy.replay.files import recording_files_in
from callstack_proxy.replay.log_replay import newest_first, replay_logs
from callstack_proxy.replay.loss import FAR_REQUESTS
from callstack_proxy.replay.outcome import (
    MissedName,
    NameNeeds,
    RemovedContent,
    ReplayFailure,
    ReplayResult,
    sum_marker_costs,
    sum_needs,
    sum_rows,
)
from callstack_proxy.replay.recording import NotReplayable, Recording
from callstack_proxy.replay.sessions import FoundLogs, find_logs, session_formats
from callstack_proxy.replay.stored_conversation import stored_recording
from callstack_proxy.replay.workers import (
    ReplayOptions,
    ReplayOutcome,
    cpu_count,
    replay_files,
    replay_recording,
    total_size,
)
