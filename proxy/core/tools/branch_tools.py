"""Checkpoints and branches: the rules, and the tools checkpoint, branch, switch and inject.

Branches turn only where the user speaks: a requested branch or switch waits for a request that brings nothing but user
words, so no call group is cut and every result stays behind its call. A branch knows nothing of the work on another
one, except for messages that were copied. The functions here return events and texts; `NotAllowed` says what to do
instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from itertools import count
from typing import Any

import msgspec

from proxy.core.context import context_entries
from proxy.core.frames import (
    MAIN_BRANCH,
    BranchState,
    BranchSwitched,
    BranchSwitchRequested,
    CheckpointSet,
    CopiedText,
    InjectionRequested,
    PathEntry,
    PathState,
    RequestFingerprint,
    find_frame,
)
from proxy.core.ledger import Entry, EntryKind, Ledger, Request, Thread
from proxy.core.recall import StoredPiece, pieces_of, wrap_in_markers
from proxy.core.text import cut_for_display, element, escape_xml
from proxy.core.tools.base import (
    Tool,
    ToolContext,
    ToolError,
    ToolResult,
    frame_argument,
    object_schema,
    text_argument,
    text_schema,
)
from proxy.errors import NotAllowed

NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")  # checkpoint or branch name; used in paths and markers
MAX_CHECKPOINTS = 64  # of one path, automatic ones not counted
MAX_BRANCHES = 32
MAX_COPIED_CHARACTERS = 60_000  # copied at once
MAX_REASON_CHARACTERS = 400


def create_checkpoint(
    path_state: PathState, ledger: Ledger, entry: str, name: str = "", *, automatic: bool = False
) -> CheckpointSet:
    """A checkpoint behind `entry`, or before it where calls would be left without results. Without a name, one is
    chosen. Raises NotAllowed."""
    branches = path_state.branches
    chosen = _validate_name(name) if name else _unused_name("c", branches.checkpoints)
    if chosen in branches.checkpoints:
        raise NotAllowed(f"There is a checkpoint {chosen!r} already. Choose another name.", code="name_taken")
    if not automatic and sum(not each.automatic for each in branches.checkpoints.values()) >= MAX_CHECKPOINTS:
        raise NotAllowed(
            f"There are {MAX_CHECKPOINTS} checkpoints here already; no more fit. Use one of them.", code="too_many"
        )
    entry_id = newest_settled_entry(ledger, entry)
    fingerprint = fingerprint_of(ledger.threads.get(ledger.entries[entry_id].thread))
    return CheckpointSet(chosen, entry_id, branches.current, automatic, fingerprint)


def newest_settled_entry(ledger: Ledger, entry: str) -> str:
    """The newest entry on the path to `entry` that leaves no call without a result."""
    settled = ledger.entries[entry]
    while settled.parent and _has_pending_calls(ledger, settled):
        settled = ledger.entries[settled.parent]
    return settled.id


def _has_pending_calls(ledger: Ledger, entry: Entry) -> bool:
    if entry.kind is not EntryKind.TURN:
        return entry.message is not None and bool(entry.message.calls)
    rounds = ledger.rounds.get(entry.id, ())
    return not (rounds and rounds[-1].last and rounds[-1].spoken.complete) or bool(rounds[-1].spoken.client_calls)


def fingerprint_of(thread: Thread | None) -> RequestFingerprint:
    return (thread.system_hash, thread.tools_hash, thread.model) if thread else ("", "", "")


def _validate_name(name: str) -> str:
    if not NAME_PATTERN.fullmatch(name):
        raise NotAllowed(
            f"{cut_for_display(name, 40)!r} is no name: use up to 64 letters, digits, dots, dashes and underscores.",
            code="bad_name",
        )
    return name


def _unused_name(letter: str, taken: Mapping[str, object]) -> str:
    return next(name for number in count(1) if (name := f"{letter}{number}") not in taken)


def request_branch(
    branches: BranchState, checkpoint: str = "", name: str = "", reason: str = ""
) -> BranchSwitchRequested:
    """A new branch that begins at `checkpoint`, by default the newest one. Raises NotAllowed."""
    if not branches.checkpoints:
        raise NotAllowed("There is no checkpoint to begin a branch at. Set one first.", code="no_checkpoint")
    newest = next(reversed(tuple(branches.checkpoints)))
    point = branches.checkpoints.get(checkpoint or newest)
    if point is None:
        raise NotAllowed(
            f"There is no checkpoint {cut_for_display(checkpoint, 40)!r}. "
            f"{_list_names('Checkpoints', branches.checkpoints)}",
            code="no_checkpoint",
        )
    chosen = _validate_name(name) if name else _unused_name("b", branches.start_checkpoints)
    if chosen in branches.start_checkpoints:
        raise NotAllowed(
            f"There is a branch {chosen!r} already: switch to it, or choose another name.", code="name_taken"
        )
    if len(branches.start_checkpoints) >= MAX_BRANCHES:
        raise NotAllowed(
            f"There are {MAX_BRANCHES} branches here already; no more fit. Switch to one of them.", code="too_many"
        )
    return BranchSwitchRequested(chosen, point.at, point.name, reason)


def request_switch(branches: BranchState, name: str, reason: str = "") -> BranchSwitchRequested:
    """Switch to an existing branch. Raises NotAllowed."""
    if name not in branches.start_checkpoints:
        raise NotAllowed(
            f"There is no branch {cut_for_display(name, 40)!r}. {_list_names('Branches', branches.start_checkpoints)}",
            code="no_branch",
        )
    if name == branches.current and branches.requested_switch is None:
        raise NotAllowed(f"The work is on {name!r} already. Go on, or name another branch.", code="already_there")
    return BranchSwitchRequested(name, reason=reason)


def _list_names(label: str, names: Mapping[str, object]) -> str:
    return f"{label}: {', '.join(names)}."


def due_branch_switch(
    path_state: PathState,
    ledger: Ledger,
    new_entries: Sequence[Entry],
    request: Request,
    fingerprint: RequestFingerprint,
) -> BranchSwitched | None:
    """The branch switch that these new messages, the newest of `request`, make due; it happens before the first of
    them. None where no switch is requested or it must wait. `fingerprint` is the fingerprint of the request before."""
    requested = path_state.branches.requested_switch
    if requested is None or not _can_switch_now(new_entries, request):
        return None
    if requested.branch not in path_state.other_branches and requested.at not in ledger.entries:
        return None  # what it is to begin at was lost
    return BranchSwitched(requested.branch, requested.at, requested.checkpoint, requested.reason, fingerprint)


def _can_switch_now(new_entries: Sequence[Entry], request: Request) -> bool:
    """Whether only the user speaks, and the request allows a context other than the client's own history."""
    only_user_speaks = all(entry.message is not None and entry.message.role == "user" for entry in new_entries)
    can_call_tools = bool(request.tool_names) and request.tool_choice in ("auto", "required")
    return bool(new_entries) and only_user_speaks and can_call_tools


def ends_with_tool_result(branch_state: PathState) -> bool:
    last = next(
        (message for path_entry in reversed(context_entries(branch_state)) if (message := path_entry.message)), None
    )
    return last is not None and bool(last.answers)


class NumberedMessage(msgspec.Struct, frozen=True):
    """A message of a branch, numbered from 1."""

    number: int
    role: str
    text: str


def branch_named(path_state: PathState, name: str) -> PathState:
    """The state of a branch. Raises NotAllowed."""
    if name == path_state.branches.current:
        return path_state
    if name not in path_state.other_branches:
        raise NotAllowed(
            f"There is no branch {cut_for_display(name, 40)!r}. "
            f"{_list_names('Branches', path_state.branches.start_checkpoints)}",
            code="no_branch",
        )
    return path_state.other_branches[name]


def copyable_entries(branch_state: PathState) -> list[PathEntry]:
    """Entries of the context without notes of the proxy, oldest first."""
    return [p for p in context_entries(branch_state) if p.entry.kind is not EntryKind.OVERLAY and p.message is not None]


def numbered_messages(branch_state: PathState) -> tuple[NumberedMessage, ...]:
    """Messages in a branch's context, oldest first."""
    texts = (
        (p.message, "\n\n".join(map(_display_text, pieces_of(branch_state, [p]))))
        for p in copyable_entries(branch_state)
    )
    return tuple(NumberedMessage(n, m.role, text) for n, (m, text) in enumerate(texts, 1) if m is not None)


def _display_text(piece: StoredPiece) -> str:
    return f"{piece.call.name}({piece.text})" if piece.call and piece.is_call_arguments else piece.text


def copy_texts(path_state: PathState, source: str, numbers: Sequence[int], frame: str) -> tuple[CopiedText, ...]:
    """Messages of the branch `source` by number, or the results of one of its frames. Raises NotAllowed."""
    if bool(numbers) is bool(frame):
        raise NotAllowed("Name what to copy: message numbers, or one frame.", code="nothing_chosen")
    branch_state = branch_named(path_state, source)
    texts = (_copy_results(branch_state, frame, source),) if frame else _copy_messages(branch_state, numbers, source)
    if (size := sum(len(each.text) for each in texts)) > MAX_COPIED_CHARACTERS:
        raise NotAllowed(
            f"These are {size:,} characters; {MAX_COPIED_CHARACTERS:,} at most are copied at once. "
            f"Choose fewer messages.",
            code="too_long",
        )
    return texts


def _copy_messages(branch_state: PathState, numbers: Sequence[int], source: str) -> tuple[CopiedText, ...]:
    path_entries = copyable_entries(branch_state)
    if wrong := [number for number in numbers if not 1 <= number <= len(path_entries)]:
        raise NotAllowed(f"{source!r} has no message {wrong[0]}: it has 1 to {len(path_entries)}.", code="no_message")
    chosen = (
        (number, piece)
        for number in dict.fromkeys(numbers)
        for piece in pieces_of(branch_state, [path_entries[number - 1]])
    )
    return tuple(CopiedText(piece.ref, piece.role, piece.source, piece.text, number) for number, piece in chosen)


def _copy_results(branch_state: PathState, reference: str, source: str) -> CopiedText:
    frame = find_frame(branch_state.tree, reference)
    if frame is None or not frame.results:
        known = ", ".join(f.label for f in branch_state.tree.frames.values() if f.results)
        raise NotAllowed(
            f"No frame {cut_for_display(reference, 40)!r} on {source!r} has results. With results: {known or 'none'}.",
            code="no_results",
        )
    return CopiedText(frame.id, "results", frame.title, frame.results)


def request_injection(
    branches: BranchState, target: str, source: str, texts: Sequence[CopiedText]
) -> InjectionRequested:
    """Copy `texts` to the branch `target`, by default the one the next request uses. Raises NotAllowed."""
    next_branch = branches.requested_switch.branch if branches.requested_switch else branches.current
    to = target or next_branch
    if to not in (*branches.start_checkpoints, next_branch):
        raise NotAllowed(
            f"There is no branch {cut_for_display(to, 40)!r}. {_list_names('Branches', branches.start_checkpoints)}",
            code="no_branch",
        )
    if to == source:
        raise NotAllowed(f"That stands on {to!r} already; name another branch to copy to.", code="same_line")
    return InjectionRequested(to, source, tuple(texts))


FILES_UNCHANGED_NOTE = (
    "Only the conversation changed: files and whatever else was changed outside of it are as they were left, so look "
    "before you rely on what you read earlier."
)


def render_branch_switch(event: BranchSwitched, nonce: str) -> str:
    """The note for the model where a branch begins or is resumed."""
    if event.at:
        sentence = (
            f"A branch begins here: {event.branch}, at the checkpoint {event.checkpoint}. The work goes on from that "
            "point; what was done after it stands on another branch."
        )
    elif event.branch == MAIN_BRANCH:
        sentence = (
            "The work goes on here, on the main line, where it was left. What was done meanwhile stands on a branch."
        )
    else:
        sentence = f"The work goes on here, on the branch {event.branch}, where it was left."
    reason = f" Reason: {escape_xml(cut_for_display(event.reason, MAX_REASON_CHARACTERS))}" if event.reason else ""
    return element(
        "stack-context", {"branch": event.branch, "nonce": nonce}, f"{sentence} {FILES_UNCHANGED_NOTE}{reason}"
    )


def render_pending_injections(branches: BranchState, nonce: str) -> str:
    """Copied texts that wait for the current branch, as text for the model; empty without any."""
    waiting = [each for each in branches.pending_injections if each.branch == branches.current]
    if not waiting:
        return ""
    sources = ", ".join(dict.fromkeys(each.source_branch for each in waiting))
    head = f"Copied from {sources}. What stands between the markers below is stored data."
    texts = (render_copied_texts(each.source_branch, each.texts, nonce) for each in waiting)
    return "\n".join((element("stack-context", {"copied-from": sources, "nonce": nonce}, head), *texts))


def render_copied_texts(source: str, texts: Sequence[CopiedText], nonce: str) -> str:
    """Copied texts between the markers of stored data."""
    return "\n".join(
        wrap_in_markers(
            StoredPiece(each.ref, "", "", "", each.role, each.source, each.text),
            each.text,
            nonce,
            branch=source,
            message=str(each.number or ""),
        )
        for each in texts
    )


RunTool = Callable[[ToolContext, Mapping[str, Any]], ToolResult]
BRANCH_MISSING = "Error: branch is missing: the name of the branch to go to; main is the line it all began on."
SOURCE_MISSING = "Error: branch is missing: the name of the branch to copy from."
CHOICE_MISSING = "Error: say what to copy: messages (numbers such as 3 or [3, 4]), or frame for what a frame returned."


def _with_tool_errors(run: RunTool) -> RunTool:
    """NotAllowed as ToolError."""

    @wraps(run)
    def answering(tool_context: ToolContext, arguments: Mapping[str, Any]) -> ToolResult:
        try:
            return run(tool_context, arguments)
        except NotAllowed as refused:
            raise ToolError(f"Error: {refused}") from None

    return answering


@_with_tool_errors
def checkpoint(tool_context: ToolContext, arguments: Mapping[str, Any]) -> ToolResult:
    event = create_checkpoint(
        tool_context.path_state,
        tool_context.ledger,
        answered_request_entry(tool_context),
        text_argument(arguments, "name"),
    )
    return ToolResult(
        f"Checkpoint {event.name} is set: the conversation up to this turn. A branch can begin there.", (event,)
    )


def answered_request_entry(tool_context: ToolContext) -> str:
    """The entry of the request that is being answered."""
    turn = tool_context.ledger.entries.get(tool_context.turn_id)
    return turn.parent if turn else tool_context.path_state.tip


def checkpoint_before_push(tool_context: ToolContext, frame: str) -> tuple[CheckpointSet, ...]:
    """The automatic checkpoint before a push, where the configuration asks for it."""
    if not tool_context.settings.checkpoint_at_push:
        return ()
    return (
        create_checkpoint(
            tool_context.path_state,
            tool_context.ledger,
            answered_request_entry(tool_context),
            f"before-{frame}",
            automatic=True,
        ),
    )


@_with_tool_errors
def branch(tool_context: ToolContext, arguments: Mapping[str, Any]) -> ToolResult:
    reason, point = text_argument(arguments, "reason"), text_argument(arguments, "checkpoint")
    event = request_branch(tool_context.path_state.branches, point, text_argument(arguments, "name", "branch"), reason)
    return ToolResult(
        f"Branch {event.branch} begins at checkpoint {event.checkpoint} with the user's next message. It will know "
        "nothing of what was done since. Until then you are where you were: finish this turn.",
        (event,),
    )


@_with_tool_errors
def switch(tool_context: ToolContext, arguments: Mapping[str, Any]) -> ToolResult:
    event = request_switch(
        tool_context.path_state.branches,
        text_argument(arguments, "branch", "name", required=BRANCH_MISSING),
        text_argument(arguments, "reason"),
    )
    return ToolResult(f"The user's next message goes to {event.branch}. Until then you are where you were.", (event,))


@_with_tool_errors
def inject(tool_context: ToolContext, arguments: Mapping[str, Any]) -> ToolResult:
    source = text_argument(arguments, "branch", required=SOURCE_MISSING)
    frame = frame_argument(arguments)
    texts = copy_texts(tool_context.path_state, source, _message_numbers(arguments), frame)
    return ToolResult(render_copied_texts(source, texts, tool_context.nonce))


def _message_numbers(arguments: Mapping[str, Any]) -> list[int]:
    """Message numbers as models write them: 3, "3", [3, "4"]."""
    given = arguments.get("messages", arguments.get("message"))
    numbers: list[int] = []
    for each in given if isinstance(given, list) else [] if given is None else [given]:
        if isinstance(each, bool) or not str(each).strip().isdecimal() or len(str(each)) > len("1000000"):
            raise ToolError(CHOICE_MISSING)
        numbers.append(int(each))
    return numbers


CHECKPOINT = Tool(
    "stack_checkpoint",
    "checkpoint",
    "Name this point of the conversation, so that a branch can begin here.",
    object_schema(name=text_schema("default: one is chosen")),
    checkpoint,
)
BRANCH = Tool(
    "stack_branch",
    "branch",
    "Begin a new line of work at a checkpoint, with the user's next message; it knows nothing of what came after.",
    object_schema(
        checkpoint=text_schema("where it begins; default: the newest"),
        name=text_schema("of the branch; default: one is chosen"),
        reason=text_schema("why"),
    ),
    branch,
)
SWITCH = Tool(
    "stack_switch",
    "switch",
    "Go on with another branch (main is the first), with the user's next message.",
    object_schema("branch", branch=text_schema("its name"), reason=text_schema("why")),
    switch,
)
INJECT = Tool(
    "stack_inject",
    "inject",
    "Copy messages of another branch, by number, or what a frame of it returned.",
    object_schema(
        "branch",
        branch=text_schema("the branch to copy from"),
        messages={"type": "array", "description": "numbers of messages", "items": {"type": "integer"}},
        frame=text_schema("copy what this frame returned instead"),
    ),
    inject,
)
