"""Restores file contents behind "file unchanged" notes.

Some clients answer a second read of a file with a note that refers to the earlier result, which the proxy may have
removed. Then the stored content is added to the same result, between marker lines, with later changes that left the
context too. The client writes such a note only while the file is unchanged, so the stored content is right. This module
only computes values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence

import msgspec

from proxy.core.frames import (
    CHANGED,
    READ,
    FileAccess,
    FrameEvent,
    FrameFolded,
    PathState,
    ThreadWoken,
    is_same_file,
    replay,
)
from proxy.core.ledger import Call, Ledger
from proxy.core.observers import DEFAULT_TOOL_ROLES, ToolRoles, files_touched_by
from proxy.core.recall.stored_texts import (
    StoredPiece,
    all_path_entries,
    pieces_of,
    split_by_visibility,
    wrap_in_markers,
)
from proxy.core.text import longest_fitting

ALL_LINES = 1 << 40
MAX_NOTE_CHARACTERS = 1_500
"""A longer result has content of its own. Includes reminders that clients append."""
_UNCHANGED_NOTE = re.compile(
    r"""\A(?!\s*\d+[\t|:→])                                  # no numbered line of a file that happens to say so
    [^\n]{0,120}?\bfile\b[^\n]{0,500}?\b
    (?:unchanged|not\s(?:been\s)?(?:changed|modified))
    \s+since\s+(?:\w+\s+){0,3}?read\b""",
    re.IGNORECASE | re.VERBOSE,
)
_ERROR_RESULT = re.compile(r"\A\s*<?\w*error\b", re.IGNORECASE)
RANGE_ARGUMENTS = (
    "offset", "limit", "start", "end", "start_line", "end_line", "line_start", "line_end", "view_range", "lines",
    "page", "pages",
)  # fmt: skip
WHOLE_FILE_ARGUMENTS = ("content", "file_text", "contents", "text")
"""Arguments in which a write call has the whole file."""
MAX_OTHER_BRANCHES = 8
"""Number of abandoned branches that are searched, newest first."""
STORED_CONTENT_HEADER = (
    "Not all of that is in front of you any more. Here is what was stored of it, as it was; edits came after the text "
    "that they follow:"
)
VISIBLE_LINE = "Still in your context, so not repeated: {sources}."
CONTENT_CUT_LINE = 'Cut here. The rest: stack_recall with ref "{entry}".'


class RestoreOptions(msgspec.Struct, frozen=True):
    """The nonce for markers, a token counter, the token limit of one result, and the roles of the client's tools."""

    nonce: str
    count: Callable[[str], int]
    max_tokens: int
    names: ToolRoles = DEFAULT_TOOL_ROLES


class _FileAccess(msgspec.Struct, frozen=True):
    """One text about one file: the result of a read, or the arguments of a write."""

    piece: StoredPiece
    path: str
    kind: str
    part: str
    is_whole_file: bool
    """The text covers the whole file, as far as the call tells."""

    @property
    def is_unchanged_note(self) -> bool:
        return self.kind == READ and is_unchanged_note(self.piece.text)


def is_unchanged_note(text: str) -> bool:
    """Whether the result says only that the file has not changed since the last read."""
    return len(text) <= MAX_NOTE_CHARACTERS and _UNCHANGED_NOTE.match(text) is not None


def uncached_entries(path_state: PathState, decided: Iterable[FrameEvent]) -> frozenset[str]:
    """Entries that the provider has not cached: those since the last answer, everything from the first entry that a
    fold in `decided` removes, or all if the thread wakes."""
    removed: set[str] = set()
    for event in decided:
        if isinstance(event, ThreadWoken) and not event.appended:
            return frozenset(p.path_id for p in path_state.entries)
        removed.update(event.entries if isinstance(event, FrameFolded) else ())
    since = next((i for i in range(len(path_state.entries) - 1, -1, -1) if path_state.entries[i].round), 0)
    cut = next((i for i, p in enumerate(path_state.entries[:since]) if p.entry.id in removed), since)
    return frozenset(p.path_id for p in path_state.entries[cut:])


def restore_file_contents(
    ledger: Ledger, path_state: PathState, in_context: Container[str], new: Container[str], options: RestoreOptions
) -> tuple[tuple[str, str], ...]:
    """Entry id and full new text of each result among the entries `new` that refers to content no longer in the
    context. `path_state` includes the new results; `in_context` are those about to be sent. Cached notes are left
    alone."""
    note_ids = {
        p.entry.id
        for p in path_state.entries
        if p.path_id in new and p.entry.message and is_unchanged_note(p.entry.message.text)
    }
    texts = dict(path_state.tree.replaced_results)
    note_ids -= {entry for entry, text in texts.items() if STORED_CONTENT_HEADER in text}
    if not note_ids:
        return ()
    accesses = _file_accesses(pieces_of(path_state, all_path_entries(ledger, path_state), options.names), options.names)
    restored: dict[str, str] = {}
    for i, note in enumerate(accesses):
        if note.piece.entry_id not in note_ids or note.piece.at not in in_context or not note.is_unchanged_note:
            continue
        needed = _newest_content(accesses[:i], note, texts | restored, in_context)
        if needed is None:
            needed = _content_on_other_branch(ledger, path_state, note, in_context, options.names)
        away, visible = split_by_visibility(path_state.tree, in_context, needed)
        if away:
            restored[note.piece.entry_id] = _note_with_content(note.piece.text, away, visible, options)
    return tuple(restored.items())


# ------------------------------------------------------------------------------------------------------------ accesses
def _file_accesses(pieces: Iterable[StoredPiece], names: ToolRoles) -> list[_FileAccess]:
    """Texts with file contents, in order. Calls that name several files are skipped: no client answers them with a
    note."""
    return [access for piece in pieces if piece.call for access in _accesses_of_call(piece, piece.call, names)]


def _accesses_of_call(piece: StoredPiece, call: Call, names: ToolRoles) -> Iterator[_FileAccess]:
    touched = () if call.is_stack_call else files_touched_by(call, names)
    if len(touched) == 1 and piece.is_call_arguments is (touched[0].how == CHANGED):
        yield _make_access(piece, call, touched[0])


def _make_access(piece: StoredPiece, call: Call, touched: FileAccess) -> _FileAccess:
    part, arguments = requested_part(call), _parsed_arguments(call.arguments)
    is_whole = not part if touched.how == READ else any(isinstance(arguments.get(n), str) for n in WHOLE_FILE_ARGUMENTS)
    return _FileAccess(piece, touched.path, touched.how, part, is_whole)


def requested_part(call: Call) -> str:
    """A comparable form of the requested range; empty for the whole file."""
    range_arguments = _range_arguments(call)
    if range_arguments.get("offset") in (0, 1):
        del range_arguments["offset"]
    return repr(sorted(range_arguments.items())) if range_arguments else ""


def requested_lines(call: Call) -> range | None:
    """The lines that an offset and a limit ask for, to the end without a limit; None for other ranges, also for those
    that a negative number counts from the end."""
    others = _range_arguments(call)
    first, count = others.pop("offset", 1), others.pop("limit", ALL_LINES)
    if others or not (isinstance(first, int) and isinstance(count, int)) or first < 0 or count <= 0:
        return None
    return range(first, first + count)


def _range_arguments(call: Call) -> dict[str, object]:
    arguments = _parsed_arguments(call.arguments)
    return {name: arguments[name] for name in RANGE_ARGUMENTS if arguments.get(name) is not None}


def _parsed_arguments(arguments: str) -> Mapping[str, object]:
    try:
        parsed = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return {}
    return parsed if isinstance(parsed, dict) else {}


# ------------------------------------------------------------------------------------------------------------- content
def _newest_content(
    before: Sequence[_FileAccess], note: _FileAccess, texts: Mapping[str, str], in_context: Container[str]
) -> tuple[StoredPiece, ...] | None:
    """The newest text that covers the request, and the changes since; None if there is none. `texts` are replaced texts
    by entry."""
    changed: list[StoredPiece] = []
    for access in reversed(before):
        if not is_same_file(access.path, note.path) or _ERROR_RESULT.match(access.piece.text):
            continue
        has_all = access.is_whole_file or access.part == note.part
        if access.is_unchanged_note:
            if (
                has_all
                and access.piece.at in in_context
                and STORED_CONTENT_HEADER in texts.get(access.piece.entry_id, "")
            ):
                return tuple(changed)  # the content is in an earlier note in the context
        elif has_all if access.kind == READ else access.is_whole_file:
            return (access.piece, *changed)
        elif access.kind == CHANGED:
            changed = [access.piece, *changed]
    return None


def _content_on_other_branch(
    ledger: Ledger, path_state: PathState, note: _FileAccess, in_context: Container[str], names: ToolRoles
) -> tuple[StoredPiece, ...]:
    """The content read on a branch that the client left, whose file it still remembers. Newest branch first."""
    tips = [entry for entry in ledger.entries if entry not in ledger.parent_ids and entry != path_state.tip]
    for tip in tips[: -MAX_OTHER_BRANCHES - 1 : -1]:
        branch = replay(ledger, ledger.path(tip), {})
        accesses = _file_accesses(pieces_of(branch, branch.entries, names), names)
        content = _newest_content(accesses, note, path_state.tree.replaced_results, in_context)
        if content is not None:
            return content
    return ()


def _note_with_content(
    note: str, away: Sequence[StoredPiece], visible: Sequence[StoredPiece], options: RestoreOptions
) -> str:
    """The note, followed by the stored texts that fit. Of the texts that belong to them, those still visible are
    named."""
    parts = [note, STORED_CONTENT_HEADER]
    if visible:
        parts.append(VISIBLE_LINE.format(sources=", ".join(dict.fromkeys(piece.source for piece in visible))))
    room = options.max_tokens
    for piece in away:
        whole = wrap_in_markers(piece, piece.text, options.nonce)
        cost = options.count(whole)
        if cost > room:
            return "\n".join([*parts, *_beginning_that_fits(piece, room, options)])
        parts.append(whole)
        room -= cost
    return "\n".join(parts)


def _beginning_that_fits(piece: StoredPiece, room: int, options: RestoreOptions) -> Iterator[str]:
    """The beginning of a text, up to a line end, and where to find the rest."""
    length = longest_fitting(piece.text, lambda kept: options.count(kept) <= room)
    border = piece.text.rfind("\n", 0, length) + 1 or length
    if border:
        yield wrap_in_markers(piece, piece.text[:border], options.nonce)
    yield CONTENT_CUT_LINE.format(entry=piece.entry_ref)
