"""Finds the proxy that a client of this machine asks, and asks it. For commands that a client runs all the time: only
what the interpreter has at hand is imported, and nothing of this package.
"""

# Importing pathlib would take a fifth of the time that there is.
# ruff: noqa: PTH100, PTH110, PTH111, PTH112, PTH118, PTH120, PTH123, PTH208

from __future__ import annotations

import hmac
import json
import os
import socket
import sys
import time

NAME, PROGRAM = "statusline", "callstack"
DEFAULT_DATA = "~/.local/share/callstack"
OTHERS = "wrap"
"""In the data directory: folders of proxies with another configuration."""
TIMEOUT_S = 0.3
"""For each answer of the proxy; the next call of the client asks again."""
MAX_STDIN_BYTES = 1 << 20
MAX_ANSWER_BYTES = 1 << 20


class Options:
    """What was typed behind the command's name."""

    def __init__(self) -> None:
        self.data = ""
        self.shows_settings = False

    @property
    def data_directory(self) -> str:
        return os.path.expanduser(self.data or os.environ.get("STACK_DATA") or DEFAULT_DATA)

    def command(self, name: str) -> str:
        """What a client is to run, as a shell reads it, whatever its folder and its environment are."""
        command = f"{_program()} {name}"
        if self.data:
            command += f" --data {_quoted(os.path.abspath(os.path.expanduser(self.data)))}"
        return command


def read_options(words: list[str]) -> Options | None:
    """None for what only the whole program can answer: help, and a wrong option."""
    options = Options()
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if word == "--settings":
            options.shows_settings = True
        elif name == "--data" and (given := value if equals else next(rest, "")):
            options.data = given
        else:
            return None
    return options


def _program() -> str:
    """`callstack` where that name leads to this program, else its whole path. The folder of its virtual environment
    does not count: clients start without it."""
    own_folder = os.path.dirname(sys.executable)
    own = os.path.join(own_folder, PROGRAM)
    if sys.prefix == sys.base_prefix or not os.path.exists(own):
        return PROGRAM
    folders = os.environ.get("PATH", "").split(os.pathsep)
    others = [os.path.join(each, PROGRAM) for each in folders if os.path.realpath(each) != os.path.realpath(own_folder)]
    found = next((each for each in others if os.access(each, os.X_OK)), "")
    return PROGRAM if os.path.realpath(found) == os.path.realpath(own) else _quoted(own)


def _quoted(path: str) -> str:
    """For a shell; `shlex` would take a tenth of the time that there is."""
    if path.replace("/", "").replace("-", "").replace("_", "").replace(".", "").isalnum():
        return path
    return '"' + "".join(f"\\{each}" if each in '\\"$`' else each for each in path) + '"'


def print_text(text: str) -> None:
    """Print it and a line feed; nothing where it is empty."""
    if not text:
        return
    out = f"{text.rstrip()}\n".encode(errors="replace")
    try:
        sys.stdout.buffer.write(out)
        sys.stdout.buffer.flush()
    except BrokenPipeError:  # the client has lost interest
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def told_by_client() -> dict[str, object]:
    """The client's JSON on stdin; empty for a terminal, and for what is none."""
    try:
        if sys.stdin is None or sys.stdin.isatty():
            return {}
        given = json.loads(sys.stdin.buffer.read(MAX_STDIN_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return given if isinstance(given, dict) else {}


def client_base() -> str:
    """Host and port that Claude Code asks, where its environment says so."""
    return _address(os.environ.get("ANTHROPIC_BASE_URL", ""))


def servers(data: str) -> list[dict[str, object]]:
    """What each proxy on the data directory, or on a folder of `callstack wrap` in it, says of itself; it may have died
    since."""
    others = os.path.join(data, OTHERS)
    folders = [data, *(os.path.join(others, name) for name in (os.listdir(others) if os.path.isdir(others) else ()))]
    return [each for folder in folders if (each := _server_file(folder)) is not None]


def server_of_client(data: str) -> dict[str, object] | None:
    """What the proxy that the client asks says of itself: by the base URL in the environment, else the one that runs on
    the data directory. None where there is none."""
    wanted = client_base()
    if not wanted:
        return _server_file(data)
    return next((each for each in servers(data) if _address(as_text(each.get("url"))) == wanted), None)


def _address(url: str) -> str:
    """Host and port of a URL."""
    return url.partition("://")[2].partition("/")[0].replace("localhost:", "127.0.0.1:")


def _server_file(folder: str) -> dict[str, object] | None:
    try:
        with open(os.path.join(folder, "server.json"), "rb") as file:
            server = json.loads(file.read(MAX_ANSWER_BYTES))
    except (OSError, ValueError):
        return None
    return server if isinstance(server, dict) else None


class NotProven(ConnectionError):
    """What listens at the address of a proxy could not prove that it is that proxy."""


def require_proof(connection: socket.socket, url: str, token: str, timeout_s: float) -> None:
    """Make the other end prove that it has the token, which is sent only then: another program may have the port of
    `url` by now. Raises NotProven, and TimeoutError for one that has not answered whole by then."""
    host, port = connection.getpeername()[:2]
    challenge = os.urandom(16).hex()
    said = f"proof of a running proxy\n{host.removeprefix('::ffff:')}\n{port}\n{challenge}"
    proof = hmac.digest(token.encode(), said.encode(), "sha256").hex()
    try:
        _, headers, _ = _get(connection, url, f"/health?challenge={challenge}", time.monotonic() + timeout_s)
    except ValueError:
        headers = {}
    if not token or not hmac.compare_digest(headers.get("x-stack-proof", "").encode(), proof.encode()):
        raise NotProven(f"what listens at {url} did not prove that it is that proxy")


def ask(server: dict[str, object], session: str) -> dict[str, object]:
    """The proxy's answer. Raises OSError and ValueError where there is none."""
    token, url = as_text(server.get("token")), as_text(server.get("url"))
    host, _, port = url.partition("://")[2].rpartition(":")
    with socket.create_connection((host.strip("[]"), int(port)), TIMEOUT_S) as connection:
        require_proof(connection, url, token, TIMEOUT_S)
        target = f"/stack/{NAME}?session={_in_url(session)}"
        status, _, body = _get(connection, url, target, time.monotonic() + TIMEOUT_S, token)
    answer = json.loads(body)
    if status != "200" or not isinstance(answer, dict):
        raise ValueError("no object")
    return answer


def _get(
    connection: socket.socket, url: str, target: str, until: float, token: str = ""
) -> tuple[str, dict[str, str], bytes]:
    """Status, headers and body of the answer to a GET; `http.client` would take a third of the time that there is, and
    wait anew for each byte. `until` is on the monotonic clock. Raises ValueError for what is no answer, TimeoutError
    and other OSErrors."""
    key = f"x-stack-key: {token}\r\n" if token else ""
    host = url.partition("://")[2]
    connection.sendall(f"GET {target} HTTP/1.1\r\nhost: {host}\r\n{key}\r\n".encode("latin-1"))
    read = b""
    while b"\r\n\r\n" not in read:
        read += _more(connection, read, until)
    head, _, body = read.partition(b"\r\n\r\n")
    status, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    size = int(headers.get("content-length", "0"))
    while len(body) < size:
        body += _more(connection, body, until)
    return status.partition(" ")[2][:3], headers, body


def _more(connection: socket.socket, before: bytes, until: float) -> bytes:
    left_s = until - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("the answer takes too long")
    connection.settimeout(left_s)
    piece = connection.recv(65536)
    if not piece or len(before) > MAX_ANSWER_BYTES:
        raise ValueError("the answer has no end")
    return piece


def _in_url(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode(errors="replace"))


def as_text(value: object) -> str:
    return value if isinstance(value, str) else ""


def as_number(value: object) -> float:
    return value if isinstance(value, int | float) else 0
