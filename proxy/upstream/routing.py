"""Which provider a request goes to, and with which headers.

`Routes.choose` says which configured upstream serves a model in a dialect, `outgoing_headers` what of the client's
headers goes there. The law: **nothing a client sends can name an address**; it can only name a model, and what nobody
serves is refused, never guessed.

How bytes travel there is `transport`'s business, for providers of other shapes `providers`'.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache

from proxy.auth import holds_client_key
from proxy.config.model import Config
from proxy.config.sections import Spoken, UpstreamSettings
from proxy.core.memo import remembered
from proxy.errors import ProxyError
from proxy.upstream.http import HOP_BY_HOP, Answer, HttpUpstream, Pool, RawHeaders, Upstream, named_by_connection
from proxy.upstream.litellm import LitellmUpstream

__all__ = ["Answer", "Pool", "RawHeaders", "Route", "Routes", "UnknownModel", "Upstream", "outgoing_headers"]

_OURS = HOP_BY_HOP | {b"host", b"content-length", b"expect", b"cookie"}
"""Not passed upstream: framing is made anew, and a cookie set by one origin has no business at another."""

_CREDENTIALS = frozenset({b"authorization", b"x-api-key", b"api-key"})

ROUTES = 256
"""Of so many models, and paths, is remembered where they go: a client asks for the same ones all day."""

VERSION = (b"anthropic-version", b"2023-06-01")
"""Who takes a key in `x-api-key` refuses a request without it; clients of other dialects do not send it."""


class UnknownModel(ProxyError):
    """No configured upstream serves the model; answered in the API's own shape, never guessed."""

    status = 404
    code = "model_not_found"


class NotSpoken(UnknownModel):
    """The model is served, but not in the dialect it was asked for in."""

    code = "dialect_not_served"


@dataclass(frozen=True, slots=True)
class Route:
    """Where a request goes, and the model name to send there."""

    upstream: Upstream
    model: str


class Routes:
    """Which upstream serves which model. Raises InvalidConfiguration where one cannot be had on this machine."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._pool = Pool()
        self._chosen = remembered(ROUTES)(self._choose)
        self.upstreams = {name: self._made(name, settings) for name, settings in config.upstreams.items()}

    def _made(self, name: str, settings: UpstreamSettings) -> Upstream:
        if settings.kind == "litellm":
            return LitellmUpstream(name, settings)
        return HttpUpstream(name, settings, self._pool)

    def warm(self) -> None:
        """Begin what takes time before the first request, without waiting for it."""
        for upstream in self.upstreams.values():
            upstream.warm()

    def choose(self, model: str | None, path: str = "") -> Route:
        """By the model's own entry, then an upstream's alias, name, glob, then the default; of those that speak the
        dialect of `path`, which is as the client wrote it. None: a request without a model.

        Raises UnknownModel where nothing fits.
        """
        return self._chosen(model, dialect_of(path))

    def _choose(self, model: str | None, spoken: Spoken | None) -> Route:
        asked = [upstream for upstream in self.upstreams.values() if _speaks(upstream.settings, spoken)]
        if model is None:
            return Route(_fallback(self.upstreams, asked) or self._first(asked, spoken), "")
        exception = self._config.for_model(model)
        wanted = exception.alias or model
        if exception.upstream is not None:
            pinned = self.upstreams[exception.upstream]
            upstream = pinned if pinned in asked else None
        else:
            upstream = _named(asked, wanted) or _fallback(self.upstreams, asked)
        if upstream is None:
            raise self._unserved(model, spoken)
        return Route(upstream, upstream.settings.sent_as(wanted))

    async def aclose(self) -> None:
        """Close all connections to all upstreams."""
        for upstream in self.upstreams.values():
            await upstream.aclose()
        await self._pool.aclose()

    def _first(self, asked: Sequence[Upstream], spoken: Spoken | None) -> Upstream:
        if asked:
            return asked[0]
        if spoken is not None and self.upstreams:
            raise NotSpoken(f"No upstream is asked in {spoken}. {_speak_there(spoken, 'NAME')}")
        raise UnknownModel("No upstream is configured: start with --upstream URL")

    def _unserved(self, model: str, spoken: Spoken | None) -> UnknownModel:
        """Why nobody serves a model: it is not known, or the upstream that has it is not asked in this dialect."""
        try:
            name = self.choose(model).upstream.name if spoken is not None else ""
        except UnknownModel:
            name = ""
        if spoken is not None and name:
            words = f"The model {model!r} is served by upstream {name}, which is not asked in {spoken}."
            return NotSpoken(f"{words} {_speak_there(spoken, name)}")
        served = ", ".join(sorted(self._served())) or "none: start with --upstream URL"
        return UnknownModel(f"The model {model!r} is not served by any configured upstream. Served: {served}")

    def _served(self) -> set[str]:
        settings = [upstream.settings for upstream in self.upstreams.values()]
        return {name for one in settings for name in (*one.models, *one.aliases)}


@remembered(ROUTES)
def dialect_of(path: str) -> Spoken | None:
    """What is spoken at a path, also at those beneath an API's own; None where any upstream may be asked."""
    parts = path.rstrip("/").split("/")
    if parts[-2:] == ["chat", "completions"]:
        return "chat"
    if "responses" in parts:
        return "responses"
    return "messages" if "messages" in parts and "threads" not in parts else None


def _speaks(settings: UpstreamSettings, spoken: Spoken | None) -> bool:
    return spoken is None or spoken in settings.speaks


def _named(asked: Sequence[Upstream], model: str) -> Upstream | None:
    fits = (_by_alias, _by_name, _by_glob)
    return next((one for serves in fits for one in asked if serves(one.settings, model)), None)


def _fallback(known: Mapping[str, Upstream], asked: Sequence[Upstream]) -> Upstream | None:
    """`default`, else the first upstream that lists no models."""
    default = known.get("default")
    if default in asked:
        return default
    return next((upstream for upstream in asked if not upstream.settings.models), None)


def _speak_there(spoken: Spoken, name: str) -> str:
    return f"Where it offers that, add {spoken} to upstreams.{name}.speaks; else configure an upstream that does."


def _by_alias(settings: UpstreamSettings, model: str) -> bool:
    return model in settings.aliases


def _by_name(settings: UpstreamSettings, model: str) -> bool:
    return model in settings.models


def _by_glob(settings: UpstreamSettings, model: str) -> bool:
    return any(fnmatchcase(model, glob) for glob in settings.models)


def outgoing_headers(
    client: Iterable[tuple[bytes, bytes]], settings: UpstreamSettings, *, readable: bool
) -> RawHeaders:
    """The client's headers as they go upstream, in order. Names are in lower case, as ASGI has them.

    Left out: what belongs to the connection, cookies, everything named `x-stack-*`, and client keys of ours. The
    operator's key replaces the client's credentials of any dialect. `readable` asks for an uncompressed answer, for us
    to look into; otherwise the client's own wish passes.
    """
    client = list(client)
    dropped = _dropped(keyed=settings.key is not None, readable=readable) | named_by_connection(client)
    headers = [
        (name, value)
        for name, value in client
        if name not in dropped and not name.startswith(b"x-stack-") and not holds_client_key(value)
    ]
    if readable:
        headers.append((b"accept-encoding", b"identity"))
    if settings.key is not None:
        secret = settings.key.get_secret_value()
        shown = f"Bearer {secret}" if settings.key_header == "authorization" else secret
        headers.append((settings.key_header.encode(), shown.encode()))
        if settings.key_header == "x-api-key" and VERSION[0] not in dict(headers):
            headers.append(VERSION)
    return headers


@cache
def _dropped(*, keyed: bool, readable: bool) -> Set[bytes]:
    """Names of a client's headers that stay here: where the operator has a key for the upstream, and where we ask for
    an answer to look into."""
    return _OURS | (_CREDENTIALS if keyed else set()) | ({b"accept-encoding"} if readable else set())
