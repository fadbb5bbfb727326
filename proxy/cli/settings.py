"""The commands `config` and `key`: the section `subagent`, which may change while the proxy runs, and the client keys
that this proxy issues. A running proxy uses a change at once, and it stays after a restart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from proxy.auth import issue_key, list_keys, revoke_key
from proxy.cli.api_client import call
from proxy.cli.context import AsJson, ConfigFile, DataDirectory, settings_at
from proxy.cli.output import align_columns, one_line, print_json, print_line
from proxy.config import SETTABLE_KEYS, SUBAGENT_SECTION, Mode, SubagentSettings, parse_assignments
from proxy.errors import InvalidConfiguration
from proxy.management.views import API_NAMES, TrackingBody, TrackingView

CONFIG_PATH = "/stack/config"


def config(
    assignments: Annotated[
        list[str] | None, typer.Option("--set", help="A key and its value, subagent.min_duration=5000; repeatable.")
    ] = None,
    reset: Annotated[
        list[str] | None, typer.Option("--reset", help="A key that the configuration is to say again; repeatable.")
    ] = None,
    add_pattern: Annotated[str, typer.Option(help="One more pattern of subagents' titles.")] = "",
    remove_pattern: Annotated[str, typer.Option(help="One that counts no more.")] = "",
    file: ConfigFile = None,
    data: DataDirectory = None,
    as_json: AsJson = False,
) -> None:
    """How subagents are tracked; changes it for everybody, at once and after a restart."""
    wanted = {API_NAMES[key]: value for key, value in _parse_changes(assignments or (), reset or ()).items()}
    wanted |= {"addPattern": add_pattern} if add_pattern else {}
    wanted |= {"removePattern": remove_pattern} if remove_pattern else {}
    try:
        TrackingBody.model_validate(wanted)  # the API would name a fault by its place in the body
    except ValidationError as error:
        raise InvalidConfiguration("\n".join(f"{each['loc'][0]}: {each['msg']}" for each in error.errors())) from None
    view: TrackingView = call(settings_at(file, data), "PATCH" if wanted else "GET", CONFIG_PATH, wanted or None)
    if as_json:
        print_json(view)
        return
    for line in config_text(view):
        print_line(line)


def _parse_changes(assignments: Sequence[str], reset: Sequence[str]) -> dict[str, Any]:
    assigned = {_settable_key(name): text for name, text in parse_assignments(assignments).items()}
    try:
        settings = SubagentSettings.model_validate(assigned)
    except ValidationError as error:
        faults = (f"{SUBAGENT_SECTION}.{each['loc'][0]}: {each['msg']}" for each in error.errors())
        raise InvalidConfiguration("\n".join(faults)) from None
    values = settings.model_dump(include=set(assigned), mode="json")
    return {**values, **{_settable_key(name): None for name in reset}}


def _settable_key(name: str) -> str:
    key = name.removeprefix(f"{SUBAGENT_SECTION}.")
    if key not in SETTABLE_KEYS:
        known = ", ".join(f"{SUBAGENT_SECTION}.{each}" for each in SETTABLE_KEYS)
        raise InvalidConfiguration(
            f"{name}: cannot be set while the proxy runs; these can: {known}. All else is set in the configuration"
        )
    return key


def config_text(view: TrackingView) -> Iterator[str]:
    """A line for each key: its value, and whether it was set while the proxy ran."""
    values: Mapping[str, Any] = {**view}
    cells = [
        (
            f"{SUBAGENT_SECTION}.{key}",
            _value_text(values[API_NAMES[key]]),
            "set" if API_NAMES[key] in view["changed"] else "",
        )
        for key in SETTABLE_KEYS
    ]
    yield from align_columns([("key", "value", ""), *cells])


def _value_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return one_line(" ".join(map(repr, value)) if isinstance(value, list) else str(value)) or "none"


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
