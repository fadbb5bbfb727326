"""Other models for a request that its own model refuses for load, or for length: the names in `fallbacks`, in order,
as long as no byte of an answer came.

Another model gets the same context, frames and notes included, without the reasoning of another maker, which it would
refuse. A client key that may ask for some models only is held to them here too, and another provider never gets the
key that the client sent for the first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase

from msgspec.structs import replace

from proxy.accounting import family_of
from proxy.dialects import ParseCache, RenderOptions, raw_json
from proxy.errors import UpstreamError
from proxy.exchange.rounds.client_request import ClientRequest, Services
from proxy.upstream import Answer, Route, UnknownModel, is_busy, note_rest, outgoing_headers, without_credentials

log = logging.getLogger(__name__)


class Fallbacks:
    """The other routes of one request. `asked` is the client's name of the model; `switched` hears which route answers
    in place of the first."""

    def __init__(
        self,
        services: Services,
        client_request: ClientRequest,
        route: Route,
        asked: str,
        switched: Callable[[Route], None],
    ) -> None:
        self._parts = services
        self._client_request = client_request
        self._first = self.route = route
        """The route in use is `route`: once another one has answered, later rounds go there."""
        self._asked = asked
        self._switched = switched
        own = services.config.model_settings_of(asked).fallbacks if asked else ()
        self._names = own or route.upstream.settings.fallbacks

    def __bool__(self) -> bool:
        return bool(self._names)

    @property
    def is_switched(self) -> bool:
        return self.route is not self._first

    @property
    def is_by_other_maker(self) -> bool:
        """Whether the route in use leads to a model of another maker than the first."""
        return family_of(self.route.model) != family_of(self._first.model)

    async def send(self, body: bytes, *, readable: bool) -> Answer:
        """The answer of the route in use; where that is busy or cannot be reached, of the next one that takes the
        request, and if none does its own. Raises UpstreamError."""
        failure: UpstreamError | None = None
        got: Answer | None = None
        try:
            got = await self._send_to(self.route, body, readable=readable)
            if not is_busy(got.status):
                return got
        except UpstreamError as error:
            failure = error
        if (other := await self.send_to_next(body, readable=readable)) is not None:
            if got is not None:
                await got.aclose()
            return other
        if got is None:
            raise failure or AssertionError("there is an answer or an error")
        return got

    async def send_to_next(self, body: bytes, *, readable: bool) -> Answer | None:
        """The answer of the next route that takes the request; None where there is none."""
        for route in self._routes_behind():
            fields = {"request": self._client_request.id, "upstream": route.upstream.name, "model": route.model}
            try:
                got = await self._send_to(route, body, readable=readable)
            except UpstreamError as error:
                log.warning("a fallback does not answer", extra={**fields, "reason": error.code})
                continue
            if got.status < 300:
                log.warning("another model answers (fallbacks)", extra=fields)
                self.route = route
                self._switched(route)
                return got
            log.warning("a fallback refuses too", extra={**fields, "status": got.status})
            await got.aclose()
        return None

    def _routes_behind(self) -> Iterator[Route]:
        """The routes behind the one in use, in order."""
        routes = [self._first, *filter(None, map(self._route_of, self._names))]
        used = [(each.upstream.name, each.model) for each in routes].index((self.route.upstream.name, self.route.model))
        seen = {(each.upstream.name, each.model) for each in routes[: used + 1]}
        for route in routes[used + 1 :]:
            if (key := (route.upstream.name, route.model)) not in seen:
                seen.add(key)
                yield route

    def _route_of(self, name: str) -> Route | None:
        """The route to an upstream's name, with the same model, or to a model's; None where the client may not ask for
        it, or nobody serves it in this dialect."""
        routes, path, allowed = self._parts.routes, self._client_request.path, self._client_request.allowed_models
        try:
            if name in routes.upstreams:
                return routes.choose_upstream(name, self._asked, path)
            if allowed and not any(fnmatchcase(name, pattern) for pattern in allowed):
                return None
            return routes.choose(name, path)
        except UnknownModel as error:
            log.warning("a fallback is not served", extra={"model": name, "reason": error.code})
            return None

    async def _send_to(self, route: Route, body: bytes, *, readable: bool) -> Answer:
        request, settings = self._client_request, route.upstream.settings
        headers = request.headers
        if route is not self._first:
            body = self._body_for(route, body)
            if route.upstream is not self._first.upstream:
                headers = without_credentials(headers)
        sent = outgoing_headers(headers, settings, readable=readable)
        got = await route.upstream.send(request.method, request.path, request.query, sent, body)
        note_rest(route.upstream, got, self._parts.now())
        return got

    def _body_for(self, route: Route, body: bytes) -> bytes:
        """A body that was made for the first route, for another one."""
        dialect = self._parts.dialect
        if family_of(route.model) != family_of(self._first.model):
            request = dialect.parse_request(body, ParseCache())
            bare = tuple(m if m.role != "assistant" else dialect.without_reasoning(m) for m in request.messages)
            if bare != request.messages:
                head = [m.wire for m in request.head]
                request = replace(request, fields={**request.fields, "model": raw_json.encode(route.model)})
                return b"".join(dialect.render(request, bare, head, RenderOptions(include_usage=False)))
        return raw_json.join_object({**raw_json.members(body), "model": raw_json.encode(route.model)})
