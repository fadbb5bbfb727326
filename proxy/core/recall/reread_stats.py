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

from proxy.core.context import context_entries
from proxy.core.frames import READ, PathEntry, PathState, decode_event, reduce, replay
from proxy.core.ledger import Call, Entry, EntryKind, Ledger, visible_calls
from proxy.core.observers import DEFAULT_TOOL_ROLES, ToolExecution, ToolRoles, call_failed, files_touched_by, message_of
from proxy.core.recall.stored_texts import all_path_entries, pieces_of, split_by_visibility
from proxy.core.recall.unchanged_notes import STORED_CONTENT_HEADER, is_same_file, is_unchanged_note, requested_part


@dataclass(frozen=True, slots=True)
class RereadCount:
    """How many reads asked for what had been read before; of these, `gone` asked for what we had taken off the line,
    each with one of the tools `by`."""

    total: int = 0
    of_removed: int = 0
    tools: tuple[str, ...] = field(default=(), compare=False)

    def __add__(self, other: RereadCount) -> RereadCount:
        return RereadCount(self.total + other.total, self.of_removed + other.of_removed, (*self.tools, *other.tools))


class _FileRead(msgspec.Struct, frozen=True):
    """A read that worked: the turn or message that asked for it, and the entry of its result."""

    requested_by: Entry
    result: Entry
    path: str
    part: str
    tool: str

    @property
    def file_name(self) -> str:
        """By which reads of one file find each other, however much of the path they tell."""
        return self.path.replace("\\", "/").rpartition("/")[2]

    def covers(self, other: _FileRead) -> bool:
        return self.part in ("", other.part) and is_same_file(self.path, other.path)


class _ContextAtRequest(msgspec.Struct, frozen=True):
    """What a model had in front of it when it asked. `held` is what the client sent, by the entry it is stored in."""

    story: PathState
    context_ids: frozenset[str]
    entries_by_id: Mapping[str, PathEntry]

    def shows(self, read: _FileRead) -> bool:
        """Whether what was read stands on the line as it was stored, or was given again there."""
        path_entry, tree = self.entries_by_id[read.result.id], self.story.tree
        if STORED_CONTENT_HEADER in tree.replaced_results.get(read.result.id, ""):
            return path_entry.path_id in self.context_ids
        return bool(split_by_visibility(tree, self.context_ids, pieces_of(self.story, [path_entry]))[1])


def count_rereads(
    ledger: Ledger, ours: Container[str], names: ToolRoles = DEFAULT_TOOL_ROLES
) -> dict[str, RereadCount]:
    """What was read again, by the entry that the asking request ended with. `ours` are those of them that were answered
    from our line; all others went upstream as the client sent them. `names` say which tools read."""
    found: dict[str, RereadCount] = {}
    before: dict[str, list[_FileRead]] = {}
    stories: dict[str, PathState] = {}
    for read in _file_reads(ledger, names):
        earlier = [one for one in before.get(read.file_name, ()) if one.covers(read)]
        before.setdefault(read.file_name, []).append(read)
        if not earlier or read.requested_by.kind is not EntryKind.TURN:
            continue
        asking = _context_at_turn(ledger, read.requested_by, stories)
        node = read.requested_by.parent
        if again := _classify_reread(ledger, asking, earlier, is_ours=node in ours):
            found[node] = found.get(node, RereadCount()) + RereadCount(
                again.total, again.of_removed, (read.tool,) * again.of_removed
            )
    return found


def _classify_reread(
    ledger: Ledger, asking: _ContextAtRequest, earlier: Sequence[_FileRead], *, is_ours: bool
) -> RereadCount | None:
    """None where the earlier reads are those of another branch."""
    sent = [read for read in earlier if read.result.id in asking.entries_by_id]
    if not sent:
        known = {path_entry.entry.id for path_entry in all_path_entries(ledger, asking.story)}
        return RereadCount(1) if any(read.result.id in known for read in earlier) else None
    told = [read for read in sent if not _is_note_without_content(read, asking)]
    return RereadCount(1, int(is_ours and bool(told) and not any(map(asking.shows, told))))


def _is_note_without_content(read: _FileRead, asking: _ContextAtRequest) -> bool:
    """A note that nothing has changed holds no content, unless that was told with it."""
    message = read.result.message
    given = STORED_CONTENT_HEADER in asking.story.tree.replaced_results.get(read.result.id, "")
    return message is not None and is_unchanged_note(message.text) and not given


def reread_tools(
    ledger: Ledger, turn: Entry, path_state: PathState, results: Sequence[Entry], names: ToolRoles = DEFAULT_TOOL_ROLES
) -> tuple[str, ...]:
    """The tools by which a turn, whose request ended the path of `path_state`, asked for what our line no longer had:
    `results` are what came back. The same as `read_again` says of them, found without looking at everything: for a
    counter that runs along. Nothing where no line of ours was asked from, or nothing had left it."""
    found_reads = (_file_read_of(ledger, entry, names) for entry in results)
    reads = [read for read in found_reads if read is not None and read.requested_by.id == turn.id]
    if not reads:
        return ()
    asking = _context_at_turn(ledger, turn, {path_state.tip: path_state})
    found: list[str] = []
    for read in reads:
        earlier = [one for one in _earlier_reads(ledger, asking, read, names) if one.covers(read)]
        again = _classify_reread(ledger, asking, earlier, is_ours=True) if earlier else None
        found += [read.tool] * (again.of_removed if again else 0)
    return tuple(found)


def _earlier_reads(
    ledger: Ledger, asking: _ContextAtRequest, again: _FileRead, names: ToolRoles
) -> Iterator[_FileRead]:
    """Reads of the file on the path that is read `again`. Calls that do not have its name among their arguments are
    passed over, which is nearly all of them, and those of other files of that name."""
    name = again.file_name
    calls: set[str] = set()
    for path_entry in asking.entries_by_id.values():
        message = message_of(path_entry)
        if message is None:
            continue
        calls |= {call.id for call in message.calls if name in call.arguments and _names_file(call, again.path, names)}
        if message.answers in calls and (read := _file_read_of(ledger, path_entry.entry, names)) is not None:
            yield read


def _names_file(call: Call, path: str, names: ToolRoles) -> bool:
    return any(is_same_file(touched.path, path) for touched in files_touched_by(call, names))


# ---------------------------------------------------------------------------------------------------------------- reads
def _file_reads(ledger: Ledger, names: ToolRoles) -> Iterator[_FileRead]:
    """The reads that worked, in the order of their results, each once: a client that rewrites its history gives results
    again."""
    seen: set[tuple[str, str]] = set()
    for entry in sorted(ledger.entries.values(), key=lambda entry: entry.seq):
        read = _file_read_of(ledger, entry, names, seen)
        if read is not None:
            yield read


def _file_read_of(
    ledger: Ledger, entry: Entry, names: ToolRoles, seen: set[tuple[str, str]] | None = None
) -> _FileRead | None:
    """The read that an entry is the result of, if it is one. `seen` are turns and calls that were told of already."""
    message = entry.message
    asked = _requesting_call(ledger, entry, message.answers) if message and message.answers else None
    if message is None or asked is None:
        return None
    round_sender, call = asked
    if seen is not None:
        if (round_sender.id, call.id) in seen:
            return None
        seen.add((round_sender.id, call.id))
    touched = files_touched_by(call, names)
    is_read = len(touched) == 1 and touched[0].how == READ
    if not is_read or call_failed(ToolExecution(call, message.text, entry.id, failed=message.failed)):
        return None
    return _FileRead(round_sender, entry, touched[0].path, requested_part(call), call.name)


def _requesting_call(ledger: Ledger, result: Entry, call: str) -> tuple[Entry, Call] | None:
    """The entry that made this call, in the form it was stored in first, and the call: the newest group before it."""
    at = result.parent
    while at:
        placement = ledger.entries[at]
        stored = ledger.entries.get(placement.alias, placement)
        calls = stored.message.calls if stored.message else visible_calls(ledger.rounds.get(stored.id, ()))
        if calls or stored.kind is EntryKind.TURN:
            return next(((stored, made) for made in calls if made.id == call and not made.is_stack_call), None)
        at = placement.parent
    return None


# --------------------------------------------------------------------------------------------------------------- asking
def _context_at_turn(ledger: Ledger, turn: Entry, stories: dict[str, PathState]) -> _ContextAtRequest:
    """What stood before the model when it wrote the last round of `turn`: what it decided in the rounds before that has
    changed its line. `stories` keeps the newest story of each thread, to go on from."""
    path_state = replay(
        ledger, ledger.path(turn.parent), {path_state.tip: path_state for path_state in stories.values()}
    )
    stories[turn.thread] = path_state
    last = max((done.number for done in ledger.rounds.get(turn.id, ())), default=0)
    tree = path_state.tree
    for event in ledger.events.get(turn.id, ()):
        if event.round < last:
            tree = reduce(tree, decode_event(event), event.created)
    path_state = replace(path_state, tree=tree)
    return _ContextAtRequest(
        path_state,
        frozenset(p.path_id for p in context_entries(path_state)),
        {p.entry.id: p for p in path_state.entries},
    )
