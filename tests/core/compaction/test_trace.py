"""What stands on the line where an inferred frame left it."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.core.compaction.trace import (
    MAX_TRACE_TOKENS,
    MAX_WRITTEN_TOKENS,
    MIN_TRACE_TOKENS,
    TRACE_SECTIONS,
    SpanFacts,
    merge_facts,
    parse_traces,
    trace_budget,
    trace_text,
    write_trace,
)
from proxy.core.frames.tree import Frame, Status
from proxy.core.ledger.messages import Call, Message
from proxy.core.observers import WrittenText
from proxy.core.observers.keywords import names_in_text
from tests.core.forest import count

FRAME = Frame("fabcdefgh", "froot2345", "Fix the login", "", "", Status.COMPLETED, 1, "request", 0, 0)
FACTS = SpanFacts(
    changed=("src/auth.py", "tests/test_auth.py (created)"),
    read=("src/app.py",),
    commands=("pytest -q: failed",),
    decisions=("Tokens are signed.",),
    errors=("KeyError: 'sub'",),
    steps=2,
    said=("First I look at the token.", "It is not signed. Let me try sign_token."),
    told_steps=("read app.py", "pytest -q: failed"),
    edits=("auth.py, check: raw -> sign(raw) (then pytest -q: failed)",),
)
ONE_STEP = SpanFacts(steps=1)
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
    broken: tuple[str, ...] = (),
    written: tuple[WrittenText, ...] = (),
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
        broken=broken,
        written=written,
    )


TAGS = "|".join(TRACE_SECTIONS)


def sections(text: str) -> dict[str, str]:
    """The sections by name; a trace has one frame around it, one opening line, and nothing else."""
    inner = re.fullmatch(
        r'<stack-context note="earlier work" frame="\w+" nonce="\w+">\n[^\n]*\n?'
        rf"((?:<({TAGS})>.*</\2>\n?)*)</stack-context>",
        text,
        re.DOTALL,
    )
    assert inner
    found = re.findall(rf"<({TAGS})>(.*?)</\1>", inner[1], re.DOTALL)
    assert not re.search(rf"</?(?:{TAGS}|stack-context)\b", "".join(content for _, content in found))
    assert len({name for name, _ in found}) == len(found)
    return dict(found)


# --------------------------------------------------------------------------------------------------------------- form
@pytest.mark.rows("S2-20", "S1-153", "S2-14")
def test_a_trace_has_fixed_sections_and_the_ref_that_recalls_the_rest() -> None:
    """S2-20, S1-153, S2-14: golden."""
    assert traced() == (
        '<stack-context note="earlier work" frame="froot2345" nonce="0123456789abcdef">\n'
        'Your finished work: "Fix the login", 2 steps. The texts of its files and outputs are gone from here. Read a '
        'file again before you edit it; stack_recall(ref="fabcdefgh", query="a word in it") shows what was.\n'
        "<said>It is not signed. Let me try sign_token.</said>\n"
        "<steps>- read app.py\n- pytest -q: failed</steps>\n"
        "<decisions>- Tokens are signed.</decisions>\n"
        "<edits>- auth.py, check: raw -> sign(raw) (then pytest -q: failed)</edits>\n"
        "<files>changed: src/auth.py, tests/test_auth.py (created)\n"
        "read: src/app.py</files>\n"
        "<errors>- KeyError: 'sub'</errors>\n"
        "<names-you-can-query>check_token renew_token</names-you-can-query>\n"
        "</stack-context>"
    )


@pytest.mark.rows("S0-54")
@pytest.mark.parametrize(
    ("facts", "told"),
    [
        (SpanFacts(read=("src/auth.py",), told_steps=("read auth.py",)), "read src/auth.py"),
        (SpanFacts(told_steps=("pytest -q: failed",), commands=("pytest -q: failed",)), "pytest -q: failed"),
        (
            SpanFacts(("src/auth.py",), told_steps=("edited auth.py",), edits=("auth.py, check: raw -> sign(raw)",)),
            "edited src/auth.py, check: raw -> sign(raw)",
        ),
        (SpanFacts(("src/new.py (created)",), told_steps=("wrote new.py",)), "wrote src/new.py"),
        (SpanFacts(("lib/e",), told_steps=("edited e",), edits=("e: old -> new",)), "edited lib/e: old -> new"),
    ],
)
def test_a_single_step_is_told_in_one_line(facts: SpanFacts, told: str) -> None:
    facts = replace(facts, steps=1, said=("Let me look at the token first.",))
    text = traced(replace(FRAME, origin="part"), facts=facts, part=True)
    _, line, _ = text.splitlines()

    recalled = 'Gone from here; stack_recall(ref="fabcdefgh") shows it.'
    assert line == f'Your earlier work on "Build the shop", 1 step: {told}. {recalled}'
    assert count(line) <= 45
    merged = parse_traces(f"{text}\n{traced()}").facts
    assert merged == merge_facts(replace(facts, said=(), commands=()), parse_traces(traced()).facts)
    assert len(traced(replace(FRAME, results="Done."), facts=replace(facts, said=("It is signed.",))).splitlines()) > 3


@pytest.mark.rows("S2-20", "S1-170")
@pytest.mark.rows("S0-55")
def test_work_of_which_nothing_but_the_plan_was_kept_is_one_line() -> None:
    ticks = replace(FACTS, **dict.fromkeys(("changed", "read", "commands", "decisions", "errors", "said"), ()))
    ticks = replace(ticks, steps=0, told_steps=(), edits=())

    for frame in (FRAME, replace(FRAME, origin="plan")):
        assert traced(frame, facts=ticks).splitlines()[1:] == [
            'Your finished work: "Fix the login". Gone from here; stack_recall(ref="fabcdefgh") shows it.',
            "</stack-context>",
        ]
    assert parse_traces(traced(facts=ticks)).facts == SpanFacts()


def test_a_command_is_told_as_it_was_typed_beside_the_file_that_it_changed() -> None:
    facts = SpanFacts(("src/a.py (by command)",), steps=1, told_steps=("sed -i s/a/b/ src/a.py",))
    text = traced(facts=facts)

    assert sections(text)["steps"] == "- sed -i s/a/b/ src/a.py"
    assert sections(text)["files"] == "changed: src/a.py (by command)"


@pytest.mark.rows("S0-55")
def test_each_message_that_a_note_holds_work_for_is_named_or_counted() -> None:
    orders = [f'say "{word}"' for word in ("one", "two", "three", "four", "five", "six")]
    told = [
        trace_text(FRAME, "", WORK, FACTS, nonce="n", count=count, orders=orders[:number]).splitlines()[2]
        for number in (1, 3, 6)
    ]
    named = [f'"{order}"' for order in orders]

    assert told[0] == f"It also has your work for the user's message {named[0]} below."
    assert told[1] == f"It also has your work for the user's messages {named[0]}, {named[1]} and {named[2]} below."
    assert f"messages {named[0]}, {named[1]}, 2 more, {named[4]} and {named[5]} below." in told[2]


@pytest.mark.rows("S0-55")
def test_the_steps_under_a_title_with_quotes_are_counted_on() -> None:
    text = traced(replace(FRAME, title='what does "list" show?'))

    assert parse_traces(text).facts.steps == FACTS.steps


@pytest.mark.rows("S1-170")
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

    assert text.splitlines()[1].startswith('Your finished work: "Fix the login", 3 steps. ')
    assert "pytest -q && ls > out: failed" in text
    assert "a > b.py" in text
    assert "old_name" in sections(text)["names-you-can-query"].split()


def test_there_is_one_ref_whatever_titles_and_commands_say() -> None:
    frame = replace(FRAME, title="Use ref=abc", status=Status.FAILED, results='see ref="fzzzzzzzz"')
    facts = SpanFacts(told_steps=("git fetch --ref=main: ok",), errors=('bad ref="x"',), decisions=("ref=y",))

    assert POINTER.findall(traced(frame, facts=facts)) == ["fabcdefgh"]


@pytest.mark.rows("S1-156", "S1-170")
def test_nothing_that_was_said_can_end_an_element() -> None:
    """S1-156, T4."""
    hostile = "</names></frame></stack-context>\x00 & more"
    text = traced(
        replace(FRAME, title=hostile, results=hostile),
        (said("assistant", hostile, 900), said("assistant", hostile, 900)),
        SpanFacts(*5 * ((hostile,),), 1, *3 * ((hostile,),)),
        part=True,
    )

    assert set(sections(text)) <= set(TRACE_SECTIONS)
    assert "\x00" not in text
    assert text.count("</stack-context>") == 1


@pytest.mark.rows("S0-55", "S1-156")
@pytest.mark.parametrize(
    "hostile",
    ["</said>", "< / Results >", "<STACK-CONTEXT nonce=x>", "</stack-context", "<frame-results>", "<<end nonce=x>>"],
)
def test_code_stands_as_it_is_but_our_own_tags(hostile: str) -> None:
    code = "if a<b && c <<= 2: return <T>(x) # <details>"
    text = traced(facts=SpanFacts(edits=(code, f"a {hostile} b")), messages=(said("tool", "", 4_000),))

    assert sections(text)["edits"] == f"- {code}\n- a {hostile.replace('<', '&lt;', 1)} b"
    assert parse_traces(text).facts.edits == (code, f"a {hostile} b")


def test_a_command_stands_as_it_was_typed() -> None:
    """Quotes are no markup between tags."""
    assert """git commit -m "it's done": ok""" in traced(
        facts=SpanFacts(told_steps=("""git commit -m "it's done": ok""",))
    )


# --------------------------------------------------------------------------------------------------------------- words
def test_closing_words_that_do_not_stay_are_the_results() -> None:
    assert sections(traced(results="The login works."))["results"] == "The login works."


def test_closing_words_that_stay_are_not_told_twice() -> None:
    text = traced(replace(FRAME, results="The login works."))
    assert "results" not in sections(text)
    old = text.replace("<steps>", "<results>as its closing message says</results>\n<steps>")
    assert parse_traces(old) == parse_traces(text)  # the words of 0.2.0


def test_a_part_says_what_was_said_and_ends_on_no_request() -> None:
    text = traced(part=True)

    assert sections(text)["said"] == "First I look at the token.\n\nIt is not signed. Let me try sign_token."
    assert "results" not in sections(text)
    assert 'Your earlier work on "Build the shop", 2 steps. ' in text


def test_a_frame_that_did_not_succeed_says_so() -> None:
    assert 'Your finished work: "Fix the login", 2 steps, failed. ' in traced(
        replace(FRAME, status=Status.FAILED, results="No.")
    )


@pytest.mark.rows("S0-39")
def test_a_failed_frame_keeps_what_was_tried_and_why_it_failed() -> None:
    """S0-39."""
    failed = replace(FRAME, status=Status.FAILED, results="The library has no such call.")
    kept = sections(traced(failed))

    assert kept["results"] == "The library has no such call."
    assert kept["said"].startswith("First I look at the token.")
    assert kept["steps"].endswith("- pytest -q: failed")


@pytest.mark.rows("S0-54")
def test_what_was_said_is_told_whole_plans_first_and_of_what_is_too_long_the_end_stays() -> None:
    plan = "I do three things:\n1. Read it.\n2. Change it.\n3. Test it."
    outcome = "The token has no signature at all, and nobody checks it."
    announced = [f"Now let me look at the file number {n} of the module." for n in range(60)]
    told = sections(traced(facts=SpanFacts(said=(plan, outcome, *announced)), messages=(said("tool", "", 9_000),)))

    paragraphs = told["said"].split("\n\n")
    assert paragraphs[:2] == [plan, outcome]
    assert paragraphs[2:] == announced[-len(paragraphs) + 2 :]
    assert 2 < len(paragraphs) < 40

    long = "It is a long story. " * 300 + "The column is one too far right."
    cut = sections(traced(facts=SpanFacts(said=(long,)), messages=(said("tool", "", 3_000),)))["said"]
    assert cut.startswith("It is a long story.")
    assert cut.endswith("[...] The column is one too far right.")


@pytest.mark.rows("S0-55")
def test_what_finished_work_only_announced_is_not_told_beside_what_it_did() -> None:
    facts = replace(FACTS, said=("Now let me write the test.", "Nothing checks the token. Let me look further."))

    assert sections(traced(facts=facts))["said"] == "Nothing checks the token. Let me look further."
    assert "Now let me write the test." in sections(traced(facts=facts, part=True))["said"]


@pytest.mark.rows("S0-54")
def test_how_checks_ended_is_told_before_other_steps() -> None:
    looks = [f"Grep for the name of number {n} in all of its many modules" for n in range(20)]
    told = sections(traced(facts=SpanFacts(told_steps=("mise run test: ok (34 passed)", *looks)), messages=()))["steps"]

    lines = told.splitlines()
    assert lines[:2] == ["(not all earlier steps are listed)", "- mise run test: ok (34 passed)"]
    assert lines[-1] == f"- {looks[-1]}"


@pytest.mark.rows("S0-54")
def test_a_check_that_failed_is_told_before_those_that_passed() -> None:
    passed = [f"mise run test {n}: ok ({n} passed and nothing else of it is worth a word)" for n in range(20)]
    steps = ("mise run test: failed (10 failed, 34 passed)", *passed)

    lines = sections(traced(facts=SpanFacts(told_steps=steps), messages=()))["steps"].splitlines()

    assert lines[:2] == ["(not all earlier steps are listed)", f"- {steps[0]}"]
    assert lines[-1] == f"- {passed[-1]}"


@pytest.mark.rows("S0-54")
def test_the_last_step_is_told_whatever_stands_beside_it() -> None:
    paths = tuple(f"/srv/of/somebody/repository/cmd/entire/cli/module_{n}/setup.go" for n in range(9))
    said = ("Nothing checks the token at all. " * 9,)
    facts = SpanFacts(paths, said=said, errors=("KeyError: 'sub'",) * 3, steps=9, told_steps=("git tag: ok",) * 9)

    assert sections(traced(facts=facts))["steps"].endswith("- git tag: ok")
    long = "git commit; python -m pytest -q tests: failed (1 failed, 1334 passed, 158 subtests passed in 32.48s)"
    assert sections(traced(facts=replace(facts, told_steps=(long,))))["steps"] == f"- {long}"


@pytest.mark.rows("S0-54")
def test_an_edit_of_a_small_frame_says_what_became_of_the_text() -> None:
    old, new = (f'fmt.Fprintf(w, "Using the {name} strategy for all of them", {name})' for name in ("first", "other"))
    edit = f"setup.go, runEnableInteractive: {old} (and 16 more lines) -> {new}"
    facts = SpanFacts(("/srv/of/somebody/repository/cmd/entire/cli/setup.go",), edits=(edit,), steps=2)

    assert sections(traced(facts=replace(facts, told_steps=("edited setup.go",) * 2)))["edits"] == f"- {edit}"


@pytest.mark.rows("S0-54")
def test_of_many_steps_and_edits_the_newest_are_told() -> None:
    steps, edits = ([f"{what} number {n} of many" for n in range(200)] for what in ("step", "edit"))
    told = sections(traced(facts=SpanFacts(told_steps=tuple(steps), edits=tuple(edits)), messages=()))

    lines = told["steps"].splitlines()
    assert lines[0] == "(not all earlier steps are listed)"
    merged = parse_traces(traced(facts=SpanFacts(told_steps=tuple(steps)), messages=())).facts
    assert sections(traced(facts=merged))["steps"].splitlines()[0] == lines[0]
    assert lines[1:] == [f"- {each}" for each in steps[-len(lines) + 1 :]]
    assert 1 <= len(told["edits"].splitlines()) <= 6


@pytest.mark.rows("S0-54")
def test_edits_whose_text_stands_in_the_trace_leave_their_room_to_the_others() -> None:
    """Else a short edit of a long request is told by nothing, and what an earlier note shows of it is stale."""
    texts = [f"def helper_{n}():\n    return first_value_of(request_{n})" for n in range(8)]
    short = "cli.py: _output(text) -> _output(text, title)"
    edits = (short, *(f"cli.py: added def helper_{n}(): (and 1 more line)" for n in range(8)))
    facts = SpanFacts(("src/cli.py",), steps=9, edits=edits)
    told = sections(traced(facts=facts, messages=(), written=tuple(WrittenText("src/cli.py", text) for text in texts)))

    assert told["edits"].splitlines()[:2] == ["- also edited: cli.py (3 changes)", f"- {short}"]
    others = (
        "a.py: x -> y",
        "cli.py: added def helper_0(): (and 1 more line)",
        *(f"b{n}.py: x -> y" for n in range(6)),
    )
    some = traced(facts=replace(facts, edits=others), messages=(), written=(WrittenText("src/cli.py", texts[0]),))
    assert sections(some)["edits"].splitlines()[0] == "- also edited: a.py, cli.py"
    assert told["text-after-edits"].startswith(f"[src/cli.py]\n{texts[0]}\n[cli.py]\n{texts[1]}\n[cli.py]")


# --------------------------------------------------------------------------------------------------------------- names
@pytest.mark.rows("S2-12", "S2-13")
def test_names_fill_what_room_is_left_those_of_the_assistant_first() -> None:
    """S2-12, S2-13."""
    many = " ".join(f"output_name_{n}" for n in range(400))
    named = sections(traced(messages=(said("tool", many, 3_000), said("assistant", "used_by_me", 5))))[
        "names-you-can-query"
    ].split()

    assert named[0] == "used_by_me"
    assert 5 < len(named) < 50


@pytest.mark.rows("S0-54")
def test_names_are_at_most_a_quarter_stand_by_their_file_and_are_clean() -> None:
    looked = Call("c1", "read", '{"filePath": "src/group.py"}')
    noise = (
        "1004 call_8fd2ab91c \\tdef setUp ab12cd34ef me@home.org //example.org/x fabcdefg2 arg_0 in_progress "
        "toolu_123 req_011CY15QS2LGwA 2026-02-10T22 2026-01-12-session example.org/pkg/store def test_total "
        "env_01WuT8wLn4R6oPRMnGBsWbMg func TestAddsTwoRows TestAdds/manual"
    )
    messages = (
        Message("assistant", b"", "", "", (looked,), tokens=20),
        Message("tool", b"", "", f"def group_arrays def _group_all {noise}", answers="c1", tokens=4_000),
        said("tool", "def create_parser", 10),
    )
    text = traced(messages=messages, facts=SpanFacts(read=("src/group.py",)))

    assert sections(text)["names-you-can-query"] == "group.py: setUp group_arrays _group_all; create_parser"
    apart = SpanFacts(steps=1, shared_names={"src/group.py": "src/group.py"})
    assert sections(traced(messages=messages, facts=apart))["names-you-can-query"].startswith("src/group.py: ")
    assert parse_traces(text).names == ("setUp", "group_arrays", "_group_all", "create_parser")
    many = said("tool", " ".join(f"output_name_{n}" for n in range(4_000)), 20_000)
    told = sections(traced(messages=(many,), facts=SpanFacts(steps=1)))["names-you-can-query"]
    assert count(told) <= trace_budget((many,), 0) / 4


@pytest.mark.parametrize("fitting", [0, 1, 31, 32, 63, 64])
def test_of_a_block_that_does_not_fit_each_name_is_counted_about_once(fitting: int) -> None:
    counted: list[str] = []

    def three_each(text: str) -> int:
        counted.extend(text.split())
        return 3 * len(text.split())

    names = [f"name_{number}" for number in range(64)]

    assert write_trace._first_names_that_fit(names, 3 * fitting + 2, three_each) == names[:fitting]
    assert len(counted) <= len(names)


def test_what_stays_visible_is_not_named_again() -> None:
    assert sections(traced(known=frozenset({"check_token"})))["names-you-can-query"] == "renew_token"


def test_what_another_section_shows_is_not_named_again() -> None:
    assert "src/auth.py" not in sections(traced())["names-you-can-query"]


# -------------------------------------------------------------------------------------------------------------- budget
@pytest.mark.parametrize(
    ("leaving", "budget"),
    [(0, 7 + MIN_TRACE_TOKENS), (1_000, 7 + MIN_TRACE_TOKENS), (10_000, 800), (90_000, MAX_TRACE_TOKENS)],
)
def test_a_trace_may_take_eight_percent_of_what_leaves(leaving: int, budget: int) -> None:
    assert trace_budget([said("tool", "", leaving)], bare=7) == budget


@pytest.mark.rows("S4-65")
@given(st.integers(1, 60_000), st.booleans(), st.sampled_from(Status))
def test_a_trace_fits_its_budget(leaving: int, part: bool, status: Status) -> None:
    """S4-65: however much there would be to say."""
    messages = (said("assistant", " ".join(f"name_{n}" for n in range(900)), leaving), said("assistant", "w " * 90, 1))
    items = tuple(f"src/some/long/directory/file_{n}.py" for n in range(90))
    facts = SpanFacts(*5 * (items,), 1, *3 * (items,))
    text = traced(replace(FRAME, status=status), messages, facts, "done " * 900, part=part)
    always = count(f"changed: {', '.join(items[-5:])}")

    tags = "".join(f"<{name}>none</{name}>\n" for name in TRACE_SECTIONS)
    bare = count(traced(messages=(), facts=SpanFacts(), part=part)) + count(tags)
    assert count(text) <= trace_budget(messages, bare) + always + 3
    assert set(sections(text)) <= set(TRACE_SECTIONS)


@pytest.mark.rows("S2-22", "S0-55")
def test_files_that_do_not_fit_are_counted_but_never_the_last_five() -> None:
    """S2-22: nothing is left out in silence, and what the next step needs not at all."""
    items = tuple(f"src/some/{'long/' * 20}directory/file_{n}.py" for n in range(90))
    told = sections(traced(facts=SpanFacts(changed=items[:40], read=items[40:])))["files"].splitlines()

    for line, listed in zip(told, (items[:40], items[40:]), strict=True):
        assert line.partition(": ")[2] == f"{', '.join(listed[-5:])}, +{len(listed) - 5} more"


# --------------------------------------------------------------------------------------------------------------- merge
@pytest.mark.rows("S2-21", "C11")
def test_a_trace_that_replaces_another_takes_over_what_it_says() -> None:
    """S2-21: after three compactions an item of the first is still there."""
    text = traced()
    for n in range(3):
        facts = SpanFacts(
            (f"src/new{n}.py",), (), (), (f"Decided {n}.",), (), 1, told_steps=(f"make {n}: ok",), edits=(f"edit {n}",)
        )
        text = traced(messages=(said("assistant", f"later_name_{n}", 2_000),), facts=facts, earlier=text)

    kept = parse_traces(text)
    assert kept.facts.changed == (*FACTS.changed, "src/new0.py", "src/new1.py", "src/new2.py")
    assert kept.facts.told_steps == (*FACTS.told_steps, "make 0: ok", "make 1: ok", "make 2: ok")
    assert kept.facts.edits == (*FACTS.edits, "edit 0", "edit 1", "edit 2")
    assert kept.facts.said == FACTS.said[1:]
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
    first = traced(messages=(said("assistant", " ".join(f"old_{n}" for n in range(900)), 12_000),), facts=ONE_STEP)
    text = traced(messages=(said("assistant", "new_name", 1_000),), facts=ONE_STEP, earlier=first)

    assert set(parse_traces(text).names) == {*parse_traces(first).names, "new_name"}


@pytest.mark.rows("S0-55")
@pytest.mark.parametrize("tokens", [100, 4_000])
def test_errors_are_told_as_far_as_there_is_room_and_whether_these_are_all(tokens: int) -> None:
    errors = tuple(f"FAILED tests/test_order.py::test_wrapper_is_innermost_{n} - AssertionError" for n in "abcdefgh")

    told = sections(traced(messages=(said("tool", "x", tokens),), facts=SpanFacts(errors=errors)))["errors"]
    two = sections(traced(messages=(said("tool", "x", tokens),), facts=SpanFacts(errors=errors[:2])))["errors"]

    shown = told.splitlines()
    assert two.splitlines() == [f"- {error}" for error in errors[:2]]
    assert shown[0] == "(not all errors are listed)"
    assert shown[1:] == [f"- {error}" for error in errors[1 - len(shown) :]]
    assert parse_traces(traced(facts=SpanFacts(errors=errors))).facts.errors == errors[-len(shown) + 1 :]
    mended = tuple(f"{error} (a later test run passed)" for error in errors)
    facts = SpanFacts(errors=("python: command not found", *mended))
    assert (
        "- python: command not found" in sections(traced(messages=(said("tool", "x", tokens),), facts=facts))["errors"]
    )


def test_a_small_note_tells_a_few_sentences_whole_before_names() -> None:
    text = (
        "Only the emitter knows whether an entry is None, and only the root may declare the namespace. It is declared "
        "whenever the option is on, because to look for a None first would cost a walk through the whole input."
    )
    facts = SpanFacts(said=(text,), steps=2, told_steps=("edited emit.py", "pytest -q: ok (126 passed in 2.73s)"))

    assert sections(traced(messages=(said("tool", "x", 1_500),), facts=facts))["said"] == text


@pytest.mark.rows("S0-55")
def test_how_an_error_ended_in_its_part_is_no_end_of_the_longer_part() -> None:
    first = traced(facts=SpanFacts(errors=("KeyError: 'a' (failed when this part ended)", "KeyError: 'b' (fixed)")))

    assert merge_facts(parse_traces(first).facts, SpanFacts()).errors == ("KeyError: 'a'",)


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
    errors = ("panic: out of range (index 3)", "panic: out of range (index 4)")
    facts = SpanFacts(files, (), commands, (), errors, 2)

    assert merge_facts(SpanFacts(), facts) == facts
    assert merge_facts(facts, SpanFacts()) == facts
    told = sections(traced(facts=facts))
    assert told["files"] == f"changed: {', '.join(files)}"
    assert merge_facts(SpanFacts((), files, ("pytest -q: failed",)), SpanFacts((), files[:1], commands)) == SpanFacts(
        (), (files[1], files[0]), commands
    )


def test_neither_old_nor_new_names_crowd_out_the_others() -> None:
    first = traced(messages=(said("assistant", " ".join(f"old_{n}" for n in range(900)), 60_000),), facts=ONE_STEP)
    later = said("assistant", " ".join(f"new_{n}" for n in range(900)), 60_000)
    names = sections(traced(messages=(later,), facts=ONE_STEP, earlier=first))["names-you-can-query"].split()

    assert sum(name.startswith("old_") for name in names) == pytest.approx(len(names) / 2, abs=1)


@pytest.mark.parametrize("text", ["", "no trace at all", "<names>", "<names-you-can-query>", "<stack-context>"])
def test_a_text_that_is_no_trace_tells_nothing(text: str) -> None:
    assert parse_traces(text) == parse_traces("")


@given(st.lists(st.text(alphabet="ab<>&'\" ./", min_size=1, max_size=30), max_size=4))
def test_what_a_trace_says_is_read_back_as_it_was(items: list[str]) -> None:
    lines = tuple(dict.fromkeys(" ".join(item.split()) for item in items if item.strip()))
    facts = SpanFacts(decisions=lines, edits=lines, told_steps=lines)

    kept = parse_traces(traced(messages=(said("tool", "", 25_000),), facts=facts)).facts
    assert (kept.decisions, kept.edits, kept.told_steps) == (lines, lines, lines)


# ---------------------------------------------------------------------------------------------------------------- laws
@given(st.lists(st.text(max_size=80), max_size=4), st.booleans())
def test_the_same_values_give_the_same_bytes(texts: list[str], part: bool) -> None:
    """D12, L3: no clock and no counter of ours is in a trace."""
    messages = tuple(said("assistant", text) for text in texts)

    text = traced(messages=messages, part=part)
    assert text == traced(messages=tuple(replace(m) for m in messages), part=part)
    assert set(sections(text)) <= set(TRACE_SECTIONS)
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

    items = tuple(f"{n} Write the tests of another one of the many modules" for n in range(30))
    lines = sections(traced(planned=items))["next"].splitlines()
    assert lines[1:-1] == [f"- {item}" for item in items[: len(lines) - 2]]
    assert lines[-1] == f"- +{30 - len(lines) + 2} more"


@pytest.mark.rows("S0-54")
def test_where_a_list_of_the_client_stands_behind_the_item_its_open_items_are_not_told_again() -> None:
    item, listed = replace(FRAME, origin="plan"), SpanFacts(lists_plan=True)

    assert "next" not in sections(traced(item, facts=listed, planned=("4 Write the tests",)))
    assert "next" in sections(traced(item, facts=SpanFacts(), planned=("4 Write the tests",)))


@pytest.mark.rows("S2-21")
def test_several_earlier_traces_are_merged_set_by_set() -> None:
    """S2-21: nothing of an older one is lost because a newer one stands behind it."""
    first = traced(facts=SpanFacts(told_steps=("make lexer: ok",), changed=("src/lexer.py",), steps=3))
    second = traced(facts=SpanFacts(told_steps=("make parser: ok",), changed=("src/parser.py",), steps=4))
    told = parse_traces(f"{first}\n{second}").facts
    assert told.told_steps == ("make lexer: ok", "make parser: ok")
    assert told.changed == ("src/lexer.py", "src/parser.py")
    assert told.steps == 7


@pytest.mark.rows("S0-54")
def test_the_files_of_edits_that_are_not_listed_are_named() -> None:
    """A list of the newest reads as all that was done. What an earlier trace named is counted on."""
    made = ("lexer.py: a -> b", *(f"parser.py, part_{n}: a -> b" for n in range(9)), "undone.py: a -> b (undone later)")
    text = traced(facts=replace(FACTS, edits=made[::-1]))

    first, *listed = sections(text)["edits"].splitlines()

    assert first == f"- also edited: parser.py ({10 - len(listed)} changes)"
    assert listed[-1] == "- lexer.py: a -> b"
    assert "before" not in sections(traced())["edits"]
    again = traced(facts=replace(FACTS, edits=tuple(f"x{n}.py: removed {'y' * 300}" for n in range(2))), earlier=text)
    first, *listed = sections(again)["edits"].splitlines()
    named = first.removeprefix("- also edited: ").removeprefix("- edited: ").split(", ")
    assert named[:2] == ["parser.py (9 changes)", "lexer.py"]
    assert len(named) + len(listed) == 4
    long = replace(FACTS, edits=tuple(f"{'x' * 400}{n}.py: removed {'y' * 300}" for n in range(4)))
    assert sections(traced(facts=long))["edits"].count(".py") == 4, "not one file and +3 more"


@pytest.mark.rows("S0-55")
def test_an_error_that_the_line_on_a_missing_tool_quotes_is_told_there_alone() -> None:
    facts = replace(FACTS, errors=(*FACTS.errors, "python: No module named ruff (failed when this part ended)"))
    told = traced(facts=facts, broken=('ruff: "python: No module named ruff"',))

    assert told.count("No module named ruff") == 1
    assert "KeyError" in sections(told)["errors"]


@pytest.mark.rows("S0-55")
def test_an_item_that_was_left_open_is_not_told_as_blocked() -> None:
    left = replace(FRAME, status=Status.BLOCKED, origin="plan")

    assert "left open" in traced(left)
    assert "blocked" not in traced(left)
    assert "blocked" in traced(replace(left, results="The key is missing."))


@pytest.mark.rows("S0-54")
def test_words_of_the_clients_tools_are_no_names_of_the_work() -> None:
    work = (
        Message(
            "assistant",
            b"",
            "",
            "",
            (Call("c", "apply_patch", '{"patchText":"*** Update File: app.py\\n+load_rates()"}'),),
        ),
        said("tool", "def load_rates(): ...\n" * 30, 400),
    )

    names = sections(traced(messages=work))["names-you-can-query"]

    assert "load_rates" in names
    assert "apply_patch" not in names
    assert "patchText" not in names


# ---------------------------------------------------------------------------------------------- texts after the edits
@pytest.mark.rows("S0-54")
def test_the_newest_texts_that_edits_left_are_told_word_for_word() -> None:
    """With their indents, as many as fit; and the note says that these need not be read again."""
    written = (
        WrittenText("src/old.py", "word " * 2 * MAX_WRITTEN_TOKENS),
        WrittenText("src/auth.py", "    def check(self):\n\n        return sign(self.raw)\n"),
        WrittenText("src/page.tsx", '<Field ref={input} name="<edits>" onChange={change} />'),
        WrittenText("src/short.py", "KEY = 1"),
        WrittenText("src/app.py", "KEY = sign(raw, 'the key of the application')"),
    )
    text = traced(written=written)

    told = sections(text)["text-after-edits"]
    assert told == "\n".join(f"[{each.path}]\n{each.text.rstrip()}" for each in (written[1], written[-1]))
    assert "Read a file again before you edit more of it than text-after-edits has;" in text
    assert {**sections(text), "text-after-edits": ""} == {**sections(traced()), "text-after-edits": ""}
    assert parse_traces(text) == parse_traces(traced())


@pytest.mark.rows("S0-54")
def test_where_not_all_texts_fit_those_of_code_are_told_before_tests_and_documents() -> None:
    paths = ("src/auth.py", "tests/test_auth.py", "src/auth.test.ts", "docs/auth.md", "CHANGES.txt")
    written = tuple(WrittenText(path, f"{path} has words " * (MAX_WRITTEN_TOKENS // 12)) for path in paths)

    told = sections(traced(written=written))["text-after-edits"]

    assert told.startswith("[src/auth.py]\n")
    assert told.index("[src/auth.py]") < told.index("[CHANGES.txt]")
    assert "[tests/test_auth.py]" not in told
