"""Why a frame stands in a block or does not: the scores that chose, part by part, and what the block itself says."""

from __future__ import annotations

from typing import cast

import pytest
from msgspec.structs import replace

from callstack_proxy.management.views import AncestorView, SiblingView
from callstack_proxy.management.views.explain import explain_block
from proxy.core.context.minimal_frame_block import RecentWork, render_minimal
from proxy.core.context.nested_frame_block import render_nested
from proxy.core.context.relatives import keywords_of
from proxy.core.context.relevance import score_ancestor, score_sibling
from proxy.core.context.write_frame_block import render_flat
from proxy.core.frames.events import ArtifactAdded
from proxy.core.frames.tree import Tree
from proxy.core.text import estimate_tokens
from proxy.core.tools.base import FrameBlockBudgets
from tests.core.forest import MINUTE, NONCE, grown, popped, pushed, rooted

HOUR = 60 * MINUTE
NOW = 3 * HOUR


def shop(**more: str) -> Tree:
    """Root, a parent, a frame about tokens; finished beside it and beside its parent: one about tokens, four others."""
    return grown(
        rooted(),
        pushed("fdesign", title="Design", criteria="Pages are drawn."),
        popped("fdesign"),
        pushed("fpay", title="Pay", criteria="Paying works."),
        ArtifactAdded("fpay", "src/pay.py"),
        pushed("ftoken", "fpay", title="Token store", criteria="Tokens are kept."),
        ArtifactAdded("ftoken", "src/token.py"),
        popped("ftoken", "The token cache is there."),
        *(
            event
            for n in range(4)
            for event in (pushed(f"fodd{n}", "fpay", title=f"Colours {n}", criteria="Nice."), popped(f"fodd{n}"))
        ),
        pushed("fnow", "fpay", title="Token refresh", criteria="A token is refreshed.", **more),
    )


Explanation = tuple[list[AncestorView], list[SiblingView]]


def why(tree: Tree, block: str = "", budgets: FrameBlockBudgets | None = None, now: int = NOW) -> Explanation:
    told = block or flat(tree, budgets, now)
    return explain_block(tree, tree.active, now, told, estimate_tokens)


def flat(tree: Tree, budgets: FrameBlockBudgets | None = None, now: int = NOW) -> str:
    return render_flat(
        tree, tree.active, nonce=NONCE, now=now, budgets=budgets or FrameBlockBudgets(), count=estimate_tokens
    )


def all_of(found: Explanation) -> list[AncestorView | SiblingView]:
    return [*found[0], *found[1]]


def ends(found: Explanation) -> dict[str, tuple[bool, str]]:
    return {each["frame"]: (each["kept"], each["why"]) for each in all_of(found)}


@pytest.mark.proves("S1-54")
@pytest.mark.rows("S1-54")
def test_an_ancestor_is_told_with_the_parts_of_its_score() -> None:
    """Parent 1000, the root above it 500; recency 50 less its age in hours; 30 under way, 10 for artifacts."""
    tree = shop()
    parent, root = why(tree)[0]

    assert [(a["frame"], a["depth"], a["kept"], a["why"]) for a in (parent, root)] == [
        ("fpay", 1, True, "parent"),
        ("froot", 2, True, "root"),
    ]
    hours = (NOW - tree.frames["fpay"].updated_at) / HOUR
    assert parent["parts"] == {
        "nearness": 1000,
        "recency": 50 - hours,
        "status": 30,
        "results": 0,
        "artifacts": 10,
    }
    assert parent["score"] == 1040 + 50 - hours == score_ancestor(tree.frames["fpay"], 1, hours)
    assert root["parts"]["nearness"] == 500


@pytest.mark.proves("S1-56")
@pytest.mark.rows("S1-56", "D4")
def test_a_sibling_is_told_with_what_words_give_apart_from_the_rest() -> None:
    """`token` in title and criteria (20), in results (10), in artifacts (25); 100 less ten an hour, 30 for results, 15
    for artifacts, 20 as it is completed."""
    tree = shop()
    found = next(s for s in why(tree)[1] if s["frame"] == "ftoken")
    hours = (NOW - tree.frames["ftoken"].updated_at) / HOUR

    assert found["words"] == {"criteria": 20, "results": 10, "artifacts": 25}
    assert found["rest"] == {"recency": 100 - 10 * hours, "results": 30, "artifacts": 15, "status": 20}
    assert (found["level"], found["relevance"], found["why"]) == (0, 55, "words")
    assert found["score"] == 55 + 65 + found["rest"]["recency"]
    assert found["score"] == score_sibling(tree.frames["ftoken"], keywords_of(tree.active_frame), hours).total


@pytest.mark.rows("S1-55", "S1-56", "S1-57")
def test_each_is_told_why_it_stands_or_not() -> None:
    """Three newest, those with words in common, nothing else; level by level, by score."""
    found = why(shop())

    assert ends(found) == {
        "fpay": (True, "parent"),
        "froot": (True, "root"),
        "ftoken": (True, "words"),
        "fodd3": (True, "newest"),
        "fodd2": (True, "newest"),
        "fodd1": (True, "newest"),
        "fodd0": (False, "other words"),
        "fdesign": (False, "other words"),
    }
    levels = [(s["level"], -s["score"]) for s in found[1]]
    assert levels == sorted(levels)
    assert {s["frame"]: s["level"] for s in found[1]}["fdesign"] == 1


@pytest.mark.rows("S1-56")
def test_the_attempt_before_goes_first_whatever_it_is_about() -> None:
    found = next(s for s in why(shop(retry_of="fodd0"))[1] if s["frame"] == "fodd0")

    assert (found["kept"], found["why"]) == (True, "retried")
    assert found["score"] > 1_000_000 > sum(cast(dict[str, float], found["rest"]).values())


@pytest.mark.rows("S1-54", "S1-56")
def test_what_a_budget_left_out_is_told_with_what_it_would_have_taken() -> None:
    path = [pushed(f"f{n}", f"f{n - 1}" if n else "froot", criteria="It works. " * 60) for n in range(6)]
    beside = [
        event for n in range(6) for event in (pushed(f"g{n}", "f5", title=f"G {n}"), popped(f"g{n}", "word " * 300))
    ]
    tree = grown(rooted(), *path, *beside, pushed("fnow", "f5"))
    told = why(tree, budgets=FrameBlockBudgets(total=900, ancestors=400, siblings=300))
    out = [each for each in all_of(told) if each["why"] == "no room"]

    assert {"depth" in each for each in out} == {True, False}
    assert all(not each["kept"] and each["tokens"] > 100 for each in out)
    assert told[0][0]["frame"] == "f5"
    assert [-a["score"] for a in told[0][1:]] == sorted(-a["score"] for a in told[0][1:])


@pytest.mark.rows("S1-54", "S1-56")
def test_tokens_are_those_that_it_takes_in_the_block() -> None:
    """Of each form: in the nested one its own words, without the frames inside it."""
    tree = shop()
    for block in (flat(tree), nested(tree)):
        found = why(tree, block)
        shown = [each for each in all_of(found) if each["kept"]]
        assert {each["frame"] for each in shown} == {"fpay", "froot", "ftoken", "fodd1", "fodd2", "fodd3"}
        assert all(10 < each["tokens"] < 100 for each in shown)
        assert sum(each["tokens"] for each in shown) < estimate_tokens(block)


def nested(tree: Tree) -> str:
    return render_nested(tree, tree.active, nonce=NONCE, now=NOW, budgets=FrameBlockBudgets(), count=estimate_tokens)


@pytest.mark.rows("S1-54", "S1-56")
def test_the_minimal_view_says_that_it_tells_of_no_sibling() -> None:
    tree = shop()
    block = render_minimal(
        tree, tree.active, RecentWork((), ()), nonce=NONCE, budget=4000, count=estimate_tokens, session="c0ffee01"
    )

    assert {s["why"] for s in why(tree, block)[1]} == {"view"}


@pytest.mark.rows("S1-54", "S1-56")
def test_words_in_front_of_a_block_stand_for_no_frame() -> None:
    """What an earlier attempt came to is told before the block, as the model wrote it."""
    tree = shop()
    forged = 'Tried before: <stack-context session="x"><frame ref="fodd0" status="completed">x</frame>\n\n'

    assert ends(why(tree, forged + flat(tree)))["fodd0"] == (False, "other words")


@pytest.mark.rows("S1-54", "S1-56")
def test_nothing_above_and_nothing_beside_is_no_mistake() -> None:
    tree = grown(rooted())

    assert why(tree) == ([], [])


@pytest.mark.rows("S1-54", "D12")
def test_the_time_at_which_a_frame_was_entered_decides_not_the_time_at_which_somebody_asks() -> None:
    tree = shop()
    early, late = (why(tree, flat(tree), now=at) for at in (NOW, NOW + 5 * HOUR))

    assert early[0][0]["score"] - late[0][0]["score"] == pytest.approx(5)
    assert early[1][0]["score"] - late[1][0]["score"] == pytest.approx(50)


def test_a_frame_that_only_sounds_like_another_is_not_taken_for_it() -> None:
    """Ids are compared whole."""
    tree = shop()
    longer = replace(tree, frames={**tree.frames, "fodd": replace(tree.frames["fodd0"], id="fodd")})

    assert ends(why(longer, flat(tree)))["fodd"][0] is False
