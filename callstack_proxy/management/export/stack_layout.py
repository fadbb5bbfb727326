"""The layout `stack`, written and read: the state files of the plugin that introduced it (`state.json`,
`frames/*.json`), plus `conversation.json` and a log of each frame's messages, `frames/ID.log`.

Fields are named as in `/stack`; times are ms since the epoch. Ids are made safe before they become file names. The
plugin writes no logs; then the goal of the first root is imported as the only message.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import Any, NotRequired

import msgspec

from callstack_proxy.management.export.base import JSON, ExportFormat
from callstack_proxy.management.export.import_files import FileSource, read_document, read_objects, refuse_import
from callstack_proxy.management.export.items import ExportItem, LogLine, items_of, json_document, json_line, log_lines
from callstack_proxy.management.export.ledger import as_bytes
from callstack_proxy.management.export.rebuild import (
    IMPORTED_THREAD,
    ImportedConversation,
    ImportedMessage,
    imported_message,
    parents_first,
)
from callstack_proxy.management.export.source import ExportInput
from callstack_proxy.management.views import FrameState, MessageView
from proxy.core.frames import Frame, FrameNote, Status, ancestors, children
from proxy.core.ledger import Call, Entry, EntryKind, Message, identity_of
from proxy.core.tools import tree_state
from proxy.dialects import OPENAI_CHAT

ABOUT_FILE = "conversation.json"
STATE_FILE = "state.json"
FRAMES_FOLDER = "frames"
PLANNED_PREFIX = "plan-"
_UNSAFE_CHARACTERS = re.compile(r"[^A-Za-z0-9_-]")


def safe_file_name(name: str) -> str:
    """An id with every character other than a letter, digit, dash or underscore replaced by an underscore."""
    return _UNSAFE_CHARACTERS.sub("_", name)


def stack_files(export_input: ExportInput) -> Iterator[tuple[str, Iterator[bytes]]]:
    tree = export_input.path_state.tree
    state = state_with_logs(export_input)
    yield ABOUT_FILE, conversation_document(export_input)
    yield STATE_FILE, iter((json_document(state),))
    for frame in tree.frames.values():
        yield (
            _frame_file(frame),
            iter((json_document(_frame_document(export_input, frame, state["frames"][frame.id])),)),
        )
    owned: dict[str, list[ExportItem]] = defaultdict(list)
    for item in items_of(export_input.ledger, tree):
        owned[item.frame].append(item)
    for name in dict.fromkeys((*tree.frames, *owned)):
        yield _log_file(name), log_lines(owned[name])


def conversation_document(export_input: ExportInput) -> Iterator[bytes]:
    conversation = export_input.ledger.conversation
    document = {"id": conversation.id, "created": conversation.created, "dialect": conversation.dialect}
    yield json_document(document)


def state_with_logs(export_input: ExportInput) -> dict[str, Any]:
    """The state, with the log file of each frame."""
    state = tree_state(export_input.path_state.tree, FRAMES_FOLDER)
    frames = {name: {**fields, "logPath": _log_file(name)} for name, fields in state["frames"].items()}
    return {**state, "frames": frames}


def _frame_file(frame: Frame) -> str:
    """Imported ids of planned frames already begin with `plan-`."""
    before = PLANNED_PREFIX if frame.status is Status.PLANNED and not frame.id.startswith(PLANNED_PREFIX) else ""
    return f"{FRAMES_FOLDER}/{before}{safe_file_name(frame.id)}.json"


def _log_file(frame: str) -> str:
    return f"{FRAMES_FOLDER}/{safe_file_name(frame) or 'nobody'}.log"


def _frame_document(export_input: ExportInput, frame: Frame, fields: Mapping[str, Any]) -> dict[str, Any]:
    tree = export_input.path_state.tree
    return {
        **fields,
        "conversation": export_input.id,
        "active": tree.active == frame.id,
        "ancestors": [above.id for above in ancestors(tree, frame.id)],
        "children": [below.id for below in children(tree, frame.id)],
        "origin": frame.origin,
        "tokens": frame.tokens,
    }


FRAME_FILE_PATTERN, LOG_FILE_PATTERN = "frames/*.json", "frames/*.log"


def read_stack_layout(conversations: FileSource, state: Mapping[str, Any]) -> ImportedConversation:
    """Raises BadRequest, which names the file and the member."""
    names = conversations.file_names()
    listed = state["frames"]
    if not isinstance(listed, dict):
        refuse_import(f"{STATE_FILE}: `frames` is no object")
    frames_by_id = {name: parse_frame(fields, f"{STATE_FILE}, frame {name[:64]}") for name, fields in listed.items()}
    for name in names:
        if fnmatchcase(name, FRAME_FILE_PATTERN):
            frame = parse_frame(read_document(conversations, name), name)
            if known := listed.get(frame.id):
                # What only a file of its own says, such as where a frame came from, is taken from there.
                frame = parse_frame({"origin": frame.origin, "tokens": frame.tokens, **known}, name)
            frames_by_id[frame.id] = frame
    frames = parents_first(frames_by_id.values())
    messages = sorted(_read_logs(conversations, names), key=lambda message: (message.entry.seq, message.round_number))
    active = state.get("activeFrameID") or ""
    return build_conversation(conversations, state, frames, active if isinstance(active, str) else "", tuple(messages))


def build_conversation(
    conversations: FileSource,
    state: Mapping[str, Any],
    frames: tuple[Frame, ...],
    active: str,
    messages: tuple[ImportedMessage, ...],
) -> ImportedConversation:
    """Without messages the goal becomes the only one."""
    about = read_document(conversations, ABOUT_FILE) if ABOUT_FILE in conversations.file_names() else {}
    created = min((frame.created_at for frame in frames), default=0)
    name, begun, dialect = about.get("id"), about.get("created"), about.get("dialect")
    if not isinstance(name, str) or not name:
        name = sha256(json_line(state)).hexdigest()[:32]  # the same state is the same conversation
    if not messages and frames:
        messages = (_goal_message(frames[0]),)
    return ImportedConversation(
        name,
        dialect if isinstance(dialect, str) else OPENAI_CHAT.name,
        begun if isinstance(begun, int) else created,
        frames,
        active,
        messages,
    )


def _goal_message(root: Frame) -> ImportedMessage:
    text = root.criteria.strip() or root.title
    return imported_message("goal", "", 0, OPENAI_CHAT.user_message(text), root.id, root.created_at)


class _FrameFields(FrameState):
    origin: NotRequired[str]
    tokens: NotRequired[int]


_EMPTY_FRAME: dict[str, Any] = {
    **dict.fromkeys(("successCriteria", "successCriteriaCompacted", "logPath"), ""),
    "createdAt": 0,
    "updatedAt": 0,
    "artifacts": [],
    "decisions": [],
}
"""What a state file may leave out, or say as null."""


def parse_frame(fields: Any, where: str) -> Frame:
    """A frame whose `order` says nothing. Raises BadRequest, which says `where` and what is missing."""
    try:
        state = msgspec.convert(_EMPTY_FRAME | _without_nulls(fields, where), _FrameFields)
        status = Status(state["status"])
    except (msgspec.ValidationError, ValueError) as error:
        allowed = ", ".join(Status)
        refuse_import(f"{where}: {error}; a frame has at least sessionID, title and a status ({allowed})")
    parent = state.get("parentSessionID", "")
    inferred = "request" if parent else "root"
    frame = Frame(
        id=state["sessionID"],
        parent=parent,
        title=state["title"],
        criteria=state["successCriteria"],
        criteria_compacted=state["successCriteriaCompacted"],
        status=status,
        order=0,
        origin=state.get("origin") or (inferred if state.get("auto") else "model"),
        created_at=state["createdAt"],
        updated_at=state["updatedAt"],
        results=state.get("results", ""),
        results_compacted=state.get("resultsCompacted", ""),
        artifacts=tuple(state["artifacts"]),
        decisions=tuple(state["decisions"]),
        invalidation_reason=state.get("invalidationReason", ""),
        invalidated_at=state.get("invalidatedAt", 0),
        tokens=state.get("tokens", 0),
        kept_notes=tuple(FrameNote(kind, text) for kind, texts in state.get("notes", {}).items() for text in texts),
    )
    return frame if frame.id else refuse_import(f"{where}: sessionID is empty")


def _without_nulls(fields: Any, where: str) -> dict[str, Any]:
    """With times in whole ms."""
    if not isinstance(fields, dict):
        refuse_import(f"{where}: it is no object")
    given = ((name, each) for name, each in fields.items() if each is not None)
    return {name: round(each) if isinstance(each, float) else each for name, each in given}


# ----------------------------------------------------------------------------------------------------------------- logs
_EMPTY_MESSAGE: dict[str, Any] = {"text": "", "calls": [], "answers": "", "error": False, "tokens": 0, "wire": ""}
_EMPTY_ITEM = {"thread": IMPORTED_THREAD, "created": 0, "current": False, "results": [], "finish": "", "complete": True}
"""What an item of a log may leave out."""


def _message_of(logged: MessageView) -> Message:
    """Raises UnicodeError if a log was not written by us."""
    role, text, answers = logged["role"], logged["text"], logged["answers"]
    calls = tuple(Call(call["id"], call["name"], call["arguments"]) for call in logged["calls"])
    identity = identity_of(role, text, calls, answers)
    return Message(role, as_bytes(logged["wire"]), identity, text, calls, answers, logged["tokens"])


def _read_logs(conversations: FileSource, names: list[str]) -> Iterator[ImportedMessage]:
    for name in names:
        if fnmatchcase(name, LOG_FILE_PATTERN):
            for number, fields in read_objects(conversations, name):
                yield _parse_line(fields, f"{name}, line {number}")


def _parse_line(fields: Mapping[str, Any], where: str) -> ImportedMessage:
    try:
        line = msgspec.convert({name: _completed(each) for name, each in fields.items()}, LogLine)
        item = line["item"]
        message, results = _message_of(item), tuple(map(_message_of, item["results"]))
        kind = EntryKind(item["kind"])
        entry = Entry(item["id"], line["after"], line["seq"], kind, item["thread"], message, created=item["created"])
        return ImportedMessage(entry, line["frame"], line["round"], results, item["finish"], item["complete"])
    except (msgspec.ValidationError, ValueError) as error:
        refuse_import(f"{where}: {error}")


def _completed(item: Any) -> Any:
    """An item of a log, or a result in it, with what it may leave out."""
    if not isinstance(item, dict):
        return item
    item = _EMPTY_MESSAGE | _EMPTY_ITEM | item
    if isinstance(item["calls"], list):
        item["calls"] = [{"state": "pending", **call} if isinstance(call, dict) else call for call in item["calls"]]
    if isinstance(item["results"], list):
        item["results"] = [_completed(result) for result in item["results"]]
    return item


STACK = ExportFormat(
    "state.json, and a file and a log for each frame", JSON, "", render_files=stack_files, is_importable=True
)
