"""The ASGI application: routes requests to exchanges, stored responses, `/health`, `/metrics`, what is mounted at
`/stack` and `/console`, or unchanged to the upstream; and starts and stops the services. A second task watches the
connection of each request and cancels the request when its client leaves."""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import os
import re
import resource
import secrets
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace
from starlette.types import Message, Receive, Scope, Send

from proxy import __version__
from proxy.accounting import Accountant, TokenCounter
from proxy.auth import (
    BudgetChecks,
    Headers,
    KeyRing,
    LimitedRequest,
    Tenant,
    TenantResolver,
    UsageLimits,
    WatchedUserLimits,
    check_models,
    has_operator_token,
    holder_of,
)
from proxy.config import Config
from proxy.config.runtime import LiveSettings, pattern_faults
from proxy.core.matching import RETRY_WINDOW_MS
from proxy.dialects import DIALECTS, OPENAI_RESPONSES, dialect_at, raw_json
from proxy.errors import Forbidden, NotFound, OtherUser, Overloaded, ProxyError, StoreError, Unauthorized
from proxy.exchange import (
    AppServices,
    AsgiReply,
    CacheKeepAlive,
    ClientRequest,
    DeferredTasks,
    IdleTracker,
    InFlight,
    OwnRequests,
    Reply,
    RequestRecordBuilder,
    Services,
    build_frame_embedder,
    build_services,
    build_summarizer,
    delete_expired_forever,
    is_compaction_endpoint,
    learned_traits,
    load_plans,
    names_in,
    on_idle,
    passthrough_without_turn,
    pipeline,
    send_error_response,
    stored_responses,
)
from proxy.operator_token import proof_of
from proxy.server.body_room import BodyRoom
from proxy.server.compressed_requests import decompress_request, refuse_unread_coding
from proxy.server.front import TrustedFront
from proxy.server.guard import RequestGuard, log_refusal
from proxy.server.metered_answers import Meter, Metering
from proxy.server.other_apis import other_api_of, refuse_other_api
from proxy.server.peer_user import Peer, user_of_peer
from proxy.server.replica_news import ReplicaNews
from proxy.server.runner import OTHER_USER_KEY
from proxy.server.running_app import BuildMounted, Doors, Endpoints, Mounted, RenderMetrics, RunningApp
from proxy.server.upstream_loop import new_hop
from proxy.store import ConversationCache, Store
from proxy.store.sql import open_store
from proxy.telemetry import EventBus, Metrics, health_view
from proxy.upstream import ContextWindows, RawHeaders, Routes

log = logging.getLogger(__name__)

Header = tuple[bytes, bytes]

READ_UNASKED_BYTES = 64 * 1024
"""A larger body is read only if the budget of its key is not spent."""
CHECKED_APART_BYTES = 1 << 20
"""Bodies from this size are checked against the limits of their key in a thread."""
JOINED_APART_BYTES = 8 << 20
"""The pieces of a body from this size are joined in a thread."""
HELD_BODY_BYTES = 1 << 20
"""Bodies from this size are counted while they are answered: of those that came plain, and of those that unpacked."""
HELD_TIMES = 4
"""How many times what may be read at one time they may take together."""
OWN_PATHS = frozenset({"/", "/stack", "/console", "/health", "/metrics"})
OWN_PREFIXES = ("/stack/", "/console/")
GREETING = f"callstack-proxy {__version__}\n".encode()
_CHALLENGE = re.compile(rb"challenge=([0-9a-f]{16,128})")
ROOT_USER = 0
"""It can read the data anyway."""
_OTHER_USER_WORDS = (
    "This proxy is of another user of this machine. Send its token as x-stack-key: it is in server.json of the data "
    "directory. The operator can open /stack to every user with stack_access: all."
)
_OTHER_USERS_KEY_WORDS = (
    "This proxy is of another user of this machine, and your requests would spend the key of its operator. Run a proxy "
    "of your own, or ask the operator for a client key (tenancy: key) or to share the key with every user (key_access: "
    "all)."
)
LAG_INTERVAL_S = 0.5
SHUTDOWN_GRACE_S = 1.0
"""How long cancelled requests may record their outcome."""


def _descriptor_is_free() -> bool:
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno not in (errno.EMFILE, errno.ENFILE)
    return True


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def _is_console(path: str) -> bool:
    """Whether a path belongs to the console, which has a sign-in of its own."""
    return f"{path}/".startswith("/console/")


NO_DOORS = Doors()


def build_app(config: Config, *, operator_token: str = "", doors: Doors = NO_DOORS) -> App:
    return App(config, operator_token, doors)


class App:
    """The ASGI application. `draining` is set when no new request should come."""

    def __init__(self, config: Config, operator_token: str, doors: Doors = NO_DOORS) -> None:
        self.config = config
        self.draining = False
        self._started_at = 0
        self._token = operator_token
        self._store: Store = open_store(config.store, config.data)
        self._counter = TokenCounter()
        hop = new_hop()
        self._routes = Routes(config, via=hop)
        self._services: dict[str, Services] = {}
        self._endpoints: Endpoints | None = None
        self._tenancy: TenantResolver | None = None
        self._key_ring = KeyRing(config.keys_path)
        keyed = any(upstream.key is not None for upstream in config.upstreams.values())
        self._guards_keys = config.tenancy == "single" and config.key_access == "own" and keyed
        self._user_limits = WatchedUserLimits(config.users_path)
        self._front = TrustedFront(config.front) if config.tenancy == "header" else None
        self._doors = doors
        self._running: RunningApp
        self._mounted_task: asyncio.Task[Mounted] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self.metrics = Metrics()
        self.event_bus = EventBus()
        self.deferred_tasks = DeferredTasks()
        self._cached_count: Callable[[], int] = lambda: 0
        if config.otel.endpoint and doors.open_tracer is not None:
            self.event_bus.tracer = doors.open_tracer(config.otel, self.metrics.count_spans)
        self._budgets = BudgetChecks(self._store, now_ms)
        self._metering = Metering(config, self._store, self._budgets, self.deferred_tasks.run_pending)
        room = max(config.bodies_limit_bytes, config.body_limit_bytes)
        parts = 1 if config.tenancy == "single" else 2  # a tenant takes half of each
        self._read_bodies = BodyRoom(room, max(room // parts, config.body_limit_bytes))
        self._held_bodies = BodyRoom(HELD_TIMES * room, HELD_TIMES * room // parts)
        self._guard = RequestGuard(self._handle_request, config, self.metrics.count_refusal, hop)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._run_lifespan(receive, send)
        else:
            await self._guard(scope, receive, send)

    # ------------------------------------------------------------------------------------------------------- lifespan
    async def _run_lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self.start()
        except ProxyError as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        try:
            await receive()
        finally:  # who ends at once cancels this
            await self.stop()
        await send({"type": "lifespan.shutdown.complete"})

    async def start(self) -> None:
        """Open the store and build the services. Without a store, requests pass through without context management."""
        secret = await self._open_store()
        self._warn_of_ignored_settings()
        self._started_at = now_ms()
        live = await self._load_live_settings()
        idling = IdleTracker(
            lambda: live.subagent.idle_delay / 1000,
            time.monotonic,
            lambda *owner: bool(flights.in_conversation(*owner)),
        )
        flights = InFlight(lambda tenant, at: idling.start_resting(tenant, at, conversations.parent_of(tenant, at)))
        conversations = ConversationCache(
            self._store,
            ask_until=await self._newest_conversation_time() + RETRY_WINDOW_MS,
            told=self.event_bus.publish_ledger_events,
        )
        process = self._build_app_services(secret, live, conversations, flights)
        await load_plans(self._store, process.accountant.plans, self._started_at)
        self._services = {dialect.name: build_services(process, dialect) for dialect in DIALECTS.values()}
        if self._doors.build_endpoints is not None:
            self._endpoints = self._doors.build_endpoints(process)
        self._tenancy = TenantResolver(self.config.tenancy, self._key_ring, secret, self.config.front)
        self._running = RunningApp(
            services=process,
            tenant_of=self.tenant_of,
            hash_of_key=self._key_ring.hash_of,
            learned_traits=partial(learned_traits, process, tuple(self._services.values())),
            is_draining=lambda: self.draining,
            started=self._started_at,
            operator_token=self._token,
        )
        self._cached_count = lambda: conversations.conversation_count
        self._routes.warm()
        lasting = [self._counter.preload(), self._measure_loop_lag(), self._watch_descriptors()]
        lasting += [delete_expired_forever(self._store, self.config.retention_days, now_ms)]
        lasting += [ReplicaNews(self._store, self.event_bus, flights, live).listen_forever()]
        lasting += [self._budgets.renew_forever()]
        lasting += [on_idle(idling, conversations, self.event_bus, live, now_ms), live.refresh_forever()]
        lasting += [process.summarizer.run()] if process.summarizer else []
        lasting += [process.cache_keep_alive.run()] if process.cache_keep_alive else []
        lasting += [process.frame_embedder.run()] if process.frame_embedder else []
        if self.config.events_file and self._doors.write_events is not None:
            lasting += [self._doors.write_events(self.event_bus, self.config.data)]
        self._tasks = [asyncio.create_task(work) for work in lasting]

    def _build_app_services(
        self, secret: bytes, live: LiveSettings, conversations: ConversationCache, flights: InFlight
    ) -> AppServices:
        accountant = Accountant(now_ms, self._counter.name, self.config.tariff_of)
        own_requests = OwnRequests(conversations, self._store, accountant, self.metrics, now_ms, _new_request_id)
        keep_alive = CacheKeepAlive(
            self.config.cache_keep_alive, own_requests, counts_usage=self.config.tenancy != "single"
        )
        return AppServices(
            config=self.config,
            live_settings=live,
            store=self._store,
            conversation_cache=conversations,
            routes=self._routes,
            counter=self._counter,
            context_windows=ContextWindows(time.monotonic, self.config.tariff_of),
            accountant=accountant,
            secret=secret,
            now=now_ms,
            new_id=lambda: secrets.token_hex(16),
            metrics=self.metrics,
            event_bus=self.event_bus,
            in_flight=flights,
            deferred_tasks=self.deferred_tasks,
            summarizer=build_summarizer(self.config, self._routes, own_requests, self._counter),
            cache_keep_alive=keep_alive if self.config.cache_keep_alive.pings else None,
            frame_embedder=build_frame_embedder(self.config, self._routes, self._store),
            draw_map=self._doors.draw_map_for(self.config) if self._doors.draw_map_for else None,
        )

    def _warn_of_ignored_settings(self) -> None:
        for name in self.config.unknown_heuristics:
            log.warning("no such heuristic; it counts nothing", extra={"key": "enabled_heuristics", "named": name[:80]})
        for fault in pattern_faults(self.config.subagent):
            log.warning("a pattern is passed over", extra={"key": "subagent.patterns", "reason": fault})

    async def _load_live_settings(self) -> LiveSettings:
        live = LiveSettings(self.config.subagent, self._store, now_ms)
        with suppress(StoreError):  # the store stands aside; what was set holds once it can be read
            await live.refresh()
        return live

    async def _open_store(self) -> bytes:
        """Returns the store's secret; without a store, one for this process."""
        try:
            await self._store.start()
            for note in self._store.health().notes:
                log.warning("store opened, with a word about it", extra={"note": note})
            return await self._store.secret()
        except StoreError as error:
            words = {"reason": error.code, "cause": str(error)}
            log.error("store cannot be opened; requests pass without us", extra=words)  # noqa: TRY400 - one line says it
            return secrets.token_bytes(32)

    async def _newest_conversation_time(self) -> int:
        """Start of the newest stored conversation, ms since the epoch; 0 if there is none."""
        try:
            newest = await self._store.conversations(None, limit=1)
        except StoreError:
            return 0
        return newest[0].created if newest else 0

    async def _watch_descriptors(self) -> None:
        """Say when the process has no file descriptor left: the library then closes new connections without a word."""
        were_free = True
        while True:
            are_free = _descriptor_is_free()
            if were_free and not are_free:
                self.metrics.descriptor_exhaustions += 1
                limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
                hint = {"stack_limit": limit, "stack_hint": "raise `ulimit -n`, or use fewer connections"}
                log.error("no file descriptor is free; new connections are closed", extra=hint)
            elif are_free and not were_free:
                log.warning("file descriptors are free again")
            were_free = are_free
            await asyncio.sleep(LAG_INTERVAL_S)

    async def _measure_loop_lag(self) -> None:
        """Measure how late a timer fires: that is how long the event loop was blocked."""
        while True:
            due = time.perf_counter() + LAG_INTERVAL_S  # the loop's own clock stands still while something keeps it
            await asyncio.sleep(LAG_INTERVAL_S)
            self.metrics.lag.observe(max(0.0, time.perf_counter() - due))

    async def stop(self) -> None:
        """Wait until cancelled requests are recorded, then write everything to disk: their tokens were paid for."""
        with suppress(TimeoutError):
            async with asyncio.timeout(SHUTDOWN_GRACE_S):
                while self.metrics.open_requests:  # noqa: ASYNC110 - once in the life of a process
                    await asyncio.sleep(0.001)
        self.deferred_tasks.run_pending()  # what listens to this is among the tasks
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._routes.aclose()
        self.deferred_tasks.run_pending()  # what the cancelled tasks have left, before the store closes
        if self.event_bus.tracer is not None:
            await self.event_bus.tracer.close()
        await self._store.close()

    def tenant_of(self, headers: Headers) -> Tenant:
        if self._tenancy is None:
            raise ProxyError("not started")
        return self._tenancy.tenant_of(headers)

    def refuses_unread(self, target: bytes, headers: RawHeaders) -> ProxyError | None:
        """Why a request with a body is refused by its headers alone, or None: it brings no client key where one is
        needed. The connection asks before it keeps a byte of the body. A web page gets its answer further on, where it
        may read it."""
        told = dict(headers)
        if self.config.tenancy != "key" or b"origin" in told or target.startswith(b"/console"):
            return None
        if b"transfer-encoding" not in told and told.get(b"content-length", b"0").strip() == b"0":
            return None
        if has_operator_token(headers, self._token.encode()):
            return None
        try:
            self.tenant_of(headers)
        except ProxyError as error:
            # Its frames would hold what the connection has read, until the garbage is collected.
            return error.with_traceback(None) if isinstance(error, Unauthorized) else None
        return None

    def is_other_user(self, client: tuple[str, int] | None, server: tuple[str, int | None] | None) -> bool:
        """Whether the other end of a connection is a program of another user of this machine, and a key of an upstream
        could be spent for it. Asked once for each connection, because the system's table is long."""
        if not self._guards_keys or client is None or server is None or server[1] is None:
            return False
        user = user_of_peer(client, (server[0], server[1]))
        return isinstance(user, int) and user not in (ROOT_USER, os.getuid())

    # ------------------------------------------------------------------------------------------------------- requests
    async def _handle_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        if self._front is not None:
            self._front.drop_unsigned_name(scope)
        if (path in OWN_PATHS or path.startswith(OWN_PREFIXES)) and await self._answer_own_path(scope, receive, send):
            return
        request, reply = _new_request_id(), AsgiReply(send)
        try:
            if scope.get(OTHER_USER_KEY) and not has_operator_token(scope["headers"], self._token.encode()):
                raise OtherUser(_OTHER_USERS_KEY_WORDS)
            tenant = self.tenant_of(scope["headers"])
            limits = self._limits_of(tenant)
            if _announced_size(scope["headers"]) > READ_UNASKED_BYTES:
                await self._metering.refuse_spent(tenant.id, limits)
        except ProxyError as error:
            if _announced_size(scope["headers"]):
                raise  # answered by `RequestGuard`: the client is still sending
            await self._send_refusal(request, reply, error, path)
            return
        body = await self._read_body(receive, tenant)
        if body is None:
            return
        try:
            client_request = self._client_request(request, tenant, limits, scope, body)
            client_request = await decompress_request(client_request, self.config)
            await self._answer(path, client_request, tenant, receive, reply)
        except Overloaded:
            raise  # answered by `RequestGuard`, which says when to come again
        except ProxyError as error:
            await self._send_refusal(request, reply, error, path)
        except Exception:  # behind this is only `RequestGuard`: a client waits, and silence is no answer
            log.exception("request failed", extra={"request": request})
            words = "The proxy failed on this request; its log says why. Send it again."
            await self._send_refusal(request, reply, ProxyError(words), path)

    async def _answer(
        self, path: str, client_request: ClientRequest, tenant: Tenant, receive: Receive, reply: AsgiReply
    ) -> None:
        """Answer a request that is read. Raises ProxyError."""
        size = len(client_request.body)
        with self._held_bodies.taken(size if size >= HELD_BODY_BYTES else 0, tenant.id):
            meter = await self._admit(tenant, self._limits_of(tenant), client_request)
            self.metrics.open_requests += 1
            try:
                if meter is None:
                    work = self._dispatch(path, client_request, reply)
                else:  # figures can be read only in a plain answer
                    headers = [header for header in client_request.headers if header[0] != b"accept-encoding"]
                    headers.append((b"accept-encoding", b"identity"))
                    plain = replace(client_request, headers=headers, reserve_round=meter.reserve_round)
                    work = self._dispatch(path, plain, meter.around(reply))
                await _run_until_disconnect(work, receive, reply)
            finally:
                self.metrics.open_requests -= 1
                if meter is not None:
                    meter.settle()

    async def _read_body(self, receive: Receive, tenant: Tenant) -> bytes | None:
        """The whole body; None if the client left before its end. Raises Overloaded."""
        pieces: list[bytes] = []
        size = 0
        try:
            while (message := await receive())["type"] != "http.disconnect":
                piece = message.get("body", b"")
                self._read_bodies.take(len(piece), tenant.id)
                size += len(piece)
                pieces.append(piece)
                if not message.get("more_body", False):
                    return await _join_pieces(pieces)
            return None
        finally:
            self._read_bodies.give_back(size, tenant.id)

    async def _answer_own_path(self, scope: Scope, receive: Receive, send: Send) -> bool:
        """Answer a request to the proxy itself. Returns whether it was one; otherwise it is for the upstream."""
        path, method, reply = scope["path"], scope["method"], AsgiReply(send)
        looks = method in ("GET", "HEAD")
        if path == "/health" and looks:
            await self._send_health(scope, reply, body=method == "GET")
        elif path == "/metrics" and looks and self._doors.load_metrics_page is not None:
            await self._send_metrics(scope, reply, self._doors.load_metrics_page)
        elif path == "/" and looks:
            await _send_response(reply, 200, b"text/plain", GREETING, body=method == "GET")
        elif path == "/":
            return False
        elif not _is_console(path) and not self._may_manage(scope):
            await self._send_refusal(_new_request_id(), reply, Unauthorized(_OTHER_USER_WORDS))
        elif self._doors.build_mounted is None:
            await self._send_refusal(
                _new_request_id(),
                reply,
                NotFound("This proxy has no management API. Ask one that `callstack serve` started."),
            )
        else:
            self.deferred_tasks.run_pending()  # a view shows what the requests before it have left to be booked
            mounted = await self._mounted(self._doors.build_mounted)
            management = mounted.console if _is_console(path) else mounted.stack
            await management(scope, receive, self._with_logged_refusals(send, signs_in=_is_console(path)))
        return True

    def _may_manage(self, scope: Scope) -> bool:
        """Whether `/stack` is open to a client. With client keys those decide; without, every user of the machine
        reaches the port, and the token of this process lies in a file that only its own user can read."""
        access = self.config.stack_access
        if self.config.tenancy != "single" or access == "all" or not self._token:
            return True
        if has_operator_token(scope["headers"], self._token.encode()):
            return True
        if access == "token" or not (scope.get("client") and scope.get("server")):
            return False
        user = user_of_peer(tuple(scope["client"]), tuple(scope["server"]))
        return user in (Peer.UNKNOWN, ROOT_USER, os.getuid())

    async def _send_refusal(self, request: str, reply: AsgiReply, error: ProxyError, path: str = "") -> None:
        keeper = next(iter(self._services.values())).recorder
        record = RequestRecordBuilder(keeper, request, "", time.perf_counter(), "", "", "error", error.code)
        record.finish(error.status)
        await send_error_response(reply, error, record.headers(), dialect_at(path))

    async def _send_health(self, scope: Scope, reply: AsgiReply, *, body: bool) -> None:
        """Answered without the management API, which is built on first use: probes ask every process. A challenge is
        answered with a proof that this process has the token in `server.json`."""
        told, status = health_view(self._store, self._started_at, self._counter.name, draining=self.draining)
        named = self._record_refusal("draining", status) if self.draining else []
        if self._token and (asked := _CHALLENGE.fullmatch(scope["query_string"])) and scope.get("server"):
            proof = proof_of(self._token, asked[1].decode(), *scope["server"])
            named = [*named, (b"x-stack-proof", proof.encode())]
        await _send_response(reply, status, b"application/json", msgspec.json.encode(told), *named, body=body)

    async def _send_metrics(self, scope: Scope, reply: AsgiReply, load_page: Callable[[], RenderMetrics]) -> None:
        """For operators only, because the figures cover all tenants."""
        try:
            if not (
                has_operator_token(scope["headers"], self._token.encode()) or self.tenant_of(scope["headers"]).admin
            ):
                raise Forbidden("These figures are of all tenants. Send a key that was issued with --admin.")
        except ProxyError as error:
            await self._send_refusal(_new_request_id(), reply, error)
            return
        render = await asyncio.to_thread(load_page)
        self.deferred_tasks.run_pending()  # the figures have every request that is answered
        kind, page = render(self.metrics, self._store.health(), self._cached_count(), self._started_at)
        await _send_response(reply, 200, kind, page, body=scope["method"] == "GET")

    def _with_logged_refusals(self, send: Send, *, signs_in: bool) -> Send:
        """`signs_in`: a 401 is the page that asks who somebody is, and no error."""

        async def telling(message: Message) -> None:
            asks_who = signs_in and message["type"] == "http.response.start" and message["status"] == 401
            if message["type"] == "http.response.start" and message["status"] >= 400 and not asks_who:
                word = dict(message["headers"]).get(b"x-stack-status", b"error; reason=proxy_error").decode()
                named = self._record_refusal(word.partition("reason=")[2], message["status"])
                headers = [header for header in message["headers"] if header[0] != b"x-stack-status"]
                message = {**message, "headers": [*headers, *named]}
            await send(message)

        return telling

    def _record_refusal(self, reason: str, status: int) -> RawHeaders:
        self.metrics.count_refusal(reason)
        return log_refusal(reason, status)

    async def _mounted(self, build: BuildMounted) -> Mounted:
        """Built on first use in a thread, because FastAPI costs 30 MB and 0.3 s. Shielded from a client that leaves."""
        if self._mounted_task is None:
            self._mounted_task = asyncio.create_task(asyncio.to_thread(build, self._running))
        return await asyncio.shield(self._mounted_task)

    def _limits_of(self, tenant: Tenant) -> UsageLimits:
        return tenant.limits if self._front is None else self._user_limits.of(tenant.name)

    async def _admit(self, tenant: Tenant, limits: UsageLimits, asked: ClientRequest) -> Meter | None:
        """Raises ModelNotAllowed, UnreadableCoding and the errors of budgets; else the request may go."""
        if not limits.has_budget and not limits.models:
            return None
        refuse_unread_coding(asked)
        limited = LimitedRequest(asked.method, asked.path, asked.query, asked.body, asked.headers)
        if limits.models and len(asked.body) >= CHECKED_APART_BYTES:
            await asyncio.to_thread(check_models, limits, limited, holder_of(tenant.id))
        elif limits.models:
            check_models(limits, limited, holder_of(tenant.id))
        return await self._metering.admit(tenant.id, limits, limited)

    def _client_request(
        self, request: str, tenant: Tenant, limits: UsageLimits, scope: Scope, body: bytes
    ) -> ClientRequest:
        headers: RawHeaders = scope["headers"]
        if self._front is not None:
            headers = self._front.without_name(headers)
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        path = raw.split(b"?", 1)[0].decode("latin-1")
        return ClientRequest(
            request,
            tenant.id,
            scope["method"],
            path,
            scope["query_string"],
            headers,
            body,
            tenant.mode,
            limits.slash_commands == "on",
            limits.models,
        )

    async def _dispatch(self, path: str, client_request: ClientRequest, reply: Reply) -> None:
        if self._endpoints is not None and self._endpoints.answers(client_request.method, client_request.path):
            await self._endpoints.handle(client_request, reply)
            return
        dialect = dialect_at(path)
        if dialect is not None and client_request.method == "POST":
            await pipeline.handle(self._services[dialect.name], client_request, reply)
            return
        if is_compaction_endpoint(client_request.method, client_request.path):
            await pipeline.handle(self._services[OPENAI_RESPONSES.name], client_request, reply)
            return
        if stored_responses.is_stored_response_request(client_request.method, client_request.path):
            await stored_responses.handle_stored_response(self._services[OPENAI_RESPONSES.name], client_request, reply)
            return
        if (api := other_api_of(path)) is not None:
            host = dict(client_request.headers).get(b"host", b"").decode("latin-1")
            refuse_other_api(api, self._routes.choose(None, client_request.path).upstream.settings.url, host)
        await stored_responses.refuse_anothers_names(self._services[OPENAI_RESPONSES.name], client_request)
        some = next(iter(self._services.values()))
        model = await _model_of(client_request.body)
        await passthrough_without_turn.pass_through(some, client_request, reply, model)


def _new_request_id() -> str:
    return "r" + secrets.token_hex(10)


async def _model_of(body: bytes) -> str | None:
    if len(body) >= CHECKED_APART_BYTES:
        return (await names_in(body))[0]
    try:
        named = raw_json.parse(raw_json.members(body).get("model", b"null"))
    except raw_json.JsonSplitError:
        return None
    return named if isinstance(named, str) else None


def _announced_size(headers: RawHeaders) -> float:
    """Bytes of the body that a client is about to send; infinite where it says none before."""
    told = dict(headers)
    return math.inf if b"transfer-encoding" in told else int(told.get(b"content-length", b"0"))


async def _join_pieces(pieces: list[bytes]) -> bytes:
    """60 MB take 20 ms and more, in which Python lets others run."""
    if sum(map(len, pieces)) < JOINED_APART_BYTES:
        return b"".join(pieces)
    return await asyncio.to_thread(b"".join, pieces)


async def _run_until_disconnect(work: Coroutine[None, None, None], receive: Receive, reply: AsgiReply) -> None:
    """Run `work`. When the client leaves, cancel it and wait until it has cleaned up."""
    watcher = asyncio.create_task(_cancel_on_disconnect(asyncio.current_task(), receive, reply))
    try:
        await work
    except asyncio.CancelledError:
        if not reply.client_left:
            raise
        if (task := asyncio.current_task()) is not None:
            task.uncancel()
    finally:
        watcher.cancel()


async def _cancel_on_disconnect(task: asyncio.Task[Any] | None, receive: Receive, reply: AsgiReply) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    reply.client_left = True
    if task is not None:
        task.cancel()


async def _send_response(reply: AsgiReply, status: int, kind: bytes, text: bytes, *more: Header, body: bool) -> None:
    await reply.start(status, [(b"content-type", kind), (b"content-length", str(len(text)).encode()), *more])
    await reply.end(text if body else b"")
