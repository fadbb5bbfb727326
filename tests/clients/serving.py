"""The proxy as its users start it: a process of its own, reached over HTTP, ended by a signal."""

import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.ports import held_port, port_of

ROOT = Path(__file__).resolve().parents[2]
START_LIMIT_S = 30
STOP_LIMIT_S = 10
AWAKE = ("wake_at_tokens=0", "assembly_budget_ms=10000")
"""Settings under which every conversation is acted on from its first request, on a busy machine too."""


@dataclass(frozen=True, slots=True)
class Served:
    """A running proxy. `log` is what it has said so far."""

    origin: str
    log: Path

    @property
    def url(self) -> str:
        """What a client takes as its base URL."""
        return f"{self.origin}/v1"

    def page(self, path: str) -> Any:
        """What a page of `/stack` says."""
        with urllib.request.urlopen(f"{self.origin}{path}", timeout=START_LIMIT_S) as told:
            return json.load(told)


@contextmanager
def serve(upstream: str, data: Path, *settings: str) -> Iterator[Served]:
    """`callstack serve` until the block ends; then it must go by itself, with exit code 0."""
    place = held_port()
    port = port_of(place)
    served = Served(f"http://127.0.0.1:{port}", data.with_suffix(".log"))
    command = [
        sys.executable,
        "-m",
        "callstack_proxy",
        "serve",
        "--port",
        str(port),
        "--upstream",
        upstream,
        "--data",
        str(data),
    ]
    chosen = [part for setting in settings for part in ("--set", setting)]
    with served.log.open("wb") as log:
        process = subprocess.Popen([*command, *chosen], cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)
    try:
        wait_until_healthy(served, process)
        yield served
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        finally:
            place.close()
    assert code in (0, -signal.SIGTERM), served.log.read_text()


def wait_until_healthy(served: Served, process: subprocess.Popen[bytes]) -> None:
    """Returns once the proxy answers. Another process can only be asked, so this asks every 20 ms."""
    deadline = time.monotonic() + START_LIMIT_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"{served.origin}/health", timeout=5):
                return
        except urllib.error.HTTPError:
            raise
        except OSError:
            time.sleep(0.02)
    raise AssertionError(f"the proxy does not answer:\n{served.log.read_text()}")
