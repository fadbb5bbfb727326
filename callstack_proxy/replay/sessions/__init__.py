"""Session logs that clients write on this machine, read as recordings. One module for each client, found as the entry
points `callstack.sessions`. What a reader needs is here: it fills a `ThreadBuilder`, and yields `from_threads`."""

from callstack_proxy.replay.sessions.base import (
    LoggedAnswer,
    LogSample,
    Session,
    SessionFormat,
    ThreadBuilder,
    call_of,
    from_threads,
    json_lines,
    json_object,
    seconds,
    text_in,
)
from callstack_proxy.replay.sessions.finder import FoundLogs, find_logs, format_of, session_formats, written_s
from callstack_proxy.replay.sessions.recordings import SessionConverter
