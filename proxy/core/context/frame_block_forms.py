"""Chooses the form of a frame block: flat (lists), nested (one tree) or minimal (small windows). The form is chosen
when a frame is entered and never changes afterwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from proxy.core.context.actions import ProbePatterns, actions_of, format_action, probe_state
from proxy.core.context.fork_block import short_block, without_texts_in_view, without_words_beside
from proxy.core.context.minimal_frame_block import MAX_ACTIONS, RecentWork, render_minimal
from proxy.core.context.nested_frame_block import render_nested
from proxy.core.context.relatives import surroundings_of
from proxy.core.context.write_frame_block import BlockBudgets, render_flat, wrapper_attributes
from proxy.core.frames import PathState, Tree
from proxy.core.observers import DEFAULT_TOOL_ROLES, ToolRoles
from proxy.core.text import CountTokens

DrawMap = Callable[[PathState, Tree, str, int, CountTokens], str]
"""Renders the map of seen files for a frame within a number of tokens."""
CLOSING_TAG = "\n</stack-context>"


class BlockFormat(msgspec.Struct, frozen=True):
    """`minimal` wins over `nested`. `shows_budgets` affects only the flat form, `draw_map` not the minimal one."""

    nested: bool = False
    minimal: bool = False
    shows_budgets: bool = False
    names: ToolRoles = DEFAULT_TOOL_ROLES
    probe_patterns: ProbePatterns = ()
    draw_map: DrawMap | None = None


FLAT_FORMAT = BlockFormat()


def block_of(  # noqa: PLR0913  what every form takes, and where to look for what was done
    form: BlockFormat,
    path_state: PathState,
    tree: Tree,
    frame_id: str,
    *,
    nonce: str,
    now: int,
    budgets: BlockBudgets,
    count: CountTokens,
    session: str = "",
    said: Sequence[str] | None = None,
    beside: Sequence[str] = (),
) -> str:
    """The block of a frame on entry. `tree` is the state just after the frame began, `path_state` the path before it,
    `now` is in ms. `said` are the words of the call that begins a fork, which has the parent's context before it;
    `beside` are the user's messages directly in front of the block."""
    tree = without_words_beside(tree.as_shown, frame_id, beside)
    if form.minimal:
        actions = [format_action(execution) for execution in list(actions_of(path_state, frame_id))[-MAX_ACTIONS:]]
        recent = RecentWork(probe_state(path_state, form.names, form.probe_patterns), actions)
        return render_minimal(tree, frame_id, recent, nonce=nonce, budget=budgets.total, count=count, session=session)
    in_view: frozenset[str] = frozenset()
    block = ""
    if said is not None:
        tree, in_view = without_texts_in_view(path_state, tree, frame_id, said)
        view = surroundings_of(tree, frame_id, now, in_view)
        block = "" if form.shows_budgets else short_block(view, wrapper_attributes(session, frame_id, nonce))
    render = render_nested if form.nested else partial(render_flat, figures=form.shows_budgets)
    block = block or render(
        tree, frame_id, nonce=nonce, now=now, budgets=budgets, count=count, session=session, in_view=in_view
    )
    if form.draw_map is None or not tree.frames[frame_id].parent:  # what a root has seen stands on its line
        return block
    return _with_map(
        block, form.draw_map(path_state, tree, frame_id, budgets.total - count(block), count), budgets, count
    )


def _with_map(block: str, file_map: str, budgets: BlockBudgets, count: CountTokens) -> str:
    """The block with the map inside, or the block alone if both do not fit the budget."""
    with_map = (
        f"{block.removesuffix(CLOSING_TAG)}\n{file_map}{CLOSING_TAG}"
        if file_map and block.endswith(CLOSING_TAG)
        else block
    )
    return with_map if count(with_map) <= budgets.total else block
