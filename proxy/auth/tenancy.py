"""Finds the tenant of a request. Every request has exactly one tenant or is refused. `tenancy` says how the tenant is
found:

    single       all requests belong to one user
    key          our client key `csk_...` in `x-stack-key`, `Authorization: Bearer` or `x-api-key`; never sent upstream
    header       the name that the proxy in front wrote into `front.header`; the server takes it from nobody else
    credential   keyed hash of the client's provider key; static keys only, because login tokens rotate
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from proxy.auth.budgets import NO_LIMITS, USER_TENANT_PREFIX, UsageLimits
from proxy.auth.keys import KEY_PREFIX, KeyRing
from proxy.config import FrontSettings
from proxy.errors import Unauthorized

Headers = Iterable[tuple[bytes, bytes]]

STACK_KEY_HEADER = b"x-stack-key"
"""The one header that never goes to a provider."""
_KEY_PREFIX_BYTES = KEY_PREFIX.encode()
_USER = re.compile(rb"[!-~]{1,128}")
_JWT = re.compile(rb"eyJ[A-Za-z0-9_-]*\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*")
_ROTATING_TOKEN_PREFIXES = (b"sk-ant-oat", b"ya29.")
"""Prefixes of login tokens (Claude, Google) that are replaced within hours."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """`id` scopes everything stored; `name` is for people; `admin` sees all tenants on `/stack`; `mode` is the default
    mode of its requests (empty: the configuration's). `limits` are those of a client key."""

    id: str
    name: str
    admin: bool = False
    mode: str = ""
    limits: UsageLimits = NO_LIMITS


LOCAL_TENANT = Tenant("local", "local", admin=True)
"""The only tenant with `tenancy: single`."""

ANONYMOUS_TENANT = Tenant("anonymous", "anonymous")
"""With `tenancy: credential`, the tenant of requests without a key."""


def tenant_of_key(name: str) -> str:
    """The id under which everything of a client key is stored."""
    return f"key-{name}"


def tenant_of_user(name: str) -> str:
    """The id under which everything of a user is stored whom a proxy in front names."""
    return f"{USER_TENANT_PREFIX}{name}"


def is_user_name(name: str) -> bool:
    return bool(_USER.fullmatch(name.encode("utf-8", "replace")))


def name_of_tenant(tenant: str) -> str:
    """What people call the tenant with this id."""
    kind, _, name = tenant.partition("-")
    return {"key": name, "user": name, "credential": f"credential {name[:6]}"}.get(kind, tenant)


class TenantResolver:
    """Finds the tenant of a request by its headers, as `tenancy:` says."""

    def __init__(
        self,
        mode: Literal["single", "key", "header", "credential"],
        ring: KeyRing,
        secret: bytes,
        front: FrontSettings | None = None,
    ) -> None:
        """`secret` is the store's: tenants of two stores cannot be compared, nor a key guessed from its tenant."""
        self._mode = mode
        self._ring = ring
        self._secret = secret
        self._front = front or FrontSettings()

    def tenant_of(self, headers: Headers) -> Tenant:
        """Raises Unauthorized, whose message says what to send instead."""
        if self._mode == "single":
            return LOCAL_TENANT
        if self._mode == "header":
            return self._tenant_of_user(headers)
        presented = _presented_credentials(headers)
        key = next((value for value in presented if value.startswith(_KEY_PREFIX_BYTES)), None)
        issued = self._ring.identify(key) if key is not None else None
        if issued is not None:
            return Tenant(tenant_of_key(issued.name), issued.name, issued.admin, issued.mode or "", issued.limits)
        if key is not None:
            raise Unauthorized(
                "This proxy does not know the client key that was sent: it was revoked, it is not whole, or another "
                "proxy issued it. Ask whoever runs the proxy for a new one (callstack key add NAME)."
            )
        if self._mode == "key":
            raise Unauthorized(
                "This proxy needs a client key of its own (csk_...): send it as Authorization: Bearer, x-api-key or "
                "x-stack-key."
            )
        return self._tenant_by_credential(presented)

    def _tenant_of_user(self, headers: Headers) -> Tenant:
        wanted = self._front.header.encode()
        names = [value for name, value in headers if name.lower() == wanted]
        if len(names) != 1 or not _USER.fullmatch(names[0]):
            raise Unauthorized(
                f"This proxy takes its users from the proxy in front of it, which writes their name into "
                f"{self._front.header}, and this request has no such name, or came another way. Use the address of the "
                "one in front; if this is it, list where it sends from under front.addresses."
            )
        name = names[0].decode()
        return Tenant(tenant_of_user(name), name, name in self._front.admins)

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
