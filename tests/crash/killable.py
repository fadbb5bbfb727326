"""The proxy as a process of its own that can be killed at any moment and started again on the same data."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from callstack_proxy.config_sources import load_config
from tests.crash.killed_at import DyingCommands, KillPoint
from tests.harness import PATIENCE_MS, WAIT_S, RunningProxy, Stage

ROOT = Path(__file__).resolve().parents[2]


class KillableProxy(RunningProxy):
    """`callstack serve`. It prints where it is reached once it answers, so starting is waiting for that line."""

    def __init__(self, stage: Stage, environment: Mapping[str, str] | None = None, **settings: object) -> None:
        """`environment` is added to that of the tests."""
        self.data = Path(str(settings.pop("data", stage.folder / "data")))
        flags = {"upstreams.default.url": stage.provider.url, "data": str(self.data), "assembly_budget_ms": PATIENCE_MS}
        flags |= settings
        super().__init__(load_config(flags), stage)
        self._assigned = [part for key, value in flags.items() for part in ("--set", f"{key}={value}")]
        self._environment = {**os.environ, **(environment or {})}
        self.source = ROOT
        """The folder whose code runs from the next start on."""
        self._process: subprocess.Popen[str] | None = None
        stage.proxies.append(self)

    def start(self) -> KillableProxy:
        command = [sys.executable, "-m", self._package, "serve", "--port", str(self.port), *self._assigned]
        with (self.stage.folder / "proxy.log").open("a") as log:
            self._process = subprocess.Popen(
                command, cwd=self.source, stdout=subprocess.PIPE, stderr=log, text=True, env=self._environment
            )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("clients"):
                return self
        raise AssertionError((self.stage.folder / "proxy.log").read_text()[-2000:])

    @property
    def _package(self) -> str:
        """Versions before the commands had a package of their own are started as `proxy`."""
        return "callstack_proxy" if (self.source / "callstack_proxy/__main__.py").exists() else "proxy"

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

    def terminate(self) -> None:
        """SIGTERM, as before an upgrade: it answers what it has taken, and writes down what it knows."""
        if self._process is not None:
            self._process.terminate()
            self._process.communicate(timeout=WAIT_S)
            self._process = None


class DyingProxy(KillableProxy):
    """A proxy that dies by itself, at the point of its code that `start` names. All its processes are forks of one."""

    def __init__(self, stage: Stage, **settings: object) -> None:
        super().__init__(stage, None, **settings)
        self._commands = DyingCommands(stage.folder / f"armed-{self.port}", stage.folder / "proxy.log")

    def start(self, dies_at: KillPoint | None = None) -> DyingProxy:
        """Returns once it answers. The calls of its point count from `arm` on."""
        self._commands.begin(dies_at, *self._words)
        self._commands.read_until("clients")
        return self

    def dies_while_it_starts(self, point: KillPoint) -> None:
        self._commands.begin(point, *self._words, armed=True)
        self.has_died()

    @property
    def _words(self) -> list[str]:
        return ["serve", "--port", str(self.port), *self._assigned]

    def arm(self) -> None:
        self._commands.arm()

    def has_died(self) -> None:
        """Returns once it has. Fails where it lives on: its code did not come by the point."""
        assert self._commands.end() == -signal.SIGKILL, "its code did not come by the point"

    def kill(self) -> None:
        self._commands.kill()

    stop = kill

    def leave(self) -> None:
        super().leave()
        self._commands.close()


class KillableReplicas(KillableProxy):
    """Two of them on one PostgreSQL database, which take turns. `kill` takes the one that was asked last; the other one
    goes on alone until it is back, which `start` begins and does not wait for."""

    def __init__(self, stage: Stage, store: str, **settings: object) -> None:
        super().__init__(stage, None, store=store, **settings)
        self.store = store
        self._other = KillableProxy(stage, None, store=store, data=stage.folder / "other", **settings)
        stage.proxies.remove(self._other)
        self._ports: dict[int, KillableProxy] = {self.port: self, self._other.port: self._other}
        self._asked = self.port
        self._coming: threading.Thread | None = None

    def start(self) -> KillableReplicas:
        if self._is_down(self) and self._is_down(self._other):
            super().start()
            self._other.start()
        elif self._coming is None:
            self._coming = threading.Thread(target=self._start_one)
            self._coming.start()
        return self

    def _start_one(self) -> None:
        for each in (self, self._other):
            if self._is_down(each):
                KillableProxy.start(each)

    def _is_down(self, each: KillableProxy) -> bool:
        return each._process is None

    def next_port(self) -> int:
        """The other one, if it answers."""
        if self._coming is not None and not self._coming.is_alive():
            self._coming = None
        if self._coming is None:
            self._asked = self._other_port()
        return self._asked

    def _other_port(self) -> int:
        return next(port for port in self._ports if port != self._asked)

    def last_port(self) -> int:
        return self.next_port()

    def kill(self) -> None:
        if self._coming is not None:
            self._coming.join()
            self._coming = None
        KillableProxy.kill(self._ports[self._asked])
        self._asked = self._other_port()

    def runs_from(self, source: Path) -> None:
        """What both of them are from the next start on."""
        self.source = self._other.source = source

    def replace(self) -> None:
        """The one that was asked last stops, and starts again; the other one goes on alone meanwhile."""
        self.until_both_are_back()
        self._ports[self._asked].terminate()
        self._asked = self._other_port()
        self.start()

    def shut_down(self) -> None:
        """Both of them, with SIGTERM."""
        self.until_both_are_back()
        for each in self._ports.values():
            each.terminate()

    def until_both_are_back(self) -> None:
        if self._coming is not None:
            self._coming.join()
            self._coming = None

    def stop(self) -> None:
        if self._coming is not None:
            self._coming.join()
        KillableProxy.kill(self)
        self._other.kill()

    def leave(self) -> None:
        super().leave()
        self._other.leave()
