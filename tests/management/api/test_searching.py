"""`GET /stack/search`: whose finished frames one finds, and what is refused (S2-38)."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from tests.management.api.conftest import Served

pytestmark = pytest.mark.rows("S2-38")


async def test_nobody_finds_frames_of_somebody_else(served: Served) -> None:
    """Both tenants did the same work; an operator finds both."""

    async def found(key: str) -> set[str]:
        answer = await served.ask("/stack/search?q=decimal+rounding", key)
        return {row["frame"] for row in answer.json["frames"]}

    assert await found("ours") == {served.ours.child}
    assert await found("theirs") == {served.theirs.child}
    assert await found("admin") == await found("token") == {served.ours.child, served.theirs.child}
    assert (await served.ask("/stack/search?q=decimal", None)).status == 401


async def test_a_found_frame_is_told_with_the_line_that_speaks_of_it(served: Served) -> None:
    told = (await served.ask("/stack/search?q=Step%20decimal&limit=1")).json

    (row,) = told["frames"]
    assert told["all_words"] is True
    assert (row["frame"], row["conversation"]) == (served.ours.child, served.ours.conversation)
    assert (row["title"], row["status"]) == ("Fix rounding", "completed")
    assert row["excerpt"] == "Decimal until the last step"
    close = (await served.ask("/stack/search?q=decimal%20xylophone")).json
    assert (len(close["frames"]), close["all_words"]) == (1, False)


async def test_what_is_found_no_more_once_it_is_forgotten(served: Served) -> None:
    await served.ask(f"/stack/conversations/{served.ours.conversation}", method="DELETE")

    assert (await served.ask("/stack/search?q=decimal")).json == {
        "frames": [],
        "all_words": False,
        "meaning": "off",
    }
    assert len((await served.ask("/stack/search?q=decimal", "theirs")).json["frames"]) == 1


@pytest.mark.parametrize(
    "query", ["", "q=", "limit=5", "q=a&limit=0", "q=a&limit=101", "q=a&limit=many", "q=" + "w+" * 1_001]
)
async def test_what_is_no_search_is_refused_with_a_sentence(served: Served, query: str) -> None:
    answer = await served.ask(f"/stack/search?{query}")

    assert answer.status == 400
    assert "not as described" in answer.json["error"]["message"]


@pytest.mark.parametrize("query", ['"', "NEAR(", "*", "a\0b", "title:", "' OR 1=1 --", "\\", "%", "{}"])
async def test_no_query_is_a_language(served: Served, query: str) -> None:
    answer = await served.ask(f"/stack/search?q={quote(query)}")

    assert answer.status == 200
    assert answer.json["frames"] == []
