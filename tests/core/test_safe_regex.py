"""Patterns of titles: which are taken, and that looking is over in a moment (S1-71a, S1-118, S1-163)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.safe_regex import (
    MAX_PATTERN_CHARACTERS,
    MAX_TEXT_CHARACTERS,
    matches_any,
    pattern_error,
)
from tests.pace import within

pytestmark = pytest.mark.rows("S1-71a", "S1-118")
KNOWN_SUBAGENT_TITLES = (r"@.*subagent", r"subagent", r"\[Task\]")
"""Titles that known clients give to subagents."""


@pytest.mark.parametrize(
    ("text", "fit"),
    [
        ("Look for the parser (@explore subagent)", True),
        ("You are a SUBAGENT.", True),
        ("[task] look for the parser", True),
        ("Look for the parser", False),
        ("a task", False),
        ("x" * MAX_TEXT_CHARACTERS + "subagent", False),
    ],
)
def test_the_documented_patterns_know_such_titles_whatever_their_case(text: str, fit: bool) -> None:
    """Only the beginning of a text is looked at."""
    assert [pattern_error(pattern) for pattern in KNOWN_SUBAGENT_TITLES] == ["", "", ""]
    assert matches_any(KNOWN_SUBAGENT_TITLES, text) is fit


@pytest.mark.parametrize(
    "pattern",
    [
        "^explore",
        r"(explore|plan) agent",
        r"\bagent\b.*#\d{1,4}",
        "[]a]+x",
        ".*a.*b",
        "x{120}y",
        "(ab){3}c",
        "(?:a)b",
        "a{}",
    ],
)
def test_what_a_title_may_look_like_is_taken(pattern: str) -> None:
    assert pattern_error(pattern) == ""


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("(", "is no regular expression (missing )"),
        ("[[a]", "is no regular expression (Possible nested set"),
        ("a{99999999999999999999}", "is no regular expression (the repetition number is too large)"),
        ("a" * (MAX_PATTERN_CHARACTERS + 1), "a pattern of 201 characters is too long: give at most 200."),
        ("", "fits an empty text"),
        ("a|", "fits an empty text"),
        ("(a+)+b", "could take too long: use at most two repeats"),
        ("(a|aa)+$", "could take too long"),
        ("a?" * 30 + "a" * 30, "could take too long"),
        ("(a|a)" * 20 + "b", "could take too long"),
        (".*a.*b.*c", "could take too long"),
        ("((((){99}){99}){99}){99}x", "could take too long"),
        ("(?=a)b", "has a group with (? that is none of (?:...)"),
        ("(?i)a", "has a group with (? that is none of (?:...)"),
        (r"(a)\1", "names a group or a character by number"),
    ],
)
def test_what_is_wrong_with_a_pattern_is_said(pattern: str, says: str) -> None:
    assert says in pattern_error(pattern)
    assert len(pattern_error(pattern)) < 250


@settings(max_examples=400, deadline=None)
@given(
    pattern=st.lists(
        st.sampled_from(["a", "b", ".", "(", ")", "|", "*", "+", "?", "{2}", "{0,9}", "[ab]", r"\b", "^"]), max_size=14
    ).map("".join),
    text=st.sampled_from(
        [
            "a" * MAX_TEXT_CHARACTERS,
            "ab" * MAX_TEXT_CHARACTERS,
            "b" * MAX_TEXT_CHARACTERS + "a",
            "aab" * MAX_TEXT_CHARACTERS,
        ]
    ),
)
def test_whatever_is_taken_is_over_in_a_moment(pattern: str, text: str) -> None:
    """The bound is a hundred times what was measured; a pattern that may be tried in too many ways takes years."""
    if pattern_error(pattern):
        return
    with within(1.0):
        matches_any((pattern,), text)
