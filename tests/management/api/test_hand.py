"""Driving the tree by the API: each route with what is right, wrong, somebody else's, and hostile (S0-36)."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter

from callstack_proxy.management.operations.frames import FrameCommandView
from tests.management.api.conftest import Served

pytestmark = pytest.mark.rows("S0-36")


async def sends(
    served: Served, path: str, body: Any, key: str | None = "ours", method: str = "POST"
) -> tuple[int, Any]:
    answer = await served.ask(f"/stack{path}", key, method, json=body)
    return answer.status, answer.json


def frames(served: Served) -> str:
    return f"/conversations/{served.ours.conversation}/frames"


async def states(served: Served) -> dict[str, Any]:
    """Frames by title."""
    found = (await served.ask(f"/stack{frames(served)}")).json["frames"]
    return {frame["title"]: frame for frame in found}


@pytest.mark.rows("S1-32", "S1-33", "S0-45")
async def test_a_frame_is_begun_under_the_active_one(served: Served) -> None:
    """S1-32, S1-33: it is on disk at once, and whoever keeps the conversation in memory is told."""
    status, told = await sends(served, frames(served), {"title": "Lexer", "criteria": "tokens come out"})

    assert status == 200
    assert TypeAdapter(FrameCommandView).validate_python(told, strict=True)
    (frame,) = told["frames"]
    assert (frame["title"], frame["successCriteria"], frame["status"]) == ("Lexer", "tokens come out", "in_progress")
    assert frame["parentSessionID"] == served.ours.root
    assert told["activeFrameID"] == frame["sessionID"]
    assert "Begun" in told["told"]
    assert served.changed == [("key-ours", served.ours.conversation)]
    assert (await served.ask(f"/stack/frames/{frame['sessionID']}")).json["origin"] == "human"
    assert "human" in (await served.ask(f"/stack/conversations/{served.ours.conversation}/tree")).body.decode()


@pytest.mark.rows("S1-37", "S1-38")
async def test_frames_are_planned_all_or_none(served: Served) -> None:
    """A bad child spoils the plan; what is planned changes nothing of what is active."""
    children = [{"title": "A"}, {"title": "B", "criteria": "b works", "children": [{"title": "C"}]}]
    before = await states(served)

    assert (await sends(served, frames(served), {"plan": True, "children": [*children, {"title": " "}]}))[0] == 400
    assert await states(served) == before
    status, told = await sends(served, frames(served), {"plan": True, "children": children})

    after = await states(served)
    assert status == 200
    assert [frame["status"] for frame in told["frames"]] == ["planned"] * 3
    assert told["activeFrameID"] == served.ours.root
    assert after["C"]["parentSessionID"] == after["B"]["sessionID"]
    assert after["A"]["successCriteria"] == "A"
    assert after["B"]["sessionID"] in after["Make the suite green"]["plannedChildren"]


@pytest.mark.rows("S1-31", "S1-32", "S1-39")
async def test_a_frame_is_activated_and_popped_and_no_longer_can_be(served: Served) -> None:
    status, told = await sends(served, f"/frames/{served.ours.planned}/activate", None)
    assert (status, told["activeFrameID"]) == (200, served.ours.planned)

    status, told = await sends(served, f"/frames/{served.ours.planned}/pop", {"status": "failed", "results": "no key"})
    assert (status, told["activeFrameID"]) == (200, served.ours.root)
    assert (told["frames"][0]["status"], told["frames"][0]["results"]) == ("failed", "no key")

    status, told = await sends(served, f"/frames/{served.ours.planned}/pop", {})
    assert status == 409
    assert "cannot be popped again" in told["error"]["message"]
    status, told = await sends(served, f"/frames/{served.ours.child}/activate", None)
    assert status == 409
    assert "completed" in told["error"]["message"]


@pytest.mark.rows("S0-39")
async def test_a_failed_frame_is_activated_as_another_attempt(served: Served) -> None:
    await sends(served, f"/frames/{served.ours.planned}/activate", None)
    await sends(served, f"/frames/{served.ours.planned}/pop", {"status": "failed", "results": "no key"})

    status, told = await sends(served, f"/frames/{served.ours.planned}/activate", None)

    (frame,) = told["frames"]
    assert (status, told["activeFrameID"]) == (200, frame["sessionID"])
    assert "no key" in told["told"]
    assert (await served.ask(f"/stack/frames/{frame['sessionID']}")).json["retryOf"] == served.ours.planned


@pytest.mark.rows("S1-77", "S1-80")
async def test_invalidating_takes_what_is_planned_below_along(served: Served) -> None:
    """S1-77, S1-80."""
    below = {"plan": True, "parent": served.ours.planned, "children": [{"title": "Deeper"}]}
    await sends(served, frames(served), below)

    status, told = await sends(served, f"/frames/{served.ours.planned}/invalidate", {"reason": "not needed"})

    assert status == 200
    after = await states(served)
    assert after["Deeper"]["status"] == "invalidated"
    assert after["Deeper"]["invalidationReason"] == "Parent frame invalidated: not needed"
    assert (await sends(served, f"/frames/{served.ours.planned}/invalidate", {"reason": "again"}))[0] == 409
    assert (await sends(served, f"/frames/{served.ours.root}/invalidate", {"reason": "all"}))[0] == 409
    assert told["told"]


async def test_words_change_only_while_a_frame_is_planned(served: Served) -> None:
    path = f"/frames/{served.ours.planned}"

    status, told = await sends(served, path, {"title": "Other"}, method="PATCH")
    assert (status, told["frames"][0]["title"]) == (200, "Other")
    assert (await sends(served, path, {}, method="PATCH"))[0] == 409
    await sends(served, f"{path}/activate", None)
    status, told = await sends(served, path, {"title": "Third"}, method="PATCH")

    assert status == 409
    assert "only while a frame is planned" in told["error"]["message"]


ROUTES = [
    ("POST", "/conversations/{conversation}/frames", {"title": "A"}),
    ("POST", "/frames/{frame}/activate", None),
    ("POST", "/frames/{frame}/pop", {}),
    ("POST", "/frames/{frame}/invalidate", {"reason": "r"}),
    ("PATCH", "/frames/{frame}", {"title": "A"}),
]


@pytest.mark.parametrize(("method", "path", "body"), ROUTES, ids=[path for _, path, _ in ROUTES])
async def test_nobody_touches_what_is_not_theirs(served: Served, method: str, path: str, body: Any) -> None:
    """What belongs to another tenant is answered like what never existed; an operator may."""
    mine = path.format(conversation=served.ours.conversation, frame=served.ours.planned)
    nobody = path.format(conversation="c0ffee", frame="fnone")

    assert (await sends(served, mine, body, None, method))[0] == 401
    theirs, unknown = (
        await sends(served, mine, body, "theirs", method),
        await sends(served, nobody, body, "theirs", method),
    )
    assert theirs[0] == unknown[0] == 404
    assert theirs[1]["error"]["code"] == unknown[1]["error"]["code"] == "not_found"
    assert (await sends(served, mine, body, "admin", method))[0] == (409 if path.endswith("/pop") else 200)
    assert (await served.ask(f"/stack{frames(served)}?thread=none")).status == 404


WRONG = [
    {},
    {"title": ""},
    {"title": 7},
    {"title": "x" * 501},
    {"title": "A", "criteria": "x" * 20_001},
    {"title": "A", "surprise": 1},
    {"title": "A", "children": [{"title": "B"}]},
    {"plan": True},
    {"plan": "perhaps"},
    {"plan": True, "children": [{"title": "A"}] * 41},
    {"plan": True, "children": "A"},
    [],
    "A",
    None,
]


@pytest.mark.parametrize("body", WRONG, ids=range(len(WRONG)))
async def test_a_body_that_is_not_as_described_is_answered_with_what_is_wrong(served: Served, body: Any) -> None:
    before = await states(served)

    status, told = await sends(served, frames(served), body)

    assert status == 400
    assert told["error"]["message"]
    assert await states(served) == before


async def test_a_plan_that_is_too_large_or_too_deep_is_refused(served: Served) -> None:
    deep: dict[str, Any] = {"title": "A"}
    for _ in range(300):
        deep = {"title": "A", "children": [deep]}
    wide = [{"title": "A", "children": [{"title": "B"}] * 40}]

    assert (await sends(served, frames(served), {"plan": True, "children": [deep]}))[0] == 400
    status, told = await sends(served, frames(served), {"plan": True, "children": wide})
    assert (status, "40 at most" in told["error"]["message"]) == (409, True)


async def test_a_parent_that_is_not_there_or_not_active_is_told_so(served: Served) -> None:
    status, told = await sends(served, frames(served), {"title": "A", "parent": "nowhere"})
    assert status == 404
    assert "nowhere" in told["error"]["message"]

    status, told = await sends(served, frames(served), {"title": "A", "parent": served.ours.planned})
    assert status == 409
    assert "Plan it under" in told["error"]["message"]


async def test_hostile_words_are_kept_as_words(served: Served) -> None:
    title = "</stack-context>\u202e\u0007<script>"

    status, told = await sends(served, frames(served), {"title": title})

    assert status == 200
    assert told["frames"][0]["title"] == "</stack-context>\u202e<script>"
