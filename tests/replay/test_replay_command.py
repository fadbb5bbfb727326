"""`callstack replay` as a user runs it: what it prints, how it ends, and how it is interrupted."""

import asyncio
import gzip
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from proxy.store.sql import open_store
from tests.cli.conftest import Shell, stock
from tests.management.api.small_ledger import Written

ROOT = Path(__file__).resolve().parents[2]
TRAJECTORIES = ROOT.parent / "shared" / "trajectories"
Json = dict[str, Any]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path, tmp_path / "data")


def recording(turns: int, words: int = 50) -> list[Json]:
    said = [
        [{"role": "user", "content": f"{at} " * words}, {"role": "assistant", "content": f"a{at}"}]
        for at in range(turns)
    ]
    return [message for pair in said for message in pair]


def write(folder: Path, name: str, value: object) -> Path:
    path = folder / name
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


def test_a_recording_is_told_in_tables_and_sentences(shell: Shell) -> None:
    write(shell.home, "chat.json", {"messages": recording(3), "model": "gpt-5.4"})

    done = shell.run("replay", "chat.json")

    assert done.code == 0
    assert done.errors == ""
    assert "Money: $" in done.out
    assert "with us" in done.out
    assert "Dearer with us: none." in done.out
    assert "The recorded next step is fixed" in done.out


def test_as_json_everything_is_there_and_stdout_holds_nothing_else(shell: Shell) -> None:
    write(shell.home, "chat.json", {"messages": recording(3)})

    told = json.loads(shell.run("replay", "chat.json", "--json", "--model", "gpt-5.4", "--mode", "off").out)

    assert (told["mode"], told["model"]) == ("off", "gpt-5.4")
    assert told["recordings"][0]["row"]["requests"] == told["total"]["row"]["requests"] == 3
    assert told["recordings"][0]["statuses"] == {"off": 3}


@pytest.mark.parametrize("dialect", ["messages", "responses"])
def test_a_recording_is_played_in_the_api_that_is_asked_for(shell: Shell, dialect: str) -> None:
    write(shell.home, "chat.json", {"messages": recording(3), "model": "claude-opus-4-6"})

    done = shell.run("replay", "chat.json", "--dialect", dialect, "--details")
    told = json.loads(shell.run("replay", "chat.json", "--dialect", dialect, "--json").out)

    assert done.code == 0
    assert f"(claude-opus-4-6, {dialect}, 1 conversation)" in done.out
    assert ("Cache markers: where only those in the requests count" in done.out) == (dialect == "messages")
    assert (told["dialect"], told["recordings"][0]["dialect"]) == (dialect, dialect)
    assert (told["total"]["by_markers"] is not None) == (dialect == "messages")


def test_what_was_asked_in_one_api_is_not_played_in_another(shell: Shell) -> None:
    asked = {"path": "/v1/messages", "body": {"model": "m", "messages": [{"role": "user", "content": "a"}]}}
    write(shell.home, "captured.jsonl", asked)
    write(shell.home, "chat.json", recording(2))

    done = shell.run("replay", ".", "--dialect", "responses", "--jobs", "1")

    assert done.code == 1
    assert done.errors.startswith("error: captured.jsonl:1: this was asked in messages, and can be replayed in that")
    assert shell.run("replay", "captured.jsonl").code == 0


def test_several_processes_tell_what_one_tells(shell: Shell) -> None:
    for at in range(2):
        write(shell.home, f"chat{at}.json", {"messages": recording(2 + at)})

    alone, together = (shell.run("replay", ".", "--json", "--jobs", jobs) for jobs in ("1", "2"))

    assert [r["name"] for r in json.loads(alone.out)["recordings"]] == ["chat0", "chat1"]
    assert alone.out == together.out


def test_a_file_that_cannot_be_replayed_does_not_stop_the_others(shell: Shell) -> None:
    write(shell.home, "chat.json", recording(2))
    write(shell.home, "broken.jsonl", '{"messages": []}\n{"messages"\n')

    done = shell.run("replay", ".", "--jobs", "1")

    assert done.code == 1
    assert "chat" in done.out
    assert done.errors.startswith("error: broken.jsonl:2: this is not JSON")


def test_what_lies_beside_recordings_is_left_out_and_said(shell: Shell) -> None:
    write(shell.home, "chat.json", recording(2))
    write(shell.home, "plan.json", {"steps": []})

    done = shell.run("replay", ".", "--jobs", "1")

    assert done.code == 0
    assert "left out: plan.json" in done.errors


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((), "there is nothing to replay"),
        (("none.json",), "there is no such file"),
        (("--data", "x"), "--conversation"),
        (("chat.json", "--mode", "bogus"), "mode: 'bogus'"),
        (("chat.json", "--dialect", "bogus"), "'bogus' is not one of 'chat', 'messages', 'responses'"),
        (("chat.json", "--set", "wake_at_token=1"), "wake_at_tokens"),
        (("--conversation", "abcd"), "there is no store"),
    ],
)
def test_what_cannot_be_meant_ends_with_2_and_says_why(shell: Shell, words: tuple[str, ...], why: str) -> None:
    write(shell.home, "chat.json", recording(2))

    done = shell.run("replay", *words)

    assert done.code == 2
    assert why in " ".join(done.errors.replace("│", " ").split())
    assert "Traceback" not in done.errors


def test_what_a_terminal_obeys_is_not_printed(shell: Shell) -> None:
    write(shell.home, "chat.json", {"id": "a\x1b[31mb", "messages": recording(2)})

    assert "\x1b" not in shell.run("replay", "chat.json", "--details").out


def cpu_seconds(pid: int) -> float:
    """What a process has used so far; a time would tell how busy the machine is."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def has_workers(pid: int) -> bool:
    return bool(Path(f"/proc/{pid}/task/{pid}/children").read_text())


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="what a process does is read from /proc")
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_an_interrupt_ends_it_soon_and_without_a_traceback(shell: Shell, jobs: str) -> None:
    for at in range(2):
        write(shell.home, f"long{at}.json", recording(1500, words=400))
    running = shell.start("replay", ".", "--jobs", jobs)

    while cpu_seconds(running.pid) < 1.5 and not has_workers(running.pid):
        assert running.poll() is None, "it ended before it was in the middle"
    running.send_signal(signal.SIGINT)  # not earlier: Python itself loses one that comes in a callback of an import
    out, errors = running.communicate(timeout=20)

    assert running.returncode not in (0, 1, 2)
    assert "Traceback" not in errors
    assert out == ""


def test_a_stored_conversation_is_replayed_by_the_beginning_of_its_id(tmp_path: Path) -> None:
    stocked = stock(tmp_path)

    done = stocked.shell.on_data("replay", "--conversation", stocked.older.conversation[:8], "--json")

    assert done.code == 0, done.errors
    (told,) = json.loads(done.out)["recordings"]
    assert told["name"] == stocked.older.conversation[:12]
    assert told["row"]["requests"] == 1
    assert told["without_body"] == 0


def test_requests_whose_bodies_an_import_did_not_bring_are_told(tmp_path: Path) -> None:
    """The file of a ledger has the body of the newest request alone."""
    stocked = stock(tmp_path)
    shell, older = stocked.shell, stocked.older.conversation
    place = str(tmp_path / "whole.jsonl")
    asyncio.run(ask_twice_more(shell.data, stocked.older))
    shell.on_data("export", older, "--out", place)
    shell.run("import", place, "--data", "other")

    done = shell.run("replay", "--conversation", older, "--data", "other")

    assert done.code == 0, done.errors
    assert "Left out: 2 requests of the store without a body, as after an import." in done.out


async def ask_twice_more(data: Path, known: Written) -> None:
    """Two earlier requests beside the stored one."""
    store = open_store("sqlite", data)
    await store.start()
    try:
        found = await store.request(known.tenant, known.request)
        assert found is not None
        earlier = [replace(found.record, id=f"r{n}", created=found.record.created - n) for n in (1, 2)]
        await store.wait_until_durable(store.write(known.tenant, earlier))
    finally:
        await store.close()


@pytest.mark.skipif(not TRAJECTORIES.is_dir(), reason="the recordings are not beside this checkout")
def test_a_recorded_session_is_answered_as_recorded_and_placed_every_time(shell: Shell) -> None:
    smallest = sorted(TRAJECTORIES.glob("*.jsonl.gz"), key=lambda path: path.stat().st_size)[:4]

    told = json.loads(shell.run("replay", *map(str, smallest), "--json", "--jobs", "1").out)

    for path, one in zip(smallest, told["recordings"], strict=True):
        asked = sum(m["role"] == "assistant" for m in json.loads(gzip.decompress(path.read_bytes()))["messages"][1:])
        assert one["unequal"] == 0
        assert sum(one["statuses"].values()) == asked
        assert not [status for status in one["statuses"] if status.startswith(("bypass", "error"))]
