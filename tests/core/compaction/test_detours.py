"""Which steps were taken only because work had left the context."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.core.compaction.detours import DetourHistory, detour_history
from proxy.core.compaction.segments import FoldRules
from proxy.core.observers import DEFAULT_TOOL_ROLES
from tests.core.working import GrowingConversation, bash, padded

READ = ("read", {"filePath": "src/part0.py"})
OTHER = ("read", {"filePath": "src/other.py"})
RECALL = ("stack_recall", {"ref": "src/part0.py"})


def history(*later: tuple[str, Any], folds: bool = True) -> DetourHistory:
    """A request that read and tested, has ended and left; then another one with these calls."""
    watched = GrowingConversation(folds=False).user("Find the leak.")
    watched.does(READ, results=[padded("text", 400)])
    for n in range(3):
        watched.does(bash(f"pytest {n}"), results=[padded(f"output {n}", 400)])
    watched.says("It is the counter.").user("Unrelated: translate the onboarding email into French.")
    watched.arrives()
    if folds:
        assert watched.fold().events
    for call in later:
        watched.does(call, results=["x"])
    watched.arrives()
    return detour_history(watched.story, DEFAULT_TOOL_ROLES)


@pytest.mark.rows("S0-53")
@pytest.mark.parametrize(
    ("later", "detours"),
    [((), 0), ((OTHER,), 0), ((OTHER, OTHER), 0), ((READ,), 1), ((READ, OTHER), 1), ((RECALL, READ), 2)],
)
def test_a_read_of_what_left_is_a_detour_once(later: tuple[tuple[str, Any], ...], detours: int) -> None:
    assert history(*later) == DetourHistory(1, detours, detours)


@pytest.mark.rows("S0-53")
def test_an_agent_that_reads_again_what_it_sees_would_have_done_so_anyway() -> None:
    assert history(OTHER, OTHER, READ) == DetourHistory(1, 0, 0)
    assert history(OTHER, OTHER, READ, RECALL) == DetourHistory(1, 1, 1)


def test_without_a_fold_there_is_none() -> None:
    assert history(READ, folds=False) == DetourHistory()


@pytest.mark.rows("S0-53")
@pytest.mark.parametrize(("detour", "folds"), [(bash("ls"), True), (RECALL, False)])
def test_a_fold_waits_where_the_one_before_it_was_followed_by_detours(detour: tuple[str, Any], *, folds: bool) -> None:
    rules = FoldRules(20_000, newest_tokens=200)
    watched = GrowingConversation(folds=False, settings={"rules": rules}).user("Find the leak.")
    for request in ("Unrelated: translate the onboarding email into French.", "Another thing: name the release."):
        for n in range(4):
            watched.does(bash(f"pytest {n} of {request}"), results=[padded(f"output {n}", 400)])
        if watched.foldings:
            for _ in range(8):
                watched.does(detour, results=["x"])
        watched.says("It is done.").user(request)
        watched.arrives()
        events = watched.fold(requests=20).events
        assert events or len(watched.foldings) > 1

    assert bool(events) is folds
