"""The product between two scripts: a proxy on a real port, a scripted client in front of it, the scripted provider
behind it.

    RunningProxy   the application in a thread of its own; started, stopped and started again on the same data
    Conversation   a client that keeps its own history, and gives back what it got as real clients do (`Habits`)
    Answer         what a client made of the bytes it got
    Listening      the scripted provider, telling what it got in the form in which scenarios are told
    Stage          all of it together; at the end it hands the laws what travelled

Whatever is asked and answered here is told in the form of chat completions. A stage speaks one dialect: its tongue
(`tests.client_dialects`) writes what the client says and reads what it hears.

A client's request carries a number in a header of its own, which passes upstream like any unknown header: so each
request the provider saw is known to belong to one the client made.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import cycle
from pathlib import Path
from typing import Any

import uvicorn

from callstack_proxy.config_sources import load_config
from callstack_proxy.management.mount import DOORS
from llm_test_provider import ReceivedRequest, ScriptedCall, ScriptedProvider, call
from llm_test_provider import ScriptedAnswer as Scripted
from llm_test_provider.server import HttpRequest
from llm_test_provider.tokens import default_counter, parts_of
from proxy.config.model import Config
from proxy.server.app import build_app
from tests import laws
from tests.client_dialects import CHAT, ClientAnswer, TestDialect, neutral, tongue_at
from tests.ports import held_port, port_of

Json = dict[str, Any]
NUMBER = "x-scenario-request"
LINE = ("messages", "system", "input", "instructions", "tools")
"""Members of a request that we write into."""
RECEIPTS_WRITTEN_S = 0.15
"""Receipts that nobody waits for are written together, within a tenth of a second."""
BACK_S = 10
WAIT_S = 30.0
"""How long a test waits for a byte. A request of a hundred hidden calls with huge arguments says none before its end:
5 s on a machine in peace, twice that on a slow and busy one."""
PATIENCE_MS = 10_000
"""A busy machine must not turn a request into a bypass; a test of the budget sets its own."""


# ---------------------------------------------------------------------------------------------------- what a model says
def push(title: str, criteria: str = "it works", **more: Any) -> ScriptedCall:
    return call("stack_frame_push", title=title, successCriteria=criteria, **more)


def pop(results: str = "done", status: str = "completed", **more: Any) -> ScriptedCall:
    return call("stack_frame_pop", status=status, results=results, **more)


def plan(*titles: str, **more: Any) -> ScriptedCall:
    return call("stack_frame_plan", children=[{"title": t, "successCriteria": f"{t} works"} for t in titles], **more)


def activate(frame: str) -> ScriptedCall:
    return call("stack_frame_activate", sessionID=frame)


def recall(ref: str, **more: Any) -> ScriptedCall:
    return call("stack_recall", ref=ref, **more)


def op(name: str, **arguments: Any) -> ScriptedCall:
    """An operation behind the dispatcher."""
    return call("stack", op=name, args=arguments)


def bash(command: str = "ls") -> ScriptedCall:
    return call("bash", command=command)


def does(*made: ScriptedCall, text: str = "", **options: Any) -> Scripted:
    return Scripted(text=text, calls=made, **options)


# -------------------------------------------------------------------------------------------------- what a client hears
@dataclass(frozen=True)
class Answer:
    """A client's view of an answer. `arrived` says that the connection came to a regular end, `message` is what the
    client would keep. Finishes and usage are told in the words of chat completions."""

    status: int
    headers: Mapping[str, str]
    raw: bytes
    arrived: bool
    streamed: bool
    tongue: TestDialect = CHAT

    @property
    def stack_status(self) -> str:
        return self.headers.get("x-stack-status", "unknown")

    @property
    def ended(self) -> bool:
        """It came to a regular end, in the words of the dialect too."""
        return self.arrived and (not self.streamed or self.heard.ended)

    @property
    def events(self) -> list[Json]:
        lines = [line[6:] for line in self.raw.decode().split("\n") if line.startswith("data: ")]
        return [json.loads(line) for line in lines if line != "[DONE]" and _is_whole(line)]

    @property
    def json(self) -> Any:
        return json.loads(self.raw)

    @cached_property
    def heard(self) -> ClientAnswer:
        return self.tongue.streamed(self.events) if self.streamed else self.tongue.plain(self.json)

    @property
    def message(self) -> Json:
        return dict(self.heard.message)

    @property
    def text(self) -> str:
        return self.message.get("content") or ""

    @property
    def calls(self) -> list[tuple[str, str]]:
        """Names and arguments of the calls, in the order of their indexes."""
        made = self.message.get("tool_calls") or []
        return [(each["function"]["name"], each["function"]["arguments"]) for each in made]

    @property
    def finishes(self) -> list[str]:
        return self.heard.finishes

    @property
    def usage(self) -> Json | None:
        return self.heard.usage


def _is_whole(line: str) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


# ------------------------------------------------------------------------------------------------------ running the app
class RunningProxy:
    """The application on a port of its own. `stop` and `start` again is a restart on the same data. `headers` go with
    every question to the management API: the key of an operator, where there are keys."""

    def __init__(self, config: Config, stage: Stage) -> None:
        self.config = config
        self.stage = stage
        self._place = held_port()
        self.port = port_of(self._place)
        self.headers: dict[str, str] = {}
        self._listens = False
        self._leave: Callable[[], object] = lambda: None
        self._thread: threading.Thread | None = None

    def start(self) -> RunningProxy:
        ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(ready)), name="proxy")
        self._thread.start()
        assert ready.wait(WAIT_S), "the proxy did not start"
        assert self._listens, "the proxy failed to start"
        return self

    async def _serve(self, ready: threading.Event) -> None:
        """As `uvicorn.Server.serve` does, less the signals, and less its tick of a tenth of a second."""
        loop, left = asyncio.get_running_loop(), asyncio.Event()
        self._leave = lambda: loop.call_soon_threadsafe(left.set)
        settings = uvicorn.Config(
            build_app(self.config, doors=DOORS),
            host="127.0.0.1",
            port=self.port,
            http="httptools",
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            timeout_keep_alive=75,  # as the proxy itself does; five seconds are over while a busy machine runs a tool
            timeout_graceful_shutdown=1,
        )
        settings.load()
        server = uvicorn.Server(settings)
        server.lifespan = settings.lifespan_class(settings)
        try:
            await server.startup()
            self._listens = server.started
            if server.started:
                ready.set()
                await left.wait()
                await _shut(server)
        finally:
            ready.set()

    def stop(self) -> None:
        if self._thread:
            self._leave()
            self._thread.join(WAIT_S)
            assert not self._thread.is_alive(), "the proxy did not stop"
        self._thread = None

    def restart(self) -> None:
        self.stop()
        self.start()

    def leave(self) -> None:
        """Stop for good."""
        self.stop()
        self._place.close()

    def next_port(self) -> int:
        """Where the next completion request goes."""
        return self.port

    def last_port(self) -> int:
        """Where the last one went."""
        return self.port

    # ------------------------------------------------------------------------------------------------------ asking it
    def post(self, body: bytes, headers: Mapping[str, str] | None = None, *, streamed: bool = False) -> Answer:
        """One completion request, noted for the laws."""
        note = self.stage.noted(body)
        connection, response = self.opened(body, {**(headers or {}), NUMBER: str(note.number)})
        try:
            raw, ended = response.read(), True
        except http.client.IncompleteRead as broken:
            raw, ended = broken.partial, False
        finally:
            connection.close()
        told = {name.lower(): value for name, value in response.getheaders()}
        note.answer = Answer(response.status, told, raw, ended, streamed and response.status == 200, self.tongue)
        if note.answer.streamed:
            _ = note.answer.heard  # a client reads every stream to its end, and stands no disorder in it
        return note.answer

    @property
    def tongue(self) -> TestDialect:
        return self.stage.tongue

    def opened(
        self, body: bytes, headers: Mapping[str, str]
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """A request whose answer is read, or left, by the caller."""
        connection = http.client.HTTPConnection("127.0.0.1", self.next_port(), timeout=WAIT_S)
        own = {"content-type": "application/json", **self.tongue.headers}
        try:
            connection.request("POST", self.tongue.path, body, {**own, **headers})
            return connection, connection.getresponse()
        except BaseException:  # the library closes it where the connection broke, and not where half a line had come
            connection.close()
            raise

    @contextmanager
    def sent(self, body: bytes) -> Iterator[socket.socket]:
        """A completion request by a client that may hang up at any moment: the end of the block is the end of it."""
        head = f"POST {self.tongue.path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {len(body)}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", self.next_port()), timeout=WAIT_S) as connection:
            connection.sendall(head.encode() + body)
            yield connection

    def get(self, path: str) -> Any:
        """What the management API answers, as JSON."""
        return self.manage("GET", path)

    def until_the_store_is_back(self) -> None:
        """Returns once the proxy says that its store takes records; after a lock or a full disk within 10 s (D4)."""
        until = time.monotonic() + BACK_S
        while not self.manage("GET", "/health")["store"]["ok"]:
            assert time.monotonic() < until, "the store did not come back"
            time.sleep(0.02)

    def manage(self, method: str, path: str, body: Json | None = None) -> Any:
        """What is answered to a request that is granted."""
        status, said = self.asked(method, path, body)
        assert status == 200, (path, status, said)
        return said

    def asked(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any]:
        """Status and answer, as JSON, of any request that is no completion; `body` is sent as JSON unless it is bytes,
        and `headers` stand in place of the proxy's own."""
        sent = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        own = self.headers if headers is None else headers
        status, said = self._raw(method, path, sent, {"accept": "application/json", **own})
        return status, json.loads(said)

    def page(self, path: str) -> str:
        """A page of text."""
        return self.file(path).decode()

    def file(self, path: str) -> bytes:
        """A page of any kind."""
        status, said = self._raw("GET", path, None, self.headers)
        assert status == 200, (path, status, said)
        return said

    def counted(self, metric: str, label: str) -> dict[str, int]:
        """A counter of `/metrics`, by the values of its label."""
        told = re.findall(rf'^{metric}\{{{label}="(\w+)"\}} (\S+)$', self.page("/metrics"), re.MULTILINE)
        return {value: int(float(number)) for value, number in told}

    def _raw(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.last_port(), timeout=WAIT_S)
        try:
            connection.request(method, path, body, {"content-type": "application/json", **headers})
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    # -------------------------------------------------------------------------------------------------- looking at it
    @property
    def conversations(self) -> list[Json]:
        return list(self.get("/stack/conversations")["conversations"])

    def frames(self, conversation: str = "", thread: str = "") -> dict[str, Json]:
        """Frames of a conversation (the only one) by title, in order of birth."""
        at = conversation or self.conversations[0]["id"]
        found = self.get(f"/stack/conversations/{at}/frames?thread={thread}")["frames"]
        return {frame["title"]: frame for frame in found}

    def statuses(self, conversation: str = "") -> dict[str, str]:
        return {title: frame["status"] for title, frame in self.frames(conversation).items()}

    def active(self, conversation: str = "") -> str:
        """The title of the active frame."""
        at = conversation or self.conversations[0]["id"]
        state = self.get(f"/stack/conversations/{at}/state")
        return str(state["frames"][state["activeFrameID"]]["title"])

    def log(self, frame: str) -> list[Json]:
        return list(self.get(f"/stack/frames/{frame}/log?raw=true")["entries"])

    def kept(self, conversation: str) -> frozenset[str]:
        """The stored texts of all its messages."""
        lines = self.file(f"/stack/conversations/{conversation}/export?format=ledger").splitlines()
        return frozenset(wire for line in lines for wire in _wires(json.loads(line)))

    def receipts(self) -> list[Json]:
        """Of all requests, the oldest first."""
        return [row["receipt"] for row in reversed(self.get("/stack/requests?limit=1000")["requests"])]


class Replicas(RunningProxy):
    """Two proxies on one database behind what a balancer without affinity does: every completion request goes to the
    other one. What is asked of the management goes where the last one went, when both have written their receipts."""

    def __init__(self, config: Config, stage: Stage) -> None:
        super().__init__(config, stage)
        self._other = RunningProxy(config, stage)
        self._turns = cycle((self, self._other))
        self._last, self._has_answered = self.port, False

    def start(self) -> RunningProxy:
        self._other.start()
        return super().start()

    def stop(self) -> None:
        super().stop()
        self._other.stop()

    def leave(self) -> None:
        super().leave()
        self._other.leave()

    def next_port(self) -> int:
        self._last, self._has_answered = next(self._turns).port, True
        return self._last

    def last_port(self) -> int:
        if self._has_answered:
            time.sleep(RECEIPTS_WRITTEN_S)
            self._has_answered = False
        return self._last


def _wires(value: Any) -> Iterator[str]:
    """The members `wire` of a record, however deep: its messages, as they came."""
    if isinstance(value, dict):
        for name, member in value.items():
            yield from (member,) if name == "wire" else _wires(member)
    elif isinstance(value, list):
        for each in value:
            yield from _wires(each)


def _moved_items(asked: Iterable[laws.ClientTurn]) -> dict[str, list[tuple[int, str]]]:
    """Items that left a frame as that ended: with which request, and that frame. One that moves from request to request
    has left none."""
    moved: dict[str, list[tuple[int, str]]] = {}
    for each in asked:
        ended = ""
        for kind, _, frame in (event.partition(" ") for event in each.events):
            if kind in ("popped", "invalidated"):
                ended = frame
            elif kind == "moved" and ended:
                moved.setdefault(frame, []).append((each.number, ended))
    return moved


def _inferred_frames(proxy: RunningProxy, conversation: Json) -> dict[str, str]:
    """Frames that nobody pushed, with their parents."""
    at = f"/stack/conversations/{conversation['id']}/frames"
    frames = [frame for thread in conversation["threads"] for frame in proxy.get(f"{at}?thread={thread}")["frames"]]
    return {frame["sessionID"]: frame.get("parentSessionID", "") for frame in frames if frame.get("auto")}


async def _shut(server: uvicorn.Server) -> None:
    """With nothing under way there is nothing to wait for, and the library would wait a tenth of a second."""
    if server.server_state.tasks:
        await server.shutdown()
        return
    for listener in server.servers:
        listener.close()
    for connection in list(server.server_state.connections):
        connection.shutdown()
    await server.lifespan.shutdown()


# ---------------------------------------------------------------------------------------------------- the client's side
@dataclass(frozen=True, slots=True)
class ClientHabits:
    """How a client gives back what it got (measured on real ones).

    `arguments`: kept, respelled (compact JSON), defaulted (a field more). `nothing`: what stands for absent text
    beside calls: null, empty, absent. `results`: what becomes of older tool results: kept, tidied.
    """

    arguments: str = "kept"
    nothing: str = "null"
    drops_text: bool = False
    keeps_reasoning: bool = True
    parts: bool = False
    results: str = "kept"

    def echo(self, message: Json) -> Json:
        """The assistant message as this client keeps it."""
        kept: Json = {"role": "assistant"}
        text, calls = message.get("content") or "", message.get("tool_calls") or []
        if self.drops_text and calls:
            text = ""
        if text:
            kept["content"] = [{"type": "text", "text": text}] if self.parts else text
        elif self.nothing != "absent":
            kept["content"] = None if self.nothing == "null" else ""
        if self.keeps_reasoning and message.get("reasoning_content"):
            kept["reasoning_content"] = message["reasoning_content"]
        if calls:
            kept["tool_calls"] = [{**c, "function": self._function(c["function"])} for c in calls]
        if "made" in message:  # what the dialect itself calls it; the rest says what this client keeps of that
            kept["made"] = message["made"]
        return kept

    def _function(self, function: Json) -> Json:
        if self.arguments == "kept":
            return function
        values = json.loads(function["arguments"])
        if self.arguments == "defaulted":
            values["replace_all"] = False
        return {**function, "arguments": json.dumps(values, separators=(",", ":"))}


@dataclass
class Conversation:
    """A client with its own history. Every method that asks returns the answer and keeps it as `habits` say."""

    proxy: RunningProxy
    streamed: bool
    system: str | None = "You are a careful engineer."
    tools: tuple[str, ...] = ("bash", "read")
    habits: ClientHabits = ClientHabits()
    headers: dict[str, str] = field(default_factory=dict)
    model: str = "gpt-x"
    options: Json = field(default_factory=dict)
    history: list[Json] = field(default_factory=list)
    last: Answer | None = None

    def says(self, text: str, **options: Any) -> Answer:
        """The user's next message."""
        self.history.append({"role": "user", "content": text})
        return self.asks(**options)

    def returns(self, *results: str, **options: Any) -> Answer:
        """The results of the calls just made, in call order."""
        made = self.history[-1]["tool_calls"]
        assert len(made) == len(results), made
        if self.habits.results == "tidied":
            for old in (m for m in self.history if m["role"] == "tool"):
                old["content"] = old["content"].strip()
        for each, result in zip(made, results, strict=True):
            self.history.append({"role": "tool", "tool_call_id": each["id"], "content": result})
        return self.asks(**options)

    def asks(self, **options: Any) -> Answer:
        """The history as it stands, sent; asked twice it is a retry."""
        answer = self.tries(**options)
        if answer.status == 200 and answer.ended:
            self.history.append(self.habits.echo(answer.message))
        return answer

    def tries(self, **options: Any) -> Answer:
        """The same, but the answer is not kept."""
        headers = {**self.headers, **options.pop("headers", {})}
        body = self.body(**options)
        self.last = self.proxy.post(body, headers, streamed=json.loads(body).get("stream", False))
        return self.last

    def body(self, **options: Any) -> bytes:
        head = [{"role": "system", "content": self.system}] if self.system else []
        request: Json = {"model": self.model, "messages": [*head, *self.history]}
        if self.tools:
            request["tools"] = [tool(name) for name in self.tools]
        if self.streamed:
            request["stream"] = True
        request |= {**self.options, **options}
        return self.proxy.tongue.body({key: value for key, value in request.items() if value is not ...})

    def branch(self, messages: int) -> Conversation:
        """Another loop over the first so many messages of this history."""
        return Conversation(
            self.proxy,
            self.streamed,
            self.system,
            self.tools,
            self.habits,
            dict(self.headers),
            self.model,
            dict(self.options),
            [dict(message) for message in self.history[:messages]],
        )


def tool(name: str) -> Json:
    """A tool as clients offer it."""
    parameters = {"type": "object", "properties": {"command": {"type": "string"}}}
    return {"type": "function", "function": {"name": name, "description": f"Runs {name}.", "parameters": parameters}}


# --------------------------------------------------------------------------------------------------------- the provider
class RecordingProvider(ScriptedProvider):
    """A scripted provider whose requests tell their messages as the judge reads them: each part of a message as one of
    its own, as they stand in chat completions."""

    def receive(self, request: HttpRequest) -> ReceivedRequest:
        received = super().receive(request)
        received.__class__ = NeutralRequest  # it is made, remembered and waited for in there
        return received

    def is_too_long(self, body: Json) -> bool:
        """Whether a neutral request is more than the window of its model."""
        window = self._model.model(str(body.get("model"))).window
        return window is not None and sum(part.tokens for part in parts_of(body, default_counter())) > window


class NeutralRequest(ReceivedRequest):
    """A request that a tongue tells."""

    __slots__ = ()

    @property
    def messages(self) -> list[Json]:
        tongue = tongue_at(self.path)
        if tongue in (None, CHAT) or self.body is None:
            return super().messages
        messages: list[Json] = json.loads(neutral(tongue, self.raw))["messages"]
        return messages


# ------------------------------------------------------------------------------------------------------------ the stage
@dataclass
class RecordedExchange:
    """A client's request and, once it came, its answer."""

    number: int
    body: bytes
    answer: Answer | None = None


@dataclass
class Stage:
    """Provider, proxies, and everything that was asked. `excused`: see `laws.Evidence`."""

    provider: ScriptedProvider
    folder: Path
    streamed: bool
    proxies: list[RunningProxy] = field(default_factory=list)
    notes: list[RecordedExchange] = field(default_factory=list)
    excused: set[int] = field(default_factory=set)
    looks_into_store: bool = True
    tongue: TestDialect = CHAT
    judged: bool = True
    """False where a provider refuses the form of requests: the laws are about lines that it takes."""
    new_database: Callable[[], str] | None = None
    """Where proxies are two replicas: the URL of an empty database."""
    _databases: dict[str, str] = field(default_factory=dict)
    """URLs by data directory."""

    def __post_init__(self) -> None:
        self._lock = threading.Lock()

    def proxy(self, **settings: object) -> RunningProxy:
        """A running proxy; awake from the first request and folding items of plans, so that there are folds to look at,
        unless `settings` say otherwise. Dots are written `__`; None leaves the default."""
        flags = {
            "upstreams.default.url": self.provider.url,
            "data": str(self.folder / f"data{len(self.proxies)}"),
            "wake_at_tokens": "0",
            "folding": "full",
            "assembly_budget_ms": str(PATIENCE_MS),
            **{key.replace("__", "."): str(value) for key, value in settings.items()},
        }
        flags = {key: value for key, value in flags.items() if value != "None"}
        if self.new_database is None or "store" in flags:
            running = RunningProxy(load_config(flags), self)
        else:
            place = self._databases.get(flags["data"]) or self.new_database()
            self._databases[flags["data"]] = place
            running = Replicas(load_config({**flags, "store": place}), self)
        self.proxies.append(running)
        return running.start()

    def chat(self, proxy: RunningProxy | None = None, **about: Any) -> Conversation:
        """A client in front of `proxy`, or of a new one as it comes."""
        return Conversation(proxy or self.proxy(), about.pop("streamed", self.streamed), **about)

    def noted(self, body: bytes) -> RecordedExchange:
        with self._lock:
            note = RecordedExchange(len(self.notes) + 1, body)
            self.notes.append(note)
        return note

    def excuse(self) -> None:
        """The next request may change the past of its line: what DESIGN names as a break comes with it."""
        self.excused.add(len(self.notes) + 1)

    def lines(self, *, awake_only: bool = True) -> list[list[Json]]:
        """The messages of every chat request that the provider got."""
        return [r.messages for r in self.provider.received if r.chat and (not awake_only or r.tool_names)]

    def evidence(self) -> laws.Evidence:
        stored: dict[str, frozenset[str]] = {}
        seen: dict[str, str] = {}
        told: dict[str, Json] = {}
        for proxy in self.proxies if self.looks_into_store else ():
            proxy.until_the_store_is_back()
            told |= {receipt["id"]: receipt for receipt in proxy.receipts() if receipt}
            for row in proxy.conversations:
                stored[row["id"]] = proxy.kept(row["id"])
                seen |= _inferred_frames(proxy, row)
        asked = [self._asked(note, note.answer, told) for note in self.notes if note.answer]
        left = [
            laws.UpstreamRequest(
                int(r.header(NUMBER) or 0), neutral(self.tongue, r.raw), tuple(name for name, _ in r.headers), r.raw
            )
            for r in self.provider.received
            if r.chat
        ]
        said = {at: frozenset(each for w in wires for each in self.tongue.kept(w)) for at, wires in stored.items()}
        kept = said if self.looks_into_store else None
        signed, too_long = self.tongue.signs, self._too_long(asked)
        moved = _moved_items(asked)
        return laws.Evidence(asked, left, kept, frozenset(self.excused), seen, signed, too_long, moved)

    def _too_long(self, asked: Sequence[laws.ClientTurn]) -> frozenset[int]:
        """Of the requests that were shortened, those that did not fit."""
        shortened = [each for each in asked if each.status == laws.STATELESS]
        provider = self.provider
        if not isinstance(provider, RecordingProvider):
            return frozenset()
        return frozenset(each.number for each in shortened if provider.is_too_long(json.loads(each.body)))

    def breaches(self) -> list[str]:
        """Of the laws, and of what the dialect forbids beyond them."""
        bodies = {note.number: note.body for note in self.notes if note.answer}
        left = [(int(r.header(NUMBER) or 0), r.raw) for r in self.provider.received if r.chat]
        pairs = [(of, bodies[of], raw) for of, raw in left if of in bodies]
        own = [f"request {of}, {said}" for of, asked, raw in pairs for said in self.tongue.breaches(asked, raw)]
        return laws.breaches(self.evidence()) + own

    def _asked(self, note: RecordedExchange, answer: Answer, receipts: Mapping[str, Json]) -> laws.ClientTurn:
        told = answer.headers
        receipt = receipts.get(told.get("x-stack-request-id", ""), {})
        return laws.ClientTurn(
            note.number,
            neutral(self.tongue, note.body),
            answer.stack_status.split(";")[0],
            told.get("x-stack-conversation", ""),
            told.get("x-stack-thread", ""),
            told.get("x-stack-frame", ""),
            answer.raw,
            tuple(receipt.get("events", ())),
            note.body,
            receipt.get("saved", 0.0),
            answer.status == 200 and answer.ended,
        )

    def stop(self) -> None:
        for proxy in self.proxies:
            proxy.leave()


@contextmanager
def running_stage(
    provider: ScriptedProvider,
    folder: Path,
    *,
    streamed: bool,
    tongue: TestDialect = CHAT,
    new_database: Callable[[], str] | None = None,
) -> Iterator[Stage]:
    """A stage; when the scenario has gone well, the laws are checked over everything that left."""
    stage = Stage(provider, folder, streamed, tongue=tongue, new_database=new_database)
    try:
        yield stage
        found = stage.breaches() if stage.judged else []
        assert not found, "\n".join(found)
    finally:
        stage.stop()


def other_members(body: bytes) -> Json:
    """What of a request, in whichever dialect, is neither its line nor its tools."""
    return {name: value for name, value in json.loads(body).items() if name not in LINE}


def texts(messages: Sequence[Json]) -> list[str]:
    """`role: text` of each message, for reading a line."""
    return [f"{m['role']}: {laws.text_of(m)}" for m in messages]


def spoken_on(messages: Sequence[Json]) -> str:
    """What the assistant said on a line, as one text: what a result of ours quotes is none of it."""
    return "\n".join(laws.text_of(m) for m in messages if m["role"] == "assistant")


def as_one_text(messages: Sequence[Json]) -> str:
    """A line as one text, to look for words in."""
    return json.dumps(list(messages), ensure_ascii=False)
