"""Recall: the stored text of what left the line, given back unchanged.

Every text stands between two marker lines of ours, which carry the nonce of the conversation, the ref of its frame,
who said it, and which page this is (`stored` writes them). The law: **whatever left the line is found**: by its frame,
its entry, a file it is about, or words in it; also what a client rewrote, compacted or left on another branch. Words
that are not where they were looked for are looked for everywhere.

Only this conversation is looked at, with the ones it was delegated to or forked from, which belong to the same
tenant; where people allow it, a query also finds what finished frames of the tenant's other conversations came to.
What the model still has in its context is pointed at instead of repeated. What our own tools answered is not given
back: it is a view of state, or a copy of what recall finds anyway.

What this module does not do: it changes nothing, and no text. How words are found is `searching`, what a page is
`pages`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec

from proxy.core.frames.events import Folded, read_event
from proxy.core.frames.path_state import Placed, Story, follow
from proxy.core.frames.results import READ, Touched
from proxy.core.frames.tree import Frame, Tree, children, descendants, find
from proxy.core.ledger.ledger import Ledger
from proxy.core.observers.files import touched_by
from proxy.core.observers.tool_roles import Names
from proxy.core.recall.pages import LEAST_TEXT, Part, Size, pages_of
from proxy.core.recall.recalled_texts import REF_ARGUMENTS, is_recall
from proxy.core.recall.search import closest, holding, search
from proxy.core.recall.stored_texts import ENTRY_SHOWN, Piece, apart, everything, pieces_of
from proxy.core.text import cut_for_display
from proxy.core.tools.base import Desk, Elsewhere, Mistake, Outcome, Tool, text_of
from proxy.core.tools.inspect_tools import known_frames

ENTRY_PREFIX = 6
"""Characters of an entry id from which a unique beginning stands for it."""
LEAST_PREFIX = 3
HEADER = 160
"""Tokens of a page kept for the lines above it."""
LISTED_CHARACTERS = 160
OLDER_SHOWN = 5
PAGES_COUNTED = 100
"""How many pages there are is counted up to here: a model looks for words in what is longer."""
MANY_PAGES = 4
FOLDED = "folded"
NOTHING = Elsewhere((), whole=False)
MISSING = "Error: ref is missing: a frame id, a ref, a title or a file path; or give a query to search everything."


# ---------------------------------------------------------------------------------------------------------------- what
class Found(msgspec.Struct, frozen=True):
    """What a ref stands for: its texts, and a line that says what it is."""

    title: str
    pieces: tuple[Piece, ...]


def found(desk: Desk, reference: str, *, searched: bool) -> Found:
    """By id or title a frame with the frames below it, by id an entry, by path the newest text about a file (searched:
    all of them).

    A full id or title comes before an entry, an entry before a path, a path before a title that only contains the
    words, this line before the other ones of the path, and this conversation before those beside it.
    """
    frame = find(desk.tree, reference)
    if frame and _is_named(frame, reference):
        return _of_frame(desk, desk.ledger, desk.story, frame)
    placed = everything(desk.ledger, desk.story)
    pieces = pieces_of(desk.story, placed, desk.settings.names)
    if other := _of_entry(desk, reference, placed) or _of_file(
        reference, pieces, desk.settings.names, searched=searched
    ):
        return other
    if frame:
        return _of_frame(desk, desk.ledger, desk.story, frame)
    lines = ((desk.ledger, line) for line in desk.story.aside.values())
    for ledger, story in (*lines, *_beside(desk)):
        if frame := find(story.tree, reference):
            return _of_frame(desk, ledger, story, frame)
    raise Mistake(
        f"Error: nothing is stored under {reference[:80]!r}. Give a frame id, a title, an entry id from a marker or a "
        f"file path. {known_frames(desk.tree)}"
    )


def _beside(desk: Desk) -> Iterable[tuple[Ledger, Story]]:
    """The conversations this one was delegated to, or came from, as far as they are at hand and make sense to us: their
    newest paths."""
    for ledger in desk.beside:
        if tip := ledger.newest_tip():
            try:
                story = follow(ledger, ledger.path(tip.id), {})
            except (msgspec.MsgspecError, LookupError):  # damaged, or written by a newer version
                continue
            yield ledger, story


def _whole_history(desk: Desk) -> tuple[Piece, ...]:
    """Everything this conversation and those beside it hold, the nearest last."""
    stories = [*_beside(desk), (desk.ledger, desk.story)]
    names = desk.settings.names
    return tuple(p for ledger, story in stories for p in pieces_of(story, everything(ledger, story), names))


def _is_named(frame: Frame, reference: str) -> bool:
    wanted = reference.casefold()
    return frame.title.casefold() == wanted or (len(wanted) >= LEAST_PREFIX and frame.id.startswith(wanted))


def _of_frame(desk: Desk, ledger: Ledger, story: Story, frame: Frame) -> Found:
    """Its own texts, those of its parts among them, then those of the frames below it, then what subagents did in them
    in conversations of their own; each in ledger order."""
    tree = story.tree
    own = _with_parts(tree, frame.id)
    below = [f for f in children(tree, frame.id) if f.id not in own]
    listed = cut_for_display(", ".join(f"{c.id} {c.title}" for c in below), LISTED_CHARACTERS)
    beside = f" Frames below it, whose texts follow its own: {listed}." if below else ""
    pieces = pieces_of(story, everything(ledger, story), desk.settings.names)
    first = _of_frames(ledger, tree, own, pieces)
    shown = set(map(id, first))
    rest = _of_frames(ledger, tree, {f.id for f in descendants(tree, frame.id)}, pieces)
    title = f"Frame {frame.id} ({cut_for_display(frame.title)}), {frame.status}.{beside}"
    theirs = _of_subagents(desk, (frame, *descendants(tree, frame.id)))
    return Found(title, (*first, *(p for p in rest if id(p) not in shown), *theirs))


def _of_subagents(desk: Desk, frames: Iterable[Frame]) -> Iterator[Piece]:
    """What was said in the conversations behind these frames, as far as they are at hand."""
    delegated = {frame.conversation for frame in frames if frame.conversation}
    for ledger, story in _beside(desk) if delegated else ():
        if ledger.conversation.id in delegated:
            yield from pieces_of(story, everything(ledger, story), desk.settings.names)


def _of_frames(ledger: Ledger, tree: Tree, frames: Collection[str], pieces: Iterable[Piece]) -> list[Piece]:
    """What they own, what was made in them before a pop handed it on, and whatever left the line with them: a ref that
    was shown once gives what it stood for, also when a later fold has taken it over."""
    pushed = {frame for frame in frames if not tree.frames[frame].is_uncalled}
    folds = (event for told in ledger.events.values() for event in told if event.kind == FOLDED)
    decided = (read_event(event) for event in folds if event.subject in frames)
    gone = {entry for fold in decided if isinstance(fold, Folded) for entry in fold.entries}
    return [p for p in pieces if p.ref in frames or p.made_in in pushed or p.id in gone or p.at in gone]


def _with_parts(tree: Tree, frame: str) -> frozenset[str]:
    """The frame, and the parts that long work in it was cut into."""
    own = {frame}
    for below in descendants(tree, frame):
        if below.origin == "part" and below.parent in own:
            own.add(below.id)
    return frozenset(own)


def _of_entry(desk: Desk, reference: str, placed: Sequence[Placed]) -> Found | None:
    """An entry by a unique beginning of its id, also one of another branch; `id/2` is the second round of a turn."""
    ledger = desk.ledger
    prefix, _, number = reference.partition("/")
    if len(prefix) < ENTRY_PREFIX or (number and not number.isdecimal()):
        return None
    ids = [entry for entry in ledger.entries if entry.startswith(prefix)]
    if len(ids) != 1:
        return None
    here = placed if any(p.entry.id == ids[0] for p in placed) else follow(ledger, ledger.path(ids[0]), {}).placed
    shown = ids[0][:ENTRY_SHOWN]
    pieces = [p for p in pieces_of(desk.story, here, desk.settings.names) if p.id == ids[0]]
    return Found(f"Entry {shown}.", tuple(p for p in pieces if not number or p.entry == f"{shown}/{number}"))


def _of_file(reference: str, pieces: Sequence[Piece], names: Names, *, searched: bool) -> Found | None:
    """The newest text about a file: of calls by the table of file tools, else of whatever mentions it."""
    client = [p for p in pieces if not (p.call and p.call.is_ours)]
    called = ((p, touched_by(p.call, names)) for p in client if p.call)
    about = [p for p, touched in called if _is_among(touched, reference) and _holds_content(p, touched)]
    if not about and _looks_like_path(reference):
        about = [p for p in client if _mentions(p, reference)]
    if not about:
        return None
    if searched:
        return Found(f"The stored texts about {cut_for_display(reference)}.", tuple(about))
    older = dict.fromkeys(p.entry for p in reversed(about[:-1]) if p.entry != about[-1].entry)
    also = f" Older: {', '.join(list(older)[:OLDER_SHOWN])}." if older else ""
    return Found(f"The newest stored text about {cut_for_display(reference)}.{also}", (about[-1],))


def _is_among(touched: Sequence[Touched], path: str) -> bool:
    return any(t.path == path or t.path.endswith("/" + path.removeprefix("./")) for t in touched)


def _holds_content(piece: Piece, touched: Sequence[Touched]) -> bool:
    """What is in the file stands in the result of a read, and in the arguments of a write or edit."""
    return piece.is_call is not any(t.how == READ for t in touched)


def _mentions(piece: Piece, reference: str) -> bool:
    return reference in piece.text or (piece.call is not None and reference in piece.call.arguments)


def _looks_like_path(reference: str) -> bool:
    return bool(re.search(r"[/\\]|\.\w{1,5}$", reference)) and " " not in reference


# -------------------------------------------------------------------------------------------------------------- recall
def recall(desk: Desk, arguments: Mapping[str, Any]) -> Outcome:
    """The texts behind a ref, a page at a time; with a query those that hold its words (S0-09, S1-133)."""
    query = text_of(arguments, "query")
    missing = "" if query else f"{MISSING} {known_frames(desk.tree)}"
    reference = _bare(text_of(arguments, *REF_ARGUMENTS, required=missing))
    about = found(desk, reference, searched=bool(query)) if reference else Found("", _whole_history(desk))
    if desk.recallable < desk.settings.recall_page:
        return Outcome(
            "Error: what was recalled in this turn fills a quarter of the context window already. Go on with it; "
            "after the next result or message more can be recalled."
        )
    if desk.room < desk.settings.recall_page:
        return Outcome(
            "Error: your context window has no room for that now. Go on without it, or make room: pop the frame you "
            "are in. After that it can be recalled."
        )
    page = text_of(arguments, "page")
    if query:
        return Outcome(_searched(desk, about, query, page))
    away, here = apart(desk.tree, desk.on_line, about.pieces)
    return Outcome(_given(desk, about.title, away, here, page))


def _bare(reference: str) -> str:
    """Models copy a ref with what stood around it: `ref="f1"`, quotes, brackets."""
    return re.sub(r"^ref\s*=\s*", "", reference.strip()).strip("\"'<>[]` ")


def _searched(desk: Desk, about: Found, query: str, page: str) -> str:
    """Texts that have all the words: of what was asked about, else of the whole history; else the closest ones."""
    others = desk.elsewhere.get(query, NOTHING) if not about.title else NOTHING
    answer = _answer(desk, about.title, about.pieces, query, page, others if others.whole else NOTHING)
    if answer is None and about.title:
        title = f"{about.title} No stored text of it has all of these words; elsewhere in this conversation:"
        answer = _answer(desk, title, _whole_history(desk), query, page)
    if answer is not None:
        return answer
    away, _ = apart(desk.tree, desk.on_line, [p for p in about.pieces if not _is_search(p)])
    told = f"{about.title} No stored text has all of these words: {cut_for_display(query, LISTED_CHARACTERS)}.".strip()
    near = (*closest(away, query, desk.count, _size(desk)).passages, *others.pieces)
    if not near:
        return told
    return _given(desk, f"{told} The closest{_and_others(others)}:", near, (), page)


def _answer(  # noqa: PLR0913  what is looked through, for what, and what of it is wanted
    desk: Desk, title: str, pieces: Sequence[Piece], query: str, page: str, others: Elsewhere = NOTHING
) -> str | None:
    """What of `pieces` has all the words, and what `others` say, which have them too; None where nothing has."""
    away, here = apart(desk.tree, desk.on_line, [p for p in pieces if not _is_search(p)])
    hits = search(away, query, desk.count, _size(desk))
    still = holding(here, query)
    if not hits.passages and not still and not others.pieces:
        return None
    counted = f"{hits.texts} stored text{'s have' if hits.texts > 1 else ' has'} these words" if hits.texts else ""
    counted = counted or ("Nothing away from your context has these words" if others.pieces else "")
    counted = f"{counted}{_and_others(others)}." if counted else ""
    return _given(desk, f"{title} {counted}".strip(), (*hits.passages, *others.pieces), still, page)


def _and_others(others: Elsewhere) -> str:
    """What is said of them, behind what is said of this conversation's own."""
    if not others.pieces:
        return ""
    these = f"{len(others.pieces)} finished frames" if len(others.pieces) > 1 else "a finished frame"
    return f"; last come{'' if len(others.pieces) > 1 else 's'} {these} of other conversations, told as it was then"


def _is_search(piece: Piece) -> bool:
    """An earlier call of recall holds the words that were looked for, and nothing else."""
    return piece.call is not None and is_recall(piece.call)


# --------------------------------------------------------------------------------------------------------------- given
def _given(desk: Desk, title: str, away: Sequence[Piece], here: Sequence[Piece], page: str) -> str:
    """A header, what the model still has, and the pages that were asked for."""
    pointed = _still_here(here)
    if not away:
        return "\n".join([title, pointed or "It has no stored text."])
    first, last = _asked(page)
    made = pages_of(away, _size(desk), desk.nonce, desk.count)
    # Of a range no more is made than one call may give: everything takes as long as there are pages.
    pages = tuple(islice(made, max(min(last, first + PAGES_COUNTED - 1), PAGES_COUNTED)))
    more = next(made, None) is not None
    if last < first or not 1 <= first <= len(pages):
        are = "is 1 page" if len(pages) == 1 else f"are {'more than ' if more else ''}{len(pages)} pages"
        raise Mistake(f"Error: there is no page {page}. There {are}.")
    of = f"{len(pages)}+" if more else str(len(pages))
    shown = _within(
        desk, [_written(desk, pages[at - 1], f"{at}/{of}") for at in range(first, min(last, len(pages)) + 1)]
    )
    place = _place(first, first + len(shown) - 1, len(pages), more=more)
    header = f"{title} {place} What stands between markers is stored data.".strip()
    return "\n".join([header, *([pointed] if pointed else []), *shown])


def _written(desk: Desk, page: Sequence[Part], place: str) -> str:
    return "\n".join(part.written(desk.nonce, place) for part in page)


def _within(desk: Desk, pages: Sequence[str]) -> Sequence[str]:
    """The first of these pages, and those after it that one call may give too."""
    left = _most(desk) - HEADER - desk.count(pages[0])
    for at, page in enumerate(pages[1:], 1):
        left -= desk.count(page) + 1
        if left < 0:
            return pages[:at]
    return pages


def _size(desk: Desk) -> Size:
    page = max(LEAST_TEXT, desk.settings.recall_page - HEADER)
    return Size(page, max(page, _most(desk) - HEADER))


def _most(desk: Desk) -> int:
    """Tokens that one call may give."""
    return min(desk.settings.recall_call, desk.recallable, desk.room)


def _still_here(pieces: Sequence[Piece]) -> str:
    if not pieces:
        return ""
    named = dict.fromkeys(f"{p.role} {p.source}".strip() for p in pieces)
    listed = cut_for_display(", ".join(named), LISTED_CHARACTERS)
    return f"Still in your context, so not repeated: {len(pieces)} text{'s' if len(pieces) > 1 else ''} ({listed})."


def _asked(page: str) -> tuple[int, int]:
    """The pages that are wanted: `2`, or `2-4`."""
    match = re.fullmatch(r"(\d{1,9})(?:\.0+)?(?:\s*-\s*(\d{1,9}))?", page or "1")
    if match is None:
        raise Mistake(f"Error: page {page[:40]!r} is no number. Give 1, or a range such as 1-2.")
    return int(match[1]), int(match[2] or match[1])


def _place(first: int, last: int, pages: int, *, more: bool) -> str:
    shown = f"Page {first}" if first == last else f"Pages {first}-{last}"
    following = f" Next: page {last + 1}." if last < pages or more else ""
    many = " A query finds a passage in them." if pages > MANY_PAGES else ""
    return f"{shown} of {'more than ' if more else ''}{pages}.{following}{many}"


RECALL = Tool(
    "stack_recall",
    "recall",
    "Read stored messages and outputs that left your context, unchanged.",
    {
        "type": "object",
        "properties": {
            "ref": {"type": "string", "description": "ref, frame id, title or file path; none: everything"},
            "query": {"type": "string", "description": "only texts with all these words, in the frame and below"},
            "page": {"type": "string", "description": "2, or 2-4"},
        },
    },
    recall,
    core=True,
    fits=True,
)
TOOLS = (RECALL,)
