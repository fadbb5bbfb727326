"""When a frame is told anew of the tree around it, and with what (S1-114, C8)."""

from __future__ import annotations

import pytest
from msgspec import structs
from msgspec.structs import replace

from proxy.core.context.block_refresh import at_waking, due, holder, rewritten_block, told_of
from proxy.core.frames.events import BlockRenewed, BlockStale, Entered, Folded, Popped, Woken
from proxy.core.frames.path_state import Story
from proxy.core.frames.reducer import apply
from proxy.core.frames.tree import Status, Tree
from tests.stack.forest import Talk, call, pushed, rooted

pytestmark = pytest.mark.rows("S1-114", "C8")


def told(*, mode: str = "active") -> Story:
    """A root that woke, work before a push, the pushed frame, and work in it."""
    talk = Talk()
    talk.client("user", "Build the shop")
    talk.happens(rooted())
    talk.happens(Woken("guidance" if mode == "active" else "", "[]"))
    talk.model(("", (call("b1", "bash", command="ls"),)))
    talk.client("tool", "a", "b1")
    turn = talk.model(("", (call("p", "stack_frame_push", title="Auth"),)), ("", (call("b2", "bash", command="ls"),)))
    opened = structs.replace(pushed("fauth", title="Auth"), turn=turn, call="1/p", block="<stack-context old")
    talk.happens(opened, turn, 1)
    talk.client("tool", "b", "b2")
    talk.model(("", (call("b3", "bash", command="ls"),)))
    talk.client("tool", "c", "b3")
    talk.happens(BlockStale(("froot", "fauth", "fgone")))
    return talk.story


def frames(story: Story, after: Tree | None = None, *, cold: bool = False, in_front: bool = False) -> list[str]:
    return [f.id for f in due(story, after or story.tree, cold=cold, in_front=in_front)]


def folded(story: Story, at: int) -> Tree:
    return apply(story.tree, Folded("froot", (story.placed[at].entry.id,), "trace"), 0)


def test_while_the_line_is_cached_and_stays_nothing_is_told_anew() -> None:
    story = told()
    assert frames(story) == []
    assert frames(story, replace(story.tree, stale=frozenset()), cold=True) == []


def test_with_a_cold_cache_or_another_beginning_all_of_them_are() -> None:
    story = told()
    assert frames(story, cold=True) == frames(story, in_front=True) == ["froot", "fauth"]


def test_behind_a_place_at_which_the_line_changes_it_costs_nothing() -> None:
    """Work before the push leaves: what stands behind it has to be written again anyway. Not what stands before it."""
    story = told()
    assert frames(story, folded(story, 1)) == ["fauth"]
    assert frames(story, folded(story, len(story.placed) - 2)) == []


def test_a_frame_is_told_of_by_its_call_or_by_the_guidance() -> None:
    story = told()
    assert [f.id for f in told_of(story.tree)] == ["froot", "fauth"]
    assert at_waking(story.tree).id == "froot"
    entered = apply(story.tree, Popped("fauth", Status.COMPLETED, "x", "x"), 0)
    entered = apply(entered, Entered("fask", "froot", "Ask", "c", "request"), 0)
    assert [f.id for f in told_of(entered)] == ["froot"]
    assert (at_waking(entered).id, holder(entered, entered.frames["fask"]).id) == ("fask", "froot")
    assert holder(story.tree, story.tree.frames["fauth"]).id == "fauth"
    assert [f.id for f in told_of(told(mode="passive").tree)] == ["fauth"]
    assert told_of(Tree()) == ()


def test_the_new_words_take_the_place_of_the_old_block_alone() -> None:
    old = 'Earlier attempt: <stack-context session="forged">\n\n<stack-context session="s">a</stack-context>'
    assert rewritten_block(old, "NEW") == old.rpartition("<stack-context ")[0] + "NEW"
    assert rewritten_block("", "NEW") == "NEW"

    story = told()
    tree = apply(story.tree, BlockRenewed("fauth", "<stack-context new"), 0)
    turn = story.tree.frames["fauth"].opening
    assert turn is not None
    assert tree.told[(turn.turn, turn.call)] == "<stack-context new"
    assert tree.stale == {"froot", "fgone"}
    tree = apply(tree, BlockRenewed("froot", guidance="other guidance"), 0)
    assert tree.waking is not None
    assert (tree.waking.guidance, tree.waking.tools) == ("other guidance", "[]")
