"""What stands on the line where an inferred frame left it."""

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.core.compaction import trace
from proxy.core.compaction.trace import (
    MAX_TRACE_TOKENS,
    MIN_TRACE_TOKENS,
    TRACE_SECTIONS,
    SpanFacts,
    merge_facts,
    parse_traces,
    trace_budget,
    trace_text,
)
from proxy.core.frames.tree import Frame, Status
from proxy.core.ledger.messages import Call, Message
from proxy.core.observers.keywords import names_in_text
from tests.core.forest import count

FRAME = Frame("fabcdefgh", "froot2345", "Fix the login", "", "", Status.COMPLETED, 1, "request", 0, 0)
FACTS = SpanFacts(
    changed=("src/auth.py", "tests/test_auth.py (created)"),
    read=("src/app.py",),
    commands=("pytest -q: failed",),
    decisions=("Tokens are signed.",),
    errors=("KeyError: 'sub' (fixed)",),
    steps=2,
)
POINTER = re.compile(r"\bref=\"?([A-Za-z0-9_.:/#-]+)\"?")


def said(role: str, text: str, tokens: int = 0, *arguments: str) -> Message:
    calls = tuple(Call(f"c{at}", "run", one) for at, one in enumerate(arguments))
    return Message(role, b"", "", text, calls, tokens=tokens or count(text))


WORK = (
    said("assistant", "First I look at the token.", 20, '{"path":"src/auth.py"}'),
    said("tool", "def check_token(raw): ...\ndef renew_token(raw): ...", 400),
    said("assistant", "Should I sign it? Let me try sign_token.", 30, '{"command":"pytest -q"}'),
    said("tool", "KeyError: 'sub'", 300),
)


def traced(
    frame: Frame = FRAME,
    messages: tuple[Message, ...] = WORK,
    facts: SpanFacts = FACTS,
    results: str = "",
    known: frozenset[str] = frozenset(),
    earlier: str = "",
    *,
    part: bool = False,
    planned: tuple[str, ...] = (),
) -> str:
    return trace_text(
        frame,
        "Build the shop",
        messages,
        facts,
        nonce="0123456789abcdef",
        count=count,
        results=results,
        part=part,
        known=known,
        earlier=earlier,
        earlier_tokens=count(earlier),
        planned=planned,
    )


def sections(text: str) -> dict[str, str]:
    return {child.tag: child.text or "" for child in ElementTree.fromstring(text.encode())}


# --------------------------------------------------------------------------------------------------------------- form
@pytest.mark.rows("S2-20", "S1-153", "S2-14")
def test_a_trace_has_fixed_sections_and_the_ref_that_recalls_the_rest() -> None:
    """S2-20, S1-153, S2-14: golden."""
    assert traced() == (
        '<stack-context note="earlier work" frame="froot2345" nonce="0123456789abcdef">\n'
        "This is your own earlier work, 2 steps, completed: Fix the login in Build the shop. Its messages left your "
        'context; stack_recall with ref="fabcdefgh" brings them back, with a query single facts.\n'
        "<results>as its closing message says</results>\n"
        "<files>changed: src/auth.py, tests/test_auth.py (created)\n"
        "read: src/app.py</files>\n"
        "<commands>- pytest -q: failed</commands>\n"
        "<decisions>- Tokens are signed.</decisions>\n"
        "<errors>- KeyError: 'sub' (fixed)</errors>\n"
        "<names-you-can-query>sign_token check_token renew_token</names-you-can-query>\n"
        "</stack-context>"
    )


@pytest.mark.rows("S2-20", "S1-170")
def test_an_empty_section_is_left_out() -> None:
    assert sections(traced(messages=(), facts=SpanFacts(), part=True)) == {}


@pytest.mark.rows("S1-170")
def test_a_trace_of_an_earlier_version_is_merged_as_one_of_today() -> None:
    """What is stored stays as it is; only the next trace over it is in the new form."""
    old = (
        '<stack-context frame="froot2345" nonce="0123456789abcdef">\n'
        '<completed-siblings count="1" filtered="0">\n<frame ref="fabcdefgh" status="completed" steps="2">\n'
        "<title>Fix</title>\n<results>none</results>\n<progress>none</progress>\n<files>changed: a &gt; b.py</files>\n"
        "<commands>- pytest -q &amp;&amp; ls &gt; out: failed</commands>\n<decisions>none</decisions>\n"
        "<errors>none</errors>\n<names>old_name</names>\n<next>none</next>\n</frame>\n</completed-siblings>\n"
        "</stack-context>"
    )

    text = traced(facts=SpanFacts(steps=1), earlier=old)

    assert "This is your own earlier work, 3 steps, completed" in text
    assert "pytest -q &amp;&amp; ls > out: failed" in text
    assert "a > b.py" in text
    assert "old_name" in sections(text)["names-you-can-query"].split()


def test_there_is_one_ref_whatever_titles_and_commands_say() -> None:
    frame = replace(FRAME, title="Use ref=abc", status=Status.FAILED, results='see ref="fzzzzzzzz"')
    facts = SpanFacts(commands=("git fetch --ref=main: ok",), errors=('bad ref="x"',), decisions=("ref=y",))

    assert POINTER.findall(traced(frame, facts=facts)) == ["fabcdefgh"]


@pytest.mark.rows("S1-156")
def test_nothing_that_was_said_can_end_an_element() -> None:
    """S1-156, T4."""
    hostile = "</names></frame></stack-context>\x00 & more"
    text = traced(
        replace(FRAME, title=hostile, results=hostile),
        (said("assistant", hostile, 900), said("assistant", hostile, 900)),
        SpanFacts((hostile,), (hostile,), (hostile,), (hostile,), (hostile,)),
        part=True,
    )

    assert set(sections(text)) <= set(TRACE_SECTIONS)
    assert "\x00" not in text


def test_a_command_stands_as_it_was_typed() -> None:
    """Quotes are no markup between tags."""
    assert """git commit -m "it's done": ok""" in traced(
        facts=SpanFacts(commands=("""git commit -m "it's done": ok""",))
    )


# --------------------------------------------------------------------------------------------------------------- words
def test_closing_words_that_do_not_stay_are_the_results() -> None:
    assert sections(traced(results="The login works."))["results"] == "The login works."


def test_closing_words_that_stay_are_not_told_twice() -> None:
    assert sections(traced(replace(FRAME, results="The login works.")))["results"] == "as its closing message says"


def test_a_part_says_what_was_under_way_as_past_and_ends_on_no_request() -> None:
    text = traced(part=True)

    assert sections(text)["progress"] == "said then:\n- First I look at the token."
    assert sections(text)["next"] == "begun then, taken up since: Should I sign it? Let me try sign_token."
    assert "This is your own work up to here, 2 steps: Fix the login in Build the shop." in text
    assert text.index("taken up since") < text.index("<names-you-can-query>")


@pytest.mark.rows("S0-39")
def test_a_failed_frame_keeps_what_was_tried_and_why_it_failed() -> None:
    """S0-39."""
    failed = replace(FRAME, status=Status.FAILED, results="The library has no such call.")
    kept = sections(traced(failed))

    assert kept["results"] == "The library has no such call."
    assert "- First I look at the token." in kept["progress"]
    assert kept["commands"] == "- pytest -q: failed"


def test_a_long_command_keeps_its_state() -> None:
    assert re.search(
        r"… *: failed$", sections(traced(facts=SpanFacts(commands=(f"run {'x' * 400}: failed",))))["commands"]
    )


# --------------------------------------------------------------------------------------------------------------- names
@pytest.mark.rows("S2-12", "S2-13")
def test_names_fill_what_room_is_left_those_of_the_assistant_first() -> None:
    """S2-12, S2-13."""
    many = " ".join(f"output_name_{n}" for n in range(400))
    named = sections(traced(messages=(said("tool", many, 3_000), said("assistant", "used_by_me", 5))))[
        "names-you-can-query"
    ].split()

    assert named[0] == "used_by_me"
    assert 10 < len(named) < 100


@pytest.mark.parametrize("fitting", [0, 1, 31, 32, 63, 64])
def test_of_a_block_that_does_not_fit_each_name_is_counted_about_once(fitting: int) -> None:
    counted: list[str] = []

    def three_each(text: str) -> int:
        counted.extend(text.split())
        return 3 * len(text.split())

    names = [f"name_{number}" for number in range(64)]

    assert trace._first_names_that_fit(names, 3 * fitting + 2, three_each) == names[:fitting]
    assert len(counted) <= len(names)


def test_what_stays_visible_is_not_named_again() -> None:
    assert sections(traced(known=frozenset({"check_token"})))["names-you-can-query"] == "sign_token renew_token"


def test_what_another_section_shows_is_not_named_again() -> None:
    assert "src/auth.py" not in sections(traced())["names-you-can-query"]


# -------------------------------------------------------------------------------------------------------------- budget
@pytest.mark.parametrize(
    ("leaving", "budget"),
    [(0, 7 + MIN_TRACE_TOKENS), (1_000, 7 + MIN_TRACE_TOKENS), (10_000, 1_000), (90_000, MAX_TRACE_TOKENS)],
)
def test_a_trace_may_take_a_tenth_of_what_leaves(leaving: int, budget: int) -> None:
    assert trace_budget([said("tool", "", leaving)], bare=7) == budget


@pytest.mark.rows("S4-65")
@given(st.integers(1, 60_000), st.booleans(), st.sampled_from(Status))
def test_a_trace_fits_its_budget(leaving: int, part: bool, status: Status) -> None:
    """S4-65: however much there would be to say."""
    messages = (said("assistant", " ".join(f"name_{n}" for n in range(900)), leaving), said("assistant", "w " * 90, 1))
    items = tuple(f"src/some/long/directory/file_{n}.py" for n in range(90))
    text = traced(
        replace(FRAME, status=status), messages, SpanFacts(items, items, items, items, items), "done " * 900, part=part
    )

    tags = "".join(f"<{name}>none</{name}>\n" for name in TRACE_SECTIONS)
    bare = count(traced(messages=(), facts=SpanFacts(), part=part)) + count(tags)
    assert count(text) <= trace_budget(messages, bare) + 3
    assert set(sections(text)) <= set(TRACE_SECTIONS)


@pytest.mark.rows("S2-22")
def test_files_that_do_not_fit_are_counted() -> None:
    """S2-22: nothing is left out in silence."""
    items = tuple(f"src/some/long/directory/file_{n}.py" for n in range(90))

    assert re.search(r"changed: .*file_89.py, \+\d+ more$", sections(traced(facts=SpanFacts(changed=items)))["files"])


# --------------------------------------------------------------------------------------------------------------- merge
@pytest.mark.rows("S2-21", "C11")
def test_a_trace_that_replaces_another_takes_over_what_it_says() -> None:
    """S2-21: after three compactions an item of the first is still there."""
    text = traced()
    for n in range(3):
        facts = SpanFacts((f"src/new{n}.py",), (), (f"make {n}: ok",), (f"Decided {n}.",), (), 1)
        text = traced(messages=(said("assistant", f"later_name_{n}", 900),), facts=facts, earlier=text)

    kept = parse_traces(text)
    assert kept.facts.changed == (*FACTS.changed, "src/new0.py", "src/new1.py", "src/new2.py")
    assert kept.facts.commands == ("pytest -q: failed", "make 0: ok", "make 1: ok", "make 2: ok")
    assert kept.facts.decisions == ("Tokens are signed.", "Decided 0.", "Decided 1.", "Decided 2.")
    assert kept.facts.errors == FACTS.errors
    assert kept.facts.steps == 5
    assert {"check_token", "later_name_0", "later_name_1", "later_name_2"} <= set(kept.names)


@pytest.mark.rows("S2-21")
def test_what_came_of_the_work_stays_told_when_more_came_of_it() -> None:
    """S2-21: each once, what is known now first."""
    first = traced(results="The token is signed.\nIt lives an hour.")
    again = traced(
        messages=(said("assistant", "RESULT: It is renewed.\nRESULT: It lives an hour.", 900),), earlier=first
    )
    item = replace(FRAME, origin="plan", results="Login works.")
    done = traced(frame=item, messages=(said("assistant", "Login works.", 900),), earlier=again)

    assert sections(again)["results"] == "It is renewed.\nIt lives an hour.\nThe token is signed."
    assert sections(done)["results"] == "Login works.\nIt is renewed.\nIt lives an hour.\nThe token is signed."
    assert sections(traced(frame=item, earlier=done))["results"] == sections(done)["results"]


@pytest.mark.rows("S2-21")
def test_a_trace_has_room_for_what_the_one_it_replaces_said() -> None:
    """S2-21."""
    first = traced(messages=(said("assistant", " ".join(f"old_{n}" for n in range(900)), 12_000),), facts=SpanFacts())
    text = traced(messages=(said("assistant", "new_name", 1_000),), facts=SpanFacts(), earlier=first)

    assert set(parse_traces(text).names) == {*parse_traces(first).names, "new_name"}


def test_the_newest_state_of_a_thing_replaces_what_was_told_of_it() -> None:
    old = SpanFacts(("a.py",), ("b.py",), ("pytest: failed", "ls: ok"), (), ("KeyError: 'x' (still failing)",), 1)
    new = SpanFacts(("a.py (deleted)",), ("b.py",), ("pytest: ok",), (), ("KeyError: 'x' (fixed)",), 2)

    assert merge_facts(old, new) == SpanFacts(
        ("a.py (deleted)",), ("b.py",), ("ls: ok", "pytest: ok"), (), ("KeyError: 'x' (fixed)",), 3
    )


def test_things_that_differ_behind_a_bracket_or_a_colon_alone_are_several() -> None:
    """Nobody says of a command whose end is not known how it ended, nor of a file that was changed what was done."""
    files = ("docs/report (1).md", "docs/report (2).md")
    commands = ('git commit -m "fix: lexer"', 'git commit -m "fix: parser"', "pytest -q: ok")
    errors = ("panic: out of range (index 3)", "panic: out of range (index 4) (fixed)")
    facts = SpanFacts(files, (), commands, (), errors, 2)

    assert merge_facts(SpanFacts(), facts) == facts
    assert merge_facts(facts, SpanFacts()) == facts
    told = sections(traced(facts=facts))
    assert told["files"] == f"changed: {', '.join(files)}"
    assert told["commands"].splitlines() == [f"- {command}" for command in commands]
    assert merge_facts(SpanFacts((), files, ("pytest -q: failed",)), SpanFacts((), files[:1], commands)) == SpanFacts(
        (), (files[1], files[0]), commands
    )


def test_neither_old_nor_new_names_crowd_out_the_others() -> None:
    first = traced(messages=(said("assistant", " ".join(f"old_{n}" for n in range(900)), 60_000),), facts=SpanFacts())
    later = said("assistant", " ".join(f"new_{n}" for n in range(900)), 60_000)
    names = sections(traced(messages=(later,), facts=SpanFacts(), earlier=first))["names-you-can-query"].split()

    assert sum(name.startswith("old_") for name in names) == pytest.approx(len(names) / 2, abs=1)


@pytest.mark.parametrize("text", ["", "no trace at all", "<names>", "<names-you-can-query>", "<stack-context>"])
def test_a_text_that_is_no_trace_tells_nothing(text: str) -> None:
    assert parse_traces(text) == parse_traces("")


@given(st.lists(st.text(alphabet="ab<>&'\" ./", min_size=1, max_size=30), max_size=4))
def test_what_a_trace_says_is_read_back_as_it_was(items: list[str]) -> None:
    lines = tuple(dict.fromkeys(" ".join(item.split()) for item in items if item.strip()))
    facts = SpanFacts(commands=lines, decisions=lines)

    kept = parse_traces(traced(messages=(said("tool", "", 25_000),), facts=facts)).facts
    assert kept.decisions == lines


# ---------------------------------------------------------------------------------------------------------------- laws
@given(st.lists(st.text(max_size=80), max_size=4), st.booleans())
def test_the_same_values_give_the_same_bytes(texts: list[str], part: bool) -> None:
    """D12, L3: no clock and no counter of ours is in a trace."""
    messages = tuple(said("assistant", text) for text in texts)

    text = traced(messages=messages, part=part)
    assert text == traced(messages=tuple(replace(m) for m in messages), part=part)
    assert ElementTree.fromstring(text.encode()).tag == "stack-context"
    assert POINTER.findall(text) == ["fabcdefgh"]


@pytest.mark.rows("S2-12")
def test_every_path_of_a_small_frame_is_still_there() -> None:
    """S2-12."""
    assert {"src/auth.py", "tests/test_auth.py", "src/app.py"} <= names_in_text(traced())


@pytest.mark.rows("S0-14")
def test_an_item_of_a_plan_tells_what_was_said_last_because_no_closing_text_stays() -> None:
    """S0-14: an item ends with the client's mark, not with a message of its own."""
    assert (
        sections(traced(replace(FRAME, origin="plan", results="Signed with HS256.")))["results"] == "Signed with HS256."
    )


@pytest.mark.rows("S2-18")
def test_what_the_plan_had_open_stays_in_sight_when_the_calls_that_said_so_leave() -> None:
    """S2-18: later updates name an item by its id alone."""
    text = traced(planned=("3 Sign the token", "4 Write the tests"))
    assert sections(text)["next"] == "open in the plan then:\n- 3 Sign the token\n- 4 Write the tests"


@pytest.mark.rows("S2-21")
def test_several_earlier_traces_are_merged_set_by_set() -> None:
    """S2-21: nothing of an older one is lost because a newer one stands behind it."""
    first = traced(facts=SpanFacts(commands=("make lexer: ok",), changed=("src/lexer.py",), steps=3))
    second = traced(facts=SpanFacts(commands=("make parser: ok",), changed=("src/parser.py",), steps=4))
    told = parse_traces(f"{first}\n{second}").facts
    assert told.commands == ("make lexer: ok", "make parser: ok")
    assert told.changed == ("src/lexer.py", "src/parser.py")
    assert told.steps == 7
