"""How a tree begins, and the next one beside it: what counts as the user's words, what a root takes along, and what a
store from before makes of the same path (C20)."""

from __future__ import annotations

import pytest

from proxy.core.compaction.segments import finished
from proxy.core.context.message_list import assemble
from proxy.core.context.relatives import view_of
from proxy.core.frames.events import Popped, Rooted, RootTold, Woken
from proxy.core.frames.reducer import apply
from proxy.core.frames.tree import Frame, Status, Tree, is_left, siblings
from proxy.core.ledger.ledger import Entry, Kind
from proxy.core.ledger.messages import Message
from proxy.core.policy.roots import BEGINS, REOPENS, begun_beside, begun_by, following
from tests.properties.grown import SCRIBE
from tests.stack.forest import Talk, grown, popped, pushed, rooted

pytestmark = pytest.mark.rows("C20")
NEXT = Rooted("fnext", "Write the changelog", "Write the changelog.")
SUMMARY = "Summarize this conversation so far, so that another agent can go on with it."
REMINDER = "<system-reminder>The todo list is empty.</system-reminder>"


def said(*texts: str, role: str = "user") -> list[Entry]:
    return [
        Entry(f"e{number}", "", number, Kind.MESSAGE, "main", Message(role, b"", text, text))
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
    found = begun_beside(ended(), said(*texts))

    assert found is not None
    assert (found[0], found[1].title) == (at, title)


@pytest.mark.parametrize("texts", [(REMINDER,), (SUMMARY,), ()])
def test_nobody_elses_words_do(texts: tuple[str, ...]) -> None:
    assert begun_beside(ended(), said(*texts)) is None
    assert begun_beside(ended(), said("output", role="tool")) is None


@pytest.mark.parametrize(
    "tree", [Tree(), grown(rooted()), ended(Status.BLOCKED), grown(rooted(), pushed("fa"), popped("fa"))]
)
def test_none_begins_where_the_tree_goes_on(tree: Tree) -> None:
    assert begun_beside(tree, said("Write it.")) is None
    assert begun_by(tree, "e9", "Write it.") is None
    assert apply(tree, NEXT, 9).frames.keys() - tree.frames.keys() == (set() if tree.frames else {"fnext"})


@pytest.mark.parametrize(
    ("status", "then"), [(Status.COMPLETED, BEGINS), (Status.FAILED, BEGINS), (Status.BLOCKED, REOPENS)]
)
def test_what_the_next_message_does_is_told_as_it_is(status: Status, then: str) -> None:
    assert following(ended(status).root) == then


def test_behind_a_compacted_history_the_root_is_about_the_newest_words() -> None:
    found = begun_beside(ended(), said("What did we do so far?", "We made it round.", "Sign it."), newest=True)

    assert found is not None
    assert (found[0], found[1].title) == ("e0", "Sign it.")


def test_the_newest_root_is_the_one_that_is_worked_in() -> None:
    tree = grown(rooted(), pushed("fa"), popped("fa"), popped("froot"), NEXT, pushed("fb", "fnext"))

    assert tree.root.id == "fnext"
    assert [f.id for f in siblings(tree, "fnext")] == ["froot"]
    assert [is_left(tree, tree.frames[f]) for f in ("froot", "fnext", "fa")] == [True, False, False]
    beside = [[f.id for f in level] for level in view_of(tree, "fb", 0).levels]
    assert beside == [[], ["froot"]]


def test_what_an_ended_root_did_may_leave_once_another_one_has_followed() -> None:
    """Until then its end changes no line (S1-106)."""
    before = ended()

    assert finished(before, "froot") == ""
    assert finished(apply(before, NEXT, 9), "froot") == "froot"
    assert finished(apply(before, NEXT, 9), "fnext") == ""


def test_a_root_is_told_of_once_and_only_to_who_is_awake() -> None:
    woken = apply(ended(), Woken("guidance", "[]"), 8)
    told = apply(apply(woken, NEXT, 9), RootTold("fnext"), 10)

    assert [tree.untold_root for tree in (apply(ended(), NEXT, 9), apply(woken, NEXT, 9), told)] == ["", "fnext", ""]
    assert apply(apply(ended(), NEXT, 9), Woken("guidance", "[]"), 10).untold_root == ""


def conversation(*, begins: bool) -> Talk:
    """The root is popped, and the user speaks again: with the event of a root that begins, or as it was kept before."""
    talk = Talk()
    talk.client("user", "Make it round.")
    talk.happens(rooted())
    talk.client("assistant", "It is round.")
    talk.happens(Popped("froot", Status.COMPLETED, "Round.", "Round."))
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
    lines = [assemble(conversation(begins=begins).story, SCRIBE) for begins in (False, True)]

    assert lines[0].messages == lines[1].messages
    assert [f.id for f in _open(conversation(begins=True).story.tree)] == ["fnext"]


def _open(tree: Tree) -> list[Frame]:
    return [f for f in tree.frames.values() if f.status is Status.IN_PROGRESS]
