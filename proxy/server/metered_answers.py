"""Holds the requests of keys with a budget to it: reserves what a request may cost, counts what no receipt counts, and
ends the reservation when the request is over.

A receipt counts what the exchange answers. What passes without one (completions, embeddings, a bypass) is counted from
the usage in its answer, or from the size of the answer where it tells none. A response that the provider makes in the
background is counted with its bound when it is asked for, and with its own figures once the client fetches it. What it
was counted with stands in the store until then, so any process may settle it, also after a restart.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Awaitable, Callable, Sequence

import msgspec
from msgspec.structs import replace

from proxy.accounting import Tariff, estimate_request_tokens
from proxy.auth import BudgetChecks, CostEstimate, LimitedRequest, Reservation, UsageLimits, check_countable, holder_of
from proxy.config import Config
from proxy.core.ledger import Usage
from proxy.dialects import merge_usage, usage_of
from proxy.errors import NotCounted, StoreError
from proxy.exchange import Reply
from proxy.store import Record, SettingRecord, Settlement, Store, UsageRecord
from proxy.upstream import RawHeaders

log = logging.getLogger(__name__)

CHECKED_APART_BYTES = 1 << 20
"""Bodies from this size are checked in a thread."""
DEFAULT_OUTPUT = 32_000
"""Tokens that an answer may have whose model is not named."""
KEPT_BYTES = 256 * 1024
"""Of the beginning and of the end of an answer; usage stands in one of them."""
BACKGROUND_SETTING = "background/"
"""Before the id of a response, the name under which the store has what it was counted with."""
AWAITED_MS = 60 * 24 * 60 * 60 * 1000
"""How long the figures of a response are awaited: twice as long as providers keep it."""
KEPT_WITHIN_S = 2.0
MAX_USAGE_BYTES = 16 * 1024
_USAGE = re.compile(rb'"usage"\s*:\s*(?=\{)')
_RESPONSE_ID = re.compile(rb'"id"\s*:\s*"(resp[^"\\]{0,200})"')
_RESPONSE_PATH = re.compile(r".*/responses/([^/]+)(?:/cancel)?/?")
_FINISHED = re.compile(rb'"response\.(?:completed|incomplete|failed|cancelled)"')
_UNFINISHED = re.compile(rb'"status"\s*:\s*"(?:queued|in_progress)"')


class Charge(msgspec.Struct, frozen=True):
    """What a response in the background was counted with."""

    tokens: int
    usd: float
    model: str


class Metering:
    """One per process. `flush` records the receipts that wait to be written."""

    def __init__(self, config: Config, store: Store, budgets: BudgetChecks, flush: Callable[[], object]) -> None:
        self._config = config
        self._store = store
        self._budgets = budgets
        self._flush = flush

    async def admit(self, tenant: str, limits: UsageLimits, asked: LimitedRequest) -> Meter | None:
        """None where there is no budget, or the request can cost nothing. Raises NotCounted, BudgetSpent,
        BudgetReserved or BudgetUnknown."""
        if not limits.has_budget:
            return None
        if asked.kind == "free" and (name := _response_in(asked.path)):
            looking = Meter(self, tenant, asked, None, None)
            looking.charge = await self._find_charge(tenant, name)
            return looking if looking.charge else None
        if len(asked.body) >= CHECKED_APART_BYTES:
            estimate = await asyncio.to_thread(self._checked_estimate, limits, tenant, asked)
        else:
            estimate = self._checked_estimate(limits, tenant, asked)
        if asked.looks or asked.cancels:
            return None
        self._flush()  # what was just answered counts
        return Meter(self, tenant, asked, estimate, await self._budgets.reserve(tenant, limits, estimate))

    async def refuse_spent(self, tenant: str, limits: UsageLimits) -> None:
        """Raises BudgetSpent or BudgetUnknown, by what is known before a request is read."""
        if limits.has_budget:
            self._flush()
            self._budgets.release(await self._budgets.reserve(tenant, limits, None))

    async def _find_charge(self, tenant: str, response: str) -> Charge | None:
        """What a response in the background was counted with; None where it was none, or is settled."""
        self._flush()
        try:
            stored = [s for s in await self._store.settings(tenant) if s.name.startswith(BACKGROUND_SETTING)]
            since = self._budgets.now() - AWAITED_MS
            if old := [s.name for s in stored if s.created < since]:
                self._store.write(tenant, [Settlement(name, UsageRecord(self._budgets.today())) for name in old])
        except StoreError as error:
            log.warning("a response in the background is not settled", extra={"reason": error.code})
            return None
        found = next((s for s in stored if s.name == BACKGROUND_SETTING + response), None)
        return msgspec.json.decode(found.value, type=Charge) if found else None

    def _checked_estimate(self, limits: UsageLimits, tenant: str, asked: LimitedRequest) -> CostEstimate | None:
        check_countable(limits, asked, holder_of(tenant))
        return self._estimate(limits, tenant, asked) if asked.kind == "generates" else None

    def _estimate(self, limits: UsageLimits, tenant: str, asked: LimitedRequest) -> CostEstimate:
        tariff = self.tariff_of(asked)
        if limits.usd is not None and (tariff is None or tariff.output is None):
            named = "no model" if tariff is None else f"{(asked.model or asked.deployment)[:80]!r}"
            why = "its provider would choose one" if tariff is None else "what its output costs is not known"
            raise NotCounted(
                f"This {holder_of(tenant)} has a budget in USD, and the request asks for {named}: {why}. Ask for a "
                "model with a price (`callstack inspect tariffs` lists them), or have the operator add its input and "
                "output prices to tariffs in the configuration.",
                code="model_not_priced",
            )
        prompt = estimate_request_tokens(asked.body)
        bound, embeds = asked.most_output, asked.path.rstrip("/").endswith("/embeddings")
        most = 0 if embeds else (bound or (tariff.max_output if tariff else DEFAULT_OUTPUT)) * asked.answer_count
        return CostEstimate(
            prompt + most,
            cost_of(tariff, Usage(prompt, most)),
            is_bounded=bound is not None,
            input_tokens=prompt,
            input_usd=cost_of(tariff, Usage(prompt, 0)),
        )

    async def reserve_round(self, meter: Meter, used: Sequence[Usage], sent: int) -> None:
        """Extend the reservation of a request for another round. Raises what `BudgetChecks.extend` does."""
        if meter.reservation is None or meter.estimate is None:
            return
        self._flush()
        tariff, most = self.tariff_of(meter.asked), meter.estimate.tokens - meter.estimate.input_tokens
        spent = CostEstimate(sum(u.input + u.output for u in used), sum(cached_cost_of(tariff, u) for u in used))
        estimate = CostEstimate(
            sent + most,
            cost_of(tariff, Usage(sent, most)),
            is_bounded=meter.estimate.is_bounded,
            input_tokens=sent,
            input_usd=cost_of(tariff, Usage(sent, 0)),
        )
        await self._budgets.extend(meter.reservation, spent, estimate)

    def tariff_of(self, asked: LimitedRequest) -> Tariff | None:
        """None where the request names no model."""
        model = asked.model or asked.deployment
        return self._config.tariff_of(self._config.upstream_model_of(model)) if model else None

    def settle(self, meter: Meter, answer: KeptAnswer) -> int:
        """Count what was used, then end the reservation. Returns the ticket of the write, 0 without one."""
        self._flush()
        try:
            if records := self._records_of(meter, answer):
                return self._store.write(meter.tenant, records)
        except StoreError as error:
            log.warning("usage not kept", extra={"reason": error.code})
        finally:
            if meter.reservation is not None:
                self._budgets.release(meter.reservation)
        return 0

    async def wait_until_kept(self, ticket: int) -> None:
        """So that any other process finds it. What cannot be kept soon is not waited for."""
        try:
            async with asyncio.timeout(KEPT_WITHIN_S):
                await self._store.wait_until_durable(ticket)
        except (StoreError, TimeoutError) as error:
            log.warning("usage not kept in time", extra={"reason": getattr(error, "code", "too_slow")})

    def _records_of(self, meter: Meter, answer: KeptAnswer) -> tuple[Record, ...]:
        """What no receipt has counted."""
        if meter.is_left_unanswered:
            return self._left_unanswered(meter)
        if not answer.is_success:
            return ()
        if meter.estimate is None:
            return self._settled_background(meter, answer)
        if meter.asked.runs_in_background and not answer.is_finished:
            return self._charged_background(meter, meter.estimate, answer)
        if answer.has_receipt:
            return ()
        usage = answer.usage() or Usage(estimate_request_tokens(meter.asked.body), answer.estimated_output)
        cost = cost_of(self.tariff_of(meter.asked), usage)
        return (UsageRecord(self._budgets.today(), 1, usage.input + usage.output, cost, cost),)

    def _left_unanswered(self, meter: Meter) -> tuple[Record, ...]:
        """A client that leaves before the answer begins has asked all the same: the provider has read its input, and
        what runs in the background runs on."""
        if (estimate := meter.estimate) is None:
            return ()
        is_whole = meter.asked.runs_in_background
        tokens, usd = (estimate.tokens, estimate.usd) if is_whole else (estimate.input_tokens, estimate.input_usd)
        return (UsageRecord(self._budgets.today(), 0, tokens, usd, usd),)

    def _charged_background(self, meter: Meter, estimate: CostEstimate, answer: KeptAnswer) -> tuple[Record, ...]:
        """The bound of a response that is being made. Its input is counted by the receipt, where there is one."""
        reserved = meter.reservation
        tokens, usd = (reserved.tokens, reserved.usd) if reserved else (estimate.tokens, estimate.usd)
        counted = UsageRecord(self._budgets.today(), 0, tokens, usd, usd)
        if not (name := answer.response_id()):
            return (counted,)
        charge = msgspec.json.encode(Charge(tokens, usd, meter.asked.model or ""))
        return counted, SettingRecord(BACKGROUND_SETTING + name, charge, self._budgets.now())

    def _settled_background(self, meter: Meter, answer: KeptAnswer) -> tuple[Record, ...]:
        """The difference between what a response used and what it was counted with, once it is finished."""
        charged, usage = meter.charge, answer.usage()
        if charged is None or usage is None or not answer.is_finished:
            return ()
        tariff = self._config.tariff_of(self._config.upstream_model_of(charged.model)) if charged.model else None
        cost = cost_of(tariff, usage) - charged.usd
        used = UsageRecord(self._budgets.today(), 0, usage.input + usage.output - charged.tokens, cost, cost)
        return (Settlement(BACKGROUND_SETTING + _response_in(meter.asked.path), used),)


def _response_in(path: str) -> str:
    found = _RESPONSE_PATH.fullmatch(path)
    return found[1] if found else ""


def cost_of(tariff: Tariff | None, usage: Usage) -> float:
    """USD, with nothing of the prompt cached."""
    if tariff is None:
        return 0.0
    priced = tariff.for_input(usage.input)
    return (usage.input * priced.input + usage.output * (priced.output or 0.0)) / 1e6


def cached_cost_of(tariff: Tariff | None, usage: Usage) -> float:
    """USD of a round, with what its provider told of its cache."""
    if tariff is None:
        return 0.0
    priced, fresh = tariff.for_input(usage.input), max(0, usage.input - usage.cached - usage.written)
    read = fresh + tariff.read * usage.cached + tariff.write * usage.written
    return (read * priced.input + usage.output * (priced.output or 0.0)) / 1e6


class KeptAnswer:
    """The parts of an answer in which its figures stand."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: RawHeaders = []
        self._beginning = bytearray()
        self._end = bytearray()
        self._size = 0
        self._events = 0

    def add(self, chunk: bytes) -> None:
        self._size += len(chunk)
        self._events += chunk.count(b"data:")
        if (room := KEPT_BYTES - len(self._beginning)) > 0:
            self._beginning += chunk[:room]
            chunk = chunk[room:]
        self._end += chunk
        if len(self._end) > 2 * KEPT_BYTES:
            del self._end[:-KEPT_BYTES]

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    @property
    def has_receipt(self) -> bool:
        told = dict(self.headers)
        return b"x-stack-conversation" in told or told.get(b"x-stack-status", b"").startswith(b"answered")

    @property
    def is_finished(self) -> bool:
        """Whether the last status of a response, if the answer tells one, says that no more comes."""
        text = bytes(self._end or self._beginning)
        return _UNFINISHED.search(text) is None or _FINISHED.search(text) is not None

    @property
    def estimated_output(self) -> int:
        """Tokens of an answer that tells none: one for each event, or a quarter of its bytes."""
        return self._events or -(-self._size // 4)

    def response_id(self) -> str:
        found = _RESPONSE_ID.search(self._beginning)
        return found[1].decode("latin-1") if found else ""

    def usage(self) -> Usage | None:
        """None where the answer tells no figures. What a stream tells in parts is put together."""
        told: dict[str, object] = {}
        for part in (bytes(self._beginning), bytes(self._end)):
            for found in _USAGE.finditer(part):
                figures = _object_at(part[found.end() : found.end() + MAX_USAGE_BYTES])
                told = merge_usage(told, figures)
        usage = usage_of(told)
        if b'"message_start"' in self._beginning and b'"message_delta"' not in self._beginning + self._end:
            usage = replace(usage, output=max(usage.output, self._events))  # it broke off behind the first figures
        return usage if usage.input or usage.output else None


def _object_at(raw: bytes) -> dict[str, object]:
    try:
        found, _ = json.JSONDecoder().raw_decode(raw.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


class Meter:
    """One request under a budget. Wraps the connection to its client."""

    def __init__(
        self,
        metering: Metering,
        tenant: str,
        asked: LimitedRequest,
        estimate: CostEstimate | None,
        reservation: Reservation | None,
    ) -> None:
        self._metering = metering
        self.tenant = tenant
        self.asked = asked
        self.estimate = estimate
        self.reservation = reservation
        self.charge: Charge | None = None
        """What the response in the background that the request looks at was counted with."""
        self._answer = KeptAnswer()
        self._is_settled = False
        self._reply: Reply | None = None

    @property
    def is_left_unanswered(self) -> bool:
        """Whether the client left before it was told a status."""
        return self._reply is not None and self._reply.client_left and not self._answer.status

    def around(self, reply: Reply) -> MeteredReply:
        self._reply = reply
        holds = self.asked.runs_in_background and self.asked.value("stream") is not True
        return MeteredReply(reply, self._answer, self._settle_first if holds else None)

    async def _settle_first(self) -> None:
        if ticket := self.settle():
            await self._metering.wait_until_kept(ticket)

    async def reserve_round(self, used: Sequence[Usage], sent: int) -> None:
        """Make room for another round of the request, which sends so many tokens, behind those that used this. Raises
        BudgetSpent, BudgetReserved or BudgetUnknown."""
        await self._metering.reserve_round(self, used, sent)

    def settle(self) -> int:
        """Count what was used, once. Returns the ticket of the write, 0 without one."""
        if self._is_settled:
            return 0
        self._is_settled = True
        return self._metering.settle(self, self._answer)


class MeteredReply:
    """Passes everything on, and keeps what has figures. Where an answer is followed by a question for what it names,
    `before_end` runs before the client has any of its body."""

    def __init__(self, reply: Reply, kept: KeptAnswer, before_end: Callable[[], Awaitable[None]] | None = None) -> None:
        self._reply = reply
        self._kept = kept
        self._before_end = before_end
        self._held: list[bytes] = []

    @property
    def started(self) -> bool:
        return self._reply.started

    @property
    def client_left(self) -> bool:
        return self._reply.client_left

    async def start(self, status: int, headers: RawHeaders) -> None:
        self._kept.status, self._kept.headers = status, headers
        await self._reply.start(status, headers)

    async def send(self, chunk: bytes) -> None:
        self._kept.add(chunk)
        if self._before_end is None:
            await self._reply.send(chunk)
        else:
            self._held.append(chunk)

    async def end(self, last: bytes = b"") -> None:
        self._kept.add(last)
        if self._before_end is not None:
            await self._before_end()
        await self._reply.end(b"".join([*self._held, last]))

    def abort(self) -> None:
        self._reply.abort()
