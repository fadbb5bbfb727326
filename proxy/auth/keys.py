"""The client keys that we issue: their names, hashes and limits, in a file that every process reads anew when it
changes."""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from proxy.auth.budgets import NO_LIMITS, UsageLimits
from proxy.auth.files import WatchedFile
from proxy.config import Mode
from proxy.errors import InvalidConfiguration

KEY_PREFIX = "csk_"


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


def list_keys(file: Path) -> list[IssuedKey]:
    """The issued keys, oldest first; none if there is no file. Raises InvalidConfiguration if it is unreadable."""
    try:
        return _ISSUED_KEYS.validate_json(file.read_bytes())
    except FileNotFoundError:
        return []
    except (OSError, ValidationError):
        raise InvalidConfiguration(f"{file}: the client keys cannot be read; restore the file or remove it") from None


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
