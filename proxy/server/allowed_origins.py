"""Decides which `Origin` of a request is served: our own, those of desktop applications, and those the operator allows;
and what a browser engine must be told so that such an application may read the answer (CORS).

A web page in a browser has an origin of scheme http, https or null. An application that brings its own browser engine
has a scheme of its own (Obsidian, VS Code, Tauri, Capacitor), which no page can have. Other origins than our own reach
no path of the management API or the console.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

Headers = list[tuple[bytes, bytes]]

_ORIGIN = re.compile(rb"([a-z][a-z0-9+.-]*)://([^/?#@\\\s]*)")
_PAGE_SCHEMES = frozenset(
    {b"http", b"https", b"ws", b"wss", b"ftp", b"file", b"filesystem", b"data", b"blob", b"about", b"javascript"}
    | {b"chrome-extension", b"moz-extension", b"safari-extension", b"safari-web-extension", b"ms-browser-extension"}
    | {b"isolated-app", b"chrome", b"chrome-untrusted", b"devtools", b"edge", b"resource", b"view-source"}
)
"""Schemes of what a browser shows or installs; `allowed_origins` can name one of them."""
_DESKTOP_HOSTS = frozenset({b"tauri.localhost", b"wails.localhost"})
"""Hosts by which Tauri and Wails serve their own pages on Windows."""
_MANAGEMENT_PATHS = ("/stack/", "/console/", "/metrics/")
_PREFLIGHT_MAX_AGE_S = 600


def is_desktop_origin(origin: bytes) -> bool:
    """Whether only a program of this machine can have the origin. In lower case."""
    match = _ORIGIN.fullmatch(origin)
    if match is None:
        return False
    scheme, host = match[1], match[2]
    return scheme not in _PAGE_SCHEMES or (scheme in (b"http", b"https") and host in _DESKTOP_HOSTS)


class AllowedOrigins:
    """`allowed` are origins of the configuration in lower case; `*` stands for any host of a scheme."""

    def __init__(self, allowed: Iterable[str]) -> None:
        self._allowed: Collection[bytes] = frozenset(origin.encode() for origin in allowed)

    def serves(self, origin: bytes, host: bytes, path: str) -> bool:
        """Whether a request for `path` with this `Origin` and `Host` is served."""
        origin = origin.lower()
        if is_own_origin(origin, host):
            return True
        if f"{path}/".startswith(_MANAGEMENT_PATHS):
            return False
        any_host = origin.partition(b"://")[0] + b"://*"
        return origin in self._allowed or any_host in self._allowed or is_desktop_origin(origin)


def is_own_origin(origin: bytes, host: bytes) -> bool:
    return origin.lower() in (b"http://" + host.lower(), b"https://" + host.lower())


def is_preflight(method: str, header_names: Collection[bytes]) -> bool:
    """Whether a browser engine asks if it may send a request."""
    return method == "OPTIONS" and b"access-control-request-method" in header_names


def preflight_headers(origin: bytes, wanted_method: bytes, wanted_headers: bytes, *, private_network: bool) -> Headers:
    """Grants what was asked for: who may ask was decided by the origin."""
    granted = [
        *cross_origin_headers(origin, ()),
        (b"access-control-allow-methods", wanted_method),
        (b"access-control-max-age", b"%d" % _PREFLIGHT_MAX_AGE_S),
    ]
    if wanted_headers:
        granted.append((b"access-control-allow-headers", wanted_headers))
    if private_network:
        granted.append((b"access-control-allow-private-network", b"true"))
    return granted


def cross_origin_headers(origin: bytes, headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """The headers of an answer for another origin: it may read the answer, whatever the provider says of origins."""
    kept = [header for header in headers if not header[0].lower().startswith(b"access-control-")]
    exposed = b", ".join(dict.fromkeys(name for name, _ in kept if name not in (b"set-cookie", b"vary")))
    granted = [(b"access-control-allow-origin", origin), (b"vary", b"origin")]
    return [*kept, *granted, *([(b"access-control-expose-headers", exposed)] if exposed else [])]
