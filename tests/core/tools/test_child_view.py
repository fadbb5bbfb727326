"""DESIGN 6, view `auto`: a child is isolated where its parent is long and that is cheaper for the child's requests."""

import pytest
from msgspec.structs import replace

from proxy.core.compaction.fold_cost import CachePrices
from proxy.core.frames.events import ResultReplaced, RootStarted
from proxy.core.frames.path_state import PathState
from proxy.core.frames.reducer import reduce
from proxy.core.frames.tree import Status
from proxy.core.tools.base import ToolSettings
from proxy.core.tools.child_view import (
    DEFAULT_CHILD_REQUESTS,
    ISOLATED_BLOCK_TOKENS,
    ViewCosts,
    choose_view,
    expected_request_count,
    view_costs_at,
)
from proxy.core.tools.stack_tool_list import run
from tests.core.forest import LedgerBuilder, call, count, popped, pushed

ANTHROPIC = CachePrices(0.1, 1.25)
ABOVE = 60_000


@pytest.mark.parametrize(
    ("choice", "view"),
    [
        (ViewCosts(60_000, 2_000, 12, ANTHROPIC), "fork"),  # not longer than the bound
        (ViewCosts(60_001, 2_000, 12, ANTHROPIC), "isolate"),
        (ViewCosts(100_000, 2_000, 12, ANTHROPIC), "isolate"),
        (ViewCosts(100_000, 50_000, 12, ANTHROPIC), "fork"),  # 60,000 saved by reading less, 62,500 to write it
        (ViewCosts(100_000, 50_000, 13, ANTHROPIC), "isolate"),
        (
            ViewCosts(100_000, 2_000, 1, CachePrices(0.02, 1.25)),
            "fork",
        ),  # a child of one request, where reading is cheap
        (ViewCosts(100_000, 100_000, 50, ANTHROPIC), "fork"),
    ],
)
def test_the_gate_weighs_what_is_read_against_what_is_written(choice: ViewCosts, view: str) -> None:
    """(P - I) * r * N > I * w."""
    assert choose_view(choice, ABOVE) == view


def grown(results: int) -> LedgerBuilder:
    talk = LedgerBuilder()
    talk.client("user", "build it")
    talk.happens(RootStarted("froot", "Build", "It is built."))
    for number in range(results):
        talk.model(("", (call(f"c{number}", "read"),)))
        talk.client("tool", "content", answers=f"c{number}")
    return talk


def weighed(path_state: PathState, tokens: int) -> PathState:
    """Every message of the client's with so many tokens."""
    path_entry = tuple(
        replace(p, entry=replace(p.entry, message=replace(p.entry.message, tokens=tokens))) if p.entry.message else p
        for p in path_state.entries
    )
    return replace(path_state, entries=path_entry)


def test_a_parent_weighs_all_on_its_line_and_an_isolated_child_the_words_of_the_user() -> None:
    path_state = weighed(grown(9).story, 10_000)
    shown = frozenset(p.path_id for p in path_state.entries)
    assert view_costs_at(path_state, shown, ANTHROPIC, count) == ViewCosts(
        100_000, 10_000 + ISOLATED_BLOCK_TOKENS, DEFAULT_CHILD_REQUESTS, ANTHROPIC
    )
    assert view_costs_at(path_state, frozenset(), ANTHROPIC, count).parent_tokens == 0


def test_a_parent_weighs_as_it_is_told_on_its_line() -> None:
    """An output that was cut or cleared weighs what stands for it, a popped frame what it returned."""
    talk = grown(3)
    opened = talk.model(("", (call("p", "stack_frame_push"),)))
    talk.happens(pushed("fchild"), opened, 1)
    full = weighed(talk.story, 10_000)
    shown = frozenset(p.path_id for p in full.entries)
    cleared = next(p.entry.id for p in full.entries if p.entry.message and p.entry.message.answers)
    told = replace(full, tree=reduce(full.tree, ResultReplaced(cleared, "[cleared]", "pruned"), 0))

    before, after = (view_costs_at(path_state, shown, ANTHROPIC, count).parent_tokens for path_state in (full, told))

    assert before - after == 10_000 - count("[cleared]")


def test_a_child_is_expected_to_make_as_many_requests_as_those_before_it() -> None:
    talk = grown(0)
    assert expected_request_count(talk.story) == DEFAULT_CHILD_REQUESTS
    for child, requests in (("fa", 2), ("fb", 6), ("fc", 4)):
        opened = talk.model(("", (call(f"p{child}", "stack_frame_push"),)))
        talk.happens(pushed(child), opened, 1)
        last = ""
        for _ in range(requests):
            last = talk.model(("still at it", ()))
            talk.client("user", "go on")
        talk.happens(popped(child, status=Status.FAILED), last, 1)
    assert expected_request_count(talk.story) == 4


@pytest.mark.parametrize(("tokens", "view"), [(1_000, "fork"), (10_000, "isolate")])
def test_a_push_chooses_the_view_when_it_is_made(tokens: int, view: str) -> None:
    """The choice is an event like any other: it stays, however the parent grows."""
    talk = grown(9)
    path_state = weighed(talk.story, tokens)
    shown = frozenset(p.path_id for p in path_state.entries)
    tool_context = replace(talk.desk(shown, ToolSettings(child_view="auto")), path_state=path_state)
    [event] = run(tool_context, call("p", "stack_frame_push", title="Look", successCriteria="It is seen.")).events
    assert getattr(event, "view", "") == view
