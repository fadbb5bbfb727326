"""The entry point: `callstack`, or `python -m callstack_proxy`. The status line, which a client asks for several times
a second, and the answers to its hooks are printed without loading the program with all its commands."""

from __future__ import annotations

import sys
from importlib import import_module

from callstack_proxy.cli.statusline import PRINTED, read_options

INTERRUPTED = 130
"""What a shell tells of a program that an interrupt ended."""


def main() -> None:
    try:
        printed = PRINTED.get(sys.argv[1]) if sys.argv[1:] else None
        if printed is not None and (options := read_options(sys.argv[2:])) is not None:
            printed(options)
        else:
            import_module("callstack_proxy.cli.main").run_program()  # 0.5 s of imports
    except KeyboardInterrupt:  # in the middle of these imports; the program itself knows what to do
        raise SystemExit(INTERRUPTED) from None


if __name__ == "__main__":
    main()
