"""Says of stored texts of files that the file was changed afterwards: such a text shows what was, and an edit made from
it fails. Changes by the shell count where its command line, the client or git tells of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from proxy.core.frames import READ, PathEntry, file_name_of, is_same_file
from proxy.core.ledger import Call, Ledger, OpenCalls
from proxy.core.observers import (
    FileAction,
    Step,
    ToolExecution,
    ToolRole,
    ToolRoles,
    changes_after,
    files_touched_by,
    observe_files,
    tree_moves_of,
    without_earlier_changes,
)
from proxy.core.recall.stored_texts import StoredPiece

READ_BEFORE = "[As read before your change of this file ({tool}, later). Read the file for what it says now.]"
WRITTEN_BEFORE = "[As it was before your later change of this file ({tool}). Read the file for what it says now.]"


class FileChange(msgspec.Struct, frozen=True):
    """A change that was confirmed by the result at `seq`."""

    seq: int
    path: str
    call: Call


def changes_on_path(path_entries: Iterable[PathEntry], tool_roles: ToolRoles) -> tuple[FileChange, ...]:
    """All changes of files by calls of the path, oldest first."""
    calls = OpenCalls[Call]()
    changes: list[FileChange] = []
    known: Mapping[str, str] = {}
    for path_entry in path_entries:
        message = path_entry.message
        if message is None:
            continue
        if message.answers and (call := calls.take(message.answers)):
            execution = ToolExecution(call, message.text, path_entry.entry.id, failed=message.failed)
            step = Step("", (execution,))
            files = without_earlier_changes(observe_files(step, tool_roles), known)
            paths = [f.path for f in files if f.action is not FileAction.READ]
            known = changes_after(known, step, tool_roles)
            paths += [path for move, _ in tree_moves_of(step, tool_roles) for path in move.undone]
            changes += [FileChange(path_entry.entry.seq, path, call) for path in paths]
        calls.add((call.id, call) for call in message.calls if not call.is_stack_call)
    return tuple(changes)


def mark_changed_files(
    pieces: Sequence[StoredPiece], ledger: Ledger, changes: Sequence[FileChange], tool_roles: ToolRoles
) -> tuple[StoredPiece, ...]:
    """The pieces, those of a file with a note if one of `changes` came after them."""
    if not changes:
        return tuple(pieces)
    by_name: dict[str, list[FileChange]] = {}
    for change in changes:
        by_name.setdefault(file_name_of(change.path.rstrip("/\\")), []).append(change)
    return tuple(_marked(piece, ledger, by_name, tool_roles) for piece in pieces)


def _marked(
    piece: StoredPiece, ledger: Ledger, by_name: Mapping[str, Sequence[FileChange]], tool_roles: ToolRoles
) -> StoredPiece:
    call, entry = piece.call, ledger.entries.get(piece.entry_id)
    if call is None or entry is None or call.is_stack_call:
        return piece
    for path, note in _files_in(piece, call, by_name, tool_roles):
        for change in reversed(by_name.get(file_name_of(path.rstrip("/\\")), ())):
            if change.seq <= entry.seq:
                break
            if change.call is not call and is_same_file(change.path, path):
                return replace(piece, note=note.format(tool=change.call.name))
    return piece


def _files_in(piece: StoredPiece, call: Call, names: Iterable[str], tool_roles: ToolRoles) -> Iterator[tuple[str, str]]:
    """The files whose content the piece holds, each with the note for it. A command shows the files that it names."""
    for touched in files_touched_by(call, tool_roles):
        if (touched.how == READ) is not piece.is_call_arguments:
            yield touched.path, READ_BEFORE if touched.how == READ else WRITTEN_BEFORE
    if tool_roles.role_of(call.name) is ToolRole.SHELL and not piece.is_call_arguments:
        yield from ((name, READ_BEFORE) for name in names if name in call.arguments)
