"""Recognizes an upstream that is this proxy itself: at the start by its address, and at run time by the `Via` header
that requests upstream carry (RFC 9110 section 7.6.3), also where another name or a server in between hides it."""

from __future__ import annotations

import secrets
import socket
from urllib.parse import urlsplit

from proxy.config import Config
from proxy.errors import InvalidConfiguration, LoopDetected

_DEFAULT_PORTS = {"http": 80, "https": 443}


def new_hop() -> bytes:
    """The value of `Via` for one process: a name that nobody else has."""
    return b"1.1 callstack-" + secrets.token_hex(6).encode()


def refuse_loop(hop: bytes, via: bytes) -> None:
    """Raises LoopDetected if a request with these values of `Via` has passed here before."""
    if hop and hop.partition(b" ")[2] in via:
        raise LoopDetected(
            "This request has passed through this proxy before: an upstream leads back to it. Set the url of the "
            "upstream to the provider's address."
        )


def refuse_own_upstreams(config: Config, listener: socket.socket) -> None:
    """Raises InvalidConfiguration if an upstream or its proxy is the address that `listener` is bound to."""
    for name, settings in config.upstreams.items():
        for key, url in (("url", settings.url), ("proxy", settings.proxy)):
            if url and _leads_here(url, listener, config.host):
                raise InvalidConfiguration(
                    f"upstreams.{name}.{key}: {url} is this proxy itself; name the address of the provider, and point "
                    "the clients at this one"
                )


def _leads_here(url: str, listener: socket.socket, own_name: str) -> bool:
    parts = urlsplit(url)
    bound, port = listener.getsockname()[:2]
    if (parts.port or _DEFAULT_PORTS.get(parts.scheme)) != port:
        return False
    host = (parts.hostname or "").rstrip(".")
    if host in {own_name.strip("[]").lower(), socket.gethostname().lower()}:
        return True
    if host == "localhost" or host.endswith(".localhost"):
        return _is_loopback_or_any(bound)
    return any(_is_reached(address, bound) for address in _numeric_addresses(host))


def _numeric_addresses(host: str) -> list[str]:
    """The addresses that a host is written as; none for a name, which would have to be looked up."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except OSError:
        return []
    return [str(address[0]) for *_, address in found]


def _is_reached(address: str, bound: str) -> bool:
    address, bound = address.removeprefix("::ffff:"), bound.removeprefix("::ffff:")
    if address == bound:
        return True
    if address in _ANY:
        return _is_loopback_or_any(bound)
    return bound in _ANY and _is_of_this_machine(address)


_ANY = frozenset({"0.0.0.0", "::"})  # noqa: S104 - addresses to recognise, not to bind


def _is_loopback_or_any(address: str) -> bool:
    return address in _ANY or address == "::1" or address.startswith("127.")


def _is_of_this_machine(address: str) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True
