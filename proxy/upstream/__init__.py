"""Sends requests to providers: routing, HTTP transport, context windows, and litellm for providers with other APIs."""

from proxy.upstream import overflow_errors
from proxy.upstream.context_windows import ContextWindow, ContextWindows
from proxy.upstream.http import Answer, ConnectionPool, HttpUpstream, RawHeaders, Upstream
from proxy.upstream.litellm.loader import unavailable_reason
from proxy.upstream.routing import Route, Routes, UnknownModel, outgoing_headers

__all__ = [
    "Answer",
    "ConnectionPool",
    "ContextWindow",
    "ContextWindows",
    "HttpUpstream",
    "RawHeaders",
    "Route",
    "Routes",
    "UnknownModel",
    "Upstream",
    "outgoing_headers",
    "overflow_errors",
    "unavailable_reason",
]
