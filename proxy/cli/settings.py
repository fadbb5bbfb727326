"""The command `config`: what may be set while the proxy runs, and setting it.

Where a proxy runs it is asked, for it knows what holds; without one the store is read and written, and the next proxy
that starts goes by it. Only `subagent` can be set so; all else is the configuration's, and needs a restart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from proxy.cli.context import AsJson, ConfigFile, DataDirectory, opened_store, run_async, settings_at
from proxy.cli.output import align_columns, one_line, print_json, print_line
from proxy.cli.running import ask_proxy, find_running_proxy
from proxy.config import SETTABLE_KEYS, SUBAGENT_SECTION, Config, LiveSettings, SubagentSettings, parse_assignments
from proxy.errors import InvalidConfiguration
from proxy.management.views import API_NAMES, TrackingBody, TrackingView, tracking_view

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
    holds = run_async(_apply_changes(settings_at(file, data), wanted))
    if as_json:
        print_json(holds)
        return
    for line in config_text(holds):
        print_line(line)


def _parse_changes(assignments: Sequence[str], reset: Sequence[str]) -> dict[str, Any]:
    said = {_settable_key(name): text for name, text in parse_assignments(assignments).items()}
    try:
        read = SubagentSettings.model_validate(said)
    except ValidationError as error:
        faults = (f"{SUBAGENT_SECTION}.{each['loc'][0]}: {each['msg']}" for each in error.errors())
        raise InvalidConfiguration("\n".join(faults)) from None
    values = read.model_dump(include=set(said), mode="json")
    return {**values, **{_settable_key(name): None for name in reset}}


def _settable_key(name: str) -> str:
    key = name.removeprefix(f"{SUBAGENT_SECTION}.")
    if key not in SETTABLE_KEYS:
        known = ", ".join(f"{SUBAGENT_SECTION}.{each}" for each in SETTABLE_KEYS)
        raise InvalidConfiguration(
            f"{name}: cannot be set while the proxy runs; these can: {known}. All else is set in the configuration"
        )
    return key


async def _apply_changes(settings: Config, wanted: Mapping[str, Any]) -> TrackingView:
    """What holds, once what is wanted was set."""
    if (server := find_running_proxy(settings.data)) is not None:
        holds: TrackingView = ask_proxy(server, "PATCH" if wanted else "GET", CONFIG_PATH, wanted or None)
        return holds
    try:
        body = TrackingBody.model_validate(wanted)
    except ValidationError as error:
        raise InvalidConfiguration("\n".join(f"{each['loc'][0]}: {each['msg']}" for each in error.errors())) from None
    async with opened_store(settings) as store:
        live = LiveSettings(settings.subagent, store)
        await live.refresh()
        if said := body.changes_by_key(live.subagent.patterns):
            await store.wait_until_durable(live.change(said))
        return tracking_view(live)


def config_text(holds: TrackingView) -> Iterator[str]:
    """A line for each key, with its value, and whether somebody set it."""
    known: Mapping[str, Any] = {**holds}
    cells = [
        (
            f"{SUBAGENT_SECTION}.{key}",
            _value_text(known[API_NAMES[key]]),
            "set" if API_NAMES[key] in holds["changed"] else "",
        )
        for key in SETTABLE_KEYS
    ]
    yield from align_columns([("key", "value", ""), *cells])


def _value_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return one_line(" ".join(map(repr, value)) if isinstance(value, list) else str(value)) or "none"
