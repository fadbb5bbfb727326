"""The client keys that we issue: their names, hashes and limits, in a file that every process reads anew when it
changes."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from proxy.auth.budgets import NO_LIMITS, UsageLimits
from proxy.auth.files import WatchedFile, change_file, replace_file
from proxy.config import Mode
from proxy.errors import InvalidConfiguration

KEY_PREFIX = "csk_"
_WHAT = "the client keys"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class IssuedKey(BaseModel):
    """One client key as stored: its name and hash. The key itself was shown once, when it was issued."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    sha256: str
    created: str
    admin: bool = False
    mode: Mode | None = None
    limits: UsageLimits = NO_LIMITS


_ISSUED_KEYS = TypeAdapter(list[IssuedKey])


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
    with change_file(file, _WHAT):
        keys = list_keys(file)
        if any(key.name == name for key in keys):
            raise InvalidConfiguration(f"key name {name!r} is taken; revoke it first or choose another")
        _write(file, [*keys, issued])
    return secret


def list_keys(file: Path) -> list[IssuedKey]:
    """The issued keys, oldest first; none if there is no file. Raises InvalidConfiguration if it is unreadable."""
    try:
        return _ISSUED_KEYS.validate_json(file.read_bytes())
    except FileNotFoundError:
        return []
    except (OSError, ValidationError):
        raise InvalidConfiguration(f"{file}: the client keys cannot be read; restore the file or remove it") from None


def revoke_key(file: Path, name: str) -> bool:
    """Removes a key; False if no key has that name."""
    with change_file(file, _WHAT):
        keys = list_keys(file)
        remaining = [key for key in keys if key.name != name]
        if len(remaining) < len(keys):
            _write(file, remaining)
    return len(remaining) < len(keys)


def limit_key(file: Path, name: str, limits: UsageLimits) -> bool:
    """Replaces the limits of a key; False if no key has that name."""
    with change_file(file, _WHAT):
        keys = list_keys(file)
        if all(key.name != name for key in keys):
            return False
        _write(file, [key.model_copy(update={"limits": limits}) if key.name == name else key for key in keys])
    return True


def limits_of_key(file: Path, name: str) -> UsageLimits | None:
    """None if no key has that name."""
    return next((key.limits for key in list_keys(file) if key.name == name), None)


class KeyRing:
    """The issued keys as they are now. A file that cannot be read admits nobody."""

    def __init__(self, file: Path) -> None:
        self._file = WatchedFile(file, list_keys)

    def identify(self, presented: bytes) -> IssuedKey | None:
        """The issued key that equals this one, or None. Takes the same time for every key."""
        digest = digest_of(presented)
        found = None
        for key in self._file.read() or ():
            if hmac.compare_digest(key.sha256, digest):
                found = key
        return found

    def hash_of(self, name: str) -> str:
        """The hash of the key with this name, empty if it was never issued or was revoked."""
        return next((key.sha256 for key in self._file.read() or () if key.name == name), "")


def digest_of(key: bytes) -> str:
    # A key has 256 random bits, so a slow hash would protect nothing more.
    return hashlib.sha256(key).hexdigest()


def _write(file: Path, keys: list[IssuedKey]) -> None:
    replace_file(file, [key.model_dump(mode="json", exclude_defaults=True) for key in keys])
