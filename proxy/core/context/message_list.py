"""What the model sees: the line of the active frame.

line(F) = head + own entries of the frames on the path root..F, in ledger order. Finished children are not on the
path, so not on the line; the result of the call that opened a frame says what it is told while it runs and what it
returned afterwards.

The laws kept here: **within a frame a line only grows** (every piece is stored bytes, or rendered from stored text
and nothing else), and **a call group is never cut through**: each result stands behind its call, each call has its
result. Messages are selected and inserted, never edited; a message of the client is its bytes.

What this module does not do: it decides no event, counts nothing, and knows no wire format; what it must write itself
(results of our calls, the block of an isolated view) is written by the `Scribe` that is handed in.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import compress, count
from operator import attrgetter
from typing import NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from proxy.core.frames.events import call_key
from proxy.core.frames.path_state import Placed, Story
from proxy.core.frames.tree import Tree, owners_shown, path_to
from proxy.core.ledger.ledger import JOINT, Kind
from proxy.core.ledger.messages import HEAD_ROLES, Call, Message

NEVER_ANSWERED = "(cancelled: the client returned no result for this call)"
"""The result of a call that the client never answered (S4-53)."""


class Scribe(Protocol):
    """Writes the messages that are ours, in the dialect of the line."""

    def tool_result(self, call: str, text: str) -> Message: ...

    def user_message(self, text: str) -> Message: ...

    def without_reasoning(self, message: Message) -> Message: ...

    def without_calls(self, message: Message, calls: Collection[str]) -> Message: ...

    def retold(self, message: Message, text: str) -> Message: ...

    def appended(self, wire: str) -> Message: ...


class Line(msgspec.Struct, frozen=True, dict=True):
    """The messages behind the head, in order, and the entries they come from. `tokens` counts them; `left_out` are
    the entries of the path that are not on it."""

    messages: tuple[Message, ...]
    entries: frozenset[str]
    left_out: frozenset[str]
    own_tokens: int = 0
    """Of `tokens`, those of messages that are ours."""
    fork: int = 0
    """How many messages stand before the first one that the active frame owns: what its parent's line began with.
    0 in the root, and where it owns none."""

    @cached_property
    def tokens(self) -> int:
        return sum(m.tokens for m in self.messages)


_NO_RESULTS: Mapping[str, Message] = {}


class Unit(NamedTuple):
    """A message on its way to the line. `ours` are the results of the stack calls in it, by call id; `cut` the ids of
    the calls in an answer that broke off which nobody has run: a client may not have kept them. `is_told`: it is words
    of ours that hang on an entry.

    A tuple and not a dataclass because one is made per message of every line: a fifth of the time.
    """

    message: Message
    entry: str
    ours: Mapping[str, Message] = _NO_RESULTS
    cut: Collection[str] = ()
    is_told: bool = False


_AT = attrgetter("at")
_ENTRY = attrgetter("entry.id")
_NAMES = attrgetter("entry.id", "at")
"""The ids that something on a path goes by."""


def assemble(story: Story, scribe: Scribe, *, suffixed: bool = False, bound: bool = False) -> Line:
    """The line of the active frame at the end of `story`. `suffixed`: no user message may stand behind a result, so a
    text of ours that would is told at the end of that result. `bound`: the model takes reasoning only behind what it
    was made behind, so of steps that a view shows without what stood before them it is left out (L8)."""
    selected = story.owned
    units = _with_view(story, selected, scribe, bound=bound) if story.tree.active else _units(story, selected, scribe)
    if any(unit.cut for unit in units):
        units = list(_as_kept(units, scribe))
    units = _introduced(story, units, scribe)
    messages = tuple(_paired(units, scribe))
    if suffixed:
        overlays = {p.at for p in selected if p.entry.is_beside}
        ours = {id(u.message) for u in units if not u.entry or u.entry in overlays}
        messages = tuple(_suffixed(messages, ours, scribe))
    entries = frozenset([u.entry for u in units if u.entry])
    left_out = frozenset(map(_AT, story.placed)) - entries
    return Line(messages, entries, left_out, _own_tokens(units), _fork(story, selected, units, messages))


def _introduced(story: Story, units: list[Unit], scribe: Scribe) -> list[Unit]:
    """The units with the message that tells of our tools, where they are not told in front of all: behind the entry at
    which the thread woke, or what is left of what stood before it; in front of the first answer where nothing is."""
    waking = story.tree.waking
    if waking is None or not waking.appended:
        return units
    order = {p.at: number for number, p in enumerate(story.placed)}
    woken = max((n for n, p in enumerate(story.placed) if waking.at in (p.at, p.entry.id)), default=-1)
    before = [number for number, unit in enumerate(units) if order.get(unit.entry, woken + 1) <= woken]
    answers = (number for number, unit in enumerate(units) if unit.message.role == "assistant")
    place = before[-1] + 1 if before else next(answers, len(units))
    return [*units[:place], Unit(scribe.appended(waking.appended), ""), *units[place:]]


def _fork(story: Story, selected: Sequence[Placed], units: Sequence[Unit], messages: Sequence[Message]) -> int:
    frame = story.tree.frames.get(story.tree.active)
    if frame is None or not frame.parent:
        return 0
    own = {p.at for p in selected if owner_of(story, p) == frame.owner}
    begins = next((u.message for u in units if u.entry in own), None)
    return next((at for at, m in enumerate(messages) if m is begins), 0)


def unbound(story: Story, before: Line, after: Line, scribe: Scribe) -> tuple[str, ...]:
    """L8: the answers of `story` on the line `after` whose reasoning was made behind a message that `before` has and
    `after` has not, as it stood: all behind the first difference."""
    pairs = zip(before.messages, after.messages, strict=False)
    same = next((at for at, (was, now) in enumerate(pairs) if was.wire != now.wire), len(before.messages))
    behind = {id(m) for m in after.messages[same:]}
    said = ((p.entry.id, p.round.spoken.message if p.round else p.entry.message) for p in story.placed)
    answers = ((entry, m) for entry, m in said if m and id(m) in behind and m.role == "assistant")
    return tuple(dict.fromkeys(entry for entry, m in answers if scribe.without_reasoning(m) is not m))


def rewritten(story: Story) -> tuple[Placed, ...]:
    """L8: what was taken over from the path that this one went on from, where the client changed its own history: all
    behind the first place at which the two lines differ."""
    before = replace(story, placed=tuple(p for some in story.adopted.values() for p in some))
    was, now = on_line(before), on_line(story)
    same = next((at for at, pair in enumerate(zip(was, now, strict=False)) if _key(pair[0]) != _key(pair[1])), len(was))
    held, left = ({p.entry.id for p in each.placed} for each in (before, story))
    if any(trim.entries & held and not trim.entries & left for trim in story.tree.trims):
        same = 0  # a trace has nothing left to stand for
    return tuple(p for p in now[same:] if p.at != p.entry.id)


def _key(placed: Placed) -> tuple[str, int]:
    return placed.entry.id, placed.round.number if placed.round else 0


def _own_tokens(units: Iterable[Unit]) -> int:
    """Tokens of what is ours in them: texts, and results of our calls."""
    own = 0
    for unit in units:
        if unit.is_told or not unit.entry:
            own += unit.message.tokens
        elif unit.ours:
            own += sum([result.tokens for result in unit.ours.values()])
    return own


def owner_of(story: Story, placed: Placed) -> str:
    """The segment that owns it now: a pop hands user messages of the unfinished turn on."""
    carried = story.tree.carried
    if not carried:
        return placed.owner
    return carried.get(placed.at) or carried.get(placed.entry.id, placed.owner)


def owned_by(story: Story, frames: Container[str], placed: Iterable[Placed]) -> list[Placed]:
    """Those of `placed` that these frames own now, in whichever of their segments."""
    carried = story.tree.carried
    if not carried:
        return [p for p in placed if p.owner.partition("#")[0] in frames]
    # `owner_of`, written out: this is asked of every entry of the path.
    return [p for p in placed if (carried.get(p.at) or carried.get(p.entry.id, p.owner)).partition("#")[0] in frames]


def on_line(story: Story) -> list[Placed]:
    """What stands on the line of the active frame, in ledger order, whatever view its frames have."""
    return list(compress(story.owned, _stay(story, story.owned)))


def _stay(story: Story, placed: Sequence[Placed]) -> Iterable[bool]:
    """Of each of `placed`, whether it still stands on a line: most of a long path has left it."""
    return map(story.tree.gone.isdisjoint, map(_NAMES, placed))


def _units(story: Story, placed: Sequence[Placed], scribe: Scribe) -> list[Unit]:
    """Messages of entries; where some were trimmed, the trace that stands for them."""
    if not story.tree.gone:
        return [unit for standing in placed for unit in _unit(story, standing, scribe)]
    units: list[Unit] = []
    standing = set(compress(count(), _stay(story, placed)))
    traces = _traces(story, placed, scribe)
    for at in sorted(standing | traces.keys()):
        if at in standing:
            units += _unit(story, placed[at], scribe)
        units += traces.get(at, ())
    return units


def _traces(story: Story, placed: Sequence[Placed], scribe: Scribe) -> dict[int, list[Unit]]:
    """The traces by the position behind which they stand, the oldest first; -1 is in front of all.

    What a client leaves out of its own history needs no trace; where it left out only the entry in front of one, the
    trace stands where the first entry was that it stands for.
    """
    position = _positions(placed)
    found: dict[int, list[Unit]] = {}
    for trim in story.tree.trims:
        if trim.entries.isdisjoint(position):
            continue
        if not trim.at:
            behind = -1
        elif trim.at in position:
            behind = position[trim.at]
        else:
            behind = min([position[entry] for entry in trim.entries if entry in position])
        found.setdefault(behind, []).append(Unit(scribe.user_message(trim.trace), ""))
    return found


def _positions(placed: Sequence[Placed]) -> dict[str, int]:
    """Where each stands, by both of its names."""
    ats, entries = list(map(_AT, placed)), list(map(_ENTRY, placed))
    found = dict(zip(ats, count(), strict=False))
    if ats != entries:
        found |= {entry: place for place, (entry, at) in enumerate(zip(entries, ats, strict=True)) if entry != at}
    return found


def _unit(story: Story, placed: Placed, scribe: Scribe) -> list[Unit]:
    muted = placed.entry.id in story.tree.mute
    if placed.round is None:
        own = placed.entry.message
        if own is not None and (words := story.tree.replaced.get(placed.entry.id)) is not None:
            own = scribe.retold(own, words)
        if own is None:
            return []
        is_told = placed.entry.kind is Kind.OVERLAY
        return [Unit(scribe.without_reasoning(own) if muted else own, placed.at, is_told=is_told)]
    message = placed.round.spoken.message
    if not message.calls and not message.text.strip():
        return []  # an answer that said nothing: providers refuse empty assistant messages
    if muted:
        message = scribe.without_reasoning(message)
    stored = {r.answers: r for r in placed.round.results}
    number = placed.round.number
    answered = placed.round.spoken.own_calls
    told = {c.id: story.tree.told.get((placed.entry.id, call_key(number, c.id))) for c in answered}
    found = {call: scribe.tool_result(call, text) if text else stored.get(call) for call, text in told.items()}
    ours = {call: result for call, result in found.items() if result}
    cut = () if placed.round.spoken.complete else tuple(c.id for c in message.calls if c.id not in ours)
    return [Unit(message, placed.at, ours, cut)]


# --------------------------------------------------------------------------------------------------------------- views
def _with_view(story: Story, selected: Sequence[Placed], scribe: Scribe, *, bound: bool) -> list[Unit]:
    """The whole path, or what the deepest frame with a narrower view sees of its parents."""
    path = path_to(story.tree, story.tree.active)
    narrow = next((f for f in reversed(path) if f.opening and f.opening.view != "fork"), None)
    if narrow is None or narrow.opening is None:
        return _units(story, selected, scribe)
    below = owners_shown(story.tree, path[path.index(narrow) :])
    own = [p for p in selected if owner_of(story, p) in below]
    above = [p for p in selected if owner_of(story, p) not in below]
    shown = _units(story, _glimpse(story.tree, above, _groups_shown(narrow.opening.view)), scribe)
    text = story.tree.told.get((narrow.opening.turn, narrow.opening.call), narrow.opening.block)
    return [
        *(_without_reasoning(shown, scribe) if bound else shown),
        Unit(scribe.user_message(f"{narrow.title}\n\n{narrow.criteria}\n\n{text}"), ""),
        *_units(story, own, scribe),
    ]


def _groups_shown(view: str) -> int:
    """`isolate` shows none of the parent's call groups, `last:k` the newest k."""
    return int(view.removeprefix("last:")) if view.startswith("last:") else 0


def _glimpse(tree: Tree, above: Sequence[Placed], groups: int) -> list[Placed]:
    """All user messages and instructions, what is sealed, and the last complete call groups; the group that opened the
    frame is not one of them. A result is shown with the call before it: ids repeat."""
    calls = [p for p in above if p.round and p.round.spoken.message.calls][:-1]
    kept = calls[len(calls) - groups :] if groups else []
    kept += [p for p in above if p.entry.id in tree.sealed]
    wanted = {id(p) for p in kept}
    shown: list[Placed] = []
    answered: set[str] = set()
    for placed in above:
        message = placed.round.spoken.message if placed.round else placed.entry.message
        if message and message.role == "assistant":
            answered = {c.id for c in message.calls} if id(placed) in wanted else set()
        if id(placed) in wanted or _is_told(placed) or (message and message.answers in answered):
            shown.append(placed)
    return shown


def _without_reasoning(units: Iterable[Unit], scribe: Scribe) -> Iterable[Unit]:
    for unit in units:
        bare = scribe.without_reasoning(unit.message) if unit.message.role == "assistant" else unit.message
        yield unit._replace(message=bare)


def _is_told(placed: Placed) -> bool:
    """Whether it is what the model is told: the user's words, and instructions in mid-history."""
    message = None if placed.round else placed.entry.message
    return message is not None and (message.role == "user" or message.role in HEAD_ROLES)


# ------------------------------------------------------------------------------------------------------------- pairing
def _as_kept(units: Sequence[Unit], scribe: Scribe) -> Iterable[Unit]:
    """L4: of an answer that broke off a client keeps the words and seldom the calls, the last of which is mostly half
    of one, and refused by some providers. Those it answers none of it has not kept, and ours beside them were not
    run."""
    for at, unit in enumerate(units):
        if not unit.cut or not _answers(units, at, unit.message.calls).keys().isdisjoint(unit.cut):
            yield unit
            continue
        left = unit._replace(message=scribe.without_calls(unit.message, unit.cut), cut=())
        if left.message.calls or left.message.text.strip():
            yield left


def _paired(units: Sequence[Unit], scribe: Scribe) -> Iterable[Message]:
    """L1: each result behind its call, each call with a result. What the client answered in its own order stays in
    it, unless results of ours stand between."""
    taken: set[int] = set()
    for at, unit in enumerate(units):
        if at in taken:
            continue
        yield unit.message
        if unit.message.calls and not _is_followed(units, at, unit):
            answers = _answers(units, at, unit.message.calls)
            taken |= set(answers.values())
            yield from _group(units, unit, answers, scribe)


def _is_followed(units: Sequence[Unit], at: int, unit: Unit) -> bool:
    """One call and its result right behind it, as nearly always: they stand as they should."""
    if unit.ours or len(unit.message.calls) != 1 or at + 1 == len(units):
        return False
    following = units[at + 1].message
    return following.answers == unit.message.calls[0].id and following.role != "assistant"


def _answers(units: Sequence[Unit], at: int, calls: Sequence[Call]) -> dict[str, int]:
    """Where the client's results of these calls stand: behind the call and before the next assistant message."""
    wanted = {c.id for c in calls}
    found: dict[str, int] = {}
    for position in range(at + 1, len(units)):
        message = units[position].message
        if message.role == "assistant":
            break
        if message.answers in wanted and message.answers not in found:
            found[message.answers] = position
    return found


def _group(units: Sequence[Unit], unit: Unit, answers: dict[str, int], scribe: Scribe) -> Iterable[Message]:
    calls = unit.message.calls
    if not unit.ours and len(answers) == len({c.id for c in calls}):
        yield from (units[position].message for position in sorted(answers.values()))
        return
    for call in dict.fromkeys(c.id for c in calls):
        if call in unit.ours:
            yield unit.ours[call]
        elif call in answers:
            yield units[answers[call]].message
        else:
            yield scribe.tool_result(call, NEVER_ANSWERED)


def _suffixed(messages: Iterable[Message], ours: Container[int], scribe: Scribe) -> Iterable[Message]:
    """The messages with each text of ours (by its Python id) that stands behind a result at the end of that result."""
    last: Message | None = None
    for message in messages:
        if last and last.answers and id(message) in ours and message.role == "user":
            last = scribe.retold(last, f"{last.text}{JOINT}{message.text}")
            continue
        if last:
            yield last
        last = message
    if last:
        yield last


def unpaired(messages: Sequence[Message]) -> tuple[str, ...]:
    """L1, checked: ids of calls whose results do not all stand right behind them, before anything else."""
    broken: list[str] = []
    for at, message in enumerate(messages):
        if not message.calls:
            continue
        if len(message.calls) == 1 and at + 1 < len(messages) and messages[at + 1].answers == message.calls[0].id:
            continue
        wanted = {c.id for c in message.calls}
        broken += sorted(wanted - {m.answers for m in messages[at + 1 : at + 1 + len(wanted)]})
    return tuple(broken)
