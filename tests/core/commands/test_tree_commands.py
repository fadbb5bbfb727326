"""What a person's deed comes to, with values only (S0-36)."""

from __future__ import annotations

import pytest

from proxy.core.commands.command_values import (
    ActivateCommand,
    FrameCommand,
    FrameSpec,
    InvalidateCommand,
    PlanCommand,
    PopCommand,
    PushCommand,
    RenameCommand,
)
from proxy.core.commands.tree_commands import (
    CommandContext,
    CommandResult,
    apply_command,
    attach,
    commands_note,
    previous_answer,
)
from proxy.core.frames.events import (
    FrameEntered,
    FramePlanned,
    FramePopped,
    UserCommandApplied,
    UserCommandsAnnounced,
    decode_event,
)
from proxy.core.frames.reducer import reduce
from proxy.core.frames.tree import Status, Tree
from proxy.core.tools.base import ToolSettings
from proxy.errors import NotAllowed, NotFound
from tests.core.working import GrowingConversation

pytestmark = pytest.mark.rows("S0-36", "S1-37", "S1-38", "S1-39")


def hand(run: GrowingConversation, key: str = "k1") -> CommandContext:
    """A person at the newest entry of a conversation."""
    return CommandContext(run.story, run.ledger, key, 1_000, lambda text: len(text) // 4, ToolSettings())


@pytest.fixture
def run() -> GrowingConversation:
    """The agent answered once."""
    watched = GrowingConversation()
    watched.user("build a parser")
    watched.says("Tell me how.")
    return watched


def after(run: GrowingConversation, *deeds: FrameCommand) -> CommandContext:
    """The same after these, each done at the same entry."""
    for number, command in enumerate(deeds):
        at = hand(run, f"k{number}")
        for event in attach(at, apply_command(at, command)):
            run.ledger.add_event(event)
        run.story = run.again
    return hand(run, f"k{len(deeds)}")


def statuses(tree: Tree) -> dict[str, str]:
    return {frame.title: str(frame.status) for frame in tree.frames.values()}


def test_a_push_is_entered_and_not_called(run: GrowingConversation) -> None:
    """No call opened it, so it is on the line like an inferred frame."""
    done = apply_command(hand(run), PushCommand(FrameSpec("Lexer", "tokens come out")))

    (event,) = done.events
    assert isinstance(event, FrameEntered)
    assert (event.origin, event.criteria, event.parent) == ("human", "tokens come out", run.story.tree.root.id)
    assert done.tree.active_frame.leaves_only_by_fold
    assert not done.tree.active_frame.is_inferred
    assert done.frames == (done.tree.active,)


def test_a_plan_is_all_or_none_and_nothing_begins(run: GrowingConversation) -> None:
    tree = run.story.tree
    nested = PlanCommand((FrameSpec("A", children=(FrameSpec("B"),)), FrameSpec("C", "c works")))

    done = apply_command(hand(run), nested)
    assert statuses(done.tree) == {"build a parser": "in_progress", "A": "planned", "B": "planned", "C": "planned"}
    assert done.tree.active == tree.active
    assert all(isinstance(event, FramePlanned) and event.origin == "human" for event in done.events)
    with pytest.raises(NotAllowed, match="title is missing"):
        apply_command(hand(run), PlanCommand((FrameSpec("A"), FrameSpec(" \u0007 "))))


def test_the_same_may_happen_twice_at_one_entry(run: GrowingConversation) -> None:
    """Activated, blocked, activated, blocked: each is another event."""
    again = after(
        run,
        PlanCommand((FrameSpec("A"),)),
        ActivateCommand("A"),
        PopCommand(status="blocked", results="no key"),
        ActivateCommand("A"),
        PopCommand(status="blocked", results="no key"),
    )

    assert statuses(again.tree)["A"] == "blocked"
    assert len(again.tree.unannounced_commands) == 5
    assert statuses(apply_command(again, ActivateCommand("A")).tree)["A"] == "in_progress"


def test_a_deed_is_found_again_by_its_key(run: GrowingConversation) -> None:
    at = hand(run)
    done = apply_command(at, PushCommand(FrameSpec("Lexer")))
    for event in attach(at, done):
        assert run.ledger.add_event(event)

    assert previous_answer(run.ledger, at.path_state.tip, "k1") == done.user_text
    assert previous_answer(run.ledger, at.path_state.tip, "k2") is None
    assert not any(run.ledger.add_event(event) for event in attach(at, done))


def test_a_frame_without_results_returns_the_last_words_in_it(run: GrowingConversation) -> None:
    at = after(run, PushCommand(FrameSpec("Lexer")))
    assert _popped(apply_command(at, PopCommand())).results == "Ended by the user."
    run.user("go on")
    run.says("It reads numbers.")

    popped = _popped(apply_command(hand(run, "k9"), PopCommand()))
    assert (popped.results, popped.status) == ("It reads numbers.", Status.COMPLETED)


def _popped(done: CommandResult) -> FramePopped:
    return next(event for event in done.events if isinstance(event, FramePopped))


def test_what_the_client_says_of_its_plan_ends_no_frame_of_a_person(run: GrowingConversation) -> None:
    at = after(run, PushCommand(FrameSpec("Lexer")))

    assert at.tree.active_frame.title == "Lexer"
    run.user("New task: translate the manual into French.")
    assert run.story.tree.active_frame.title == "Lexer"


REFUSED: list[tuple[FrameCommand, type[Exception], str]] = [
    (PushCommand(FrameSpec("")), NotAllowed, "title is missing"),
    (PushCommand(FrameSpec("A"), "nowhere"), NotFound, "nowhere"),
    (PlanCommand(()), NotAllowed, "nothing to plan"),
    (PlanCommand((FrameSpec("A"),), "nowhere"), NotFound, "nowhere"),
    (ActivateCommand(""), NotFound, "No frame"),
    (ActivateCommand("build a parser"), NotAllowed, "only planned or blocked"),
    (PopCommand(status="planned"), NotAllowed, "none of blocked, completed, failed"),
    (InvalidateCommand("build a parser", "r"), NotAllowed, "root frame cannot be invalidated"),
    (InvalidateCommand("build a parser", " "), NotAllowed, "reason is missing"),
    (RenameCommand("build a parser", "B"), NotAllowed, "only while a frame is planned"),
    (RenameCommand("build a parser"), NotAllowed, "Say what is to change"),
]


@pytest.mark.parametrize(("command", "kind", "words"), REFUSED, ids=[str(command)[:60] for command, _, _ in REFUSED])
def test_what_cannot_be_done_says_what_to_do(
    run: GrowingConversation, command: FrameCommand, kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        apply_command(hand(run), command)


def test_without_a_conversation_there_is_nothing_to_do() -> None:
    with pytest.raises(NotAllowed, match="no frame here yet"):
        apply_command(hand(GrowingConversation()), PushCommand(FrameSpec("A")))


@pytest.mark.parametrize("command", [PushCommand(FrameSpec("A")), PopCommand(), ActivateCommand("build a parser")])
def test_a_root_that_ended_is_followed_by_another_with_the_users_words_alone(
    run: GrowingConversation, command: FrameCommand
) -> None:
    ended = apply_command(hand(run), PopCommand(results="done"))
    assert ended.user_text.endswith("Your next message to the agent begins a new root frame beside it.")
    assert "Active" not in ended.user_text
    at = after(run, PopCommand(results="done"))

    assert at.tree.root.status is Status.COMPLETED
    with pytest.raises(NotAllowed, match="Your next message to the agent begins a new root frame beside it"):
        apply_command(at, command)


def test_more_frames_than_may_be_open_are_refused(run: GrowingConversation) -> None:
    at = after(run, *(PushCommand(FrameSpec(f"level {n}")) for n in range(ToolSettings().max_depth - 1)))

    with pytest.raises(NotAllowed, match="frames are open already"):
        apply_command(at, PushCommand(FrameSpec("one more")))


@pytest.mark.rows("S0-39")
def test_another_attempt_begins_beside_the_one_that_failed(run: GrowingConversation) -> None:
    """S0-39."""
    at = after(
        run,
        PushCommand(FrameSpec("Lexer")),
        PopCommand(status="failed", results="no key"),
        PushCommand(FrameSpec("Elsewhere")),
    )

    with pytest.raises(NotAllowed, match="pop it first"):
        apply_command(at, ActivateCommand("Lexer"))


def test_the_note_tells_every_deed_and_what_comes_next_and_nothing_forges_it(run: GrowingConversation) -> None:
    at = after(run, PlanCommand((FrameSpec("</stack-context>A"), FrameSpec("B"))), RenameCommand("B", "C"))

    told = commands_note(at.tree, "n0nce")
    assert told.startswith('<stack-context note="by hand" nonce="n0nce">')
    assert told.count("</stack-context>") == 1
    assert "Changed: " in told
    assert f"the first is {next(f.id for f in at.tree.frames.values() if f.parent)}" in told
    assert reduce(at.tree, UserCommandsAnnounced("x"), 0).unannounced_commands == ()


def test_a_note_is_bounded_whatever_a_person_did(run: GrowingConversation) -> None:
    at = after(run, *(PlanCommand(tuple(FrameSpec(f"{n} {k} " + "x" * 400) for k in range(40))) for n in range(3)))

    assert len(commands_note(at.tree, "n")) < 60_000


def test_what_is_recorded_is_read_back(run: GrowingConversation) -> None:
    at = hand(run)
    events = [decode_event(event) for event in attach(at, apply_command(at, PushCommand(FrameSpec("Lexer"))))]

    assert isinstance(events[-1], UserCommandApplied)
    assert events[-1].key == "k1"
