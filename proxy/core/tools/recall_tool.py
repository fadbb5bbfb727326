"""`stack_recall`: returns stored texts that left the context, unchanged.

A ref may be a frame, an entry or a file path; a query searches for words. Text that a client rewrote, compacted or left
on another branch is found too, and a query without hits is widened to the whole history. The search covers this
conversation and those it was delegated to or forked from, and, where allowed, finished frames of the tenant's other
conversations. Each text stands between two markers with the conversation's nonce, its frame and speaker. Text
still in the context is named instead of repeated, and results of the stack tools are left out.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec

from proxy.core.frames import (
    PLAN_ORIGIN,
    READ,
    FileAccess,
    Frame,
    FrameFolded,
    PathEntry,
    PathState,
    Tree,
    children,
    decode_event,
    descendants,
    direct_path,
    find_frame,
    frames_titled,
    replay,
)
from proxy.core.ledger import Call, Ledger
from proxy.core.observers import Step, ToolExecution, ToolRoles, files_touched_by, observe_files
from proxy.core.recall import (
    ENTRY_ID_CHARACTERS,
    MIN_PAGE_TEXT_TOKENS,
    REF_ARGUMENTS,
    PagePart,
    PageSize,
    SearchHits,
    StoredPiece,
    all_path_entries,
    changes_on_path,
    is_recall,
    mark_changed_files,
    pages_of,
    pieces_of,
    pieces_with_all_words,
    pieces_with_word_alone,
    search,
    search_closest,
    split_by_visibility,
)
from proxy.core.text import cut_for_display, join_shown, join_whole, quoted
from proxy.core.tools.base import (
    CrossConversationHits,
    Tool,
    ToolContext,
    ToolError,
    ToolResult,
    object_schema,
    text_argument,
    text_schema,
)
from proxy.core.tools.inspect_tools import known_frames_text, known_title_text

MIN_ENTRY_PREFIX = 6  # shortest unique prefix of an entry id
MIN_FRAME_PREFIX = 3
HEADER_TOKENS = 160  # of a page, reserved for its header lines
MAX_LISTED_CHARACTERS = 160
MAX_OLDER_SHOWN = 5
MAX_PAGES_COUNTED = 100  # more pages are not counted: a model searches by words there
MANY_PAGES = 4
FOLDED_EVENT_KIND = "folded"
_LIKE_A_PATH = re.compile(r"[/\\]|\.\w{1,5}$")
NO_HITS = CrossConversationHits((), has_all_words=False)
NOT_SEARCHED = SearchHits((), 0)
REF_MISSING = "Error: ref is missing: a frame id, a ref, a title or a file path; or give a query to search everything."


class RecallTarget(msgspec.Struct, frozen=True):
    """The texts behind a ref, and a line that describes them."""

    title: str
    pieces: tuple[StoredPiece, ...]


def find_target(tool_context: ToolContext, reference: str, *, searched: bool) -> RecallTarget:
    """What a ref stands for: by id or title a frame with the frames below it, by id an entry, by path the newest text
    about a file (`searched`: all of them). Priority: full id or title, entry, path, part of a title; this branch before
    the path's other branches, and this conversation before related ones. The path of a file that a tool read or wrote
    precedes a title of the same words, and the line names the frames."""
    frame = find_frame(tool_context.tree, reference)
    titled = frames_titled(tool_context.tree, reference)
    is_exact = frame is not None and _matches_exactly(frame, reference)
    if frame and is_exact and frame not in titled:
        return _target_of_frame(tool_context, tool_context.ledger, tool_context.path_state, frame)
    path_entry = all_path_entries(tool_context.ledger, tool_context.path_state)
    tool_roles = tool_context.settings.tool_roles
    pieces = pieces_of(tool_context.path_state, path_entry, tool_roles)
    if titled and (file := _target_of_file(reference, pieces, tool_roles, searched=searched, mentioned=False)):
        return RecallTarget(f"{file.title} {_titled_note(titled)}", file.pieces)
    if frame and is_exact:
        return _target_of_frame(tool_context, tool_context.ledger, tool_context.path_state, frame)
    if other := _target_of_entry(tool_context, reference, path_entry) or _target_of_file(
        reference, pieces, tool_roles, searched=searched
    ):
        return other
    if frame:
        return _target_of_frame(tool_context, tool_context.ledger, tool_context.path_state, frame)
    if shared := known_title_text(tool_context.tree, reference):
        raise ToolError(shared)
    lines = ((tool_context.ledger, line) for line in tool_context.path_state.other_branches.values())
    for ledger, path_state in (*lines, *_related_paths(tool_context)):
        if frame := find_frame(path_state.tree, reference):
            return _target_of_frame(tool_context, ledger, path_state, frame)
    raise ToolError(
        f"Error: nothing is stored under {reference[:80]!r}. Give a frame id, a title, an entry id from a marker or a "
        f"file path. {known_frames_text(tool_context.tree)}"
    )


def has_stored_text(tool_context: ToolContext, reference: str) -> bool:
    """Whether a ref stands for anything here."""
    try:
        find_target(tool_context, _strip_decoration(reference), searched=False)
    except ToolError:
        return False
    return True


def _titled_note(frames: Sequence[Frame]) -> str:
    """Which frames have the title that is a file's path too."""
    if len(frames) == 1:
        return f'Frame {frames[0].id} ({frames[0].status_text}) has this title; ref="{frames[0].id}" gives its texts.'
    listed = [f"{f.id} ({f.status_text})" for f in frames[-MAX_OLDER_SHOWN:]]
    more = [f"+{len(frames) - len(listed)} earlier"] if len(frames) > len(listed) else []
    return f"Frames {', '.join([*listed, *more])} have this title; their ids as ref give their texts."


def _related_paths(tool_context: ToolContext) -> Iterable[tuple[Ledger, PathState]]:
    """Available conversations that this one was delegated to or came from, each with its newest path."""
    for ledger in tool_context.related_ledgers:
        if tip := ledger.newest_tip():
            try:
                path_state = replay(ledger, ledger.path(tip.id), {})
            except (msgspec.MsgspecError, LookupError):  # damaged, or written by a newer version
                continue
            yield ledger, path_state


def _whole_history(tool_context: ToolContext) -> tuple[StoredPiece, ...]:
    """All texts of this conversation and related ones, the nearest last."""
    paths = [*_related_paths(tool_context), (tool_context.ledger, tool_context.path_state)]
    tool_roles = tool_context.settings.tool_roles
    pieces = (
        p
        for ledger, path_state in paths
        for p in pieces_of(path_state, all_path_entries(ledger, path_state), tool_roles)
    )
    return _with_change_notes(tool_context, tuple(pieces))


def _with_change_notes(tool_context: ToolContext, pieces: Sequence[StoredPiece]) -> tuple[StoredPiece, ...]:
    """The pieces, with a note where this path changed a file after they told of it."""
    tool_roles = tool_context.settings.tool_roles
    changes = changes_on_path(tool_context.path_state.entries, tool_roles)
    return mark_changed_files(pieces, tool_context.ledger, changes, tool_roles)


def _matches_exactly(frame: Frame, reference: str) -> bool:
    wanted = reference.casefold()
    return frame.title.casefold() == wanted or (len(wanted) >= MIN_FRAME_PREFIX and frame.id.startswith(wanted))


def _target_of_frame(tool_context: ToolContext, ledger: Ledger, path_state: PathState, frame: Frame) -> RecallTarget:
    """Texts of the frame and its parts, then of the frames below, then of subagents delegated from them; each in ledger
    order."""
    tree = path_state.tree
    frame_ids = _frame_and_parts(tree, frame.id)
    child_frames = [f for f in children(tree, frame.id) if f.id not in frame_ids]
    frames = tree.as_shown.frames
    listed = join_whole([f"{c.id} {frames[c.id].title}" for c in child_frames], MAX_LISTED_CHARACTERS)
    children_note = f" Frames below it, whose texts follow its own: {listed}." if child_frames else ""
    pieces = pieces_of(path_state, all_path_entries(ledger, path_state), tool_context.settings.tool_roles)
    own_pieces = _pieces_of_frames(ledger, tree, frame_ids, pieces)
    own_piece_ids = set(map(id, own_pieces))
    pieces_below = _pieces_of_frames(ledger, tree, {f.id for f in descendants(tree, frame.id)}, pieces)
    title = f"Frame {frame.id} ({cut_for_display(frames[frame.id].title)}), {frame.status_text}.{children_note}"
    subagent_pieces = _pieces_of_subagents(tool_context, (frame, *descendants(tree, frame.id)))
    return RecallTarget(
        title, (*own_pieces, *(p for p in pieces_below if id(p) not in own_piece_ids), *subagent_pieces)
    )


def _pieces_of_subagents(tool_context: ToolContext, frames: Iterable[Frame]) -> Iterator[StoredPiece]:
    """Texts of the available conversations behind these frames."""
    delegated = {frame.conversation for frame in frames if frame.conversation}
    for ledger, path_state in _related_paths(tool_context) if delegated else ():
        if ledger.conversation.id in delegated:
            yield from pieces_of(path_state, all_path_entries(ledger, path_state), tool_context.settings.tool_roles)


def _pieces_of_frames(
    ledger: Ledger, tree: Tree, frames: Collection[str], pieces: Iterable[StoredPiece]
) -> list[StoredPiece]:
    """Texts that the frames own, that were produced in them before a pop handed them on or their request was cut into
    parts, or that left the context with them. A ref shown once keeps its meaning, even after a later fold covers it."""
    pushed = {frame for frame in frames if not tree.frames[frame].leaves_only_by_fold}
    folds = (event for events in ledger.events.values() for event in events if event.kind == FOLDED_EVENT_KIND)
    fold_events = (decode_event(event) for event in folds if event.subject in frames)
    folded_entries = {entry for fold in fold_events if isinstance(fold, FrameFolded) for entry in fold.entries}
    items = {frame for frame in frames if tree.frames[frame].origin == PLAN_ORIGIN}
    cut_parts = {frame.id for frame in tree.frames.values() if frame.origin == "part"} if items else frozenset()
    return [
        p
        for p in pieces
        if p.ref in frames
        or p.created_in_frame in pushed
        or (p.ref in cut_parts and p.created_in_frame in items)
        or p.entry_id in folded_entries
        or p.at in folded_entries
    ]


def _frame_and_parts(tree: Tree, frame: str) -> frozenset[str]:
    """The frame, and the parts that its long work was cut into."""
    frame_ids = {frame}
    for descendant in descendants(tree, frame):
        if descendant.origin == "part" and descendant.parent in frame_ids:
            frame_ids.add(descendant.id)
    return frozenset(frame_ids)


def _target_of_entry(
    tool_context: ToolContext, reference: str, path_entries: Sequence[PathEntry]
) -> RecallTarget | None:
    """An entry by unique id prefix, on any branch; `id/2` is the second round of a turn."""
    ledger = tool_context.ledger
    prefix, _, number = reference.partition("/")
    if len(prefix) < MIN_ENTRY_PREFIX or (number and not number.isdecimal()):
        return None
    ids = [entry for entry in ledger.entries if entry.startswith(prefix)]
    if len(ids) != 1:
        return None
    entries_around = (
        path_entries
        if any(p.entry.id == ids[0] for p in path_entries)
        else replay(ledger, ledger.path(ids[0]), {}).entries
    )
    short_id = ids[0][:ENTRY_ID_CHARACTERS]
    pieces = [
        p
        for p in pieces_of(tool_context.path_state, entries_around, tool_context.settings.tool_roles)
        if p.entry_id == ids[0]
    ]
    return RecallTarget(
        f"Entry {short_id}.", tuple(p for p in pieces if not number or p.entry_ref == f"{short_id}/{number}")
    )


def _target_of_file(
    reference: str, pieces: Sequence[StoredPiece], tool_roles: ToolRoles, *, searched: bool, mentioned: bool = True
) -> RecallTarget | None:
    """The newest text about a file: from calls of file tools, else, if `mentioned`, any text that mentions it."""
    client_pieces = [p for p in pieces if not (p.call and p.call.is_stack_call)]
    matching = [p for p in client_pieces if p.call and _has_text_of_file(p, p.call, reference, tool_roles)]
    if not matching and mentioned and " " not in reference and _LIKE_A_PATH.search(reference):
        matching = [p for p in client_pieces if reference in p.text or (p.call and reference in p.call.arguments)]
    if not matching:
        return None
    if searched:
        return RecallTarget(f"The stored texts about {cut_for_display(reference)}.", tuple(matching))
    older = dict.fromkeys(p.entry_ref for p in reversed(matching[:-1]) if p.entry_ref != matching[-1].entry_ref)
    older_note = f" Older: {', '.join(list(older)[:MAX_OLDER_SHOWN])}." if older else ""
    return RecallTarget(f"The newest stored text about {cut_for_display(reference)}.{older_note}", (matching[-1],))


def _has_text_of_file(piece: StoredPiece, call: Call, path: str, tool_roles: ToolRoles) -> bool:
    """Whether it is the result of a tool that read the file, the arguments of one that wrote it, or what a command
    printed of it."""
    touched = files_touched_by(call, tool_roles)
    if not (touched or piece.is_call_arguments):
        files = observe_files(Step("", (ToolExecution(call, piece.text),)), tool_roles)
        touched = tuple(FileAccess(file.path, READ) for file in files if file.action == READ)
    holds_content = piece.is_call_arguments is not any(each.how == READ for each in touched)
    return holds_content and any(f"/{each.path}".endswith(f"/{direct_path(path)}") for each in touched)


def recall(tool_context: ToolContext, arguments: Mapping[str, Any]) -> ToolResult:
    """The texts behind a ref, page by page; with a query, those that contain its words."""
    query = text_argument(arguments, "query")
    missing = "" if query else f"{REF_MISSING} {known_frames_text(tool_context.tree)}"
    reference = _strip_decoration(text_argument(arguments, *REF_ARGUMENTS, required=missing))
    if reference:
        target = find_target(tool_context, reference, searched=bool(query))
        target = RecallTarget(target.title, _with_change_notes(tool_context, target.pieces))
    else:
        target = RecallTarget("", _whole_history(tool_context))
    target, query = _limited_to_file(tool_context, target, query)
    if tool_context.recall_tokens_left < tool_context.settings.recall_page_tokens:
        return ToolResult(
            "Error: what was recalled in this turn fills a quarter of the context window already. Go on with it; "
            "after the next result or message more can be recalled."
        )
    if tool_context.free_tokens < tool_context.settings.recall_page_tokens:
        return ToolResult(
            "Error: your context window has no room for that now. Go on without it, or make room: pop the frame you "
            "are in. After that it can be recalled."
        )
    page = text_argument(arguments, "page")
    if query:
        return ToolResult(_search_text(tool_context, target, query, page))
    removed, visible = split_by_visibility(tool_context.tree, tool_context.visible_entries, target.pieces)
    return ToolResult(_render_pages(tool_context, target.title, removed, visible, page))


def _limited_to_file(tool_context: ToolContext, target: RecallTarget, query: str) -> tuple[RecallTarget, str]:
    """The texts about the first file that the query names beside other words, with those that have all its words, and
    these other words. Both as they are where no tool read or wrote such a file, and for a query in quotes."""
    words = query.split()
    is_quoted = query[:1] == query[-1:] and query[:1] in ("'", '"', "`")
    bare = [word.strip("\"'`,:;()") for word in words] if len(words) > 1 and not is_quoted else []
    for at, path in ((at, word) for at, word in enumerate(bare) if _LIKE_A_PATH.search(word)):
        tool_roles = tool_context.settings.tool_roles
        if file := _target_of_file(path, target.pieces, tool_roles, searched=True, mentioned=False):
            about = set(map(id, (*file.pieces, *pieces_with_all_words(target.pieces, query))))
            pieces = tuple(piece for piece in target.pieces if id(piece) in about)
            title = " ".join(dict.fromkeys(filter(None, (target.title, file.title))))
            return RecallTarget(title, pieces), " ".join(words[:at] + words[at + 1 :])
    return target, query


def _strip_decoration(reference: str) -> str:
    """Models copy refs with their surroundings: `ref="f1"`, quotes, brackets."""
    return re.sub(r"^ref\s*=\s*", "", reference.strip()).strip("\"'<>[]` ")


def _search_text(tool_context: ToolContext, target: RecallTarget, query: str, page: str) -> str:
    """Texts with all the words: of the target, else of the whole history, else the closest matches. Where the target
    has a word only as a part of longer ones, texts from elsewhere that have it by itself come first."""
    others = tool_context.cross_conversation_hits.get(query, NO_HITS) if not target.title else NO_HITS
    answer = _matches_text(
        tool_context, target.title, target.pieces, query, page, others if others.has_all_words else NO_HITS
    )
    if target.title and answer is None:
        title = f"{target.title} No stored text of it has all of these words; elsewhere in this conversation:"
        answer = _matches_text(tool_context, title, _whole_history(tool_context), query, page)
    elif target.title and len(query.split()) == 1 and not pieces_with_word_alone(target.pieces, query):
        history = [p for p in _whole_history(tool_context) if not _is_recall_call(p)]
        if elsewhere := pieces_with_word_alone(history, query):
            title = f"{target.title} It has this word only in longer ones; texts from elsewhere have it by itself."
            answer = _matches_text(tool_context, title, (*target.pieces, *elsewhere), query, page)
    if answer is not None:
        return answer
    removed, _ = split_by_visibility(
        tool_context.tree, tool_context.visible_entries, [p for p in target.pieces if not _is_recall_call(p)]
    )
    words = cut_for_display(query, MAX_LISTED_CHARACTERS)
    no_match = f"{target.title} No stored text has all of these words: {words}.".strip()
    closest = (
        *search_closest(removed, query, tool_context.count_tokens, _page_size(tool_context)).passages,
        *others.pieces,
    )
    if not closest:
        return no_match
    return _render_pages(tool_context, f"{no_match} The closest{_other_conversations_note(others)}:", closest, (), page)


def _matches_text(  # noqa: PLR0913  what is looked through, for what, and what of it is wanted
    tool_context: ToolContext,
    title: str,
    pieces: Sequence[StoredPiece],
    query: str,
    page: str,
    others: CrossConversationHits = NO_HITS,
) -> str | None:
    """Matches among `pieces` and in other conversations; None without any."""
    removed, visible = split_by_visibility(
        tool_context.tree, tool_context.visible_entries, [p for p in pieces if not _is_recall_call(p)]
    )
    hits = search(removed, query, tool_context.count_tokens, _page_size(tool_context))
    visible_matches = pieces_with_all_words(visible, query)
    if not hits.passages and not visible_matches and not others.pieces:
        return None
    count_note = (
        f"{hits.text_count} stored text{'s have' if hits.text_count > 1 else ' has'} these words"
        if hits.text_count
        else ""
    )
    count_note = count_note or ("Nothing away from your context has these words" if others.pieces else "")
    count_note = f"{count_note}{_copies_note(hits)}{_other_conversations_note(others)}." if count_note else ""
    return _render_pages(
        tool_context,
        f"{title} {count_note}".strip(),
        (*hits.passages, *others.pieces),
        visible_matches,
        page,
        hits,
    )


def _copies_note(hits: SearchHits) -> str:
    """Where the texts are of which nothing is shown, because a text that is shown has the same words or places."""
    groups = ((hits.copies, "the same as one shown"), (hits.overlapping, "the same only where these words stand"))
    return "".join(f", {len(pieces)} of them {words} ({_entries_named(pieces)})" for pieces, words in groups if pieces)


def _entries_named(pieces: Sequence[StoredPiece]) -> str:
    named = dict.fromkeys(p.entry_ref if p.ref == p.entry_ref else f"{p.entry_ref} in {p.ref}" for p in pieces)
    return join_shown(list(named)[:MAX_OLDER_SHOWN], len(named))


def _other_conversations_note(others: CrossConversationHits) -> str:
    if not others.pieces:
        return ""
    frames = f"{len(others.pieces)} finished frames" if len(others.pieces) > 1 else "a finished frame"
    return f"; last come{'' if len(others.pieces) > 1 else 's'} {frames} of other conversations, told as it was then"


def _is_recall_call(piece: StoredPiece) -> bool:
    """A recall call contains the searched words and nothing else, so it is no match."""
    return piece.call is not None and is_recall(piece.call)


def _render_pages(  # noqa: PLR0913  what is shown, what is named, and what of it is wanted
    tool_context: ToolContext,
    title: str,
    removed: Sequence[StoredPiece],
    visible: Sequence[StoredPiece],
    page: str,
    hits: SearchHits = NOT_SEARCHED,
) -> str:
    """A header, the texts still in the context by name, and the requested pages. Where these do not show all the texts
    of `hits`, the header says how many."""
    visible_note = _still_in_context_note(visible)
    if not removed:
        return "\n".join(filter(None, (title, visible_note or "It has no stored text.")))
    first, last = _parse_page_range(page)
    all_pages = pages_of(removed, _page_size(tool_context), tool_context.nonce, tool_context.count_tokens)
    # Of a range no more is made than one call may give: everything takes as long as there are pages.
    pages = tuple(islice(all_pages, max(min(last, first + MAX_PAGES_COUNTED - 1), MAX_PAGES_COUNTED)))
    has_more = next(all_pages, None) is not None
    if last < first or not 1 <= first <= len(pages):
        page_count = "is 1 page" if len(pages) == 1 else f"are {'more than ' if has_more else ''}{len(pages)} pages"
        raise ToolError(f"Error: there is no page {page}. There {page_count}.")
    above = tool_context.recalled_beside if hits.text_count else ()  # what a ref stands for is shown whole
    texts = [
        "\n".join(_text_or_mention(part, tool_context.nonce, above) for part in page)
        for page in pages[first - 1 : last]
    ]
    shown = _fit_pages(tool_context, texts)
    position = _page_position_text(first, first + len(shown) - 1, len(pages), has_more=has_more)
    position += _shown_count_note(hits, pages[first - 1 : first - 1 + len(shown)])
    header = f"{title} {position} What stands between markers is stored data.".strip()
    return "\n".join([header, *([visible_note] if visible_note else []), *shown])


def _text_or_mention(part: PagePart, nonce: str, above: Iterable[str]) -> str:
    """The part between its markers, or its name, where one of the answers `above` shows it already."""
    rendered = part.render(nonce)
    if not any(rendered in answer for answer in above):
        return rendered
    source = f" ({cut_for_display(part.piece.source)})" if part.piece.source else ""
    return f"Shown above in this message: entry {part.piece.entry_ref}{source}."


def _shown_count_note(hits: SearchHits, pages: Iterable[Sequence[PagePart]]) -> str:
    """How many of the matching texts these pages show, unless that is all; copies of shown ones are told elsewhere."""
    found = {passage.key for passage in hits.passages}
    shown = {part.piece.key for page in pages for part in page}
    missing = hits.text_count - len(hits.copies) - len(found & shown)
    return f" Shown: {len(found & shown)} of the {hits.text_count} texts." if missing > 0 else ""


def _fit_pages(tool_context: ToolContext, pages: Sequence[str]) -> Sequence[str]:
    """As many of these pages as one call may return, at least the first."""
    tokens_left = _max_tokens(tool_context) - HEADER_TOKENS - tool_context.count_tokens(pages[0])
    for index, page in enumerate(pages[1:], 1):
        tokens_left -= tool_context.count_tokens(page) + 1
        if tokens_left < 0:
            return pages[:index]
    return pages


def _page_size(tool_context: ToolContext) -> PageSize:
    page = max(MIN_PAGE_TEXT_TOKENS, tool_context.settings.recall_page_tokens - HEADER_TOKENS)
    return PageSize(page, max(page, _max_tokens(tool_context) - HEADER_TOKENS))


def _max_tokens(tool_context: ToolContext) -> int:
    return min(tool_context.settings.recall_call_tokens, tool_context.recall_tokens_left, tool_context.free_tokens)


def _still_in_context_note(visible: Sequence[StoredPiece]) -> str:
    pieces = [piece for piece in visible if piece.text or piece.call]
    if not pieces:
        return ""
    named = dict.fromkeys(f"{p.role} {p.source or quoted(cut_for_display(p.text))}" for p in pieces)
    listed = join_whole(list(named), MAX_LISTED_CHARACTERS)
    return f"Still in your context, so not repeated: {len(pieces)} text{'s' if len(pieces) > 1 else ''} ({listed})."


def _parse_page_range(page: str) -> tuple[int, int]:
    """`2` or `2-4`."""
    match = re.fullmatch(r"(\d{1,9})(?:\.0+)?(?:\s*-\s*(\d{1,9}))?", page or "1")
    if match is None:
        raise ToolError(f"Error: page {page[:40]!r} is no number. Give 1, or a range such as 1-2.")
    return int(match[1]), int(match[2] or match[1])


def _page_position_text(first: int, last: int, pages: int, *, has_more: bool) -> str:
    shown = f"Page {first}" if first == last else f"Pages {first}-{last}"
    following = f" Next: page {last + 1}." if last < pages or has_more else ""
    many = " A query finds a passage in them." if pages > MANY_PAGES else ""
    return f"{shown} of {'more than ' if has_more else ''}{pages}.{following}{many}"


RECALL = Tool(
    "stack_recall",
    "recall",
    "Read what left your context.",
    object_schema(
        ref=text_schema("ref, title or file path"), query=text_schema("words in it"), page=text_schema("2 or 2-4")
    ),
    recall,
    limits_own_length=True,
)
