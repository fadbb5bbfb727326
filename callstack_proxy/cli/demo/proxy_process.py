"""The proxy as a process of its own, and the pages of `/stack` that the demo reads.

It is started as a user would start it, on a free port, and found by the lines it prints. Leaving the `with` block
always stops it, politely first.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, urlsplit

import proxy

START_TIMEOUT_S = 30
STOP_TIMEOUT_S = 10
LOG_NAME = "demo-proxy.log"


class ProxyFailed(Exception):
    """The proxy did not start; the message holds the end of its log."""


class ProxyProcess:
    """`callstack serve` in front of `upstream`, with its data in a folder that exists."""

    def __init__(self, upstream: str, data: Path, settings: Mapping[str, object]) -> None:
        assignments = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
        options = ["--port", "0", "--upstream", upstream, "--data", str(data), *assignments]
        self._command = [sys.executable, "-m", "callstack_proxy", "serve", *options]
        self._data = data
        self._process: subprocess.Popen[str] | None = None
        self._output: threading.Thread | None = None
        self.clients = ""
        """The URL for clients, as the proxy printed it."""

    def __enter__(self) -> Self:
        path = self._data / LOG_NAME
        path.touch(mode=0o600)
        with path.open("a", encoding="utf-8") as log:
            self._process = subprocess.Popen(  # noqa: S603 - this very program
                self._command,
                cwd=self._data,  # so that no proxy.yaml of the user is read
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,  # Ctrl-C must reach the demo alone, which then stops the proxy
            )
        try:
            self._wait_until_it_listens(self._process)
        except BaseException:  # also Ctrl-C: no process stays behind
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _wait_until_it_listens(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None  # noqa: S101 - it was asked for as a pipe
        patience = threading.Timer(START_TIMEOUT_S, process.kill)
        patience.start()
        try:
            for line in process.stdout:
                label, *words = line.split() or [""]
                if label.rstrip(":") == "clients" and words:
                    self.clients = words[0]
                    break
        finally:
            patience.cancel()
        if not self.clients:
            raise ProxyFailed(f"the proxy did not start:\n{self.log_tail()}")
        # What it prints later must not fill the pipe.
        self._output = threading.Thread(target=process.stdout.read, name="demo-proxy-output", daemon=True)
        self._output.start()

    def _stop(self) -> None:
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if self._output:
            self._output.join()
        if process.stdout:
            process.stdout.close()

    def log_tail(self) -> str:
        """The last lines of its log."""
        log = self._data / LOG_NAME
        return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:]) if log.exists() else ""

    # ----------------------------------------------------------------------------------------------------------- pages
    def receipt(self, request: str, conversation: str) -> Mapping[str, Any]:
        """The receipt of one of the newest requests; empty while it is not stored yet."""
        rows = json.loads(self._get(f"/stack/requests?conversation={quote(conversation)}&limit=3"))["requests"]
        return next((row["receipt"] for row in rows if row["id"] == request), {})

    def tree(self, conversation: str) -> str:
        """The frames of a conversation as text."""
        return self._get(f"/stack/conversations/{quote(conversation)}/tree", accept="text/plain")

    def _get(self, path: str, accept: str = "application/json") -> str:
        address = urlsplit(self.clients)
        connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=START_TIMEOUT_S)
        try:
            connection.request("GET", path, headers={"accept": accept})
            response = connection.getresponse()
            body = response.read().decode()
        finally:
            connection.close()
        if response.status != http.client.OK:
            raise ProxyFailed(f"GET {path} answered {response.status}: {body[:300]}")
        return body


def _environment() -> dict[str, str]:
    """The environment without settings of the proxy, and with this package on the path."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("STACK_")}
    package = str(Path(proxy.__file__).resolve().parent.parent)
    paths = [package, *filter(None, kept.get("PYTHONPATH", "").split(os.pathsep))]
    return {**kept, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}
