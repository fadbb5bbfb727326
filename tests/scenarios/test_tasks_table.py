"""Frames in the database as others read it: the view `tasks` (S2-39, S2-40)."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

import pytest

from llm_test_provider import ScriptedProvider, says
from tests.harness import Conversation, Stage, activate, does, op, plan, pop, push

ELEVEN = (
    "id, session_id, parent_id, goal, status, result, depth, created_at, completed_at, valid_from, valid_to"
)  # fmt: skip
STATUSES = {
    "planned": "active",
    "in_progress": "active",
    "completed": "complete",
    "failed": "blocked",
    "blocked": "blocked",
    "invalidated": "blocked",
}


def asked(stage: Stage, query: str) -> list[dict[str, Any]]:
    """What somebody sees who opens the file with SQLite alone, once it is settled."""
    _ = stage.proxies[0].conversations
    with closing(sqlite3.connect(str(stage.proxies[0].config.store_path))) as reading:
        reading.row_factory = sqlite3.Row
        return [dict(row) for row in reading.execute(query)]


def frames(stage: Stage) -> dict[str, dict[str, Any]]:
    return {frame["sessionID"]: frame for frame in stage.proxies[0].frames().values()}


def depth(frame: dict[str, Any], known: dict[str, dict[str, Any]]) -> int:
    return 1 + depth(known[frame["parentSessionID"]], known) if "parentSessionID" in frame else 0


def holds_the_frames(stage: Stage) -> None:
    """Each frame is a row that says what the frame says, and nothing stands in it that does not apply."""
    known, conversation = frames(stage), stage.proxies[0].conversations[0]["id"]
    rows = {row["id"]: row for row in asked(stage, f"SELECT {ELEVEN} FROM tasks")}
    assert rows.keys() == known.keys()
    for identifier, frame in known.items():
        ended = frame["status"] in ("completed", "failed")
        assert rows[identifier] == {
            "id": identifier,
            "session_id": conversation,
            "parent_id": frame.get("parentSessionID"),
            "goal": frame["title"],
            "status": STATUSES[frame["status"]],
            "result": frame.get("results"),
            "depth": depth(frame, known),
            "created_at": frame["createdAt"],
            "completed_at": frame["updatedAt"] if ended else None,
            "valid_from": frame["createdAt"],
            "valid_to": frame.get("invalidatedAt"),
        }


@pytest.fixture
def worked(provider: ScriptedProvider, chat: Conversation) -> Conversation:
    """A plan of four, of which one is done, one failed, one given up and one under way."""
    provider.will(does(plan("Model", "View", "Tests", "Docs")), says("planned"))
    chat.says("build it")
    known = chat.proxy.frames()
    for title, status in (("Model", "completed"), ("View", "failed")):
        provider.will(
            does(activate(known[title]["sessionID"])),
            does(pop(f"{title} it is", status)),
            says("ok"),
        )
        chat.says(f"go on with {title}")
    gone = op("invalidate", frameID=known["Docs"]["sessionID"], reason="nobody reads them")
    provider.will(
        does(gone),
        does(activate(known["Tests"]["sessionID"])),
        does(push("Fixtures")),
        says("ok"),
    )
    chat.says("and now the tests")
    return chat


@pytest.mark.one_process("it looks into SQLite's file, or damages it")
@pytest.mark.rows("S2-39", "C6")
def test_every_frame_is_a_task_that_others_can_read_by_sql(stage: Stage, worked: Conversation) -> None:
    """S2-39: the eleven columns, in three statuses (C6)."""
    holds_the_frames(stage)

    told = {row["goal"]: row["status"] for row in asked(stage, "SELECT goal, status FROM tasks")}
    assert told == {
        "build it": "active", "Model": "complete", "View": "blocked", "Tests": "active", "Docs": "blocked",
        "Fixtures": "active",
    }  # fmt: skip
    assert [row["depth"] for row in asked(stage, "SELECT depth FROM tasks WHERE goal = 'Fixtures'")] == [2]
    assert worked.proxy.statuses()["Docs"] == "invalidated"


@pytest.mark.one_process("it looks into SQLite's file, or damages it")
@pytest.mark.rows("S2-40")
@pytest.mark.spoken_in("chat", reason="what the database does with a question")
@pytest.mark.asked("plain")
def test_children_and_open_tasks_are_found_by_an_index(stage: Stage, worked: Conversation) -> None:
    """S2-40: on parent_id, and on (session_id, status)."""
    assert worked.proxy.conversations

    def way(condition: str) -> str:
        return " ".join(row["detail"] for row in asked(stage, f"EXPLAIN QUERY PLAN SELECT * FROM tasks {condition}"))

    assert "USING INDEX tasks_by_parent (parent_id=?)" in way("WHERE parent_id = 'f'")
    assert "USING INDEX tasks_by_status (session_id=? AND status=?)" in way("WHERE session_id = 'c' AND status = 'x'")
    columns = [row["name"] for row in asked(stage, "SELECT name FROM pragma_table_info('tasks')")]
    assert ", ".join(columns) == ELEVEN


@pytest.mark.one_process("it looks into SQLite's file, or damages it")
@pytest.mark.rows("S2-39")
def test_the_tasks_are_those_of_the_path_that_grew_last(
    stage: Stage, provider: ScriptedProvider, worked: Conversation
) -> None:
    """A user who goes back to an earlier message finds the work as it was then, and so does SQL; back on the first
    path, after a restart too, it is as that one left it."""
    before = asked(stage, f"SELECT {ELEVEN} FROM tasks")
    branch = worked.branch(2)
    provider.will(says("from here"))
    branch.says("do it otherwise")

    told = {row["goal"]: (row["status"], row["valid_to"]) for row in asked(stage, "SELECT * FROM tasks")}
    assert told["Model"] == told["View"] == told["Docs"] == ("active", None)
    assert told["Fixtures"] == ("active", None), "it stands on the other path alone, and stays as it was there"

    worked.proxy.restart()
    provider.will(says("on it"))
    worked.says("what is open?")
    assert asked(stage, f"SELECT {ELEVEN} FROM tasks") == before
    holds_the_frames(stage)


@pytest.mark.one_process("it looks into SQLite's file, or damages it")
@pytest.mark.rows("S2-39")
@pytest.mark.spoken_in("chat", reason="about what is deleted")
@pytest.mark.asked("plain")
def test_a_forgotten_conversation_leaves_no_task(stage: Stage, worked: Conversation) -> None:
    worked.proxy.manage("DELETE", f"/stack/conversations/{worked.proxy.conversations[0]['id']}")

    assert asked(stage, "SELECT * FROM tasks") == []
    stage.looks_into_store = False  # it is gone
