"""`ScriptedProvider`: a provider with a scripted model and three APIs, in this process, on a real socket.

    with ScriptedProvider() as provider:                 # its own thread and event loop: for plain tests
        provider.will(says("hello"))
        ...                                              # any client, pointed at provider.url
        assert provider.received[0]["model"] == "m"

    async with ScriptedProvider() as provider: ...       # in the running event loop

It remembers every request as it came, byte for byte, and what became of it. All methods may be called from any thread.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from types import TracebackType
from typing import Self

from llm_test_provider.answer import FixedReply, ScriptedAnswer, error_body
from llm_test_provider.apis import dialect_of
from llm_test_provider.apis.json import encoded
from llm_test_provider.delivery import Delivery
from llm_test_provider.embeddings import embeddings_reply
from llm_test_provider.model import Model, ScriptedModel, fixed
from llm_test_provider.plan_windows import HiddenPlan
from llm_test_provider.script import Condition, ReceivedRequest, Script, Scripted, contains
from llm_test_provider.server import HttpRequest, Server, parsed
from llm_test_provider.tokens import Counter, default_counter

PATIENCE_S = 5.0
"""How long the waiting methods wait unless told otherwise."""


class ScriptedProvider:
    """See the module. `on_finish` is called with every request when it is over, in the provider's own thread.

    `remember=False` keeps no requests: for a provider that runs for days. `strict` names a profile of
    `strict_profiles`: what that provider refuses is refused. Raises ValueError for another name.
    """

    def __init__(  # noqa: PLR0913 - every one has a default; grouping them would only move the list
        self,
        *answers: Scripted,
        models: Iterable[Model] = (),
        script: Script | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        count: Counter | None = None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        on_finish: Callable[[ReceivedRequest], None] | None = None,
        remember: bool = True,
        strict: str | None = None,
        plan: HiddenPlan | None = None,
    ) -> None:
        self.script = script or Script()
        self.script.will(answers)
        self.host, self.port = host, port
        self.received: list[ReceivedRequest] = []
        self.meanings: Sequence[Collection[str]] = ()
        """Groups of words that mean the same to the embedding model of `/v1/embeddings`."""
        self.longest_embedded = 0
        """Characters of a text above which that model refuses it; 0: any."""
        self.embedding_delay_s = 0.0
        self.open_connections = 0
        self._arrivals = self._chats = 0
        self._remember = remember
        self._model = ScriptedModel(
            self.script, models, count=count or default_counter(), clock=clock, now=now, strict=strict, plan=plan
        )
        self._clock = clock
        self._on_finish = on_finish
        self._replies: dict[str, FixedReply] = {}
        self._changed = threading.Condition()
        self._server = Server(self)
        self._thread: threading.Thread | None = None
        self._stopping: Callable[[], object] = lambda: None
        self._failed: OSError | None = None

    # ------------------------------------------------------------------------------------------------------- scripting
    def will(self, *answers: Scripted) -> None:
        """Queue answers; they are given in the order in which they are asked for."""
        self.script.will(answers)

    def when(self, condition: Condition | str, *answers: Scripted, loop: bool = False) -> None:
        """Answers for the requests that meet a condition, or whose body holds a marker. They go before the queue."""
        self.script.when(contains(condition) if isinstance(condition, str) else condition, answers, loop=loop)

    def reply(self, path: str, reply: FixedReply) -> None:
        """A fixed reply for a path, such as `/v1/embeddings`, that would have none or another one."""
        self._replies[path] = reply

    # ----------------------------------------------------------------------------------------------------- observation
    @property
    def url(self) -> str:
        """The base URL for a client, with `/v1`."""
        return f"{self.origin}/v1"

    @property
    def origin(self) -> str:
        return f"http://{self.host}:{self.port}"

    @property
    def asked(self) -> list[ReceivedRequest]:
        """The requests for an answer among those received, in whichever dialect."""
        return [received for received in self.received if received.chat]

    @property
    def disconnects(self) -> list[ReceivedRequest]:
        """Requests whose peer left before the answer was complete, oldest request first."""
        return [received for received in self.received if received.left_at is not None]

    def wait_for(self, requests: int, timeout: float = PATIENCE_S) -> list[ReceivedRequest]:
        """The requests received so far, once there are so many. Raises TimeoutError; `timeout` is in seconds."""
        self.wait_until(lambda: len(self.received) >= requests, timeout)
        return self.received

    def wait_until(self, true: Callable[[], bool], timeout: float = PATIENCE_S) -> None:
        """Block until a condition on this provider holds. Raises TimeoutError. In async code: `asyncio.to_thread`."""
        with self._changed:
            if not self._changed.wait_for(true, timeout):
                raise TimeoutError(f"still waiting after {timeout} s with {len(self.received)} requests received")

    # --------------------------------------------------------------------------------------------- what the server asks
    def receive(self, request: HttpRequest) -> ReceivedRequest:
        with self._changed:
            dialect = dialect_of(request.path) if request.method == "POST" else None
            self._arrivals += 1
            self._chats += dialect is not None
            received = ReceivedRequest(
                number=self._arrivals,
                method=request.method,
                path=request.path,
                query=request.query,
                headers=request.headers,
                raw=request.body,
                body=parsed(request.body),
                arrived=self._clock(),
                trailers=request.trailers,
                chat=self._chats if dialect else 0,
                dialect=dialect,
            )
            if self._remember:
                self.received.append(received)
            self._changed.notify_all()
        return received

    def respond(self, received: ReceivedRequest) -> Delivery | bytes:
        if received.path in self._replies:
            return fixed(self._replies[received.path])
        if received.dialect:
            return self._model.respond(received)
        path = received.path.rstrip("/")
        if received.method == "POST" and path.endswith("/messages/count_tokens"):
            return self._model.count(received)
        if received.method == "POST" and path.endswith("/embeddings"):
            made = embeddings_reply(received.body, self.meanings, self.longest_embedded)
            return fixed(made, ScriptedAnswer(delay_s=self.embedding_delay_s))
        stored = self._model.stored(received)
        if stored:
            return fixed(stored)
        if received.method in ("GET", "HEAD") and path.endswith("/models"):
            listed = [_model_object(name) for name in self._model.models]
            return fixed(FixedReply(200, encoded({"object": "list", "data": listed})))
        name = path.rpartition("/models/")[2]
        if received.method == "GET" and name in self._model.models:
            return fixed(FixedReply(200, encoded(_model_object(name))))
        words = f"Unknown request URL: {received.method} {received.path}."
        return fixed(FixedReply(404, error_body(words, "invalid_request_error", "unknown_url")))

    def finish(self, received: ReceivedRequest, *, left: bool) -> None:
        with self._changed:
            if left:
                received.left_at = self._clock()
            else:
                received.finished_at = self._clock()
            self._changed.notify_all()
        if self._on_finish:
            self._on_finish(received)

    def connections(self, change: int) -> None:
        with self._changed:
            self.open_connections += change
            self._changed.notify_all()

    # -------------------------------------------------------------------------------------------------- start and stop
    async def __aenter__(self) -> Self:
        self.port = await self._server.start(self.host, self.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop()

    def __enter__(self) -> Self:
        ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(ready)), name="scripted-provider")
        self._thread.start()
        ready.wait()
        if self._failed:
            raise self._failed
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping()
        if self._thread:
            self._thread.join()

    async def _serve(self, ready: threading.Event) -> None:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        self._stopping = lambda: loop.call_soon_threadsafe(stop.set)
        try:
            async with self:
                ready.set()
                await stop.wait()
        except OSError as error:
            self._failed = error
        finally:
            ready.set()


def _model_object(name: str) -> dict[str, object]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "scripted"}
