"""Files that were read again, told from the stored conversation: the part of a task's price that no receipt shows.

A read counts as a second one where an earlier read in front of it had all that it asks for: the whole file, or the same
part of it. The law: **a read is told as our cost only where our line lacked it**: where the client still sent
what was read before, and nothing of it stood on the line that the model asked from. What the client dropped by itself
would have been missing without us as well.

What this module does not do: it asks nobody why. A file that changed in between is read again for a reason, and it
counts all the same. Reads by a command line and calls that name several files are not among those told.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from proxy.core.context.message_list import on_line
from proxy.core.frames.events import read_event
from proxy.core.frames.path_state import Placed, Story, follow
from proxy.core.frames.reducer import apply
from proxy.core.frames.results import READ
from proxy.core.ledger.ledger import Entry, Kind, Ledger, seen_calls
from proxy.core.ledger.messages import Call
from proxy.core.observers.call_outcomes import failed
from proxy.core.observers.files import touched_by
from proxy.core.observers.step import Done, said_by
from proxy.core.observers.tool_roles import NAMES, Names
from proxy.core.recall.stored_texts import apart, everything, pieces_of
from proxy.core.recall.unchanged_notes import GIVEN_AGAIN, is_note, part_asked, same_file


@dataclass(frozen=True, slots=True)
class ReadAgain:
    """How many reads asked for what had been read before; of these, `gone` asked for what we had taken off the line,
    each with one of the tools `by`."""

    times: int = 0
    gone: int = 0
    by: tuple[str, ...] = field(default=(), compare=False)

    def __add__(self, other: ReadAgain) -> ReadAgain:
        return ReadAgain(self.times + other.times, self.gone + other.gone, (*self.by, *other.by))


class _Read(msgspec.Struct, frozen=True):
    """A read that worked: the turn or message that asked for it, and the entry of its result."""

    asked: Entry
    result: Entry
    path: str
    part: str
    tool: str

    @property
    def name(self) -> str:
        """By which reads of one file find each other, however much of the path they tell."""
        return self.path.replace("\\", "/").rpartition("/")[2]

    def has_all_of(self, other: _Read) -> bool:
        return self.part in ("", other.part) and same_file(self.path, other.path)


class _Asking(msgspec.Struct, frozen=True):
    """What a model had in front of it when it asked. `held` is what the client sent, by the entry it is stored in."""

    story: Story
    on_line: frozenset[str]
    held: Mapping[str, Placed]

    def shows(self, read: _Read) -> bool:
        """Whether what was read stands on the line as it was stored, or was given again there."""
        placed, tree = self.held[read.result.id], self.story.tree
        if GIVEN_AGAIN in tree.replaced.get(read.result.id, ""):
            return placed.at in self.on_line
        return bool(apart(tree, self.on_line, pieces_of(self.story, [placed]))[1])


def read_again(ledger: Ledger, ours: Container[str], names: Names = NAMES) -> dict[str, ReadAgain]:
    """What was read again, by the entry that the asking request ended with. `ours` are those of them that were answered
    from our line; all others went upstream as the client sent them. `names` say which tools read."""
    found: dict[str, ReadAgain] = {}
    before: dict[str, list[_Read]] = {}
    stories: dict[str, Story] = {}
    for read in _reads(ledger, names):
        earlier = [one for one in before.get(read.name, ()) if one.has_all_of(read)]
        before.setdefault(read.name, []).append(read)
        if not earlier or read.asked.kind is not Kind.TURN:
            continue
        asking = _asking(ledger, read.asked, stories)
        node = read.asked.parent
        if again := _judged(ledger, asking, earlier, is_ours=node in ours):
            found[node] = found.get(node, ReadAgain()) + ReadAgain(again.times, again.gone, (read.tool,) * again.gone)
    return found


def _judged(ledger: Ledger, asking: _Asking, earlier: Sequence[_Read], *, is_ours: bool) -> ReadAgain | None:
    """None where the earlier reads are those of another branch."""
    sent = [read for read in earlier if read.result.id in asking.held]
    if not sent:
        known = {placed.entry.id for placed in everything(ledger, asking.story)}
        return ReadAgain(1) if any(read.result.id in known for read in earlier) else None
    told = [read for read in sent if not _is_bare_note(read, asking)]
    return ReadAgain(1, int(is_ours and bool(told) and not any(map(asking.shows, told))))


def _is_bare_note(read: _Read, asking: _Asking) -> bool:
    """A note that nothing has changed holds no content, unless that was told with it."""
    message = read.result.message
    given = GIVEN_AGAIN in asking.story.tree.replaced.get(read.result.id, "")
    return message is not None and is_note(message.text) and not given


def regretted(
    ledger: Ledger, turn: Entry, story: Story, results: Sequence[Entry], names: Names = NAMES
) -> tuple[str, ...]:
    """The tools by which a turn, whose request ended the path of `story`, asked for what our line no longer had:
    `results` are what came back. The same as `read_again` says of them, found without looking at everything: for a
    counter that runs along. Nothing where no line of ours was asked from, or nothing had left it."""
    found_reads = (_read(ledger, entry, names) for entry in results)
    reads = [read for read in found_reads if read is not None and read.asked.id == turn.id]
    if not reads:
        return ()
    asking = _asking(ledger, turn, {story.tip: story})
    found: list[str] = []
    for read in reads:
        earlier = [one for one in _reads_of(ledger, asking, read, names) if one.has_all_of(read)]
        again = _judged(ledger, asking, earlier, is_ours=True) if earlier else None
        found += [read.tool] * (again.gone if again else 0)
    return tuple(found)


def _reads_of(ledger: Ledger, asking: _Asking, again: _Read, names: Names) -> Iterator[_Read]:
    """Reads of the file on the path that is read `again`. Calls that do not have its name among their arguments are
    passed over, which is nearly all of them, and those of other files of that name."""
    name = again.name
    calls: set[str] = set()
    for placed in asking.held.values():
        message = said_by(placed)
        if message is None:
            continue
        calls |= {call.id for call in message.calls if name in call.arguments and _names_file(call, again.path, names)}
        if message.answers in calls and (read := _read(ledger, placed.entry, names)) is not None:
            yield read


def _names_file(call: Call, path: str, names: Names) -> bool:
    return any(same_file(touched.path, path) for touched in touched_by(call, names))


# ---------------------------------------------------------------------------------------------------------------- reads
def _reads(ledger: Ledger, names: Names) -> Iterator[_Read]:
    """The reads that worked, in the order of their results, each once: a client that rewrites its history gives results
    again."""
    seen: set[tuple[str, str]] = set()
    for entry in sorted(ledger.entries.values(), key=lambda entry: entry.seq):
        read = _read(ledger, entry, names, seen)
        if read is not None:
            yield read


def _read(ledger: Ledger, entry: Entry, names: Names, seen: set[tuple[str, str]] | None = None) -> _Read | None:
    """The read that an entry is the result of, if it is one. `seen` are turns and calls that were told of already."""
    message = entry.message
    asked = _asked(ledger, entry, message.answers) if message and message.answers else None
    if message is None or asked is None:
        return None
    asker, call = asked
    if seen is not None:
        if (asker.id, call.id) in seen:
            return None
        seen.add((asker.id, call.id))
    touched = touched_by(call, names)
    is_read = len(touched) == 1 and touched[0].how == READ
    if not is_read or failed(Done(call, message.text, entry.id, failed=message.failed)):
        return None
    return _Read(asker, entry, touched[0].path, part_asked(call), call.name)


def _asked(ledger: Ledger, result: Entry, call: str) -> tuple[Entry, Call] | None:
    """The entry that made this call, in the form it was stored in first, and the call: the newest group before it."""
    at = result.parent
    while at:
        standing = ledger.entries[at]
        stored = ledger.entries.get(standing.alias, standing)
        calls = stored.message.calls if stored.message else seen_calls(ledger.rounds.get(stored.id, ()))
        if calls or stored.kind is Kind.TURN:
            return next(((stored, made) for made in calls if made.id == call and not made.is_ours), None)
        at = standing.parent
    return None


# --------------------------------------------------------------------------------------------------------------- asking
def _asking(ledger: Ledger, turn: Entry, stories: dict[str, Story]) -> _Asking:
    """What stood before the model when it wrote the last round of `turn`: what it decided in the rounds before that has
    changed its line. `stories` keeps the newest story of each thread, to go on from."""
    story = follow(ledger, ledger.path(turn.parent), {story.tip: story for story in stories.values()})
    stories[turn.thread] = story
    last = max((done.number for done in ledger.rounds.get(turn.id, ())), default=0)
    tree = story.tree
    for event in ledger.events.get(turn.id, ()):
        if event.round < last:
            tree = apply(tree, read_event(event), event.created)
    story = replace(story, tree=tree)
    return _Asking(story, frozenset(p.at for p in on_line(story)), {p.entry.id: p for p in story.placed})
