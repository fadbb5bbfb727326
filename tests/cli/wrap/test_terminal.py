"""`callstack wrap` in a pseudo terminal, as a user sees it."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from tests.cli.conftest import command
from tests.cli.wrap.conftest import PATIENCE_S, Wrapping

TAKE_TERMINAL = "import os, sys; os.open(os.ttyname(0), os.O_RDWR); os.execv(sys.argv[1], sys.argv[1:])"
"""The first process of a session that opens a terminal is controlled by it."""


@dataclass
class Terminal:
    """A program in a terminal of its own; `screen` is everything that it has written."""

    process: "subprocess.Popen[bytes]"
    descriptor: int
    screen: str = ""

    def type(self, text: str) -> None:
        os.write(self.descriptor, text.encode())

    def until(self, text: str) -> None:
        while text not in self.screen:
            self.screen += os.read(self.descriptor, 4096).decode()

    def ended(self) -> int:
        """The exit code, once everything is read."""
        try:
            while piece := os.read(self.descriptor, 4096):
                self.screen += piece.decode()
        except OSError:  # Linux tells the end of a terminal so
            pass
        return self.process.wait(PATIENCE_S)


@pytest.fixture
def in_terminal(wrapping: Wrapping) -> Iterator[Callable[..., Terminal]]:
    """Starts a wrap around an agent that does what the words say."""
    shown: list[Terminal] = []

    def start(*words: str) -> Terminal:
        ours, theirs = os.openpty()
        wrap = command("wrap", *wrapping.options(), "agent", *words)
        process = subprocess.Popen(
            [sys.executable, "-c", TAKE_TERMINAL, *wrap],
            cwd=wrapping.project,
            env=wrapping.environ(),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        shown.append(Terminal(process, ours))
        return shown[-1]

    yield start
    for terminal in shown:
        os.close(terminal.descriptor)
        terminal.process.wait(PATIENCE_S)


def test_ctrl_c_is_the_agents_once_and_the_last_line_comes_after_it(
    wrapping: Wrapping, in_terminal: Callable[..., Terminal]
) -> None:
    terminal = in_terminal("patient", "ask", f"wait={wrapping.folder / 'file'}", "exit=5")
    terminal.until("waiting")

    terminal.type("\x03")
    terminal.until("signal 2")
    (wrapping.folder / "file").touch()

    assert terminal.ended() == 5
    agent, last = terminal.screen.split("signal 2\r\n")
    assert agent.startswith("200 All done.\r\nwaiting\r\n")
    assert last.startswith("there it is\r\n")
    assert "1 request, " in last
    assert last.count("\n") == 2


def test_an_agent_that_is_killed_in_raw_mode_leaves_a_terminal_that_can_be_used(
    in_terminal: Callable[..., Terminal],
) -> None:
    """In raw mode a line end does not bring the cursor back to the left."""
    terminal = in_terminal("raw", "kill=9")

    assert terminal.ended() == 137
    assert terminal.screen.endswith("through the proxy\x1b[0m\r\n")
