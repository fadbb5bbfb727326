"""Which finished work leaves the line now, and what stands for it.

A frame that nobody pushed is folded where it ends: what its calls did leaves the line, the words of the user and the
closing words of the assistant stay, and one trace stands for the rest. Work that grows long without an end is cut at a
border between two call groups and becomes a part of its own.

The law: **no fold without a reason that the figures give** (`economics`), and every reason is handed out.

What this module does not do: what may leave at all is told by `segments`; it opens no frame but parts (`inferring`
does), and it neither stores nor sends.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice

import msgspec
from msgspec.structs import replace

from proxy.core.compaction.cost_gate import PRESSURE, TAIL, Prices, Reason, Rewrite, Verdict, weighed
from proxy.core.compaction.facts import (
    artifacts_of,
    facts_of,
    interim_words,
    returned_in,
    returned_words,
    summed_up,
    with_notes,
)
from proxy.core.compaction.segments import (
    Segment,
    Weights,
    finished,
    is_assistant,
    is_user,
    may_leave,
    segments_of,
    thoughts_of,
    tokens_of,
    told_tokens,
)
from proxy.core.compaction.trace import LEAST, MOST, SHARE, Facts, read_trace, trace_text
from proxy.core.compaction.user_messages import said_inside
from proxy.core.context.message_list import Scribe, on_line, owner_of
from proxy.core.frames.events import Folded, FrameEvent, Parted, frame_id
from proxy.core.frames.path_state import Placed, Story
from proxy.core.frames.reducer import apply
from proxy.core.frames.results import title_of
from proxy.core.frames.tree import FINAL, Frame, Status, Tree, Trim, children
from proxy.core.ledger.messages import Message
from proxy.core.observers import Names
from proxy.core.observers.keywords import shown_beside
from proxy.core.observers.step import messages_of, said_by
from proxy.core.observers.tool_roles import Role
from proxy.core.text import Count

SMALLER = 0.9
"""A trace that takes more than this share of what it stands for is not worth writing (S4-65)."""
PLANNING = frozenset({Role.PLAN, Role.ITEM_CREATE, Role.ITEM_UPDATE})
PARTS = 1_000
"""Numbers of frames that begin at an entry by a cut; those seen in what the client says count from 0."""


class Moment(msgspec.Struct, frozen=True):
    """What a decision depends on besides the line. `node` is the newest entry, `now` is in ms. `head` are the tokens of
    tools and system text; `added` those that waking brings, where it is asked for; `window` is 0 where it is not known.
    `binds`: the model refuses or drops reasoning behind a changed prefix. `edited`: the provider edits by itself what
    it is sent, so what it has cached is not known, and nothing is folded for its price. `appended`: waking changes
    nothing of what stands there already. `voids`: it comes with a fold alone, and no reasoning so far outlives it."""

    node: str
    now: int
    prices: Prices
    requests: int
    cold: bool
    window: int
    frame_max: int
    head: int = 0
    added: int | None = None
    binds: bool = False
    edited: bool = False
    appended: bool = False
    voids: bool = False


class Pen(msgspec.Struct, frozen=True):
    """What writing a trace takes."""

    names: Names
    count: Count
    nonce: str
    scribe: Scribe


class Decision(msgspec.Struct, frozen=True):
    """What was weighed and came of it. `kind` is wake, fold or unfold; `subjects` are frames: the one that goes on
    where a part of it was weighed."""

    kind: str
    subjects: tuple[str, ...]
    verdict: Verdict


class Folding(msgspec.Struct, frozen=True):
    """What happens to the line now. Without events nothing does, and the decisions say why not."""

    events: tuple[FrameEvent, ...] = ()
    decisions: tuple[Decision, ...] = ()


class Candidate(msgspec.Struct, frozen=True, dict=True):
    """What leaves the line for one trace of `frame`, or of a part of it."""

    frame: str
    part: bool
    segments: tuple[Segment, ...]

    @property
    def placed(self) -> tuple[Placed, ...]:
        return tuple(p for segment in self.segments for p in segment.placed)

    @property
    def told(self) -> tuple[Trim, ...]:
        """The traces that the new one takes the place of, oldest first."""
        return tuple(segment.trace for segment in self.segments if segment.trace)

    @property
    def start(self) -> int:
        return self.segments[0].start

    @cached_property
    def tokens(self) -> int:
        return sum(segment.tokens for segment in self.segments)

    @cached_property
    def pays(self) -> bool:
        """Whether it makes the line shorter; a trace alone is no reason to write another one."""
        return any(segment.placed for segment in self.segments) and self.tokens > self.estimate

    @cached_property
    def told_tokens(self) -> int:
        """Tokens of the traces that the new one takes the place of."""
        return sum(segment.tokens for segment in self.segments if segment.trace)

    @cached_property
    def estimate(self) -> int:
        """Tokens that its trace will take, about."""
        return int(min(MOST, self.told_tokens + max(LEAST, SHARE * (self.tokens - self.told_tokens))))


# -------------------------------------------------------------------------------------------------------------- decide
def is_due(story: Story, frame_max: int) -> bool:
    """Whether anything could be folded: mostly nothing can, and nothing has to be weighed."""
    line = on_line(story)
    under_way = 0
    summed = summed_up(story, line)
    for at in may_leave(story, line):
        if at in summed or finished(story.tree, owner_of(story, line[at]).partition("#")[0]):
            return True
        under_way += tokens_of(line[at])
    return under_way > frame_max


def folding(story: Story, moment: Moment, pen: Pen) -> Folding:
    """The folds that are due at this moment, with waking where `moment.added` says that it comes with them."""
    line = on_line(story)
    weights = Weights.of(story, line, pen.scribe)
    found = segments_of(story, line, weights)
    if not sum(s.tokens for s in found if s.placed and s.part) > moment.frame_max:
        relieved = _is_relief(weights, moment)
        found = [s for s in found if not s.part or (s.summed and relieved)]
    if not any(s.placed for s in found) and moment.added is None:
        return Folding()
    chosen, verdict = _chosen(found, weights, moment)
    if not chosen and moment.added is None:
        return Folding()
    kind = "fold" if moment.added is None else "wake"
    subjects = tuple(c.frame for c in chosen)
    if not verdict.worth:
        return Folding((), (Decision(kind, subjects, verdict),))
    written = [
        _Written(candidate, made)
        for candidate, known in zip(chosen, _shown_beside_each(story, line, chosen), strict=True)
        if (made := _folded(story, line, known, candidate, moment, pen))
    ]
    verdict = _weighed_as_written(story, line, written, weights, moment, pen.scribe)
    if not verdict.worth:
        return Folding((), (Decision(kind, subjects, verdict),))
    events = tuple(event for each in written for event in each.events)
    return Folding(events, (Decision(kind, tuple(each.candidate.frame for each in written), verdict),))


def _is_relief(weights: Weights, moment: Moment) -> bool:
    """Whether work that goes on, and was summed up, may leave however short it is: nothing of the line is cached, or
    the window fills up (S1-65)."""
    return moment.cold or 0 < moment.window * PRESSURE < moment.head + weights.total


def _chosen(found: Sequence[Segment], weights: Weights, moment: Moment) -> tuple[tuple[Candidate, ...], Verdict]:
    """The newest segments, back to the one at which the sum is worth most."""
    ordered = sorted(found, key=lambda s: s.start)
    begins, best = len(ordered), _weighed((), weights, moment)
    by_frame: dict[tuple[str, bool], Candidate] = {}
    for first in range(len(ordered) - 1, -1, -1):
        of = (ordered[first].frame, ordered[first].part)
        behind = by_frame[of].segments if of in by_frame else ()
        by_frame[of] = Candidate(*of, (ordered[first], *behind))
        candidates = [c for c in by_frame.values() if c.pays]
        verdict = _weighed(candidates, weights, moment)
        if candidates and (begins == len(ordered) or _merit(verdict) > _merit(best)):
            begins, best = first, verdict
    return _grouped(ordered[begins:]), best


def _merit(verdict: Verdict) -> tuple[bool, float]:
    return verdict.worth, verdict.gain - verdict.cost


def _grouped(segments: Sequence[Segment]) -> tuple[Candidate, ...]:
    """One candidate a frame, the oldest first."""
    by_frame: dict[tuple[str, bool], list[Segment]] = {}
    for segment in segments:
        by_frame.setdefault((segment.frame, segment.part), []).append(segment)
    groups = (Candidate(*of, tuple(some)) for of, some in by_frame.items())
    return tuple(c for c in groups if c.pays)


def _weighed(chosen: Sequence[Candidate], weights: Weights, moment: Moment) -> Verdict:
    """With what the traces will take, about."""
    return _judged(chosen, weights, moment, sum(c.estimate for c in chosen), 0)


class _Written(msgspec.Struct, frozen=True):
    """A candidate, and the events by which it leaves."""

    candidate: Candidate
    events: tuple[FrameEvent, ...]


def _weighed_as_written(  # noqa: PLR0913  what was weighed before, and what has been written since
    story: Story,
    line: Sequence[Placed],
    written: Sequence[_Written],
    weights: Weights,
    moment: Moment,
    scribe: Scribe,
) -> Verdict:
    """Only now it is known what the traces take, with all that was noted and returned, and which reasoning can no
    longer be sent."""
    folds = [event for each in written for event in each.events if isinstance(event, Folded)]
    traces = sum(scribe.user_message(fold.trace).tokens for fold in folds)
    leaving = {id(p) for each in written for p in each.candidate.placed}
    muted = {turn for fold in folds for turn in fold.muted}
    bare = [p for p in line if id(p) not in leaving and (moment.voids or p.entry.id in muted)]
    reasoning = thoughts_of(bare, story.tree.mute, scribe.without_reasoning)
    return _judged([each.candidate for each in written], weights, moment, traces, reasoning)


def _judged(chosen: Sequence[Candidate], weights: Weights, moment: Moment, compaction: int, reasoning: int) -> Verdict:
    removed = sum(c.tokens for c in chosen)
    start = min((c.start for c in chosen), default=weights.sent)
    waking = moment.added is not None and not moment.appended
    parts = [s for c in chosen if c.part for s in c.segments if s.placed]
    part = sum(s.tokens for s in parts)
    behind = weights.staying(0 if waking else start, removed) + (moment.head if waking else 0)
    rewrite = Rewrite(removed, compaction, behind, moment.head + weights.total, moment.added or 0, reasoning)
    verdict = weighed(rewrite, moment.prices, moment.requests, cold=moment.cold, window=moment.window)
    if moment.edited:
        return replace(verdict, worth=False, reason=Reason.PROVIDER_TRIMMED)
    summed = all(s.summed for s in parts) and _is_relief(weights, moment)
    short = 0 < part <= moment.frame_max and not summed
    if short or (verdict.reason is Reason.GATE and not waking and behind > TAIL * (removed - compaction)):
        return replace(verdict, worth=False, reason=Reason.NOT_YET)
    return verdict


# --------------------------------------------------------------------------------------------------------------- write
class _Gone(msgspec.Struct, frozen=True):
    """What leaves, as its trace and its frame are written from: messages, with the tokens that they took on the line,
    results of ours behind their calls as they are told by now, what is known of them, and what the model `noted` of it.
    `returned` is what frames came to that were pushed in it, or in what the traces stand for that go with it, and
    `said` what the user said in them."""

    candidate: Candidate
    placed: tuple[Placed, ...]
    messages: tuple[Message, ...]
    facts: Facts
    noted: str
    returned: str
    said: str

    @classmethod
    def of(cls, candidate: Candidate, pen: Pen, story: Story) -> _Gone:
        placed = candidate.placed
        before = {entry for trim in candidate.told for entry in trim.entries}
        span = [*(p for p in story.placed if p.entry.id in before), *placed] if before else placed
        return cls(
            candidate,
            placed,
            tuple(_messages(story, placed, pen.count)),
            facts_of(placed, pen.names),
            interim_words(story, placed),
            returned_words(returned_in(story.tree, span), pen.count),
            said_inside(story, span, pen.count),
        )


def _folded(  # noqa: PLR0913  one candidate, and the line it leaves
    story: Story, line: Sequence[Placed], known: Container[str], candidate: Candidate, moment: Moment, pen: Pen
) -> tuple[FrameEvent, ...]:
    """The events by which one candidate leaves; none where its trace would not be smaller. `known` are the names that
    the rest of the line shows."""
    tree, frame = story.tree, candidate.frame
    gone = _Gone.of(candidate, pen, story)
    opened: tuple[Parted, ...] = ()
    if candidate.part:
        opened = (_parted(story, gone, moment),)
        tree, frame = apply(tree, opened[0], moment.now), opened[0].frame
    trace = _trace(story, known, gone, tree.frames[frame], pen)
    if pen.scribe.user_message(trace).tokens > SMALLER * candidate.tokens:
        return ()
    entries = tuple(dict.fromkeys([*(e for t in candidate.told for e in sorted(t.entries)), *_entries(candidate)]))
    first = candidate.segments[0]
    at = first.trace.at if first.trace else first.placed[0].entry.id
    return (*opened, Folded(frame, entries, trace, at, _muted(line, candidate, moment, pen)))


def _entries(candidate: Candidate) -> tuple[str, ...]:
    return tuple(dict.fromkeys(p.entry.id for p in candidate.placed))


def _shown_beside_each(story: Story, line: Sequence[Placed], chosen: Sequence[Candidate]) -> list[Container[str]]:
    """The names that the rest of the line shows where one of `chosen` leaves, for each of them."""
    leaving = {id(p) for c in chosen for p in c.placed}
    told = {id(trim) for c in chosen for trim in c.told}
    staying = _telling(
        (p for p in line if id(p) not in leaving), (trim for trim in story.tree.trims if id(trim) not in told)
    )
    return shown_beside(staying, [_telling(c.placed, c.told) for c in chosen])


def _telling(placed: Iterable[Placed], traces: Iterable[Trim]) -> Iterator[Message]:
    """What tells the model something there: what is said, and the traces."""
    yield from filter(None, map(said_by, placed))
    yield from (Message("user", b"", "", trim.trace) for trim in traces)


def _trace(story: Story, known: Container[str], gone: _Gone, frame: Frame, pen: Pen) -> str:
    told = gone.candidate.told
    parent = story.tree.frames.get(frame.parent)
    return trace_text(
        frame,
        parent.title if parent else "",
        gone.messages,
        with_notes(gone.facts, story.tree, gone.placed),
        nonce=pen.nonce,
        count=pen.count,
        results=_summarised(told, frame),
        part=gone.candidate.part,
        known=known,
        earlier="\n".join(t.trace for t in told),
        earlier_tokens=gone.candidate.told_tokens,
        planned=_open_items(story.tree, gone.messages, pen.names),
        noted="\n".join(filter(None, (gone.noted, gone.returned, gone.said))),
    )


def _summarised(told: Sequence[Trim], frame: Frame) -> str:
    """What models wrote of the spans that the trace takes over, with what stands for those nobody wrote of; empty
    where nobody wrote of any. Why a frame failed goes before it."""
    if not any(trim.summary for trim in told):
        return ""
    failed = [frame.results.strip()] if frame.status is Status.FAILED else []
    texts = [*failed, *(trim.summary or read_trace(trim.trace).results for trim in told)]
    return "\n".join(dict.fromkeys(text for text in texts if text))


def _open_items(tree: Tree, gone: Iterable[Message], names: Names) -> tuple[str, ...]:
    """Items of the client's plan that are still open, where the calls that told of them leave."""
    if not any(names.role(call.name) in PLANNING for message in gone for call in message.calls):
        return ()
    open_ones = (f for f in tree.frames.values() if f.origin == "plan" and f.status not in FINAL)
    return tuple(f.title if f.key in ("", f.title) else f"{f.key} {f.title}" for f in open_ones)


def _messages(story: Story, placed: Iterable[Placed], count: Count) -> Iterator[Message]:
    replaced = story.tree.replaced
    for standing in placed:
        for message in messages_of(story.tree, (standing,)):
            if standing.entry.id in replaced:
                yield replace(message, tokens=told_tokens(story, standing, count))
            else:
                ours = standing.round is not None and message.answers
                yield replace(message, tokens=count(message.text)) if ours else message


def _parted(story: Story, gone: _Gone, moment: Moment) -> Parted:
    """What leaves, as a finished frame under the one that goes on."""
    candidate = gone.candidate
    parent = story.tree.frames[candidate.frame]
    number = 1 + sum(f.origin == "part" for f in children(story.tree, parent.id))
    told = sorted(entry for trim in candidate.told for entry in trim.entries)
    said = [m.text for m in gone.messages if m.role == "assistant" and m.text.strip()]
    return Parted(
        frame_id(moment.node, PARTS + parent.order),
        parent.id,
        f"Part {number} of: {title_of(parent.title)}",
        gone.noted or (said[-1] if said else ""),
        (*told, *_entries(candidate)),
        candidate.tokens,
        tuple(artifacts_of(gone.facts)),
        gone.facts.decisions,
    )


def _muted(line: Sequence[Placed], candidate: Candidate, moment: Moment, pen: Pen) -> tuple[str, ...]:
    """Answers behind the cut that stay without their reasoning: closing words of what left, and where the model binds
    reasoning to what stands before it, all of them; the cut is where the first trace stood that is written anew. Else
    calls that stay keep theirs, for some providers want it back with every call."""
    gone = {id(p) for p in candidate.placed}
    places = (at for at in range(candidate.start // 2, len(line)) if id(line[at]) in gone)
    leaving = list(islice(places, len(gone)))
    start, end = leaving[0], leaving[-1]
    if moment.binds:
        start, last = candidate.start // 2, len(line)
    else:
        last = next((at for at in range(end, len(line)) if is_user(line[at])), end)
    staying = [p for p in line[start:last] if id(p) not in gone and is_assistant(p)]
    if not moment.binds:
        calling = {p.entry.id for p in staying if (m := said_by(p)) and m.calls}
        staying = [p for p in staying if p.entry.id not in calling]
    return tuple(dict.fromkeys(p.entry.id for p in staying if _reasons(p, pen.scribe)))


def _reasons(placed: Placed, scribe: Scribe) -> bool:
    message = said_by(placed)
    return message is not None and scribe.without_reasoning(message) is not message
