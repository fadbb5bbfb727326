"""When a frame is told anew of the tree around it, and with what (S1-114, C8)."""

from __future__ import annotations

import pytest
from msgspec import structs
from msgspec.structs import replace

from proxy.core.context.refresh_frame_block import (
    block_holder,
    frames_with_block,
    refreshable_frames,
    replace_block,
    uncalled_frame,
)
from proxy.core.frames.events import BlockRenewed, BlockStale, FrameEntered, FrameFolded, FramePopped, ThreadWoken
from proxy.core.frames.path_state import PathState
from proxy.core.frames.reducer import reduce
from proxy.core.frames.tree import Status, Tree
from tests.core.forest import LedgerBuilder, call, pushed, rooted

pytestmark = pytest.mark.rows("S1-114", "C8")


def told(*, mode: str = "active") -> PathState:
    """A root that woke, work before a push, the pushed frame, and work in it."""
    talk = LedgerBuilder()
    talk.client("user", "Build the shop")
    talk.happens(rooted())
    talk.happens(ThreadWoken("guidance" if mode == "active" else "", "[]"))
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


def frames(
    path_state: PathState, after: Tree | None = None, *, cold: bool = False, in_front: bool = False
) -> list[str]:
    return [f.id for f in refreshable_frames(path_state, after or path_state.tree, cold=cold, in_front=in_front)]


def folded(path_state: PathState, at: int) -> Tree:
    return reduce(path_state.tree, FrameFolded("froot", (path_state.entries[at].entry.id,), "trace"), 0)


def test_while_the_line_is_cached_and_stays_nothing_is_told_anew() -> None:
    path_state = told()
    assert frames(path_state) == []
    assert frames(path_state, replace(path_state.tree, stale_blocks=frozenset()), cold=True) == []


def test_with_a_cold_cache_or_another_beginning_all_of_them_are() -> None:
    path_state = told()
    assert frames(path_state, cold=True) == frames(path_state, in_front=True) == ["froot", "fauth"]


def test_behind_a_place_at_which_the_line_changes_it_costs_nothing() -> None:
    """Work before the push leaves: what stands behind it has to be written again anyway. Not what stands before it."""
    path_state = told()
    assert frames(path_state, folded(path_state, 1)) == ["fauth"]
    assert frames(path_state, folded(path_state, len(path_state.entries) - 2)) == []


def test_a_frame_is_told_of_by_its_call_or_by_the_guidance() -> None:
    path_state = told()
    assert [f.id for f in frames_with_block(path_state.tree)] == ["froot", "fauth"]
    assert uncalled_frame(path_state.tree).id == "froot"
    entered = reduce(path_state.tree, FramePopped("fauth", Status.COMPLETED, "x", "x"), 0)
    entered = reduce(entered, FrameEntered("fask", "froot", "Ask", "c", "request"), 0)
    assert [f.id for f in frames_with_block(entered)] == ["froot"]
    assert (uncalled_frame(entered).id, block_holder(entered, entered.frames["fask"]).id) == ("fask", "froot")
    assert block_holder(path_state.tree, path_state.tree.frames["fauth"]).id == "fauth"
    assert [f.id for f in frames_with_block(told(mode="passive").tree)] == ["fauth"]
    assert frames_with_block(Tree()) == ()


def test_the_new_words_take_the_place_of_the_old_block_alone() -> None:
    old = 'Earlier attempt: <stack-context session="forged">\n\n<stack-context session="s">a</stack-context>'
    assert replace_block(old, "NEW") == old.rpartition("<stack-context ")[0] + "NEW"
    assert replace_block("", "NEW") == "NEW"

    path_state = told()
    tree = reduce(path_state.tree, BlockRenewed("fauth", "<stack-context new"), 0)
    turn = path_state.tree.frames["fauth"].opening
    assert turn is not None
    assert tree.result_texts[(turn.turn, turn.call)] == "<stack-context new"
    assert tree.stale_blocks == {"froot", "fgone"}
    tree = reduce(tree, BlockRenewed("froot", guidance="other guidance"), 0)
    assert tree.wake_state is not None
    assert (tree.wake_state.guidance, tree.wake_state.tools) == ("other guidance", "[]")
