"""Counts files that the model read again, a cost of context compaction that no receipt shows.

A read is a re-read if an earlier read covered the whole file, the same part or its lines. It is attributed to the proxy
only if the client still sent the earlier result and our context lacked it. Reads by shell commands and calls that name
several files are not counted; a file that changed in between is.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from proxy.core.context import context_entries
from proxy.core.frames import READ, PathEntry, PathState, decode_event, file_name_of, is_same_file, reduce, replay
from proxy.core.ledger import Call, Entry, EntryKind, Ledger, visible_calls
from proxy.core.observers import DEFAULT_TOOL_ROLES, ToolExecution, ToolRoles, call_failed, files_touched_by
from proxy.core.recall.stored_texts import all_path_entries, pieces_of, split_by_visibility
from proxy.core.recall.unchanged_notes import STORED_CONTENT_HEADER, is_unchanged_note, requested_lines, requested_part


@dataclass(frozen=True, slots=True)
class RereadCount:
    """`total` re-reads, of which `of_removed` asked for texts that the proxy had removed, each by one of `tools`."""

    total: int = 0
    of_removed: int = 0
    tools: tuple[str, ...] = field(default=(), compare=False)

    def __add__(self, other: RereadCount) -> RereadCount:
        return RereadCount(self.total + other.total, self.of_removed + other.of_removed, (*self.tools, *other.tools))


@dataclass(frozen=True, slots=True)
class NewRereads:
    """What the results of one request read again. `gone_tokens` are those of results whose text had been removed;
    `nothing_else`: each of its results is one of these."""

    count: RereadCount = RereadCount()
    gone_tokens: int = 0
    nothing_else: bool = False


NO_REREADS = NewRereads()


class _FileRead(msgspec.Struct, frozen=True):
    """A successful read: the turn or message that requested it, and the entry of its result."""

    requested_by: Entry
    result: Entry
    path: str
    part: str
    lines: range | None
    tool: str

    @property
    def file_name(self) -> str:
        """The last part of the path: the key under which reads of one file are grouped."""
        return file_name_of(self.path)

    def covers(self, other: _FileRead) -> bool:
        part_is_known = self.part in ("", other.part) or _is_within(other.lines, self.lines)
        return part_is_known and is_same_file(self.path, other.path)


def _is_within(lines: range | None, others: range | None) -> bool:
    return lines is not None and others is not None and others.start <= lines.start and lines.stop <= others.stop


class _ContextAtRequest(msgspec.Struct, frozen=True):
    """What the model had in its context when it asked. `entries_by_id` is what the client sent, by stored entry."""

    story: PathState
    context_ids: frozenset[str]
    entries_by_id: Mapping[str, PathEntry]

    def shows(self, read: _FileRead) -> bool:
        """Whether the text is in the context as stored, or was restored there."""
        path_entry, tree = self.entries_by_id[read.result.id], self.story.tree
        if STORED_CONTENT_HEADER in tree.replaced_results.get(read.result.id, ""):
            return path_entry.path_id in self.context_ids
        return bool(split_by_visibility(tree, self.context_ids, pieces_of(self.story, [path_entry]))[1])


def count_rereads(
    ledger: Ledger, ours: Container[str], names: ToolRoles = DEFAULT_TOOL_ROLES
) -> dict[str, RereadCount]:
    """Re-reads by the last entry of the asking request. `ours` are requests answered from our context; all others went
    upstream unchanged."""
    counts: dict[str, RereadCount] = {}
    reads_by_file: dict[str, list[_FileRead]] = {}
    stories: dict[str, PathState] = {}
    for read in _file_reads(ledger, names):
        earlier = [previous for previous in reads_by_file.get(read.file_name, ()) if previous.covers(read)]
        reads_by_file.setdefault(read.file_name, []).append(read)
        if not earlier or read.requested_by.kind is not EntryKind.TURN:
            continue
        asking = _context_at_turn(ledger, read.requested_by, stories)
        node = read.requested_by.parent
        if reread := _classify_reread(ledger, asking, earlier, is_ours=node in ours):
            counts[node] = counts.get(node, RereadCount()) + RereadCount(
                reread.total, reread.of_removed, (read.tool,) * reread.of_removed
            )
    return counts


def _classify_reread(
    ledger: Ledger, asking: _ContextAtRequest, earlier: Sequence[_FileRead], *, is_ours: bool
) -> RereadCount | None:
    """None if the earlier reads are on another branch."""
    sent = [read for read in earlier if read.result.id in asking.entries_by_id]
    if not sent:
        path_ids = {path_entry.entry.id for path_entry in all_path_entries(ledger, asking.story)}
        return RereadCount(1) if any(read.result.id in path_ids for read in earlier) else None
    with_content = [read for read in sent if not _is_note_without_content(read, asking)]
    return RereadCount(1, int(is_ours and bool(with_content) and not any(map(asking.shows, with_content))))


def _is_note_without_content(read: _FileRead, asking: _ContextAtRequest) -> bool:
    """An "unchanged" note holds no content unless the proxy restored it there."""
    message = read.result.message
    restored = STORED_CONTENT_HEADER in asking.story.tree.replaced_results.get(read.result.id, "")
    return message is not None and is_unchanged_note(message.text) and not restored


def new_rereads(  # noqa: PLR0913  what came, where, and by whose context it was asked for
    ledger: Ledger,
    turn: Entry,
    path_state: PathState,
    results: Sequence[Entry],
    names: ToolRoles = DEFAULT_TOOL_ROLES,
    *,
    is_ours: bool = True,
) -> NewRereads:
    """What `turn` asked for again; `results` are what came back. Agrees with `count_rereads` without scanning the whole
    conversation, for running counters. `is_ours`: it was answered from our context, and not from the client's own."""
    found_reads = (_file_read_of(ledger, entry, names) for entry in results)
    reads = [read for read in found_reads if read is not None and read.requested_by.id == turn.id]
    if not reads:
        return NO_REREADS
    asking = _context_at_turn(ledger, turn, {path_state.tip: path_state})
    count, tokens = RereadCount(), 0
    for read in reads:
        earlier = [previous for previous in _earlier_reads(ledger, asking, read, names) if previous.covers(read)]
        reread = _classify_reread(ledger, asking, earlier, is_ours=is_ours) if earlier else None
        if reread:
            count += RereadCount(reread.total, reread.of_removed, (read.tool,) * reread.of_removed)
            tokens += read.result.message.tokens if reread.of_removed and read.result.message else 0
    return NewRereads(count, tokens, 0 < count.of_removed == len(results))


def _earlier_reads(
    ledger: Ledger, asking: _ContextAtRequest, reread: _FileRead, names: ToolRoles
) -> Iterator[_FileRead]:
    """Earlier reads of the same file on the path. Arguments are searched for the file name first, since nearly all
    calls can be skipped."""
    name = reread.file_name
    calls: set[str] = set()
    for path_entry in asking.entries_by_id.values():
        message = path_entry.message
        if message is None:
            continue
        named = (call for call in message.calls if name in call.arguments)
        calls |= {c.id for c in named if any(is_same_file(f.path, reread.path) for f in files_touched_by(c, names))}
        if message.answers in calls and (read := _file_read_of(ledger, path_entry.entry, names)) is not None:
            yield read


# ---------------------------------------------------------------------------------------------------------------- reads
def _file_reads(ledger: Ledger, names: ToolRoles) -> Iterator[_FileRead]:
    """Successful reads in order of their results, each once: a client that rewrites its history sends results again."""
    seen: set[tuple[str, str]] = set()
    for entry in sorted(ledger.entries.values(), key=lambda entry: entry.seq):
        read = _file_read_of(ledger, entry, names, seen)
        if read is not None:
            yield read


def _file_read_of(
    ledger: Ledger, entry: Entry, names: ToolRoles, seen: set[tuple[str, str]] | None = None
) -> _FileRead | None:
    """The read whose result `entry` is, if any. `seen` are turn and call ids already counted."""
    message = entry.message
    request = requesting_call(ledger, entry, message.answers) if message and message.answers else None
    if message is None or request is None:
        return None
    requester, call = request
    if seen is not None:
        if (requester.id, call.id) in seen:
            return None
        seen.add((requester.id, call.id))
    touched = files_touched_by(call, names)
    is_read = len(touched) == 1 and touched[0].how == READ
    if not is_read or call_failed(ToolExecution(call, message.text, entry.id, failed=message.failed)):
        return None
    return _FileRead(requester, entry, touched[0].path, requested_part(call), requested_lines(call), call.name)


def requesting_call(ledger: Ledger, result: Entry, call: str) -> tuple[Entry, Call] | None:
    """The entry that made this call, in its first stored form, and the call; searched in the newest call group before
    the result."""
    entry_id = result.parent
    while entry_id:
        entry = ledger.entries[entry_id]
        stored = ledger.entries.get(entry.alias, entry)
        calls = stored.message.calls if stored.message else visible_calls(ledger.rounds.get(stored.id, ()))
        if calls or stored.kind is EntryKind.TURN:
            return next(((stored, c) for c in calls if c.id == call and not c.is_stack_call), None)
        entry_id = entry.parent
    return None


# --------------------------------------------------------------------------------------------------------------- asking
def _context_at_turn(ledger: Ledger, turn: Entry, stories: dict[str, PathState]) -> _ContextAtRequest:
    """The context in which the model wrote the last round of `turn`; events of earlier rounds have changed it.
    `stories` caches the newest path state of each thread."""
    path_state = replay(
        ledger, ledger.path(turn.parent), {path_state.tip: path_state for path_state in stories.values()}
    )
    stories[turn.thread] = path_state
    last = max((r.number for r in ledger.rounds.get(turn.id, ())), default=0)
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
