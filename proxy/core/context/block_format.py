"""In which form a frame is told of the tree around it: as lists (flat), as one tree (nested), or what it needs to know
now (minimal).

The law: **the form is chosen as a frame is entered**, and the block it gave is what stands (C8): another setting, or
another model, counts for frames that are entered later.

What this module does not do: it renders nothing; each form is a module of its own.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from proxy.core.context.actions import ProbePatterns, actions_of, format_action, probe_state
from proxy.core.context.block_minimal import MAX_ACTIONS, RecentWork, render_minimal
from proxy.core.context.block_nested import render_nested
from proxy.core.context.frame_block import BlockBudgets, render_flat
from proxy.core.frames import PathState, Tree
from proxy.core.observers import DEFAULT_TOOL_ROLES, ToolRoles
from proxy.core.text import CountTokens

DrawMap = Callable[[PathState, Tree, str, int, CountTokens], str]
"""What else a block tells of the files that were seen: for a frame, in at most so many tokens."""
CLOSING_TAG = "\n</stack-context>"


class BlockFormat(msgspec.Struct, frozen=True):
    """How blocks are written. `minimal` goes before `nested`; `figures` are told in the flat form alone. `names` tell
    what the client's tools are for, `patterns` which more commands are probes. With `draw_map` blocks of the first two
    forms end with a map of seen files (S2-25)."""

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
) -> str:
    """The block of a frame as it is entered: `tree` is the state with that frame begun, `path_state` the path up to
    then, `now` is in ms."""
    if form.minimal:
        actions = [format_action(done) for done in list(actions_of(path_state, frame_id))[-MAX_ACTIONS:]]
        recent = RecentWork(probe_state(path_state, form.names, form.probe_patterns), actions)
        return render_minimal(tree, frame_id, recent, nonce=nonce, budget=budgets.total, count=count, session=session)
    if form.nested:
        block = render_nested(tree, frame_id, nonce=nonce, now=now, budgets=budgets, count=count, session=session)
    else:
        block = render_flat(
            tree,
            frame_id,
            nonce=nonce,
            now=now,
            budgets=budgets,
            count=count,
            session=session,
            figures=form.shows_budgets,
        )
    if form.draw_map is None or not tree.frames[frame_id].parent:  # what a root has seen stands on its line
        return block
    return _with_map(
        block, form.draw_map(path_state, tree, frame_id, budgets.total - count(block), count), budgets, count
    )


def _with_map(block: str, drawn: str, budgets: BlockBudgets, count: CountTokens) -> str:
    """The map is the first thing that a block has no room for."""
    told = (
        f"{block.removesuffix(CLOSING_TAG)}\n{drawn}{CLOSING_TAG}" if drawn and block.endswith(CLOSING_TAG) else block
    )
    return told if count(told) <= budgets.total else block
