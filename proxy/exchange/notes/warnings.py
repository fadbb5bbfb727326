"""Ends a frame as blocked whose task has failed again and again, at level `auto` (S3-23).

The model opened the frame, and under it the same task failed, was tried again, and failed again. The loop note says so
at every level; here the frame is ended too, as the model's own pop would end it: what was tried stays behind its ref,
and the frame above goes on with what came of it.

The law: **only at rest, and only as the user speaks**: the turn before has ended, so no call group is cut through and
no work under way is lost.

What this module does not do: it ends no frame that nobody pushed, and never the root: what the user asked for is theirs
to give up.

The note that tells a model of its loops, and the refusing of their calls where that is configured (S3-24).

The law: **only `loops: block` refuses**, and only calls that are part of the pattern.

What this module does not do: it finds no loop and words no warning (`stack.loops`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from msgspec.structs import replace

from proxy.config.model import Config
from proxy.core.frames.events import Looped, recorded
from proxy.core.frames.path_state import Story
from proxy.core.frames.tree import Frame, Loop, Status, Tree, children
from proxy.core.ledger.ledger import Entry, Kind, Ledger
from proxy.core.ledger.messages import Call
from proxy.core.ledger.tool_call_interceptor import Refusing
from proxy.core.observers.tool_roles import Names
from proxy.core.observers.turns import user_spoke_last
from proxy.core.policy.loop_detection import Rules, arisen, failed_again, note, refused, signature
from proxy.core.tools import frame_tools as moves
from proxy.core.tools.base import Desk, Group
from proxy.exchange.notes.note_writer import Teller
from proxy.exchange.thread.activation import Actor
from proxy.exchange.thread.placement import Standing


@dataclass(frozen=True)
class Blocking:
    """A note that says nothing: what the frame returned says it."""

    teller: Teller
    actor: Actor
    config: Config

    def __call__(self, standing: Standing) -> Standing:
        tree = standing.story.tree
        loop = failed_again(tree) if self._may_end(standing) else None
        turn = _turn_before(standing) if loop else None
        if loop is None or turn is None:
            return standing
        before = standing.shelved.story(turn.id)
        if before.tree.active != tree.active:
            return standing
        now, desk = standing.arrival.now, self.actor
        group = Group(alone=True, home=tree.active)
        nonce = desk.nonce(standing.conversation)
        at = Desk(before, standing.ledger, group, turn.id, "", 0, now, nonce, desk.count, desk.settings)
        outcome = moves.pop(at, {"status": str(Status.BLOCKED), "results": _words(tree, tree.current, loop)})
        number, seq = standing.ledger.rounds[turn.id][-1].number, standing.ledger.seq
        events = [recorded(event, turn.id, number, seq + n, now) for n, event in enumerate(outcome.events)]
        self.teller.shelf.record(standing.shelved, events)
        standing.shelved.stories.clear()
        return replace(standing, story=standing.shelved.story(standing.node))

    def _may_end(self, standing: Standing) -> bool:
        request, frame = standing.request, standing.story.tree.current
        pushed = bool(frame.parent) and frame.opening is not None and frame.status is Status.IN_PROGRESS
        if not pushed or standing.mode != "active" or self.config.loops == "off":
            return False
        rules = self.config.autonomy_rules.with_chosen(standing.story.tree.advice.chosen)
        may = rules.level == "auto" and self.teller.takes_words(request.model)
        return may and user_spoke_last(request.messages)


def _turn_before(standing: Standing) -> Entry | None:
    """The turn that the user's words of this request follow, where it has ended; None where they were known before or
    follow something else."""
    ledger, now = standing.ledger, standing.arrival.now
    entry = ledger.entries.get(standing.node)
    while entry is not None and _is_said_now(entry, now):
        entry = ledger.entries.get(entry.parent)
    return entry if entry is not None and entry.id != standing.node and _has_ended(ledger, entry) else None


def _is_said_now(entry: Entry, now: int) -> bool:
    message = entry.message
    return entry.created >= now and message is not None and message.role == "user" and not message.answers


def _has_ended(ledger: Ledger, entry: Entry) -> bool:
    last = ledger.rounds.get(entry.id, ())[-1:] if entry.kind is Kind.TURN else ()
    return any(done.last and done.spoken.complete and not done.spoken.client_calls for done in last)


def _words(tree: Tree, frame: Frame, loop: Loop) -> str:
    """What the frame returns: how often what failed, and what came of the last attempt."""
    failed = [f for f in children(tree, frame.id) if f.status is Status.FAILED]
    newest = max(failed, key=lambda f: (f.updated_at, f.order))
    return f"Blocked: {', '.join(loop.shown)} failed {loop.count} times. The last attempt: {newest.results}"


@dataclass(frozen=True)
class LoopWarning:
    """A loop that closes with this request is told of behind it."""

    teller: Teller
    actor: Actor
    config: Config

    def __call__(self, standing: Standing) -> Standing:
        takes = self.config.loops != "off" and self.teller.takes_words(standing.request.model)
        if standing.mode != "active" or not takes:
            return standing
        names = self.actor.watch.names
        loop = arisen(standing.story, names, self._rules)
        if loop is not None:
            words = note(loop, self.actor.nonce(standing.conversation))
            looped = Looped(standing.frame, replace(loop, at=standing.node))
            standing = self.teller.told(self.teller.recorded(standing, [looped]), words)
        if self.config.loops == "block":
            standing = replace(standing, refused=refused(standing.story, names, self.config.loop_window))
        return standing

    @cached_property
    def _rules(self) -> Rules:
        return loop_rules(self.config)


def loop_rules(config: Config) -> Rules:
    """What counts as a loop."""
    return Rules(config.loop_repeats, config.loop_window, config.loop_period)


def refuses(standing: Standing, story: Story, names: Names, window: int) -> Refusing | None:
    """Which calls of the client's tools are answered here, as the work stands in `story`: what the model did with stack
    calls since the request came may have ended a loop. None where none are."""
    signatures = standing.refused & refused(story, names, window)
    return (lambda name, arguments: signature(Call("", name, arguments), names) in signatures) if signatures else None
