"""Issues and revokes client keys, and sets limits of keys and users: what an operator changes in the two files that the
proxy reads anew when they change. Raises InvalidConfiguration if a file cannot be read or written."""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from proxy.auth import (
    KEY_PREFIX,
    NO_LIMITS,
    IssuedKey,
    UsageLimits,
    UserLimits,
    digest_of,
    is_user_name,
    list_keys,
    read_user_limits,
)
from proxy.config import Mode
from proxy.errors import InvalidConfiguration

_KEYS, _LIMITS = "the client keys", "the limits of users"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def issue_key(
    file: Path, name: str, *, admin: bool = False, mode: Mode | None = None, limits: UsageLimits | None = None
) -> str:
    """Creates, stores and returns a new client key. Raises InvalidConfiguration if the name is taken or malformed."""
    if not _NAME.fullmatch(name):
        raise InvalidConfiguration(f"key name {name!r}: use letters, digits, dot, dash and underscore, at most 64")
    secret = KEY_PREFIX + secrets.token_urlsafe(32)
    created = datetime.now(UTC).isoformat(timespec="seconds")
    issued = IssuedKey(
        name=name,
        sha256=digest_of(secret.encode()),
        created=created,
        admin=admin,
        mode=mode,
        limits=limits or NO_LIMITS,
    )
    with change_file(file, _KEYS):
        keys = list_keys(file)
        if any(key.name == name for key in keys):
            raise InvalidConfiguration(f"key name {name!r} is taken; revoke it first or choose another")
        _write_keys(file, [*keys, issued])
    return secret


def revoke_key(file: Path, name: str) -> bool:
    """Removes a key; False if no key has that name."""
    with change_file(file, _KEYS):
        keys = list_keys(file)
        remaining = [key for key in keys if key.name != name]
        if len(remaining) < len(keys):
            _write_keys(file, remaining)
    return len(remaining) < len(keys)


def limit_key(file: Path, name: str, limits: UsageLimits) -> bool:
    """Replaces the limits of a key; False if no key has that name."""
    with change_file(file, _KEYS):
        keys = list_keys(file)
        if all(key.name != name for key in keys):
            return False
        _write_keys(file, [key.model_copy(update={"limits": limits}) if key.name == name else key for key in keys])
    return True


def limits_of_key(file: Path, name: str) -> UsageLimits | None:
    """None if no key has that name."""
    return next((key.limits for key in list_keys(file) if key.name == name), None)


def _write_keys(file: Path, keys: list[IssuedKey]) -> None:
    replace_file(file, [key.model_dump(mode="json", exclude_defaults=True) for key in keys])


def limit_everybody(file: Path, limits: UsageLimits) -> None:
    with change_file(file, _LIMITS):
        _write_limits(file, read_user_limits(file).model_copy(update={"everybody": limits}))


def limit_user(file: Path, name: str, limits: UsageLimits) -> None:
    """Gives a user limits of their own. Raises InvalidConfiguration for a name that no user can have."""
    if not is_user_name(name):
        raise InvalidConfiguration(f"user {name!r}: a name is one word of printable ASCII, of at most 128 characters")
    with change_file(file, _LIMITS):
        before = read_user_limits(file)
        _write_limits(file, before.model_copy(update={"users": {**before.users, name: limits}}))


def reset_user(file: Path, name: str) -> bool:
    """From now on the user has the limits of everybody. False if they had none of their own."""
    with change_file(file, _LIMITS):
        before = read_user_limits(file)
        others = {user: limits for user, limits in before.users.items() if user != name}
        if name in before.users:
            _write_limits(file, before.model_copy(update={"users": others}))
    return name in before.users


def _write_limits(file: Path, limits: UserLimits) -> None:
    replace_file(file, limits.model_dump(mode="json", exclude_defaults=True))


@contextmanager
def change_file(file: Path, what: str) -> Iterator[None]:
    """The block reads `file` and replaces it, while no other thread or process does. Raises InvalidConfiguration if it
    cannot be written; `what` says what the file holds."""
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = os.open(file.parent, os.O_RDONLY | os.O_CLOEXEC)  # the file itself is another one with each change
        try:
            with suppress(OSError):  # some file systems have no locks
                fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)
    except OSError as error:
        raise InvalidConfiguration(f"{file}: {what} cannot be written: {error.strerror}") from None


def replace_file(file: Path, content: object) -> None:
    """Writes `content` as JSON in place of the file, at once and with mode 0600. Raises OSError."""
    handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=f".{file.stem}-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as output:
            json.dump(content, output, indent=1)
            output.flush()
            os.fsync(output.fileno())
        Path(temporary).replace(file)
    except BaseException:  # also Ctrl-C: no copy stays
        Path(temporary).unlink(missing_ok=True)
        raise
