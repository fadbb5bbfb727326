"""What an item of a plan is said to have brought: outcomes, never announcements."""

import pytest

from proxy.core.frames.results import outcome_part, results_of_item


@pytest.mark.rows("S0-55")
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Now let me update main.go.", ""),
        ("I'll extend the parser.", ""),
        (
            "Good, the filter package doesn't exist yet. Let me create it.",
            "Good, the filter package doesn't exist yet.",
        ),
        ("Good. Now the tests:", ""),
        ("Perfect! Next, update the call.", ""),
        ("The tests pass now. Moving on to the docs.", "The tests pass now."),
        ("Now the tests pass.", "Now the tests pass."),
        ("I need to update the signature.", ""),
        ("We have added a flag. Shall I go on?", "We have added a flag."),
        ("Great, all 12 tests pass.", "Great, all 12 tests pass."),
        ("grouping.py:265 passes extend=True. 461 passed.", "grouping.py:265 passes extend=True. 461 passed."),
        ("", ""),
    ],
)
def test_an_announcement_says_no_outcome(text: str, told: str) -> None:
    assert outcome_part(text) == told


@pytest.mark.rows("S0-55")
@pytest.mark.parametrize(
    ("texts", "closing", "told"),
    [
        (
            ["I look around.", "The loop starts at 1."],
            "It starts at 0 now; 5 passed. Next: docs.",
            "It starts at 0 now; 5 passed.",
        ),
        (["The loop starts at 1."], "Now let me write the docs.", "The loop starts at 1."),
        (["It reads two files.", "The bug is in the loop: it starts at 1."], "", "It reads two files."),
        (["The bug in the loop is fixed."], "", "The bug in the loop is fixed."),
        (["Let me look."], "I'll go on.", ""),
        (["RESULT: a flag", "It works."], "Done it all.", "a flag"),
        ([], "", ""),
    ],
)
def test_results_of_an_item_are_what_its_texts_say_came_of_it(texts: list[str], closing: str, told: str) -> None:
    assert results_of_item(texts, closing) == told
