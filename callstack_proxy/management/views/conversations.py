"""Conversations, threads and frames as rows, and the state of a conversation as JSON. Frames have the field names that
`stack_get_state` gives the model. Everything describes the path that grew last, unless a thread is named. Times are ms
since the epoch."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import cast

import msgspec

from callstack_proxy.management.find_by_id import (
    ConversationUnreadable,
    load_ledger,
    newest_path_state,
    path_state_of_tip,
    quote_reference,
    root_of,
    thread_tips,
)
from callstack_proxy.management.reports import PaidRequest, plan_part_words, plan_words, sum_balances
from callstack_proxy.management.unfold_targets import unfoldable_frames
from callstack_proxy.management.views.schemas import (
    ConversationRow,
    FrameDetail,
    FrameState,
    ThreadRow,
    TouchedFile,
    TreeState,
    WithInterimSummary,
)
from proxy.core.context import entries_of_frame, with_open_frame_artifacts
from proxy.core.frames import (
    CHANGED,
    RETURN_STATUSES,
    Frame,
    PathState,
    Tree,
    ancestors,
    children,
    descendants,
    is_kept,
    siblings,
)
from proxy.core.ledger import Conversation, Ledger, Message
from proxy.core.observers import DEFAULT_TOOL_ROLES, ToolRoles, first_user_text, iter_touched_files, task_text_of
from proxy.core.tools import draw_tree, tree_state
from proxy.errors import NotFound
from proxy.store import RequestRecord, Store, TenantScope

MAX_REQUESTS_COUNTED = 100_000
"""Requests of one conversation that are counted."""
MAX_TITLE_LENGTH = 80
MAX_TASK_TITLE_LENGTH = 200
MAX_OPENING_ENTRIES, MAX_OPENING_CHARACTERS = 20, 2_000
"""Where the user's first words are looked for, and how many of them."""


async def conversation_rows(store: Store, scope: TenantScope, limit: int, offset: int) -> list[ConversationRow]:
    """Newest first."""
    return await conversation_rows_of(store, await store.conversations(scope, limit, offset))


async def recent_conversation_rows(store: Store, scope: TenantScope, limit: int) -> list[ConversationRow]:
    """Most recently active first."""
    return await conversation_rows_of(store, await store.recently_active(scope, limit))


async def conversation_rows_of(store: Store, conversations: Iterable[Conversation]) -> list[ConversationRow]:
    """Includes a row for each conversation that cannot be read."""
    rows = []
    for conversation in conversations:
        try:
            ledger = await load_ledger(store, conversation)
            if ledger is not None:  # forgotten between the two questions
                rows.append(await conversation_row(store, ledger))
        except ConversationUnreadable as error:
            rows.append(await _unreadable_row(store, conversation, str(error)))
    return rows


async def conversation_row(
    store: Store,
    ledger: Ledger,
    until: int | None = None,
    *,
    path_state: PathState | None = None,
    stored: Sequence[RequestRecord] | None = None,
) -> ConversationRow:
    """`until` (ms since the epoch): `ledger` is as it was then, and later requests are not counted. `path_state`: its
    newest, and `stored`: all its requests, if the caller has them. Raises ConversationUnreadable."""
    conversation = ledger.conversation
    if stored is None:
        stored = await store.requests(conversation.tenant, conversation.id, MAX_REQUESTS_COUNTED)
    requests = [request for request in stored if until is None or request.created <= until]
    if path_state is None:  # in a thread: requests that are being answered do not wait for it
        path_state = await asyncio.to_thread(newest_path_state, ledger)
    return _row_of(ledger, path_state.tree, requests)


def _row_of(ledger: Ledger, tree: Tree, requests: Sequence[RequestRecord]) -> ConversationRow:
    conversation, root = ledger.conversation, root_of(tree)
    money = sum_balances(request.receipt for request in requests)
    paid = paid_requests(request.receipt for request in requests)
    return {
        "id": conversation.id,
        "parent": conversation.parent or None,
        "threads": sorted(ledger.threads),
        "title": truncate_line(root.title) if root else "",
        "created": conversation.created,
        "last_active": last_active(ledger, (request.created for request in requests)),
        "requests": len(requests),
        "turns": len(ledger.turns_by_parent),
        "retries": sum(len(answers) - 1 for answers in ledger.turns_by_parent.values()),
        "frames": len(tree.frames),
        "active_frame": tree.active or None,
        "awake": tree.is_awake,
        "mode": conversation.chosen_mode or None,
        "stopped": conversation.is_stopped,
        "cost": money.cost,
        "cost_untouched": money.cost_untouched,
        "saved": money.saved,
        "saved_percent": money.saved_percent,
        "cost_caused": money.cost_caused,
        "plan": plan_words(paid),
        "plan_part": plan_part_words(paid),
    }


def paid_requests(receipts: Iterable[bytes]) -> list[PaidRequest]:
    """What receipts say of plans; nothing where none names one, as is usual: then they are not read for it."""
    stored = list(receipts)
    if not any(b'"plan":{' in receipt for receipt in stored):
        return []
    return [msgspec.json.decode(receipt, type=PaidRequest) for receipt in stored if receipt]


async def _unreadable_row(store: Store, conversation: Conversation, reason: str) -> ConversationRow:
    requests = await store.requests(conversation.tenant, conversation.id, MAX_REQUESTS_COUNTED)
    return {**_row_of(Ledger(conversation), Tree(), requests), "unreadable": reason}


def task_title(ledger: Ledger, most: int = MAX_TASK_TITLE_LENGTH) -> str:
    """What the conversation was begun for, in one line: the user's first words without a greeting and without what a
    client adds. Needs no path, so it is quick for a conversation of any length."""
    messages = (entry.message for entry in islice(ledger.entries.values(), MAX_OPENING_ENTRIES))
    return task_title_of((message for message in messages if message is not None), most)


def task_title_of(opening: Iterable[Message], most: int = MAX_TASK_TITLE_LENGTH) -> str:
    """The same from the first messages of a conversation, oldest first."""
    texts = [message.text for message in opening if message.role == "user"]
    task = task_text_of(first_user_text(texts, MAX_OPENING_CHARACTERS)) if texts else ""
    return truncate_line("\n".join(line.lstrip("#> ") for line in task.splitlines()), most)


def last_active(ledger: Ledger, requests: Iterable[int]) -> int:
    """ms since the epoch of the last activity."""
    entries = (entry.created for entry in ledger.entries.values())
    return max((ledger.conversation.created, *entries, *requests))


def thread_rows(ledger: Ledger) -> list[ThreadRow]:
    """In order of their newest entries, newest last."""
    rows: list[ThreadRow] = []
    for name, tip in sorted(thread_tips(ledger).items(), key=lambda item: item[1].seq):
        tree = path_state_of_tip(ledger, tip).tree
        thread = ledger.threads.get(name)
        rows.append(
            {
                "id": name,
                "tip": tip.id,
                "last_active": tip.created,
                "awake": tree.is_awake,
                "active_frame": tree.active or None,
                "frames": len(tree.frames),
                "tools": list(thread.tool_names) if thread else [],
            }
        )
    return rows


# ------------------------------------------------------------------------------------------------------------- frames
def path_state_of(ledger: Ledger, thread: str = "", names: ToolRoles = DEFAULT_TOOL_ROLES) -> PathState:
    """The path of a thread, or the one that grew last, with artifacts of its open frames. Raises NotFound for an
    unknown thread, ConversationUnreadable."""
    if not thread:
        return with_open_frame_artifacts(newest_path_state(ledger), names)
    tip = thread_tips(ledger).get(thread)
    if tip is None:
        raise NotFound(
            f"There is no thread {quote_reference(thread)} here. GET /stack/conversations/{{id}}/threads lists them."
        )
    return with_open_frame_artifacts(path_state_of_tip(ledger, tip), names)


def tree_state_view(ledger: Ledger, path_state: PathState) -> TreeState:
    """The whole tree as in `stack_get_state`, with fold marks."""
    state, marks = tree_state(path_state.tree.as_shown), _fold_marks(ledger, path_state)
    frames = {frame: _with_log_path_and_marks(fields, marks[frame]) for frame, fields in state["frames"].items()}
    return cast(TreeState, state | {"frames": frames})


def _with_log_path_and_marks(fields: FrameState, marks: Collection[str]) -> FrameState:
    state: FrameState = {**fields, "logPath": log_path(fields["sessionID"])}
    if "folded" in marks:
        state["folded"] = True
    if "kept" in marks:
        state["kept"] = True
    return state


def _fold_marks(ledger: Ledger, path_state: PathState) -> Mapping[str, Collection[str]]:
    """For each frame whether it is `folded`, and `kept` (wanted back, alone or with a frame that contains it)."""
    tree, unfoldable = path_state.tree, unfoldable_frames(ledger, path_state)
    return {
        frame: [
            *(["folded"] if frame in unfoldable else []),
            *(["kept"] if is_kept(tree, frame) or unfoldable.get(frame) in tree.kept_frames else []),
        ]
        for frame in tree.frames
    }


def log_path(frame: str) -> str:
    return f"/stack/frames/{frame}/log"


MARK_MEANINGS = {
    "request": "a request of the user",
    "plan": "an item of the client's plan",
    "subagent": "delegated by a call of the model",
    "auto": "parted off by the proxy (`autonomy: auto`)",
    "model": "made by the model",
    "human": "planned or begun by a person",
    "put away": "no longer in context, `callstack frame unfold ID` brings it back or says how",
    "coming back": "a person asked for it, and it comes when that is cheap",
    "brought back": "in context again, and never put away again",
}
"""Marks behind the id of a frame: its origin, and whether it was put away. Parts and the root need none."""


def tree_text(ledger: Ledger, path_state: PathState, *, details: bool = False) -> str:
    """The tree as `stack_tree` draws it for the model, with marks for people."""
    if not path_state.tree.frames:
        return "No frames yet."
    marks = _marks(ledger, path_state)
    text = draw_tree(
        path_state.tree, details=details, marks={frame: ", ".join(words) for frame, words in marks.items() if words}
    )
    used = [
        f"{word}: {meaning}"
        for word, meaning in MARK_MEANINGS.items()
        if any(word in words for words in marks.values())
    ]
    return "\n".join([text, *([f"Marks: {'; '.join(used)}"] if used else [])])


def _marks(ledger: Ledger, path_state: PathState) -> Mapping[str, Collection[str]]:
    fold_marks, frames = _fold_marks(ledger, path_state), path_state.tree.frames.values()
    return {
        f.id: [*([f.origin] if f.origin in MARK_MEANINGS else []), *_mark_words(f, fold_marks[f.id])] for f in frames
    }


def _mark_words(frame: Frame, marks: Collection[str]) -> Sequence[str]:
    """The word for where the work of a frame is, as the console has it; none for work that never left."""
    if "folded" in marks:
        return ["coming back" if "kept" in marks else "put away"]
    if "kept" in marks:
        return ["brought back"]
    return ["put away"] if frame.status in RETURN_STATUSES and frame.opening is not None else []


@dataclass(frozen=True, slots=True)
class FrameFilter:
    """Selects frames by their relation to other frames: each field is an id, or empty."""

    parent: str = ""
    ancestors_of: str = ""
    descendants_of: str = ""
    siblings_of: str = ""


def filter_frames(tree: Tree, status: str = "", related: FrameFilter = FrameFilter()) -> list[Frame]:
    """Frames that pass every filter, in order of creation; with `ancestors_of` the nearest first."""
    tree = tree.as_shown
    groups: list[Iterable[Frame]] = []
    if related.ancestors_of:
        groups.append(ancestors(tree, related.ancestors_of))
    if related.descendants_of:
        groups.append(descendants(tree, related.descendants_of))
    if related.siblings_of:
        groups.append(siblings(tree, related.siblings_of) if related.siblings_of in tree.frames else ())
    first, *others = groups or [tree.frames.values()]
    allowed_ids = [{frame.id for frame in group} for group in others]
    return [
        frame
        for frame in (first if related.ancestors_of else sorted(first, key=lambda f: f.order))
        if status in ("", frame.status)
        and related.parent in ("", frame.parent)
        and all(frame.id in ids for ids in allowed_ids)
    ]


def frame_rows(ledger: Ledger, path_state: PathState, chosen: Iterable[Frame]) -> list[FrameState]:
    frames = tree_state_view(ledger, path_state)["frames"]
    return [frames[frame.id] for frame in chosen]


def frame_detail(ledger: Ledger, path_state: PathState, frame: str, names: ToolRoles) -> FrameDetail:
    path_state = with_open_frame_artifacts(path_state, names)
    tree = path_state.tree.as_shown
    details = tree.frames[frame]
    return {
        **tree_state_view(ledger, path_state)["frames"][frame],
        "conversation": ledger.conversation.id,
        "active": tree.active == frame,
        "ancestors": [f.id for f in ancestors(tree, frame)],
        "children": [f.id for f in children(tree, frame)],
        "origin": details.origin,
        "attempts": details.segment,
        "retryOf": details.retry_of or None,
        "tokens": details.tokens,
        "files": _files(path_state, frame, names),
        **_interim_summary(tree, frame),
    }


def _interim_summary(tree: Tree, frame: str) -> WithInterimSummary:
    summary = tree.interim_summaries.get(frame)
    if summary is None:
        return {}
    return {
        "summary": {"type": "manual_summary", "text": summary.text, "entry": summary.at, "created": summary.made_at}
    }


def _files(path_state: PathState, frame: str, names: ToolRoles) -> list[TouchedFile]:
    files: dict[str, TouchedFile] = {}
    for path_entry, touched in iter_touched_files(entries_of_frame(path_state, frame), names):
        earlier = files.get(touched.path)
        how = CHANGED if earlier and earlier["how"] == CHANGED else touched.how
        files[touched.path] = {"path": touched.path, "how": how, "entry": path_entry.entry.id}
    return list(files.values())


def truncate_line(text: str, most: int = MAX_TITLE_LENGTH) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"
