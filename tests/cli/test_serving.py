"""`serve` as a user starts it: three lines, a real conversation against the scripted provider, and every way to look.

The provider is a process too (`callstack provider`), so that nothing but sockets and files connects the parts.
"""

import http.client
import json
import re
import resource
import signal
import socket
import stat
import subprocess
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

import pytest

from callstack_proxy.cli.serve.command import reachable_url, welcome_lines
from proxy.config.model import Config
from proxy.config.sections import Mode
from tests.cli.conftest import Shell

CANARY = "sk-canary-0123456789"
SCENARIO = """
answers:
  - call: {name: stack_frame_push, arguments: {title: Fix rounding, successCriteria: billing passes}}
  - call: {name: read, arguments: {path: billing.py}}
  - call: {name: stack_frame_pop, arguments: {status: completed, results: Decimal until the last step}}
  - text: Billing is green.
"""
TOOLS = [{"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}]
Starting = Callable[..., "subprocess.Popen[str]"]


def line_of(stream: IO[str] | None) -> str:
    assert stream is not None
    return stream.readline().rstrip("\n")


@pytest.fixture
def provider(shell: Shell, started: Starting) -> str:
    """The base URL of a model that opens a frame, works in it, and returns."""
    (shell.home / "scenario.yaml").write_text(SCENARIO)
    process = started("provider", "scenario.yaml", "--port", "0")
    found = re.search(r"http://[\d.:]+", line_of(process.stdout))
    assert found is not None
    return f"{found[0]}/v1"


class Proxy:
    """A `serve` that runs."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.said = [line_of(process.stdout) for _ in range(3)]
        self.url = self.said[0].split()[1].removesuffix("/v1")

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
        address = urlsplit(self.url)
        connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=20)
        try:
            sent = {"content-type": "application/json", "authorization": f"Bearer {CANARY}"} | headers
            connection.request(method, path, json.dumps(body) if body is not None else None, sent)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def converse(self) -> str:
        """An agent's loop until the model stops calling; what it said last."""
        messages: list[dict[str, Any]] = [{"role": "user", "content": "make billing green"}]
        for _ in range(5):
            status, told = self.ask(
                "POST", "/v1/chat/completions", {"model": "scripted-model", "messages": messages, "tools": TOOLS}
            )
            assert status == 200, told
            message = told["choices"][0]["message"]
            calls = message.get("tool_calls") or []
            results = [{"role": "tool", "tool_call_id": call["id"], "content": "round(total, 2)"} for call in calls]
            messages += [message, *results]
            if not calls:
                return str(message["content"])
        raise AssertionError("the model never stopped calling")


@pytest.fixture
def serving(shell: Shell, provider: str, started: Starting) -> Callable[..., Proxy]:
    def serve(*words: str) -> Proxy:
        everything = ["--upstream", provider, "--port", "0", "--data", str(shell.data), "--set", "wake_at_tokens=0"]
        return Proxy(started("serve", *everything, *words))

    return serve


def test_serve_says_three_lines_and_takes_its_note_away(shell: Shell, serving: Callable[..., Proxy]) -> None:
    proxy = serving()
    note = shell.data / "server.json"
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (note, shell.data)]
    proxy.process.send_signal(signal.SIGTERM)
    rest, errors = proxy.process.communicate(timeout=30)

    assert [line.split()[0] for line in proxy.said] == ["clients", "data", "console"]
    assert proxy.said[1].endswith(str(shell.data / "callstack.db"))
    assert re.fullmatch(r"console  http://127\.0\.0\.1:\d+/console\?code=[\w-]{20}", proxy.said[2])
    assert (rest, proxy.process.returncode, modes) == ("", 0, [0o600, 0o700])
    [stopping] = map(json.loads, errors.splitlines())
    assert (stopping["event"], stopping["drain_s"]) == ("stopping", 30)
    assert not note.exists()


def test_a_log_that_nobody_reads_stops_nobody(serving: Callable[..., Proxy]) -> None:
    """A pipe holds 64 KiB, which is a hundred requests; its end is still there after it."""
    proxy = serving()

    told = {proxy.ask("GET", "/v1/models", host="evil.example")[0] for _ in range(400)}
    assert told == {403}
    assert proxy.ask("GET", "/health")[0] == 200
    proxy.process.send_signal(signal.SIGTERM)
    _, errors = proxy.process.communicate(timeout=30)
    assert len(errors.splitlines()) == 401


def test_without_a_free_descriptor_the_log_says_so_and_the_proxy_recovers(serving: Callable[..., Proxy]) -> None:
    proxy = serving()
    address = urlsplit(proxy.url)
    used = len(list(Path(f"/proc/{proxy.process.pid}/fd").iterdir()))
    _, hard = resource.prlimit(proxy.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(proxy.process.pid, resource.RLIMIT_NOFILE, (used + 4, hard))
    with ExitStack() as connections:
        for _ in range(16):
            connections.enter_context(socket.create_connection((address.hostname or "", address.port or 0), timeout=20))
        said = json.loads(line_of(proxy.process.stderr))
    again = json.loads(line_of(proxy.process.stderr))

    assert said["event"] == "no file descriptor is free; new connections are closed"
    assert (said["limit"], again["event"]) == (used + 4, "file descriptors are free again")
    assert proxy.ask("GET", "/health")[0] == 200


def test_ctrl_c_says_what_is_waited_for_and_once_more_ends_at_once(shell: Shell, started: Starting) -> None:
    (shell.home / "slow.yaml").write_text('answers: [{text: "one two three", pace_ms: 60000}]')
    model = re.search(r"http://[\d.:]+", line_of(started("provider", "slow.yaml", "--port", "0").stdout))
    assert model is not None
    proxy = Proxy(started("serve", "--upstream", f"{model[0]}/v1", "--port", "0", "--data", str(shell.data)))
    address = urlsplit(proxy.url)
    client = http.client.HTTPConnection(address.hostname or "", address.port, timeout=20)
    body = {"model": "gpt-5.4", "messages": [{"role": "user", "content": "hi"}], "stream": True}
    client.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"})
    assert client.getresponse().status == 200

    proxy.process.send_signal(signal.SIGINT)
    stopping = json.loads(line_of(proxy.process.stderr))
    proxy.process.send_signal(signal.SIGINT)
    _, errors = proxy.process.communicate(timeout=20)
    client.close()

    assert (stopping["event"], stopping["waits_for"]) == ("stopping", 1)
    assert stopping["hint"] == "Ctrl-C once more ends at once"
    assert proxy.process.returncode == 0
    [ended] = map(json.loads, errors.splitlines())
    assert (ended["event"], ended["status"], ended["reason"]) == ("request", "error", "shutdown")
    [booked] = json.loads(shell.on_data("report", "--by", "request", "--json").out)["rows"]
    assert (booked["key"], booked["status"]) == (ended["id"], "error"), "what it cost is paid, and on disk"


@pytest.mark.parametrize("tools", [True, False], ids=["awake", "asleep"])
def test_a_stream_that_the_end_of_the_drain_cuts_says_so(shell: Shell, started: Starting, tools: bool) -> None:
    (shell.home / "slow.yaml").write_text('answers: [{text: "one two three", pace_ms: 1500}]')
    model = re.search(r"http://[\d.:]+", line_of(started("provider", "slow.yaml", "--port", "0").stdout))
    assert model is not None
    settings = ("--set", "drain_s=1", "--set", "wake_at_tokens=0")
    proxy = Proxy(started("serve", "--upstream", f"{model[0]}/v1", "--port", "0", "--data", str(shell.data), *settings))
    address = urlsplit(proxy.url)
    offered = {"tools": [{"type": "function", "function": {"name": "look", "parameters": {}}}]} if tools else {}
    body = {"model": "gpt-5.4", "messages": [{"role": "user", "content": "hi"}], "stream": True, **offered}
    with closing(http.client.HTTPConnection(address.hostname or "", address.port, timeout=20)) as client:
        client.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"})
        with client.getresponse() as answer:
            seen = answer.read1()
            proxy.process.send_signal(signal.SIGUSR1)
            with pytest.raises(http.client.IncompleteRead) as cut:
                answer.read()
    seen += cut.value.partial

    assert seen.endswith(b": callstack: The proxy was stopped before the answer was whole. Send it again.\n\n")
    assert proxy.process.wait(20) == 0


def test_a_conversation_is_seen_by_every_command_and_no_key_is_kept(
    shell: Shell, serving: Callable[..., Proxy]
) -> None:
    """The main way through all of it; A8: the client's key is in no file and in no line of the log."""
    proxy = serving("--set", "log_level=debug")
    said = proxy.converse()
    tree, log = shell.on_data("tree"), shell.on_data("log", "Fix rounding")
    rows = json.loads(shell.on_data("report", "--by", "request", "--json").out)["rows"]
    diff = shell.on_data("diff", rows[-1]["key"])
    doctor = shell.on_data("doctor")
    proxy.process.terminate()
    _, errors = proxy.process.communicate(timeout=30)

    assert said == "Billing is green."
    assert "✓ Fix rounding" in tree.out
    assert "round(total, 2)" in log.out
    assert "Decimal until the last step" in log.out
    assert len(rows) == 2
    assert re.search(r"^ - assistant .* -> read", diff.out, re.MULTILINE)
    assert f"a proxy runs on this data at {proxy.url}" in doctor.out
    assert f"the proxy at {proxy.url} has it from its own options" in doctor.out
    assert CANARY not in errors + tree.out + log.out + diff.out
    assert [path for path in shell.data.iterdir() if CANARY.encode() in path.read_bytes()] == []


def test_mode_unfold_and_forget_go_through_the_proxy_that_runs(shell: Shell, serving: Callable[..., Proxy]) -> None:
    """Also where every client needs a key: the note's token opens `/stack` for the user it runs as."""
    key = shell.on_data("key", "add", "anna").out.strip()
    proxy = serving("--set", "tenancy=key")
    tools = {"model": "scripted-model", "messages": [{"role": "user", "content": "hi"}], "tools": TOOLS}
    asked, _ = proxy.ask("POST", "/v1/chat/completions", tools, **{"x-stack-key": key})
    (row,) = proxy.ask("GET", "/stack/conversations", **{"x-stack-key": key})[1]["conversations"]
    set_off = shell.on_data("mode", row["id"], "off")
    told = proxy.ask("GET", f"/stack/conversations/{row['id']}", **{"x-stack-key": key})[1]
    unfolded = shell.on_data("unfold", row["active_frame"], "--now")
    forgotten = shell.on_data("forget", row["id"], "--yes")
    gone, _ = proxy.ask("GET", f"/stack/conversations/{row['id']}", **{"x-stack-key": key})

    assert (asked, set_off.code, forgotten.code, gone) == (200, 0, 0, 404)
    assert forgotten.out.startswith("deleted 1 conversation,")
    assert unfolded.code == 1
    assert "was begun by the model" in unfolded.errors
    assert told["mode"] == "off"


def test_branches_go_through_the_running_proxy(shell: Shell, serving: Callable[..., Proxy]) -> None:
    """It keeps conversations in memory, and answers what the commands tell."""
    proxy = serving()
    proxy.converse()
    told = [
        shell.on_data(*words)
        for words in (
            ("checkpoint", "start"),
            ("branch", "other", "--reason", "to see"),
            ("inject", "main", "1"),
            ("branch", "third", "--from", "nowhere"),
        )
    ]
    at = proxy.ask("GET", "/stack/conversations")[1]["conversations"][0]["id"]
    rows = proxy.ask("GET", f"/stack/conversations/{at}/branches")[1]["branches"]

    assert [each.code for each in told] == [0, 0, 0, 1]
    assert told[2].out == "1 text of main will be copied to other with the next request there\n"
    assert "Checkpoints: start." in told[3].errors
    assert [(row["name"], row["wanted"]) for row in rows] == [("main", False), ("other", True)]


def test_the_note_of_a_proxy_that_was_killed_counts_for_nothing(shell: Shell, serving: Callable[..., Proxy]) -> None:
    proxy = serving()
    proxy.converse()
    proxy.process.kill()
    proxy.process.wait(timeout=10)

    assert (shell.data / "server.json").exists()
    assert "no proxy runs on this data" in shell.on_data("doctor").out
    assert shell.on_data("forget", "--all", "--yes").out.startswith("deleted 1 conversation,")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "upstreams"),
        (["--upstream", "nonsense"], "upstreams.default.url"),
        (["--upstream", "http://127.0.0.1:9/v1", "--set", "wake_at_tokn=3"], "did you mean wake_at_tokens?"),
        (["--upstream", "http://127.0.0.1:9/v1", "--set", "nothing"], "key=value"),
        (
            ["--upstream", "http://127.0.0.1:9/v1", "--mode", "loud"],
            "mode: 'loud': allowed: off, shadow, passive, active (from --mode)",
        ),
        (["--upstream", "http://127.0.0.1:9/v1", "--mode", "activ"], "did you mean active?"),
        (["--upstream", "http://127.0.0.1:9/v1", "--host", "0.0.0.0"], "callstack key add"),
        (["--upstream", "http://127.0.0.1:9/v1", "--config", "none.yaml"], "none.yaml"),
    ],
)
def test_a_wrong_configuration_is_one_message_and_exit_code_2(shell: Shell, words: list[str], says: str) -> None:
    """A13 among them: no bind beyond loopback without client keys."""
    ended = shell.on_data("serve", *words)

    assert (ended.code, ended.out) == (2, "")
    assert says in ended.errors
    assert ended.errors.startswith("error: ")
    assert "Traceback" not in ended.errors
    assert not shell.data.exists()


def test_a_port_in_use_is_one_message(shell: Shell, serving: Callable[..., Proxy], tmp_path: Path) -> None:
    port = urlsplit(serving().url).port
    ended = shell.run(
        "serve", "--upstream", "http://127.0.0.1:9/v1", "--port", str(port), "--data", str(tmp_path / "b")
    )

    (tmp_path / "scenario.yaml").write_text(SCENARIO)
    provider = shell.run("provider", "scenario.yaml", "--port", str(port))

    assert (ended.code, ended.out) == (2, "")
    assert "is in use" in ended.errors
    assert (provider.code, provider.out, provider.errors) == (2, "", ended.errors)


def test_of_two_started_in_one_moment_one_runs(shell: Shell, provider: str, started: Starting) -> None:
    """The lock of the directory decides; it goes with the process, so a killed one keeps nobody out."""
    words = ("serve", "--upstream", provider, "--port", "0", "--data", str(shell.data))
    both = [started(*words) for _ in range(2)]
    first_lines = [line_of(process.stdout) for process in both]

    assert sorted(map(bool, first_lines)) == [False, True]
    refused, running = sorted(both, key=lambda process: bool(first_lines[both.index(process)]))
    assert refused.wait(timeout=30) == 2
    assert refused.stderr is not None
    assert f"a proxy runs on {shell.data} already" in refused.stderr.read()
    running.kill()
    running.wait(timeout=30)
    assert line_of(started(*words).stdout).startswith("clients")


def test_a_second_proxy_on_the_same_data_is_refused_and_the_first_keeps_its_note(
    shell: Shell, serving: Callable[..., Proxy]
) -> None:
    """Otherwise `mode` and `forget` would reach the wrong one, or none after it has gone."""
    first = serving()
    note = (shell.data / "server.json").read_bytes()
    ended = shell.on_data("serve", "--upstream", "http://127.0.0.1:9/v1", "--port", "0")

    assert (ended.code, ended.out) == (2, "")
    assert f"a proxy runs on {shell.data} already, at {first.url}" in ended.errors
    assert (shell.data / "server.json").read_bytes() == note


@pytest.mark.parametrize("below", ["", "deeper"])
def test_a_data_directory_that_cannot_be_is_one_message(shell: Shell, below: str) -> None:
    shell.data.touch()
    ended = shell.run("serve", "--upstream", "http://127.0.0.1:9/v1", "--port", "0", "--data", str(shell.data / below))

    assert (ended.code, ended.out) == (2, "")
    assert ended.errors.startswith(f"error: data: {shell.data / below} cannot be made: ")
    assert "Traceback" not in ended.errors


def test_a_damaged_store_is_told_when_it_is_set_aside(shell: Shell, serving: Callable[..., Proxy]) -> None:
    shell.data.mkdir()
    (shell.data / "callstack.db").write_bytes(b"no database, only words " * 400)
    proxy = serving()
    proxy.process.terminate()
    _, errors = proxy.process.communicate(timeout=30)

    assert "the store's file was damaged; it was kept as callstack.db.corrupt-" in errors


@pytest.mark.parametrize(
    ("url", "opened"),
    [
        ("http://0.0.0.0:8787", "http://127.0.0.1:8787"),
        ("http://[::]:1", "http://[::1]:1"),
        ("http://127.0.0.1:8787", "http://127.0.0.1:8787"),
    ],
)
def test_an_address_that_cannot_be_opened_is_not_told_to_clients(url: str, opened: str) -> None:
    assert reachable_url(url) == opened


def test_beyond_loopback_it_says_by_which_names_it_is_reached(tmp_path: Path) -> None:
    settings = Config(host="0.0.0.0", tenancy="key", data=tmp_path, mode="shadow")

    assert [line.split()[0] for line in welcome_lines("http://127.0.0.1:8787", settings)] == [
        "clients",
        "data",
        "console",
        "mode",
        "hosts",
    ]
    assert welcome_lines("http://127.0.0.1:8787", settings)[-1].endswith("none yet")


@pytest.mark.parametrize(
    ("mode", "told"),
    [
        ("off", ["off: requests are sent as they came"]),
        ("shadow", ["shadow: requests are sent as they came"]),
        ("passive", ["passive: the model is offered stack_recall alone"]),
        ("active", []),
    ],
)
def test_a_mode_that_is_not_the_usual_one_is_told_with_what_it_means(
    mode: Mode, told: list[str], tmp_path: Path
) -> None:
    lines = welcome_lines("http://127.0.0.1:8787", Config(data=tmp_path, mode=mode))

    assert [line.partition(" ")[2].strip() for line in lines if line.startswith("mode")] == told
