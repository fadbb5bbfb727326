"""Where a request stands: the parsed request, its path and its frames. All values are immutable; later steps make
copies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

import msgspec
from msgspec.structs import replace

from proxy.core.compaction import CompactionDecision
from proxy.core.frames import HEAD_CHANGED, REASONING_REMOVED, PathState, ReasoningRemoved, decode_event
from proxy.core.ledger import Entry, Ledger, Request, Thread, has_waiting_message
from proxy.core.matching import MatchKind, is_beginning
from proxy.core.recall import NO_REREADS, NewRereads
from proxy.exchange.thread.attach_subagent import ParentTask
from proxy.store import CachedConversation

Headers = Sequence[tuple[bytes, bytes]]


class ParsedRequest(msgspec.Struct, frozen=True):
    """A request at `now` (ms since the epoch). `mode` is that of the tenant's key, or empty."""

    tenant: str
    headers: Headers
    request: Request
    now: int
    mode: str = ""

    def later_than(self, ledger: Ledger, tip: Entry) -> ParsedRequest:
        """The same, timed after `tip` and its events: a request's news is known by its time, and the machine's clock
        may be set back."""
        newest = max([tip.created, *[event.created for event in ledger.events.get(tip.id, ())]])
        return self if self.now > newest else replace(self, now=newest + 1)


class Placement(msgspec.Struct, frozen=True):
    """`entry_id` is the entry of the request's last message; `status` is what the client sees: full, asleep (also
    before anything is decided), side, off, shadow, answered or bypass, with a `reason`."""

    parsed_request: ParsedRequest
    cached_conversation: CachedConversation
    path_state: PathState
    entry_id: str
    thread: str
    status: str
    reason: str = ""
    match_kind: MatchKind = MatchKind.NEW
    mode: str = ""
    previous_thread: Thread | None = None
    """The thread's state at the request before; None if unchanged."""
    refused_signatures: frozenset[str] = frozenset()
    """Signatures of looping calls that the proxy answers."""
    decisions: tuple[CompactionDecision, ...] = ()
    """All decisions of the cost gate, also those not to compact."""
    parent_task: ParentTask | None = None
    """A subagent's task, if it is to be told with this request."""
    call_ids: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The stored ids of known calls by those of the client, where it makes them anew."""
    directive_entry: str = ""
    """In a fork's first request, the message with its directive."""
    rereads: NewRereads = NO_REREADS
    """What of the request's results had been read before."""
    group: str = ""
    """`holdout` or `folded` where the conversation is part of the comparison."""

    @property
    def request(self) -> Request:
        return self.parsed_request.request

    @property
    def ledger(self) -> Ledger:
        return self.cached_conversation.ledger

    @property
    def conversation(self) -> str:
        return self.cached_conversation.ledger.conversation.id

    @property
    def begins(self) -> bool:
        """Whether the conversation begins with this request: nothing of it was answered, so nothing of it is cached."""
        return is_beginning(self.request.messages, self.ledger.path(self.entry_id))

    @property
    def frame(self) -> str:
        return self.path_state.tree.active

    @property
    def guides_model(self) -> bool:
        """Whether the model may be told of frames: it was offered the tools for them, and the mode is `active`."""
        return self.mode == "active" and self.path_state.tree.offers_frames

    @property
    def is_rendered(self) -> bool:
        return self.status == "full"

    @property
    def refers_to_providers_content(self) -> bool:
        """Whether the request refers to content that only the provider has, so that nothing of it can be shortened."""
        return self.status == "bypass"


class PolicyInput(msgspec.Struct, frozen=True):
    """A request on its path, at `now` (ms). `mode` is active or passive."""

    path_state: PathState
    request: Request
    conversation: str
    entry_id: str
    now: int
    mode: str
    previous_thread: Thread | None = None
    """The thread's state at the request before; None if unchanged."""
    headers: Headers = ()
    message_is_waiting: bool = False
    """A queued message of a person waits for the model."""
    needs_parent_task: bool = False
    """It is a subagent's conversation that is to be told its parent's task."""
    outdated_answers: frozenset[str] = frozenset()
    """Answers that lost their reasoning on a sibling path to a change by the client."""
    begins: bool = False
    """The conversation begins with this request."""
    is_subagent: bool = False
    """Another conversation delegated it. A fork, which has its parent's calls in front, is none."""


def positions_made_behind_ours(ledger: Ledger, path_state: PathState, count: int) -> Set[int]:
    """Positions, among the client's `count` messages, of those made behind our context: since the thread woke, or in a
    sleeping thread those taken over from an awake one."""
    if path_state.tree.is_awake:
        return set(range(message_count_at_wake(ledger, path_state), count))
    if not path_state.tree.without_reasoning:
        return set()
    return {
        at
        for at, entry in enumerate(ledger.path(path_state.tip)[:count])
        if entry.id in path_state.tree.without_reasoning
    }


def message_count_at_wake(ledger: Ledger, path_state: PathState) -> int:
    """How many messages the client had sent when the thread woke; 0 where that was on another path."""
    path = ledger.path(path_state.tip)
    waking = (at for at, e in enumerate(path, 1) if any(h.kind == "woken" for h in ledger.events.get(e.id, ())))
    return next(waking, 0)


def outdated_answers_at(ledger: Ledger, entry_id: str, match_kind: MatchKind) -> frozenset[str]:
    """Answers on the path to `entry_id` whose reasoning was dropped on a sibling path after the client changed its
    prompt, tools or model: a rewind goes back behind the change, but the change stays."""
    if match_kind not in (MatchKind.BRANCHED, MatchKind.RETRIED, MatchKind.ALIGNED):
        return frozenset()
    removed = [(at, e) for at, events in ledger.events.items() for e in events if e.kind == REASONING_REMOVED]
    here = {entry.id for entry in ledger.path(entry_id)} if removed else set()
    said = (decode_event(event) for at, event in removed if at not in here)
    changed = (event for event in said if isinstance(event, ReasoningRemoved) and event.why == HEAD_CHANGED)
    return frozenset(turn for event in changed for turn in event.turns)


def policy_input_of(placement: Placement, mode: str = "") -> PolicyInput:
    """The policy's input; `mode` replaces the request's own."""
    parsed, ledger, path_state = placement.parsed_request, placement.ledger, placement.path_state
    return PolicyInput(
        path_state,
        parsed.request,
        ledger.conversation.id,
        placement.entry_id,
        parsed.now,
        mode or placement.mode,
        placement.previous_thread,
        parsed.headers,
        bool(ledger.queue) and has_waiting_message(ledger.queue.values(), placement.thread, parsed.now),
        placement.parent_task is not None,
        outdated_answers_at(ledger, placement.entry_id, placement.match_kind)
        if path_state.tree.is_awake
        else frozenset(),
        not path_state.tree.is_awake and placement.begins,
        bool(ledger.conversation.parent) and not _begins_with_calls_of_others(path_state),
    )


def _begins_with_calls_of_others(path_state: PathState) -> bool:
    called = (p for p in path_state.entries if p.round or (p.entry.message and p.entry.message.calls))
    first = next(called, None)
    return first is not None and first.round is None
