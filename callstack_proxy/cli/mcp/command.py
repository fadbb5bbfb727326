"""The command `mcp`: the memory of a project, as tools for any agent that speaks the model context protocol."""

from __future__ import annotations

import importlib.util
import os
import socket
from pathlib import Path
from typing import Annotated

import typer

from callstack_proxy.cli.context import ConfigFile, DataDirectory, project_folders, settings_at
from callstack_proxy.cli.mcp.reach import DistantProxy, OwnProxy
from callstack_proxy.cli.output import print_note
from proxy import __version__
from proxy.errors import InvalidConfiguration

DEFAULT_PORT = 8788
ROOT_USER = 0
"""It can read the data anyway."""


def mcp(
    over_http: Annotated[bool, typer.Option("--http", help="Over HTTP on this machine instead of stdio.")] = False,
    port: Annotated[int, typer.Option("--port", min=0, max=65_535, help="With --http.")] = DEFAULT_PORT,
    project: Annotated[
        Path | None, typer.Option("--project", help="The folder whose work is meant; default: this one.")
    ] = None,
    url: Annotated[
        str, typer.Option("--url", help="A proxy elsewhere, instead of the one of the data directory.")
    ] = "",
    key: Annotated[
        str,
        typer.Option("--key", envvar="CALLSTACK_KEY", help="Client key, over stdio; over HTTP callers send theirs."),
    ] = "",
    config: ConfigFile = None,
    data: DataDirectory = None,
) -> None:
    """Tools for agents over MCP: search, recall and tree over all sessions of a project, and say."""
    if importlib.util.find_spec("mcp") is None:
        raise InvalidConfiguration("mcp: its SDK is not installed; run pip install 'callstack-proxy[mcp]'")
    # Takes 0.7 s to import, which other commands need not pay, and is an extra.
    from callstack_proxy.mcp.server import HOST, PATH, Memory, serve_http, serve_stdio

    ask = DistantProxy(url, key) if url else OwnProxy(settings_at(config, data), key)
    folder = str((project or Path.cwd()).expanduser().absolute())
    memory = Memory(ask, lambda named: project_folders(Path(named)), folder)
    if not over_http:
        serve_stdio(memory, __version__)
        return
    try:
        listener = socket.create_server((HOST, port))
    except OSError as error:
        raise InvalidConfiguration(f"--port: {port} cannot be used: {error.strerror}; name another one") from None
    print_note(f"MCP at http://{HOST}:{listener.getsockname()[1]}{PATH}")
    serve_http(memory, __version__, listener, _is_own_user)


def _is_own_user(client: tuple[str, int], server: tuple[str, int]) -> bool:
    """Whether a program of our user, or of root, holds the client's end; true where the system does not tell."""
    # The package holds the whole server, which stdio does not need.
    from proxy.server.peer_user import Peer, user_of_peer

    return user_of_peer(client, server) in (Peer.UNKNOWN, ROOT_USER, os.getuid())
