"""Session logs that clients write on this machine, read as recordings. One module for each client; `finder.py` lists
them."""

from callstack_proxy.replay.sessions.base import Session, SessionFormat
from callstack_proxy.replay.sessions.finder import FORMATS, FoundLogs, find_logs, format_of
from callstack_proxy.replay.sessions.recordings import SessionConverter

__all__ = ["FORMATS", "FoundLogs", "Session", "SessionConverter", "SessionFormat", "find_logs", "format_of"]
