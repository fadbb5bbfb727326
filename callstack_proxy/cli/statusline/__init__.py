"""`callstack statusline`: one line for a client that shows one. `line` is the whole work and imports nothing of this
package; `command` has its help."""

from callstack_proxy.cli.statusline.line import NAME, Options, print_status_line, read_options

__all__ = ["NAME", "Options", "print_status_line", "read_options"]
