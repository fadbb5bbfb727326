"""How a tree begins, and the next one beside it: what counts as the user's words, what a root takes along, and what a
store from before makes of the same path (C20)."""

from __future__ import annotations

import pytest

from proxy.core.compaction.segments import FoldRules, outermost_finished
from proxy.core.context.message_list import build_context
from proxy.core.context.relatives import surroundings_of
from proxy.core.frames.events import FramePopped, RootAnnounced, RootStarted, ThreadWoken
from proxy.core.frames.reducer import reduce
from proxy.core.frames.tree import Frame, Status, Tree, is_ended_root, siblings
from proxy.core.ledger.ledger import Entry, EntryKind
from proxy.core.ledger.messages import Message
from proxy.core.policy.roots import (
    BEGINS_NEW_ROOT,
    REOPENS_ROOT,
    build_root_from_person,
    find_new_root,
    next_message_effect,
)
from tests.core.forest import LedgerBuilder, grown, popped, pushed, rooted
from tests.properties.grown import SCRIBE

pytestmark = pytest.mark.rows("C20")
NEXT = RootStarted("fnext", "Write the changelog", "Write the changelog.")
SUMMARY = "Summarize this conversation so far, so that another agent can go on with it."
REMINDER = "<system-reminder>The todo list is empty.</system-reminder>"


def said(*texts: str, role: str = "user") -> list[Entry]:
    return [
        Entry(f"e{number}", "", number, EntryKind.MESSAGE, "main", Message(role, b"", text, text))
        for number, text in enumerate(texts)
    ]


def ended(status: Status = Status.COMPLETED) -> Tree:
    return grown(rooted(), popped("froot", status=status))


@pytest.mark.parametrize(
    ("texts", "at", "title"),
    [
        (("Write the changelog.",), "e0", "Write the changelog."),
        ((REMINDER, "Write it."), "e0", "Write it."),
        ((REMINDER + " Write it.",), "e0", "Write it."),
        (("",), "e0", "Conversation"),  # a picture
        (("Write it.", REMINDER), "e0", "Write it."),
    ],
)
def test_the_users_words_begin_a_root_at_the_first_of_their_messages(
    texts: tuple[str, ...], at: str, title: str
) -> None:
    """S1-36."""
    found = find_new_root(ended(), said(*texts))

    assert found is not None
    assert (found[0], found[1].title) == (at, title)


@pytest.mark.parametrize("texts", [(REMINDER,), (SUMMARY,), ()])
def test_nobody_elses_words_do(texts: tuple[str, ...]) -> None:
    assert find_new_root(ended(), said(*texts)) is None
    assert find_new_root(ended(), said("output", role="tool")) is None


@pytest.mark.parametrize(
    "tree", [Tree(), grown(rooted()), ended(Status.BLOCKED), grown(rooted(), pushed("fa"), popped("fa"))]
)
def test_none_begins_where_the_tree_goes_on(tree: Tree) -> None:
    assert find_new_root(tree, said("Write it.")) is None
    assert build_root_from_person(tree, "e9", "Write it.") is None
    assert reduce(tree, NEXT, 9).frames.keys() - tree.frames.keys() == (set() if tree.frames else {"fnext"})


@pytest.mark.parametrize(
    ("status", "then"),
    [(Status.COMPLETED, BEGINS_NEW_ROOT), (Status.FAILED, BEGINS_NEW_ROOT), (Status.BLOCKED, REOPENS_ROOT)],
)
def test_what_the_next_message_does_is_told_as_it_is(status: Status, then: str) -> None:
    assert next_message_effect(ended(status).root) == then


def test_behind_a_compacted_history_the_root_is_about_the_newest_words() -> None:
    found = find_new_root(ended(), said("What did we do so far?", "We made it round.", "Sign it."), newest=True)

    assert found is not None
    assert (found[0], found[1].title) == ("e0", "Sign it.")


def test_the_newest_root_is_the_one_that_is_worked_in() -> None:
    tree = grown(rooted(), pushed("fa"), popped("fa"), popped("froot"), NEXT, pushed("fb", "fnext"))

    assert tree.root.id == "fnext"
    assert [f.id for f in siblings(tree, "fnext")] == ["froot"]
    assert [is_ended_root(tree, tree.frames[f]) for f in ("froot", "fnext", "fa")] == [True, False, False]
    beside = [[f.id for f in level] for level in surroundings_of(tree, "fb", 0).sibling_levels]
    assert beside == [[], ["froot"]]


def test_what_an_ended_root_did_may_leave_once_another_one_has_followed() -> None:
    """Until then its end changes no line (S1-106)."""
    before = ended()

    assert outermost_finished(before, "froot", FoldRules(1)) == ""
    assert outermost_finished(reduce(before, NEXT, 9), "froot", FoldRules(1)) == "froot"
    assert outermost_finished(reduce(before, NEXT, 9), "fnext", FoldRules(1)) == ""


def test_a_root_is_told_of_once_and_only_to_who_is_awake() -> None:
    woken = reduce(ended(), ThreadWoken("guidance", "[]"), 8)
    told = reduce(reduce(woken, NEXT, 9), RootAnnounced("fnext"), 10)

    assert [tree.unannounced_frame for tree in (reduce(ended(), NEXT, 9), reduce(woken, NEXT, 9), told)] == [
        "",
        "fnext",
        "",
    ]
    assert reduce(reduce(ended(), NEXT, 9), ThreadWoken("guidance", "[]"), 10).unannounced_frame == ""


def conversation(*, begins: bool) -> LedgerBuilder:
    """The root is popped, and the user speaks again: with the event of a root that begins, or as it was kept before."""
    talk = LedgerBuilder()
    talk.client("user", "Make it round.")
    talk.happens(rooted())
    talk.client("assistant", "It is round.")
    talk.happens(FramePopped("froot", Status.COMPLETED, "Round.", "Round."))
    talk.client("user", "Write the changelog.")
    if begins:
        talk.happens(NEXT)
    talk.client("assistant", "Written.")
    return talk


def test_a_path_from_before_still_opens_its_root_again() -> None:
    tree = conversation(begins=False).story.tree

    assert [(f.id, f.status) for f in tree.frames.values()] == [("froot", Status.IN_PROGRESS)]


def test_the_line_of_the_next_root_is_the_line_of_the_one_before_gone_on() -> None:
    """L2: nothing leaves, and nothing is told in other bytes."""
    lines = [build_context(conversation(begins=begins).story, SCRIBE) for begins in (False, True)]

    assert lines[0].messages == lines[1].messages
    assert [f.id for f in _open(conversation(begins=True).story.tree)] == ["fnext"]


def _open(tree: Tree) -> list[Frame]:
    return [f for f in tree.frames.values() if f.status is Status.IN_PROGRESS]
