"""Divides a conversation into stored pieces and wraps a piece in markers to show it to the model again.

The marker lines carry the conversation's nonce, the frame's ref, the role and the source. The text between them is
stored data, byte for byte. `split_by_visibility` tells which pieces the model still has in its context.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Sequence

import msgspec
from msgspec.structs import replace

from proxy.core.context import owner_of
from proxy.core.frames import PathEntry, PathState, Tree, frame_id_of, path_state_at, path_to, visible_owners_of
from proxy.core.ledger import Call, EntryKind, Ledger, Message, OpenCalls
from proxy.core.observers import (
    DEFAULT_TOOL_ROLES,
    ToolExecution,
    ToolRoles,
    command_lines_of,
    files_touched_by,
    parse_command_line,
)
from proxy.core.text import cut_for_display

ENTRY_ID_CHARACTERS = 12
"""Characters of an entry id in a marker."""
SOURCE_CHARACTERS = 60
LINE_END = "\n"
_FILE_PRINTERS = frozenset({"cat", "sed", "head", "tail", "nl", "awk", "bat"})


class StoredPiece(msgspec.Struct, frozen=True):
    """One stored text. `ref` is the owning frame, `owner` the segment it was created in, `at` the entry of the path,
    `lines` the range of its own lines that is shown (empty: all), `line_count` how many lines the whole text has where
    only a part is shown, `has_numbers` whether these are the numbered lines of a file, `is_of_plan` whether it is of a
    call of a plan tool, `note` a line for the model in front of it."""

    ref: str
    entry_ref: str
    at: str
    owner: str
    role: str
    source: str
    text: str
    call: Call | None = None
    lines: str = ""
    line_count: int = 0
    has_numbers: bool = False
    entry_id: str = ""
    is_of_file: bool = False
    is_of_plan: bool = False
    note: str = ""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Identifies the text, whichever of its lines are shown."""
        return (self.entry_ref, self.role, self.source, self.call.id if self.call else "")

    @property
    def created_in_frame(self) -> str:
        """The frame it was created in; a pop and frame inference can change the owner later."""
        return frame_id_of(self.owner)

    @property
    def is_call_arguments(self) -> bool:
        """Arguments of a call, not a text or a result."""
        return self.role == "assistant" and self.call is not None


# -------------------------------------------------------------------------------------------------------------- pieces
def all_path_entries(ledger: Ledger, path_state: PathState) -> tuple[PathEntry, ...]:
    """All entries of this path, of its other branches, and of the paths that it continues after the client rewrote or
    compacted its history. Oldest first, each once, with its present owner."""
    stories, seen = [path_state, *path_state.other_branches.values()], {path_state.tip}
    waiting = _adopted_tips(ledger, path_state.tip)
    states: dict[str, PathState] = {}
    while waiting:
        tip = waiting.pop()
        if tip not in seen:
            seen.add(tip)
            earlier = path_state_at(ledger, tip, states)
            stories += [earlier, *earlier.other_branches.values()]
            waiting += _adopted_tips(ledger, tip)
    entries: dict[tuple[str, int], PathEntry] = {}
    for path_entry in (p for state in stories for p in state.entries):
        entries.setdefault((path_entry.entry.id, path_entry.round.number if path_entry.round else 0), path_entry)
    return tuple(sorted(entries.values(), key=lambda p: (p.entry.seq, p.round.number if p.round else 0)))


def _adopted_tips(ledger: Ledger, tip: str) -> list[str]:
    """The tips of the paths that the path to `tip` continues."""
    return [e.adopts for e in ledger.path(tip) if e.adopts in ledger.entries] if tip in ledger.entries else []


def pieces_of(
    path_state: PathState, path_entries: Iterable[PathEntry], names: ToolRoles = DEFAULT_TOOL_ROLES
) -> tuple[StoredPiece, ...]:
    """Texts of entries in order: text, then call arguments, then results. Results of stack tools and notes of the proxy
    are left out."""
    pieces: list[StoredPiece] = []
    calls = OpenCalls[Call]()
    for path_entry in path_entries:
        message = path_entry.message
        if message is None or path_entry.entry.kind is EntryKind.OVERLAY:
            continue
        pieces += _pieces_of_message(path_state, path_entry, message, calls, names)
        calls.add((c.id, c) for c in message.calls)
    return tuple(pieces)


def _pieces_of_message(
    path_state: PathState, path_entry: PathEntry, message: Message, calls: OpenCalls[Call], names: ToolRoles
) -> Iterator[StoredPiece]:
    call = calls.find(message.answers) if message.answers else None
    entry = path_entry.entry.id[:ENTRY_ID_CHARACTERS] + (f"/{path_entry.round.number}" if path_entry.round else "")
    ref = frame_id_of(owner_of(path_state, path_entry)) or entry
    path_id = path_entry.path_id or path_entry.entry.id
    base = StoredPiece(
        ref, entry, path_id, path_entry.owner, message.role, "", message.text, call, entry_id=path_entry.entry.id
    )
    if message.text:
        source, of_file = _call_source(call, names) if call else ("", False)
        of_file = of_file or (call is not None and _prints_file(call, names))
        of_plan = call is not None and names.is_plan_tool(call.name)
        yield replace(base, source=source, is_of_file=of_file, is_of_plan=of_plan)
    elif not message.calls:
        yield replace(base, source=f"no text, {len(message.wire)} bytes of other content")
    for own_call in message.calls:
        source, of_file = _call_source(own_call, names)
        arguments = replace(base, source=f"call {source}", text=own_call.arguments, call=own_call)
        yield replace(arguments, is_of_file=of_file, is_of_plan=names.is_plan_tool(own_call.name))


def _prints_file(call: Call, names: ToolRoles) -> bool:
    """Whether a command prints a file, or lines of it."""
    lines = command_lines_of(ToolExecution(call, ""), names)
    first = next((command.words for line in lines for command in parse_command_line(line)), ())
    return len(first) > 1 and first[0].rpartition("/")[2] in _FILE_PRINTERS


def _call_source(call: Call, names: ToolRoles) -> tuple[str, bool]:
    """`read src/a.py`, `bash make test`: the tool and the first file it names, or its command, and whether there is a
    file."""
    files = files_touched_by(call, names)
    lines = () if files else command_lines_of(ToolExecution(call, ""), names)
    first = files[0].path if files else next((line.strip().partition(LINE_END)[0] for line in lines), "")
    return f"{call.name} {first}".rstrip(), bool(files)


# ---------------------------------------------------------------------------------------------------------- visibility
def split_by_visibility(
    tree: Tree, in_context: Container[str], pieces: Sequence[StoredPiece]
) -> tuple[tuple[StoredPiece, ...], tuple[StoredPiece, ...]]:
    """Pieces no longer in the context, and those the model still sees unchanged. `in_context` are entries in the
    context."""
    owners = _visible_owners(tree)
    visible = [_is_in_context(tree, in_context, owners, piece) for piece in pieces]
    away = tuple(p for p, is_visible in zip(pieces, visible, strict=True) if not is_visible)
    return away, tuple(p for p, is_visible in zip(pieces, visible, strict=True) if is_visible)


def _is_in_context(tree: Tree, in_context: Container[str], owners: Container[str], piece: StoredPiece) -> bool:
    if piece.at not in in_context or piece.entry_id in tree.replaced_results:
        return False
    return piece.owner in owners or piece.role == "user"


def _visible_owners(tree: Tree) -> frozenset[str]:
    """Segments whose rounds are in the context. An entry can hold rounds of several frames, and a child with a narrower
    view may see none of its parents' rounds."""
    path = path_to(tree, tree.active) if tree.active else ()
    narrow = [at for at, f in enumerate(path) if f.opening and f.opening.view != "fork"]
    return visible_owners_of(tree, path[narrow[-1] if narrow else 0 :])


# ------------------------------------------------------------------------------------------------------------- markers
def wrap_in_markers(piece: StoredPiece, text: str, nonce: str, **extra: str) -> str:
    """`text`, which is the piece or a part of it, between marker lines. `extra` are further attributes, such as the
    page."""
    attributes = {
        "ref": piece.ref,
        "entry": piece.entry_ref,
        "role": piece.role,
        "source": piece.source,
        "lines": _shown_lines(piece, text),
        "part": f"{count_lines(text, numbered=piece.has_numbers)} of {piece.line_count} lines"
        if piece.line_count
        else "",
    }
    shown = " ".join(f'{name}="{_marker_attribute(value)}"' for name, value in (attributes | extra).items() if value)
    note = f"{piece.note}\n" if piece.note else ""
    mark = _marker_attribute(nonce)
    return f'{note}<<recall {shown} nonce="{mark}">>\n{text}\n<<end nonce="{mark}">>'


_NUMBERED_LINE = re.compile(r"^[ \t]*(\d{1,7})(?:[ \t]*[\t|:→])", re.MULTILINE)


def count_lines(text: str, *, numbered: bool = False) -> int:
    """The lines of a text, or only those with a number: a client's lines around a file are no lines of it."""
    return len(_NUMBERED_LINE.findall(text)) if numbered else text.removesuffix(LINE_END).count(LINE_END) + 1


def has_numbered_lines(piece: StoredPiece) -> bool:
    """Whether it is a file's text whose lines were printed with their numbers."""
    return piece.is_of_file and count_lines(piece.text, numbered=True) * 2 > count_lines(piece.text)


def _shown_lines(piece: StoredPiece, text: str) -> str:
    """The range shown. Of a file only numbers that its tool printed: lines counted in the stored text would be taken
    for the file's."""
    if not piece.is_of_file or not piece.lines:
        return piece.lines
    numbers = _NUMBERED_LINE.findall(text)
    if len(numbers) < text.count("\n"):
        return ""
    return f"{int(numbers[0])}-{int(numbers[-1])}" if numbers else ""


def _marker_attribute(value: str) -> str:
    """One line that ends neither its quotes nor the marker, else as it was written: the marker is no XML."""
    shown = cut_for_display(value, SOURCE_CHARACTERS).replace('"', "'")
    return shown.replace("<<", "&lt;&lt;").replace(">>", "&gt;&gt;")
