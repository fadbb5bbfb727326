"""Finds the proxy that runs on a data directory, by the file `server.json` there.

The file (mode 0600) holds the proxy's address, its process and a token that opens `/stack` while it runs: who may read
the file may read the store too. The proxy removes the file when it ends, but a killed one leaves it, so a proxy counts
as running only where the process lives and accepts the token.
"""

from __future__ import annotations

import http.client
import json
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

from proxy.errors import ProxyError

SERVER_FILE = "server.json"
ANSWER_TIMEOUT_S = 10.0
"""Seconds. The first request builds the management API: 0.3 s of work, and 5 s on a busy machine."""
DELETION_TIMEOUT_S = 600.0
"""Seconds. A deletion rewrites the file of the store, which takes as long as copying it."""


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """A running proxy. `url` has no path; `pid` is its process."""

    url: str
    token: str
    pid: int


def write_server_file(data: Path, server: ServerInfo) -> None:
    """Write the file atomically, readable by its owner alone."""
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=data, prefix=".server-")
    with os.fdopen(handle, "w", encoding="utf-8") as output:
        json.dump(asdict(server), output)
    Path(temporary).replace(data / SERVER_FILE)


def remove_server_file(data: Path, server: ServerInfo) -> None:
    """Remove the file, if it is still of this proxy."""
    if _read_server_file(data) == server:
        (data / SERVER_FILE).unlink(missing_ok=True)


def find_running_proxy(data: Path) -> ServerInfo | None:
    """The proxy that runs on this directory, or None.

    Raises ProxyError where one runs but does not answer: it keeps conversations in memory and would not notice changes
    made directly in the store.
    """
    note = _read_server_file(data)
    if note is None or not _is_alive(note.pid):
        return None
    try:
        status, _ = send_request(note, "GET", "/stack/requests?limit=1", None, ANSWER_TIMEOUT_S)
    except TimeoutError:
        raise ProxyError(
            f"the proxy at {note.url} (process {note.pid}) does not answer, so nothing was done; try again, or stop it",
            code="proxy_silent",
        ) from None
    except (OSError, http.client.HTTPException):
        return None
    return note if status == http.client.OK else None


def fetch_page(server: ServerInfo, path: str) -> str:
    """A page of the running proxy as text. Raises ProxyError where there is no answer, or not status 200."""
    try:
        status, answer = send_request(server, "GET", path, None, ANSWER_TIMEOUT_S)
    except (OSError, http.client.HTTPException) as error:
        raise ProxyError(f"the proxy at {server.url} did not answer: {error}", code="proxy_silent") from None
    if status != http.client.OK:
        raise ProxyError(f"the proxy at {server.url} answered {path} with {status}", code="proxy_refused")
    return answer.decode("utf-8")


def _read_server_file(data: Path) -> ServerInfo | None:
    try:
        return ServerInfo(**json.loads((data / SERVER_FILE).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def send_request(server: ServerInfo, method: str, path: str, body: object, timeout_s: float) -> tuple[int, bytes]:
    """Send one request, past any HTTP proxy of the environment, because it carries a token."""
    address = urlsplit(server.url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=timeout_s)
    try:
        headers = {"x-stack-key": server.token, "content-type": "application/json"}
        connection.request(method, path, json.dumps(body) if body is not None else None, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()
