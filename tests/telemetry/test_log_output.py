"""The log of a real `serve`: JSON where no terminal reads it, one line a request, and neither a key nor a word of what
was said in any of them."""

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llm_test_provider import ScriptedProvider, answers, call, cut, says, status
from tests.cli.conftest import Shell
from tests.harness import does, pop, push, recall
from tests.wire.talking import TOOLS, ask, exchange

KEY = "sk-canary-key-0001"
WORDS = ("wolfram", "zephyr", "quagmire", "obelisk", "marzipan")
"""What the user, the model, its calls, its frames and the tools say: words that nothing of ours says."""


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider() as running:
        yield running


class Serving:
    """`callstack serve` as a process; its log once it has ended."""

    def __init__(self, folder: Path, upstream: str, *words: str) -> None:
        self.shell = Shell(folder, folder / "data")
        usual = ("--port", "0", "--data", str(self.shell.data), "--set", "wake_at_tokens=0")
        self.process = self.shell.start("serve", "--upstream", upstream, *usual, *words)
        assert self.process.stdout is not None
        self.origin = self.process.stdout.readline().split()[1].removesuffix("/v1")

    def __enter__(self) -> "Serving":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.log()

    def log(self) -> str:
        self.process.send_signal(signal.SIGTERM)
        return self.process.communicate(timeout=30)[1]


def a_bad_day(proxy: Serving, provider: ScriptedProvider) -> None:
    """Frames, hidden calls, a refusal by everybody who can refuse, and an answer that breaks off."""
    user, model, arguments, frame, tool = WORDS
    headers = {"authorization": f"Bearer {KEY}"}
    asked = [{"role": "user", "content": user}]
    provider.will(
        does(push(frame, frame), text=model),
        does(recall(frame), call(f"stack_{frame}", x=arguments)),
        answers(model, [call("read_file", path=arguments)]),
        does(pop(frame)),
        says(model),
        status(503, body={"error": {"message": f"{user} {KEY}"}}),
        cut(says(model * 50), after_bytes=200),
    )
    body: dict[str, Any] = {"model": "m", "messages": asked, "tools": TOOLS}
    said = ask(proxy.origin, body, headers=headers).json["choices"][0]["message"]
    told = [*asked, said, {"role": "tool", "tool_call_id": said["tool_calls"][0]["id"], "content": tool}]
    ask(proxy.origin, body | {"messages": told}, headers=headers)
    ask(proxy.origin, body | {"messages": [{"role": "user", "content": f"{user} 2"}]}, headers=headers)
    ask(proxy.origin, body | {"messages": [{"role": "user", "content": f"{user} 3"}], "stream": True}, headers=headers)
    ask(proxy.origin, b'{"broken": ' + user.encode(), headers=headers)
    ask(proxy.origin, body, headers={**headers, "host": f"{user}.example"})
    exchange(int(proxy.origin.rpartition(":")[2]), f"{user} {KEY}\r\n\r\n".encode())


def requests_of(log: str) -> list[dict[str, Any]]:
    """The line of each request, in order."""
    lines = map(json.loads, log.splitlines())
    return [line for line in lines if line["event"] == "request"]


@pytest.mark.rows("S1-161")
def test_a_run_is_told_in_json_one_line_a_request_without_keys_or_content(
    tmp_path: Path, provider: ScriptedProvider
) -> None:
    """A8, O3."""
    with Serving(tmp_path, provider.url, "--set", "log_level=debug") as proxy:
        a_bad_day(proxy, provider)
        log = proxy.log()
    lines = [json.loads(line) for line in log.splitlines()]
    requests = requests_of(log)

    assert [word for word in (KEY, *WORDS) if word in log] == []
    assert [(line["status"], line["reason"]) for line in requests] == [
        ("full", ""), ("full", ""), ("error", "upstream_error"), ("error", "upstream_closed"),
        ("bypass", "unreadable"), ("error", "forbidden"), ("error", "bad_request"),
    ]  # fmt: skip
    assert len({line["id"] for line in requests}) == 7
    assert [line for line in lines if not line["logger"].startswith(("proxy.", "callstack_proxy."))] == []
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"]) for line in lines)


@pytest.mark.rows("S1-161")
def test_the_line_of_a_request_tells_its_story(tmp_path: Path, provider: ScriptedProvider) -> None:
    with Serving(tmp_path, provider.url) as proxy:
        a_bad_day(proxy, provider)
        first, second, refused, *_ = requests_of(proxy.log())

    assert first["calls"] == {"stack_frame_push": 1, "stack_recall": 1, "unknown": 1}
    assert [event.split()[0] for event in first["events"]] == ["rooted", "woken", "pushed"]
    assert (first["rounds"], first["finish_reason"], first["upstream_status"]) == (3, "tool_calls", 200)
    assert (first["level"], refused["level"], refused["upstream_status"]) == ("info", "warning", 503)
    assert second["calls"] == {"stack_frame_pop": 1}
    assert first["tokens_sent"] - first["tokens_in"] == -first["tokens_saved"] > 0
    assert first["cost"] > first["cost_untouched"] > 0
    assert first["reported_input"] > 0
    assert first["overhead_ms"] > 0


def test_a_hidden_round_that_was_asked_again_is_told(tmp_path: Path, provider: ScriptedProvider) -> None:
    provider.will(does(push("x")), status(503, headers={"retry-after": "0"}), says("hi"))
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}], "tools": TOOLS}
    with Serving(tmp_path, provider.url) as proxy:
        assert ask(proxy.origin, body).status == 200
        [line] = requests_of(proxy.log())

    assert (line["tries"], line["rounds"], line["status"]) == (1, 3, "full")


@pytest.mark.rows("S1-161")
@pytest.mark.parametrize("words", [("--log-format", "text"), ("--set", "log_format=text")])
def test_text_is_had_by_asking_for_it(tmp_path: Path, provider: ScriptedProvider, words: tuple[str, str]) -> None:
    provider.will(says("hi"))
    with Serving(tmp_path, provider.url, *words) as proxy:
        ask(proxy.origin, {"model": "m", "messages": [{"role": "user", "content": "x"}]})
        *_, line, stopping = proxy.log().splitlines()

    compaction_input = r"\[\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z\]"
    assert re.match(
        rf"{compaction_input} \[stack\] info proxy\.exchange\.background\.recorder request id=r\w+ conversation=\w+ ",
        line,
    )
    assert stopping.endswith("warning callstack_proxy.cli.serve stopping drain_s=30")


def test_a_format_there_is_not_is_refused_by_name(tmp_path: Path) -> None:
    ended = Shell(tmp_path, tmp_path / "data").on_data("serve", "--upstream", "http://127.0.0.1:9", "--log-format", "x")

    assert ended.code == 2
    assert "--log-format" in ended.errors
    assert "allowed: auto, text, json" in ended.errors


def test_o1_the_doctor_finds_what_went_around_a_running_proxy(tmp_path: Path, provider: ScriptedProvider) -> None:
    provider.will(says("hi"))
    with Serving(tmp_path, provider.url) as proxy:
        well = found_recently(proxy.shell)
        ask(proxy.origin, b"no json")  # the provider refuses it too
        still = found_recently(proxy.shell)
        ask(proxy.origin, b'{"messages": [{"role": "user", "content": "x"}]}')  # and answers this, with its own model
        ill = found_recently(proxy.shell)

    assert (
        well
        == still
        == {
            "state": "ok",
            "about": "last 5 minutes",
            "text": "0 of 0 requests were passed on because our own work failed",
        }
    )
    why = "unreadable 1: the body is no request that the proxy can read"
    told = f"1 of 1 requests were passed on because our own work failed ({why})"
    assert (ill["state"], ill["text"]) == ("finding", told)


def found_recently(shell: Shell) -> dict[str, str]:
    checks = json.loads(shell.on_data("doctor", "--json").out)
    return next(check for check in checks if check["about"] == "last 5 minutes")


def test_a_scrape_is_what_the_library_is_imported_for(tmp_path: Path) -> None:
    """25 ms and 3 MB that a proxy nobody scrapes never spends."""
    program = "import sys, proxy.server.app, proxy.server.runner; print('prometheus_client' in sys.modules)"
    assert Shell(tmp_path, tmp_path).python(program) == "False"
