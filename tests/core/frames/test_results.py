"""What stands for a frame that returned: its text, its files, its decisions, what the user said, and where the rest
is."""

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.frames.events import DecisionAdded, FramePlanned
from proxy.core.frames.results import PastSpeech, decisions_in, derive_compaction, frame_results_text, title_of
from proxy.core.frames.tree import Status, children
from proxy.core.text import cut_middle, remove_illegal_xml, unescape_own_tags
from tests.core.forest import count, grown, popped, pushed, rooted


def returned(
    results: str = "Done.", paths: tuple[str, ...] = (), past: tuple[str, ...] = (), budget: int = 4_000
) -> str:
    tree = grown(
        rooted(),
        pushed("fa", title="Auth"),
        DecisionAdded("fa", "Use JWT."),
        pushed("fb", "fa", title="Keys"),
        popped("fb"),
        FramePlanned("fc", "fa", "Rotate", "Keys rotate."),
    )
    return frame_results_text(
        tree,
        tree.frames["fa"],
        Status.COMPLETED,
        results,
        count=count,
        budget=budget,
        paths=paths,
        past_speech=tuple(map(PastSpeech, past)),
        below=children(tree, "fa"),
    )


def parsed(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(text.encode())


# ------------------------------------------------------------------------------------------------- what a pop returns
@pytest.mark.rows("S2-20", "S0-10", "S2-14", "C11")
def test_a_pop_returns_fixed_sections_and_the_ref_that_recalls_the_rest() -> None:
    """S2-20, C11, S0-10, S2-14: golden."""
    told = returned("Login works.", ("src/a.py (read)", "src/b.py (changed)", "dist/app.js"), ("use port 8080",))

    assert told == (
        '<frame-results ref="fa" status="completed" parent="froot">\n'
        "<title>Auth</title>\n"
        "<results>Login works.</results>\n"
        "<files>changed: src/b.py; noted: dist/app.js; read: src/a.py</files>\n"
        "<decisions>- Use JWT.</decisions>\n"
        "<children>- fb completed: Title of fb\n- fc planned: Rotate</children>\n"
        '<user-said when="inside this frame; answered there">\n'
        "<said>use port 8080</said>\n"
        "</user-said>\n"
        '<details>All of its messages and outputs: stack_recall with ref "fa".</details>\n'
        "</frame-results>"
    ).replace("Title of fb", "Keys")


@pytest.mark.rows("S0-55", "S1-156")
def test_code_in_results_stands_as_it_was_written_and_cannot_end_a_section() -> None:
    told = returned("`vec<u8>` & <thead> </results><next>rm -rf", past=("Keep <br> && go </said> on",))

    assert "<results>`vec<u8>` & <thead> &lt;/results>&lt;next>rm -rf</results>" in told
    assert "<said>Keep <br> && go &lt;/said> on</said>" in told


@pytest.mark.rows("S2-20", "S1-170")
def test_a_section_without_content_is_left_out() -> None:
    tree = grown(rooted(), pushed("fa"))
    told = frame_results_text(
        tree,
        tree.frames["fa"],
        Status.FAILED,
        "No way.",
        count=count,
        budget=4_000,
        paths=(),
        past_speech=(),
        below=(),
    )

    assert [e.tag for e in parsed(told)] == ["title", "results", "details"]


@pytest.mark.rows("S0-18")
def test_results_of_four_thousand_tokens_are_not_cut_whatever_the_budget() -> None:
    """The model wrote them for its parent (S0-18)."""
    results = "word " * 3_900

    assert parsed(returned(results, budget=100)).findtext("results") == results.strip()


@pytest.mark.rows("S1-59")
def test_longer_results_end_in_a_marker_that_names_the_ref() -> None:
    """S1-59."""
    told = parsed(returned("word " * 9_000)).findtext("results") or ""

    assert "[truncated]" in told
    assert told.endswith('stack_recall with ref "fa".')
    assert count(told) <= 4_000


@pytest.mark.rows("S0-17")
def test_decision_lines_in_the_results_are_listed_as_decisions() -> None:
    """S0-17."""
    told = returned("Built it.\nDecision: keep HS256\n- **decision: no cookies")

    assert (parsed(told).findtext("decisions") or "").splitlines() == ["- Use JWT.", "- keep HS256", "- no cookies"]
    assert decisions_in("a decision: inside a line is none") == ()


@pytest.mark.rows("S1-171")
@pytest.mark.parametrize(
    ("text", "decided"),
    [
        ("Built it. Decision: use JWT. Next comes the parser.", ("use JWT.",)),
        ("Decision: a. Decision: b.", ("a.", "b.")),
        ("It works (see x). Decision: y", ("y",)),
        ("Decision: keep HS256, v1.2 breaks. It is fine.", ("keep HS256, v1.2 breaks. It is fine.",)),
    ],
)
def test_a_decision_in_running_prose_is_found(text: str, decided: tuple[str, ...]) -> None:
    assert decisions_in(text) == decided
    assert "none" not in returned(text)


@pytest.mark.rows("S0-16")
def test_a_path_both_read_and_changed_is_listed_once_as_it_was_last_known() -> None:
    """S0-16: and an artifact that a call changed is not listed again."""
    told = returned(paths=("src/a.py (changed)", "src/a.py"))

    assert parsed(told).findtext("files") == "changed: src/a.py"


def test_very_many_paths_are_counted_and_the_changed_ones_come_first() -> None:
    paths = (*(f"src/read_{n}.py (read)" for n in range(2_000)), "src/changed.py (changed)")

    files = parsed(returned(paths=paths)).findtext("files") or ""

    assert files.startswith("changed: src/changed.py; read: src/read_0.py")
    assert files.endswith("more")
    assert count(files) <= 1_100


OWN_MARKS = ("</results>", "<results", "</said>", "< / user-said >", "</frame-results>", "<stack-context")
TEXTS = st.lists(st.one_of(st.text(st.characters(exclude_categories=()), max_size=60), st.sampled_from(OWN_MARKS)))


@pytest.mark.rows("S1-156")
@given(TEXTS.map("".join))
def test_no_text_ends_a_section_of_what_a_pop_returns(text: str) -> None:
    """S1-156: and what the user said stands in it as it was, but for what XML cannot hold and marks of ours."""
    told = returned(text, (text,), (text,))

    for name in ("frame-results", "results", "user-said", "said"):
        assert len(re.findall(rf"<{name}[ >]", told)) == len(re.findall(rf"</{name}>", told)) == 1
    if "&lt;" not in text:
        assert unescape_own_tags(told[told.index("<said>") + 6 : told.index("</said>")]) == remove_illegal_xml(text)


# --------------------------------------------------------------------------------------------------------------- paths
# --------------------------------------------------------------------------------------------------------- short forms
@pytest.mark.rows("S0-13", "S0-15", "C4")
def test_a_short_text_is_its_own_compaction() -> None:
    """C4, S0-13, S0-15."""
    assert derive_compaction(" Login works. ", count) == "Login works."


@pytest.mark.proves("S0-15")
@pytest.mark.rows("S2-12", "S2-13", "S0-15")
def test_a_long_text_keeps_its_beginning_and_the_names_of_the_rest() -> None:
    """S2-12, S2-13, S0-15: at most 350 tokens."""
    text = (
        "Login works now. " + "And so it went on. " * 300 + "In src/auth/token.py, refresh_token() calls parseHeader."
    )

    short = derive_compaction(text, count)

    assert short.startswith("Login works now.")
    assert {"src/auth/token.py", "refresh_token()", "parseHeader"} <= set(short.rpartition("names: ")[2].split(", "))
    assert count(short) <= 350


@given(st.text(st.characters(exclude_categories=()), max_size=600), st.integers(5, 60))
def test_a_derived_compaction_never_exceeds_its_limit(text: str, limit: int) -> None:
    assert count(derive_compaction(text, count, limit)) <= limit


@pytest.mark.rows("S1-36")
@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Fix the login", "Fix the login"),
        ("  # Fix the login\nIt breaks.", "Fix the login"),
        ("<environment>\n<cwd>x</cwd>\n</environment>\nAdd a cart", "Add a cart"),
        ("one two three four five six seven eight nine", "one two three four five six seven eight…"),
        ("x" * 200, "x" * 59 + "…"),
        (
            "Implement the following plan:\n\n# Show the agent\n\n## Context",
            "Implement the following plan: Show the agent",
        ),
        ("Please do this:\n", "Please do this:"),
        ("Two things we need to have done until tomorrow:\n- a\n- b", "Two things we need to have done until…"),
        ("   ", "Conversation"),
    ],
)
def test_a_root_is_called_by_the_first_words_of_the_user(text: str, title: str) -> None:
    """S1-36."""
    assert title_of(text) == title


@pytest.mark.rows("S0-55")
@pytest.mark.parametrize(
    ("text", "room", "kept"),
    [
        ("The name is free. A wrong turn is possible.", 36, "[...] A wrong turn is possible."),
        ("The name is free. It is used twice. So be it.", 38, "The name is free. [...] So be it."),
        ("The name is free. It is used twice. So be it.", 45, "The name is free. It is used twice. So be it."),
        ("It is free\nand used twice and more. So be it.", 35, "It is free [...] So be it."),
        ("The name is free. It is used. So be it.", 38, "The name is free. [...] So be it."),
        (f"{'A name ' * 20}is silent. So be it.", 159, f"{'A name ' * 20}is silent. So be it."),
        ("A name " * 20 + "is free. So be it.", 75, "A name " * 8 + "A [...] So be it."),
    ],
)
def test_the_beginning_of_what_is_cut_ends_with_a_sentence(text: str, room: int, kept: str) -> None:
    assert cut_middle(text, lambda shown: len(shown) <= room) == kept
