"""The proxy that runs on a data directory: it leaves a note there, and others find it by that note.

`server.json` (mode 0600) holds its address, its process and a token that opens `/stack` for as long as it runs: whoever
may read the file may read the store too. The note goes when the proxy ends; one that was killed leaves it behind, so
whoever answers at that address has to be the process that wrote it, or nobody is there.
"""

from __future__ import annotations

import http.client
import json
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from proxy.errors import InvalidConfiguration, NotAllowed, NotFound, ProxyError, StoreError

SERVER_FILE = "server.json"
ANSWER_TIMEOUT_S = 10.0
"""Seconds for an answer. The first question of all builds the management API: 0.3 s of work, and 5 where the machine
has much else to do."""
DELETION_TIMEOUT_S = 600.0
"""A deletion writes the file anew; that takes the time of copying it."""


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """`url` is without a path; `pid` the process."""

    url: str
    token: str
    pid: int


def write_server_file(data: Path, presence: ServerInfo) -> None:
    """Leave the note, in one step, readable by its owner alone."""
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=data, prefix=".server-")
    with os.fdopen(handle, "w", encoding="utf-8") as output:
        json.dump(asdict(presence), output)
    Path(temporary).replace(data / SERVER_FILE)


def remove_server_file(data: Path, presence: ServerInfo) -> None:
    """Take the note away, if it is still this one's."""
    if _read_server_file(data) == presence:
        (data / SERVER_FILE).unlink(missing_ok=True)


def find_running_proxy(data: Path) -> ServerInfo | None:
    """The proxy that runs on this directory, or None; a note without a proxy behind it counts for nothing.

    Raises ProxyError where one is there and says nothing: it keeps conversations in memory, and what was written to the
    store behind its back would be unknown to it.
    """
    note = _read_server_file(data)
    if note is None or not _is_alive(note.pid):
        return None
    try:
        status, _ = _send_request(note, "GET", "/stack/requests?limit=1", None, ANSWER_TIMEOUT_S)
    except TimeoutError:
        raise ProxyError(
            f"the proxy at {note.url} (process {note.pid}) does not answer, so nothing was done; try again, or stop it",
            code="proxy_silent",
        ) from None
    except (OSError, http.client.HTTPException):
        return None
    return note if status == http.client.OK else None


def ask_proxy(presence: ServerInfo, method: str, path: str, body: object = None) -> Any:
    """What the running proxy answers, as JSON. Raises the error it tells."""
    try:
        status, answer = _send_request(presence, method, path, body, DELETION_TIMEOUT_S)
    except (OSError, http.client.HTTPException) as error:
        raise ProxyError(f"the proxy at {presence.url} did not answer: {error}", code="proxy_silent") from None
    told = json.loads(answer)
    if status < http.client.BAD_REQUEST:
        return told
    kinds = {404: NotFound, 400: InvalidConfiguration, 409: NotAllowed}
    raise kinds.get(status, StoreError)(told["error"]["message"], code=told["error"]["code"])


def fetch_page(presence: ServerInfo, path: str) -> str:
    """A page of the running proxy that is no JSON. Raises ProxyError where it is not answered."""
    try:
        status, answer = _send_request(presence, "GET", path, None, ANSWER_TIMEOUT_S)
    except (OSError, http.client.HTTPException) as error:
        raise ProxyError(f"the proxy at {presence.url} did not answer: {error}", code="proxy_silent") from None
    if status != http.client.OK:
        raise ProxyError(f"the proxy at {presence.url} answered {path} with {status}", code="proxy_refused")
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


def _send_request(presence: ServerInfo, method: str, path: str, body: object, patience_s: float) -> tuple[int, bytes]:
    """One request past every HTTP proxy of the environment: it carries a token, and the address is of this machine."""
    address = urlsplit(presence.url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=patience_s)
    try:
        headers = {"x-stack-key": presence.token, "content-type": "application/json"}
        connection.request(method, path, json.dumps(body) if body is not None else None, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()
