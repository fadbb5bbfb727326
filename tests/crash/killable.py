"""The proxy as a process of its own that can be killed at any moment and started again on the same data."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from proxy.config.sources import load_config
from tests.harness import PATIENCE_MS, RunningProxy, Stage

ROOT = Path(__file__).resolve().parents[2]


class KillableProxy(RunningProxy):
    """`callstack serve`. It prints where it is reached once it answers, so starting is waiting for that line."""

    def __init__(self, stage: Stage, environment: Mapping[str, str] | None = None, **settings: object) -> None:
        """`environment` is added to that of the tests."""
        self.data = stage.folder / "data"
        flags = {"upstreams.default.url": stage.provider.url, "data": str(self.data), "assembly_budget_ms": PATIENCE_MS}
        flags |= settings
        super().__init__(load_config(flags), stage)
        self._assigned = [part for key, value in flags.items() for part in ("--set", f"{key}={value}")]
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[str] | None = None
        stage.proxies.append(self)

    def start(self) -> KillableProxy:
        command = [sys.executable, "-m", "proxy", "serve", "--port", str(self.port), *self._assigned]
        with (self.stage.folder / "proxy.log").open("a") as log:
            self._process = subprocess.Popen(
                command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True, env=self._environment
            )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("clients"):
                return self
        raise AssertionError((self.stage.folder / "proxy.log").read_text()[-2000:])

    @property
    def database(self) -> Path:
        return self.data / "callstack.db"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """SIGKILL: nothing is flushed, nobody is told."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    stop = kill
