"""The shelf: conversations in memory, a bounded cache over the store, and where a request stands in one of them.

Its laws: **what is on the shelf is what the store was told.** Records are handed to the store first and added to the
ledger then; when the store could not keep them, the conversation leaves the shelf and is read again. So a process that
was killed goes on where the store stands.

And **a conversation is one object**, for all who stand in it: an answer under way records what the next request goes on
from. Where it has to be another one, because what this one holds was lost or deleted, it is `gone` for whoever still
has it: nothing is recorded by it any more. A store that only has to be waited for is no reason for that.

What it does not do: it decides nothing about frames or lines, and holds no lock while a provider is asked.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from time import monotonic
from weakref import WeakValueDictionary

import msgspec
from msgspec.structs import replace

from proxy.core.frames.path_state import Story, follow
from proxy.core.ledger.ledger import Conversation, Entry, Event, Ledger, Round, Thread, Value, answer_of, turn_id
from proxy.core.ledger.messages import Request
from proxy.core.ledger.queued_messages import Queued
from proxy.core.matching import lookup_keys as anchors
from proxy.core.matching import match as matching
from proxy.core.matching.match import How, Match
from proxy.core.matching.restarted_conversation import retold
from proxy.core.policy.signals import Reading
from proxy.errors import StoreError
from proxy.store import Anchored, Owned, Record, Store

SETTLES_S = 0.25
"""What is recorded is on disk this much later at the latest (DESIGN 10); until then a line that leaves nothing of it
out need not wait."""
STORIES = 6
"""Folded paths kept per conversation: parallel branches go on from their own."""
ANCHORS = 50_000
"""Anchors kept in memory; older ones are asked of the store."""
NAMING = ("folded", "pushed", "planned", "entered", "delegated", "rooted")
"""Kinds of events that are kept under the id of their frame."""
LOCKS = 256
"""Scopes asked in last whose locks are kept at hand."""
LOOKED_AT = 64
"""So many conversations at hand are looked at when one may begin with a summary, or may be a subagent's."""
MOST_BYTES = 48 << 20
"""Of the conversations at hand: thirty of 160k tokens. Any other comes back from the store."""
WEIGHED_AT = 16
"""What is at hand is weighed when a sixteenth of what it may weigh has come to it."""


class Fresh(msgspec.Struct, frozen=True, gc=False):
    """A write that may still be on its way to disk: when it was handed over (s, monotonic), and the entries it has
    something of."""

    made: float
    ticket: int
    entries: tuple[str, ...]


@dataclass
class Shelved:
    """A conversation at hand. `ticket` is the newest write of what it consists of; `decided` the newest that changes
    what a line is; `settled` the newest that had its time to get to disk, and `fresh` are those after it, oldest
    first. Receipts are none of these: they get to disk also where a message before them did not."""

    ledger: Ledger
    tenant: str
    stories: OrderedDict[str, Story] = field(default_factory=OrderedDict)
    ticket: int = 0
    decided: int = 0
    settled: int = 0
    fresh: deque[Fresh] = field(default_factory=deque)
    on_its_way: dict[str, int] = field(default_factory=dict)
    """Entries of the fresh writes, each with the newest that has something of it."""
    attempts: dict[str, int] = field(default_factory=dict)
    readings: OrderedDict[tuple[str, str], Reading] = field(default_factory=OrderedDict)
    """What the work of frames showed so far, by thread and segment; kept here so that it goes with the conversation."""
    losses: int = 0
    """What `Store.losses` told when it was read."""
    gone: bool = False
    """It left the shelf for good."""

    def wrote(self, ticket: int, values: Sequence[Value], now: float) -> None:
        """These values were handed to the store at `now` (s, monotonic)."""
        self._settle(now)
        self.ticket = ticket
        written: dict[str, int] = {}
        for value in values:
            if isinstance(value, Round):
                written[value.turn] = ticket
            elif isinstance(value, Entry):
                written[value.id] = ticket
                if value.is_beside:  # a text of ours that stands on lines
                    self.decided = ticket
            elif isinstance(value, Event):
                self.decided = ticket
        self.fresh.append(Fresh(now, ticket, tuple(written)))
        self.on_its_way |= written

    def needed(self, left_out: Set[str], now: float) -> int:
        """The newest write that has to be on disk before a line leaves that these entries are not on."""
        self._settle(now)
        omitted = (self.on_its_way[entry] for entry in left_out & self.on_its_way.keys())
        return max(self.settled, self.decided, *omitted)

    def _settle(self, now: float) -> None:
        while self.fresh and now - self.fresh[0].made >= SETTLES_S:
            write = self.fresh.popleft()
            self.settled = write.ticket
            for entry in write.entries:
                if self.on_its_way.get(entry) == write.ticket:
                    del self.on_its_way[entry]

    def next_turn(self, node: str) -> str:
        """The id of the next answer to a request: answers under way count, for their turns have ids already. One that
        failed may have left no turn, so that there are fewer of them than numbers."""
        number = max(self.attempts.get(node, 0), len(self.ledger.turns_under.get(node, ())))
        while (turn := turn_id(node, number)) in self.ledger.entries:
            number += 1
        self.attempts[node] = number + 1
        return turn

    def story(self, tip: str) -> Story:
        """The fold of the path to `tip`; the longest one known is gone on from."""
        if (known := self.stories.get(tip)) is not None:
            self.stories.move_to_end(tip)
            return known
        story = follow(self.ledger, self.ledger.path(tip), self.stories)
        self.keep_story(tip, story)
        return story

    def keep_story(self, tip: str, story: Story) -> None:
        """Remember the fold of a path."""
        self.stories[tip] = story
        self.stories.move_to_end(tip)
        while len(self.stories) > STORIES:
            self.stories.popitem(last=False)

    def forget_story(self, tip: str) -> None:
        """Something was decided at `tip` after its path was folded."""
        self.stories.pop(tip, None)


class Shelf:
    """`most_bytes` bounds the memory of the ledgers held, as they weigh themselves. `ask_until`: up to this time (ms)
    openings are asked of the store too, because one that another process took may be sent again. `clock` tells seconds
    and never goes back. `told` is told what was decided about a conversation, once it is in its ledger."""

    def __init__(
        self,
        store: Store,
        *,
        ask_until: int = 0,
        most_bytes: int = MOST_BYTES,
        clock: Callable[[], float] = monotonic,
        told: Callable[[Ledger, Sequence[Event]], None] = lambda *_: None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._told = told
        self._ask_until = ask_until
        self._most = most_bytes
        self._shelved: OrderedDict[tuple[str, str], Shelved] = OrderedDict()
        self._anchors: OrderedDict[tuple[str, str, str], tuple[str, ...]] = OrderedDict()
        self._come = 0
        """Bytes that came since what is at hand was weighed."""
        self._in_use: WeakValueDictionary[tuple[str, str], Shelved] = WeakValueDictionary()
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        self.lock = lru_cache(LOCKS)(self._lock)
        """Of this tenant and session hint: state of one scope changes one request at a time."""

    def _lock(self, tenant: str, hint: str) -> asyncio.Lock:
        """Whoever holds one keeps it what it is, however many others were asked for meanwhile."""
        key = (tenant, hint)
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = asyncio.Lock()
        return lock

    # ---------------------------------------------------------------------------------------------------------- find
    async def locate(
        self, tenant: str, hint: str, request: Request, now: int, dialect: str
    ) -> tuple[Shelved | None, Match]:
        """The conversation `request` belongs to and where it stands in it; (None, NEW) when it belongs to none. Its
        messages are bytes of one wire format, so it is one in `dialect`. Raises StoreError, also where it belongs to
        none but to one that cannot be read."""
        unread: list[StoreError] = []
        opening = not any(m.role == "assistant" for m in request.messages)
        keys: list[str] = []
        held: list[str] = []
        found = None
        for group in anchors.to_find(request):
            keys += group
            for key in group:
                held += self._anchors.get((tenant, hint, key), ())
            found = _best(await self._in(dialect, tenant, held, unread), request, now, opening=opening)
            if found and (opening or matching.covers(found[1], request)):
                return found
        if found is None and (not opening or now < self._ask_until):
            stored = await self._store.find(tenant, hint, keys)
            came = await self._in(dialect, tenant, stored, unread)
            found = _best(came, request, now, opening=opening) or _unanswered(came, request)
        if found is None and unread:
            raise unread[0]
        if found is None and hint:
            found = await self._compacted(tenant, hint, request, dialect)
        if found is None and opening and not hint:
            found = self._retold(tenant, request, dialect)
        return found or (None, Match(How.NEW))

    async def _in(
        self, dialect: str, tenant: str, conversations: Iterable[str], unread: list[StoreError] | None = None
    ) -> list[Shelved]:
        """Those of these conversations that are in this dialect. Why one of them cannot be read is added to `unread`,
        where another may be the one that is looked for. Raises StoreError."""
        got: list[Shelved] = []
        for conversation in dict.fromkeys(conversations):
            try:
                shelved = self._known(tenant, conversation) or await self.get(tenant, conversation)
            except StoreError as error:
                if unread is None or error.code != StoreError.code:  # or it is the store that fails
                    raise
                unread.append(error)
                continue
            if shelved is not None and shelved.ledger.conversation.dialect == dialect:
                got.append(shelved)
        return got

    async def _compacted(self, tenant: str, hint: str, request: Request, dialect: str) -> tuple[Shelved, Match] | None:
        named = await self._in(dialect, tenant, await self._store.sessions(tenant, hint))
        matches = ((s, matching.compacted(s.ledger, request)) for s in named)
        return next(((s, match) for s, match in matches if match), None)

    def _retold(self, tenant: str, request: Request, dialect: str) -> tuple[Shelved, Match] | None:
        """The conversation at hand that `request` opens with a summary of, the newest first."""
        ours = (s for (owner, _), s in self._shelved.items() if owner == tenant)
        held = [s for s in ours if not (about := s.ledger.conversation).hint and about.dialect == dialect]
        matches = ((s, retold(s.ledger, request)) for s in reversed(held[-LOOKED_AT:]))
        return next(((s, match) for s, match in matches if match), None)

    def at_hand(self, tenant: str) -> list[Shelved]:
        """Conversations of this tenant in memory, those used last, which stand at the end."""
        return [shelved for (owner, _), shelved in self._shelved.items() if owner == tenant][-LOOKED_AT:]

    async def get(self, tenant: str, conversation: str) -> Shelved | None:
        """A conversation of this tenant, from the shelf or the store."""
        if (known := self._known(tenant, conversation)) is not None:
            return known
        losses = self._store.losses(tenant, conversation)  # before it is read: what is lost meanwhile may be in it
        ledger = await self._store.load(tenant, conversation)
        if ledger is None:
            return None
        if (known := self._known(tenant, conversation)) is not None:  # somebody else read it meanwhile
            return known
        return self._put(Shelved(ledger, tenant, losses=losses))

    def _known(self, tenant: str, conversation: str) -> Shelved | None:
        key = (tenant, conversation)
        known = self._shelved.get(key) or self._in_use.get(key)
        if known is None or self._lost(known):
            return None
        self._shelved[key] = known
        self._shelved.move_to_end(key)
        return known

    def _put(self, shelved: Shelved) -> Shelved:
        key = (shelved.tenant, shelved.ledger.conversation.id)
        self._shelved[key] = self._in_use[key] = shelved
        self._came(shelved.ledger.size)
        return shelved

    def expect(self, shelved: Shelved, prompts: Sequence[str]) -> None:
        """Somebody may begin with one of these texts soon. Not stored: whoever is told to begin does so at once."""
        self._keep_anchors(shelved.tenant, Anchored(shelved.ledger.conversation.id, "", tuple(prompts), 0))

    async def delegating(self, tenant: str, text: str) -> tuple[Shelved, str] | None:
        """The conversation with a call that waits for somebody who was told `text`, and its turn. Whoever begins is
        told at once, so only what this process remembers is asked."""
        for conversation in self._anchors.get((tenant, "", anchors.of_prompt(text)), ()):
            shelved = await self.get(tenant, conversation)
            if shelved and (turn := anchors.delegated_at(shelved.ledger, text)):
                return shelved, turn
        return None

    async def answered(self, tenant: str, name: str) -> tuple[Shelved, str] | None:
        """The conversation of which the client knows a turn, or a part of one, by this id; and the turn, empty where
        it is a part."""
        key = anchors.of_answer(name)
        held = self._anchors.get((tenant, "", key)) or await self._store.find(tenant, "", [key])
        for conversation in held:
            if (shelved := await self.get(tenant, conversation)) is not None:
                turns = shelved.ledger.rounds.items()
                return shelved, next((turn for turn, rounds in turns if answer_of(rounds) == name), "")
        return None

    async def beside(
        self, shelved: Shelved, frames: Iterable[str], delegated: Iterable[str] = ()
    ) -> tuple[Ledger, ...]:
        """Conversations of the same tenant that may be recalled from beside this one: the one it came from, those that
        came from it as far as they are at hand or `delegated` names them, and those that folded or opened one of
        `frames` (full ids). Without the store these are not known, and nothing else is lost; nor is it where one of
        them cannot be read."""
        known = shelved.ledger.conversation
        here = {c: s for (tenant, c), s in self._shelved.items() if tenant == shelved.tenant}
        found = [c for c, s in here.items() if s.ledger.conversation.parent == known.id]
        found += [*delegated, *([known.parent] if known.parent else [])]
        with suppress(StoreError):
            held = [await self._store.holding(shelved.tenant, kind, f) for f in frames for kind in NAMING]
            found += [c.id for c in held if c is not None]
        others = await self._readable(shelved.tenant, (c for c in dict.fromkeys(found) if c != known.id))
        return tuple(s.ledger for s in others)

    async def _readable(self, tenant: str, conversations: Iterable[str]) -> list[Shelved]:
        """Those of these that can be read; once it is the store that fails, those at hand."""
        got, fails = [], False
        for conversation in conversations:
            try:
                shelved = self._known(tenant, conversation) if fails else await self.get(tenant, conversation)
            except StoreError as error:
                shelved, fails = None, error.code != StoreError.code
            got += [shelved] if shelved else []
        return got

    async def sessions(self, tenant: str, hint: str) -> tuple[str, ...]:
        """Conversations under a session the client names, the newest first."""
        return await self._store.sessions(tenant, hint)

    # --------------------------------------------------------------------------------------------------------- record
    def open(self, conversation: Conversation) -> Shelved:
        """A new conversation; nothing of it is stored until `record`."""
        losses = self._store.losses(conversation.tenant, conversation.id)
        return self._put(Shelved(Ledger(conversation), conversation.tenant, losses=losses))

    def record(self, shelved: Shelved, values: Sequence[Value], others: Sequence[Record] = ()) -> int:
        """Hand everything to the store as one transaction, then add the values to the ledger; the ticket of the write.

        Raises StoreError before anything changed; where it is gone, too.
        """
        self._not_gone(shelved)
        ledger = shelved.ledger
        try:
            ticket = self._store.write(shelved.tenant, _records(ledger.conversation.id, values, others))
        except StoreError:
            if not ledger.entries:  # nothing of it was ever stored
                self.drop(shelved)
            raise
        if values or any(isinstance(record, Conversation | Anchored) for record in others):
            shelved.wrote(ticket, values, self._clock())
        before = ledger.size
        decided: list[Event] = []
        for value in values:
            _add(ledger, value)
            if isinstance(value, Event):
                decided.append(value)
        self._came(ledger.size - before)
        for record in others:
            if isinstance(record, Anchored):
                self._keep_anchors(shelved.tenant, record)
        if decided:
            self._told(ledger, decided)
        return ticket

    def _keep_anchors(self, tenant: str, anchored: Anchored) -> None:
        newest = anchored.conversation
        for key in anchored.keys:
            at = (tenant, anchored.hint, key)
            known = self._anchors.pop(at, (newest,))
            self._anchors[at] = known if known[0] == newest else (newest, *(c for c in known if c != newest))[:8]
        while len(self._anchors) > ANCHORS:
            self._anchors.popitem(last=False)

    async def durable(self, shelved: Shelved, left_out: Set[str] | None = None) -> None:
        """Everything recorded of this conversation is on disk; with `left_out`, what a line without these entries
        depends on: they themselves, all that makes lines what they are, and what had its time to get there. Raises
        StoreError when it is not going to be, or not soon, and where it is gone."""
        ticket = shelved.ticket if left_out is None else shelved.needed(left_out, self._clock())
        try:
            await self._store.durable(ticket)
        except StoreError:
            self._lost(shelved)
            raise
        self._not_gone(shelved)

    def _not_gone(self, shelved: Shelved) -> None:
        """Raises StoreError where nothing may be built on this any more."""
        if shelved.gone or self._lost(shelved):
            raise StoreError("the conversation was deleted, or records of it were lost: it has to be read again")

    def _lost(self, shelved: Shelved) -> bool:
        """Whether something of it was lost or deleted since it was read; then it leaves the shelf."""
        if self._store.losses(shelved.tenant, shelved.ledger.conversation.id) == shelved.losses:
            return False
        self.drop(shelved)
        return True

    def parent_of(self, tenant: str, conversation: str) -> str:
        """The conversation that this one, which is at hand, came from; empty where there is none."""
        shelved = self._shelved.get((tenant, conversation)) or self._in_use.get((tenant, conversation))
        return shelved.ledger.conversation.parent if shelved else ""

    @property
    def held(self) -> int:
        """How many conversations are at hand."""
        return len(self._shelved)

    def drop(self, shelved: Shelved) -> None:
        """Take a conversation off the shelf for good; it is read from the store when it is asked for again."""
        shelved.gone = True
        key = (shelved.tenant, shelved.ledger.conversation.id)
        for held in (self._shelved, self._in_use):
            if held.get(key) is shelved:
                del held[key]

    def drop_deleted(self, tenant: str | None = None, conversation: str = "") -> None:
        """After a deletion: nothing deleted may be remembered. The others stay, for answers may be under way in them;
        `tenant` and `conversation` say where it is worth a look."""
        for shelved in {id(held): held for held in (*self._shelved.values(), *self._in_use.values())}.values():
            if tenant in (None, shelved.tenant) and conversation in ("", shelved.ledger.conversation.id):
                self._lost(shelved)

    def set_mode(self, tenant: str, conversation: str, mode: str) -> None:
        """A person turned the proxy down or away, and that is stored. It counts from the next request on; the
        conversation stays on the shelf, for an answer may be under way in it."""
        key = (tenant, conversation)
        if (shelved := self._shelved.get(key) or self._in_use.get(key)) is not None:
            shelved.ledger.conversation = replace(shelved.ledger.conversation, mode=mode)

    def learn(self, tenant: str, conversation: str, events: Sequence[Event]) -> None:
        """Something was decided beside the requests of a conversation, and is stored. It stays on the shelf, for an
        answer may be under way in it; its paths are folded anew."""
        key = (tenant, conversation)
        for shelved in (self._shelved.get(key), self._in_use.get(key)):
            if shelved is not None:
                for event in events:
                    shelved.ledger.add_event(event)
                shelved.stories.clear()
        at_hand = self._shelved.get(key) or self._in_use.get(key)
        self._told(at_hand.ledger if at_hand else Ledger(Conversation(conversation, tenant)), events)

    def _came(self, size: int) -> None:
        self._come += size
        if self._come * WEIGHED_AT > self._most:
            self._come = 0
            self._shrink()

    def _shrink(self) -> None:
        """Drop the conversations unused for longest, until what is held fits. The one used last is never dropped."""
        held = sum(s.ledger.size for s in self._shelved.values())
        while held > self._most and len(self._shelved) > 1:
            _, gone = self._shelved.popitem(last=False)
            held -= gone.ledger.size


def _best(shelved: Sequence[Shelved], request: Request, now: int, *, opening: bool) -> tuple[Shelved, Match] | None:
    """Which of these holds the request, and where."""
    if opening:
        for each in shelved:
            if (found := matching.retry_of(each.ledger, request, now)) is not None:
                return each, found
        return None
    if (best := matching.best((s.ledger for s in shelved), request)) is None:
        return None
    return next(s for s in shelved if s.ledger is best[0]), best[1]


def _unanswered(shelved: Sequence[Shelved], request: Request) -> tuple[Shelved, Match] | None:
    """Which of these begins as the request does, and lost its answer; the first one, which is the newest."""
    matches = ((s, m) for s in shelved if (m := matching.unanswered(s.ledger, request)) is not None)
    return next(matches, None)


def _add(ledger: Ledger, value: Value) -> None:
    match value:
        case Entry():
            ledger.add(value)
        case Round():
            ledger.add_round(value)
        case Event():
            ledger.add_event(value)
        case Thread():
            ledger.threads[value.id] = value
        case Queued():
            ledger.queue[value.id] = value


def _records(conversation: str, values: Sequence[Value], others: Sequence[Record]) -> list[Record]:
    """All of it in the order of writing. A conversation goes first: everything else belongs to one."""
    records: list[Record] = [Owned(conversation, value) for value in values]
    for record in others:
        if isinstance(record, Conversation):
            records.insert(0, record)
        else:
            records.append(record)
    return records
