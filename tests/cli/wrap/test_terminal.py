"""`callstack wrap` in a pseudo terminal, as a user sees it."""

import os
import subprocess
import sys
from collections.abc import Iterator
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
def terminal(wrapping: Wrapping) -> Iterator[Terminal]:
    """An agent that waits in a wrap."""
    words = command("wrap", *wrapping.options(), "agent", "ask", "wait=never")
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", TAKE_TERMINAL, *words],
        cwd=wrapping.project,
        env=wrapping.environ(),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    yield Terminal(process, ours)
    os.close(ours)
    process.wait(PATIENCE_S)


def test_ctrl_c_is_the_agents_and_the_last_line_comes_after_it(terminal: Terminal) -> None:
    terminal.until("waiting")

    terminal.type("\x03")

    assert terminal.ended() == 5
    agent, last = terminal.screen.split("signal 2\r\n")
    assert agent.startswith("200 All done.\r\nwaiting\r\n")
    assert "1 request, " in last
    assert last.count("\n") == 1


def test_an_agent_that_is_killed_leaves_a_terminal_that_can_be_used(terminal: Terminal) -> None:
    """Ctrl-\\ ends it with a signal that it does not handle."""
    terminal.until("waiting")

    terminal.type("\x1c")

    assert terminal.ended() == 131
    assert "1 request, " in terminal.screen
