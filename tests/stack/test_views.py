"""DESIGN 6, view `auto`: a child is isolated where its parent is long and that is cheaper for the child's requests."""

import pytest
from msgspec.structs import replace

from proxy.core.compaction.cost_gate import Prices
from proxy.core.frames.events import Replaced, Rooted
from proxy.core.frames.path_state import Story
from proxy.core.frames.reducer import apply
from proxy.core.frames.tree import Status
from proxy.core.tools import run
from proxy.core.tools.base import Settings
from proxy.core.tools.child_view import BLOCK, USUAL_REQUESTS, Choice, choice_at, chosen_view, requests_expected
from tests.stack.forest import Talk, call, count, popped, pushed

ANTHROPIC = Prices(0.1, 1.25)
ABOVE = 60_000


@pytest.mark.parametrize(
    ("choice", "view"),
    [
        (Choice(60_000, 2_000, 12, ANTHROPIC), "fork"),  # not longer than the bound
        (Choice(60_001, 2_000, 12, ANTHROPIC), "isolate"),
        (Choice(100_000, 2_000, 12, ANTHROPIC), "isolate"),
        (Choice(100_000, 50_000, 12, ANTHROPIC), "fork"),  # 60,000 saved by reading less, 62,500 to write it
        (Choice(100_000, 50_000, 13, ANTHROPIC), "isolate"),
        (Choice(100_000, 2_000, 1, Prices(0.02, 1.25)), "fork"),  # a child of one request, where reading is cheap
        (Choice(100_000, 100_000, 50, ANTHROPIC), "fork"),
    ],
)
def test_the_gate_weighs_what_is_read_against_what_is_written(choice: Choice, view: str) -> None:
    """(P - I) * r * N > I * w."""
    assert chosen_view(choice, ABOVE) == view


def grown(results: int) -> Talk:
    talk = Talk()
    talk.client("user", "build it")
    talk.happens(Rooted("froot", "Build", "It is built."))
    for number in range(results):
        talk.model(("", (call(f"c{number}", "read"),)))
        talk.client("tool", "content", answers=f"c{number}")
    return talk


def weighed(story: Story, tokens: int) -> Story:
    """Every message of the client's with so many tokens."""
    placed = tuple(
        replace(p, entry=replace(p.entry, message=replace(p.entry.message, tokens=tokens))) if p.entry.message else p
        for p in story.placed
    )
    return replace(story, placed=placed)


def test_a_parent_weighs_all_on_its_line_and_an_isolated_child_the_words_of_the_user() -> None:
    story = weighed(grown(9).story, 10_000)
    shown = frozenset(p.at for p in story.placed)
    assert choice_at(story, shown, ANTHROPIC, count) == Choice(100_000, 10_000 + BLOCK, USUAL_REQUESTS, ANTHROPIC)
    assert choice_at(story, frozenset(), ANTHROPIC, count).parent == 0


def test_a_parent_weighs_as_it_is_told_on_its_line() -> None:
    """An output that was cut or cleared weighs what stands for it, a popped frame what it returned."""
    talk = grown(3)
    opened = talk.model(("", (call("p", "stack_frame_push"),)))
    talk.happens(pushed("fchild"), opened, 1)
    full = weighed(talk.story, 10_000)
    shown = frozenset(p.at for p in full.placed)
    cleared = next(p.entry.id for p in full.placed if p.entry.message and p.entry.message.answers)
    told = replace(full, tree=apply(full.tree, Replaced(cleared, "[cleared]", "pruned"), 0))

    before, after = (choice_at(story, shown, ANTHROPIC, count).parent for story in (full, told))

    assert before - after == 10_000 - count("[cleared]")


def test_a_child_is_expected_to_make_as_many_requests_as_those_before_it() -> None:
    talk = grown(0)
    assert requests_expected(talk.story) == USUAL_REQUESTS
    for child, requests in (("fa", 2), ("fb", 6), ("fc", 4)):
        opened = talk.model(("", (call(f"p{child}", "stack_frame_push"),)))
        talk.happens(pushed(child), opened, 1)
        last = ""
        for _ in range(requests):
            last = talk.model(("still at it", ()))
            talk.client("user", "go on")
        talk.happens(popped(child, status=Status.FAILED), last, 1)
    assert requests_expected(talk.story) == 4


@pytest.mark.parametrize(("tokens", "view"), [(1_000, "fork"), (10_000, "isolate")])
def test_a_push_chooses_the_view_when_it_is_made(tokens: int, view: str) -> None:
    """The choice is an event like any other: it stays, however the parent grows."""
    talk = grown(9)
    story = weighed(talk.story, tokens)
    shown = frozenset(p.at for p in story.placed)
    desk = replace(talk.desk(shown, Settings(child_view="auto")), story=story)
    [event] = run(desk, call("p", "stack_frame_push", title="Look", successCriteria="It is seen.")).events
    assert getattr(event, "view", "") == view
