"""Stored texts: all that a conversation holds, as pieces, and how a piece is shown to the model again.

Between two marker lines of ours stands one text, or a part of it. The markers carry the nonce of the conversation,
the ref of the frame, who said it and where it came from. The law: **what stands between two markers is data, byte for
byte as it was stored**; only our own attributes are escaped.

What this module does not do: it finds nothing and cuts nothing. It says which pieces the model still has on its line,
so that nobody gives it what it has.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from proxy.core.context import owner_of
from proxy.core.frames import PathEntry, PathState, Tree, path_state_at, path_to, visible_owners_of
from proxy.core.ledger import Call, EntryKind, Ledger, Message
from proxy.core.observers import DEFAULT_TOOL_ROLES, ToolRoles, files_touched_by
from proxy.core.text import cut_for_display, escape_xml

ENTRY_ID_CHARACTERS = 12
"""Characters of an entry id on a marker."""
SOURCE_CHARACTERS = 60


class StoredPiece(msgspec.Struct, frozen=True):
    """One stored text. `ref` is the frame that owns it now, `owner` the segment it was made in, `at` the entry of the
    path it stands for, `lines` which of its lines these are (empty: all)."""

    ref: str
    entry_ref: str
    at: str
    owner: str
    role: str
    source: str
    text: str
    call: Call | None = None
    lines: str = ""
    entry_id: str = ""
    """Of the entry it is stored in."""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What tells it from the others, whichever of its lines it shows."""
        return (self.entry_ref, self.role, self.source, self.call.id if self.call else "")

    @property
    def created_in_frame(self) -> str:
        """The frame it was made in; a pop hands user messages on, and inferred frames take over what began them."""
        return self.owner.partition("#")[0]

    @property
    def is_call_arguments(self) -> bool:
        """It is the arguments of a call, not what somebody said or a result."""
        return self.role == "assistant" and self.call is not None


# -------------------------------------------------------------------------------------------------------------- pieces
def all_path_entries(ledger: Ledger, path_state: PathState) -> tuple[PathEntry, ...]:
    """All that stands on this path, on whichever of its lines, and on the ones it went on from where the client rewrote
    or compacted its history: oldest first, each once, with the owner it has now."""
    stories, seen = [path_state, *path_state.other_branches.values()], {path_state.tip}
    waiting = _adopted_tips(ledger, path_state.tip)
    known: dict[str, PathState] = {}
    while waiting:
        tip = waiting.pop()
        if tip not in seen:
            seen.add(tip)
            earlier = path_state_at(ledger, tip, known)
            stories += [earlier, *earlier.other_branches.values()]
            waiting += _adopted_tips(ledger, tip)
    held: dict[tuple[str, int], PathEntry] = {}
    for path_entry in (p for each in stories for p in each.entries):
        held.setdefault((path_entry.entry.id, path_entry.round.number if path_entry.round else 0), path_entry)
    return tuple(sorted(held.values(), key=lambda p: (p.entry.seq, p.round.number if p.round else 0)))


def _adopted_tips(ledger: Ledger, tip: str) -> list[str]:
    """The places whose state the path to `tip` went on from."""
    return [e.adopts for e in ledger.path(tip) if e.adopts in ledger.entries] if tip in ledger.entries else []


def pieces_of(
    path_state: PathState, path_entries: Iterable[PathEntry], names: ToolRoles = DEFAULT_TOOL_ROLES
) -> tuple[StoredPiece, ...]:
    """The stored texts of entries, in order: what was said, then the calls with their arguments, then results. What
    our own tools answered stands in no entry, so it is not among them; nor are notes of ours: the user never said them,
    and they were true of their moment."""
    found: list[StoredPiece] = []
    calls: dict[str, Call] = {}
    for placement in path_entries:
        message = placement.round.spoken.message if placement.round else placement.entry.message
        if message is None or placement.entry.kind is EntryKind.OVERLAY:
            continue
        found += _pieces_of_message(path_state, placement, message, calls, names)
        calls |= {c.id: c for c in message.calls}
    return tuple(found)


def _pieces_of_message(
    path_state: PathState, path_entry: PathEntry, message: Message, calls: Mapping[str, Call], names: ToolRoles
) -> Iterator[StoredPiece]:
    call = calls.get(message.answers) if message.answers else None
    entry = path_entry.entry.id[:ENTRY_ID_CHARACTERS] + (f"/{path_entry.round.number}" if path_entry.round else "")
    ref = owner_of(path_state, path_entry).partition("#")[0] or entry
    at = path_entry.path_id or path_entry.entry.id
    base = StoredPiece(
        ref, entry, at, path_entry.owner, message.role, "", message.text, call, entry_id=path_entry.entry.id
    )
    if message.text:
        yield replace(base, source=_call_source(call, names) if call else "")
    elif not message.calls:
        yield replace(base, source=f"no text, {len(message.wire)} bytes of other content")
    for made in message.calls:
        yield replace(base, source=f"call {_call_source(made, names)}", text=made.arguments, call=made)


def _call_source(call: Call, names: ToolRoles) -> str:
    """`read src/a.py`: the tool, and the first file it names."""
    files = files_touched_by(call, names)
    return f"{call.name} {files[0].path}" if files else call.name


# ------------------------------------------------------------------------------------------------------------ the line
def split_by_visibility(
    tree: Tree, on_line: Container[str], pieces: Sequence[StoredPiece]
) -> tuple[tuple[StoredPiece, ...], tuple[StoredPiece, ...]]:
    """What left the line, and what the model still sees as it was stored. `on_line` are the entries on the line."""
    owners = _visible_owners(tree)
    here = [_is_in_context(tree, on_line, owners, piece) for piece in pieces]
    away = tuple(p for p, is_here in zip(pieces, here, strict=True) if not is_here)
    return away, tuple(p for p, is_here in zip(pieces, here, strict=True) if is_here)


def _is_in_context(tree: Tree, on_line: Container[str], owners: Container[str], piece: StoredPiece) -> bool:
    if piece.at not in on_line or piece.entry_id in tree.replaced_results:
        return False
    return piece.owner in owners or piece.role == "user"


def _visible_owners(tree: Tree) -> frozenset[str]:
    """The segments whose rounds are on the line. One entry holds rounds of several frames, so that it is on the line
    does not say that all of it is; a child with a narrower view sees no rounds of its parents for certain."""
    path = path_to(tree, tree.active) if tree.active else ()
    narrow = [at for at, f in enumerate(path) if f.opening and f.opening.view != "fork"]
    return visible_owners_of(tree, path[narrow[-1] if narrow else 0 :])


# ------------------------------------------------------------------------------------------------------------- markers
def wrap_in_markers(piece: StoredPiece, text: str, nonce: str, **told: str) -> str:
    """`text`, the piece or a part of it, between its two marker lines. `told` are further attributes, such as the
    page."""
    named = {
        "ref": piece.ref,
        "entry": piece.entry_ref,
        "role": piece.role,
        "source": piece.source,
        "lines": piece.lines,
    }
    shown = " ".join(f'{name}="{_marker_attribute(value)}"' for name, value in (named | told).items() if value)
    return f'<<recall {shown} nonce="{_marker_attribute(nonce)}">>\n{text}\n<<end nonce="{_marker_attribute(nonce)}">>'


def _marker_attribute(value: str) -> str:
    return escape_xml(cut_for_display(value, SOURCE_CHARACTERS))
