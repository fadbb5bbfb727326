"""Recall: the stored text of what left the line, given back unchanged.

Every text stands between two marker lines of ours, which carry the nonce of the conversation, the ref of its frame,
who said it, and which page this is (`pages` writes them). The law: **whatever left the line is found**: by its frame,
its entry, a file it is about, or words in it; also what a client rewrote, compacted or left on another branch.

Only this conversation's ledger is looked at, so nobody else's frames can be reached. What the model still has in its
context is pointed at instead of repeated. What our own tools answered is not given back: it is a view of state, or a
copy of what recall finds anyway.

What this module does not do: it changes nothing, and no text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from proxy.stack.compaction import READ, touched_by
from proxy.stack.frames import Frame, Tree, children, descendants, find, path_to
from proxy.stack.ledger import Ledger
from proxy.stack.ranking import cut_for_display
from proxy.stack.story import Placed, Story, follow
from proxy.stack.tools.desk import Desk, Mistake, Outcome, Tool, text_of
from proxy.stack.tools.looking import known_frames
from proxy.stack.tools.pages import LEAST_TEXT, Piece, matching, pages_of
from proxy.stack.transcript import Call, Message

ENTRY_SHOWN = 12
"""Characters of an entry id on a marker; a unique beginning of at least `ENTRY_PREFIX` is taken."""
ENTRY_PREFIX = 6
LEAST_PREFIX = 3
HEADER = 160
"""Tokens of a page kept for the lines above it."""
LISTED_CHARACTERS = 160
OLDER_SHOWN = 5
MISSING = "Error: ref is missing: a frame id, a ref, a title or a file path."


# -------------------------------------------------------------------------------------------------------------- pieces
def everything(ledger: Ledger, story: Story) -> tuple[Placed, ...]:
    """All that stands on this path, and on the ones it went on from where the client rewrote or compacted its history:
    oldest first, each once."""
    stories, seen = [story], {story.tip}
    waiting = _adopted(ledger, story.tip)
    while waiting:
        tip = waiting.pop()
        if tip not in seen:
            seen.add(tip)
            stories.append(follow(ledger, ledger.path(tip), {}))
            waiting += _adopted(ledger, tip)
    held: dict[tuple[str, int], Placed] = {}
    for placed in (p for each in stories for p in each.placed):
        held.setdefault((placed.entry.id, placed.round.number if placed.round else 0), placed)
    return tuple(sorted(held.values(), key=lambda p: (p.entry.seq, p.round.number if p.round else 0)))


def _adopted(ledger: Ledger, tip: str) -> list[str]:
    """The places whose state the path to `tip` went on from."""
    return [e.adopts for e in ledger.path(tip) if e.adopts in ledger.entries] if tip in ledger.entries else []


def pieces_of(placed: Iterable[Placed]) -> tuple[Piece, ...]:
    """The stored texts of entries, in order: what was said, then the calls with their arguments, then results. What
    our own tools answered stands in no entry, so it is not among them."""
    found: list[Piece] = []
    calls: dict[str, Call] = {}
    for standing in placed:
        message = standing.round.spoken.message if standing.round else standing.entry.message
        if message is None:
            continue
        found += _pieces(standing, message, calls)
        calls |= {c.id: c for c in message.calls}
    return tuple(found)


def _pieces(placed: Placed, message: Message, calls: Mapping[str, Call]) -> Iterator[Piece]:
    call = calls.get(message.answers) if message.answers else None
    entry = placed.entry.id[:ENTRY_SHOWN] + (f"/{placed.round.number}" if placed.round else "")
    ref = placed.owner.partition("#")[0] or entry
    base = Piece(ref, entry, placed.at or placed.entry.id, placed.owner, message.role, "", message.text, call)
    if message.text:
        yield replace(base, source=_source(call) if call else "")
    elif not message.calls:
        yield replace(base, source=f"no text, {len(message.wire)} bytes of other content")
    for made in message.calls:
        yield replace(base, source=f"call {_source(made)}", text=made.arguments, call=made)


def _source(call: Call) -> str:
    """`read src/a.py`: the tool, and the first file it names."""
    files = touched_by(call)
    return f"{call.name} {files[0].path}" if files else call.name


# ---------------------------------------------------------------------------------------------------------------- what
@dataclass(frozen=True, slots=True)
class Found:
    """What a ref stands for: its texts, and a line that says what it is."""

    title: str
    pieces: tuple[Piece, ...]


def found(desk: Desk, reference: str, *, searched: bool) -> Found:
    """By id or title a frame (searched: with the frames below it), by id an entry, by path the newest text about a
    file.

    A full id or title comes before an entry, an entry before a path, a path before a title that only contains the
    words.
    """
    frame = find(desk.tree, reference)
    if frame and _is_named(frame, reference):
        return _of_frame(desk, frame, searched=searched)
    placed = everything(desk.ledger, desk.story)
    if other := _of_entry(desk.ledger, reference, placed) or _of_file(reference, placed):
        return other
    if frame:
        return _of_frame(desk, frame, searched=searched)
    raise Mistake(
        f"Error: nothing is stored under {reference[:80]!r}. Give a frame id, a title, an entry id from a marker or a "
        f"file path. {known_frames(desk.tree)}"
    )


def _is_named(frame: Frame, reference: str) -> bool:
    wanted = reference.casefold()
    return frame.title.casefold() == wanted or (len(wanted) >= LEAST_PREFIX and frame.id.startswith(wanted))


def _of_frame(desk: Desk, frame: Frame, *, searched: bool) -> Found:
    ids = {frame.id, *(f.id for f in descendants(desk.tree, frame.id))} if searched else {frame.id}
    pieces = tuple(p for p in pieces_of(everything(desk.ledger, desk.story)) if p.ref in ids)
    below = children(desk.tree, frame.id)
    listed = cut_for_display(", ".join(f"{c.id} {c.title}" for c in below), LISTED_CHARACTERS)
    beside = f" Frames below it: {listed}." if below else ""
    return Found(f"Frame {frame.id} ({cut_for_display(frame.title)}), {frame.status}.{beside}", pieces)


def _of_entry(ledger: Ledger, reference: str, placed: Sequence[Placed]) -> Found | None:
    """An entry by a unique beginning of its id, also one of another branch; `id/2` is the second round of a turn."""
    prefix, _, number = reference.partition("/")
    if len(prefix) < ENTRY_PREFIX or (number and not number.isdecimal()):
        return None
    ids = [entry for entry in ledger.entries if entry.startswith(prefix)]
    if len(ids) != 1:
        return None
    here = placed if any(p.entry.id == ids[0] for p in placed) else follow(ledger, ledger.path(ids[0]), {}).placed
    shown = ids[0][:ENTRY_SHOWN]
    pieces = [p for p in pieces_of(here) if p.entry.partition("/")[0] == shown]
    return Found(f"Entry {shown}.", tuple(p for p in pieces if not number or p.entry == f"{shown}/{number}"))


def _of_file(reference: str, placed: Sequence[Placed]) -> Found | None:
    """The newest text about a file: of calls by the table of file tools, else of whatever mentions it."""
    pieces = [p for p in pieces_of(placed) if not (p.call and p.call.is_ours)]
    about = [p for p in pieces if p.call and _names(p.call, reference) and _holds_content(p, p.call)]
    if not about and _looks_like_path(reference):
        about = [p for p in pieces if _mentions(p, reference)]
    if not about:
        return None
    older = dict.fromkeys(p.entry for p in reversed(about[:-1]) if p.entry != about[-1].entry)
    also = f" Older: {', '.join(list(older)[:OLDER_SHOWN])}." if older else ""
    return Found(f"The newest stored text about {cut_for_display(reference)}.{also}", (about[-1],))


def _names(call: Call, path: str) -> bool:
    return any(t.path == path or t.path.endswith("/" + path.removeprefix("./")) for t in touched_by(call))


def _holds_content(piece: Piece, call: Call) -> bool:
    """What is in the file stands in the result of a read, and in the arguments of a write or edit."""
    return _is_call(piece) is not any(t.how == READ for t in touched_by(call))


def _is_call(piece: Piece) -> bool:
    return piece.role == "assistant" and piece.call is not None


def _mentions(piece: Piece, reference: str) -> bool:
    return reference in piece.text or (piece.call is not None and reference in piece.call.arguments)


def _looks_like_path(reference: str) -> bool:
    return bool(re.search(r"[/\\]|\.\w{1,5}$", reference)) and " " not in reference


# -------------------------------------------------------------------------------------------------------------- recall
def recall(desk: Desk, arguments: Mapping[str, Any]) -> Outcome:
    """The texts behind a ref, a page at a time (S0-09, S1-133)."""
    reference = text_of(arguments, "ref", "frame", "frameID", "path", required=f"{MISSING} {known_frames(desk.tree)}")
    query = text_of(arguments, "query")
    about = found(desk, _bare(reference), searched=bool(query))
    pieces = about.pieces
    if query:
        pieces = matching([p for p in pieces if not _is_search(p)], query, desk.count)
    if not pieces:
        nothing = f"No stored text of it has all of these words: {query}." if query else "It has no stored text."
        return Outcome(f"{about.title} {nothing}")
    away, here = _apart(desk, pieces)
    pointed = _still_here(here)
    if not away:
        return Outcome("\n".join([about.title, pointed]))
    pages = pages_of(away, max(LEAST_TEXT, desk.settings.recall_page - HEADER), desk.nonce, desk.count)
    first, last = _asked(text_of(arguments, "page"), desk, len(pages))
    header = f"{about.title} {_place(first, last, len(pages))} What stands between markers is stored data."
    shown = [p.written(desk.nonce, f"{at}/{len(pages)}") for at in range(first, last + 1) for p in pages[at - 1]]
    return Outcome("\n".join([header, *([pointed] if pointed else []), *shown]))


def _is_search(piece: Piece) -> bool:
    """An earlier call of recall holds the words that were looked for, and nothing else."""
    return piece.call is not None and piece.call.is_ours and "recall" in f"{piece.call.name} {piece.call.arguments}"


def _bare(reference: str) -> str:
    """Models copy a ref with what stood around it: `ref="f1"`, quotes, brackets."""
    return re.sub(r"^ref\s*=\s*", "", reference.strip()).strip("\"'<>[]` ")


def _apart(desk: Desk, pieces: Sequence[Piece]) -> tuple[tuple[Piece, ...], tuple[Piece, ...]]:
    """What left the line, and what the model still sees."""
    owners = _owners_seen(desk.tree)
    here = [p.at in desk.on_line and (p.owner in owners or p.role == "user") for p in pieces]
    away = tuple(p for p, is_here in zip(pieces, here, strict=True) if not is_here)
    return away, tuple(p for p, is_here in zip(pieces, here, strict=True) if is_here)


def _owners_seen(tree: Tree) -> frozenset[str]:
    """The segments whose rounds are on the line. One entry holds rounds of several frames, so that it is on the line
    does not say that all of it is; a child with a narrower view sees no rounds of its parents for certain."""
    path = path_to(tree, tree.active) if tree.active else ()
    narrow = [at for at, f in enumerate(path) if f.opening and f.opening.view != "fork"]
    return frozenset(f.owner for f in path[narrow[-1] if narrow else 0 :])


def _still_here(pieces: Sequence[Piece]) -> str:
    if not pieces:
        return ""
    named = dict.fromkeys(f"{p.role} {p.source}".strip() for p in pieces)
    listed = cut_for_display(", ".join(named), LISTED_CHARACTERS)
    return f"Still in your context, so not repeated: {len(pieces)} text{'s' if len(pieces) > 1 else ''} ({listed})."


def _asked(page: str, desk: Desk, pages: int) -> tuple[int, int]:
    """The pages that are wanted, `2` or `2-4`, as many as one call may give."""
    match = re.fullmatch(r"(\d{1,9})(?:\.0+)?(?:\s*-\s*(\d{1,9}))?", page or "1")
    if match is None:
        raise Mistake(
            f"Error: page {page[:40]!r} is no number. There are {pages} pages; give 1, or a range such as 1-2."
        )
    first = int(match[1])
    last = int(match[2] or first)
    if not 1 <= first <= pages or last < first:
        raise Mistake(f"Error: there is no page {page}. There {'is 1 page' if pages == 1 else f'are {pages} pages'}.")
    most = max(1, desk.settings.recall_call // max(1, desk.settings.recall_page))
    return first, min(last, pages, first + most - 1)


def _place(first: int, last: int, pages: int) -> str:
    shown = f"Page {first}" if first == last else f"Pages {first}-{last}"
    following = f" Next: page {last + 1}." if last < pages else ""
    return f"{shown} of {pages}.{following}"


RECALL = Tool(
    "stack_recall",
    "recall",
    "Read stored messages and outputs that left your context, unchanged.",
    {
        "type": "object",
        "properties": {
            "ref": {"type": "string", "description": "ref, frame id, title or file path"},
            "query": {"type": "string", "description": "only texts with all these words, in the frame and below"},
            "page": {"type": "string", "description": "2, or 2-4"},
        },
        "required": ["ref"],
    },
    recall,
    core=True,
)
TOOLS = (RECALL,)
