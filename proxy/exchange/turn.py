"""One turn while it is being answered: its rounds, the stack calls run in it, and what of it is written when.

Its law: **a finished hidden round is durable before the next one starts**, and everything decided in a turn before
the client sees its end. So no visible byte depends on something that can be lost. What had arrived when a client
left, or an upstream died, is kept as partial.

What it does not do: it speaks to nobody. `exchange` asks the upstream and answers the client.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec.structs import replace

from proxy.core import tools
from proxy.core.compaction.cost_gate import Prices
from proxy.core.context.block_format import FLAT, Form
from proxy.core.context.message_list import Line, Scribe, assemble, unbound
from proxy.core.frames import branches as lines
from proxy.core.frames.events import FrameEvent, Invalidated, Popped, ReasoningRemoved, call_key, read_event, recorded
from proxy.core.frames.path_state import Story, extend
from proxy.core.frames.reducer import apply
from proxy.core.ledger.ledger import JOINT, Entry, Event, Kind, Ledger, Round, with_round
from proxy.core.ledger.messages import Call, Message, Request, Spoken
from proxy.core.ledger.queued_messages import Lane
from proxy.core.matching import lookup_keys as anchors
from proxy.core.policy.loop_detection import LOOPING
from proxy.core.recall.recalled_texts import is_recall
from proxy.core.tools.base import UNBOUNDED, Desk, Elsewhere, Group, Outcome, Settings, Subagents
from proxy.exchange.background.in_flight import Glimpse
from proxy.exchange.notes.people_messages import Hearing
from proxy.exchange.thread.placement import Standing
from proxy.store import Anchored
from proxy.store.conversation_cache import Shelf

log = logging.getLogger(__name__)

LEAST_PAGE = 200
"""Tokens of a page of recall that is not halved: less would hold little but its own markers."""
NOWHERE: Mapping[str, Elsewhere] = {}


@dataclass(frozen=True)
class Toolkit:
    """What running a stack call takes."""

    scribe: Scribe
    count: Callable[[str], int]
    nonce: Callable[[str], str]
    settings: Settings
    prices: Callable[[str], Prices]
    """Of a model, by its name."""
    named: Callable[[Request, Sequence[Round]], tuple[str, ...]] = lambda *_: ()
    """The ids by which a client may name the answer to a request, or parts of it."""
    remembered: Callable[[Standing, Round], Round] = lambda _, done: done
    """A round as it is kept: with what else the client may name."""
    suffixed: Callable[[str], bool] = lambda _: False
    """Whether a model, by its name, takes no user message behind a result."""
    bound: Callable[[str], bool] = lambda _: False
    """Whether a model, by its name, takes reasoning only behind what it was made behind."""
    form: Callable[[str], Form] = lambda _: FLAT
    """How frames are told of the tree around them, by the model's name."""
    window: Callable[[str, str], int] = lambda *_: 0
    """What a model, by its name, holds in a conversation, in tokens; 0 where nobody knows."""
    subagents: Callable[[], Subagents] = Subagents
    """How subagents are tracked now."""
    configure: Callable[[Mapping[str, Any]], str] = lambda _: "it cannot be set here."
    """Sets how they are, for everybody; what is wrong with that, or empty."""


class Turn(msgspec.Struct, eq=False):
    """The answer to one client request, under way. `events` are all that was decided in it."""

    standing: Standing
    shelf: Shelf
    entry: Entry
    kit: Toolkit
    recallable: int = UNBOUNDED
    """Tokens that may be recalled in it: a quarter of the window."""
    room: int = UNBOUNDED
    """Tokens that what the next round is answered with may take, for the window to hold it."""
    number: int = 0
    calls_run: int = 0
    recalled: int = 0
    past_us: bool = False
    """It answers the client's own bytes."""

    @classmethod
    def begin(cls, standing: Standing, shelf: Shelf, kit: Toolkit, *, past_us: bool = False) -> Turn:
        """The next attempt at answering this request. Its id is fixed now; it is written with its first round."""
        shelved, node = standing.shelved, standing.node
        turn = shelved.next_turn(node)
        entry = Entry(turn, node, shelved.ledger.seq, Kind.TURN, standing.thread, created=standing.arrival.now)
        return cls(standing, shelf, entry, kit, past_us=past_us)

    @property
    def story(self) -> Story:
        """The path up to the newest round of this turn."""
        return extend(self.standing.ledger, self.standing.story, [self.entry]) if self.number else self.standing.story

    def line(self) -> Line:
        return self._line_of(self.story)

    def _line_of(self, story: Story) -> Line:
        kit, model = self.kit, self.standing.request.model
        return assemble(story, kit.scribe, suffixed=kit.suffixed(model), bound=kit.bound(model))

    # ---------------------------------------------------------------------------------------------------- stack calls
    def run(
        self,
        spoken: Spoken,
        now: int,
        *,
        refuse: bool = False,
        beside: tuple[Ledger, ...] = (),
        elsewhere: Mapping[str, Elsewhere] = NOWHERE,
    ) -> tuple[tuple[Message, ...], list[Event]]:
        """Answer the stack calls of a round, in order: their results, and what was decided. `refuse`: no more in this
        turn. `beside` are conversations that may be recalled from too, `elsewhere` what queries found in others."""
        story, room = self.story, self.room
        group = Group(alone=not spoken.client_calls, home=story.tree.active)
        before = self.line()
        on_line = before.entries
        results: list[Message] = []
        events: list[Event] = []
        for call in spoken.own_calls:
            desk = replace(
                self._desk(story, group, call, now, on_line),
                recallable=self.recallable - self.recalled,
                room=min(room, self.recallable),
                beside=beside,
                elsewhere=elsewhere,
            )
            outcome = Outcome(tools.NO_MORE) if refuse else self._configured(_answered(desk, call))
            self.calls_run += 1
            tokens = self.kit.count(outcome.text)
            self.recalled += tokens if is_recall(call) else 0
            room -= tokens
            events += self._recorded(outcome.events, len(events), now)
            story = _after(story, outcome.events, now)
            group = outcome.group or group
            results.append(self.kit.scribe.tool_result(call.id, outcome.text))
        if gone := self._unbound_by(events, before, story):
            events += self._recorded((ReasoningRemoved(gone),), len(events), now)
        return tuple(results), events

    def _unbound_by(self, events: Sequence[Event], before: Line, story: Story) -> tuple[str, ...]:
        """L8: a frame ended whose opening call the client compacted away. All of it stays on the line but, where it was
        isolated, the words that told it what it is for: the answers that were made behind them, those of this turn
        too."""
        ended = [e for e in map(read_event, events) if isinstance(e, Popped | Invalidated) and e.stays]
        frames = self.story.tree.frames
        openings = (frames[each.frame].opening for each in ended if each.frame in frames)
        isolated = any(opening and opening.view != "fork" for opening in openings)
        if not isolated or not self.kit.bound(self.standing.request.model):
            return ()
        after = self._line_of(story)
        return tuple(dict.fromkeys((*unbound(story, before, after, self.kit.scribe), self.entry.id)))

    def _configured(self, outcome: Outcome) -> Outcome:
        """What a call wants to be set is set, or the model told why not."""
        fault = self.kit.configure(outcome.settings) if outcome.settings else ""
        return Outcome(f"Error: {fault}") if fault else outcome

    def _desk(self, story: Story, group: Group, call: Call, now: int, on_line: frozenset[str]) -> Desk:
        return Desk(
            story,
            self.standing.ledger,
            group,
            self.entry.id,
            call_key(self.number, call.id),
            self.calls_run,
            now,
            self.kit.nonce(self.standing.conversation),
            self.kit.count,
            replace(
                self.kit.settings,
                recall_page=page_within(self.kit.settings.recall_page, self.recallable),
                form=self.kit.form(self.standing.request.model),
                subagents=self.kit.subagents(),
            ),
            on_line,
            prices=self.kit.prices(self.standing.request.model),
            window=self.kit.window(self.standing.request.model, self.standing.conversation),
        )

    def _recorded(self, decided: tuple[FrameEvent, ...], before: int, now: int) -> list[Event]:
        seq = self.standing.ledger.seq + before
        return [recorded(e, self.entry.id, self.number, seq + n, now) for n, e in enumerate(decided)]

    def glimpse(self, said: Message) -> Glimpse:
        """What there is of the answer while `said` arrives of its newest round."""
        before = (r for r in self.standing.ledger.rounds.get(self.entry.id, ()) if r.number < self.number)
        texts = (text for text in (*(r.spoken.message.text for r in before), said.text) if text.strip())
        return Glimpse(self.story.tree.active, self.number, JOINT.join(texts), said.calls)

    # ------------------------------------------------------------------------------------------------------- records
    def keep(self, spoken: Spoken, results: tuple[Message, ...], events: list[Event], now: int, *, last: bool) -> None:
        """Write a round with its results and what was decided in it. Raises StoreError; then nothing has changed."""
        standing = self.standing
        done = self.kit.remembered(standing, Round(self.entry.id, self.number, spoken, results, last, now))
        others = self._anchored(done, now) if last else []
        self.shelf.record(standing.shelved, [*self._unwritten(), done, *events], others)
        if spoken.client_calls:
            self.shelf.expect(standing.shelved, anchors.prompts_in((done,)))
        self.number += 1

    def note(self, decided: FrameEvent, now: int) -> None:
        """Something that changes the line of the request at hand: it hangs on the request, before the turn."""
        standing = self.standing
        event = recorded(decided, standing.node, 0, standing.ledger.seq, now)
        self.shelf.record(standing.shelved, [event])
        standing.shelved.forget_story(standing.node)
        self.standing = replace(standing, story=standing.shelved.story(standing.node))

    def hear(self, hearing: Hearing, lane: Lane, now: int) -> list[Event]:
        """What people said meanwhile in this lane stands behind the newest round from now on; nothing where nothing
        waits. Raises StoreError; then nothing was told."""
        said = hearing.due(self.standing, self.story, lane, now)
        if not said:
            return []
        return hearing.tell(self.standing, self.story, (self.entry.id, self.number - 1), said, now)

    def draft(self, spoken: Spoken, now: int) -> None:
        """Write what has arrived of a round so far; the whole round replaces it."""
        unfinished = Round(self.entry.id, self.number, replace(spoken, complete=False), created=now)
        self.shelf.record(self.standing.shelved, [*self._unwritten(), unfinished])

    def _unwritten(self) -> list[Entry | Event]:
        """The turn itself, with the first that is written of it: a request that failed leaves no turn. What was thought
        in one that went past us fits no line of ours, where the model binds it to its prefix (L8)."""
        ledger, entry, standing = self.standing.ledger, self.entry, self.standing
        if entry.id in ledger.entries:
            return []
        entry = entry if entry.seq == ledger.seq else replace(entry, seq=ledger.seq)
        if not (self.past_us and standing.story.tree.awake and self.kit.bound(standing.request.model)):
            return [entry]
        return [entry, recorded(ReasoningRemoved((entry.id,)), entry.id, 0, entry.seq + 1, standing.arrival.now)]

    def _anchored(self, done: Round, now: int) -> list[Anchored]:
        """Under which keys the conversation is found when the client echoes this turn, or names it."""
        ledger, request = self.standing.ledger, self.standing.request
        conversation = ledger.conversation
        rounds = with_round(ledger.rounds.get(self.entry.id, ()), done)
        keys = anchors.of_turn(request.messages, rounds)
        echoed = Anchored(conversation.id, conversation.hint, keys, now)
        if not (names := self.kit.named(request, rounds)):
            return [echoed]
        return [echoed, Anchored(conversation.id, "", tuple(map(anchors.of_answer, names)), now)]

    async def durable(self, left_out: Set[str] | None = None) -> None:
        """All of the conversation is on disk; with `left_out`, what a line without these entries depends on. Raises
        StoreError when it is not going to be."""
        await self.shelf.durable(self.standing.shelved, left_out)


def page_within(page: int, most: int) -> int:
    """Tokens of a page of recall where a turn may recall `most` in all: halved until one fits, so that a page stays
    the same while what is known of the window changes a little."""
    while page > max(most, LEAST_PAGE):
        page //= 2
    return page


def _answered(desk: Desk, call: Call) -> Outcome:
    """A call the model made never fails the client's request, whatever is wrong with our tool. One that is none of ours
    is here because it runs in a loop."""
    if not call.is_ours:
        return Outcome(LOOPING)
    try:
        return tools.run(desk, call)
    except Exception:  # the edge of our own tools: the model is told, the log has the cause
        log.exception("stack call failed", extra={"tool": call.name[:80]})
        return Outcome("Error: this operation failed inside the proxy and changed nothing. Go on without it.")


def _after(story: Story, events: tuple[FrameEvent, ...], now: int) -> Story:
    tree, of_lines = story.tree, story.lines
    for event in events:
        tree, of_lines = apply(tree, event, now), lines.after(of_lines, event, now)
    return replace(story, tree=tree, lines=of_lines)
