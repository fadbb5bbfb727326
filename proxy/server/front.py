"""The proxy in front that signs people in (`tenancy: header`): only what it sends may name a user."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from starlette.types import Scope

from proxy.config import FrontSettings
from proxy.upstream import RawHeaders


class TrustedFront:
    def __init__(self, settings: FrontSettings) -> None:
        self._header = settings.header.encode()
        self._networks = tuple(ipaddress.ip_network(address) for address in settings.addresses)

    def drop_unsigned_name(self, scope: Scope) -> None:
        """Take the header with the user's name out of a request that did not come from the front."""
        if not self._sent(scope):
            scope["headers"] = self.without_name(scope["headers"])

    def without_name(self, headers: Iterable[tuple[bytes, bytes]]) -> RawHeaders:
        """For the provider, whom our users' names do not concern."""
        return [header for header in headers if header[0].lower() != self._header]

    def _sent(self, scope: Scope) -> bool:
        """`scope` has the peer of the connection; no header of a request changes it."""
        try:
            peer = ipaddress.ip_address((scope.get("client") or ("",))[0])
        except ValueError:  # a socket without an address
            return False
        if isinstance(peer, ipaddress.IPv6Address) and peer.ipv4_mapped is not None:
            peer = peer.ipv4_mapped
        return any(peer in network for network in self._networks)
