"""The configuration and the store a command works with.

`proxy.yaml` in the current directory is read where no file is named. The commands read the environment only here.
"""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from proxy.cli.output import print_note
from proxy.config import Config, load_config
from proxy.errors import InvalidConfiguration, NotFound, StoreError
from proxy.store import Store, open_store

DEFAULT_FILE = Path("proxy.yaml")

ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="Configuration file; default: proxy.yaml, where there is one.")
]
DataDirectory = Annotated[Path | None, typer.Option("--data", help="Directory of store and keys.")]
AsJson = Annotated[bool, typer.Option("--json", help="As JSON.")]

Result = TypeVar("Result")


def load_settings(
    file: Path | None = None, flags: Mapping[str, object] | None = None, *, asks_upstreams: bool = True
) -> Config:
    """Raises InvalidConfiguration with one line for each fault."""
    return load_config(flags, os.environ, config_file_of(file), asks_upstreams=asks_upstreams)


def config_file_of(named: Path | None) -> Path | None:
    """The configuration file to read, or None where there is none."""
    return named if named is not None else DEFAULT_FILE if DEFAULT_FILE.is_file() else None


def settings_at(file: Path | None, data: Path | None) -> Config:
    """The configuration of a command that does not contact upstreams."""
    return load_settings(file, {"data": str(data) if data else None}, asks_upstreams=False)


def data_flag(settings: Config) -> str:
    """The option that makes a suggested command use the same data directory; empty where none is needed."""
    return "" if settings.data == Config().data else f" --data {shlex.quote(str(settings.data))}"


@asynccontextmanager
async def opened_store(config: Config) -> AsyncIterator[Store]:
    """The store of the data directory, open inside the block. Notes on its file are printed on stderr.

    A damaged file stays where it is; only `serve`, which has to go on, sets it aside. Raises InvalidConfiguration where
    there is no store yet.
    """
    path = config.store_path
    if path is None:
        raise InvalidConfiguration("store: it is kept in memory; ask the running proxy, at /stack")
    if not path.is_file():
        raise InvalidConfiguration(
            f"data: there is no store at {path} yet; run `callstack serve`, or name its directory with --data"
        )
    store = open_store(config.store, config.data, sets_aside=False)
    try:
        await store.start()
        yield store
    except NotFound as error:
        # Most often the data is in another directory, named by `serve --data`.
        raise NotFound(f"{error} Looked in {path}; --data names another directory.") from None
    except StoreError as error:
        if error.code != "store_corrupt":
            raise
        message = (
            f"{error}; {path} was left as it is. Keep a copy: `callstack serve` sets it aside and begins a new one"
        )
        raise StoreError(message, code=error.code) from None
    finally:
        await store.close()
        for note in store.health().notes:
            print_note(note)


def run_async(work: Coroutine[Any, Any, Result]) -> Result:
    return asyncio.run(work)
