"""What clients run all the time: `callstack statusline` prints one line for a client that shows one, `callstack hook`
answers its hooks. `line`, `hook` and `ask_proxy` are the whole work and import nothing of this package outside this
folder; `command` has the help."""

from collections.abc import Callable, Mapping

from callstack_proxy.cli.statusline import hook, line
from callstack_proxy.cli.statusline.ask_proxy import Options, read_options

PRINTED: Mapping[str, Callable[[Options], None]] = {
    "statusline": line.print_status_line,
    "hook": hook.print_hook_answer,
}
"""Command -> what prints its output."""
