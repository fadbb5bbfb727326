"""How providers are reached from this network: through which HTTP proxy, and which certificates are trusted.

The certificates are those of the system (by the platform's own store on macOS and Windows), those of the configuration
and of `SSL_CERT_FILE` and `NODE_EXTRA_CA_CERTS`. Settings that cannot be used are logged and passed over, because the
environment may have been made for other programs.
"""

from __future__ import annotations

import base64
import ipaddress
import logging
import ssl
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import truststore
from yarl import URL

from proxy.config import NetworkSettings, is_loopback

log = logging.getLogger(__name__)

_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class ForwardProxy:
    """An HTTP proxy on the way to a provider. `url` is without name and password, which are in `headers`: those that
    only the proxy gets."""

    url: URL
    headers: Mapping[str, str]


def proxy_for(upstream: str, configured: str | None, network: NetworkSettings) -> ForwardProxy | None:
    """The proxy to the provider at a URL. `configured` is the upstream's own: None leaves it to the network's settings,
    an empty text means none. A provider on this machine is reached directly, unless the proxy is here too."""
    if configured is not None:
        return _parse_proxy(configured) if configured else None
    url = URL(upstream)
    named = network.https_proxy if url.scheme == "https" else network.http_proxy
    if named is None or not named.get_secret_value().strip():
        return None
    host, port = url.host or "", url.port or _DEFAULT_PORTS[url.scheme]
    if is_excepted(host, port, network.no_proxy):
        return None
    proxy = _parse_proxy(named.get_secret_value().strip())
    if proxy is None:
        log.warning("a proxy of the network settings is passed over: it is no http:// or https:// URL")
    elif is_loopback(host) and not is_loopback(proxy.url.host or ""):
        return None
    return proxy


def _parse_proxy(text: str) -> ForwardProxy | None:
    try:
        url = URL(text if "://" in text else f"http://{text}")
        if url.scheme not in _DEFAULT_PORTS or not url.host:
            return None
    except ValueError:
        return None
    headers = {}
    if url.user:
        credentials = base64.b64encode(f"{url.user}:{url.password or ''}".encode())
        headers["Proxy-Authorization"] = f"Basic {credentials.decode()}"
    return ForwardProxy(url.with_user(None).with_path("/"), headers)


def is_excepted(host: str, port: int, exceptions: Iterable[str]) -> bool:
    """Whether a host is in NO_PROXY: by `*`, its name or a domain above it, its address or network, each with or
    without a port."""
    host = host.strip("[]").rstrip(".").lower()
    return any(_is_named(host, port, exception.strip().lower()) for exception in exceptions)


def _is_named(host: str, port: int, exception: str) -> bool:
    if exception == "*":
        return True
    if "/" in exception or (exception.count(":") > 1 and not exception.startswith("[")):
        return _is_in_network(host, exception)
    name, colon, wanted = exception.rpartition(":") if not exception.endswith("]") else (exception, "", "")
    if colon and wanted.isdigit():
        if int(wanted) != port:
            return False
        exception = name
    exception = exception.strip("[]").removeprefix("*").rstrip(".")
    domain = exception.lstrip(".")
    return bool(domain) and (host == domain or host.endswith(f".{domain}"))


def _is_in_network(host: str, network: str) -> bool:
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False


def trusting_context(ca_files: Sequence[Path]) -> ssl.SSLContext:
    """Trusts the system's certificates and those in `ca_files`."""
    context = _system_context()
    for file in ca_files:
        try:
            context.load_verify_locations(cafile=file)
        except (OSError, ssl.SSLError) as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            log.warning("certificates are passed over", extra={"file": str(file), "reason": reason})
    context.set_alpn_protocols(["http/1.1"])
    return context


def _system_context() -> ssl.SSLContext:
    paths = ssl.get_default_verify_paths()
    if sys.platform not in ("darwin", "win32") and (paths.cafile or paths.capath):
        return ssl.create_default_context()
    # The platform's own store; elsewhere the places of other distributions, for a Python that was built on one.
    return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
