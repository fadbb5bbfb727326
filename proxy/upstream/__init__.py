"""Sends requests to providers: routing, HTTP transport, context windows, and litellm for providers with other APIs."""

from proxy.upstream import overflow_errors, request_forms
from proxy.upstream.context_windows import ContextWindow, ContextWindows
from proxy.upstream.http import (
    DECOMPRESSED_CODINGS,
    Answer,
    ConnectionPool,
    HttpUpstream,
    RawHeaders,
    Upstream,
    decompress,
)
from proxy.upstream.litellm.loader import unavailable_reason
from proxy.upstream.request_forms import LearnedForms, RequestForm
from proxy.upstream.routing import Route, Routes, UnknownModel, outgoing_headers

__all__ = [
    "DECOMPRESSED_CODINGS",
    "Answer",
    "ConnectionPool",
    "ContextWindow",
    "ContextWindows",
    "HttpUpstream",
    "LearnedForms",
    "RawHeaders",
    "RequestForm",
    "Route",
    "Routes",
    "UnknownModel",
    "Upstream",
    "decompress",
    "outgoing_headers",
    "overflow_errors",
    "request_forms",
    "unavailable_reason",
]
