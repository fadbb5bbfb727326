"""Measures what each plug of the library adds to a request, beside the engine's own work on it, in one run.

python bench/plugs.py          5 sessions of 10 messages and of 60; exit code 1 where a plug's own part is above 5 ms

A session is replayed request by request: the model's answers are recorded ones and take no time. `direct` is the
same request without the plug, asked beside it each time; for `/v1/compress` it is the round trip of the body to a
server that does nothing with it. `added` is a request with the plug less that, `engine` what the exchange took of it
(what the proxy takes too), and `own` is the rest: a plug's conversions, and its hop between threads. It says so where
the framework of a plug is not installed. Time tells nothing on a busy machine: `nice -n -20`, or `--cpu`.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import payloads
import processes
import uvicorn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from callstack_proxy import Engine
from callstack_proxy.asgi import CallstackASGI, _ApplicationUpstream
from callstack_proxy.config_sources import load_config
from callstack_proxy.engine import CallerUpstream
from callstack_proxy.management.mount import DOORS
from proxy.exchange import pipeline
from proxy.server import build_app

MODEL = "gpt-5.4"
SETTINGS: Mapping[str, object] = {"wake_at_tokens": 0}
"""Every request is worked on from the first one: the dearest case."""
MAX_OWN_MS = 5.0
CHAT_PATH = "/v1/chat/completions"
SIZES = [10, payloads.MEDIUM_MESSAGES]
COLUMNS = ("direct", "added", "engine", "own")
CLOCK = time.process_time if "--cpu" in sys.argv else time.perf_counter
Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Step:
    """A request of the session, and what its model answers."""

    messages: list[Message]
    answer: Message


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one request, in ms."""

    direct: float
    with_plug: float
    engine: float

    @property
    def added(self) -> float:
        return self.with_plug - self.direct

    @property
    def own(self) -> float:
        return self.added - self.engine


class Stopwatch:
    """What the exchange took of the newest request, without its waiting for the model. One request at a time."""

    def __init__(self) -> None:
        self.engine_ms = 0.0
        self._waited = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Times every request of this process."""
        with ExitStack() as patches:
            patches.enter_context(patch.object(pipeline, "handle", self._timed(pipeline.handle)))
            for upstream in (CallerUpstream, _ApplicationUpstream):
                patches.enter_context(patch.object(upstream, "send", self._waiting(upstream.send)))
            yield

    def _timed(self, handle: Callable[..., Any]) -> Callable[..., Any]:
        async def timed(*arguments: Any) -> None:
            began, self._waited = CLOCK(), 0.0
            try:
                await handle(*arguments)
            finally:
                self.engine_ms = (CLOCK() - began - self._waited) * 1000

        return timed

    def _waiting(self, send: Callable[..., Any]) -> Callable[..., Any]:
        async def waiting(*arguments: Any) -> Any:
            began = CLOCK()
            answer = await send(*arguments)
            self._waited += CLOCK() - began
            return answer

        return waiting


def session_steps(messages: int, seed: int) -> list[Step]:
    """The requests of a session, the shortest first."""
    history = payloads.conversation(messages, seed)
    return [Step(history[:at], row) for at, row in enumerate(history) if row["role"] == "assistant"]


def whole_answer(message: Message) -> Message:
    """A message as chat completions answer it."""
    finish = "tool_calls" if message.get("tool_calls") else "stop"
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    head = {"id": "c", "object": "chat.completion", "created": 1, "model": MODEL, "usage": usage}
    return {**head, "choices": [{"index": 0, "finish_reason": finish, "message": message}]}


# ----------------------------------------------------------------------------------------------------------- the plugs
Plug = Callable[[Stopwatch, list[Step]], list[Figures]]


def library(watch: Stopwatch, steps: list[Step]) -> list[Figures]:
    figures = []
    with Engine(settings=SETTINGS) as engine, engine.session(MODEL) as session:
        for step in steps:
            began = CLOCK()
            session.context(step.messages, payloads.tools())
            session.answer(step.answer)
            figures.append(Figures(0.0, (CLOCK() - began) * 1000, watch.engine_ms))
    return figures


def langchain(watch: Stopwatch, steps: list[Step]) -> list[Figures]:
    from langchain.agents.middleware import ModelRequest, ModelResponse
    from langchain_core.messages import convert_to_messages

    from callstack_proxy.langchain_middleware import CallstackMiddleware

    middleware, tools, figures = CallstackMiddleware(settings=SETTINGS), payloads.tools(), []
    model: Any = SimpleNamespace(model_name=MODEL)
    for step in steps:
        system, *messages = convert_to_messages(step.messages)
        request = ModelRequest(model=model, messages=messages, system_message=system, tools=tools)
        response = ModelResponse(result=convert_to_messages([step.answer]))
        began = CLOCK()
        middleware.wrap_model_call(request, lambda _, response=response: response)  # type: ignore[misc]
        figures.append(Figures(0.0, (CLOCK() - began) * 1000, watch.engine_ms))
    middleware.engine.close()
    return figures


def litellm_callback(watch: Stopwatch, steps: list[Step]) -> list[Figures]:
    import litellm

    from callstack_proxy.litellm_callback import CallstackCallback

    class Recorded(litellm.CustomLLM):  # type: ignore[misc] # litellm is not there where types are checked
        answer: Message

        async def acompletion(self, *_: Any, **__: Any) -> Any:
            return litellm.ModelResponse(**self.answer)

    async def ask(step: Step, callbacks: list[Any]) -> float:
        litellm.callbacks, recorded.answer = callbacks, whole_answer(step.answer)
        began = CLOCK()
        await litellm.acompletion(model=f"recorded/{MODEL}", messages=step.messages, tools=tools)
        return (CLOCK() - began) * 1000

    async def play() -> None:
        for step in steps:
            without, watch.engine_ms = await ask(step, []), 0.0
            figures.append(Figures(without, await ask(step, [callback]), watch.engine_ms))

    callback, recorded, tools, figures = (
        CallstackCallback(settings=SETTINGS),
        Recorded(),
        payloads.tools(),
        list[Figures](),
    )
    litellm.custom_provider_map = [{"provider": "recorded", "custom_handler": recorded}]
    asyncio.run(play())
    callback.engine.close()
    return figures


def asgi(watch: Stopwatch, steps: list[Step]) -> list[Figures]:
    figures, answer = [], b""

    async def application(_: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": answer})

    async def ask(app: Any, body: bytes) -> float:
        came = asyncio.Queue[MutableMapping[str, Any]]()
        came.put_nowait({"type": "http.request", "body": body})
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        scope = {"type": "http", "method": "POST", "path": CHAT_PATH, "query_string": b"", "headers": headers}

        async def send(_: Any) -> None:
            """The client."""

        began = CLOCK()
        await app({**scope, "raw_path": CHAT_PATH.encode()}, came.get, send)
        return (CLOCK() - began) * 1000

    async def play() -> None:
        nonlocal answer
        plugged = CallstackASGI(application, settings=SETTINGS)
        for step in steps:
            answer, body = json.dumps(whole_answer(step.answer)).encode(), request_body(step)
            without = await ask(application, body)
            figures.append(Figures(without, await ask(plugged, body), watch.engine_ms))
        await plugged.aclose()

    asyncio.run(play())
    return figures


def compress(watch: Stopwatch, steps: list[Step]) -> list[Figures]:
    def ask(connection: http.client.HTTPConnection, body: bytes) -> float:
        began = CLOCK()
        connection.request("POST", "/v1/compress", body, {"content-type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        if answer.status != HTTPStatus.OK:
            sys.exit(f"/v1/compress answers {answer.status}")
        return (CLOCK() - began) * 1000

    proxy = build_app(load_config({**SETTINGS, "store": "memory:"}), doors=DOORS)
    with served(echo) as bare, served(proxy) as ours:
        bodies = [request_body(step) for step in steps]
        return [Figures(ask(bare, body), ask(ours, body), watch.engine_ms) for body in bodies]


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answers every body with itself: what the round trip of a request takes at the least."""
    if scope["type"] != "http":
        return
    body, more = b"", True
    while more:
        came = await receive()
        body, more = body + came.get("body", b""), came.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


def request_body(step: Step) -> bytes:
    return payloads.body(step.messages, MODEL)


@contextmanager
def served(app: Any) -> Iterator[http.client.HTTPConnection]:
    """A connection to an application on a thread of this process."""
    port = processes.free_port()
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    connection = http.client.HTTPConnection("127.0.0.1", port)
    try:
        yield connection
    finally:
        connection.close()
        server.should_exit = True
        thread.join()


PLUGS: Mapping[str, tuple[Plug, str]] = {
    "Session": (library, ""),
    "LangChain middleware": (langchain, "langchain"),
    "LiteLLM callback": (litellm_callback, "litellm"),
    "ASGI middleware": (asgi, ""),
    "POST /v1/compress": (compress, ""),
}
"""Each with the module that it needs."""


def percentile(values: list[float], percent: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, nargs="+", default=SIZES, help="of the longest request of a session")
    parser.add_argument("--sessions", type=int, default=5)
    parser.add_argument("--cpu", action="store_true", help="CPU of this process, for a busy machine; else time")
    asked = parser.parse_args()
    unit = "ms of CPU" if asked.cpu else "ms"
    is_slow = False
    for messages in asked.messages:
        size = len(request_body(session_steps(messages, 1)[-1])) / 1000
        print(f"{asked.sessions} sessions that grow to {messages} messages, {size:.0f} KB; {unit}: median (p95)")
        print(f"{'':22}{''.join(f'{column:>15}' for column in COLUMNS)}")
        for name, (plug, module) in PLUGS.items():
            if module and find_spec(module) is None:
                print(f"{name:22}not measured: {module} is not installed")
            else:
                is_slow |= measure(name, plug, asked.sessions, messages) > MAX_OWN_MS
    sys.exit(is_slow)


def measure(name: str, plug: Plug, sessions: int, messages: int) -> float:
    """Prints the row of a plug. The median of its own part."""
    watch = Stopwatch()
    with watch.running():
        plug(watch, session_steps(6, 0))  # imports, compiled expressions, the tokenizer
        rows = [each for seed in range(sessions) for each in plug(watch, session_steps(messages, seed))]
    columns = {column: [getattr(row, column) for row in rows] for column in COLUMNS}
    cells = (f"{percentile(column, 50):.1f} ({percentile(column, 95):.1f})" for column in columns.values())
    print(f"{name:22}{''.join(f'{cell:>15}' for cell in cells)}", flush=True)
    return percentile(columns["own"], 50)


if __name__ == "__main__":
    main()
