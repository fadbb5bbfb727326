"""The tools that only look, and those that note: what the model reads, and what is told to it when it errs."""

import json

import pytest

from proxy.core.frames.events import (
    ArtifactAdded,
    DecisionAdded,
    FrameEvent,
    FrameInvalidated,
    FramePlanned,
    FramePopped,
    RootStarted,
)
from proxy.core.frames.tree import Status
from proxy.core.tools.base import ToolContext
from proxy.core.tools.inspect_tools import tree_state
from proxy.core.tools.stack_tool_list import run
from tests.core.forest import LedgerBuilder, call, popped, pushed


def desk_after(*events: FrameEvent) -> ToolContext:
    talk = LedgerBuilder()
    talk.client("user", "go")
    talk.happens(RootStarted("froot", "Build the shop", "The shop sells things."))
    for event in events:
        talk.client("user", f"step {talk.minute}")
        talk.happens(event)
    return talk.desk()


def ask(tool_context: ToolContext, name: str, **arguments: object) -> str:
    return run(tool_context, call("k", name, **arguments)).text


STORY: tuple[FrameEvent, ...] = (
    pushed("fauth", title="Auth", criteria="Login works."),
    ArtifactAdded("fauth", "src/auth.py"),
    DecisionAdded("fauth", "Use JWT."),
    popped("fauth", "JWT in src/auth.py."),
    pushed("fcard", title="Card"),
    popped("fcard", "No key.", Status.FAILED),
    pushed("fwait", title="Wait"),
    popped("fwait", "Waits for the bank.", Status.BLOCKED),
    FramePlanned("fold", "froot", "Old way", "c"),
    FrameInvalidated("fold", "Not needed."),
    pushed("fpay", title="Pay", criteria="Paying works."),
    FramePlanned("fbank", "fpay", "Bank", "Transfers work."),
)


# ----------------------------------------------------------------------------------------------------- status and tree
@pytest.mark.rows("S1-107")
def test_status_lists_every_frame_with_its_icon() -> None:
    """S1-107: golden."""
    assert ask(desk_after(*STORY), "stack_status") == (
        "[*] froot Build the shop\n"
        "    criteria: The shop sells things.\n"
        "  [+] fauth Auth\n"
        "      results: JWT in src/auth.py.\n"
        "  [X] fcard Card\n"
        "      results: No key.\n"
        "  [!] fwait Wait\n"
        "      criteria: It works.\n"
        "      results: Waits for the bank.\n"
        "  [-] fold Old way\n"
        "  [*] fpay Pay <- active\n"
        "      criteria: Paying works.\n"
        "    [P] fbank Bank\n"
        "        criteria: Transfers work.\n"
        "Active: fpay (Pay)"
    )


@pytest.mark.proves("S1-107")
@pytest.mark.rows("S1-107")
def test_status_cuts_titles_at_sixty_and_results_at_a_hundred_characters() -> None:
    """S1-107: and shows results above the second level only."""
    tool_context = desk_after(
        pushed("fa", title="t" * 90), pushed("fb", "fa"), popped("fb", "deep result"), popped("fa", "r" * 300)
    )

    lines = ask(tool_context, "stack_status").splitlines()

    assert "  [+] fa " + "t" * 59 + "…" in lines
    assert "      results: " + "r" * 99 + "…" in lines
    assert "deep result" not in "\n".join(lines)


@pytest.mark.rows("S1-107")
def test_status_lists_orphans() -> None:
    """S1-107."""
    assert "Orphans" in ask(desk_after(FramePlanned("flost", "fgone", "Lost", "c")), "stack_status")


@pytest.mark.rows("S1-108")
def test_the_tree_is_drawn_with_branches_order_legend_and_figures() -> None:
    """S1-108: golden; in progress, planned, completed, blocked, failed, invalidated."""
    assert ask(desk_after(*STORY), "stack_tree") == (
        "→ Build the shop [froot]\n"
        "├─ → Pay [fpay] (active)\n"
        "│  └─ ○ Bank [fbank]\n"
        "├─ ✓ Auth [fauth]\n"
        "├─ ! Wait [fwait]\n"
        "├─ ✗ Card [fcard]\n"
        "└─ ⚠ Old way [fold]\n"
        "\n"
        "Legend: ✓ completed  → in_progress  ○ planned  ✗ failed  ! blocked  ⚠ invalidated\n"
        "7 frames: 2 in_progress, 1 planned, 1 completed, 1 blocked, 1 failed, 1 invalidated"
    )


@pytest.mark.rows("S1-108")
def test_the_tree_can_begin_at_a_frame_and_show_details() -> None:
    """S1-108: rootID, showDetails."""
    drawn = ask(desk_after(*STORY), "stack_tree", rootID="Auth", showDetails=True)

    assert drawn.startswith("✓ Auth [fauth]\n   criteria: Login works.\n   results: JWT")
    assert "fpay" not in drawn


@pytest.mark.rows("S1-108")
def test_the_tree_without_show_full_leaves_out_what_lies_off_the_path() -> None:
    """S1-108."""
    tool_context = desk_after(pushed("fa"), pushed("fdeep", "fa"), popped("fdeep"), popped("fa"), pushed("fb"))

    assert "fdeep" in ask(tool_context, "stack_tree")
    assert "fdeep" not in ask(tool_context, "stack_tree", showFull=False)


@pytest.mark.rows("S1-108", "S1-132")
def test_the_tree_is_drawn_whichever_way_yes_and_no_are_written() -> None:
    """S1-108, S1-132: some models write words in quotes, and null for what they leave out."""
    tool_context = desk_after(pushed("fa"), pushed("fdeep", "fa"), popped("fdeep"), popped("fa"), pushed("fb"))
    asked = {
        "false": ask(tool_context, "stack_tree", showFull=False),
        "true": ask(tool_context, "stack_tree", showFull=True, showDetails=True),
    }

    assert ask(tool_context, "stack_tree", showFull="false", showDetails="False") == asked["false"]
    assert ask(tool_context, "stack_tree", showFull="TRUE", showDetails="true") == asked["true"]
    assert ask(tool_context, "stack_tree", showFull=None, showDetails=True) == asked["true"]
    for wrong in ("some", 2, ["true"]):
        assert ask(tool_context, "stack_tree", showFull=wrong) == "Error: showFull must be true or false."


# ------------------------------------------------------------------------------------------------------------- details
@pytest.mark.rows("S0-40")
def test_a_whole_title_goes_before_an_id_that_begins_like_it() -> None:
    """S0-40: an id is made of letters and digits, and may begin with a short word."""
    tool_context = desk_after(pushed("fixture2", title="Auth"), popped("fixture2"), pushed("fother22", title="Fix"))

    assert "id: fother22" in ask(tool_context, "stack_frame_details", frameID="fix")
    assert "id: fixture2" in ask(tool_context, "stack_frame_details", frameID="fixt")


@pytest.mark.rows("S0-40")
def test_two_wide_characters_of_a_title_name_a_frame_and_two_letters_do_not() -> None:
    tool_context = desk_after(pushed("fabc2345"), popped("fabc2345"), pushed("fother22", title="导出订单为 CSV"))

    assert "id: fother22" in ask(tool_context, "stack_frame_details", frameID="订单")
    for part in ("单", "CS"):
        assert ask(tool_context, "stack_frame_details", frameID=part).startswith("Error")


@pytest.mark.rows("S1-109", "S0-40")
@pytest.mark.parametrize("reference", ["fauth", "faut", "auth", "AUTH"])
def test_details_are_found_by_id_its_beginning_or_title(reference: str) -> None:
    """S1-109, S0-40."""
    told = ask(desk_after(*STORY), "stack_frame_details", frameID=reference)

    assert told == (
        "[+] Auth\nid: fauth\nstatus: completed\nparent: froot\nsuccess criteria: Login works.\n"
        "results: JWT in src/auth.py.\nartifacts:\n- src/auth.py\ndecisions:\n- Use JWT.\n"
        'took: 3.0m\nits messages and outputs: stack_recall with ref "fauth"'
    )


@pytest.mark.rows("S1-109", "S1-132")
def test_an_unknown_frame_is_an_error_that_names_the_known_ones() -> None:
    """S1-109, S1-132."""
    told = ask(desk_after(*STORY), "stack_frame_details", frameID="nothing")

    assert told.startswith("Error")
    assert "fauth Auth (completed)" in told


@pytest.mark.rows("S1-132")
def test_details_without_an_id_are_an_error() -> None:
    """S1-132."""
    assert ask(desk_after(*STORY), "stack_frame_details").startswith("Error: frame is missing")


# --------------------------------------------------------------------------------------------------------------- state
@pytest.mark.rows("S1-131", "S1-08", "S1-09")
def test_the_state_has_the_names_of_the_specification() -> None:
    """S1-131, S1-08, S1-09."""
    state = json.loads(ask(desk_after(*STORY), "stack_get_state"))

    assert set(state) == {"version", "frames", "activeFrameID", "rootFrameIDs", "updatedAt"}
    assert (state["activeFrameID"], state["rootFrameIDs"]) == ("fpay", ["froot"])
    assert set(state["frames"]["fauth"]) == {
        *("sessionID", "parentSessionID", "status", "title", "successCriteria", "successCriteriaCompacted", "results"),
        *("createdAt", "updatedAt", "artifacts", "decisions", "logPath"),
    }
    assert state["frames"]["fold"]["invalidationReason"] == "Not needed."
    assert state["frames"]["fold"]["invalidatedAt"] > 0
    assert state["frames"]["fpay"]["plannedChildren"] == ["fbank"]


def test_the_state_of_a_popped_frame_holds_both_forms_of_its_results() -> None:
    tree = desk_after(pushed("fa"), FramePopped("fa", Status.COMPLETED, "long", "short")).tree

    assert tree_state(tree, logs="out")["frames"]["fa"]["resultsCompacted"] == "short"
    assert tree_state(tree, logs="out")["frames"]["fa"]["logPath"] == "out/fa.log"


@pytest.mark.parametrize("name", ["stack_status", "stack_tree", "stack_get_state", "stack_frame_details"])
def test_looking_changes_nothing(name: str) -> None:
    assert run(desk_after(*STORY), call("k", name, frameID="Auth")).events == ()


# --------------------------------------------------------------------------------------------------------------- notes
@pytest.mark.rows("S1-110")
def test_an_artifact_is_noted_on_the_active_frame_once() -> None:
    """S1-110."""
    first = run(desk_after(pushed("fa")), call("k", "stack_add_artifact", artifact="src/a.py"))
    again = run(desk_after(pushed("fa"), *first.events), call("k", "stack_add_artifact", artifact="src/a.py"))

    assert first.events == (ArtifactAdded("fa", "src/a.py"),)
    assert again.events == ()


@pytest.mark.rows("S1-111")
def test_a_decision_is_noted_with_its_reason() -> None:
    """S1-111."""
    done = run(desk_after(pushed("fa")), call("k", "stack_add_decision", decision="Use JWT", reason="no sessions"))

    assert done.events == (DecisionAdded("fa", "Use JWT (because: no sessions)"),)


@pytest.mark.rows("S1-132")
@pytest.mark.parametrize("name", ["stack_add_artifact", "stack_add_decision"])
def test_a_note_without_content_or_on_an_ended_frame_is_an_error(name: str) -> None:
    """S1-132."""
    tool_context = desk_after(*STORY)

    assert ask(tool_context, name).startswith("Error")
    assert ask(tool_context, name, artifact="a", decision="d", frameID="fauth").startswith(
        "Error: frame fauth is completed"
    )
