"""How full the window is, and when a model hears of it."""

import pytest

from proxy.core.compaction.window_pressure import WindowLimits, count_context_tokens, pressure_change, pressure_note
from proxy.core.frames.events import (
    ContextPressureRelieved,
    ContextPressureWarned,
    FrameFolded,
    FramePopped,
    FramePushed,
    ResultReplaced,
    RootStarted,
    call_key,
)
from proxy.core.frames.path_state import PathState
from proxy.core.frames.reducer import reduce
from proxy.core.frames.tree import Status, Tree
from tests.core.forest import LedgerBuilder, call, rooted

ROOM = WindowLimits(200_000, 168_000, 0.75)


def after(*filled: int) -> list[str]:
    """What was told of requests of so many tokens, one after the other."""
    tree, told = reduce(Tree(), rooted(), 1), []
    for tokens in filled:
        event = pressure_change(PathState(tree=tree), tokens, ROOM)
        told.append(type(event).__name__ if event else "")
        tree = reduce(tree, event, 2) if event else tree
    return told


@pytest.mark.proves("S2-43")
@pytest.mark.rows("S2-43")
def test_it_is_told_once_for_each_rise() -> None:
    """S2-43: a line that swings about the bound is told of once."""
    rise = after(100_000, 150_000, 149_000, 151_000, 125_000, 160_000, 90_000, 140_000, 155_000)

    assert rise == ["", "ContextPressureWarned", "", "", "", "", "ContextPressureRelieved", "", "ContextPressureWarned"]


@pytest.mark.rows("S2-43")
@pytest.mark.parametrize(("tokens", "limit", "bound"), [(200_000, 168_000, 150_000), (128_000, 96_000, 91_200)])
def test_it_is_told_before_anything_is_evicted(tokens: int, limit: int, bound: int) -> None:
    """S2-43: three quarters of the window, or a little less than what a prompt may fill."""
    assert WindowLimits(tokens, limit, 0.75).warning_tokens == bound < limit


def test_what_left_the_line_is_not_counted() -> None:
    """Traces and words of ours are, with what they take."""
    talk = LedgerBuilder()
    talk.client("user", "Go on")
    talk.happens(RootStarted("froot", "Go on", "Go on"))
    first, second = (talk.client("tool", "out " * 50, f"c{n}") for n in range(2))
    talk.happens(FrameFolded("froot", (first,), "a trace", first))
    talk.happens(ResultReplaced(second, "in a line"))

    assert count_context_tokens(talk.story, len) == len("a trace") + len("in a line")


def test_a_frame_weighs_its_block_while_it_runs_and_then_what_it_returned() -> None:
    talk = LedgerBuilder()
    talk.client("user", "Go on")
    talk.happens(rooted())
    opened = talk.model(("", (call("p", "stack_frame_push"),)))
    talk.happens(
        FramePushed("fa", "froot", "A", "It works.", opened, call_key(1, "p"), "a block of many words"), opened, 1
    )
    assert count_context_tokens(talk.story, len) == len("a block of many words")

    closed = talk.model(("", (call("q", "stack_frame_pop"),)))
    talk.happens(FramePopped("fa", Status.COMPLETED, "done", "done", call_result="it is done"), closed, 1)
    assert count_context_tokens(talk.story, len) == len("it is done")


def test_the_note_says_how_full_and_what_to_do() -> None:
    told = pressure_note(ContextPressureWarned("froot", 151_000, 200_000), "n0nce")

    assert told.startswith('<stack-context note="memory-pressure" nonce="n0nce">')
    assert "76% full: 151,000 of 200,000 tokens" in told
    assert isinstance(pressure_change(PathState(tree=Tree(is_pressure_warned=True)), 0, ROOM), ContextPressureRelieved)
