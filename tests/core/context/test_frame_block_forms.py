"""The other forms of the block: nested in one tree, and what a model with a small window needs to know.

What they must say stands in `golden/`, a file for each form.
"""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.context.frame_block_forms import BlockFormat, block_of
from proxy.core.context.minimal_frame_block import (
    MINIMAL_BLOCK_CHARACTERS,
    MINIMAL_BLOCK_TOKENS,
    RecentWork,
    render_minimal,
)
from proxy.core.context.nested_frame_block import render_nested
from proxy.core.context.write_frame_block import render_flat
from proxy.core.frames.events import ArtifactAdded, FrameEvent, FramePlanned, RootStarted
from proxy.core.frames.path_state import PathState
from proxy.core.frames.tree import Tree
from proxy.core.text import estimate_tokens, remove_illegal_xml
from proxy.core.tools.base import FrameBlockBudgets
from tests.core.context.test_write_frame_block import ANYTHING, FORGED, deep
from tests.core.forest import MINUTE, NONCE, count, grown, in_the_shop, popped, pushed, rooted

HOUR = 60 * MINUTE
GOLDEN = Path(__file__).parent / "golden"
SESSION = "c0ffee0123456789"
NAMES = {"stack-context", "title", "success-criteria", "child", "results", "artifacts"}


def shop() -> Tree:
    """A goal, a task that is finished, one under way in its third step, and two planned behind that."""
    return grown(
        *in_the_shop(),
        FramePlanned("frefund", "fpay", "Refund", "Refunds work."),
        FramePlanned("freport", "fpay", "Report", "Reports work."),
    )


def nested(tree: Tree, frame: str = "", total: int = 4_000, ancestors: int = 1_500) -> str:
    return render_nested(
        tree,
        frame or tree.active,
        nonce=NONCE,
        now=HOUR,
        budgets=FrameBlockBudgets(total=total, ancestors=ancestors),
        count=count,
        session=SESSION,
    )


def minimal(tree: Tree, frame: str = "", recent: RecentWork | None = None, budget: int = 4_000) -> str:
    given = recent or RecentWork()
    return render_minimal(tree, frame or tree.active, given, nonce=NONCE, budget=budget, count=count, session=SESSION)


def parsed(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(text.encode())


# -------------------------------------------------------------------------------------------------------------- nested
@pytest.mark.rows("S0-24", "C3")
def test_the_nested_form_is_one_tree_of_these_names() -> None:
    """S0-24: golden."""
    text = nested(shop())

    assert text + "\n" == (GOLDEN / "nested.xml").read_text()
    assert {element.tag for element in parsed(text).iter()} <= NAMES


@pytest.mark.rows("S0-24")
@pytest.mark.parametrize("total", [4_000, 2_000, 1_000, 500, 300, 200])
def test_the_nested_form_fits_its_total_and_keeps_the_goal(total: int) -> None:
    """S1-48, S0-21, S2-32: as the flat one does."""
    text = nested(deep(6, finished=5, text="The tokens of src/auth/token.py are refreshed in time. " * 20), total=total)

    assert count(text) <= total
    assert parsed(text).findtext("title") == "Build the shop"


@pytest.mark.rows("S0-24")
def test_what_was_finished_beside_a_parent_that_is_not_shown_stands_above_it() -> None:
    events: list[FrameEvent] = [rooted()]
    for level in range(12):
        above = f"path{level - 1}" if level else "froot"
        events += [pushed(f"done{level}", above, title="same", criteria="same"), popped(f"done{level}", "same")]
        events.append(pushed(f"path{level}", above, criteria="same " * 60))
    text = parsed(nested(grown(*events), ancestors=300))
    shown = {child.get("id", "") for child in text.iter("child")}
    hidden = [level for level in range(12) if f"path{level}" not in shown]

    assert hidden
    assert any(f"done{level + 1}" in shown for level in hidden)


@pytest.mark.rows("S0-24", "C20")
@pytest.mark.parametrize("below", [(), (pushed("fdraft", "fnews", title="Draft"),)])
def test_a_root_that_ended_stands_in_the_next_one_and_says_that_it_is_one(below: tuple[FrameEvent, ...]) -> None:
    text = parsed(nested(grown(rooted(), popped("froot", "It sells."), RootStarted("fnews", "News", "told"), *below)))

    ended, *others = text.iterfind("child")
    assert text.findtext("title") == "News"
    assert (ended.findtext("title"), ended.get("status"), ended.findtext("results")) == (
        "Build the shop",
        "completed",
        "It sells.",
    )
    assert ended.get("root") == "true"
    assert [child.get("root") for child in others] == [None] * len(below)


@pytest.mark.rows("S0-48")
def test_what_is_planned_stands_with_its_criteria_and_the_current_frame_is_marked() -> None:
    text = nested(
        grown(
            rooted(),
            pushed("fb", "froot", title="Business", criteria="business done"),
            FramePlanned("fc", "froot", "Close", "all closed"),
            FramePlanned("fd", "froot", "Deliver", "all delivered"),
            FramePlanned("fb1", "fb", "One", "one done"),
            FramePlanned("fb2", "fb", "Two", "two done"),
        )
    )
    tree = parsed(text)

    [current] = (child for child in tree.iterfind("child") if child.get("id") == "fb")
    planned = [(child.findtext("title"), child.findtext("success-criteria")) for child in current.iterfind("child")]
    beside = [(child.findtext("title"), child.findtext("success-criteria")) for child in tree.iterfind("child")]
    assert planned == [("One", "one done"), ("Two", "two done")]
    assert beside == [("Business", "business done"), ("Close", "all closed"), ("Deliver", "all delivered")]
    assert re.search(r'<child id="fb" status="in_progress">\s*<!-- the current frame -->', text)
    assert text.count("<!--") == 1


@pytest.mark.rows("S0-48")
@pytest.mark.parametrize("current", [0, 40, 120, 400])
def test_titles_of_what_is_planned_have_room_before_criteria(current: int) -> None:
    events = [FramePlanned(f"f{n}", "froot", f"Step {n}", "it is done well " * 10) for n in range(12)]
    text = render_nested(
        grown(rooted(), *events),
        "froot",
        nonce=NONCE,
        now=HOUR,
        budgets=FrameBlockBudgets(current=current),
        count=count,
    )
    rows = list(parsed(text).iterfind("child"))
    told = [row.find("success-criteria") is not None for row in rows]

    assert told == sorted(told, reverse=True)
    assert len(rows) == 12 or not any(told)


def test_the_nested_root_names_what_is_planned_under_it() -> None:
    text = parsed(nested(grown(rooted(), FramePlanned("fa", "froot", "A", "c"), FramePlanned("fb", "froot", "B", "c"))))

    assert [child.get("status") for child in text.iterfind("child")] == ["planned", "planned"]


# ------------------------------------------------------------------------------------------------------------- minimal
@pytest.mark.rows("S3-02", "S3-04", "S3-07", "S3-08", "C2b")
def test_the_minimal_view_tells_goal_task_subtask_and_the_next_one_alone() -> None:
    """S3-02, S3-04, S3-07: golden; nothing of what is finished, later or elsewhere."""
    recent = RecentWork(
        [("tests", False), ("lint", True), ("src/bank.py", True)], ["bash → error: 1 failed", "edit → ok"]
    )
    text = minimal(shop(), recent=recent)

    assert text + "\n" == (GOLDEN / "minimal.xml").read_text()
    assert not {"Auth", "Card", "No sandbox key.", "Report"} & set(parsed(text).itertext())


@pytest.mark.rows("S3-07", "C2b")
def test_the_flat_form_tells_what_the_minimal_view_leaves_out() -> None:
    flat = render_flat(shop(), "fbank", nonce=NONCE, now=HOUR, budgets=FrameBlockBudgets(), count=count)

    assert "JWT in src/auth.py." in flat
    assert "JWT in src/auth.py." not in minimal(shop())


@pytest.mark.rows("S3-08")
@pytest.mark.parametrize("length", [10, 1_000, 100_000])
def test_a_minimal_view_is_at_most_two_thousand_characters_and_says_where_it_was_cut(length: int) -> None:
    """S3-08: and 500 tokens, however long everything is."""
    text = "a word & " * (length // 9)
    events: list[FrameEvent] = [rooted(text, text), pushed("fa", title=text, criteria=text)]
    tree = grown(*events, pushed("fb", "fa", title=text, criteria=text), FramePlanned("fc", "fa", text, text))
    told = minimal(tree, recent=RecentWork([(text, True)] * 50, [text] * 50))

    assert len(told) <= MINIMAL_BLOCK_CHARACTERS
    assert count(told) <= MINIMAL_BLOCK_TOKENS
    assert ("...</success-criteria>" in told) == (length > 100)


@pytest.mark.rows("S3-08")
def test_a_minimal_view_is_short_as_a_rule() -> None:
    assert 300 < len(minimal(shop())) < 800


def test_a_deep_path_shows_the_two_frames_that_matter() -> None:
    """The frame it is in, and the one above."""
    text = parsed(minimal(deep(5)))

    assert [(e.tag, e.get("id")) for e in text] == [("goal", "froot"), ("task", "path3"), ("subtask", "path4")]


def test_a_goal_with_a_plan_names_the_first_step() -> None:
    text = parsed(
        minimal(grown(rooted(), FramePlanned("fa", "froot", "A", "c"), FramePlanned("fb", "froot", "B", "c")))
    )

    assert [(e.tag, e.get("id")) for e in text] == [("goal", "froot"), ("next-subtask", "fa")]


# ------------------------------------------------------------------------------------------------------------ all forms
@pytest.mark.rows("S1-156")
@pytest.mark.parametrize("form", [BlockFormat(nested=True), BlockFormat(minimal=True), BlockFormat(shows_budgets=True)])
@pytest.mark.parametrize("forged", FORGED)
def test_no_text_ends_an_element_in_any_form(form: BlockFormat, forged: str) -> None:
    """S1-156, T4."""
    tree = grown(
        rooted(forged, forged),
        pushed("fa", title=forged, criteria=forged),
        ArtifactAdded("fa", forged),
        popped("fa", forged),
        pushed("fb", title=forged, criteria=forged),
        FramePlanned("fc", "fb", forged, forged),
    )
    text = block_of(
        form, PathState(tree=tree), tree, "fb", nonce=NONCE, now=HOUR, budgets=FrameBlockBudgets(), count=count
    )
    titles = {remove_illegal_xml(" ".join(remove_illegal_xml(forged).split())), None}

    assert {element.findtext("title") for element in parsed(text).iter()} <= titles


@pytest.mark.rows("S0-25")
@settings(max_examples=60)
@given(
    ANYTHING, ANYTHING, st.integers(1, 1_500), st.sampled_from([BlockFormat(nested=True), BlockFormat(minimal=True)])
)
def test_every_form_is_well_formed_for_every_text_and_budget(
    title: str, text: str, total: int, form: BlockFormat
) -> None:
    """S0-25."""
    tree = grown(rooted(title, text), pushed("fa", title=title, criteria=text), popped("fa", text * 20), pushed("fb"))

    told = block_of(
        form,
        PathState(tree=tree),
        tree,
        "fb",
        nonce=title,
        now=HOUR,
        budgets=FrameBlockBudgets(total=total),
        count=estimate_tokens,
        session=text,
    )

    assert parsed(told).tag == "stack-context"


@pytest.mark.rows("S1-151")
def test_figures_tell_the_budgets_and_what_they_left_out() -> None:
    """S1-151: only where they are asked for."""
    tree = deep(6, finished=5, text="word " * 400)
    told = parsed(
        block_of(
            BlockFormat(shows_budgets=True),
            PathState(tree=tree),
            tree,
            tree.active,
            nonce=NONCE,
            now=HOUR,
            budgets=FrameBlockBudgets(),
            count=count,
        )
    )
    ancestors, siblings = told.find("ancestors"), told.find("completed-siblings")
    assert ancestors is not None
    assert siblings is not None

    assert [(e.tag, e.attrib) for e in told.iterfind("metadata/*")] == [
        ("budget", {"total": "4000", "ancestors": "1500", "siblings": "1500", "current": "800"}),
        ("truncation", {"ancestors-omitted": ancestors.get("omitted"), "siblings-filtered": siblings.get("filtered")}),
    ]


@pytest.mark.rows("S1-146", "S1-147")
def test_two_siblings_in_progress_are_counted_and_warned_of() -> None:
    """S1-146, S1-147: what a subagent does beside it is no disorder."""
    tree = grown(rooted(), pushed("fa", title="First"), pushed("fb"), FramePlanned("fc", "froot", "Third", "c"))
    told = parsed(render_flat(tree, "fb", nonce=NONCE, now=HOUR, budgets=FrameBlockBudgets(), count=count))

    status = told.find("sibling-status")
    assert status is not None
    assert status.attrib == {"completed": "0", "in-progress": "2", "pending": "1"}
    assert "fa (First)" in (told.findtext("warning") or "")
