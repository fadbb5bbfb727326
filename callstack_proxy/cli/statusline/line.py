"""The status line: one line about the session that a client shows, asked of the proxy that runs on this machine.

A client runs this several times a second, so it must end within 50 ms: only what the interpreter has at hand is
imported, and nothing of this package. Claude Code writes a JSON object to stdin; of its fields these are read:
`session_id`, and `rate_limits`, which only a subscription has (https://code.claude.com/docs/en/statusline, "Available
data"). Claude Code blanks the line of a program that fails, so every outcome is a line and exit code 0.
"""

# Importing pathlib would take a fifth of the time that there is.
# ruff: noqa: PTH100, PTH111, PTH112, PTH118, PTH123, PTH208

from __future__ import annotations

import hmac
import json
import os
import socket
import sys
from unicodedata import east_asian_width

NAME = "statusline"
DEFAULT_DATA = "~/.local/share/callstack"
OTHERS = "wrap"
"""In the data directory: folders of proxies with another configuration."""
TIMEOUT_S = 0.3
"""For each answer of the proxy; the next call of the client asks again."""
MAX_STDIN_BYTES = 1 << 20
MAX_ANSWER_BYTES = 1 << 20
DEFAULT_WIDTH = 80
THOUSAND = 1000
MAX_SHARE = 100
"""Percent. One tiny request can cost many times what it would have; the share says nothing then."""
SETTINGS = """\
Claude Code, in ~/.claude/settings.json:

  "statusLine": {"type": "command", "command": "%s"}

tmux, in ~/.tmux.conf:

  set -g status-interval 5
  set -g status-right-length 80
  set -g status-right '#(%s </dev/null)'
"""


class Options:
    """What was typed behind the command's name."""

    def __init__(self) -> None:
        self.data = ""
        self.shows_settings = False


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


def print_status_line(options: Options) -> None:
    """Prints one line, whatever is or is not there; or the settings to paste."""
    text = settings_text(options.data) if options.shows_settings else status_line(options.data)
    out = f"{text.rstrip()}\n".encode(errors="replace")
    try:
        sys.stdout.buffer.write(out)
        sys.stdout.buffer.flush()
    except BrokenPipeError:  # the client has lost interest
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def settings_text(data: str = "") -> str:
    """What to paste into the settings of Claude Code and of tmux."""
    command = f"callstack {NAME}"
    if data:
        command += f" --data {_quoted(os.path.abspath(os.path.expanduser(data)))}"
    in_json = json.dumps(command)[1:-1]
    return SETTINGS % (in_json, command.replace("'", "'\\''"))


def _quoted(path: str) -> str:
    """For a shell; `shlex` would take a tenth of the time that there is."""
    return path if path.replace("/", "").replace("-", "").replace("_", "").replace(".", "").isalnum() else f'"{path}"'


def status_line(data: str = "") -> str:
    """The line for the session that stdin names."""
    told = _told_by_client()
    try:
        server = _server(os.path.expanduser(data or os.environ.get("STACK_DATA") or DEFAULT_DATA))
        if server is None:
            return "callstack: not in use here"  # no proxy runs, or the client asks another address
        answer = _ask(server, _text(told.get("session_id")))
    except TimeoutError:
        return "callstack: the proxy is busy"
    except (OSError, ValueError):
        return "callstack: no proxy answers"
    return cut_to_width(line_text(answer, is_subscription=isinstance(told.get("rate_limits"), dict)), _width())


def _told_by_client() -> dict[str, object]:
    """The client's JSON; empty for a terminal, and for what is none."""
    try:
        if sys.stdin is None or sys.stdin.isatty():
            return {}
        told = json.loads(sys.stdin.buffer.read(MAX_STDIN_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


# ---------------------------------------------------------------------------------------------------------- the proxy
def _server(data: str) -> dict[str, object] | None:
    """What the proxy that the client asks says of itself: by the base URL in the environment, else the one that runs on
    the data directory. None where there is none."""
    wanted = _address(os.environ.get("ANTHROPIC_BASE_URL", ""))
    if not wanted:
        return _server_file(data)
    others = os.path.join(data, OTHERS)
    folders = [data, *(os.path.join(others, name) for name in (os.listdir(others) if os.path.isdir(others) else ()))]
    found = [each for folder in folders if (each := _server_file(folder)) is not None]
    return next((each for each in found if _address(_text(each.get("url"))) == wanted), None)


def _address(url: str) -> str:
    """Host and port of a URL."""
    return url.partition("://")[2].partition("/")[0].replace("localhost:", "127.0.0.1:")


def _server_file(folder: str) -> dict[str, object] | None:
    try:
        with open(os.path.join(folder, "server.json"), "rb") as file:
            told = json.loads(file.read(MAX_ANSWER_BYTES))
    except (OSError, ValueError):
        return None
    return told if isinstance(told, dict) else None


def _ask(server: dict[str, object], session: str) -> dict[str, object]:
    """The proxy's answer. Raises OSError and ValueError where there is none."""
    token = _text(server.get("token"))
    host, _, port = _text(server.get("url")).partition("://")[2].rpartition(":")
    with socket.create_connection((host.strip("[]"), int(port)), TIMEOUT_S) as connection:
        # The token is sent only to a program that has it: another one may have the port by now.
        challenge = os.urandom(16).hex()
        told, _ = _get(connection, host, port, f"/health?challenge={challenge}")
        said = f"proof of a running proxy\n{port}\n{challenge}"
        proof = hmac.digest(token.encode(), said.encode(), "sha256").hex()
        if not token or not hmac.compare_digest(told.get("x-stack-proof", "").encode(), proof.encode()):
            raise ValueError("another program listens there")
        _, body = _get(connection, host, port, f"/stack/{NAME}?session={_in_url(session)}", token)
    answer = json.loads(body)
    if not isinstance(answer, dict):
        raise ValueError("no object")  # noqa: TRY004 - of an answer, not of an argument
    return answer


def _get(connection: socket.socket, host: str, port: str, target: str, token: str = "") -> tuple[dict[str, str], bytes]:
    """Headers and body of the answer to a GET; `http.client` would take a third of the time that there is."""
    key = f"x-stack-key: {token}\r\n" if token else ""
    connection.sendall(f"GET {target} HTTP/1.1\r\nhost: {host}:{port}\r\n{key}\r\n".encode("latin-1"))
    read = b""
    while b"\r\n\r\n" not in read:
        read += _more(connection, read)
    head, _, body = read.partition(b"\r\n\r\n")
    status, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    size = int(headers.get("content-length", "0"))
    while len(body) < size:
        body += _more(connection, body)
    if status.split(" ", 2)[1:2] != ["200"]:
        raise ValueError(status)
    return headers, body


def _more(connection: socket.socket, before: bytes) -> bytes:
    piece = connection.recv(65536)
    if not piece or len(before) > MAX_ANSWER_BYTES:
        raise ValueError("the answer has no end")
    return piece


def _in_url(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode(errors="replace"))


# ----------------------------------------------------------------------------------------------------------- the words
def line_text(answer: dict[str, object], *, is_subscription: bool) -> str:
    """What the proxy told, as one line: the context, what is saved today, the working frame. A subscription is not paid
    by the token, so there the share of what its plan was asked for is told instead of the money, and likewise where
    plans paid for all of today; where plans paid for a part of it, both are told."""
    sent, came = _number(answer.get("tokens_sent")), _number(answer.get("tokens_in"))
    parts = []
    if came:
        parts.append(f"{_tokens(sent)} of {_tokens(came)} tokens" if sent != came else f"{_tokens(sent)} tokens")
    saved, untouched = _number(answer.get("saved")), _number(answer.get("untouched"))
    plan_saved, plan_untouched = _number(answer.get("plan_saved")), _number(answer.get("plan_untouched"))
    if is_subscription or (plan_untouched and not untouched):
        parts.append(_saved_of_plan(plan_saved, plan_untouched))
    else:
        parts.append(_saved(saved, untouched))
        if plan_untouched and (share := min(_percent(plan_saved, plan_untouched), MAX_SHARE)):
            parts.append(f"{_word(plan_saved)} {share} % of the plan")
    if frame := printable(_text(answer.get("frame"))):
        parts.append(frame)
    return f"callstack {' · '.join(parts)}"


def _saved_of_plan(saved: float, untouched: float) -> str:
    share = min(_percent(saved, untouched), MAX_SHARE)
    return f"{_word(saved)} {share} % of today's use" if share else "nothing saved today"


def _saved(saved: float, untouched: float) -> str:
    share = _percent(saved, untouched)
    amount = f"{abs(saved):.2f}" if abs(saved) >= 0.01 else f"{abs(saved):.4f}"
    if not float(amount):
        return "nothing saved today"
    return f"{_word(saved)} ${amount} today" + (f" ({share} %)" if 0 < share <= MAX_SHARE else "")


def _percent(saved: float, untouched: float) -> int:
    return round(100 * abs(saved) / untouched) if untouched > 0 else 0


def _word(saved: float) -> str:
    return "lost" if saved < 0 else "saved"


def _tokens(number: float) -> str:
    if number < THOUSAND:
        return f"{number:.0f}"
    return f"{number / THOUSAND:.0f}k" if number < THOUSAND**2 else f"{number / THOUSAND**2:.1f}M"


def printable(text: str) -> str:
    """The text without what moves a cursor, colours or reverses: a model wrote it."""
    return " ".join("".join(each if each.isprintable() else " " for each in text).split())


def cut_to_width(text: str, width: int) -> str:
    """The text within so many cells, with an ellipsis where it is cut."""
    cells = 0
    for at, each in enumerate(text):
        cells += 2 if each > "\x7f" and east_asian_width(each) in "WF" else 1
        if cells > width:
            kept = text[:at]
            while kept and _cells(kept) > width - 1:
                kept = kept[:-1]
            return f"{kept.rstrip()}…"
    return text


def _cells(text: str) -> int:
    return sum(2 if each > "\x7f" and east_asian_width(each) in "WF" else 1 for each in text)


def _width() -> int:
    told = os.environ.get("COLUMNS", "")
    return int(told) if told.isdigit() and int(told) > 0 else DEFAULT_WIDTH


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _number(value: object) -> float:
    return value if isinstance(value, int | float) else 0
