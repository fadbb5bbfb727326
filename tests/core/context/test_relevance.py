"""What is worth its tokens: the figures of S1-53 to S1-59, one test each, and the laws of cutting and escaping."""

from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.core.context.relevance import (
    relevant_siblings,
    score_ancestor,
    score_sibling,
    select_ancestors,
    select_siblings,
)
from proxy.core.frames.tree import Frame, Status, next_planned, position_of
from proxy.core.text import (
    STOP_WORDS,
    TRUNCATION_MARKER,
    count_shared_keywords,
    cut_for_display,
    escape_attribute,
    escape_xml,
    estimate_tokens,
    extract_keywords,
    format_duration,
    join_whole,
    longest_fitting,
    remove_illegal_xml,
    truncate_to_tokens,
)

AGED = 1_000.0
"""Hours after which no score has a recency bonus."""


def frame(name: str, status: Status = Status.PLANNED, **more: Any) -> Frame:
    """A frame as it is born, with `more` of its fields."""
    return replace(Frame(name, "root", f"title {name}", "", "", status, 0, "model", 0, 0), **more)


# --------------------------------------------------------------------------------------------------------------- texts
@pytest.mark.proves("S1-53")
@pytest.mark.rows("S1-53", "C9", "S1-160")
@pytest.mark.parametrize(("text", "tokens"), [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("x" * 4_000, 1_000)])
def test_a_token_is_estimated_as_four_characters_rounded_up(text: str, tokens: int) -> None:
    """S1-53, C9."""
    assert estimate_tokens(text) == tokens


def test_a_text_that_fits_is_not_touched() -> None:
    assert truncate_to_tokens("  all of it\n", 10, estimate_tokens) == "  all of it\n"


@pytest.mark.rows("S1-59", "S1-160")
def test_a_cut_falls_back_to_the_end_of_a_word_within_the_last_fifth() -> None:
    """S1-59."""
    cut = truncate_to_tokens("alpha beta gamma delta epsilon zeta eta theta", 9, estimate_tokens)

    assert cut == "alpha beta gamma delta [truncated]"


@pytest.mark.rows("S1-59")
def test_a_cut_in_one_long_word_stays_where_it_is() -> None:
    """S1-59: only a border within the last fifth counts."""
    cut = truncate_to_tokens("ab " + "x" * 400, 20, estimate_tokens)

    assert cut.removesuffix(" " + TRUNCATION_MARKER) == "ab " + "x" * (80 - 3 - len(" " + TRUNCATION_MARKER))


@pytest.mark.rows("S1-59")
def test_a_border_before_the_last_fifth_is_too_far_back() -> None:
    """S1-59."""
    cut = truncate_to_tokens("a" * 40 + " " + "b" * 400, 20, estimate_tokens)

    assert cut == "a" * 40 + " " + "b" * 27 + " " + TRUNCATION_MARKER


def test_a_counter_that_takes_more_for_less_is_still_obeyed() -> None:
    """A tokenizer may: a cut can part what was one token."""

    def odd(text: str) -> int:
        return len(text) + (5 if "beta [" in text else 0)

    cut = truncate_to_tokens("alpha beta " + "g" * 40, 24, odd)

    assert cut.startswith("alpha b")
    assert odd(cut) <= 24


def test_where_not_even_the_marker_fits_nothing_is_left() -> None:
    assert truncate_to_tokens("x" * 100, 1, estimate_tokens) == ""


@given(st.text(max_size=400), st.integers(0, 60))
def test_a_cut_text_never_exceeds_its_budget_and_begins_as_the_text_does(text: str, budget: int) -> None:
    cut = truncate_to_tokens(text, budget, estimate_tokens)

    assert estimate_tokens(cut) <= budget or cut == text
    assert text.startswith(cut.removesuffix(TRUNCATION_MARKER).rstrip())


@given(st.text(max_size=300), st.integers(0, 300))
def test_the_longest_beginning_that_fits_is_found(text: str, limit: int) -> None:
    assert longest_fitting(text, lambda kept: len(kept) <= limit) == min(len(text), limit)


@pytest.mark.rows("S0-11")
def test_a_title_is_shown_on_one_line_of_sixty_characters() -> None:
    """S0-11: longer text is accepted, and cut for display."""
    assert cut_for_display("two\n  lines") == "two lines"
    assert len(cut_for_display("word " * 40)) <= 60
    assert cut_for_display("word " * 40).endswith("word…")
    assert cut_for_display("Give the caller a method names() in shop/_caller.py, then test it", 45) == (
        "Give the caller a method names() in…"
    )
    assert cut_for_display("read " + "x" * 60, 20) == "read " + "x" * 14 + "…"
    assert join_whole(["f1 Auth", "f2 CHANGELOG.md", "f3 Rest"], 40) == "f1 Auth, f2 CHANGELOG.md, f3 Rest"
    assert join_whole(["f1 Auth", "f2 CHANGELOG.md", "f3 Rest"], 24) == "f1 Auth, f2 CHANGELOG.md, +1 more"
    assert join_whole(["f1 Auth", "f2 CHANGELOG.md", "f3 Rest"], 20) == "f1 Auth, +2 more"
    assert join_whole(["f1 " + "x" * 60, "f2 Rest"], 20) == "f1 " + "x" * 16 + "…, +1 more"


@pytest.mark.rows("S1-160")
@pytest.mark.parametrize(
    ("milliseconds", "shown"),
    [(0, "0ms"), (850, "850ms"), (2_500, "2.5s"), (90_000, "1.5m"), (3_600_000, "1.0h"), (5_400_000, "1.5h")],
)
def test_a_duration_is_told_in_the_largest_unit_with_one_decimal(milliseconds: int, shown: str) -> None:
    """S1-160."""
    assert format_duration(milliseconds) == shown


@pytest.mark.rows("S1-156", "S1-160")
def test_mark_up_is_escaped() -> None:
    """In an element only what XML forbids there; in an attribute all five."""
    assert escape_xml("& < > \" ' ]]>") == "&amp; &lt; > \" ' ]]&gt;"
    assert escape_attribute("& < > \" '") == "&amp; &lt; &gt; &quot; &apos;"


@pytest.mark.parametrize("illegal", ["\x00", "\x08", "\x0b", "\x1b", "\r", "\ud800", "\ufffe", "\uffff"])
def test_what_no_document_may_hold_is_taken_out(illegal: str) -> None:
    """T4."""
    assert remove_illegal_xml(f"a{illegal}b\t\n") == "ab\t\n"


@pytest.mark.rows("S1-156")
@given(st.text(st.characters(exclude_categories=())))
def test_any_escaped_text_is_read_back_by_a_parser_as_the_cleaned_text(text: str) -> None:
    """S1-156, T4: lone surrogates included."""
    parsed = ElementTree.fromstring(f"<a>{escape_xml(text)}</a>".encode())

    assert (parsed.text or "") == remove_illegal_xml(text)


# ------------------------------------------------------------------------------------------------------------ keywords
@pytest.mark.proves("S1-58")
@pytest.mark.rows("S1-58", "S1-160")
def test_names_and_paths_are_split_and_kept_whole() -> None:
    """S1-58."""
    assert {"src", "auth", "token"} <= extract_keywords("src/auth/Token.ts")
    assert {"parse", "xml", "tree", "parsexmltree"} <= extract_keywords("parseXMLTree")
    assert {"read", "config", "file"} <= extract_keywords("read_config_file")


@pytest.mark.rows("S1-58")
def test_short_and_common_words_are_no_keywords() -> None:
    """S1-58: longer than two letters, and fifty stop words."""
    assert extract_keywords("to go and with The of") == frozenset()
    assert len(STOP_WORDS) == 50


@pytest.mark.rows("S1-58")
def test_letters_of_every_script_are_kept() -> None:
    """S1-58."""
    assert {"größe".casefold(), "проверка"} <= extract_keywords("Größe, проверка!")


# -------------------------------------------------------------------------------------------------------------- scores
@pytest.mark.rows("S1-54", "S1-160")
@pytest.mark.parametrize(("depth", "points"), [(1, 1000), (2, 500), (3, 40), (4, 20), (5, 0), (9, 0)])
def test_an_ancestor_scores_by_how_near_it_is(depth: int, points: int) -> None:
    """S1-54."""
    assert score_ancestor(frame("f"), depth, AGED) == points


@pytest.mark.proves("S1-54")
@pytest.mark.rows("S1-54")
@pytest.mark.parametrize(
    ("ancestor", "age", "points"),
    [
        (frame("f"), 0, 50),
        (frame("f"), 20, 30),
        (frame("f", Status.IN_PROGRESS), AGED, 30),
        (frame("f", Status.COMPLETED), AGED, 10),
        (frame("f", results="r"), AGED, 20),
        (frame("f", artifacts=("a",)), AGED, 10),
    ],
)
def test_an_ancestor_scores_by_age_status_results_and_artifacts(ancestor: Frame, age: float, points: float) -> None:
    """S1-54."""
    assert score_ancestor(ancestor, 9, age) == points


@pytest.mark.rows("S1-56", "D4", "S1-160")
@pytest.mark.parametrize(
    ("sibling", "relevance", "rest"),
    [
        (frame("f"), 0, 0),
        (frame("f", criteria="the token expires"), 20, 0),
        (frame("f", results="token rotated"), 10, 30),
        (frame("f", artifacts=("src/Token.ts",)), 25, 15),
        (frame("f", Status.COMPLETED), 0, 20),
        (frame("f", Status.FAILED), 0, 15),
        (frame("f", Status.BLOCKED), 0, 0),
    ],
)
def test_a_sibling_scores_by_shared_words_apart_from_the_rest(sibling: Frame, relevance: int, rest: float) -> None:
    """S1-56, D4."""
    score = score_sibling(sibling, frozenset({"token"}), AGED)

    assert (score.relevance, score.base) == (relevance, rest)
    assert score.total == relevance + rest


@pytest.mark.rows("S1-56", "D12")
def test_a_sibling_loses_ten_points_an_hour() -> None:
    """S1-56, D12: the age is handed in."""
    assert score_sibling(frame("f"), frozenset(), 0).base == 100
    assert score_sibling(frame("f"), frozenset(), 3).base == 70


# ----------------------------------------------------------------------------------------------------------- selection
def lineage(length: int) -> list[Frame]:
    """The parent first."""
    return [frame(f"f{depth}", order=length - depth) for depth in range(length)]


@pytest.mark.rows("S1-55")
def test_the_parent_is_chosen_even_where_it_alone_exceeds_the_budget() -> None:
    """S1-55."""
    chosen = select_ancestors(lineage(3), {"f0": 500, "f1": 10, "f2": 10}, dict.fromkeys(("f0", "f1", "f2"), 0.0), 100)

    assert [f.id for f in chosen.chosen] == ["f0"]
    assert chosen.omitted == 2


@pytest.mark.rows("S1-55")
def test_ancestors_that_do_not_fit_are_skipped_and_the_rest_stands_from_the_root_down() -> None:
    """S1-55."""
    costs = {"f0": 10, "f1": 95, "f2": 10, "f3": 10}

    chosen = select_ancestors(lineage(4), costs, dict.fromkeys(costs, 0.0), 50)

    assert [f.id for f in chosen.chosen] == ["f3", "f2", "f0"]
    assert chosen.omitted == 1


@pytest.mark.proves("C10")
@pytest.mark.rows("D4", "C10", "S1-57")
def test_an_old_sibling_about_something_else_is_left_out_but_never_the_three_newest() -> None:
    """S1-57, C10, D4: the original figures would have kept all of them."""
    level = [frame(f"f{at}", Status.COMPLETED, results="done", updated_at=at, order=at) for at in range(6)]
    scores = {f.id: score_sibling(f, frozenset({"token"}), AGED) for f in level}

    (kept,) = relevant_siblings([level], scores)

    assert {f.id for f in kept} == {"f3", "f4", "f5"}


@pytest.mark.proves("S1-57")
@pytest.mark.rows("S1-57")
def test_an_old_sibling_that_shares_words_is_kept() -> None:
    """S1-57."""
    level = [frame(f"f{at}", Status.COMPLETED, updated_at=at, order=at) for at in range(6)]
    level[0] = frame("f0", Status.COMPLETED, criteria="token", results="token")
    scores = {f.id: score_sibling(f, frozenset({"token"}), AGED) for f in level}

    (kept,) = relevant_siblings([level], scores)

    assert "f0" in {f.id for f in kept}


@pytest.mark.rows("S1-57", "C2")
def test_siblings_share_one_budget_nearest_level_first_and_stand_most_recent_first() -> None:
    """C2, S1-57."""
    near = [frame("n1", updated_at=1, order=1), frame("n2", updated_at=2, order=2)]
    far = [frame("u1", updated_at=9, order=0)]
    costs = {"n1": 10, "n2": 10, "u1": 10}

    assert [f.id for f in select_siblings([near, far], costs, 20).chosen] == ["n2", "n1"]
    assert [f.id for f in select_siblings([near, far], costs, 30).chosen] == ["n2", "n1", "u1"]
    assert select_siblings([near, far], costs, 20).omitted == 1


# --------------------------------------------------------------------------------------------------------------- order
@pytest.mark.rows("S1-145")
def test_the_position_counts_the_children_of_one_parent_without_those_withdrawn() -> None:
    """S1-145."""
    family = [frame(f"f{at}", order=at) for at in range(3)] + [frame("gone", Status.INVALIDATED, order=9)]

    assert position_of(family[1], family) == (2, 3)


@pytest.mark.rows("S1-145")
def test_an_item_of_the_clients_list_comes_behind_those_that_ended() -> None:
    """A client writes new items between the old ones: told by its birth, the sixth of eleven ended nine before it."""
    names = ["read", "tests", "edit", "lint"]
    family = [frame(name, Status.COMPLETED, order=at, origin="plan") for at, name in enumerate(names)]
    family[1] = replace(family[1], status=Status.IN_PROGRESS)

    assert position_of(family[1], family) == (4, 4)


@pytest.mark.rows("S1-149", "S1-160")
def test_the_next_sibling_is_the_first_planned_behind_else_an_earlier_one() -> None:
    """S1-149."""
    family = [frame("a", order=0), frame("b", Status.IN_PROGRESS, order=1), frame("c", order=2)]
    behind, wrapped, none = family, family[:2], family[1:2]

    assert [f.id if f else "" for f in (next_planned(family[1], m) for m in (behind, wrapped, none))] == ["c", "a", ""]


@given(
    st.lists(st.sampled_from(["parse", "xml", "tree", "straße", "strasse", "login", "fix", "ǆ", "i̇stanbul"])),
    st.text(st.sampled_from("parseXMLTree_ Straßeǅİ-./login"), max_size=60),
)
def test_keywords_held_by_a_text_are_those_it_shares(wanted: list[str], text: str) -> None:
    keywords = frozenset(wanted) | extract_keywords(text[:9])

    assert count_shared_keywords(keywords, text) == len(keywords & extract_keywords(text))
