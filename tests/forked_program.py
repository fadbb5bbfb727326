"""The program `callstack` for scripts that start and stop it themselves: each run is a fork, as in `forked_commands`.

    python -IS tests/forked_program.py SOCKET WORDS...

It hands its words, folder, environment and streams to the process that listens at SOCKET, passes signals on to the
fork, and ends as the fork ends. When this program is killed, so is the fork. It imports little, as it starts often.
"""

import json
import os
import signal
import socket
import sys
from types import FrameType

NUMBER_BYTES = 4
PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def run_fork(place: str, words: list[str]) -> int:
    """The exit code of `callstack WORDS`, negative for a signal."""
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(place)
        order = json.dumps(
            {"words": words, "folder": os.path.realpath(os.curdir), "environ": dict(os.environ)}
        ).encode()
        socket.send_fds(server, [b"\n"], [0, 1, 2])
        server.sendall(len(order).to_bytes(NUMBER_BYTES, "big") + order)
        fork = read_number(server)

        def pass_on(number: int, _: FrameType | None) -> None:
            os.kill(fork, number)

        for number in PASSED_ON:
            signal.signal(number, pass_on)
        return read_number(server)


def read_number(connection: socket.socket) -> int:
    """Raises EOFError where the other side has gone."""
    number = connection.recv(NUMBER_BYTES, socket.MSG_WAITALL)
    if len(number) < NUMBER_BYTES:
        raise EOFError("the process that forks has gone")
    return int.from_bytes(number, "big", signed=True)


if __name__ == "__main__":
    code = run_fork(sys.argv[1], sys.argv[2:])
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)
