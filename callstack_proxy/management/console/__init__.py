"""The web console at `/console`: pages that show what the proxy keeps, live, and let a person act on it. They are made
from the views that `/stack` uses, and keep no state of their own."""

from callstack_proxy.management.console.app import build_console
from callstack_proxy.management.console.page_memory import PageMemory
from callstack_proxy.management.console.sessions import EndedSessions, Sessions
