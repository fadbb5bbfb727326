"""Sends requests to providers: routing, HTTP transport, context windows, and litellm for providers with other APIs."""

from proxy.upstream import overflow_errors, request_forms
from proxy.upstream.content_encoding import (
    READABLE_CODINGS,
    BrokenCoding,
    DecodedTooLarge,
    UnknownCoding,
    codings_of,
    decode_body,
)
from proxy.upstream.context_windows import ContextWindow, ContextWindows
from proxy.upstream.http import Answer, AskedElsewhere, ConnectionPool, HttpUpstream, RawHeaders, Upstream
from proxy.upstream.learned_traits import LearnedTrait, LearnedTraits, TraitKind
from proxy.upstream.litellm.loader import unavailable_reason
from proxy.upstream.request_forms import FORMS_WITHOUT_RECALL, LearnedForms, RequestForm
from proxy.upstream.retry_after import is_busy, is_resting, note_rest, retry_after_s
from proxy.upstream.routing import Route, Routes, UnknownModel, outgoing_headers, without_credentials
