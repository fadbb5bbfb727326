"""The commands `on` and `off`: agents that ask the proxy whenever they run, also without `wrap`.

`on` shows what it would write, asks, and writes. `off` undoes it. The proxy has to run by itself: `callstack serve`.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from callstack_proxy.cli.context import ConfigFile, DataDirectory, data_flag, load_settings
from callstack_proxy.cli.output import pluralize, print_error, print_line, print_note
from callstack_proxy.cli.wrap.agents import Launch, known_agents
from callstack_proxy.cli.wrap.lasting_settings import (
    LASTING,
    Note,
    Writing,
    copy_of,
    is_standing,
    is_used,
    plan_on,
    read_notes,
    shown,
    switch_off,
    switch_on,
)
from callstack_proxy.cli.wrap.own_settings import OwnProvider, Surroundings
from proxy.config import Config
from proxy.errors import InvalidConfiguration

LOOPBACK = ("localhost", "127.0.0.1", "::1")
HTTP_PORT = 80

Names = Annotated[list[str] | None, typer.Argument(metavar="[AGENT]...", help=f"{', '.join(LASTING)}; default: yours.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


def on(
    names: Names = None,
    url: Annotated[str | None, typer.Option(help="Where the proxy is; default: host and port of the settings.")] = None,
    yes: Yes = False,
    config: ConfigFile = None,
    data: DataDirectory = None,
) -> None:
    """Let agents always ask the proxy: shows the lines for their settings, asks, keeps a copy, writes them."""
    settings = _settings(config, data)
    origin = _origin(url, settings)
    plans = _plans(_chosen(names), origin, settings)
    notes, failed = [plan.note for plan in plans], False
    for note in notes:
        print_line(note.path, to_copy=True)
        for change in note.changes:
            print_line(shown(change), to_copy=True)
    if notes:
        _ask(f"Write {pluralize(sum(len(note.changes) for note in notes), 'line')}?", yes=yes)
    for plan in plans:
        try:
            switch_on(settings.data, plan)
        except InvalidConfiguration as error:
            print_error(str(error))
            failed = True
            continue
        kept = f"; the file of before: {copy_of(settings.data, plan.note)}" if plan.note.existed else ""
        print_line(f"{plan.note.agent}: on{kept}", "green", to_copy=True)
    all_on = [note for note in read_notes(settings.data).values() if is_standing(note) and _is_at(note, origin)]
    if all_on:
        _print_what_they_need(all_on, origin, settings, config)
    if failed:
        raise typer.Exit(1)


def _print_what_they_need(notes: Sequence[Note], origin: str, settings: Config, config: Path | None) -> None:
    """Of all agents that are on, those of an earlier `on` among them."""
    names = ", ".join(note.agent for note in notes)
    serve = _serve_command(origin, notes, settings, config)
    print_line(f"\nFor {names} the proxy at {origin} has to run from now on{':' if serve else '.'}", to_copy=True)
    if serve:
        print_line(serve, to_copy=True)
    print_line(f"`callstack off{data_flag(settings)}` undoes all of this.")


def off(names: Names = None, config: ConfigFile = None, data: DataDirectory = None) -> None:
    """Undo `on`: the settings of agents as they were, to the byte where nobody else has changed them."""
    settings = _settings(config, data)
    notes, failed = read_notes(settings.data), False
    _refuse_unknown(names or ())
    for name in names or notes:
        if name not in notes:
            print_note(f"{name} is not on")
            continue
        try:
            print_line(
                f"{name}: off; {switch_off(settings.data, notes[name], _usual_path(name, settings))}",
                "green",
                to_copy=True,
            )
        except InvalidConfiguration as error:
            print_error(str(error))
            failed = True
    if not names and not notes:
        print_line("No agent is on.")
    if failed:
        raise typer.Exit(1)


def _settings(config: Path | None, data: Path | None) -> Config:
    flags = {"data": str(data.expanduser().absolute()) if data else None}
    return load_settings(config, flags, asks_upstreams=False)


def _chosen(names: Sequence[str] | None) -> Sequence[str]:
    """Those that were named, else those with a folder of settings. Raises InvalidConfiguration."""
    _refuse_unknown(names or ())
    if names:
        return list(dict.fromkeys(names))
    found = [name for name in LASTING if is_used(name, _around())]
    if not found:
        raise InvalidConfiguration(f"there are no settings of {', '.join(LASTING)} in the home; name the one you mean")
    return found


def _refuse_unknown(names: Sequence[str]) -> None:
    for name in names:
        if name not in LASTING:
            reason = "has no settings file that can say so" if name in known_agents() else "is not known"
            raise InvalidConfiguration(f"{name} {reason}; known: {', '.join(LASTING)}. Use `callstack wrap {name}`")


def _around() -> Surroundings:
    """As an agent finds them in its own settings: not by the addresses of this shell, nor of this folder."""
    environ = {name: value for name, value in os.environ.items() if not name.endswith(("_BASE_URL", "_API_BASE"))}
    return Surroundings(environ, Path.home(), Path.home())


def _usual_path(name: str, settings: Config) -> Path:
    """The settings file that the agent reads now."""
    around = _around()
    return LASTING[name](Launch("", Path("/"), around, known_agents()[name].own_provider(around), settings)).path


def _is_at(note: Note, origin: str) -> bool:
    """Whether all addresses that were set are those of the proxy at `origin`."""
    return all(f"{address}/".startswith(f"{origin}/") for address in note.addresses)


def _plans(names: Sequence[str], origin: str, settings: Config) -> list[Writing]:
    """What is to be written; nothing where an agent is on already. Raises InvalidConfiguration before anything is
    written."""
    notes = read_notes(settings.data)
    plans = []
    for name in names:
        note = notes.get(name)
        if note is not None:
            if not is_standing(note) or not _is_at(note, origin):
                at = "".join(f" ({address})" for address in note.addresses[:1])
                raise InvalidConfiguration(
                    f"{name} is on already, with other settings{at}; say `callstack off {name}` first"
                )
            print_line(f"{name}: on already")
            continue
        around = _around()
        own = known_agents()[name].own_provider(around)
        launch = Launch(origin, Path("/"), around, own, _with_upstreams(settings, own))
        writing = plan_on(name, LASTING[name](launch), own)
        if writing.note.changes:
            plans.append(writing)
        else:
            print_line(f"{name}: its settings say so already, and not by us")
    return plans


def _with_upstreams(settings: Config, own: OwnProvider) -> Config:
    """With the upstreams that `serve` is told to ask, where none are configured."""
    if settings.upstreams:
        return settings
    flags = {"data": str(settings.data), **_upstream_flags(own.openai, own.anthropic)}
    return load_settings(None, flags)


def _upstream_flags(openai: str, anthropic: str) -> dict[str, str]:
    rows = {"default": (openai, "chat,responses"), "anthropic": (anthropic, "messages")}
    return {
        f"upstreams.{name}.{key}": value
        for name, (url, speaks) in rows.items()
        for key, value in (("url", url), ("speaks", speaks))
    }


def _origin(url: str | None, settings: Config) -> str:
    """The proxy's address without a path. Raises InvalidConfiguration."""
    if url is None:
        if not settings.port:
            raise InvalidConfiguration("port: 0 takes another port at each start; name one, or the address with --url")
        host = _host(settings)
        return f"http://[{host}]:{settings.port}" if ":" in host else f"http://{host}:{settings.port}"
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # no number, or above 65535
        is_address = False
    if not is_address or parts.path.strip("/") or parts.query or parts.fragment:
        raise InvalidConfiguration(f"--url {url!r} is no address; write it as http://127.0.0.1:8787")
    return f"{parts.scheme}://{parts.netloc}"


def _host(settings: Config) -> str:
    """Where a client of this machine finds the proxy."""
    return "127.0.0.1" if settings.host in ("0.0.0.0", "::", "localhost") else settings.host  # noqa: S104


def _serve_command(origin: str, notes: Sequence[Note], settings: Config, config: Path | None) -> str:
    """What to start on this machine; empty for a proxy elsewhere. Where agents ask different providers of one kind, the
    first is named."""
    parts = urlsplit(origin)
    host, port = parts.hostname or "", parts.port or HTTP_PORT
    if parts.scheme != "http" or host not in (_host(settings), *LOOPBACK):
        return ""
    words = ["callstack", "serve"]
    if config is not None:
        words += ["--config", str(config.expanduser().absolute())]
    if ("127.0.0.1" if host == "localhost" else host) != _host(settings):
        words += ["--host", host]
    if port != settings.port:
        words += ["--port", str(port)]
    if not settings.upstreams:
        openai = list(dict.fromkeys(note.openai for note in notes if note.openai))
        anthropic = next((note.anthropic for note in notes if note.anthropic), "")
        if openai and anthropic:
            for key, value in _upstream_flags(openai[0], anthropic).items():
                words += ["--set", f"{key}={value}"]
        elif openai or anthropic:
            words += ["--upstream", anthropic or openai[0]]
        if len(openai) > 1:
            print_note(f"they ask several providers: {', '.join(openai)}; only the first is named here")
    return shlex.join(words) + data_flag(settings)


def _ask(question: str, *, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise InvalidConfiguration("nothing was written, because nobody can be asked here; say --yes")
    if not typer.confirm(question):
        print_line("Nothing was written.")
        raise typer.Exit(1)
