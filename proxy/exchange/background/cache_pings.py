"""The optional cache keep-alive: pings the provider while a client pauses, so that its prompt cache does not expire.

`begin_pause` notes what was sent last on a thread, and `end_pause` that its client is back. `run` sends that again for
an answer of a token or so, shortly before the provider's cache would expire: where `cache_pauses` says that it pays,
where the conversation has saved as much as the ping costs, and only with a key given for it. A ping that finds nothing
in the cache is the last of its pause. Each has a receipt. No request waits for one or fails by it, keys stay in memory,
and no content is logged.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import msgspec

from proxy.accounting import HOUR, KEEP_ALIVE_STATUS, PING_SHARE, HashedChain, Receipt, ping_cost, pings_that_pay
from proxy.config import CacheKeepAliveSettings
from proxy.core.ledger import Usage
from proxy.core.memo import keep_newest
from proxy.dialects import Dialect, usage_of
from proxy.errors import ProxyError, UpstreamUnreachable
from proxy.exchange.background.own_requests import OwnRequest, OwnRequests, Place, read_bounded
from proxy.exchange.background.recorder import usage_record_of
from proxy.upstream import RawHeaders, Upstream, is_resting, note_rest, outgoing_headers

log = logging.getLogger(__name__)

CONSENT_HEADER = (b"x-stack-cache-keep-alive", b"on")
"""With it a client gives the key of a request for the pings of the pause behind it."""
IDEMPOTENCY_HEADER = b"idempotency-key"
"""A ping is another request."""
CHECK_INTERVAL_S = 0.25
TIMEOUT_S = 25.0
"""Seconds that one ping may take: a cache of five minutes lives for 30 more."""
MAX_ANSWER_BYTES = 1 << 18
MAX_HELD_BYTES = 64 << 20
"""Bytes of requests that are held for pings. Of more, those that were sent first get none."""
MAX_BALANCES = 10_000
"""Conversations of which the saving is known, the longest unused go first."""
MIN_CACHED_SHARE = 0.5
"""Of a prompt that was read from the cache or written to it. Less means that little of it is kept."""
MAX_MISSES = 3
"""Pings of a model in a row that were refused or found nothing. It gets none from then on."""
KEEPS_CACHE, FINDS_NOTHING, REFUSED = "kept", "cold", "refused"
PROVIDER_RESTS = "resting"
"""The provider wants to be left alone until a time that has not come: nothing is sent, and the pause is over."""

ThreadKey = tuple[str, str, str]
"""Tenant, conversation and thread."""


class SentRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What was sent last on a thread, and where. `headers` are the client's; `sent_at` is ms since the epoch."""

    tenant: str
    entry_id: str
    dialect: Dialect
    upstream: Upstream
    path: str
    query: bytes
    headers: RawHeaders
    body: bytes
    chain: HashedChain
    sent_at: int
    entries: int
    """Of the conversation, when the answer had been stored. More of them mean that it went on, here or elsewhere."""
    waits_for_tools: bool
    """The answer made calls: its client comes back when they have run."""
    user_messages: int
    is_delegated: bool
    """It is a subagent's, whose client does not come back to it after its last words."""


@dataclass
class _Pause:
    request: SentRequest
    receipt: Receipt
    step_ms: float
    """From a use of the cache to the next ping."""
    allowed: int
    prompt_tokens: int
    """As the provider counts them."""
    sent: int = 0

    @property
    def key(self) -> ThreadKey:
        return self.request.tenant, self.receipt.conversation, self.receipt.thread

    @property
    def place(self) -> Place:
        receipt, request = self.receipt, self.request
        where = (request.tenant, receipt.conversation, receipt.thread, receipt.mode, request.entry_id, receipt.frame)
        return Place(*where, receipt.client)

    @property
    def model(self) -> tuple[str, str]:
        return self.receipt.upstream, self.receipt.model


@dataclass
class CacheKeepAlive:
    """One per process."""

    settings: CacheKeepAliveSettings
    own_requests: OwnRequests
    counts_usage: bool = False
    """Whether what each tenant uses is added up, by the day."""
    _pauses: OrderedDict[ThreadKey, _Pause] = field(default_factory=OrderedDict, init=False)
    _held_bytes: int = field(default=0, init=False)
    _balances: OrderedDict[tuple[str, str], float] = field(default_factory=OrderedDict, init=False)
    """USD that a conversation has saved since this process began, less what its pings cost."""
    _misses: dict[tuple[str, str], int] = field(default_factory=dict, init=False)
    """In a row, by upstream and model."""

    # ---------------------------------------------------------------------------------------------------------- pauses
    def end_pause(self, tenant: str, conversation: str, thread: str) -> None:
        """The client is back."""
        pause = self._pauses.pop((tenant, conversation, thread), None)
        if pause is not None:
            self._held_bytes -= len(pause.request.body)

    def add_to_balance(self, tenant: str, conversation: str, saved: float) -> None:
        """`saved` is USD, negative for a loss."""
        balance = self._balances.get((tenant, conversation), 0.0) + saved
        keep_newest(self._balances, (tenant, conversation), balance, MAX_BALANCES)

    def begin_pause(self, request: SentRequest, receipt: Receipt) -> None:
        """An answer has ended well. Never raises and never waits."""
        usage = receipt.usage_by_round[-1] if receipt.usage_by_round else None
        if usage is None or not self._is_cached(request, receipt, usage) or not self._may_ping(request, receipt):
            return
        tariff = self.own_requests.accountant.tariff_of(receipt.model)
        lives_long = usage.written_long >= usage.written > 0
        allowed = pings_that_pay(tariff, tariff.write_long if lives_long else tariff.write, self.settings.pings)
        if not allowed:
            return
        lifetime_s = HOUR if lives_long else tariff.ttl_s
        self._hold(_Pause(request, receipt, lifetime_s * 1000 * PING_SHARE, allowed, usage.input))

    def _hold(self, pause: _Pause) -> None:
        self.end_pause(*pause.key)
        self._pauses[pause.key] = pause
        self._held_bytes += len(pause.request.body)
        while self._held_bytes > MAX_HELD_BYTES:
            self.end_pause(*next(iter(self._pauses)))

    def _may_ping(self, request: SentRequest, receipt: Receipt) -> bool:
        """Whether the client may come back, and a key was given for pings that did not miss the last times."""
        comes_back = request.waits_for_tools or (request.user_messages > 1 and not request.is_delegated)
        has_missed = self._misses.get((receipt.upstream, receipt.model), 0) >= MAX_MISSES
        return comes_back and not has_missed and self._has_key(request)

    def _is_cached(self, request: SentRequest, receipt: Receipt, usage: Usage) -> bool:
        """Whether the provider says that it keeps the prompt. Some tell only what they read."""
        if not self.own_requests.accountant.reports_written_tokens((request.tenant, receipt.upstream, receipt.model)):
            return usage.cached > 0
        return usage.cached + usage.written >= MIN_CACHED_SHARE * usage.input > 0

    def _has_key(self, request: SentRequest) -> bool:
        """The operator's key of the upstream, or the client's own if it was given for this."""
        is_own = request.upstream.settings.key is not None
        return is_own or self.settings.client_keys or CONSENT_HEADER in request.headers

    # ----------------------------------------------------------------------------------------------------------- pings
    async def run(self) -> None:
        """Runs as long as the process."""
        async with asyncio.TaskGroup() as pings:
            while True:
                await asyncio.sleep(CHECK_INTERVAL_S)
                for pause in self._take_due():
                    pings.create_task(self._ping(pause))

    def _take_due(self) -> list[_Pause]:
        """Those whose next ping is due. They are held until it has ended well."""
        now = self.own_requests.now()
        due = [p for p in self._pauses.values() if p.request.sent_at + (p.sent + 1) * p.step_ms <= now]
        for pause in due:
            self.end_pause(*pause.key)
        return due

    async def _ping(self, pause: _Pause) -> None:
        ping = _Ping(
            id=self.own_requests.new_id(),
            kind=KEEP_ALIVE_STATUS,
            place=pause.place,
            model=pause.model,
            created=self.own_requests.now(),
        )
        try:
            if not await self._still_pays(pause):
                return
            if is_resting(pause.request.upstream):
                ping.reason = PROVIDER_RESTS
                self._count(ping, pause)
                return
            body = await asyncio.to_thread(pause.request.dialect.cache_ping, pause.request.body)
            if body is None:
                return
            await self._send(ping, pause, body)
        except ProxyError as error:
            ping.reason = error.code
        except Exception as error:  # the outermost edge: no request hangs on it
            # Without the error's words: they may be content.
            log.warning("cache ping failed", extra={"reason": type(error).__name__})
            ping.reason = "internal"
        self._count(ping, pause)
        pause.sent += 1
        if ping.reason == KEEPS_CACHE and pause.sent < pause.allowed and pause.key not in self._pauses:
            self._hold(pause)

    async def _still_pays(self, pause: _Pause) -> bool:
        """Whether the conversation is there, has not gone on, and has saved what a ping costs. Raises StoreError."""
        tenant, conversation, _ = pause.key
        cached = await self.own_requests.conversation_cache.get(tenant, conversation)
        if cached is None or len(cached.ledger.entries) > pause.request.entries:
            return False
        cost = ping_cost(self.own_requests.accountant.tariff_of(pause.receipt.model), pause.prompt_tokens)
        return self._balances.get((tenant, conversation), 0.0) >= cost

    async def _send(self, ping: _Ping, pause: _Pause, body: bytes) -> None:
        request = pause.request
        headers = [
            (name, value)
            for name, value in outgoing_headers(request.headers, request.upstream.settings, readable=True)
            if name != IDEMPOTENCY_HEADER
        ]
        ping.may_have_been_read = True
        try:
            async with asyncio.timeout(TIMEOUT_S):
                got = await request.upstream.send("POST", request.path, request.query, headers, body)
                ping.status = got.status
                note_rest(request.upstream, got, self.own_requests.now())
                async with aclosing(got):
                    ping.usage = _usage_in(await read_bounded(got, MAX_ANSWER_BYTES)) if got.status < 300 else None
            ping.reason = ping.judge()
        except TimeoutError:
            ping.reason = "timeout"
        except UpstreamUnreachable:
            ping.may_have_been_read = False
            raise
        finally:
            if ping.may_have_been_read:
                self._record(ping, pause)

    def _record(self, ping: _Ping, pause: _Pause) -> None:
        """Write the receipt. A ping without an answer counts as one that found everything in the cache."""
        settled = self.own_requests.settle(ping, pause.request.chain, ping.usage)
        self.add_to_balance(ping.place.tenant, settled.conversation, settled.saved)
        used = (usage_record_of(settled),) if self.counts_usage else ()
        self.own_requests.store_receipt(ping.place, settled, used)

    def _count(self, ping: _Ping, pause: _Pause) -> None:
        is_kept = ping.reason == KEEPS_CACHE
        if is_kept:
            self._misses.pop(pause.model, None)
        elif ping.reason in (FINDS_NOTHING, REFUSED):  # a store or a network that fails says nothing of the model
            self._misses[pause.model] = self._misses.get(pause.model, 0) + 1
        self.own_requests.metrics.count_cache_ping(ping.reason)
        ids = {"conversation": pause.receipt.conversation, "reason": ping.reason}
        log.log(logging.INFO if is_kept else logging.WARNING, "cache ping", extra=ids)


@dataclass(kw_only=True)
class _Ping(OwnRequest):
    """`reason` is "kept", "cold", "refused", "timeout", "resting", or the code of an error."""

    usage: Usage | None = None

    def judge(self) -> str:
        if self.status >= 300:
            return REFUSED
        if self.usage is None or self.usage.cached < MIN_CACHED_SHARE * self.usage.input:
            return FINDS_NOTHING
        return KEEPS_CACHE


class _AnswerBody(msgspec.Struct):
    usage: dict[str, Any] | None = None


def _usage_in(body: bytes | None) -> Usage | None:
    if body is None:
        return None
    try:
        usage = msgspec.json.decode(body, type=_AnswerBody).usage
    except (msgspec.DecodeError, RecursionError):
        return None
    return usage_of(usage) if usage else None
