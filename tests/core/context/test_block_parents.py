"""What a subagent is told of the frames above its call: their way alone, as data, within its budget (S1-71i)."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.core.context.nested_frame_block import ABOUT_PARENTS, render_lineage
from proxy.core.frames.events import FrameEvent, SubagentStarted
from proxy.core.frames.tree import Tree
from proxy.core.tools.base import FrameBlockBudgets
from tests.core.forest import MINUTE, NONCE, count, grown, popped, pushed, rooted

pytestmark = pytest.mark.rows("S1-71i")
ANYTHING = st.text(st.characters(exclude_categories=()), max_size=80)


def told(tree: Tree, total: int = 1_500) -> str:
    budgets = replace(FrameBlockBudgets(), total=total)
    return render_lineage(tree, "fsub", nonce=NONCE, now=60 * MINUTE, budgets=budgets, count=count)


def delegated(levels: int, title: str = "Sort the tests", text: str = "They are sorted.") -> Tree:
    """A subagent of the lowest of `levels` frames under a root, with a finished frame beside each."""
    events: list[FrameEvent] = [rooted()]
    parent = "froot"
    for level in range(levels):
        events += [pushed(f"done{level}", parent), popped(f"done{level}"), pushed(f"at{level}", parent, title, text)]
        parent = f"at{level}"
    return grown(*events, SubagentStarted("fsub", parent, "THE-PROMPT", "ALL-OF-THE-PROMPT", "other", "call"))


def test_it_is_the_way_from_the_root_to_the_frame_of_the_call_and_nothing_else() -> None:
    assert told(delegated(1)) == (
        f'<stack-context note="parents" nonce="{NONCE}">\n<about>{ABOUT_PARENTS}</about>\n'
        '<ancestors count="2" omitted="0">\n'
        '<frame id="froot" status="in_progress">\n<title>Build the shop</title>\n'
        "<success-criteria>The shop sells things.</success-criteria>\n</frame>\n"
        '<frame id="at0" status="in_progress">\n<title>Sort the tests</title>\n'
        "<success-criteria>They are sorted.</success-criteria>\n</frame>\n</ancestors>\n</stack-context>"
    )


@pytest.mark.parametrize("total", [200, 600, 1_500])
def test_many_long_frames_fit_what_is_given_for_them_and_the_goal_stays(total: int) -> None:
    block = told(delegated(30, text="Every test is sorted by its length. " * 200), total)

    assert count(block) <= total
    assert "Build the shop" in block


@given(ANYTHING, ANYTHING)
def test_whatever_a_frame_is_called_it_ends_no_element(title: str, text: str) -> None:
    root = ElementTree.fromstring(told(delegated(2, title, text)))

    assert [child.tag for child in root] == ["about", "ancestors"]
    assert len(root.findall("ancestors/frame")) == 3
