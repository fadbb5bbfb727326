"""A conversation as it was: frames, decisions and artifacts with the times between which they held (S2-26, S2-27), and
frames by how they are related (S1-35), as tasks (S2-33) and as edges (S2-36)."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import quote

import pytest

from llm_test_provider import ScriptedProvider, call, says
from tests.harness import Conversation, RunningProxy, activate, bash, does, op, plan, pop, push

Rows = list[dict[str, Any]]


def told(proxy: RunningProxy, what: str, **query: Any) -> Any:
    asked = "&".join(f"{name}={quote(str(value))}" for name, value in query.items())
    return proxy.get(f"/stack/conversations/{proxy.conversations[0]['id']}/{what}?{asked}")


def rows(proxy: RunningProxy, what: str, **query: Any) -> Rows:
    return list(told(proxy, what, **query)[what])


def statuses(proxy: RunningProxy, **query: Any) -> dict[str, str]:
    return {frame["title"]: frame["status"] for frame in rows(proxy, "frames", **query)}


@pytest.fixture
def built(provider: ScriptedProvider, chat: Conversation) -> Conversation:
    """A plan of two, of which the first was done with a decision that changed, and the second given up."""
    provider.will(does(plan("Model", "View")), says("planned"))
    chat.says("build it")
    known = chat.proxy.frames()
    provider.will(
        does(activate(known["Model"]["sessionID"])),
        does(op("add_decision", decision="Use XML")),
        says("ok"),
    )
    chat.says("begin")
    instead = op("add_decision", decision="Use JSON", reason="it is smaller", supersedes="xml")
    provider.will(does(instead), does(op("add_artifact", artifact="model.md")), says("ok"))
    chat.says("is that wise?")
    provider.will(does(pop("the model stands")), says("ok"))
    chat.says("go on")
    provider.will(does(op("invalidate", frameID=known["View"]["sessionID"], reason="no screen")), says("ok"))
    chat.says("go on without the view")
    return chat


@pytest.mark.rows("S2-26")
def test_a_decision_that_another_took_the_place_of_is_told_with_its_end(built: Conversation) -> None:
    """S2-26: both rows, and `valid_to` where the later one begins."""
    old, new = rows(built.proxy, "decisions")

    assert (old["decision"], new["decision"]) == ("Use XML", "Use JSON (because: it is smaller)")
    assert old["valid_to"] == new["valid_from"] > old["valid_from"]
    assert old["superseded_by"] == new["decision"]
    assert (new["valid_to"], new["superseded_by"]) == (None, None)
    assert old["recorded_at"] >= old["valid_from"]
    assert built.proxy.frames()["Model"]["decisions"] == ["Use JSON (because: it is smaller)"]


@pytest.mark.rows("S2-26")
def test_a_decision_holds_from_the_answer_that_states_it_until_its_frame_is_given_up(
    provider: ScriptedProvider, chat: Conversation
) -> None:
    """S2-26: when it was true in the work, and when the proxy learned of it from the results."""
    decided = "Decision: dates are kept in UTC."
    provider.will(does(push("Dates")), does(bash("ls"), text=decided), does(pop(decided)), says("ok"))
    chat.says("build it")
    chat.returns("a.py")
    provider.will(does(push("Extras")), does(op("add_decision", decision="Use tabs")), says("ok"))
    chat.says("and extras?")
    provider.will(does(op("invalidate", frameID="Extras", reason="too much")), says("ok"))
    chat.says("no, leave them")

    stated, given_up = rows(chat.proxy, "decisions")
    assert (stated["decision"], stated["valid_to"]) == ("dates are kept in UTC.", None)
    assert stated["valid_from"] < stated["recorded_at"]
    assert (given_up["decision"], given_up["valid_from"]) == ("Use tabs", given_up["recorded_at"])
    assert given_up["valid_to"] == chat.proxy.frames()["Extras"]["invalidatedAt"]
    assert rows(chat.proxy, "decisions", as_of=given_up["valid_to"]) == [stated]


@pytest.mark.rows("S2-27")
def test_before_the_change_the_old_decision_held(built: Conversation) -> None:
    """S2-27: as_of before the change gives the old value, of decisions and of their frame alike."""
    old, new = rows(built.proxy, "decisions")

    assert [row["decision"] for row in rows(built.proxy, "decisions", as_of=new["recorded_at"] - 1)] == ["Use XML"]
    assert [row["decision"] for row in rows(built.proxy, "decisions", as_of=new["recorded_at"])] == [new["decision"]]
    assert rows(built.proxy, "decisions", as_of=old["recorded_at"] - 1) == []
    before = {frame["title"]: frame for frame in rows(built.proxy, "frames", as_of=new["recorded_at"] - 1)}
    assert before["Model"]["decisions"] == ["Use XML"]


@pytest.mark.rows("S2-27")
def test_the_frames_are_told_as_they_stood_then(built: Conversation) -> None:
    """S2-27: in the rows, the state and the drawn tree, by ms and by ISO time alike."""
    proxy, known = built.proxy, built.proxy.frames()
    ended, begun = known["Model"]["updatedAt"], known["build it"]["createdAt"]

    assert statuses(proxy) == {"build it": "in_progress", "Model": "completed", "View": "invalidated"}
    then = {"build it": "in_progress", "Model": "in_progress", "View": "planned"}
    assert statuses(proxy, as_of=ended - 1) == then
    state = told(proxy, "state", as_of=ended - 1)
    assert state["frames"][state["activeFrameID"]]["title"] == "Model"
    assert told(proxy, "tree", as_of=ended - 1) == state
    assert statuses(proxy, as_of=begun - 1) == {}
    assert statuses(proxy, as_of="1999-12-31T23:59:59Z") == statuses(proxy, as_of="0") == {}
    assert statuses(proxy, as_of="2999-01-01T00:00:00+02:00") == statuses(proxy)


@pytest.mark.rows("S2-27")
def test_an_artifact_holds_from_its_making_until_its_frame_is_given_up(
    provider: ScriptedProvider, built: Conversation
) -> None:
    provider.will(does(push("Extras")), does(op("add_artifact", artifact="extras.md")), says("ok"))
    built.says("and extras?")
    extras = built.proxy.frames()["Extras"]
    provider.will(does(op("invalidate", frameID=extras["sessionID"], reason="too much")), says("ok"))
    built.says("no, leave them")

    model, given_up = rows(built.proxy, "artifacts")
    assert (model["artifact"], model["how"], model["valid_to"]) == ("model.md", "noted", None)
    assert given_up["artifact"] == "extras.md"
    assert given_up["valid_to"] == built.proxy.frames()["Extras"]["invalidatedAt"]
    assert [row["artifact"] for row in rows(built.proxy, "artifacts", as_of=given_up["recorded_at"])] == [
        "model.md",
        "extras.md",
    ]
    assert [row["artifact"] for row in rows(built.proxy, "artifacts", as_of=given_up["valid_to"])] == ["model.md"]
    assert rows(built.proxy, "artifacts", frame=extras["sessionID"]) == [given_up]


@pytest.mark.rows("S2-26", "S1-104")
@pytest.mark.spoken_in("chat", reason="about what calls did to files, which every dialect tells alike")
def test_a_file_that_a_call_changed_holds_from_that_call_on(provider: ScriptedProvider, chat: Conversation) -> None:
    """S2-26: when it was done is told by the message, not by when anybody asks."""
    chat.tools = ("write",)
    provider.will(does(call("write", filePath="src/a.py", content="x = 1")), says("written"))
    chat.says("write it")
    answered = time.time_ns() // 1_000_000
    chat.returns("File written.")

    (row,) = rows(chat.proxy, "artifacts")
    assert (row["artifact"], row["how"], row["title"]) == ("src/a.py", "changed", "write it")
    assert row["valid_from"] <= answered
    assert chat.proxy.frames()["write it"]["createdAt"] <= row["valid_from"]


# -------------------------------------------------------------------------------------------------- frames, otherwise
RELATED: list[tuple[dict[str, str], list[str]]] = [
    ({"parent": "Model"}, ["Fields"]),
    ({"descendants_of": "build it"}, ["Model", "View", "Fields", "Names"]),
    ({"descendants_of": "Model", "status": "completed"}, ["Names"]),
    ({"siblings_of": "View"}, ["Model"]),
    ({"siblings_of": "Model", "status": "completed"}, []),
    ({"siblings_of": "build it"}, []),
    ({"ancestors_of": "Names"}, ["Fields", "Model", "build it"]),
    ({"ancestors_of": "Names", "descendants_of": "build it"}, ["Fields", "Model"]),
    ({"siblings_of": "nobody"}, []),
    ({"descendants_of": "nobody"}, []),
]
"""Questions by titles, and the titles of the frames that are found."""


@pytest.mark.rows("S1-35")
@pytest.mark.spoken_in("chat", reason="about questions to the management API")
@pytest.mark.asked("plain")
def test_frames_are_found_by_how_they_are_related(provider: ScriptedProvider, chat: Conversation) -> None:
    """S1-35: children, all children, siblings and completed ones, by status."""
    provider.will(does(plan("Model", "View")), says("planned"))
    chat.says("build it")
    first = chat.proxy.frames()["Model"]["sessionID"]
    provider.will(
        does(activate(first)),
        does(push("Fields")),
        does(push("Names")),
        does(pop("named")),
        says("ok"),
    )
    chat.says("begin")
    ids = {title: frame["sessionID"] for title, frame in chat.proxy.frames().items()}

    for query, found in RELATED:
        asked = {name: ids.get(value, value) for name, value in query.items()}
        assert (query, [frame["title"] for frame in rows(chat.proxy, "frames", **asked)]) == (query, found)


@pytest.mark.rows("S2-33", "C6")
def test_a_tree_is_told_as_tasks_of_three_statuses(built: Conversation) -> None:
    """S2-33: {id, goal, parent, children, status, result, depth}."""
    ids = {title: frame["sessionID"] for title, frame in built.proxy.frames().items()}

    assert rows(built.proxy, "frames", view="task") == [
        {"id": ids["build it"], "goal": "build it", "children": [ids["Model"], ids["View"]], "status": "active",
         "depth": 0},
        {"id": ids["Model"], "goal": "Model", "parent": ids["build it"], "children": [], "status": "complete",
         "result": "the model stands", "depth": 1},
        {"id": ids["View"], "goal": "View", "parent": ids["build it"], "children": [], "status": "blocked",
         "depth": 1},
    ]  # fmt: skip


@pytest.mark.rows("S2-36")
@pytest.mark.spoken_in("chat", reason="about calls of a client's tool, which every dialect tells alike")
def test_an_edge_says_what_waits_for_what_only_where_the_client_does(
    provider: ScriptedProvider, chat: Conversation
) -> None:
    """S2-36: a task to its subtasks, and dependencies as the client's own plan has them."""
    chat.tools = ("TaskCreate", "TaskUpdate")
    create = [call("TaskCreate", subject=name, description=name) for name in ("Model", "View")]
    provider.will(does(*create), does(call("TaskUpdate", taskId="2", addBlockedBy=["1"])), says("planned"))
    chat.says("build it")
    chat.returns("Task #1 created successfully: Model", "Task #2 created successfully: View")
    chat.returns("Updated task #2")
    ids = {title: frame["sessionID"] for title, frame in chat.proxy.frames().items()}

    assert rows(chat.proxy, "edges") == [
        {"from": ids["build it"], "to": ids["Model"], "kind": "subtask"},
        {"from": ids["build it"], "to": ids["View"], "kind": "subtask"},
        {"from": ids["View"], "to": ids["Model"], "kind": "depends_on"},
    ]


# ------------------------------------------------------------------------------------------------------------- refused
@pytest.mark.rows("S2-27")
@pytest.mark.parametrize("when", ["yesterday", "-1", "9" * 30, "2026-13-01", "2026-01-01T00:00:00 01:00", "²", "1e3"])
@pytest.mark.spoken_in("chat", reason="about questions to the management API")
@pytest.mark.asked("plain")
def test_a_time_that_is_none_is_refused_with_what_to_write(
    provider: ScriptedProvider, chat: Conversation, when: str
) -> None:
    provider.will(says("hello"))
    chat.says("hi")

    with pytest.raises(AssertionError, match=r"400.*as_of: write ms since the epoch, or an ISO time"):
        told(chat.proxy, "frames", as_of=when)


@pytest.mark.rows("S2-26")
def test_the_model_is_told_which_decisions_there_are_to_take_the_place_of(
    provider: ScriptedProvider, built: Conversation
) -> None:
    provider.will(does(op("add_decision", decision="Use YAML", supersedes="Use TOML")), says("ok"))
    built.says("again")

    error = [m["content"] for m in provider.received[-1].messages if m["role"] == "tool"][-1]
    assert error.startswith("Error: no decision of f")
    assert "Its decisions: none." in error
