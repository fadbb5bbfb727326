"""`callstack console`: prints the link to the console of the proxy that runs."""

from __future__ import annotations

from callstack_proxy.cli.context import ConfigFile, DataDirectory, console_url, find_running_proxy, settings_at
from callstack_proxy.cli.output import print_line, print_note


def console(config: ConfigFile = None, data: DataDirectory = None) -> None:
    """Print the link to the console of the proxy that runs. Where none runs, one shows what is stored, until Ctrl-C
    or until another proxy starts."""
    settings = settings_at(config, data)
    server = find_running_proxy(settings.data)
    if server is not None:
        print_line(console_url(server.url, server.token))
        return
    print_note(f"no proxy runs on {settings.data}; this one shows what is stored there, until Ctrl-C")
    # The server takes 0.8 s to import, which a link to a running one does not need.
    from callstack_proxy.cli.serve.command import show_stored

    show_stored(settings)
