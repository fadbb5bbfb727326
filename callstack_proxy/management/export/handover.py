"""The format `handover`: one Markdown page for whoever continues the work. Every text is quoted from the conversation
and escaped, so none can end a quote, open a heading or run as markup."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime

from callstack_proxy.management.export.base import MARKDOWN, ExportFormat
from callstack_proxy.management.export.source import ExportInput
from proxy.core.frames import FINAL_STATUSES, Frame, Status, Tree, children, is_task, path_to
from proxy.core.ledger import EntryKind
from proxy.core.text import cut_for_display
from proxy.core.tools import TREE_ICONS

MAX_QUOTE_CHARACTERS = 2_000
"""Longer texts are cut."""
PAGE_TITLE_CHARACTERS = 100
_MARKDOWN_CHARACTERS = re.compile(r"([\\`*_\[\]<>#|~])")


def render_page(export_input: ExportInput) -> Iterator[bytes]:
    for section in (
        _head_section,
        _requests_section,
        _tree_section,
        _decisions_section,
        _files_section,
        _open_work_section,
        _further_reading_section,
    ):
        text = "\n".join(section(export_input))
        yield (text + "\n\n").encode("utf-8", "backslashreplace")


# ------------------------------------------------------------------------------------------------------------- sections
def _head_section(export_input: ExportInput) -> Iterator[str]:
    tree = export_input.path_state.tree
    title = next((f.title for f in tree.frames.values() if not f.parent), "") or export_input.id
    cost = sum(receipt.cost for receipt in export_input.receipts)
    yield f"# Hand-over: {_inline(title)}"
    yield ""
    about = export_input.ledger.conversation
    begun = datetime.fromtimestamp(about.created / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
    spent = f"{len(export_input.receipts)} requests, {cost:.4f} USD"
    yield f"Conversation {_code(about.id)}, begun {begun}; {spent}."


def _requests_section(export_input: ExportInput) -> Iterator[str]:
    yield "## What was asked"
    messages = [
        p.entry.message
        for p in export_input.path_state.entries
        if p.entry.kind is EntryKind.MESSAGE and p.entry.message
    ]
    texts = [m.text for m in messages if m.role == "user" and m.text.strip()]
    for text in texts:
        yield ""
        yield from _quote(text)
    if not texts:
        yield "\nNothing yet."


def _tree_section(export_input: ExportInput) -> Iterator[str]:
    yield "## What was done"
    yield ""
    tree = export_input.path_state.tree.as_shown
    for root in (f for f in tree.frames.values() if not f.parent):
        yield from _frame_lines(tree, root, 0)
    if not tree.frames:
        yield "No frames."
    yield ""
    yield "; ".join(f"{icon} {status}" for status, icon in TREE_ICONS.items())


def _frame_lines(tree: Tree, frame: Frame, depth: int) -> Iterator[str]:
    active = ", active" if frame.id == tree.active else ""
    indent = "  " * depth
    yield f"{indent}- {TREE_ICONS[frame.status]} **{_inline(frame.title)}** ({_code(frame.id)}{active})"
    texts = {"Done when": frame.criteria, "Came to": frame.results, "Given up because": frame.invalidation_reason}
    for label, text in texts.items():
        if text.strip() and text.strip() != frame.title.strip():
            yield f"{indent}  - {label}: {_inline(text, MAX_QUOTE_CHARACTERS)}"
    for child in children(tree, frame.id):
        yield from _frame_lines(tree, child, depth + 1)


def _decisions_section(export_input: ExportInput) -> Iterator[str]:
    frames = export_input.path_state.tree.frames.values()
    return _list_section("Decisions", [(decision, frame) for frame in frames for decision in frame.noted])


def _files_section(export_input: ExportInput) -> Iterator[str]:
    frames = export_input.path_state.tree.frames.values()
    artifacts = {artifact: frame for frame in frames for artifact in frame.artifacts}
    return _list_section("Files and other artifacts", list(artifacts.items()))


def _list_section(title: str, rows: Sequence[tuple[str, Frame]]) -> Iterator[str]:
    yield f"## {title}"
    yield ""
    yield from (f"- {_inline(text, MAX_QUOTE_CHARACTERS)} ({_code(frame.id)})" for text, frame in rows)
    if not rows:
        yield "None were recorded."


def _open_work_section(export_input: ExportInput) -> Iterator[str]:
    """Frames in progress from the top down, then blocked, planned and failed ones."""
    tree = export_input.path_state.tree.as_shown
    yield "## What is open"
    yield ""
    path = path_to(tree, tree.active) if tree.active else ()
    open_path = [f for f in path if f.status not in FINAL_STATUSES and is_task(tree, f)]
    others = [f for f in tree.frames.values() if f not in path]
    rows = [("under way", f) for f in open_path]
    for status in (Status.IN_PROGRESS, Status.BLOCKED, Status.PLANNED, Status.FAILED):
        rows += [(str(status).replace("_", " "), f) for f in others if f.status is status]
    yield from (f"{number}. {words}: {_inline(f.title)} ({_code(f.id)})" for number, (words, f) in enumerate(rows, 1))
    if not rows:
        yield "Nothing."
    if last := _last_answer(export_input):
        yield ""
        yield "The last answer:"
        yield ""
        yield from _quote(last)


def _last_answer(export_input: ExportInput) -> str:
    messages = (path_entry.message for path_entry in reversed(export_input.path_state.entries))
    return next((m.text for m in messages if m and m.role == "assistant" and m.text.strip()), "")


def _further_reading_section(export_input: ExportInput) -> Iterator[str]:
    name = export_input.id.replace("`", "'")
    yield "## Where the rest is"
    yield ""
    yield f"- `callstack tree {name}` draws the frames; `callstack log FRAME` has every word of one."
    yield "- A model behind the proxy asks `stack_recall` with an id or a title from above as `ref`; `query` searches."
    yield f"- `callstack export {name} --format messages` is a request body with which any client goes on."
    yield f"- `callstack export {name} --format ledger` is all of it, for `callstack import` elsewhere."


# ------------------------------------------------------------------------------------------------------------- writing
def _inline(text: str, limit: int = PAGE_TITLE_CHARACTERS) -> str:
    return _MARKDOWN_CHARACTERS.sub(_escape, cut_for_display(text, limit))


def _code(name: str) -> str:
    typed = cut_for_display(name, PAGE_TITLE_CHARACTERS).replace("`", "'")
    return f"`{typed}`"


def _quote(text: str) -> Iterable[str]:
    """A block quote; each line is marked, so no text can end it."""
    shown = text if len(text) <= MAX_QUOTE_CHARACTERS else f"{text[:MAX_QUOTE_CHARACTERS]}…"
    return (f"> {_MARKDOWN_CHARACTERS.sub(_escape, line)}".rstrip() for line in shown.splitlines())


def _escape(match: re.Match[str]) -> str:
    return f"\\{match[0]}"


HANDOVER = ExportFormat(
    "what whoever goes on has to know, one page", MARKDOWN, ".md", lambda export_input, _: render_page(export_input)
)
