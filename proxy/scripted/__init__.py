"""A scripted provider: an OpenAI-compatible upstream on a real socket whose model says what a script tells it to.

Users run it as `callstack provider SCENARIO.yaml`; our tests and the demo use `ScriptedProvider` in the same process.
It stands alone: nothing of the proxy is imported here but the tree of errors.

    answer.py      what a model says and how its delivery goes wrong: the vocabulary of a script
    script.py      which answer comes next          scenario.py    the same from a YAML file
    model.py       one chat request, without a socket: check, count, choose, plan
    completion.py  the wire shape · call_forms.py, event_forms.py  its odd variants · delivery.py  cuts and breaks
    caches.py      four simulated prompt caches     binding.py     reasoning that is bound or required
    wordings.py    how providers refuse             templates.py   words known only at run time
    counting.py    tokens                           lenient.py     reading JSON of unknown shape
    provider.py    the provider and its records     server.py, http1.py  sockets
"""

from proxy.scripted.answer import (
    EVERY_BYTE,
    Answer,
    Call,
    Cut,
    Ending,
    Reply,
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
from proxy.scripted.model import Model
from proxy.scripted.provider import ScriptedProvider
from proxy.scripted.script import Received, When, contains

__all__ = [
    "EVERY_BYTE",
    "Answer",
    "Call",
    "Cut",
    "Ending",
    "Model",
    "Received",
    "Reply",
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
