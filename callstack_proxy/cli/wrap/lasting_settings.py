"""What `callstack on` writes into the settings of an agent so that it always asks the proxy, and how `off` undoes it.

What was written is noted in the folder `on` of the data directory: the file as it was (a copy of its own, for the user
too), a hash of what was written, and each value with what stood there before. A file that is as we left it gets its old
bytes back; from one that somebody has changed since, only our values leave. Files are replaced atomically and keep
their mode; a symbolic link stays one.
"""

from __future__ import annotations

import json
import os
import stat
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from pydantic import BaseModel, ValidationError

from callstack_proxy.cli.wrap import agents
from callstack_proxy.cli.wrap.agents import Launch
from callstack_proxy.cli.wrap.own_settings import OwnProvider, Surroundings
from callstack_proxy.cli.wrap.settings_text import (
    JSON,
    TOML,
    CannotChange,
    Format,
    Keys,
    set_value,
    text_at,
    unset_value,
    value_at,
)
from proxy.errors import InvalidConfiguration

FOLDER = "on"
"""In the data directory."""
NEW_FILE_MODE = 0o600


@dataclass(frozen=True, slots=True)
class LastingSettings:
    """The file that an agent reads, and the values that make it ask the proxy."""

    path: Path
    form: Format
    values: Mapping[Keys, str]


# -------------------------------------------------------------------------------------------------- what agents read
def claude(launch: Launch) -> LastingSettings:
    """Measured: the section `env` of settings.json wins over the environment."""
    path = launch.around.path("CLAUDE_CONFIG_DIR", ".claude") / "settings.json"
    return LastingSettings(path, JSON, {("env", key): value for key, value in agents.claude(launch).environ.items()})


def codex(launch: Launch) -> LastingSettings:
    """Measured: the same keys as on its command line. The provider keeps its name, and with it the user's sessions."""
    path = launch.around.path("CODEX_HOME", ".codex") / "config.toml"
    keys = ("model_providers", launch.own.name, "base_url") if launch.own.entry else ("openai_base_url",)
    return LastingSettings(path, TOML, {keys: launch.url})


def opencode(launch: Launch) -> LastingSettings:
    """Measured, as the content of a variable: all its files have one form."""
    folder = launch.around.path("XDG_CONFIG_HOME", ".config") / "opencode"
    names = ("opencode.jsonc", "opencode.json", "config.json")
    path = next((folder / name for name in names if os.path.lexists(folder / name)), folder / "opencode.json")
    urls = {"openai": launch.url, "anthropic": f"{launch.origin}/v1"}
    if launch.own.name not in urls and launch.own.entry:
        urls[launch.own.name] = launch.url
    return LastingSettings(path, JSON, {("provider", name, "options", "baseURL"): url for name, url in urls.items()})


def pi(launch: Launch) -> LastingSettings:
    """From its documentation of models.json, "Overriding Built-in Providers"."""
    path = launch.around.path("PI_CODING_AGENT_DIR", ".pi", "agent") / "models.json"
    urls = {"openai": launch.url, "anthropic": launch.origin}
    if launch.own.name not in urls and launch.own.entry:
        urls[launch.own.name] = launch.url
    return LastingSettings(path, JSON, {("providers", name, "baseUrl"): url for name, url in urls.items()})


def grok(launch: Launch) -> LastingSettings:
    """Measured: what it reads where its variable is not set."""
    return LastingSettings(launch.around.home / ".grok" / "user-settings.json", JSON, {("baseURL",): launch.url})


LASTING: Mapping[str, Callable[[Launch], LastingSettings]] = {
    "claude": claude,
    "codex": codex,
    "opencode": opencode,
    "pi": pi,
    "grok": grok,
}
"""Agents whose address one settings file can set for good. The others have `callstack wrap`."""


def is_used(name: str, around: Surroundings) -> bool:
    """Whether the agent has left a folder of settings in the home."""
    folders = {
        "claude": around.path("CLAUDE_CONFIG_DIR", ".claude"),
        "codex": around.path("CODEX_HOME", ".codex"),
        "opencode": around.path("XDG_CONFIG_HOME", ".config") / "opencode",
        "pi": around.path("PI_CODING_AGENT_DIR", ".pi", "agent"),
        "grok": around.home / ".grok",
    }
    return folders[name].is_dir()


# ------------------------------------------------------------------------------------------------------ what is noted
class Change(BaseModel):
    """A value that was set; `before` is what stood there, None for nothing."""

    keys: list[str]
    value: str
    before: str | None


class Note(BaseModel):
    """What `on` did for an agent. `path` is the file itself, behind any link; `existed` says whether it was there,
    `folders` are those that were made for it, the innermost first. `openai` and `anthropic` are what it asked before;
    empty for an API that it does not speak."""

    agent: str
    path: str
    toml: bool
    existed: bool
    folders: list[str]
    written: str
    changes: list[Change]
    openai: str = ""
    anthropic: str = ""

    @property
    def form(self) -> Format:
        return TOML if self.toml else JSON

    @property
    def addresses(self) -> Sequence[str]:
        """Those of the proxy that were set."""
        return [change.value for change in self.changes if "://" in change.value]


@dataclass(frozen=True, slots=True)
class Writing:
    """What is about to be written into a file."""

    note: Note
    before: bytes
    text: str


def plan_on(name: str, wanted: LastingSettings, own: OwnProvider) -> Writing:
    """Raises InvalidConfiguration where the file cannot be changed."""
    path = Path(os.path.realpath(wanted.path))
    before = _read(name, path)
    try:
        text = (before or b"").decode("utf-8")
        changes = []
        for keys, value in wanted.values.items():
            old = text_at(wanted.form, text, keys)
            if old != value:
                text = set_value(wanted.form, text, keys, value)
                changes.append(Change(keys=list(keys), value=value, before=old))
    except (CannotChange, UnicodeDecodeError) as error:
        raise InvalidConfiguration(f"{name}: {path} is left as it is: {error}; mend it, or use `wrap`") from None
    folders = [str(each) for each in path.parents if not each.exists()]
    written = sha256(text.encode()).hexdigest()
    note = Note(
        agent=name,
        path=str(path),
        toml=wanted.form is TOML,
        existed=before is not None,
        folders=folders,
        written=written,
        changes=changes,
        openai="" if name == "claude" else own.openai,
        anthropic="" if name == "codex" else own.anthropic,
    )
    return Writing(note, before or b"", text)


def _read(name: str, path: Path) -> bytes | None:
    """None where there is no such file. Raises InvalidConfiguration."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InvalidConfiguration(f"{name}: {path} cannot be read: {error.strerror}; nothing was written") from None


def switch_on(data: Path, writing: Writing) -> None:
    """Keeps the copy and the note first, so that nothing is changed that cannot be undone. Raises
    InvalidConfiguration."""
    note, path = writing.note, Path(writing.note.path)
    if _read(note.agent, path) != (writing.before if note.existed else None):
        raise InvalidConfiguration(
            f"{note.agent}: {path} has changed since its lines were shown, so nothing was written into it; say "
            f"`callstack on {note.agent}` again"
        )
    try:
        (data / FOLDER).mkdir(mode=0o700, parents=True, exist_ok=True)
        _replace(copy_of(data, note), writing.before)
        _replace(_note_file(data, note.agent), note.model_dump_json(indent=2).encode())
        path.parent.mkdir(parents=True, exist_ok=True)
        _replace(path, writing.text.encode())
    except OSError as error:
        for ours in (_note_file(data, note.agent), copy_of(data, note)):
            with suppress(OSError):
                ours.unlink()
        raise InvalidConfiguration(
            f"{note.agent}: {error.filename or path} cannot be written: {error.strerror}; its settings are as before"
        ) from None


def switch_off(data: Path, note: Note, usual: Path) -> str:
    """Undoes what is noted, and says in a few words how. `usual` is where the agent looks now: behind a link that leads
    elsewhere since, our values leave too. Raises InvalidConfiguration where it cannot."""
    path, other = Path(note.path), Path(os.path.realpath(usual))
    now = _read(note.agent, path)
    elsewhere = _read(note.agent, other) if other != path else None
    at, words = other, []
    try:
        if elsewhere is not None and (kept := _without_ours(elsewhere, note).encode()) != elsewhere:
            _replace(other, kept)
            words.append(f"our values left {other}")
        at = path
        if now is None:
            words.append(f"its settings file is gone{'' if words else ', so nothing was left to undo'}")
        elif sha256(now).hexdigest() == note.written:
            _restore(path, note, copy_of(data, note).read_bytes())
            words.append("as before, byte for byte")
        else:
            _replace(path, _without_ours(now, note).encode())
            words.append("our values left, what you changed since stayed")
    except (CannotChange, UnicodeDecodeError) as error:
        raise InvalidConfiguration(
            f"{note.agent}: {at} was changed since, and is left as it is: {error}. Take out "
            f"{', '.join('.'.join(change.keys) for change in note.changes)} yourself; the file of before is "
            f"{copy_of(data, note)}. Then say `callstack off {note.agent}` again"
        ) from None
    except OSError as error:
        raise InvalidConfiguration(
            f"{note.agent}: {error.filename or at} cannot be written: {error.strerror}; it is still on"
        ) from None
    copy = copy_of(data, note)
    if now is None and note.existed and copy.exists():
        copy = copy.replace(copy.with_name(f"{copy.name}.kept"))  # under its own name the next `on` would replace it
        words.append(f"the file of before: {copy}")
    else:
        copy.unlink(missing_ok=True)
    _note_file(data, note.agent).unlink(missing_ok=True)
    return "; ".join(words)


def _restore(path: Path, note: Note, before: bytes) -> None:
    if note.existed:
        _replace(path, before)
        return
    path.unlink()
    with suppress(OSError):  # something else is in it by now
        for folder in note.folders:
            Path(folder).rmdir()


def _without_ours(now: bytes, note: Note) -> str:
    """A value that is not ours any more is the user's."""
    text = now.decode("utf-8")
    for change in note.changes:
        keys = tuple(change.keys)
        if value_at(note.form, text, keys) == change.value:
            text = unset_value(note.form, text, keys, change.before)
    return text


def is_standing(note: Note) -> bool:
    """Whether the file still has all our values."""
    try:
        text = Path(note.path).read_text(encoding="utf-8")
        return all(value_at(note.form, text, tuple(each.keys)) == each.value for each in note.changes)
    except (OSError, UnicodeDecodeError, CannotChange):
        return False


def read_notes(data: Path) -> Mapping[str, Note]:
    """By agent. Raises InvalidConfiguration for a note that cannot be read."""
    found = {}
    for name in LASTING:
        file = _note_file(data, name)
        try:
            found[name] = Note.model_validate_json(file.read_bytes())
        except FileNotFoundError:
            continue
        except (OSError, ValidationError):
            raise InvalidConfiguration(
                f"{name}: {file} cannot be read, so what was set is not known; look into the settings of {name}, and "
                "delete that file"
            ) from None
    return found


def copy_of(data: Path, note: Note) -> Path:
    """The file as it was before."""
    return data / FOLDER / f"{note.agent}-{Path(note.path).name}"


def _note_file(data: Path, agent: str) -> Path:
    return data / FOLDER / f"{agent}.note"


def _replace(path: Path, content: bytes) -> None:
    """Writes a file as a whole or not at all; with the mode and the owner that it had."""
    try:
        had = path.stat()
    except FileNotFoundError:
        had = None
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "wb") as output:
            output.write(content)
            output.flush()
            os.fsync(output.fileno())
        Path(temporary).chmod(stat.S_IMODE(had.st_mode) if had else NEW_FILE_MODE)
        if had and (had.st_uid, had.st_gid) != (os.getuid(), os.getgid()):
            with suppress(PermissionError):
                os.chown(temporary, had.st_uid, had.st_gid)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def shown(change: Change) -> str:
    """A change as a line to look at. What is shown of an address has no user and no password."""
    scheme, _, rest = (change.before or "").rpartition("//")
    before = "" if change.before is None else f"   (was {scheme}{'//' if scheme else ''}{rest.rpartition('@')[2]})"
    return f"  {'.'.join(change.keys)} = {json.dumps(change.value)}{before}"
