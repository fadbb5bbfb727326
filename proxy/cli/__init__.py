"""The commands of `callstack`, a module for each group of them.

    serving.py   serve          demo.py      demo              provider.py  provider
    looking.py   tree, log, diff             keeping.py  forget, mode, unfold
    doctor.py    doctor         keys.py      key               replay.py    replay
    loops.py     loops          branches.py  checkpoint, branch, switch, inject
    configuring.py config
    resuming.py  resume         speaking.py  say, cancel       autonomy.py  autonomy
    hand.py      push, plan, activate, pop, invalidate, rename
    reporting.py report, tariffs             exporting.py export, import
    seen_files.py map

    lazy.py      which command is in which module          place.py   configuration and store of a command
    presence.py  the proxy that runs on this data, if any  printing.py  what may reach a terminal
    journal.py   the log of a running proxy                replay_text.py  what a replay is told as

The law: **whatever is printed has been made harmless first** (`printing`), results go to stdout and errors to stderr,
and the exit code is honest: 0 done, 1 a finding or a failure, 2 a wrong argument or configuration.

A command reads the store itself, beside a proxy that may be running; it sees all tenants, for whoever can read the
file sees them anyway. What changes something goes through the running proxy, which keeps things in memory.
"""

from proxy.cli.main import LazyCommands
from proxy.cli.output import print_error

__all__ = ["LazyCommands", "print_error"]
