"""`callstack savings` as a newcomer runs it: on a home with sessions, with damaged ones, and with none."""

import json
import re
import sys
from pathlib import Path

import pytest

from callstack_proxy.cli.savings.running_sum import ERASE, RunningSum
from callstack_proxy.management.reports import ReceiptTotals
from callstack_proxy.replay import ReplayResult
from tests.cli.conftest import Shell
from tests.replay.sessions.logs import claude_lines, claude_log, codex_log, lines

PROJECT = Path(".claude/projects/p")


@pytest.fixture
def home(shell: Shell) -> Shell:
    claude_log(shell.home / PROJECT / "one.jsonl", steps=60)
    codex_log(shell.home / ".codex/sessions/2026/11/20/rollout-1.jsonl")
    return shell


def test_a_home_with_sessions_is_told_in_five_sentences(home: Shell) -> None:
    done = home.run("savings", env={"COLUMNS": "80"})

    assert done.code == 0
    told = " ".join(done.out.split())
    assert re.search(r"2 sessions in \d+ days? \(1 of Claude Code, 1 of Codex\) with 63 requests\.", told)
    assert re.search(
        r"They cost \$[\d.]+ without us, and would have cost \$[\d.]+ with us: \$[\d.]+ \(\d+ %\) saved\.", told
    )
    assert "Dearer with us: " in told
    assert "input tokens would have been sent" in told
    assert all(len(line) <= 80 for line in done.out.splitlines())


@pytest.mark.rows("X-77")
def test_the_gain_of_brief_tools_is_told_where_it_is_worth_a_line(shell: Shell) -> None:
    """As a part of what the head costs; not where the setting is on."""
    log = shell.home / PROJECT / "one.jsonl"
    claude_log(log, steps=30)
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    for entry in entries:
        if usage := entry.get("message", {}).get("usage"):
            usage["cache_creation_input_tokens"] = 25_000
    lines(log, entries)

    told = " ".join(shell.run("savings").out.split())
    (without,) = json.loads(shell.run("savings", "--json").out)["sessions"]
    on = shell.run("savings", env={"STACK_CLIENT_TOOLS": "brief"})

    said = re.search(r"`client_tools: brief` would save up to \$([\d.]+) more \((\d+) %\)", told)
    assert said
    assert 0 < float(said[1]) < without["row"]["cost_fixed"]
    assert "client_tools" not in on.out


@pytest.mark.rows("X-63")
def test_who_pays_by_window_is_told_no_dollars(home: Shell) -> None:
    """A range, because nobody knows what a cached token weighs; and that no log tells how large a window is."""
    done, page = home.run("savings", "--plan", "--details"), home.run("savings", "--plan", "--html", "page.html")

    told = " ".join(done.out.split())
    assert done.code == 0
    assert "$" not in done.out
    part = r"(?:as much|\d+\.\d % (?:less|more))"
    assert re.search(rf"{part} where it weighs 0, {part} where it weighs 1/70, {part} where it weighs 1/10\.", told)
    assert "Over 1 % more than without us, at 1/70: none of 2 sessions." in told
    assert page.code == 2


@pytest.mark.rows("X-65")
def test_of_very_many_logs_a_sample_can_be_taken_and_is_told(home: Shell) -> None:
    done = home.run("savings", "--sample", "2", "--json")

    told = json.loads(done.out)
    assert told["total"]["sessions"] == 1
    assert told["sample"].startswith("A sample: every 2. file by age, 1 of 2 (")


def test_the_home_is_only_read(home: Shell) -> None:
    before = {path: path.read_bytes() for path in home.home.rglob("*") if path.is_file()}

    home.run("savings")

    assert {path: path.read_bytes() for path in home.home.rglob("*") if path.is_file()} == before


def test_json_has_the_sessions_and_the_sum(home: Shell) -> None:
    done = home.run("savings", "--json")

    told = json.loads(done.out)
    assert told["total"]["clients"] == {"Claude Code": 1, "Codex": 1}
    sums = [one["row"]["cost_untouched"] for one in told["sessions"]]
    assert told["total"]["row"]["cost_untouched"] == pytest.approx(sum(sums))
    assert {one["client"] for one in told["sessions"]} == {"Claude Code", "Codex"}


def test_one_agent_can_be_asked_for(home: Shell) -> None:
    done = home.run("savings", "--client", "codex", "--details")

    assert "1 session " in done.out
    assert "codex c-1" in done.out
    assert "claude" not in done.out


def test_only_newer_sessions_can_be_asked_for(home: Shell) -> None:
    done = home.run("savings", "--since", "2026-11-21")

    assert done.code == 1 or "1 of Claude Code" not in done.out


def test_an_unknown_agent_and_an_unknown_span_are_explained(home: Shell) -> None:
    agent, span = home.run("savings", "--client", "emacs"), home.run("savings", "--since", "yesterday")

    assert (agent.code, span.code) == (2, 2)
    assert "claude" in agent.errors
    assert "30d" in span.errors


def test_the_page_is_one_file_and_asks_for_nothing(home: Shell) -> None:
    hostile = claude_lines(3)
    hostile[0]["sessionId"] = "<script>alert(1)</script>"
    lines(home.home / PROJECT / "<script>alert(1).jsonl", hostile)

    done = home.run("savings", "--html", "page.html")

    page = (home.home / "page.html").read_text()
    assert done.code == 0
    assert "saved" in page
    assert "<script" not in page
    assert not re.search(r"(src|href)=|url\(|@import", page)


def test_a_home_without_sessions_says_where_it_looked(shell: Shell) -> None:
    done = shell.run("savings")

    assert done.code == 1
    assert "~/.claude/projects" in done.errors
    assert "callstack demo" in done.errors


def test_bad_files_are_a_line_each_and_stop_nothing(home: Shell) -> None:
    folder = home.home / PROJECT
    (folder / "empty.jsonl").write_text("")
    (folder / "binary.jsonl").write_bytes(bytes(range(256)) * 40)
    (home.home / ".local/share/opencode").mkdir(parents=True)
    (home.home / ".local/share/opencode/opencode.db").write_bytes(b"SQLite format 3\x00" + bytes(999))
    (home.home / ".continue/sessions").mkdir(parents=True)
    (home.home / ".continue/sessions/a.json").write_text('{"sessionId": "a", "history": [{"message": {"role": "assist')

    done = home.run("savings", "--details")

    assert done.code == 0
    assert "2 sessions" in done.out
    assert len([line for line in done.errors.splitlines() if line.startswith("left out: ")]) == 4
    assert "empty.jsonl: it is empty" in done.errors
    assert "Traceback" not in done.errors


def test_a_session_whose_head_is_unknown_says_what_was_assumed(shell: Shell) -> None:
    untold = claude_lines(3)
    for line in untold:
        line["message"].pop("usage", None)
    lines(shell.home / PROJECT / "one.jsonl", untold)

    done = shell.run("savings")

    assert "lack the system text and tools" in " ".join(done.out.split())


def test_files_and_folders_can_be_named(shell: Shell, tmp_path: Path) -> None:
    log = claude_log(tmp_path / "elsewhere" / "one.jsonl")

    by_file, by_folder = shell.run("savings", str(log)), shell.run("savings", str(log.parent))

    assert by_file.out == by_folder.out
    assert "1 session" in by_file.out


@pytest.mark.rows("X-65")
def test_projects_are_told_apart_and_copies_once(shell: Shell) -> None:
    for name, folder in (("one", "/repos/shop"), ("two", "/repos/bank/api")):
        told = [line | {"cwd": folder, "uuid": f"{name}{line['uuid']}"} for line in claude_lines(4)]
        for line in told:
            line["message"] = line["message"] | {"id": f"{name} {line['message'].get('id')}", "model": "house-model"}
        lines(shell.home / PROJECT / f"{name}.jsonl", told)
    lines(shell.home / PROJECT / "copy.jsonl", told)

    whole, bank = shell.run("savings"), shell.run("savings", "--project", "/repos/bank", "--json")

    said = " ".join(whole.out.split())
    assert "2 sessions" in said
    assert "4 requests more stand in logs that were copied or forked, and counted once." in said
    assert "no list price (100 % of the tokens), so $1 a million tokens stands in" in said
    assert [line.split()[:2] for line in whole.out.splitlines() if line.startswith("/repos/")] == [
        ["/repos/bank/api", "1"],
        ["/repos/shop", "1"],
    ]
    assert [one["folder"] for one in json.loads(bank.out)["projects"]] == ["/repos/bank/api"]
    assert "no list price" in json.loads(bank.out)["assumed"][0]


@pytest.mark.rows("X-65")
def test_figures_are_told_by_client_by_model_and_by_week(home: Shell) -> None:
    for day, name in (("02", "old"), ("08", "older")):
        told = json.dumps(claude_lines(3, first=int(day) * 100)).replace("2026-11-20", f"2026-11-{day}")
        lines(home.home / PROJECT / f"{name}.jsonl", json.loads(told.replace("claude-opus-4-8", "house-model")))

    by = {what: home.run("savings", "--by", what).out for what in ("client", "model", "week")}

    named = {what: re.findall(r"^(\S+(?: \S+)?) +(\d) +\$\S+ +\$\S+ +-?\d+ %$", out, re.M) for what, out in by.items()}
    assert named["client"] == [("Claude Code", "3"), ("Codex", "1")]
    assert sorted(named["model"])[0] == ("claude-opus-4-8", "1")
    assert ("house-model", "2") in named["model"]
    assert named["week"] == [("2026-11-16", "2"), ("2026-11-02", "2")]
    assert home.run("savings", "--by", "moon").code == 2
    weeks = json.loads(home.run("savings", "--by", "week", "--json").out)["weeks"]
    assert [(one["week"], one["sessions"]) for one in weeks] == [("2026-11-16", 2), ("2026-11-02", 2)]


@pytest.mark.rows("X-65")
def test_the_figures_do_not_depend_on_how_many_processes_replay(home: Shell) -> None:
    """Nor on which of two files with the same requests is done first."""
    claude_log(home.home / PROJECT / "longer.jsonl", steps=64)
    lines(home.home / PROJECT / "two.jsonl", claude_lines(5, first=900))
    (home.home / PROJECT / "bad.jsonl").write_text("{")

    alone, together = (home.run("savings", "--json", "--jobs", jobs) for jobs in ("1", "2"))

    assert alone.out == together.out
    told = json.loads(alone.out)
    assert (told["total"]["sessions"], told["total"]["copied"]) == (4, 59)


@pytest.mark.rows("X-65")
def test_a_terminal_shows_the_sum_so_far(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What is piped has the last sum alone: the line is written for terminals."""
    row = ReceiptTotals(key="", requests=3, cost=1.0, cost_untouched=2.0, saved_after=1.0)
    session = ReplayResult(name="", file="", model="", dialect="chat", row=row)
    told = "1 of 4 files, 2 sessions so far: $4.00, $2.00 with us, 50 % saved"
    for is_terminal, shown in ((True, told), (False, "")):
        monkeypatch.setattr(sys.stdout, "isatty", lambda answer=is_terminal: answer)
        with RunningSum(4, 0.0) as running:
            running.add([session, session])
        printed = capsys.readouterr().out
        assert shown in printed
        assert printed.endswith(ERASE) is is_terminal
