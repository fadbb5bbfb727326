"""`callstack on` and `off`: agents that always ask the proxy, and a home that is as before when they no longer do."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import tomllib
from pathlib import Path

import pytest

from callstack_proxy.cli.wrap.lasting_settings import Change, LastingSettings, Note, plan_on, shown, switch_on
from callstack_proxy.cli.wrap.on_off import _origin, _serve_command
from callstack_proxy.cli.wrap.own_settings import OwnProvider
from callstack_proxy.cli.wrap.settings_text import JSON
from proxy.config import Config
from proxy.errors import InvalidConfiguration
from tests.cli.conftest import Shell, command
from tests.forked_commands import FinishedCommand, environment

CLAUDE, CODEX, OPENCODE = ".claude/settings.json", ".codex/config.toml", ".config/opencode/opencode.json"
FILES = {
    CLAUDE: '{\n  // mine\n  "model": "opus",\n  "env": { "A": "b" },\n}\n',
    CODEX: 'model = "gpt-x"\r\n\r\n[tools]\r\nweb_search = true\r\n',
    OPENCODE: '{"$schema": "https://opencode.ai/config.json"}',
}
URL = "http://127.0.0.1:8787"


def settle(shell: Shell, **more: str) -> None:
    for path, text in (FILES | more).items():
        file = shell.home / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode())
        file.chmod(0o640)


def home_of(shell: Shell) -> dict[str, tuple[bytes, int]]:
    """Every file and folder of the home but for our own data, with its content and mode."""
    found = (path for path in shell.home.rglob("*") if not path.is_relative_to(shell.data))
    return {
        str(path.relative_to(shell.home)): (
            str(path.readlink()).encode() if path.is_symlink() else path.read_bytes() if path.is_file() else b"",
            path.lstat().st_mode,
        )
        for path in found
    }


def turn_on(shell: Shell, *words: str) -> FinishedCommand:
    done = shell.on_data("on", *words, "--yes")
    assert done.code == 0, done.errors
    return done


@pytest.mark.rows("X-71")
def test_the_home_is_as_before_to_the_byte(shell: Shell) -> None:
    settle(shell)
    (shell.home / ".grok").mkdir()
    before = home_of(shell)

    done = turn_on(shell)
    between = home_of(shell)
    again = turn_on(shell)
    off = shell.on_data("off")

    assert f'  env.ANTHROPIC_BASE_URL = "{URL}"\n' in done.out
    assert "callstack serve --set upstreams.default.url=https://api.openai.com/v1" in done.out
    env = json.loads((between[CLAUDE][0]).decode().replace("// mine", "").replace("},\n}", "}}"))["env"]
    assert env == {
        "ANTHROPIC_BASE_URL": URL, "ENABLE_TOOL_SEARCH": "true", "_CLAUDE_CODE_ASSUME_FIRST_PARTY_BASE_URL": "1",
        "A": "b",
    }  # fmt: skip
    assert tomllib.loads(between[CODEX][0].decode())["openai_base_url"] == f"{URL}/v1"
    assert json.loads(between[OPENCODE][0])["provider"]["anthropic"] == {"options": {"baseURL": f"{URL}/v1"}}
    assert json.loads(between[".grok/user-settings.json"][0]) == {"baseURL": f"{URL}/v1"}
    assert between[CLAUDE][1] == before[CLAUDE][1]
    said = [f"{name}: on already" for name in ("claude", "codex", "opencode", "grok")]
    assert again.out == "\n".join([*said, "", done.out.rpartition("\n\n")[2]])
    assert off.out.count("off; as before, byte for byte") == 4
    assert home_of(shell) == before
    assert shell.on_data("off").out == "No agent is on.\n"


@pytest.mark.rows("X-71")
def test_what_the_user_changed_since_stays_and_ours_leaves(shell: Shell) -> None:
    settle(shell, **{CODEX: '[model_providers.mine]\nbase_url = "https://x.example/v1"\nwire_api = "responses"\n'})
    (shell.home / CODEX).write_text(f'model_provider = "mine"\n{(shell.home / CODEX).read_text()}')
    done = turn_on(shell, "claude", "codex")
    for path, old, new in ((CLAUDE, '"opus"', '"sonnet"'), (CODEX, "wire_api", "x = 1\nwire_api")):
        file = shell.home / path
        file.write_bytes(file.read_bytes().replace(old.encode(), new.encode(), 1))

    off = shell.on_data("off")

    assert "(was https://x.example/v1)" in done.out
    assert off.out.count("our values left, what you changed since stayed") == 2
    assert (shell.home / CLAUDE).read_text() == FILES[CLAUDE].replace("opus", "sonnet")
    mine = tomllib.loads((shell.home / CODEX).read_text())["model_providers"]["mine"]
    assert mine == {"base_url": "https://x.example/v1", "wire_api": "responses", "x": 1}


@pytest.mark.rows("X-71")
def test_links_stay_and_new_folders_go(shell: Shell) -> None:
    real = shell.home / "dotfiles" / "claude.json"
    real.parent.mkdir()
    real.write_text("{}\n")
    (shell.home / ".claude").mkdir()
    (shell.home / CLAUDE).symlink_to(real)
    before = home_of(shell)

    turn_on(shell, "claude", "codex")
    between = home_of(shell)
    shell.on_data("off")

    assert (shell.home / CLAUDE).is_symlink()
    assert URL in real.read_text() or URL in between["dotfiles/claude.json"][0].decode()
    assert CODEX in between
    assert home_of(shell) == before


@pytest.mark.rows("X-71")
@pytest.mark.parametrize("text", ['{"env": [1]}', "{", '{"env": {"ENABLE_TOOL_SEARCH": 7}}', "[]", "\udcff"])
def test_what_cannot_be_changed_is_left_and_named(shell: Shell, text: str) -> None:
    settle(shell)
    (shell.home / CLAUDE).write_bytes(text.encode(errors="surrogateescape"))
    before = home_of(shell)

    done = shell.on_data("on", "codex", "claude", "--yes")

    assert done.code == 2
    assert f"claude: {shell.home / CLAUDE} is left as it is: " in done.errors
    assert "Traceback" not in done.errors
    assert home_of(shell) == before


@pytest.mark.rows("X-71")
def test_what_off_cannot_undo_is_said_with_what_to_do(shell: Shell) -> None:
    settle(shell)
    turn_on(shell, "claude")
    (shell.home / CLAUDE).write_text("{ half")

    refused = shell.on_data("off", "claude")
    (shell.home / CLAUDE).unlink()
    gone = shell.on_data("off", "claude")

    assert refused.code == 1
    assert "Take out env.ANTHROPIC_BASE_URL, env.ENABLE_TOOL_SEARCH" in refused.errors
    assert f"the file of before is {shell.data / 'on' / 'claude-settings.json'}" in refused.errors
    kept = shell.data / "on" / "claude-settings.json.kept"
    said = "its settings file is gone, so nothing was left to undo"
    assert gone.out == f"claude: off; {said}; the file of before: {kept}\n"
    assert list((shell.data / "on").iterdir()) == [kept]
    assert kept.read_text() == FILES[CLAUDE]


@pytest.mark.rows("X-71")
def test_off_finds_the_file_that_a_link_leads_to_since(shell: Shell) -> None:
    old, new = shell.home / "old.json", shell.home / "new.json"
    old.write_text("{}\n")
    (shell.home / ".claude").mkdir()
    (shell.home / CLAUDE).symlink_to(old)
    turn_on(shell, "claude")
    old.rename(new)
    (shell.home / CLAUDE).unlink()
    (shell.home / CLAUDE).symlink_to(new)

    off = shell.on_data("off")

    assert f"our values left {new}; its settings file is gone" in off.out
    assert json.loads(new.read_text()) == {}


def test_what_changed_while_the_question_stood_is_not_overwritten(tmp_path: Path) -> None:
    file, data = tmp_path / "settings.json", tmp_path / "data"
    file.write_text("{}")
    plan = plan_on("claude", LastingSettings(file, JSON, {("env", "A"): "b"}), OwnProvider())
    file.write_text('{"permissions": 1}')

    with pytest.raises(InvalidConfiguration, match="has changed since its lines were shown"):
        switch_on(data, plan)

    assert (file.read_text(), data.exists()) == ('{"permissions": 1}', False)


def test_where_the_file_cannot_be_written_no_note_remains(tmp_path: Path) -> None:
    file, data = Path("/proc/none/settings.json"), tmp_path / "data"  # no user can make that folder
    plan = plan_on("claude", LastingSettings(file, JSON, {("env", "A"): "b"}), OwnProvider())

    with pytest.raises(InvalidConfiguration, match="its settings are as before"):
        switch_on(data, plan)

    assert list((data / "on").iterdir()) == []


@pytest.mark.rows("X-71")
def test_the_command_is_for_all_that_are_on(shell: Shell) -> None:
    settle(shell)
    (shell.home / "mine.yaml").write_text("port: 8788\n")
    config = ("--config", "mine.yaml")
    turn_on(shell, "claude", *config)

    done = turn_on(shell, "codex", *config)
    longer = shell.on_data("on", "codex", "--url", "http://127.0.0.1:878", "--yes")

    serve = next(line for line in done.out.splitlines() if line.startswith("callstack serve"))
    assert serve.startswith(f"callstack serve --config {shell.home / 'mine.yaml'} --set upstreams.default.url=")
    assert "--set upstreams.anthropic.url=https://api.anthropic.com " in serve
    assert longer.code == 2
    assert "codex is on already, with other settings (http://127.0.0.1:8788/v1)" in longer.errors


@pytest.mark.parametrize(
    ("origin", "words"),
    [
        ("http://127.0.0.1:8787", ""),
        ("http://localhost", " --port 80"),
        ("http://[::1]:9", " --host ::1 --port 9"),
        ("http://team.example:8787", None),
        ("https://127.0.0.1", None),
    ],
)
def test_the_command_is_for_a_proxy_on_this_machine(origin: str, words: str | None) -> None:
    note = Note(agent="codex", path="", toml=True, existed=True, folders=[], written="", changes=[], openai="u")

    said = _serve_command(origin, [note], Config(), None)

    assert said == ("" if words is None else f"callstack serve{words} --upstream u")


def test_wrong_words_are_answered(shell: Shell) -> None:
    settle(shell)
    for words, said in (
        (("on", "aider", "--yes"), "aider has no settings file that can say so"),
        (("off", "clod"), "clod is not known"),
        (("on", "claude"), "nothing was written, because nobody can be asked here; say --yes"),
        (("on", "--url", "127.0.0.1:1", "--yes"), "is no address"),
        (("on", "--url", "http://127.0.0.1:87x7", "--yes"), "is no address"),
    ):
        done = shell.on_data(*words)
        assert (done.code, said in done.errors) == (2, True), done.errors
    assert shell.on_data("off", "claude").errors == "note: claude is not on\n"
    turn_on(shell, "claude")
    other = shell.on_data("on", "claude", "--url", "http://127.0.0.1:9", "--yes")
    assert "claude is on already, with other settings" in other.errors


def test_wrap_does_not_ask_the_address_that_on_has_written(shell: Shell) -> None:
    settle(shell)
    program = shell.home / "bin" / "claude"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    path = {"PATH": f"{program.parent}:{os.environ['PATH']}"}
    words = ("wrap", "--dry-run", "--data", str(shell.data))
    free = shell.run(*words, "claude", env=path)
    turn_on(shell, "claude")

    refused = shell.run(*words, "claude", env=path)
    named = shell.run(*words, "--upstream", "https://api.example.com", "claude", env=path)

    assert (free.code, refused.code, named.code) == (0, 2, 0), (free.errors, named.errors)
    assert "`callstack on` has set claude to a proxy for good" in refused.errors


@pytest.mark.long
@pytest.mark.parametrize(("typed", "code"), [("y", 0), ("n", 1)])
def test_on_a_terminal_it_asks_first(shell: Shell, typed: str, code: int) -> None:
    settle(shell)
    before = (shell.home / CLAUDE).read_bytes()
    master, slave = pty.openpty()
    os.write(master, f"{typed}\n".encode())
    words = command("on", "claude", "--data", str(shell.data))
    done = subprocess.run(
        words, cwd=shell.home, env=environment(shell.home), stdin=slave, capture_output=True, text=True, check=False
    )
    os.close(slave)
    os.close(master)

    assert done.returncode == code
    assert "Write 3 lines? [y/N]" in done.stdout
    assert ((shell.home / CLAUDE).read_bytes() == before) is (code == 1)


@pytest.mark.parametrize(
    "url", ["http://h:99999", "http://h:0", "http://[::1", "http://:80", "http://h#x", "http://h/v1"]
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(InvalidConfiguration, match="is no address"):
        _origin(url, Config())


def test_an_address_is_shown_without_its_password() -> None:
    changed = Change(keys=["a", "b"], value="u", before="https://me:secret@x.example/v1")

    assert shown(changed) == '  a.b = "u"   (was https://x.example/v1)'


def test_the_note_is_private(shell: Shell) -> None:
    settle(shell)
    turn_on(shell, "claude")

    assert {Path(path).stat().st_mode & 0o777 for path in (shell.data / "on").iterdir()} == {0o600}
