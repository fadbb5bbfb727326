"""The configuration and the store a command works with, and the proxy that runs on a data directory.

`proxy.yaml` in the current directory is read where no file is named. The commands read the environment only here. A
running proxy is found by the file `server.json` (mode 0600), which holds its address, its process and a token that
opens `/stack`. A killed proxy leaves the file, and another program may have its process id and its port by now. So one
counts as running only where it holds the lock `running.lock` and answers a challenge that takes the token: nothing
secret is sent to a program that has not.
"""

from __future__ import annotations

import fcntl
import http.client
import json
import os
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Annotated, TypeVar
from urllib.parse import urlsplit

import typer
from pydantic import SecretStr

from callstack_proxy.cli.statusline.ask_proxy import NotProven, require_proof
from callstack_proxy.config_sources import load_config
from proxy import __version__
from proxy.config import Config
from proxy.errors import InvalidConfiguration, ProxyError
from proxy.operator_token import console_code

DEFAULT_FILE = Path("proxy.yaml")
Choice = TypeVar("Choice", bound=str)

ConfigFile = Annotated[Path | None, typer.Option("--config", help="Configuration; default: proxy.yaml.")]
DataDirectory = Annotated[Path | None, typer.Option("--data", help="Directory of store and keys.")]
AsJson = Annotated[bool, typer.Option("--json", help="As JSON.")]
AsCsv = Annotated[bool, typer.Option("--csv", help="As CSV: every figure, one line for each row.")]


def one_of(allowed: Sequence[Choice], word: str, *, param_hint: str | None = None) -> Choice:
    """`word` as one of these. Raises typer.BadParameter."""
    for choice in allowed:
        if choice == word:
            return choice
    raise typer.BadParameter(f"{word!r}; allowed: {', '.join(allowed)}", param_hint=param_hint)


def load_settings(
    file: Path | None = None, flags: Mapping[str, object] | None = None, *, asks_upstreams: bool = True
) -> Config:
    """Raises InvalidConfiguration with one line for each fault."""
    return load_config(flags, os.environ, config_file_of(file), asks_upstreams=asks_upstreams)


def config_file_of(named: Path | None) -> Path | None:
    """The configuration file to read, or None where there is none."""
    return named if named is not None else DEFAULT_FILE if DEFAULT_FILE.is_file() else None


def settings_at(file: Path | None, data: Path | None) -> Config:
    """The configuration of a command that does not contact upstreams."""
    return load_settings(file, {"data": str(data) if data else None}, asks_upstreams=False)


def project_folders(project: Path | None) -> tuple[str, ...]:
    """The names that agents may tell of a folder: as a person writes it, and without symbolic links; none for none."""
    if project is None:
        return ()
    folder = project.expanduser()
    written = os.path.abspath(folder)  # noqa: PTH100  `Path.absolute` keeps `..`
    return tuple(dict.fromkeys((written, str(folder.resolve()))))


def data_flag(settings: Config) -> str:
    """The option that makes a suggested command use the same data directory; empty where none is needed."""
    return "" if settings.data == Config().data else f" --data {shlex.quote(str(settings.data))}"


def prepare_data_directory(settings: Config) -> None:
    """Make the data directory. Raises InvalidConfiguration where it cannot be used."""
    data = settings.data
    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        reason = "not a directory" if data.exists() else error.strerror
        raise InvalidConfiguration(f"data: {data} cannot be made: {reason}; name a directory with --data") from None
    if not os.access(data, os.W_OK | os.X_OK):
        raise InvalidConfiguration(f"data: {data} cannot be written to; name another directory with --data")


SERVER_FILE = "server.json"
PRESENCE_LOCK = "running.lock"
"""In the data directory: each proxy that runs on it holds a shared lock on this file."""
ANSWER_TIMEOUT_S, PAGE_TIMEOUT_S = 10.0, 30.0
"""Seconds. The first request builds the management API: 0.3 s of work, and more than 10 s on a very busy machine."""
DELETION_TIMEOUT_S = 600.0
"""Seconds. A deletion rewrites the file of the store, which takes as long as copying it."""


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """A running proxy. `url` has no path; `pid` is its process; `configuration` is what `fingerprint_of` says."""

    url: str
    token: str
    pid: int
    configuration: str = ""


def console_url(url: str, token: str) -> str:
    """The address of the console of the proxy at `url`, which opens without a sign-in; without `token`, with one."""
    return f"{url}/console?code={console_code(token)}" if token else f"{url}/console"


VIEWER = "viewer"
"""`configuration` of a proxy that only shows what is stored. It makes room for any other."""

PLACE_KEYS = {"host", "port", "data", "log_level", "log_format"}
"""Keys that say where a proxy is and how it logs, not what it does with a request."""


def fingerprint_of(settings: Config) -> str:
    """Equal for two configurations that treat every request alike; another one for another version of this package."""

    def plain(value: object) -> object:
        return value.get_secret_value() if isinstance(value, SecretStr) else str(value)

    text = json.dumps(settings.model_dump(exclude=PLACE_KEYS), default=plain, sort_keys=True)
    return sha256(f"{__version__} {text}".encode()).hexdigest()


def write_server_file(data: Path, server: ServerInfo) -> None:
    """Write the file atomically, readable by its owner alone."""
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=data, prefix=".server-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as output:
            json.dump(asdict(server), output)
        Path(temporary).replace(data / SERVER_FILE)
    finally:
        Path(temporary).unlink(missing_ok=True)  # there still where writing failed, as on a full disk


def remove_server_file(data: Path, server: ServerInfo) -> None:
    """Remove the file, if it is still of this proxy."""
    if read_server_file(data) == server:
        (data / SERVER_FILE).unlink(missing_ok=True)


def find_running_proxy(data: Path) -> ServerInfo | None:
    """The proxy that runs on this directory, or None.

    Raises ProxyError where one runs but does not answer: it keeps conversations in memory and would not notice changes
    made directly in the store.
    """
    note = read_server_file(data)
    if note is None or not is_alive(note.pid):
        return None
    is_present = holds_presence(data)
    if is_present is False:
        return None
    try:
        status, _ = send_request(note, "GET", "/stack/requests?limit=1", None, ANSWER_TIMEOUT_S)
    except TimeoutError:
        raise ProxyError(
            f"the proxy at {note.url} (process {note.pid}) does not answer, so nothing was done; try again, or stop it",
            code="proxy_silent",
        ) from None
    except NotProven as error:
        if is_present is None:
            return None
        raise ProxyError(
            f"a proxy runs on {data}, but {error}, so nothing was sent there; stop the proxy (process {note.pid}) and "
            "start it again",
            code="proxy_not_proven",
        ) from None
    except (OSError, http.client.HTTPException):
        return None
    return note if status == http.client.OK else None


def fetch_page(server: ServerInfo, path: str) -> str:
    """A page of the running proxy as text. Raises ProxyError where there is no answer, or not status 200."""
    try:
        status, answer = send_request(server, "GET", path, None, PAGE_TIMEOUT_S)
    except TimeoutError:
        raise ProxyError(
            f"the proxy at {server.url} is busy: no answer within {PAGE_TIMEOUT_S:.0f} s; try again",
            code="proxy_silent",
        ) from None
    except (OSError, http.client.HTTPException) as error:
        raise ProxyError(
            f"the proxy at {server.url} did not answer: {error}; start it again", code="proxy_silent"
        ) from None
    if status != http.client.OK:
        raise ProxyError(
            f"the proxy at {server.url} answered {path} with {status}; its log says why", code="proxy_refused"
        )
    return answer.decode("utf-8")


def read_server_file(data: Path) -> ServerInfo | None:
    """The file as it is, whether or not that proxy still runs. One that another user wrote names whatever that user
    likes, so only the superuser, who looks after others' proxies, reads it."""
    try:
        with (data / SERVER_FILE).open(encoding="utf-8") as file:
            if os.fstat(file.fileno()).st_uid not in (os.geteuid(), 0) and os.geteuid():
                return None
            return ServerInfo(**json.load(file))
    except (OSError, ValueError, TypeError):
        return None


def hold_presence(data: Path) -> int | None:
    """The descriptor that says, as long as it is open, that a proxy runs on this directory. None where the file system
    has no locks."""
    try:
        descriptor = os.open(data / PRESENCE_LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)  # who looks holds it for a moment alone
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def holds_presence(data: Path) -> bool | None:
    """Whether a proxy holds the lock of this directory; None where nothing can tell."""
    try:
        descriptor = os.open(data / PRESENCE_LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    else:
        return False
    finally:
        os.close(descriptor)


def is_alive(pid: int) -> bool:
    """Whether the process exists."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def send_request(
    server: ServerInfo,
    method: str,
    path: str,
    body: object,
    timeout_s: float,
    credentials: Mapping[str, str] | None = None,
) -> tuple[int, bytes]:
    """Send one request, past any HTTP proxy of the environment, because it carries the token, or instead of it
    `credentials`, headers of somebody else. First the other end has to prove, on the same connection, that it has the
    token already. Raises NotProven."""
    address = urlsplit(server.url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=timeout_s)
    try:
        connection.connect()
        connection.auto_open = 0  # a new connection would lead to whoever listens then
        require_proof(connection.sock, server.url, server.token, min(timeout_s, PAGE_TIMEOUT_S))
        connection.sock.settimeout(timeout_s)
        known_by = {"x-stack-key": server.token} if credentials is None else credentials
        headers = {"content-type": "application/json", **known_by}
        connection.request(method, path, json.dumps(body) if body is not None else None, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()
