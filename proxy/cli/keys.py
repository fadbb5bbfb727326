"""`callstack key`: the client keys that this proxy issues. A running proxy uses a change at once."""

from __future__ import annotations

from typing import Annotated

import typer

from proxy.auth import issue_key, list_keys, revoke_key
from proxy.cli.context import AsJson, ConfigFile, DataDirectory, settings_at
from proxy.cli.output import align_columns, print_json, print_line
from proxy.config import Mode
from proxy.errors import InvalidConfiguration

key = typer.Typer(
    no_args_is_help=True, add_completion=False, rich_markup_mode=None, help="The client keys this proxy issues."
)
Name = Annotated[str, typer.Argument(help="Whose key it is.")]


@key.command()
def add(
    name: Name,
    admin: Annotated[bool, typer.Option("--admin", help="May see all tenants on /stack.")] = False,
    mode: Annotated[str, typer.Option(help="off, shadow, passive or active; default: as configured.")] = "",
    config: ConfigFile = None,
    data: DataDirectory = None,
) -> None:
    """Issue a key. It is shown this once; only its hash is kept."""
    print_line(issue_key(settings_at(config, data).keys_path, name, admin=admin, mode=_parse_mode(mode)))


def _parse_mode(word: str) -> Mode | None:
    match word:
        case "off" | "shadow" | "passive" | "active":
            return word
        case "":
            return None
        case _:
            raise typer.BadParameter(f"{word!r}; allowed: off, shadow, passive, active")


@key.command("list")
def list_(config: ConfigFile = None, data: DataDirectory = None, as_json: AsJson = False) -> None:
    """Whose keys there are, oldest first."""
    issued = list_keys(settings_at(config, data).keys_path)
    if as_json:
        print_json([{"name": k.name, "created": k.created, "admin": k.admin, "mode": k.mode} for k in issued])
        return
    if not issued:
        print_line("There is no key yet. Issue one with: callstack key add NAME")
        return
    rows = [(k.name, k.created, k.mode or "", "admin" if k.admin else "") for k in issued]
    for line in align_columns([("name", "created", "mode", ""), *rows]):
        print_line(line)


@key.command()
def revoke(name: Name, config: ConfigFile = None, data: DataDirectory = None) -> None:
    """Take a key away; it ends at once."""
    if not revoke_key(settings_at(config, data).keys_path, name):
        raise InvalidConfiguration(f"nobody is called {name!r}; `callstack key list` shows who there is")
    print_line(f"revoked {name}")
