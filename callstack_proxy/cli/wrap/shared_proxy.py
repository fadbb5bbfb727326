"""The proxy of `callstack wrap`: the one that runs on the data directory with the same configuration, or a new process
on a free port.

Every wrap holds a shared lock on `agents.lock` in the data directory while its agent runs. The proxy waits for an
exclusive one in a thread (`serve --agents`), gets it when the last wrap is gone, however that one ended, and stops. It
keeps the lock until its process has ended, so a wrap that comes meanwhile waits and starts another.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

import proxy
from callstack_proxy.cli.context import (
    VIEWER,
    ServerInfo,
    find_running_proxy,
    fingerprint_of,
    is_alive,
    prepare_data_directory,
    read_server_file,
)
from proxy.config import Config
from proxy.errors import InvalidConfiguration, ProxyError

AGENTS_LOCK, START_LOCK = "agents.lock", "wrap.lock"
LOG_NAME = "wrap.log"
MAX_LOG_BYTES = 10_000_000
"""A longer log is put aside as `wrap.log.1` before a proxy starts."""
OTHERS_FOLDER = "wrap"
"""In the data directory: folders of proxies whose configuration differs from that of the one running there."""
START_TIMEOUT_S = 60.0
POLL_S = 0.02
TAIL_LINES = 5
LEAST_FREE_BYTES = 1 << 20
"""A proxy that does not start on a disk with less lacks the room for its store."""


@dataclass(frozen=True, slots=True)
class SharedProxy:
    """A proxy that runs. `settings` names its data directory; `process` is None where another one started it."""

    server: ServerInfo
    settings: Config
    process: subprocess.Popen[bytes] | None = None

    def is_running(self) -> bool:
        return is_alive(self.server.pid) if self.process is None else self.process.poll() is None

    def ending(self) -> str:
        """How the process ended, as the rest of a clause; empty where that is not known."""
        code = self.process.returncode if self.process else None
        return "" if code is None else f" (signal {-code})" if code < 0 else f" (exit code {code})"

    def disown(self) -> None:
        """Leaves the process alone: it ends by itself, perhaps long after us."""
        if self.process is not None and self.process.returncode is None:
            self.process.returncode = 0  # or its destructor would warn

    @property
    def log(self) -> Path:
        return self.settings.data / LOG_NAME

    @property
    def port(self) -> int:
        return urlsplit(self.server.url).port or 0


@contextmanager
def shared_proxy(settings: Config, options: Mapping[str, str], config_file: Path | None) -> Iterator[SharedProxy]:
    """A running proxy with this configuration, which stays at least as long as the block. `options` are the keys that
    `serve` needs to load the same configuration. Where another configuration runs on the data directory, the data is in
    a folder below it. Raises ProxyError where no proxy starts."""
    wanted = fingerprint_of(settings)
    for folder in (settings.data, _own_folder(settings)):
        here = settings.model_copy(update={"data": folder})
        prepare_data_directory(here)
        with _locked(folder / START_LOCK, fcntl.LOCK_EX) as starting, _locked(folder / AGENTS_LOCK, fcntl.LOCK_SH):
            found = find_running_proxy(folder)
            if found is not None and found.configuration == VIEWER:
                found = None  # it makes room for the one that starts now
            if found is not None and found.configuration != wanted:
                continue
            running = SharedProxy(found, here) if found else _start(here, options, config_file)
            fcntl.flock(starting, fcntl.LOCK_UN)
            try:
                yield running
            finally:
                running.disown()
            return
    raise ProxyError(f"two proxies with other configurations run on {settings.data}; stop one, or name another --data")


def planned_folder(settings: Config) -> Path:
    """The data directory that `shared_proxy` would use now. Raises ProxyError where a proxy runs but does not
    answer."""
    found = find_running_proxy(settings.data)
    is_other = found is not None and found.configuration not in (VIEWER, fingerprint_of(settings))
    return _own_folder(settings) if is_other else settings.data


def _own_folder(settings: Config) -> Path:
    """Where the data is while a proxy with another configuration runs on the data directory."""
    return settings.data / OTHERS_FOLDER / fingerprint_of(settings)[:8]


@contextmanager
def _locked(path: Path, kind: int) -> Iterator[int]:
    """Waits for a lock on the file; the system takes it away with the process. Raises InvalidConfiguration where the
    file system has none."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        fcntl.flock(descriptor, kind)
    except OSError as error:
        raise InvalidConfiguration(
            f"data: {path} cannot be locked: {error.strerror}; name another directory with --data"
        ) from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _start(settings: Config, options: Mapping[str, str], config_file: Path | None) -> SharedProxy:
    data = settings.data
    log = data / LOG_NAME
    with _open_log(log) as output:
        began_at = output.tell()
        process = subprocess.Popen(  # noqa: S603 - this very program
            _serve_command(data, options, config_file),
            env=_serve_environ(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # Ctrl-C and a closed terminal are the agent's
        )
    deadline = time.monotonic() + START_TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline:
        server = read_server_file(data)
        if server is not None and server.pid == process.pid:
            return SharedProxy(server, settings, process)
        time.sleep(POLL_S)
    process.kill()
    process.wait()
    with log.open(encoding="utf-8", errors="replace") as written:
        written.seek(began_at)
        tail = "\n".join(written.read().splitlines()[-TAIL_LINES:])
    why = not_started_words(log, tail, shutil.disk_usage(data).free)
    raise ProxyError(f"the proxy did not start, so neither did the agent; {why}", code="not_started")


def not_started_words(log: Path, tail: str, free_bytes: int) -> str:
    """By what the log ends with, and by what is left of its disk: on a full one the proxy cannot write a word."""
    if free_bytes < LEAST_FREE_BYTES:
        return f"the disk of {log.parent} is full: free some of it, or name another directory with --data"
    return f"its log {log} ends:\n{tail}" if tail else f"it wrote nothing to its log {log}"


def _serve_command(data: Path, options: Mapping[str, str], config_file: Path | None) -> list[str]:
    """-P: a folder `callstack_proxy` in the user's project is not this package."""
    named = ["--config", str(config_file)] if config_file else []
    assigned = [part for key, value in options.items() for part in ("--set", f"{key}={value}")]
    serve = [sys.executable, "-P", "-m", "callstack_proxy", "serve", "--agents", str(data / AGENTS_LOCK)]
    return [*serve, "--data", str(data), *named, *assigned]


def _serve_environ() -> dict[str, str]:
    """The user's environment, with this package on the path."""
    package = str(Path(proxy.__file__).resolve().parent.parent)
    paths = [package, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def _open_log(path: Path) -> IO[bytes]:
    """The log to append to, readable by its owner alone."""
    if path.exists() and path.stat().st_size > MAX_LOG_BYTES:
        path.replace(path.with_suffix(".log.1"))
    path.touch(mode=0o600)
    log = path.open("ab")
    log.seek(0, os.SEEK_END)
    return log
