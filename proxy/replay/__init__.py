"""`callstack replay`: recorded conversations played through the proxy without a network, and what came of it.

    reading.py    files: packed or plain, JSON or JSON lines; every value with the place it stands at
    messages.py   a message that can be replayed, or what is wrong with it
    api.py        what a replay knows of an API: requests written in it, answers told by it
                  (apis.py: chat_api.py, messages_api.py, responses_api.py)
    formats.py    trajectories and message lists: values -> recordings
    captures.py   captured requests -> recordings
    recording.py  a recorded conversation as the requests it was made of
    stored.py     a conversation of our own store as a recording
    playing.py    one recording through the product: read this first
    wiring.py     the parts of the product, as a running proxy puts them together
    provider.py   the upstream that answers what was recorded
    markers.py    what it costs where the provider caches at the markers of requests alone
    loss.py       what left the context, and what of it was needed later
    outcome.py    what came of it, as values
    crew.py       many recordings, in several processes

The law: **a replay is the product**. A request takes the way it takes through `callstack serve`, with the parts that
`proxy.app` wires; only the provider, the clock and the disk are replaced.
"""

from proxy.replay.files import recording_files_in
from proxy.replay.loss import FAR_REQUESTS
from proxy.replay.outcome import (
    MissedName,
    NameNeeds,
    RemovedContent,
    ReplayFailure,
    ReplayResult,
    sum_marker_costs,
    sum_needs,
    sum_rows,
)
from proxy.replay.recording import Recording
from proxy.replay.stored import stored_recording
from proxy.replay.workers import ReplayOptions, ReplayOutcome, cpu_count, replay_files, replay_recording

__all__ = [
    "FAR_REQUESTS",
    "MissedName",
    "NameNeeds",
    "Recording",
    "RemovedContent",
    "ReplayFailure",
    "ReplayOptions",
    "ReplayOutcome",
    "ReplayResult",
    "cpu_count",
    "recording_files_in",
    "replay_files",
    "replay_recording",
    "stored_recording",
    "sum_marker_costs",
    "sum_needs",
    "sum_rows",
]
