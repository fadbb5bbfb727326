"""The first screen of help, the groups of commands, the names of before, and what an unknown name is answered."""

import gc
import os
import pty
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from callstack_proxy.cli.main import COMMANDS, GROUP_OF, GROUPS, OVERVIEW, UNLISTED, LazyCommands, _load
from tests.cli.conftest import Shell, Stocked, command
from tests.forked_commands import environment


def test_the_overview_fits_a_terminal_of_80_by_24(shell: Shell) -> None:
    done = shell.run("--help", env={"COLUMNS": "80"})

    assert done.code == 0
    assert len(done.out.splitlines()) <= 24
    assert all(len(line) <= 80 for line in done.out.splitlines())
    assert all(heading in done.out for heading in OVERVIEW)


def test_every_command_stands_in_the_overview_or_in_a_group() -> None:
    shown = {name for names in OVERVIEW.values() for name in names}

    assert set(COMMANDS) - shown - set(UNLISTED) == set(GROUP_OF) - {"branch"}
    assert shown - set(COMMANDS) <= set(GROUPS)


@pytest.mark.parametrize("group", list(GROUPS))
def test_a_group_lists_its_commands_with_an_example(shell: Shell, group: str) -> None:
    done = shell.run(group, "--help", env={"COLUMNS": "80"})

    assert done.code == 0
    assert all(f"  {name}" in done.out for name in GROUPS[group][1])
    assert f"Example: callstack {group} " in done.out
    assert len(done.out.splitlines()) <= 24


NEAREST = {
    "reprt": "report",
    "unfol": "frame unfold",
    "frame psh": "frame push",
    "sav": "savings",
    "clod": "wrap claude",
}


@pytest.mark.parametrize(("typed", "meant"), NEAREST.items())
def test_an_unknown_command_gets_the_nearest_one(shell: Shell, typed: str, meant: str) -> None:
    done = shell.run(*typed.split())

    assert done.code == 2
    assert f"the nearest is `callstack {meant}`" in " ".join(done.errors.split())
    assert "--help' for help" in done.errors, "says where they all are"
    assert max(map(len, done.errors.splitlines())) <= 80


def test_a_command_does_the_same_by_both_names(stocked: Stocked) -> None:
    short, grouped = (stocked.shell.on_data("inspect", "resume"), stocked.shell.on_data("resume"))

    assert short.code == 0
    assert short.out == grouped.out


def test_branch_is_a_group_and_what_it_was_before(stocked: Stocked) -> None:
    group, alone = stocked.shell.on_data("branch", "start", "--list"), stocked.shell.on_data("branch", "--list")

    assert (group.code, alone.code) == (0, 0)
    assert group.out == alone.out


def test_a_name_of_before_is_told_its_place_on_a_terminal_alone(shell: Shell) -> None:
    master, slave = pty.openpty()
    environ = environment(shell.home)
    shown = subprocess.run(
        command("tariffs"), cwd=shell.home, env=environ, stdout=subprocess.PIPE, stderr=slave, check=True
    )
    os.close(slave)
    told = os.read(master, 10_000).decode()
    os.close(master)

    assert "`callstack inspect tariffs`" in told
    assert b"note" not in shown.stdout
    assert shell.run("tariffs").errors == ""


def test_bash_completes_a_command(shell: Shell, tmp_path: Path) -> None:
    asked = {"_CALLSTACK_COMPLETE": "complete_bash", "COMP_WORDS": "callstack rep", "COMP_CWORD": "1"}
    program = (
        "import sys; sys.argv[0] = 'callstack'; from callstack_proxy.cli.main import app; app(prog_name='callstack')"
    )
    words, environ = [command()[0], "-c", program], environment(tmp_path) | asked
    done = subprocess.run(words, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)

    assert sorted(done.stdout.split()) == ["replay", "report"]


def test_garbage_is_collected_once_a_command_was_imported() -> None:
    _load("tree")

    assert gc.isenabled()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_ends_with_an_example_that_can_be_typed(name: str) -> None:
    words = shlex.split(COMMANDS[name].example)
    group = LazyCommands(name="callstack")
    context = group.make_context("callstack", words, resilient_parsing=True)
    command: Any = group
    while hasattr(command, "resolve_command") and words:
        _, command, words = command.resolve_command(context, words)

    own = _load(name)
    assert command.make_context(name, list(words)).params
    shown = own.get_help(own.make_context(name, [], resilient_parsing=True))
    assert shown.rstrip().endswith(f"Example: callstack {COMMANDS[name].example}")


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_the_help_of_a_command_fits_a_terminal_of_80_by_24(name: str) -> None:
    own = _load(name)
    context = own.make_context(name, [], resilient_parsing=True)
    helps = [own.get_help(own.context_class(own, info_name=f"callstack {name}", terminal_width=80))]
    for inner in getattr(own, "list_commands", lambda _: ())(context):
        command = own.get_command(context, inner)
        helps.append(
            command.get_help(command.context_class(command, info_name=f"callstack {name} {inner}", terminal_width=80))
        )

    for shown in helps:
        assert len(shown.splitlines()) <= 24, shown
        assert all(len(line) <= 80 for line in shown.splitlines()), shown
