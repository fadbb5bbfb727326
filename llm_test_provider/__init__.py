"""A scripted provider: an upstream on a real socket, in three dialects, whose model says what a script tells it to.

Users run it as `callstack provider SCENARIO.yaml`; our tests and the demo use `ScriptedProvider` in the same process.
It stands alone: nothing of the proxy is imported here but the tree of errors.

    answer.py      what a model says and how its delivery goes wrong: the vocabulary of a script
    script.py      which answer comes next          scenario.py    the same from a YAML file
    model.py       one request, without a socket: check, count, choose, plan
    wires.py       the three dialects as the model sees them: a `Wire` each
    facts.py       what request and provider decide about an answer   dialect.py   which path asks in which dialect
    caches.py      four simulated prompt caches     binding.py     reasoning that is bound or required
    wordings.py    how providers refuse             templates.py   words known only at run time
    strict_profiles.py   what single providers refuse beyond their API
    plan_windows.py  plans that are paid by window, and their headers
    counting.py    tokens                           lenient.py, spelling.py   reading and writing JSON
    delivery.py    cuts and breaks                  event_forms.py   how events are written, oddly too
    provider.py    the provider and its records     server.py, http1.py  sockets

    of chat completions   completion.py: answers · call_forms.py: the odd variants of calls
    of messages           messages_view.py: requests, read · messages_check.py: refused · messages_wire.py: answers
    of responses          responses_view.py · responses_check.py · responses_wire.py · responses_kept.py: its memory
    of the last two       typed_events.py: streams whose events have types, and their odd forms
"""

from llm_test_provider.answer import (
    EVERY_BYTE,
    Cut,
    Ending,
    FixedReply,
    ScriptedAnswer,
    ScriptedCall,
    Usage,
    answers,
    call,
    calls,
    cut,
    empty,
    error_chunk,
    gzip_bomb,
    half_close,
    html,
    json_error,
    only_done,
    overflow,
    raw,
    reset,
    says,
    stall,
    status,
    throttled,
    truncated,
    wrong_type,
)
from llm_test_provider.model import Model
from llm_test_provider.plan_windows import HiddenPlan
from llm_test_provider.provider import ScriptedProvider
from llm_test_provider.script import ReceivedRequest, When, contains

__all__ = [
    "EVERY_BYTE",
    "Cut",
    "Ending",
    "FixedReply",
    "HiddenPlan",
    "Model",
    "ReceivedRequest",
    "ScriptedAnswer",
    "ScriptedCall",
    "ScriptedProvider",
    "Usage",
    "When",
    "answers",
    "call",
    "calls",
    "contains",
    "cut",
    "empty",
    "error_chunk",
    "gzip_bomb",
    "half_close",
    "html",
    "json_error",
    "only_done",
    "overflow",
    "raw",
    "reset",
    "says",
    "stall",
    "status",
    "throttled",
    "truncated",
    "wrong_type",
]
