"""Plays one recording through the product, request by request.

Each step is a client's request and goes through `pipeline.handle` with the services of a running proxy; only
the provider, the clock and the store are replaced. The client always continues as recorded, whatever the proxy did, so
that one fault does not hide the next. What reached the client is compared with the recorded answer.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace

import msgspec

from callstack_proxy.management.reports import sum_receipts
from callstack_proxy.management.views import task_title
from callstack_proxy.replay.api.base import ReplayApi
from callstack_proxy.replay.api.messages import MESSAGES
from callstack_proxy.replay.api.replay_api_list import APIS
from callstack_proxy.replay.brief_heads import usual_brief_tokens
from callstack_proxy.replay.cache_markers import MarkerCostTracker
from callstack_proxy.replay.loss import LossTracker, NameReader, ObservedRequest
from callstack_proxy.replay.outcome import MarkerCosts, ReplayResult
from callstack_proxy.replay.reads_needed import ReadsNeeded
from callstack_proxy.replay.recording import RecordedStep, Recording, RecordingFacts
from callstack_proxy.replay.services import TENANT, build_replay
from proxy.accounting import Receipt
from proxy.config import Config
from proxy.core.ledger import Message, Request
from proxy.dialects import countable_texts, with_token_counts
from proxy.errors import ProxyError
from proxy.exchange import ClientRequest, HeldReply, pipeline

MAX_TITLE = 76
"""Characters of the title of a session: one line of a terminal."""


async def play_recording(
    recording: Recording, config: Config, file: str, on_step: Callable[[], None], *, by_markers: bool = True
) -> ReplayResult:
    """Play the recording; `on_step` is called after each request. Raises what `on_step` raises. `by_markers`: also
    price the cache markers of its requests, where its API has them."""
    player = _Player(recording, config, file, by_markers=by_markers)
    for number, step in enumerate(recording.steps, 1):
        await player.play_step(number, step)
        on_step()
        await asyncio.sleep(0)  # nothing else awaits here, so an interrupt arrives here
    return await player.result()


class _Player:
    def __init__(self, recording: Recording, config: Config, file: str, *, by_markers: bool = True) -> None:
        self._recording = recording
        self._api = APIS[recording.dialect]
        self._replay = build_replay(config, self._api)
        self._loss = LossTracker(NameReader())
        self._reads = ReadsNeeded(config.tariff_of(recording.model), config.observed_tools)
        facts = {name: getattr(recording, name) for name in RecordingFacts.__struct_fields__}
        self._played = ReplayResult(**facts, file=file, row=sum_receipts(()), notes=[*recording.notes])
        self._is_brief = config.is_brief_for(recording.model)
        self._copied: set[str] = set()
        """Ids of requests that are counted elsewhere."""
        has_markers = by_markers and self._api is MESSAGES
        self._marked = MarkerCostTracker(self._replay.clock, config.tariff_of) if has_markers else None

    async def play_step(self, number: int, step: RecordedStep) -> None:
        """Send one request of the client and record what happened."""
        replay = self._replay
        replay.clock.advance_to(step.at_ms)
        replay.provider.expect(step)
        body, name = step.body, f"r{number:08d}"
        if step.is_copy:
            self._copied.add(name)
        client_request = ClientRequest(name, TENANT, "POST", self._api.path, b"", list(step.headers), body)
        reply = HeldReply()
        try:
            await pipeline.handle(replay.services, client_request, reply)
        except ProxyError as error:
            self._note(f"request {number} was refused: {error}")
            return
        status = reply.header_values.get("x-stack-status", "")
        if not step.is_copy:
            self._played.statuses[status] = self._played.statuses.get(status, 0) + 1
        answered = self._api.as_message(step.answer) if step.answer is not None else None
        self._compare(number, answered, reply)
        if replay.provider.received:
            sent = replay.provider.received[-1]
            client = sent if sent.body == body else self._parse(body)
            if self._marked:
                costs = self._marked.cost, self._marked.cost_untouched
                self._marked.add_request(client, replay.provider.received, replay.provider.outputs)
                if step.is_copy:
                    self._marked.cost, self._marked.cost_untouched = costs
            answer = None if step.is_copy else answered
            await self._observe(number, client, sent, answer, reply.header_values.get("x-stack-conversation", ""))

    def _compare(self, number: int, recorded: Message | None, reply: HeldReply) -> None:
        """Note an answer that is not the recorded one."""
        if recorded is not None and not _is_same_answer(self._api, reply, recorded):
            self._played.unequal += 1
            self._note(f"request {number}: the client got another answer than was recorded (status {reply.status})")

    async def _observe(
        self, number: int, client: Request, sent: Request, answer: Message | None, conversation: str
    ) -> None:
        seen = ObservedRequest(number, conversation, client, sent, answer)
        if client.tool_names and not self._is_brief:
            brief = self._replay.services.resolver.policy.brief_tools.shorten(client)
            self._played.brief_tokens = max(self._played.brief_tokens, brief.saved_tokens)
        cached = await self._replay.services.conversation_cache.get(TENANT, conversation) if conversation else None
        tip = cached.ledger.newest_tip() if cached else None
        if cached and tip and sent.body != client.body:
            path = tuple(entry.id for entry in cached.ledger.path(tip.id))
            seen = replace(seen, path=path, story=cached.path_state(tip.id))
        self._loss.observe(seen)
        self._reads.observe(seen)

    def _parse(self, body: bytes) -> Request:
        """The request as the proxy reads it, with token counts."""
        known = self._replay.services.parse_cache  # it has just read the same bytes
        request = self._api.dialect.parse_request(body, known)
        counts = [self._replay.services.counter.count(text) for text in countable_texts(request)]
        return with_token_counts(request, counts, known) if counts else request

    def _note(self, words: str) -> None:
        self._played.notes.append(words)

    async def result(self) -> ReplayResult:
        """The result, with everything added up."""
        played, store = self._played, self._replay.store
        records = await store.requests(TENANT, limit=len(self._recording.steps))
        every = [msgspec.json.decode(record.receipt, type=Receipt) for record in reversed(records)]
        receipts = [receipt for receipt in every if receipt.id not in self._copied]
        played.row = sum_receipts(receipts)
        if not self._is_brief:
            played.brief_tokens = played.brief_tokens or usual_brief_tokens(played)
        played.row.key, played.copied = played.name, len(self._copied)
        played.unpriced_tokens = sum(receipt.tokens_in for receipt in receipts if not receipt.priced)
        played.decisions = _decision_counts(receipts)
        known = await store.conversations(TENANT, limit=len(self._recording.steps) + 1)
        ledgers = [ledger for one in known if (ledger := await store.load(TENANT, one.id)) is not None]
        played.conversations = len(ledgers)
        if ledgers:
            played.title = task_title(max(ledgers, key=lambda ledger: len(ledger.entries)), MAX_TITLE)
        played.events = dict(Counter(e.kind for ledger in ledgers for events in ledger.events.values() for e in events))
        if self._marked:
            played.by_markers = MarkerCosts(cost=self._marked.cost, cost_untouched=self._marked.cost_untouched)
        played.row.set_caused(self._reads.times, self._reads.cost)
        played.left, played.needs, played.missed = self._loss.left, self._loss.needs, self._loss.missed
        return played


def _is_same_answer(api: ReplayApi, reply: HeldReply, recorded: Message) -> bool:
    """Compares text and calls, as a client reads them."""
    if reply.status != 200 or reply.was_aborted:
        return False
    try:
        answer = api.answer_in(json.loads(reply.body))
    except ValueError:
        return False
    return answer is not None and _text_and_calls(api.as_message(answer)) == _text_and_calls(recorded)


def _text_and_calls(message: Message) -> tuple[str, tuple[tuple[str, str, str], ...]]:
    return message.text, tuple((c.id, c.name, c.arguments) for c in message.calls)


def _decision_counts(receipts: Iterable[Receipt]) -> dict[str, int]:
    """Decisions of the cost gate in the receipts, by kind, answer and reason."""
    weighed = (decision for receipt in receipts for decision in receipt.decisions)
    return dict(Counter(f"{d.kind} {'done' if d.done else 'not now'} {d.reason}".rstrip() for d in weighed))
