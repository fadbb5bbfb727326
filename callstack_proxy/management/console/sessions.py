"""Sign-in of the console: signed cookies, and a token against forged forms.

A person comes with the link that `callstack serve` prints, or with a client key. The cookie names the tenant and the
day on which it ends, signed with the store's secret, so it outlasts a restart. The signature covers the hash of the
client key: revoking the key ends its sessions. Signing out ends one, also for whoever has a copy of its cookie: the
ended ones stand in a file. No key and no code stands in a cookie, which a browser also sends to other ports of the
same host.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from callstack_proxy.management.api import OPERATOR_TENANT
from callstack_proxy.management.issued_keys import change_file, replace_file
from proxy.auth import STACK_KEY_HEADER, Headers, Tenant, WatchedFile
from proxy.errors import InvalidConfiguration, Unauthorized
from proxy.operator_token import console_code

SESSION_DAYS = 30
MAX_ENDED = 10_000
"""Sessions that are remembered, those ended last. None goes by the clock: set ahead and back, it would open them."""


class _Claims(msgspec.Struct, array_like=True, frozen=True):
    tenant: str
    name: str
    admin: bool
    ends: int
    """Seconds since the epoch."""
    nonce: str
    """Tells two sessions of one tenant apart."""


_decode_claims = msgspec.json.Decoder(_Claims).decode


class EndedSessions:
    """The sessions that somebody signed out of, with the second since the epoch at which each would have ended. Kept in
    `file`, which every process on the data directory reads anew when it changes."""

    def __init__(self, file: Path) -> None:
        self._place = file
        self._file: WatchedFile[dict[str, int]] = WatchedFile(file, _read_ended, {})

    def has(self, session: str) -> bool:
        """A file that cannot be read leaves nobody signed in."""
        ended = self._file.read()
        return ended is None or session in ended

    def add(self, session: str, ends: int) -> None:
        """Raises InvalidConfiguration if the file cannot be written."""
        with change_file(self._place, "the ended sessions of the console"):
            ended = _read_ended(self._place) if self._place.exists() else {}
            replace_file(self._place, dict([*ended.items(), (session, ends)][-MAX_ENDED:]))


def _read_ended(file: Path) -> dict[str, int]:
    try:
        return msgspec.json.decode(file.read_bytes(), type=dict[str, int])
    except msgspec.MsgspecError:
        raise InvalidConfiguration(f"{file}: the ended sessions cannot be read; remove it, and sign in again") from None


class Sessions:
    """`secret` signs. `tenant_of` finds a tenant by headers, or raises Unauthorized; None where nobody has a key of
    their own (`tenancy: single`). `key_hash` returns the hash of the issued key with a name, empty if there is none."""

    def __init__(
        self,
        secret: bytes,
        operator_token: str,
        tenant_of: Callable[[Headers], Tenant] | None,
        key_hash: Callable[[str], str],
        user_of: Callable[[Headers], Tenant] | None = None,
    ) -> None:
        """`user_of` finds whom a proxy in front has signed in, or raises Unauthorized (`tenancy: header`)."""
        self.ended: EndedSessions | None = None
        """None: signing out only takes the cookie away."""
        self._secret = hmac.digest(secret, b"console", "sha256")
        self._code = console_code(operator_token)
        self._tenant_of = tenant_of
        self._key_hash = key_hash
        self._user_of = user_of

    @property
    def takes_keys(self) -> bool:
        return self._tenant_of is not None

    def with_code(self, code: str) -> Tenant:
        """The operator, for the code of the printed link. Raises Unauthorized."""
        if not self._code or not hmac.compare_digest(code.encode(), self._code.encode()):
            raise Unauthorized(
                "This link is of an earlier start of the proxy, or was cut short. `callstack console` prints a new one."
            )
        return OPERATOR_TENANT

    def with_key(self, key: str) -> Tenant:
        """The tenant of a key. Raises Unauthorized."""
        key = key.strip()
        if self._tenant_of is None:
            raise Unauthorized("This proxy has no client keys. Open the link that `callstack console` prints.")
        if not key:
            raise Unauthorized("Enter your key.")
        return self._tenant_of([(STACK_KEY_HEADER, key.encode("utf-8", "replace"))])

    def with_headers(self, headers: Headers) -> Tenant | None:
        """Whom the proxy in front has signed in, or None."""
        try:
            return self._user_of(headers) if self._user_of is not None else None
        except Unauthorized:
            return None

    def cookie_of(self, tenant: Tenant) -> str:
        ends = int(time.time()) + SESSION_DAYS * 86_400
        claims = _Claims(tenant.id, tenant.name, tenant.admin, ends, secrets.token_hex(8))
        body = base64.urlsafe_b64encode(msgspec.json.encode(claims)).rstrip(b"=")
        return f"{body.decode()}.{self._signature(body, claims)}"

    def end(self, cookie: str) -> None:
        """Sign out: the cookie names nobody any more."""
        claims = self._claims_in(cookie)
        if claims is not None and self.ended is not None:
            self.ended.add(claims.nonce, claims.ends)

    def tenant_in(self, cookie: str) -> Tenant | None:
        """None for a cookie that is not ours, has ended, or whose key was revoked."""
        claims = self._claims_in(cookie)
        if claims is None or (self.ended is not None and self.ended.has(claims.nonce)):
            return None
        return Tenant(claims.tenant, claims.name, claims.admin)

    def _claims_in(self, cookie: str) -> _Claims | None:
        body, _, signature = cookie.partition(".")
        try:
            claims = _decode_claims(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        except (msgspec.MsgspecError, ValueError):
            return None
        expected = self._signature(body.encode(), claims)
        if not expected or not hmac.compare_digest(signature.encode(), expected.encode()) or claims.ends < time.time():
            return None
        return claims

    def form_token(self, cookie: str, tenant: Tenant) -> str:
        """What a form has to send along with this cookie, or from whom the proxy in front has signed in."""
        sender = cookie or f"of {tenant.id}"
        return hmac.new(self._secret, f"form {sender}".encode(), hashlib.sha256).hexdigest()[:32]

    def _signature(self, body: bytes, claims: _Claims) -> str:
        """Empty if the key of the session was revoked."""
        key_hash = self._key_hash(claims.name) if claims.tenant == f"key-{claims.name}" else ""
        if claims.tenant.startswith("key-") and not key_hash:
            return ""
        return hmac.new(self._secret, body + key_hash.encode(), hashlib.sha256).hexdigest()
