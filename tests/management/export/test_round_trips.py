"""What is exported comes back: the same tree under the same ids, the same lines in the same logs."""

import json
import zipfile
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from callstack_proxy.management.export import files as writing
from callstack_proxy.management.export import stack_layout as layout
from callstack_proxy.management.export.importer import read_conversation
from callstack_proxy.management.export.items import items_of
from callstack_proxy.management.export.source import ExportInput
from callstack_proxy.management.views.conversations import path_state_of
from proxy.core.frames.events import (
    ArtifactAdded,
    DecisionAdded,
    FrameEntered,
    FrameEvent,
    FrameInvalidated,
    FramePlanned,
    FramePopped,
    FramePushed,
    NoteKept,
    RootStarted,
)
from proxy.core.frames.tree import Frame, Status, Tree
from proxy.core.ledger import rebuild_ledger
from proxy.core.ledger.ledger import EntryKind
from proxy.core.ledger.messages import Call
from proxy.store.interface import LedgerRecord
from tests.management.api.small_ledger import CLOCK, Writing, message
from tests.management.export.conftest import ExportStores, Json, Small, document, files_in, lines

LAYOUTS = ("stack", "jetbox")


def told_lines(place: Path) -> list[Json]:
    """The lines of all logs of a layout, oldest first, without the names a rebuilt entry goes by."""
    found = [line for log in sorted(place.glob("frames/*.log")) for line in lines(log)]
    nameless = [{**line, "after": "", "item": {**line["item"], "id": ""}} for line in found]
    return sorted(nameless, key=lambda line: (line["seq"], line["round"]))


@pytest.mark.rows("S1-04", "S1-05", "S1-08", "S1-09", "D7")
def test_the_state_has_the_five_keys_and_a_log_for_each_frame(stores: ExportStores, small: Small) -> None:
    """S1-04, S1-05, S1-08, S1-09, D7: `logPath` names a file that is there."""
    place = stores.export(small.material, "stack", "out")
    state = document(place / "state.json")

    assert set(state) == {"version", "frames", "activeFrameID", "rootFrameIDs", "updatedAt"}
    assert set(state["frames"]) == {small.written.root, small.written.child, small.written.planned}
    for name, fields in state["frames"].items():
        assert (place / fields["logPath"]).is_file()
        own = next(f for f in (place / "frames").glob("*.json") if document(f)["sessionID"] == name)
        assert document(own).items() >= fields.items()


@pytest.mark.rows("S1-06")
def test_a_planned_frame_has_a_file_of_its_own_kind(stores: ExportStores, small: Small) -> None:
    """S1-06: `frames/plan-*.json`."""
    (planned,) = (stores.export(small.material, "stack", "out") / "frames").glob("plan-*.json")

    assert document(planned)["sessionID"] == small.written.planned


@pytest.mark.rows("S0-01", "S0-08")
def test_every_message_stands_in_one_log(stores: ExportStores, small: Small) -> None:
    """S0-01, S0-08: the logs of all frames together are the conversation."""
    place = stores.export(small.material, "stack", "out")

    together = [line["item"]["wire"] for line in told_lines(place)]

    assert together == [
        item.message.wire.decode() for item in items_of(small.material.ledger, small.material.path_state.tree)
    ]
    assert [line["item"]["wire"] for line in lines(place / f"frames/{small.written.child}.log")] == [
        wire.decode() for wire in small.written.wires
    ]


@pytest.mark.rows("S1-04", "S1-05", "S1-06", "C22")
def test_the_layout_comes_back_as_the_same_tree_and_the_same_logs(stores: ExportStores, small: Small) -> None:
    """S1-04, S1-05, S1-06."""
    place = stores.export(small.material, "stack", "out")

    stores.take_in("to", place)
    again = stores.export(stores.material("to", small.written.conversation), "stack", "again")

    for name in ("state.json", "conversation.json"):
        assert (again / name).read_bytes() == (place / name).read_bytes()
    assert [p.name for p in sorted(again.glob("frames/*"))] == [p.name for p in sorted(place.glob("frames/*"))]
    assert told_lines(again) == told_lines(place)


@pytest.mark.rows("S3-26", "S3-27", "S3-28", "C22")
def test_the_jetbox_layout_comes_back_whole(stores: ExportStores, small: Small) -> None:
    """S3-26, S3-27, S3-28: every file byte for byte."""
    place = stores.export(small.material, "jetbox", "out")

    stores.take_in("to", place)
    again = stores.export(stores.material("to", small.written.conversation), "jetbox", "again")

    assert files_in(again) == files_in(place)


def test_the_ledger_comes_back_byte_for_byte(stores: ExportStores, small: Small) -> None:
    """The same ids, the same bytes, the same receipts: nobody can tell it was away."""
    place = stores.export(small.material, "ledger", "out.jsonl")

    told = stores.take_in("to", place)
    back = stores.material("to", small.written.conversation)

    assert (told.frames, told.entries, told.requests) == (3, 4, 1)
    assert stores.export(back, "ledger", "again.jsonl").read_bytes() == place.read_bytes()
    assert back.receipts == small.material.receipts


@pytest.mark.parametrize("kind", LAYOUTS)
def test_an_archive_says_what_a_folder_says(stores: ExportStores, small: Small, kind: str) -> None:
    folder, archive = (
        stores.export(small.material, kind, "out"),
        stores.export(small.material, kind, "out.zip"),
    )

    with zipfile.ZipFile(archive) as packed:
        assert {name: packed.read(name) for name in packed.namelist()} == files_in(folder)
    stores.take_in("to", archive)
    assert stores.conversations("to") == [small.written.conversation]


def test_the_same_conversation_is_the_same_archive(stores: ExportStores, small: Small) -> None:
    once, twice = (stores.export(small.material, "stack", name).read_bytes() for name in ("one.zip", "two.zip"))

    assert once == twice


@pytest.mark.rows("X-05")
def test_branches_that_were_given_up_come_back_beside_the_path(stores: ExportStores) -> None:
    """X-05: nothing is deleted, and the current path stays the current one."""
    at = Writing("local", "conversation")
    start = at.entry(EntryKind.MESSAGE, message("user", "begin"))
    at.event(RootStarted("froot", "Begin", "done"))
    at.entry(EntryKind.MESSAGE, message("assistant", "one way"))
    at._tip = start
    at.entry(EntryKind.MESSAGE, message("assistant", "another way"))
    stores.fill("from", at.records)
    place = stores.export(stores.material("from", "conversation"), "stack", "out")

    stores.take_in("to", place)
    back = stores.material("to", "conversation")

    assert told_lines(stores.export(back, "stack", "again")) == told_lines(place)
    items = items_of(back.ledger, back.path_state.tree)
    assert [(i.message.text, i.is_current) for i in items] == [
        ("begin", True), ("one way", False), ("another way", True)
    ]  # fmt: skip


# --------------------------------------------------------------------------------------------------------- any tree
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["push", "plan", "enter", "pop", "root", "drop", "note"]), st.integers(0, 9), st.integers(0, 3)
    ),
    max_size=25,
)
ENDS = (Status.COMPLETED, Status.FAILED, Status.BLOCKED)


def wandered(steps: list[tuple[str, int, int]]) -> ExportInput:
    """A conversation in which such things happened, in this order; what may not happen changes nothing."""
    at, numbers = Writing("local", "conversation"), count()
    at.entry(EntryKind.MESSAGE, message("user", "begin"))
    at.event(RootStarted("f0", "Root", "all is done"))
    next(numbers)
    for what, which, how in steps:
        ledger = rebuild_ledger(at.records[0], [r.value for r in at.records if isinstance(r, LedgerRecord)])  # type: ignore[arg-type]
        tree = path_state_of(ledger).tree
        frames = list(tree.frames.values())
        frame = frames[which % len(frames)]
        at.entry(EntryKind.MESSAGE, message("user", f"{what} {which}"))
        at.event(_happened(what, tree, frame, f"f{next(numbers)}", how))
    ledger = rebuild_ledger(at.records[0], [r.value for r in at.records if isinstance(r, LedgerRecord)])  # type: ignore[arg-type]
    return ExportInput(ledger, path_state_of(ledger))


def _happened(what: str, tree: Tree, frame: Frame, new: str, how: int) -> FrameEvent:
    match what:
        case "push":
            return FramePushed(new, tree.active, f"Title {new}", "it works", "t", "c", "block", "short")
        case "plan":
            return FramePlanned(new, frame.id, f"Title {new}", "it works", origin="plan")
        case "enter":
            return FrameEntered(frame.id, frame.parent, frame.title, frame.criteria, frame.origin)
        case "pop":
            left = ((f"{how}.py",), (f"take {how}",))
            return FramePopped(tree.active, ENDS[how % 3], f"came to {how}", "short", "", (), how, *left)
        case "root":
            return RootStarted(new, f"Title {new}", "it works")
        case "drop":
            return FrameInvalidated(frame.id, f"no use {how}")
        case _:
            decision, artifact = DecisionAdded(frame.id, f"because {how}"), ArtifactAdded(frame.id, f"{how}.md")
            return (artifact, decision, NoteKept(frame.id, f"kind{how % 2}", f"seen {how}"))[how % 3]


@pytest.mark.rows("S1-04", "S1-05", "S1-06")
@example([("push", 4, 0), ("pop", 0, 2), ("plan", 3, 0), ("enter", 8, 1), ("pop", 6, 0)])  # back in a blocked frame
@example([("plan", 5, 0), ("plan", 1, 3), ("push", 8, 2), ("enter", 2, 2), ("pop", 1, 1)])  # back in a planned one
@example([("push", 0, 0), ("pop", 0, 0), ("pop", 0, 0), ("root", 0, 0), ("push", 0, 0), ("pop", 0, 1)])  # two roots
@example([*[("push", 0, 0)] * 4, ("enter", 8, 0), ("pop", 0, 2), ("enter", 4, 0), ("pop", 0, 0)])
@given(STEPS)
@settings(max_examples=60, deadline=None)
def test_whatever_became_of_the_frames_comes_back(steps: list[tuple[str, int, int]]) -> None:
    """S1-04..06: any tree of any statuses, with what was noted on it; only a time of a note may be lost with it."""
    export_input = wandered(steps)
    with TemporaryDirectory() as folder:
        place = Path(folder) / "layout.zip"
        place.write_bytes(b"".join(writing.zip_chunks(layout.stack_files(export_input))))
        _, conversation, records = read_conversation(place)
    ledger = rebuild_ledger(conversation, [record.value for record in records if isinstance(record, LedgerRecord)])
    again = ExportInput(ledger, path_state_of(ledger))

    assert _timeless(layout.state_with_logs(again)) == _timeless(layout.state_with_logs(export_input))


def _timeless(state: Json) -> Json:
    """Without the times, and each decision once: the same words noted twice in a frame are told once."""
    frames = {
        name: {**fields, "updatedAt": 0, "invalidatedAt": 0, "decisions": list(dict.fromkeys(fields["decisions"]))}
        for name, fields in state["frames"].items()
    }
    return {**state, "frames": frames, "updatedAt": 0}


# ------------------------------------------------------------------------------------------------------ files of others
@pytest.mark.rows("S1-40", "S3-35")
def test_state_files_of_the_plugin_are_taken_in(stores: ExportStores) -> None:
    """S1-40, S3-35: frames under the ids they had; what was said was never written there, the goal is. The files
    stay, and are called the same when they are written again."""
    place = stores.folder / ".opencode" / "stack"
    (place / "frames").mkdir(parents=True)
    root = {"sessionID": "ses_1", "status": "in_progress", "title": "Ship it", "successCriteria": "users have it",
            "successCriteriaCompacted": "shipped", "createdAt": CLOCK, "updatedAt": CLOCK + 5, "artifacts": ["a.py"],
            "decisions": ["use sqlite"], "plannedChildren": ["plan-2"]}  # fmt: skip
    child = {"sessionID": "plan-2", "parentSessionID": "ses_1", "status": "planned", "title": "Announce it",
             "successCriteria": "a post", "successCriteriaCompacted": "post", "createdAt": CLOCK, "updatedAt": CLOCK,
             "artifacts": [], "decisions": []}  # fmt: skip
    state = {"version": 1, "frames": {"ses_1": root}, "activeFrameID": "ses_1", "rootFrameIDs": ["ses_1"],
             "updatedAt": CLOCK}  # fmt: skip
    (place / "state.json").write_text(json.dumps(state))
    (place / "frames" / "plan-2.json").write_text(json.dumps(child))

    before = files_in(place)

    told = stores.take_in("to", stores.folder)
    back = stores.material("to", told.conversation)

    assert (told.format, told.frames) == ("stack", 2)
    assert files_in(place) == before
    frames = layout.state_with_logs(back)["frames"]
    assert frames["ses_1"].items() >= {**root, "plannedChildren": ["plan-2"]}.items()
    assert frames["plan-2"].items() >= child.items()
    assert [item.message.text for item in items_of(back.ledger, back.path_state.tree)] == ["users have it"]

    again = stores.export(back, "stack", "again") / "frames"
    assert {file.name for file in again.glob("*.json")} == {"ses_1.json", "plan-2.json"}


@pytest.mark.rows("S3-27", "S3-28")
def test_goal_and_actions_of_others_are_taken_in(stores: ExportStores) -> None:
    """S3-27, S3-28: a file without our frames; descriptions are titles, the deepest task under way is active."""
    place = stores.folder / ".agent_context"
    place.mkdir()
    goal = {"description": "Write a calculator", "status": "in_progress", "tasks": [
        {"description": "Package", "status": "completed", "subtasks": []},
        {"description": "Tests", "status": "in_progress", "subtasks": [
            {"description": "Add", "status": "in_progress"}, {"description": "Divide", "status": "pending"}]},
    ]}  # fmt: skip
    (place / "state.json").write_text(json.dumps({"goal": goal, "current_task_idx": 1, "current_subtask_idx": 0}))
    action = {"timestamp": CLOCK / 1000, "name": "run_cmd", "args": {"cmd": ["pytest"]}, "result": "1 failed"}
    (place / "history.jsonl").write_text(json.dumps(action) + "\n")

    told = stores.take_in("to", stores.folder)
    again = stores.export(stores.material("to", told.conversation), "jetbox", "again")

    state = document(again / "state.json")
    assert [task["description"] for task in state["goal"]["tasks"]] == ["Package", "Tests"]
    assert (state["current_task_idx"], state["current_subtask_idx"]) == (1, 0)
    (line,) = lines(again / "history.jsonl")
    assert (line["action"], line["args"], line["result"]) == ("run_cmd", {"cmd": ["pytest"]}, "1 failed")


def test_a_conversation_may_change_hands(stores: ExportStores, small: Small) -> None:
    """X-25: it belongs to whoever takes it in."""
    place = stores.export(small.material, "ledger", "out.jsonl")

    stores.take_in("to", place, tenant="key-other")

    assert (
        stores.material("to", small.written.conversation, tenant="key-other").ledger.conversation.tenant == "key-other"
    )


# ------------------------------------------------------------------------------------------------------------- actions
@pytest.mark.rows("S3-20", "S3-26", "S3-27")
def test_history_has_a_line_for_each_call_and_loops_what_came_to_the_same(stores: ExportStores) -> None:
    """S3-20, S3-26, S3-27: keys in another order are the same action; another result is not."""
    at = Writing("local", "conversation")
    at.entry(EntryKind.MESSAGE, message("user", "look"))
    at.event(RootStarted("froot", "Look", "seen"))
    made = [('{"a": 1, "b": 2}', "nothing"), ('{"b":2,"a":1}', "nothing"), ('{"a":1,"b":2}', "nothing"),
            ('{"a":1,"b":2}', "something")]  # fmt: skip
    for number, (arguments, result) in enumerate(made):
        at.entry(EntryKind.MESSAGE, message("assistant", "", (Call(f"c{number}", "grep", arguments),)))
        at.entry(EntryKind.MESSAGE, message("tool", result, answers=f"c{number}"))
    stores.fill("from", at.records)

    place = stores.export(stores.material("from", "conversation"), "jetbox", "out")

    assert len(lines(place / "history.jsonl")) == len(made)
    (loop,) = json.loads((place / "loops.json").read_bytes())
    assert set(loop) == {"timestamp", "signature", "attempt_count"}
    assert (loop["signature"], loop["attempt_count"]) == ('grep:{"a":1,"b":2}', 3)
    assert document(place / "state.json")["loop_counts"] == {'grep:{"a":1,"b":2}': 4}


@pytest.mark.rows("S1-13")
def test_ids_never_leave_their_folder(stores: ExportStores) -> None:
    """S1-13: an id is not a path."""
    at = Writing("local", "conversation")
    at.entry(EntryKind.MESSAGE, message("user", "begin"))
    at.event(RootStarted("../../evil", "Begin", "done"))
    stores.fill("from", at.records)

    place = stores.export(stores.material("from", "conversation"), "stack", "out")

    assert sorted(files_in(place)) == [
        "conversation.json", "frames/______evil.json", "frames/______evil.log", "state.json"
    ]  # fmt: skip
