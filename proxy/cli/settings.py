"""The command `config`: what may be set while the proxy runs, and setting it.

Where a proxy runs it is asked, for it knows what holds; without one the store is read and written, and the next proxy
that starts goes by it. Only `subagent` can be set so; all else is the configuration's, and needs a restart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from proxy.cli.context import AsJson, ConfigFile, DataDirectory, at, opened, run
from proxy.cli.output import columns, one_line, say, say_json
from proxy.cli.running import ask, running
from proxy.config.model import Config
from proxy.config.runtime import SECTION, SETTABLE, LiveSettings
from proxy.config.sections import SubagentSettings
from proxy.config.sources import parse_assignments
from proxy.errors import InvalidConfiguration
from proxy.management.views.subagents import NAMES, Tracking, TrackingWanted, told

PATH = "/stack/config"


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
    wanted = {NAMES[key]: value for key, value in _wanted(assignments or (), reset or ()).items()}
    wanted |= {"addPattern": add_pattern} if add_pattern else {}
    wanted |= {"removePattern": remove_pattern} if remove_pattern else {}
    holds = run(_done(at(file, data), wanted))
    if as_json:
        say_json(holds)
        return
    for line in config_text(holds):
        say(line)


def _wanted(assignments: Sequence[str], reset: Sequence[str]) -> dict[str, Any]:
    said = {_key(name): text for name, text in parse_assignments(assignments).items()}
    try:
        read = SubagentSettings.model_validate(said)
    except ValidationError as error:
        faults = (f"{SECTION}.{each['loc'][0]}: {each['msg']}" for each in error.errors())
        raise InvalidConfiguration("\n".join(faults)) from None
    values = read.model_dump(include=set(said), mode="json")
    return {**values, **{_key(name): None for name in reset}}


def _key(name: str) -> str:
    key = name.removeprefix(f"{SECTION}.")
    if key not in SETTABLE:
        known = ", ".join(f"{SECTION}.{each}" for each in SETTABLE)
        raise InvalidConfiguration(
            f"{name}: cannot be set while the proxy runs; these can: {known}. All else is set in the configuration"
        )
    return key


async def _done(settings: Config, wanted: Mapping[str, Any]) -> Tracking:
    """What holds, once what is wanted was set."""
    if (server := running(settings.data)) is not None:
        holds: Tracking = ask(server, "PATCH" if wanted else "GET", PATH, wanted or None)
        return holds
    try:
        body = TrackingWanted.model_validate(wanted)
    except ValidationError as error:
        raise InvalidConfiguration("\n".join(f"{each['loc'][0]}: {each['msg']}" for each in error.errors())) from None
    async with opened(settings) as store:
        live = LiveSettings(settings.subagent, store)
        await live.refresh()
        if said := body.by_key(live.subagent.patterns):
            await store.durable(live.change(said))
        return told(live)


def config_text(holds: Tracking) -> Iterator[str]:
    """A line for each key, with its value, and whether somebody set it."""
    known: Mapping[str, Any] = {**holds}
    cells = [
        (f"{SECTION}.{key}", _word(known[NAMES[key]]), "set" if NAMES[key] in holds["changed"] else "")
        for key in SETTABLE
    ]
    yield from columns([("key", "value", ""), *cells])


def _word(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return one_line(" ".join(map(repr, value)) if isinstance(value, list) else str(value)) or "none"
