"""Chooses the upstream for a request, and the headers to send there. A client can only name a model, never an address;
a model that nobody serves is refused, never guessed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from itertools import chain

from proxy.auth import holds_client_key
from proxy.config import Config, UpstreamSettings, WireFormat
from proxy.core.memo import memoize
from proxy.errors import ProxyError
from proxy.upstream.http import (
    HOP_BY_HOP,
    ConnectionPool,
    HttpUpstream,
    RawHeaders,
    Upstream,
    connection_header_names,
)
from proxy.upstream.litellm import LitellmUpstream

_DROPPED_HEADERS = HOP_BY_HOP | {b"host", b"content-length", b"expect", b"cookie"}
"""Not sent upstream: framing is made anew, and cookies belong to one origin."""

_CREDENTIAL_HEADERS = frozenset({b"authorization", b"x-api-key", b"api-key"})

MAX_CACHED_ROUTES = 256
"""Cached models and paths."""

ANTHROPIC_VERSION_HEADER = (b"anthropic-version", b"2023-06-01")
"""Required with `x-api-key`; clients of other dialects do not send it."""


class UnknownModel(ProxyError):
    """No configured upstream serves the model."""

    status = 404
    code = "model_not_found"


class DialectNotServed(UnknownModel):
    """The model is served, but not in the requested dialect."""

    code = "dialect_not_served"


@dataclass(frozen=True, slots=True)
class Route:
    """The chosen upstream, and the model name to send there."""

    upstream: Upstream
    model: str


class Routes:
    """The configured upstreams. Raises InvalidConfiguration if one cannot be used on this machine. `via` is what
    requests to upstreams of kind http say of this proxy in `Via`; empty for nothing."""

    def __init__(self, config: Config, *, via: bytes = b"") -> None:
        self._config = config
        self._via = via
        self._pool = ConnectionPool()
        self._cached_choice = memoize(MAX_CACHED_ROUTES)(self._choose)
        self.upstreams = {name: self._create_upstream(name, settings) for name, settings in config.upstreams.items()}

    def _create_upstream(self, name: str, settings: UpstreamSettings) -> Upstream:
        if settings.kind == "litellm":
            return LitellmUpstream(name, settings)
        return HttpUpstream(name, settings, self._pool, self._config.network, via=self._via)

    def warm(self) -> None:
        """Start slow preparations for the first request, without waiting."""
        for upstream in self.upstreams.values():
            upstream.warm()

    def choose(self, model: str | None, path: str = "") -> Route:
        """The route for a model: its own entry, then an upstream's alias, name or glob, then the default; only
        upstreams that speak the dialect of `path` (raw). None stands for a request without a model. Raises
        UnknownModel."""
        return self._cached_choice(model, wire_format_of(path))

    def choose_upstream(self, name: str, model: str, path: str) -> Route:
        """The route for a model to the upstream of this name. Raises UnknownModel where it does not speak the dialect
        of `path`."""
        upstream, spoken = self.upstreams[name], wire_format_of(path)
        if spoken is not None and not _speaks_format(upstream.settings, spoken):
            raise DialectNotServed(f"Upstream {name} is not asked in {spoken}. {_speaks_hint(spoken, name)}")
        return Route(upstream, upstream.settings.upstream_model_of(model))

    def choose_for_endpoint(self, model: str | None, path: str, headers: RawHeaders) -> Route:
        """The route to an endpoint that the proxy does not handle. A client that names Anthropic's version speaks
        messages there too: its key must not go to the vendor of another dialect. Raises UnknownModel."""
        spoken = wire_format_of(path)
        names_version = any(name == ANTHROPIC_VERSION_HEADER[0] for name, _ in headers)
        if spoken is None and names_version and any("messages" in u.settings.speaks for u in self.upstreams.values()):
            spoken = "messages"
        return self._cached_choice(model, spoken)

    def _choose(self, model: str | None, spoken: WireFormat | None) -> Route:
        asked = [upstream for upstream in self.upstreams.values() if _speaks_format(upstream.settings, spoken)]
        if model is None:
            return Route(_default_upstream(self.upstreams, asked) or self._first_upstream(asked, spoken), "")
        exception = self._config.model_settings_of(model)
        wanted = exception.alias or model
        if exception.upstream is not None:
            pinned = self.upstreams[exception.upstream]
            upstream = pinned if pinned in asked else None
        else:
            upstream = _upstream_serving(asked, wanted) or _default_upstream(self.upstreams, asked)
        if upstream is None:
            raise self._unserved_error(model, spoken)
        return Route(upstream, upstream.settings.upstream_model_of(wanted))

    async def aclose(self) -> None:
        for upstream in self.upstreams.values():
            await upstream.aclose()
        await self._pool.aclose()

    def _first_upstream(self, candidates: Sequence[Upstream], spoken: WireFormat | None) -> Upstream:
        if candidates:
            return candidates[0]
        if spoken is not None and self.upstreams:
            raise DialectNotServed(f"No upstream is asked in {spoken}. {_speaks_hint(spoken, 'NAME')}")
        raise UnknownModel("No upstream is configured: start with --upstream URL")

    def _unserved_error(self, model: str, spoken: WireFormat | None) -> UnknownModel:
        """The error for a model without an upstream: unknown, or not served in this dialect."""
        try:
            name = self.choose(model).upstream.name if spoken is not None else ""
        except UnknownModel:
            name = ""
        if spoken is not None and name:
            words = f"The model {model!r} is served by upstream {name}, which is not asked in {spoken}."
            return DialectNotServed(f"{words} {_speaks_hint(spoken, name)}")
        settings = [upstream.settings for upstream in self.upstreams.values()]
        models = {name for one in settings for name in (*one.models, *one.aliases)}
        served = ", ".join(sorted(models)) or "none: start with --upstream URL"
        words = f"The model {model!r} is not served by any configured upstream. Served: {served}"
        return UnknownModel(f"{words}. Ask for one of them, or have the operator add it to the models of an upstream.")


@memoize(MAX_CACHED_ROUTES)
def wire_format_of(path: str) -> WireFormat | None:
    """The dialect of a path or of one below it; None if any upstream will do."""
    parts = path.rstrip("/").split("/")
    if parts[-2:] == ["chat", "completions"]:
        return "chat"
    if "responses" in parts:
        return "responses"
    # OpenAI's assistants keep messages below `/threads`; they are no messages API, and nobody but OpenAI serves them.
    return "messages" if "messages" in parts and "threads" not in parts else None


def _speaks_format(settings: UpstreamSettings, spoken: WireFormat | None) -> bool:
    return spoken is None or spoken in settings.speaks


def _upstream_serving(candidates: Sequence[Upstream], model: str) -> Upstream | None:
    by_alias = (one for one in candidates if model in one.settings.aliases)
    by_name = (one for one in candidates if model in one.settings.models)
    by_glob = (one for one in candidates if any(fnmatchcase(model, glob) for glob in one.settings.models))
    return next(chain(by_alias, by_name, by_glob), None)


def _default_upstream(known: Mapping[str, Upstream], candidates: Sequence[Upstream]) -> Upstream | None:
    """`default`, else the first upstream that lists no models."""
    default = known.get("default")
    if default in candidates:
        return default
    return next((upstream for upstream in candidates if not upstream.settings.models), None)


def _speaks_hint(spoken: WireFormat, name: str) -> str:
    return f"Where it offers that, add {spoken} to upstreams.{name}.speaks; else configure an upstream that does."


def outgoing_headers(
    client: Iterable[tuple[bytes, bytes]], settings: UpstreamSettings, *, readable: bool
) -> RawHeaders:
    """The client's headers to send upstream, in order, names in lower case: without hop-by-hop headers, cookies,
    `x-stack-*` and our own client keys. The operator's key replaces the client's credentials of any dialect. `readable`
    asks for an uncompressed answer; otherwise the client's own choice passes."""
    client = list(client)
    dropped = _header_names_to_drop(keyed=settings.key is not None, readable=readable) | connection_header_names(client)
    headers = [
        (name, value)
        for name, value in client
        if name not in dropped and not name.startswith(b"x-stack-") and not holds_client_key(value)
    ]
    if readable:
        # No header at all means "any coding" (RFC 9110, 12.5.3), and some servers then pack the stream that we read.
        headers.append((b"accept-encoding", b"identity"))
    if settings.key is not None:
        secret = settings.key.get_secret_value()
        shown = f"Bearer {secret}" if settings.key_header == "authorization" else secret
        headers.append((settings.key_header.encode(), shown.encode()))
        # Anthropic answers 400 to a key without a version, and clients of OpenAI's APIs send none.
        if settings.key_header == "x-api-key" and ANTHROPIC_VERSION_HEADER[0] not in dict(headers):
            headers.append(ANTHROPIC_VERSION_HEADER)
    return headers


def without_credentials(client: Iterable[tuple[bytes, bytes]]) -> RawHeaders:
    """The client's headers without the key for a provider, for a request that goes to another one."""
    return [header for header in client if header[0] not in _CREDENTIAL_HEADERS]


@cache
def _header_names_to_drop(*, keyed: bool, readable: bool) -> Set[bytes]:
    """Header names to drop if the operator has a key for the upstream, and if the answer must be readable."""
    return _DROPPED_HEADERS | (_CREDENTIAL_HEADERS if keyed else set()) | ({b"accept-encoding"} if readable else set())
