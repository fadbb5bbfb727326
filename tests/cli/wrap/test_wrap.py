"""`callstack wrap` around an agent: what the agent sees, what the shell sees, and what stays behind."""

import json
import os
import signal
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from llm_test_provider import ScriptedProvider
from tests.cli.wrap.conftest import PATIENCE_S, Wrapping, is_running, line_of, until, until_ended
from tests.ports import held_port, port_of


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else b"" for p in sorted(folder.rglob("*"))}


def test_the_agent_asks_through_the_proxy_and_all_else_is_as_without_it(
    wrapping: Wrapping, provider: ScriptedProvider
) -> None:
    (wrapping.home / ".agentrc").write_text("model = gpt-x\n")
    before = files_of(wrapping.home), files_of(wrapping.project)

    words = ("ask", "arguments", "exit=7", "a b", "--mode", "--")

    done = wrapping.run(*words)

    arguments = json.dumps(words)
    assert (done.code, done.out) == (7, f"200 All done.\n{arguments}\n")
    assert done.errors.startswith("1 request, ")
    assert done.errors.endswith(f"; look: callstack console --data {wrapping.data}\n"), "it offers no tools"
    assert [each.header("authorization") for each in provider.asked] == ["Bearer sk-login"]
    assert (files_of(wrapping.home), files_of(wrapping.project)) == before


@pytest.mark.long
def test_shadow_measures_and_sends_what_came(wrapping: Wrapping) -> None:
    done = wrapping.run_wrap(*wrapping.options(), "agent", "--mode", "shadow", "--", "ask")

    assert done.out == "200 All done.\n"
    assert done.errors.startswith("1 request, mode active would save nothing; look: callstack console --data ")


def test_an_agent_that_asks_nothing_is_told_apart(wrapping: Wrapping) -> None:
    done = wrapping.run("show=OPENAI_API_KEY", "show=CALLSTACK_WRAPPED", OPENAI_BASE_URL="http://127.0.0.1:9/v1")

    key, before = done.out.splitlines()
    assert (done.code, key) == (0, "sk-login")
    assert {name: url for name, url in json.loads(before).items() if url} == {
        "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"
    }
    assert done.errors == "callstack: no request of the agent came through the proxy\n"


def test_where_no_provider_answers_the_address_is_told(wrapping: Wrapping) -> None:
    nobody = "http://127.0.0.1:9/v1"
    done = wrapping.run_wrap("--data", str(wrapping.data), "--upstream", nobody, "agent", "--", "ask", "ask")

    failed, address = done.errors.splitlines()[-2:]
    assert failed == "2 requests, all failed: no connection to the provider was made"
    assert address == f"note: the provider was asked at {nobody}"


@pytest.mark.long
def test_two_agents_share_a_proxy_and_the_last_one_ends_it(wrapping: Wrapping) -> None:
    first, second = (wrapping.start(f"wait={wrapping.folder / name}", "ask") for name in "ab")
    assert [line_of(first), line_of(second)] == ["waiting", "waiting"]
    pid = wrapping.server()["pid"]

    (wrapping.folder / "a").touch()
    assert first.communicate(timeout=PATIENCE_S)[0].endswith("200 All done.\n")
    assert is_running(pid)
    (wrapping.folder / "b").touch()
    assert second.communicate(timeout=PATIENCE_S)[0].endswith("200 All done.\n")
    until_ended(pid)


@pytest.mark.long
def test_a_killed_wrap_does_not_count(wrapping: Wrapping) -> None:
    process = wrapping.start(f"wait={wrapping.folder / 'a'}")
    assert line_of(process) == "waiting"
    pid = wrapping.server()["pid"]

    process.kill()

    until_ended(pid)
    (wrapping.folder / "a").touch()


@pytest.mark.long
def test_another_configuration_gets_a_proxy_and_a_folder_of_its_own(wrapping: Wrapping) -> None:
    first = wrapping.start(f"wait={wrapping.folder / 'a'}")
    assert line_of(first) == "waiting"

    done = wrapping.run_wrap(*wrapping.options(), "--mode", "off", "agent", "ask")

    assert done.out == "200 All done.\n"
    [folder] = (wrapping.data / "wrap").iterdir()
    assert f"callstack console --data {folder}" in done.errors
    assert f"note: A proxy with another configuration runs on {wrapping.data}" in done.errors
    assert f"callstack report --data {folder}" in done.errors
    assert "requests" in wrapping.run_command("report", "--data", str(folder)).out


@pytest.mark.long
def test_a_dry_run_says_where_another_configuration_would_keep_its_sessions(wrapping: Wrapping) -> None:
    first = wrapping.start(f"wait={wrapping.folder / 'a'}")
    assert line_of(first) == "waiting"

    same = wrapping.run_wrap("--dry-run", *wrapping.options(), "agent")
    other = wrapping.run_wrap("--dry-run", *wrapping.options(), "--mode", "off", "agent")

    assert f"data      {wrapping.data}\n" in same.out
    assert "another configuration" not in same.out
    [folder] = [line.split()[1] for line in other.out.splitlines() if line.startswith("data ")]
    assert Path(folder).parent == wrapping.data / "wrap"
    assert f"callstack report --data {folder}" in other.out
    assert not Path(folder).exists()


@pytest.mark.long
def test_a_proxy_that_serves_the_same_is_used_and_left_running(wrapping: Wrapping) -> None:
    serving = wrapping.start_command("serve", *wrapping.options(), "--port", "0")
    assert line_of(serving).startswith("clients")

    done = wrapping.run("ask", "show=OPENAI_BASE_URL")

    assert done.out.splitlines() == ["200 All done.", f"{wrapping.server()['url']}/v1"]
    assert serving.poll() is None


def test_a_taken_port_is_in_nobodys_way(wrapping: Wrapping) -> None:
    with held_port() as taken:
        taken.listen()
        done = wrapping.run_wrap(*wrapping.options(), "--set", f"port={port_of(taken)}", "agent", "ask")

    assert (done.code, done.out) == (0, "200 All done.\n")


def test_a_proxy_that_dies_is_explained_to_the_agent_and_to_the_user(wrapping: Wrapping) -> None:
    process = wrapping.start(f"wait={wrapping.folder / 'a'}", "ask", "exit=3")
    assert line_of(process) == "waiting"
    pid = wrapping.server()["pid"]
    os.kill(pid, signal.SIGKILL)
    until_ended(pid)
    until(lambda: status_at(wrapping.server()["url"]) == 410)

    (wrapping.folder / "a").touch()
    out, errors = process.communicate(timeout=PATIENCE_S)

    assert process.returncode == 3
    explained = out.splitlines()[-1]
    assert explained.startswith(
        "410 callstack: the proxy between this agent and its provider has ended (signal 9), so "
    )
    assert explained.endswith(f"`callstack wrap agent`; the proxy's log is {wrapping.data / 'wrap.log'}")
    assert errors.startswith("error: the proxy has ended (signal 9) while the agent ran, ")
    assert errors.count("\n") == 1


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, *(pytest.param(each, marks=pytest.mark.long) for each in (signal.SIGHUP, signal.SIGINT))]
)
def test_a_signal_goes_on_to_the_agent(wrapping: Wrapping, number: int) -> None:
    """SIGINT too, where no terminal has sent it to the agent already."""
    process = wrapping.start(f"wait={wrapping.folder / 'a'}")
    assert line_of(process) == "waiting"

    process.send_signal(number)

    assert process.communicate(timeout=PATIENCE_S)[0] == f"signal {number}\n"
    assert process.returncode == 5


def test_an_agent_that_is_killed_gives_the_exit_code_of_a_shell(wrapping: Wrapping) -> None:
    assert wrapping.run(f"kill={signal.SIGKILL}").code == 128 + signal.SIGKILL


@pytest.mark.long
def test_a_program_that_cannot_run_is_one_message_and_the_next_wrap_starts_at_once(wrapping: Wrapping) -> None:
    """The proxy of the first one is still ending when the second one begins."""
    broken = wrapping.folder / "bin" / "broken"
    broken.write_text("no program")
    broken.chmod(0o755)

    done = wrapping.run_wrap(*wrapping.options(), "broken")
    again = wrapping.run("ask")

    assert (done.code, done.out) == (126, "")
    assert done.errors.startswith(f"error: {broken} cannot be started: Exec format error\n")
    assert (again.code, again.out) == (0, "200 All done.\n")


@pytest.mark.long
def test_an_agent_that_stops_itself_stops_the_wrap_and_both_go_on(wrapping: Wrapping) -> None:
    process = wrapping.start("stop", "exit=4")
    until(lambda: state_of(process.pid) == "T")

    os.killpg(process.pid, signal.SIGCONT)

    assert process.communicate(timeout=PATIENCE_S)[0] == "going on\n"
    assert process.returncode == 4


def status_at(url: str) -> int:
    """The status of an answer, 0 where nobody listens."""
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE_S):
            return 200
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
