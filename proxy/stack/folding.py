"""Which finished work leaves the line now, and what stands for it.

A frame that nobody pushed is folded where it ends: what its calls did leaves the line, the words of the user and the
closing words of the assistant stay, and one trace stands for the rest. Work that grows long without an end is cut at a
border between two call groups and becomes a part of its own. The laws: **a call group leaves whole or not at all; the
newest one never does**; no fold without a reason that the figures give (`economics`), and every reason is handed out.

What this module does not do: it opens no frame but parts (`inferring` does), and it neither stores nor sends.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from proxy.stack.compaction import title_of
from proxy.stack.context import Scribe, on_line, owner_of
from proxy.stack.economics import TAIL, Prices, Reason, Rewrite, Verdict, weighed
from proxy.stack.events import Entered, Folded, FrameEvent, Popped, Unfolded, apply, frame_id
from proxy.stack.facts import artifacts_of, facts_of, said_by
from proxy.stack.frames import FINAL, Frame, Status, Tree, ancestors, children, path_to
from proxy.stack.ledger import Kind
from proxy.stack.names import names_in
from proxy.stack.observe import Names
from proxy.stack.ranking import Count
from proxy.stack.story import Placed, Story
from proxy.stack.trace import LEAST, MOST, SHARE, trace_text
from proxy.stack.transcript import Message

SMALLER = 0.9
"""A trace that takes more than this share of what it stands for is not worth writing (S4-65)."""
RECALL_KEPT = 2
"""What was recalled stays for so many turns at least (H8)."""
PARTS = 1_000
"""Numbers of frames that begin at an entry by a cut; those seen in what the client says count from 0."""


@dataclass(frozen=True, slots=True)
class Moment:
    """What a decision depends on besides the line. `node` is the newest entry, `now` is in ms. `head` are the tokens of
    tools and system text; `added` those that waking brings, where it is asked for; `window` is 0 where it is not known.
    `binds`: the model refuses or drops reasoning behind a changed prefix."""

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


@dataclass(frozen=True, slots=True)
class Pen:
    """What writing a trace takes."""

    names: Names
    count: Count
    nonce: str
    scribe: Scribe


@dataclass(frozen=True, slots=True)
class Decision:
    """What was weighed and came of it. `kind` is wake, fold, part or unfold; `subjects` are frames."""

    kind: str
    subjects: tuple[str, ...]
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Folding:
    """What happens to the line now. Without events nothing does, and the decisions say why not."""

    events: tuple[FrameEvent, ...] = ()
    decisions: tuple[Decision, ...] = ()


@dataclass(frozen=True, slots=True)
class Candidate:
    """What could leave the line for one trace. `start` is the place of its first entry on the line; `frame` is empty
    for a part that is still to be opened."""

    frame: str
    placed: tuple[Placed, ...]
    start: int
    tokens: int

    @property
    def estimate(self) -> int:
        """Tokens that its trace will take, about."""
        return int(min(MOST, max(LEAST, SHARE * self.tokens)))


# -------------------------------------------------------------------------------------------------------------- decide
def folding(story: Story, moment: Moment, pen: Pen) -> Folding:
    """The folds that are due at this moment, with waking where `moment.added` says that it comes with them."""
    line = on_line(story)
    found = candidates(story, line, moment.frame_max)
    wanted = tuple(dict.fromkeys(t.frame for t in story.tree.trims if t.frame and t.frame in story.tree.kept))
    if not found and moment.added is None:
        return _unfolding(wanted, moment) if wanted and moment.cold else Folding()
    chosen, verdict = _chosen(found, _Weights.of(line), moment)
    kind = "fold" if moment.added is None else "wake"
    subjects = tuple(c.frame or "part" for c in chosen or found)
    if not verdict.worth:
        return Folding((), (Decision(kind, subjects, verdict),))
    events = [event for c in chosen for event in _folded(story, line, c, moment, pen)]
    back = _unfolding(wanted, moment) if wanted else Folding()
    return Folding((*back.events, *events), (Decision(kind, subjects, verdict), *back.decisions))


def _unfolding(frames: Sequence[str], moment: Moment) -> Folding:
    """What a person wants back: the prefix breaks now anyway, or nothing of it is cached."""
    nothing = Rewrite(0, 0, 0, 0)
    verdict = replace(weighed(nothing, moment.prices, moment.requests, cold=True), worth=True, reason=Reason.COLD)
    return Folding(tuple(map(Unfolded, frames)), (Decision("unfold", tuple(frames), verdict),))


def _chosen(found: Sequence[Candidate], weights: _Weights, moment: Moment) -> tuple[tuple[Candidate, ...], Verdict]:
    """The newest candidates up to the one at which the sum is worth most; all where the line is written anew anyway."""
    newest_first = sorted(found, key=lambda c: c.start, reverse=True)
    if moment.added is not None:
        chosen = tuple(c for c in newest_first if c.tokens > c.estimate)
        return chosen, _weighed(chosen, weights, moment)
    sets = [tuple(newest_first[: n + 1]) for n in range(len(newest_first))]
    verdicts = [_weighed(some, weights, moment) for some in sets]
    best = max(range(len(sets)), key=lambda n: (verdicts[n].worth, verdicts[n].gain - verdicts[n].cost))
    return sets[best], verdicts[best]


def _weighed(chosen: Sequence[Candidate], weights: _Weights, moment: Moment) -> Verdict:
    removed = sum(c.tokens for c in chosen)
    start = min((c.start for c in chosen), default=weights.sent)
    waking = moment.added is not None
    behind = weights.staying(0 if waking else start, chosen) + (moment.head if waking else 0)
    rewrite = Rewrite(removed, sum(c.estimate for c in chosen), behind, moment.head + weights.total, moment.added or 0)
    verdict = weighed(rewrite, moment.prices, moment.requests, cold=moment.cold, window=moment.window)
    if verdict.reason is Reason.GATE and not waking and behind > TAIL * removed:
        return replace(verdict, worth=False, reason=Reason.NOT_YET)
    return verdict


@dataclass(frozen=True, slots=True)
class _Weights:
    """Tokens of what stands on the line, in order; what stands before `sent` had been sent before this request."""

    tokens: tuple[int, ...]
    sent: int

    @classmethod
    def of(cls, line: Sequence[Placed]) -> _Weights:
        last = next((at for at in range(len(line) - 1, -1, -1) if _is_assistant(line[at])), len(line))
        return cls(tuple(map(tokens_of, line)), last)

    @property
    def total(self) -> int:
        return sum(self.tokens)

    def staying(self, start: int, chosen: Iterable[Candidate]) -> int:
        """What had been sent behind `start` and does not leave."""
        leaving = sum(c.tokens for c in chosen)
        return max(0, sum(self.tokens[start : self.sent]) - leaving)


# ---------------------------------------------------------------------------------------------------------- candidates
def candidates(story: Story, line: Sequence[Placed], frame_max: int) -> list[Candidate]:
    """What could leave: finished frames, each with all that is under it, and long work as a part."""
    leaving = _leaving(story, line)
    tree = story.tree
    by_frame: dict[str, list[int]] = {}
    under_way: list[int] = []
    for at in leaving:
        holder = _finished(tree, owner_of(story, line[at]).partition("#")[0])
        if holder in tree.kept:
            continue
        if holder:
            by_frame.setdefault(holder, []).append(at)
        else:
            under_way.append(at)
    found = [_candidate(frame, line, places) for frame, places in by_frame.items()]
    part = _candidate("", line, under_way) if under_way else None
    return [*found, part] if part and part.tokens > frame_max else found


def _candidate(frame: str, line: Sequence[Placed], places: Sequence[int]) -> Candidate:
    placed = tuple(line[at] for at in places)
    return Candidate(frame, placed, places[0], sum(map(tokens_of, placed)))


def _finished(tree: Tree, frame: str) -> str:
    """The outermost finished inferred frame that `frame` is or is under; empty where the work still goes on."""
    found = ""
    if frame not in tree.frames:
        return found
    for each in (tree.frames[frame], *ancestors(tree, frame)):
        if not each.is_inferred:
            break
        if each.status in FINAL:
            found = each.id
    return found


def _leaving(story: Story, line: Sequence[Placed]) -> list[int]:
    """Places of what may leave: call groups and what the assistant said between them, but for the newest group, groups
    that opened a frame on the path, and what was just recalled."""
    fixed = _fixed(story, line)
    calls: dict[str, bool] = {}
    found: list[int] = []
    for at, placed in enumerate(line):
        message = said_by(placed)
        if message is None:
            continue
        if message.role == "assistant":
            goes = placed.entry.id not in fixed and (bool(message.calls) or not _closes(line, at))
            calls.update((c.id, goes) for c in message.calls)
        elif message.answers:
            goes = calls.get(message.answers, False)
        else:
            goes = placed.entry.kind is Kind.OVERLAY and placed.entry.id not in fixed
        if goes:
            found.append(at)
    return found


def _fixed(story: Story, line: Sequence[Placed]) -> frozenset[str]:
    """Entries that stay whatever it costs."""
    tree = story.tree
    path = path_to(tree, tree.active) if tree.active else ()
    opened = {frame.opening.turn for frame in path if frame.opening}
    turns = list(dict.fromkeys(p.entry.id for p in line if _is_assistant(p)))
    recent = frozenset(turns[-RECALL_KEPT - 1 :])
    recalled = {p.entry.id for p in line if p.entry.id in recent and _recalls(p)}
    newest = {turns[-1]} if turns else set()
    if newest:
        last = next(at for at in range(len(line) - 1, -1, -1) if _is_assistant(line[at]))
        newest |= {p.entry.id for p in line[last:]}
    return frozenset(opened | recalled | newest)


def _recalls(placed: Placed) -> bool:
    message = said_by(placed)
    return message is not None and any(c.name == "stack_recall" for c in message.calls)


def _closes(line: Sequence[Placed], at: int) -> bool:
    """Whether an answer without calls ended its turn: the user spoke next."""
    following = next((p for p in line[at + 1 :] if p.entry.kind is not Kind.OVERLAY), None)
    message = said_by(following) if following else None
    return message is None or message.role == "user"


def _is_assistant(placed: Placed) -> bool:
    message = said_by(placed)
    return message is not None and message.role == "assistant"


def tokens_of(placed: Placed) -> int:
    """Tokens that it takes on the line, with the results of ours."""
    message = said_by(placed)
    own = sum(r.tokens for r in placed.round.results) if placed.round else 0
    return own + (message.tokens if message else 0)


# --------------------------------------------------------------------------------------------------------------- write
def _folded(
    story: Story, line: Sequence[Placed], candidate: Candidate, moment: Moment, pen: Pen
) -> tuple[FrameEvent, ...]:
    """The events by which one candidate leaves; none where its trace would not be smaller."""
    tree, frame = story.tree, candidate.frame
    opened: tuple[Entered, Popped] | tuple[()] = ()
    if not frame:
        opened = _parted(story, candidate, moment, pen)
        tree, frame = apply(apply(tree, opened[0], moment.now), opened[1], moment.now), opened[0].frame
    trace = _trace(story, line, candidate, tree.frames[frame], pen)
    if pen.count(trace) > SMALLER * candidate.tokens:
        return ()
    entries = tuple(dict.fromkeys(p.entry.id for p in candidate.placed))
    at = line[candidate.start - 1].entry.id if candidate.start else ""
    return (*opened, Folded(frame, entries, trace, at, _muted(line, candidate, moment, pen)))


def _trace(story: Story, line: Sequence[Placed], candidate: Candidate, frame: Frame, pen: Pen) -> str:
    gone = {id(p) for p in candidate.placed}
    staying = [m for p in line if id(p) not in gone and (m := said_by(p))]
    staying += [Message("user", b"", "", t.trace) for t in story.tree.trims]
    known = names_in(staying)
    parent = story.tree.frames.get(frame.parent)
    return trace_text(
        frame,
        parent.title if parent else "",
        _messages(candidate.placed),
        facts_of(candidate.placed, pen.names),
        nonce=pen.nonce,
        count=pen.count,
        part=not candidate.frame,
        known=known,
    )


def _messages(placed: Iterable[Placed]) -> list[Message]:
    """What leaves, as messages; results of ours behind their calls."""
    found: list[Message] = []
    for standing in placed:
        message = said_by(standing)
        found += [message] if message else []
        found += standing.round.results if standing.round else ()
    return found


def _parted(story: Story, candidate: Candidate, moment: Moment, pen: Pen) -> tuple[Entered, Popped]:
    """A part of the active frame, opened over what leaves and ended at once: the work itself goes on."""
    active = story.tree.current
    number = 1 + sum(f.origin == "part" for f in children(story.tree, active.id))
    facts = facts_of(candidate.placed, pen.names)
    taking = tuple(dict.fromkeys(p.entry.id for p in candidate.placed))
    title = f"Part {number} of: {title_of(active.title)}"
    entered = Entered(frame_id(moment.node, PARTS + number), active.id, title, active.criteria, "part", taking)
    said = [m.text for m in _messages(candidate.placed) if m.role == "assistant" and m.text.strip()]
    popped = Popped(
        entered.frame,
        Status.COMPLETED,
        said[-1] if said else "",
        "",
        tokens=candidate.tokens,
        artifacts=tuple(artifacts_of(facts)),
        decisions=facts.decisions,
    )
    return (entered, popped)


def _muted(line: Sequence[Placed], candidate: Candidate, moment: Moment, pen: Pen) -> tuple[str, ...]:
    """Answers behind the cut that stay without their reasoning: closing words of what left, and where the model binds
    reasoning to what stands before it, all of them."""
    gone = {id(p) for p in candidate.placed}
    end = line.index(candidate.placed[-1])
    last = len(line) if moment.binds else next((at for at in range(end, len(line)) if _is_user(line[at])), end)
    staying = [p for p in line[candidate.start : last] if id(p) not in gone and _is_assistant(p)]
    return tuple(dict.fromkeys(p.entry.id for p in staying if _reasons(p, pen.scribe)))


def _is_user(placed: Placed) -> bool:
    message = said_by(placed)
    return message is not None and message.role == "user"


def _reasons(placed: Placed, scribe: Scribe) -> bool:
    message = said_by(placed)
    return message is not None and scribe.without_reasoning(message) is not message
