"""In which form a frame is told of the tree around it: as lists (flat), as one tree (nested), or what it needs to know
now (minimal).

The law: **the form is chosen as a frame is entered**, and the block it gave is what stands (C8): another setting, or
another model, counts for frames that are entered later.

What this module does not do: it renders nothing; each form is a module of its own.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from proxy.core.context.actions import Patterns, actions_of, in_a_line, probe_state
from proxy.core.context.block_minimal import ACTIONS, Recent, render_minimal
from proxy.core.context.block_nested import render_nested
from proxy.core.context.frame_block import BlockBudgets, render_block
from proxy.core.frames.path_state import Story
from proxy.core.frames.tree import Tree
from proxy.core.observers.tool_roles import NAMES, Names
from proxy.core.text import Count

DrawMap = Callable[[Story, Tree, str, int, Count], str]
"""What else a block tells of the files that were seen: for a frame, in at most so many tokens."""
END = "\n</stack-context>"


class Form(msgspec.Struct, frozen=True):
    """How blocks are written. `minimal` goes before `nested`; `figures` are told in the flat form alone. `names` tell
    what the client's tools are for, `patterns` which more commands are probes. With `draw_map` blocks of the first two
    forms end with a map of seen files (S2-25)."""

    nested: bool = False
    minimal: bool = False
    figures: bool = False
    names: Names = NAMES
    patterns: Patterns = ()
    draw_map: DrawMap | None = None


FLAT = Form()


def block_of(  # noqa: PLR0913  what every form takes, and where to look for what was done
    form: Form,
    story: Story,
    tree: Tree,
    frame_id: str,
    *,
    nonce: str,
    now: int,
    budgets: BlockBudgets,
    count: Count,
    session: str = "",
) -> str:
    """The block of a frame as it is entered: `tree` is the state with that frame begun, `story` the path up to then,
    `now` is in ms."""
    if form.minimal:
        actions = [in_a_line(done) for done in list(actions_of(story, frame_id))[-ACTIONS:]]
        recent = Recent(probe_state(story, form.names, form.patterns), actions)
        return render_minimal(tree, frame_id, recent, nonce=nonce, budget=budgets.total, count=count, session=session)
    if form.nested:
        block = render_nested(tree, frame_id, nonce=nonce, now=now, budgets=budgets, count=count, session=session)
    else:
        block = render_block(
            tree, frame_id, nonce=nonce, now=now, budgets=budgets, count=count, session=session, figures=form.figures
        )
    if form.draw_map is None or not tree.frames[frame_id].parent:  # what a root has seen stands on its line
        return block
    return _with_map(block, form.draw_map(story, tree, frame_id, budgets.total - count(block), count), budgets, count)


def _with_map(block: str, drawn: str, budgets: BlockBudgets, count: Count) -> str:
    """The map is the first thing that a block has no room for."""
    told = f"{block.removesuffix(END)}\n{drawn}{END}" if drawn and block.endswith(END) else block
    return told if count(told) <= budgets.total else block
