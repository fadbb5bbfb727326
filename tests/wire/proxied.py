"""The whole proxy on a real port, in a thread of the test's process, in front of a scripted provider.

One law: **a test sees what a client, the provider, or somebody with the log and the disk would see**, nothing inside.
A thread and not a process, so that the log is read where it is written; what needs a process of its own (signals, exit
codes) starts one.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

import uvicorn

from callstack_proxy.config_sources import load_config
from callstack_proxy.management.mount import DOORS
from proxy.server.app import App, build_app
from proxy.server.runner import _protocol_class, bind
from tests.wire.talking import ask

TOKEN = "operator-token-of-this-process"
START_LIMIT_S = 10
LOG_LIMIT_S = 5


class ListeningServer(uvicorn.Server):
    """A server that says when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = threading.Event()

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self.listening.set()


class ServedProxy:
    """The proxy with its store in `data`, until the `with` block ends. `settings` are keys of `proxy.yaml`, their dots
    written `__`. A busy machine is no reason to stand aside, so rewriting may take its time."""

    running: ClassVar[set[ServedProxy]] = set()

    def __init__(self, upstream: str | None, data: Path, **settings: object) -> None:
        usual = {"port": 0, "data": str(data), "wake_at_tokens": 0, "assembly_budget_ms": 10_000}
        flags = {"upstream": upstream} | usual | settings
        config = load_config({key.replace("__", "."): value for key, value in flags.items()})
        self.data = config.data
        self.app: App = build_app(config, operator_token=TOKEN, doors=DOORS)
        self._listener = bind(config.host, config.port)
        self.port: int = self._listener.getsockname()[1]
        self._server = ListeningServer(
            uvicorn.Config(
                self.app,
                http=_protocol_class(config, self.app.metrics.count_refusal),
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=75,
                timeout_graceful_shutdown=1,
            )
        )
        self._thread = threading.Thread(target=self._server.run, args=([self._listener],), name="proxy", daemon=True)

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def page(self, path: str) -> Any:
        """What a page of `/stack` says to the operator."""
        told = ask(self.origin, method="GET", path=path, headers={"x-stack-key": TOKEN})
        assert told.status == 200, told
        return told.json

    def catch_up(self) -> None:
        """Returns once the books of all that was answered are kept, which whoever reads the figures sees to."""
        told = ask(self.origin, method="GET", path="/metrics", headers={"x-stack-key": TOKEN})
        assert told.status == 200, told

    def state(self, conversation: str) -> Any:
        """The tree of a conversation."""
        return self.page(f"/stack/conversations/{conversation}/state")

    def turns(self, conversation: str) -> list[dict[str, Any]]:
        """What was answered in a conversation, hidden rounds included, in order."""
        frames = self.state(conversation)["frames"]
        logs = [self.page(f"/stack/frames/{frame}/log?raw=true")["entries"] for frame in frames]
        return [item for log in logs for item in log if item["role"] == "assistant"]

    def __enter__(self) -> Self:
        self._thread.start()
        while not self._server.listening.wait(0.1):
            assert self._thread.is_alive(), "it ended before it listened"
        self.running.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.running.discard(self)
        self._server.should_exit = True
        self._thread.join(START_LIMIT_S)
        self._listener.close()
        assert not self._thread.is_alive()


class LogCapture(logging.Handler):
    """Everything that was logged, at every level, as whoever reads the log could see it: message and all fields."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.records: list[logging.LogRecord] = []
        self._changed = threading.Condition()

    def emit(self, record: logging.LogRecord) -> None:
        with self._changed:
            self.records.append(record)
            self._changed.notify_all()

    @property
    def requests(self) -> list[dict[str, Any]]:
        """The fields of the one line that each request leaves."""
        return [_fields(record) for record in self.records if record.getMessage() == "request"]

    def wait_for_requests(self, count: int) -> list[dict[str, Any]]:
        """The lines of so many requests, once they are there. Fails when they do not come."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.requests) >= count, LOG_LIMIT_S), self.requests
        return self.requests

    @property
    def text(self) -> str:
        return "\n".join(f"{record.getMessage()} {vars(record)!r} {_trace(record)}" for record in self.records)

    def about(self, request: str) -> list[logging.LogRecord]:
        """The lines that name a request."""
        return [record for record in self.records if request in map(str, _fields(record).values())]


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    """What a record says, each field by a name of its own; those that came together in one begin with `stack_` too."""
    said = dict(vars(record))
    together: dict[str, Any] = said.pop("stack", {})
    return said | {f"stack_{name}": value for name, value in together.items()}


def _trace(record: logging.LogRecord) -> str:
    return logging.Formatter().formatException(record.exc_info) if record.exc_info else ""
