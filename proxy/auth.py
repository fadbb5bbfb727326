"""Finds the tenant of a request, and manages the client keys that we issue. Every request has exactly one tenant or is
refused. `tenancy` says how the tenant is found:

    single       all requests belong to one user
    key          our client key `csk_...` in `x-stack-key`, `Authorization: Bearer` or `x-api-key`; never sent upstream
    credential   keyed hash of the client's provider key; static keys only, because login tokens rotate
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import os
import re
import secrets
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from proxy.config import Mode
from proxy.errors import InvalidConfiguration, Unauthorized

log = logging.getLogger(__name__)

Headers = Iterable[tuple[bytes, bytes]]

STACK_KEY_HEADER = b"x-stack-key"
"""The one header that never goes to a provider."""
KEY_PREFIX = "csk_"
_KEY_PREFIX_BYTES = KEY_PREFIX.encode()
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_JWT = re.compile(rb"eyJ[A-Za-z0-9_-]*\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*")
_ROTATING_TOKEN_PREFIXES = (b"sk-ant-oat", b"ya29.")
"""Prefixes of login tokens (Claude, Google) that are replaced within hours."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """`id` scopes everything stored; `name` is for people; `admin` sees all tenants on `/stack`; `mode` is the default
    mode of its requests (empty: the configuration's)."""

    id: str
    name: str
    admin: bool = False
    mode: str = ""


LOCAL_TENANT = Tenant("local", "local", admin=True)
"""The only tenant with `tenancy: single`."""

ANONYMOUS_TENANT = Tenant("anonymous", "anonymous")
"""With `tenancy: credential`, the tenant of requests without a key."""


class IssuedKey(BaseModel):
    """One client key as stored: its name and hash. The key itself was shown once, when it was issued."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    sha256: str
    created: str
    admin: bool = False
    mode: Mode | None = None


_ISSUED_KEYS = TypeAdapter(list[IssuedKey])


def issue_key(file: Path, name: str, *, admin: bool = False, mode: Mode | None = None) -> str:
    """Creates, stores and returns a new client key. Raises InvalidConfiguration if the name is taken or malformed."""
    if not _NAME.fullmatch(name):
        raise InvalidConfiguration(f"key name {name!r}: use letters, digits, dot, dash and underscore, at most 64")
    keys = list_keys(file)
    if any(key.name == name for key in keys):
        raise InvalidConfiguration(f"key name {name!r} is taken; revoke it first or choose another")
    secret = KEY_PREFIX + secrets.token_urlsafe(32)
    created = datetime.now(UTC).isoformat(timespec="seconds")
    issued = IssuedKey(name=name, sha256=_digest(secret.encode()), created=created, admin=admin, mode=mode)
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
    keys = list_keys(file)
    remaining = [key for key in keys if key.name != name]
    if len(remaining) == len(keys):
        return False
    _write(file, remaining)
    return True


class KeyRing:
    def __init__(self, file: Path) -> None:
        self._file = file
        self._file_version: tuple[int, int, int] | None = None
        self._keys: tuple[IssuedKey, ...] = ()

    def identify(self, presented: bytes) -> IssuedKey | None:
        """The issued key that equals this one, or None. Takes the same time for every key."""
        self._refresh()
        digest = _digest(presented)
        found = None
        for key in self._keys:
            if hmac.compare_digest(key.sha256, digest):
                found = key
        return found

    def hash_of(self, name: str) -> str:
        """The hash of the key with this name, empty if it was never issued or was revoked."""
        self._refresh()
        return next((key.sha256 for key in self._keys if key.name == name), "")

    def _refresh(self) -> None:
        try:
            status = self._file.stat()
            version = (status.st_mtime_ns, status.st_size, status.st_ino)
            if version != self._file_version:
                self._keys = tuple(list_keys(self._file))
            self._file_version = version
        except (OSError, InvalidConfiguration) as error:
            # Fail closed: an unreadable file admits nobody, not even the keys that it held a moment ago.
            if self._keys:
                log.warning(
                    "client keys cannot be read", extra={"file": str(self._file), "reason": type(error).__name__}
                )
            self._keys, self._file_version = (), None


class TenantResolver:
    """Finds the tenant of a request by its headers, as `tenancy:` says."""

    def __init__(self, mode: Literal["single", "key", "credential"], ring: KeyRing, secret: bytes) -> None:
        """`secret` is the store's: tenants of two stores cannot be compared, nor a key guessed from its tenant."""
        self._mode = mode
        self._ring = ring
        self._secret = secret

    def tenant_of(self, headers: Headers) -> Tenant:
        """Raises Unauthorized, whose message says what to send instead."""
        if self._mode == "single":
            return LOCAL_TENANT
        presented = _presented_credentials(headers)
        key = next((value for value in presented if value.startswith(_KEY_PREFIX_BYTES)), None)
        issued = self._ring.identify(key) if key is not None else None
        if issued is not None:
            return Tenant(f"key-{issued.name}", issued.name, issued.admin, issued.mode or "")
        if self._mode == "key" or key is not None:
            raise Unauthorized(
                "This proxy needs a client key of its own (csk_...): send it as Authorization: Bearer, x-api-key or "
                "x-stack-key."
            )
        return self._tenant_by_credential(presented)

    def _tenant_by_credential(self, presented: list[bytes]) -> Tenant:
        if not presented:
            return ANONYMOUS_TENANT
        if any(_is_rotating(credential) for credential in presented):
            raise Unauthorized(
                "This proxy tells its users apart by their API key and needs one that stays the same; this is a "
                "login token or a signature, which changes in mid-conversation. Use a static key, or tenancy: key."
            )
        digest = hmac.new(self._secret, presented[0], hashlib.sha256).hexdigest()[:32]
        return Tenant(f"credential-{digest}", f"credential {digest[:6]}")


def has_operator_token(headers: Headers, token: bytes) -> bool:
    """Whether `x-stack-key` holds the token of this process. An empty token never matches."""
    presented = next((value for name, value in headers if name == STACK_KEY_HEADER), b"")
    return bool(token) and hmac.compare_digest(presented, token)


def console_code(operator_token: str) -> str:
    """The code in the console's link, made from the token of this process; empty without one."""
    if not operator_token:
        return ""
    digest = hmac.digest(operator_token.encode(), b"console link", "sha256")
    return base64.urlsafe_b64encode(digest[:15]).decode()


def holds_client_key(value: bytes) -> bool:
    return _KEY_PREFIX_BYTES in value and _without_bearer(value.strip()).startswith(_KEY_PREFIX_BYTES)


def _presented_credentials(headers: Headers) -> list[bytes]:
    """Credentials of a request: `x-stack-key` first, then `Authorization`, then the key headers of other APIs."""
    by_name: dict[bytes, bytes] = {}
    for name, value in headers:
        by_name.setdefault(name.lower(), value.strip())
    values = [by_name.get(name, b"") for name in (b"x-stack-key", b"authorization", b"x-api-key", b"api-key")]
    return [_without_bearer(value) for value in values if value]


def _without_bearer(value: bytes) -> bytes:
    return value[7:].strip() if value[:7].lower() == b"bearer " else value


def _is_rotating(credential: bytes) -> bool:
    """Whether a credential is a login token or a signature. Any scheme but Bearer and Basic signs the request."""
    if _JWT.fullmatch(credential) or credential.startswith(_ROTATING_TOKEN_PREFIXES):
        return True
    scheme, space, _ = credential.partition(b" ")
    return bool(space) and scheme.lower() != b"basic"


def _digest(key: bytes) -> str:
    # A key has 256 random bits, so a slow hash would protect nothing more.
    return hashlib.sha256(key).hexdigest()


def _write(file: Path, keys: list[IssuedKey]) -> None:
    """Replaces the file atomically, with mode 0600. Raises InvalidConfiguration if that fails."""
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _replace(file, keys)
    except OSError as error:
        raise InvalidConfiguration(f"{file}: the client keys cannot be written: {error.strerror}") from None


def _replace(file: Path, keys: list[IssuedKey]) -> None:
    handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=".keys-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as output:
            json.dump([key.model_dump() for key in keys], output, indent=1)
            output.flush()
            os.fsync(output.fileno())
        Path(temporary).replace(file)
    except BaseException:  # also Ctrl-C: no copy of the keys stays
        Path(temporary).unlink(missing_ok=True)
        raise
