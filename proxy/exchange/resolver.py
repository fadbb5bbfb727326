"""Finding out where a request stands: its conversation, its path, its frames, and whether the proxy acts on it.

One question after the other, in reading order: which session does the client name, which conversation holds this
history, is it the thread itself, a fork of it or a side request, what is new in it, and may the thread wake. What is
new is recorded before anything leaves; the state of one scope changes one request at a time.

Its law: **asleep, side, off and shadow requests pass as they came.** Only an awake thread in mode `active` or `passive`
is rendered.

What this module does not do: it has no words for the model. What is said behind the newest message of an awake thread
comes from the `notes` (`telling`), in their order.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import cached_property, lru_cache

from msgspec.structs import replace

from proxy.accounting.receipts import ANSWERED
from proxy.config.model import Config
from proxy.config.runtime import LiveSettings
from proxy.core.context.message_list import on_line
from proxy.core.frames.branches import SWITCHED, Lines, Look
from proxy.core.frames.events import (
    FrameEvent,
    ReasoningRemoved,
    Replaced,
    Rewritten,
    Rooted,
    Switched,
    Woken,
    frame_id,
    recorded,
)
from proxy.core.frames.path_state import Story, extend, turned
from proxy.core.frames.reducer import apply
from proxy.core.ledger.ledger import Conversation, Entry, Event, Kind, Ledger, Thread, message_id
from proxy.core.ledger.messages import OFFERED, Message, Request, is_stack_tool
from proxy.core.matching import lookup_keys as anchors
from proxy.core.matching import match as matching
from proxy.core.matching.match import How, Match, Part
from proxy.core.matching.walk_history import walk
from proxy.core.observers.keywords import remember, remembering
from proxy.core.observers.step import said_by
from proxy.core.policy.infer_frames import has_called, inferred
from proxy.core.policy.roots import begun, begun_beside
from proxy.core.recall.unchanged_notes import is_note, sent_anew, supplied
from proxy.core.tools.base import Settings
from proxy.core.tools.branch_tools import ends_in_results, look_at, turning
from proxy.dialects import Dialect
from proxy.errors import BadRequest
from proxy.exchange.background.scheduling import bit_by_bit
from proxy.exchange.notes.note_writer import Note, Teller, noted
from proxy.exchange.notes.situation import with_parents
from proxy.exchange.thread import session_headers as clients
from proxy.exchange.thread.activation import Acted, Actor, suffixed
from proxy.exchange.thread.origins import Origin, Origins, fork_point
from proxy.exchange.thread.placement import Arrival, Headers, Standing, here
from proxy.store import Anchored, Record
from proxy.store.conversation_cache import Shelf, Shelved

log = logging.getLogger(__name__)

MODES = ("off", "shadow", "passive", "active")
ACTING = ("passive", "active")
"""Modes in which a thread may wake, and a person is answered who types to the proxy."""
_NOTHING: Set[int] = frozenset()
LOOKED_AT = 32
"""New messages of a request whose names are looked for at once when they come: a trace will ask for them all, and then
somebody waits. So many take 2 ms."""
MOST_LOOKED_OVER = 2_000
"""Messages of a history that comes whole whose names are looked for, the newest; more are not remembered."""


@dataclass(frozen=True)
class Reception:
    """Finds out where requests stand. `actor` decides what is done, `notes` say what is to be said; `fresh_id` makes an
    id of 128 random bits, hex."""

    config: Config
    live: LiveSettings
    shelf: Shelf
    dialect: Dialect
    actor: Actor
    teller: Teller
    notes: tuple[Note, ...]
    fresh_id: Callable[[], str]

    @cached_property
    def origins(self) -> Origins:
        """Where conversations come from."""
        return Origins(self.config, self.live, self.shelf, self.dialect)

    async def stand(self, arrival: Arrival) -> Standing:
        """Raises StoreError when the store cannot say, BadRequest for a mode that does not exist."""
        asked = _asked_mode(arrival.headers)
        hint = clients.session_hint(arrival.headers)
        async with self.shelf.lock(arrival.tenant, hint):
            shelved, found = await self.shelf.locate(
                arrival.tenant, hint, arrival.request, arrival.now, self.dialect.name
            )
            if shelved is not None and found.path:
                arrival = arrival.behind(shelved.ledger, found.path[-1])
            part = self._part(arrival, shelved, found)
            if part is Part.SIDE and shelved is not None:
                return self._beside(arrival, shelved, found)
            new = arrival.request.messages[len(found.path) :]
            whole = len(new) > LOOKED_AT and await self._look_over(arrival, new, self._mode(arrival, asked, ""))
            if shelved is None or part is Part.FORK:
                known = fork_point(shelved, found) if shelved else await self.origins.of(arrival)
                arrived = await self._begun(arrival, known, hint, asked)
            else:
                arrived = self._arrived(arrival, shelved, found, asked, _NOTHING)
            if (subagent := self.live.subagent).enabled and subagent.parent_context:
                arrived = await with_parents(arrived, self.shelf, self.teller)
            standing = await self._decided(arrived, whole=whole)
            await self.origins.returned(standing)
            return standing

    async def _begun(self, arrival: Arrival, known: Origin, hint: str, asked: str) -> Standing:
        """In a conversation of its own, which comes from the one that is `known`."""
        bound = await self.origins.bound_elsewhere(arrival, known)
        origin = known if self.live.subagent.enabled else Origin()
        arrived = self._arrived(arrival, self._opened(arrival, hint, origin), Match(How.NEW), asked, bound)
        await self.origins.begun(arrived, origin)
        return arrived

    async def _look_over(self, arrival: Arrival, new: Sequence[Message], mode: str) -> bool:
        """A history that comes whole is looked over bit by bit, so that others have their turn: a trace will ask for
        the names in all of it at once. It comes before anything is decided, and leaves nothing but what is
        remembered. False where its thread sleeps."""
        request, new = arrival.request, new[-MOST_LOOKED_OVER:]
        if mode == "off" or request.tokens < self.config.wake_at_tokens or not request.tool_names:
            return False
        await bit_by_bit(remembering(new))
        return True

    async def addressed(self, arrival: Arrival) -> tuple[str, Standing | None]:
        """The mode, and where somebody stands who speaks to the proxy itself: at the newest known entry of the path;
        None where no conversation has begun. Nothing is decided, and nothing recorded, for all of it comes again with
        the next request; only a history that nobody knows is taken in. Raises as `stand` does."""
        asked = _asked_mode(arrival.headers)
        hint, messages = clients.session_hint(arrival.headers), arrival.request.messages
        async with self.shelf.lock(arrival.tenant, hint):
            shelved, found = None, Match(How.NEW)
            if messages:
                shelved, found = await self.shelf.locate(
                    arrival.tenant, hint, arrival.request, arrival.now, self.dialect.name
                )
            if shelved is None and any(m.role == "assistant" for m in messages):
                opened = self._opened(arrival, hint, Origin())
                standing = self._arrived(arrival, opened, found, asked, _NOTHING)
                return standing.mode, replace(standing, status=ANSWERED)
            if shelved is None:
                return self._mode(arrival, asked, ""), None
            ledger = shelved.ledger
            tip = ledger.entries[found.path[-1].id if found.path else found.adopts]
            mode = self._mode(arrival, asked, ledger.conversation.mode)
            story = shelved.story(tip.id)
            return mode, Standing(arrival, shelved, story, tip.id, tip.thread, ANSWERED, how=found.how, mode=mode)

    def _mode(self, arrival: Arrival, asked: str, known: str) -> str:
        """`asked` by the request, `known` of the conversation."""
        return asked or known or arrival.mode or self.config.mode_of(arrival.request.model)

    def mode_of(self, headers: Headers, issued: str, model: str) -> str:
        """The mode of a request as far as it can be told without its conversation; `issued` is the one of its key.
        Raises BadRequest."""
        return _asked_mode(headers) or issued or self.config.mode_of(model)

    async def beside(self, arrival: Arrival, reason: str) -> Standing | None:
        """Where a request stands that passes as it came, for this reason; None where it belongs to no conversation.
        Nothing of it is kept."""
        hint = clients.session_hint(arrival.headers)
        shelved, found = await self.shelf.locate(arrival.tenant, hint, arrival.request, arrival.now, self.dialect.name)
        beside = self._beside(arrival, shelved, found) if shelved is not None else None
        return replace(beside, status="bypass", reason=reason) if beside else None

    # ------------------------------------------------------------------------------------------------------ identity
    def _part(self, arrival: Arrival, shelved: Shelved | None, found: Match) -> Part:
        tip = found.path[-1].id if found.path else found.adopts
        if shelved is None or not tip or not any(m.role == "assistant" for m in arrival.request.messages):
            return Part.MAIN
        thread = shelved.ledger.threads.get(shelved.ledger.entries[tip].thread)
        named = bool(shelved.ledger.conversation.hint)
        return matching.part_of(arrival.request, thread, named=named) if thread else Part.MAIN

    def _beside(self, arrival: Arrival, shelved: Shelved, found: Match) -> Standing:
        """A side request: answered beside the thread, nothing of it is kept on the path."""
        tip = found.path[-1].id if found.path else found.adopts
        story = shelved.story(tip)
        return Standing(arrival, shelved, story, "", shelved.ledger.entries[tip].thread, "side", how=found.how)

    def _opened(self, arrival: Arrival, hint: str, origin: Origin) -> Shelved:
        """A conversation of its own, under the one it was forked from or delegated by."""
        return self.shelf.open(
            Conversation(
                self.fresh_id(),
                arrival.tenant,
                hint,
                origin.conversation,
                origin.turn,
                arrival.now,
                dialect=self.dialect.name,
            )
        )

    # --------------------------------------------------------------------------------------------------------- record
    def _arrived(self, arrival: Arrival, shelved: Shelved, found: Match, asked: str, bound: Set[int]) -> Standing:
        """Record what is new, and fold the path. `bound`: places of new answers whose reasoning is bound to a line of
        another conversation."""
        ledger, request = shelved.ledger, arrival.request
        thread = _thread_of(ledger, found, request)
        new = matching.grown(ledger, request, found, thread, arrival.now)
        opening = found.how is How.NEW
        events = [_rooted(ledger.conversation, new, arrival.now)] if opening and new else []
        if bound:
            events.append(_unbound(new, bound, arrival.now))
        before = ledger.threads.get(thread) or _thread_at(ledger, found)
        told = _thread_now(before, thread, request, self.config.sent_as(request.model))
        mode = self._mode(arrival, asked, ledger.conversation.mode)
        look = look_at(before) if new and _may_act(request, mode) else None
        story, earlier, seen = self._followed(arrival, shelved, found, new, events, told, look)
        values: list[Entry | Event | Thread] = [*new, *seen]
        if told:
            values.append(told)
        others: list[Record] = [ledger.conversation] if opening else []
        if opening or found.how is How.COMPACTED:  # either begins anew, and may be asked again
            others.append(_anchored_at(arrival, ledger.conversation))
        if values or others:
            self.shelf.record(shelved, values, others)
        node = new[-1].id if new else found.path[-1].id
        if opening and len(new) > LOOKED_AT:  # what is decided now hangs on the newest entry: only that is told anew
            shelved.keep_story(earlier.tip, earlier)
        if new:
            shelved.keep_story(node, story)
        since = before if told else None
        if seen and any(event.kind == SWITCHED for event in seen):
            since = _thread_on(story.lines, told or before)
        return Standing(arrival, shelved, story, node, thread, "asleep", how=found.how, since=since, mode=mode)

    def _followed(  # noqa: PLR0913  where the request stands, and what is new in it
        self,
        arrival: Arrival,
        shelved: Shelved,
        found: Match,
        new: Sequence[Entry],
        rooted: Sequence[Event],
        thread: Thread | None,
        look: Look | None,
    ) -> tuple[Story, Story, list[Event]]:
        """The story of the path with what is new, the one before its newest entry, and all events on it: the root's,
        and frames that can be seen in what the client says. What is another form of known entries has been followed
        before. A thread without tools has no frames, and talk has none: there is nothing to fold.

        The newest messages may stand on another line than those before them; `look` is how the request before this one
        looked, None where this one has to stand where that did."""
        ledger = shelved.ledger
        story = shelved.story(found.path[-1].id) if found.path else Story()
        if not new:
            return story, story, []
        decided = _Decided(ledger.seq + len(new), arrival.now, rooted)
        watched = bool(arrival.request.tool_names or (thread and thread.tool_names)) and found.how is not How.COMPACTED
        if watched and found.path:
            remember(entry.message for entry in new[-LOOKED_AT:] if entry.message)
        known = max((at for at, entry in enumerate(new, 1) if entry.alias), default=0)
        if known:
            decided.add(Rewritten(), new[0].id)
        story = before = extend(ledger, story, new[:known], decided.at)
        called = watched and has_called(said_by(placed) for placed in story.placed)
        for run in _runs(new[known:]):
            last = run[-1]
            called = called or (watched and has_called(entry.message for entry in run))
            if look and last is new[-1] and (turns := self._turned(arrival, ledger, story, run, look)):
                decided.add(turns[0], run[0].id)
                story = turns[1]
            tree = shelved.story(run[0].adopts).tree if run[0].adopts else story.tree
            compacted = found.how is How.COMPACTED
            if root := begun_beside(tree, new if compacted else run, newest=compacted):
                decided.add(root[1], root[0])
            before = extend(ledger, story, run[:-1], decided.at)
            if called and last.message and last.message.role != "assistant":
                for event in self._inferred(_rooted_at(last, before, root, arrival.now), run, arrival.now):
                    decided.add(event, last.id)
            story = extend(ledger, before, [last], decided.at)
        return story, before, decided.events

    def _turned(
        self, arrival: Arrival, ledger: Ledger, story: Story, run: Sequence[Entry], look: Look
    ) -> tuple[Switched, Story] | None:
        """The line that `run`, the newest messages, turns to, and its story; None where they go on where they are. What
        the user says cannot stand behind results with every model."""
        turns = turning(story, ledger, run, arrival.request, look)
        there = turned(ledger, story, turns, arrival.now) if turns else None
        if turns is None or there is None:
            return None
        refused = suffixed(self.config, arrival.request.model) and ends_in_results(there)
        return None if refused else (turns, there)

    def _inferred(self, before: Story, run: Sequence[Entry], now: int) -> tuple[FrameEvent, ...]:
        """What is seen in the client's messages. A fault of ours costs the frames that could have been seen, not the
        proxy's help: what stands in a history comes again with every request."""
        try:
            return inferred(before, run, now, self.actor.watch)
        except Exception:  # the edge of our own observers, which look at whatever a model or a tool has written
            log.exception("frames could not be inferred")
            return ()

    async def _decided(self, standing: Standing, *, whole: bool) -> Standing:
        """`whole`: of a history that came whole, which is much to think about; a thread does, and others have their
        turn."""
        request = standing.request
        if standing.mode not in ACTING:
            return replace(standing, status=standing.mode)
        if request.answers_wanted > 1:
            return replace(standing, status="side", reason="several_answers")
        if reason := _barred(request):
            return replace(standing, status="asleep", reason=reason)
        act, where = self.actor.act, here(standing)
        return self._acted(standing, await asyncio.to_thread(act, where) if whole else act(where))

    def would_wake(self, standing: Standing) -> Woken | None:
        """Shadow: what the thread would be given with this request; None where it would go on sleeping."""
        if _barred(standing.request) or standing.request.answers_wanted > 1:
            return None
        acted = self.actor.act(here(standing, "active"))
        return next((event for event in acted.events if isinstance(event, Woken)), None)

    def _acted(self, standing: Standing, acted: Acted) -> Standing:
        """Wake the thread, fold what is finished, or leave it as it is."""
        if acted.decisions:
            standing = replace(standing, decisions=acted.decisions)
        if acted.events:
            standing = self.teller.recorded(standing, acted.events)
        if not standing.story.tree.awake:
            return replace(standing, status="asleep", reason=acted.reason)
        return noted(replace(self._supplied(standing, acted.events), status="full"), self.notes)

    def _supplied(self, standing: Standing, decided: Sequence[FrameEvent]) -> Standing:
        """Clients answer a second read of a file with a note about the first one. Where that left the line, its
        content is told with the note; behind what was `decided` now, with older notes too, for they are sent anew."""
        messages = standing.request.messages
        spoken = next((at for at in range(len(messages) - 1, -1, -1) if messages[at].role == "assistant"), 0)
        if not any(m.answers and is_note(m.text) for m in messages[0 if decided else spoken :]):
            return standing
        shown = {p.at for p in on_line(standing.story)}
        new = sent_anew(standing.story, decided)
        means = self.actor.means(here(standing))
        given = supplied(standing.ledger, standing.story, shown, new, means)
        if not given:
            return standing
        return self.teller.recorded(standing, [Replaced(entry, text, "read again") for entry, text in given])


def _barred(request: Request) -> str:
    """Why no tool of ours may stand beside those of the client, or empty."""
    if request.closed:
        return "legacy_functions"
    return "name_clash" if _clash(request.tool_names) else ""


@lru_cache(OFFERED)
def _clash(tool_names: tuple[str, ...]) -> bool:
    """Whether a tool of the client's has the name of one of ours."""
    return any(map(is_stack_tool, tool_names))


def _anchored_at(arrival: Arrival, opened: Conversation) -> Anchored:
    """Under which keys a conversation is found that opens with this request."""
    return Anchored(opened.id, opened.hint, anchors.at_opening(arrival.request), arrival.now)


def _may_act(request: Request, mode: str) -> bool:
    return mode in ACTING and request.answers_wanted == 1 and not _barred(request)


def _runs(new: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
    """New entries, parted where an assistant turn begins or ends: what stands between two of them is decided at its
    last one."""
    run: list[Entry] = []
    for entry in new:
        speaks = entry.message is not None and entry.message.role == "assistant"
        if run and speaks:
            yield run
            run = []
        run.append(entry)
        if speaks:
            yield run
            run = []
    if run:
        yield run


class _Decided:
    """What is decided while a path is followed: `events`, in their order, and the same by the entry they hang `at`,
    which is asked for with each run of a history that may be long. `seq` is that of the first, `now` in ms; `rooted`
    was decided before."""

    def __init__(self, seq: int, now: int, rooted: Iterable[Event]) -> None:
        self.events: list[Event] = []
        self.at: dict[str, list[Event]] = {}
        self._seq, self._now = seq, now
        for event in rooted:
            self._keep(event)

    def add(self, event: FrameEvent, entry: str) -> None:
        self._keep(recorded(event, entry, 0, self._seq + len(self.events), self._now))

    def _keep(self, event: Event) -> None:
        self.events.append(event)
        self.at.setdefault(event.entry, []).append(event)


def _asked_mode(headers: Headers) -> str:
    """The mode this request asks for, or empty."""
    told = dict(reversed(headers)).get(b"x-stack-mode", b"").decode("latin-1").strip()
    if told and told not in MODES:
        raise BadRequest(f"x-stack-mode: {told[:40]!r} is no mode; use one of {', '.join(MODES)}.", code="unknown_mode")
    return told


def _thread_of(ledger: Ledger, found: Match, request: Request) -> str:
    """The thread that goes on, or a new one where the path forks."""
    if found.how is How.NEW:
        return "main"
    if found.how is How.BRANCHED and found.depth < len(request.messages):
        first = request.messages[found.depth]
        return "b" + message_id(found.path[-1].id, first.identity, ledger.conversation.id)[:8]
    tip = ledger.entries[found.adopts or found.path[-1].id]
    if found.how is How.ALIGNED and (other := _other_way(ledger, found, request)) is not None:
        return "b" + message_id(other[0], other[1].identity, ledger.conversation.id)[:8]
    if found.how is How.CONTINUED and tip.kind is Kind.TURN and _other_attempt_went_on(ledger, tip):
        return "b" + tip.id[:8]
    return tip.thread


def _other_way(ledger: Ledger, found: Match, request: Request) -> tuple[str, Message] | None:
    """Where a rewritten history leaves the way that had gone on from the turn it was aligned with: the last entry on
    that way, and the message that is another one."""
    aligned = [at for at, alias in enumerate(found.aliases, start=found.depth) if alias]
    behind = request.messages[aligned[-1] + 1 :] if aligned else ()
    path = walk(ledger, behind, found.adopts)
    tip = path[-1].id if path else found.adopts
    return (tip, behind[len(path)]) if len(path) < len(behind) and tip in ledger.has_child else None


def _thread_at(ledger: Ledger, found: Match) -> Thread | None:
    """The thread of the entry that a branch goes on from."""
    tip = found.adopts or (found.path[-1].id if found.path else "")
    return ledger.threads.get(ledger.entries[tip].thread) if tip else None


def _other_attempt_went_on(ledger: Ledger, turn: Entry) -> bool:
    """Another answer to the same request has its follow-up already: two clients asked the same, and each goes on from
    its own answer."""
    return any(t != turn.id and t in ledger.has_child for t in ledger.turns_under.get(turn.parent, ()))


def _thread_now(known: Thread | None, thread: str, request: Request, model: str) -> Thread | None:
    """The thread as its newest request shows it, where that is news. A request without tools takes none away."""
    names = request.tool_names or (known.tool_names if known else ())
    now = Thread(thread, request.system_hash, names, request.tools_hash, model)
    return None if now == known else now


def _thread_on(lines: Lines, thread: Thread | None) -> Thread | None:
    """The thread as the last request on the current line showed it, where it looks otherwise now."""
    look = lines.looks.get(lines.current)
    if look is None or thread is None:
        return None
    then = replace(thread, system_hash=look[0], tools_hash=look[1], model=look[2])
    return None if then == thread else then


def _rooted(conversation: Conversation, entries: Sequence[Entry], now: int) -> Event:
    """The root frame: what the user said first is its title and its criterion (S1-36)."""
    said = (e.message.text for e in entries if e.message and e.message.role == "user")
    return recorded(begun(said, frame_id(conversation.id, 0)), entries[0].id, 0, len(entries), now)


def _rooted_at(entry: Entry, before: Story, root: tuple[str, Rooted] | None, now: int) -> Story:
    """The story before `entry`, with the `root` that begins there, if it does."""
    if root is None or root[0] != entry.id:
        return before
    return replace(before, tree=apply(before.tree, root[1], now))


def _unbound(new: Sequence[Entry], bound: Set[int], now: int) -> Event:
    """The answers at these places lose their reasoning; it hangs on the last of them, so every path behind has it."""
    event = ReasoningRemoved(tuple(new[at].id for at in sorted(bound)))
    return recorded(event, new[max(bound)].id, 0, len(new) + 1, now)


def tool_settings(config: Config) -> Settings:
    """What the tools need of the configuration."""
    budgets = config.budgets
    return Settings(
        budgets=replace(
            Settings().budgets,
            total=budgets.total,
            ancestors=budgets.ancestors,
            siblings=budgets.siblings,
            current=budgets.current,
        ),
        child_view=config.child_view,
        isolate_above=config.isolate_above,
        max_depth=config.max_depth,
        recall_page=config.recall_page_tokens,
        checkpoint_at_push=config.checkpoint_at_push,
        autonomy=config.autonomy_rules,
        names=config.observed_tools,
    )
