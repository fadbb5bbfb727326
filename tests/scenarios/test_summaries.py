"""The optional summariser through HTTP on both sides: a model behind a second provider says what folded work came to,
and that stands in the next trace that is written anyway. Nothing waits for it, and nothing fails by it."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest

from llm_test_provider import ScriptedAnswer, ScriptedProvider, html, reset, says, stall, status
from tests.harness import RunningProxy, Stage, as_one_text, bash, does, pop, push, texts
from tests.scenarios.sessions import TOOLS, Session, made_by

MODEL = "claude-haiku-4-5"
"""A model whose prices are known: 1 and 5 USD per million tokens."""
PATIENCE_S = 10.0
ASKS = """
user: Hello, what is this repository?
run ls
says: A parser.
user: Translate the README into French please.
run find sources
todo: [>] Write the lexer | [ ] Write the parser
run make lexer
run make lexer again
todo: [x] Write the lexer | [>] Write the parser
says: The lexer is written.
"""
"""A request with an item of a plan in it: the item is folded when it is done, the request goes on."""
ENDS = """
user: Now finish the rest.
run make parser
todo: [x] Write the lexer | [x] Write the parser | [ ] Write the docs
says: Both are written.
user: Add a workflow for releases to the repository.
run cat workflow
says: Done.
"""
"""The request ends: one trace takes over that of its items."""
SUMMARY = "Progress: the lexer was written by hand. Files: none"


@pytest.fixture
def writer() -> Iterator[ScriptedProvider]:
    """The summariser's provider."""
    with ScriptedProvider() as running:
        yield running


def summarising(stage: Stage, writer: ScriptedProvider, **settings: object) -> RunningProxy:
    """A proxy with the summariser on. Cached tokens cost what fresh ones do, so traces are merged readily."""
    stage.excused |= set(range(1, 100))  # folds change the past of a line; here it is the summaries that are looked at
    asked = {"summaries__model": MODEL, "summaries__upstream": "writer", "summaries__timeout_s": 5}
    return stage.proxy(
        upstreams__writer__url=writer.url,
        upstreams__writer__key="sk-of-the-operator",
        upstreams__writer__models=MODEL,
        default_tariff__read=1,
        frame_max_tokens=40_000,
        **{**asked, **settings},
    )


def session(stage: Stage, provider: ScriptedProvider, proxy: RunningProxy) -> Session:
    return Session(stage.chat(proxy, tools=TOOLS), provider, padding=3_000)


def outcomes(proxy: RunningProxy) -> dict[str, int]:
    """What came of folded spans so far, as `/metrics` tells it."""
    return proxy.counted("callstack_summaries_total", "outcome")


def until(proxy: RunningProxy, **wanted: int) -> None:
    """Returns once so much has come of folded spans; what runs in the background is waited for by what it tells."""
    late = time.monotonic() + PATIENCE_S
    while (told := outcomes(proxy)) != wanted:
        assert time.monotonic() < late, told
        time.sleep(0.01)


def traces(provider: ScriptedProvider) -> list[str]:
    """The traces on the newest line."""
    return [t for t in texts(provider.received[-1].messages)[1:] if t.startswith("user: <stack-context")]


def paid(proxy: RunningProxy) -> list[dict[str, object]]:
    return [receipt for receipt in proxy.receipts() if receipt["status"] == "summary"]


# --------------------------------------------------------------------------------------------------------------- on,
# off
def test_without_a_model_nothing_is_asked_and_nothing_is_told(
    stage: Stage, provider: ScriptedProvider, writer: ScriptedProvider
) -> None:
    """Default off."""
    proxy = summarising(stage, writer, summaries__model="")
    played = session(stage, provider, proxy)
    played.plays(ASKS + ENDS)
    assert traces(provider)
    assert not writer.received
    assert outcomes(proxy) == {}


@pytest.mark.one_process("each counts, and tells, what it does itself")
@pytest.mark.rows("S1-70a", "S4-65")
def test_a_summary_stands_in_the_next_trace_and_changes_none_before(
    stage: Stage, provider: ScriptedProvider, writer: ScriptedProvider
) -> None:
    """S1-70a, S4-65: applied at the next boundary. A warm line is never rewritten for it."""
    proxy = summarising(stage, writer)
    writer.when(MODEL, says(SUMMARY), loop=True)
    played = session(stage, provider, proxy)
    played.plays(ASKS)
    before = traces(provider)
    until(proxy, kept=2)

    first, _, rest = ENDS.partition("user: Add")
    played.plays(first)
    assert traces(provider)[: len(before)] == before
    assert SUMMARY not in as_one_text(provider.received[-1].messages)

    played.plays("user: Add" + rest)
    merged = traces(provider)
    assert len(merged) < len(before) + 2
    assert sum(SUMMARY in trace for trace in merged) == 1
    assert f"<results>{SUMMARY}" in merged[-1]


@pytest.mark.one_process("each counts, and tells, what it does itself")
@pytest.mark.rows("S1-66", "S1-67")
def test_a_summary_is_asked_with_the_operators_key_and_says_what_left(
    stage: Stage, provider: ScriptedProvider, writer: ScriptedProvider
) -> None:
    """S1-66, S1-67: the frame, its parent and what was done, in fixed sections; nothing of the client's headers."""
    proxy = summarising(stage, writer)
    writer.when(MODEL, says(SUMMARY), loop=True)
    played = session(stage, provider, proxy)
    played.chat.headers = {"authorization": "Bearer sk-of-the-client", "x-of-the-client": "secret"}
    played.plays(ASKS)
    until(proxy, kept=2)

    question = writer.received[-1]
    task, record = (str(message["content"]) for message in question.messages)
    assert question.header("authorization") == "Bearer sk-of-the-operator"
    assert "of-the-client" not in str(question.headers)
    assert all(
        section in task for section in ("Progress", "Outcomes", "Decisions", "Dependencies", "Blockers", "Files")
    )
    assert "Title: Write the lexer" in record
    assert "Status: completed" in record
    assert "# Parent\nTitle: Translate the README into French please." in record
    assert "make lexer again" in record
    assert "find sources" not in record
    assert question["max_tokens"] == 1_000


@pytest.mark.one_process("each counts, and tells, what it does itself")
@pytest.mark.rows("S0-18", "S2-21")
def test_what_a_frame_returned_is_in_the_question_and_beside_the_summary(
    stage: Stage, provider: ScriptedProvider, writer: ScriptedProvider
) -> None:
    """The summariser is shown what the call that opened it says by now. Its results are the model's own words: they
    stand beside any summary, in each trace that takes over another."""
    proxy = summarising(stage, writer)
    writer.when(MODEL, says(SUMMARY), loop=True)
    played = session(stage, provider, proxy)
    played.plays(ASKS.partition("todo:")[0] + "says: Translated so far.")
    made = (
        "todo: [>] Write the lexer | [ ] Write the parser",
        "run make lexer",
        "todo: [x] Write the lexer | [ ] Write the parser",
    )
    begins, runs, ends = (does(made_by(step)[0]) for step in made)
    provider.will(
        begins,
        runs,
        does(push("Tables")),
        runs,
        does(pop("gen_tables makes them.")),
        runs,
        ends,
        says("OK."),
    )
    played.chat.says("go on")
    for step in ("todo", "run", "run", "run", "todo"):
        played.chat.returns(played.output(step))
    until(proxy, kept=2)
    played.plays(ENDS)

    records = [str(question.messages[-1]["content"]) for question in writer.received]
    (record,) = [record for record in records if "Title: Write the lexer" in record]
    assert "<frame-results" in record
    assert "<current-frame" not in record
    (told,) = [trace for trace in traces(provider) if "make lexer" in trace]
    assert SUMMARY in told
    assert told.count("gen_tables makes them.") == 1


@pytest.mark.one_process("each counts, and tells, what it does itself")
@pytest.mark.rows("S2-21")
def test_a_second_summary_goes_on_from_the_first(
    stage: Stage, provider: ScriptedProvider, writer: ScriptedProvider
) -> None:
    """S2-21: the earlier summary and the new span, never the old messages again."""
    proxy = summarising(stage, writer)
    writer.when(MODEL, says(SUMMARY), loop=True)
    played = session(stage, provider, proxy)
    played.plays(ASKS)
    until(proxy, kept=2)
    played.plays(ENDS)
    until(proxy, kept=4)

    record = str(writer.received[-1].messages[1]["content"])
    assert f"# Earlier summary\n{SUMMARY}" in record
    assert "find sources" in record
    assert "make lexer again" not in record.partition("# Record")[2]


@pytest.mark.one_process("each counts, and tells, what it does itself")
@pytest.mark.rows("S1-67")
def test_the_instructions_can_be_configured(stage: Stage, provider: ScriptedProvider, writer: ScriptedProvider) -> None:
    """S1-67: and the name of the field that bounds the answer."""
    proxy = summarising(
        stage,
        writer,
        summaries__template="Say {sections} in {words} words, {kindly}.",
        summaries__output_field="max_completion_tokens",
    )
    writer.when(MODEL, says(SUMMARY), loop=True)
    session(stage, provider, proxy).plays(ASKS)
    until(proxy, kept=2)
    question = writer.received[-1]
    assert re.match(r"Say Progress, .*Files in \d+ words, \{kindly\}\.$", str(question.messages[0]["content"]))
    assert (question["max_completion_tokens"], "max_tokens" in question.body) == (1_000, False)


# ---------------------------------------------------------------------------------------------------------------
# falling
@pytest.mark.one_process("each counts, and tells, what it does itself")
@pytest.mark.rows("S1-70c", "S4-65", "S1-165")
@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (status(500), "upstream_error"),
        (status(401), "upstream_error"),
        (html("<p>Please log in.</p>", 200), "empty"),
        (says(""), "empty"),
        (reset(says(SUMMARY)), "upstream_closed"),
        (stall(says(SUMMARY)), "timeout"),
        (says("word " * 9_000), "too_long"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_without_a_usable_summary_the_trace_says_what_it_always_said(
    stage: Stage, provider: ScriptedProvider, writer: ScriptedProvider, answer: ScriptedAnswer, outcome: str
) -> None:
    """S1-70c, S4-65: an error, silence, nonsense, or more than nine tenths of the span."""
    proxy = summarising(stage, writer, **({"summaries__timeout_s": 0.3} if outcome == "timeout" else {}))
    writer.when(MODEL, answer, loop=True)
    played = session(stage, provider, proxy)
    played.plays(ASKS)
    until(proxy, **{outcome: 2})
    played.plays(ENDS)
    assert "<results>The lexer is written.</results>" in traces(provider)[-1]
    assert "word word" not in as_one_text(provider.received[-1].messages)


@pytest.mark.one_process("each counts, and tells, what it does itself")
@pytest.mark.rows("S1-70a")
def test_no_request_waits_for_a_summary_and_the_proxy_stops_without_it(
    stage: Stage, provider: ScriptedProvider, writer: ScriptedProvider
) -> None:
    """Off the request path: with a silent summariser every request is answered; a stop breaks the question off, and
    what it may have cost is told."""
    proxy = summarising(stage, writer, summaries__timeout_s=600)
    writer.when(MODEL, stall(says(SUMMARY)), loop=True)
    played = session(stage, provider, proxy)
    played.plays(ASKS + ENDS)
    assert outcomes(proxy) == {}
    assert len(writer.wait_for(1)) == 1

    proxy.restart()
    (broken,) = paid(proxy)
    assert broken["reason"] == "stopped"
    assert float(str(broken["cost"])) > 1_000 * 5e-6


@pytest.mark.rows("S1-64", "S1-70a")
def test_a_pop_of_the_model_waits_for_no_summary_and_is_told_in_its_own_words(
    stage: Stage, provider: ScriptedProvider, writer: ScriptedProvider
) -> None:
    """What the model returns is the compaction: with a silent summariser too it stands on the next line, and nobody is
    asked about it."""
    proxy = summarising(stage, writer, summaries__timeout_s=600)
    writer.when(MODEL, stall(says(SUMMARY)))
    chat = stage.chat(proxy, tools=TOOLS)
    provider.will(
        does(push("Lexer")),
        does(bash("make")),
        does(pop("The lexer reads all tokens.")),
        says("Done."),
    )
    chat.says("Write the lexer.")
    assert chat.returns("line " * 3_000).text == "Done."

    told = as_one_text(provider.received[-1].messages)
    assert "The lexer reads all tokens." in told
    assert "line line" not in told
    assert (writer.received, outcomes(proxy)) == ([], {})


# -----------------------------------------------------------------------------------------------------------------
# money
@pytest.mark.one_process("each counts, and tells, what it does itself")
def test_what_the_day_may_not_cost_is_not_asked(
    stage: Stage, provider: ScriptedProvider, writer: ScriptedProvider
) -> None:
    proxy = summarising(stage, writer, summaries__usd_per_day=0.006)
    session(stage, provider, proxy).plays(ASKS)
    until(proxy, no_money=2)
    assert not writer.received
    assert not paid(proxy)


@pytest.mark.one_process("each counts, and tells, what it does itself")
def test_a_summary_has_a_receipt_of_its_own_and_is_all_our_cost(
    stage: Stage, provider: ScriptedProvider, writer: ScriptedProvider
) -> None:
    """The untouched run asks nobody, so nothing stands against it."""
    proxy = summarising(stage, writer)
    writer.when(MODEL, says(SUMMARY), loop=True)
    session(stage, provider, proxy).plays(ASKS)
    until(proxy, kept=2)

    for receipt, question in zip(paid(proxy), writer.received, strict=True):
        assert question.usage is not None
        charged = (question.usage.prompt * 1.0 + question.usage.completion * 5.0) / 1_000_000
        assert float(str(receipt["cost"])) == pytest.approx(charged, rel=0.3)
        assert receipt["saved"] == -float(str(receipt["cost"]))
        assert (receipt["cost_untouched"], receipt["tokens_in"]) == (0.0, 0)
        assert (receipt["model"], receipt["upstream"]) == (MODEL, "writer")
        sent = proxy.get(f"/stack/requests/{receipt['id']}")
        assert sent["receipt"]["id"] == receipt["id"]


@pytest.mark.one_process("each counts, and tells, what it does itself")
def test_a_restart_remembers_what_was_spent_and_what_was_written(
    stage: Stage, provider: ScriptedProvider, writer: ScriptedProvider
) -> None:
    """The money of the day is read back from the receipts, the summary from the ledger."""
    proxy = summarising(stage, writer, summaries__usd_per_day=0.03)
    writer.when(MODEL, says(SUMMARY), loop=True)
    played = session(stage, provider, proxy)
    played.plays(ASKS)
    until(proxy, kept=2)
    spent = sum(float(str(receipt["cost"])) for receipt in paid(proxy))
    assert 0.006 < spent < 0.03

    proxy.config = proxy.config.model_copy(
        update={"summaries": proxy.config.summaries.model_copy(update={"usd_per_day": spent + 0.006})}
    )
    proxy.restart()
    played.plays(ENDS)
    until(proxy, no_money=2)
    assert len(writer.received) == 2
    assert f"<results>{SUMMARY}" in traces(provider)[-1]


@pytest.mark.rows("X-51")
def test_a_summariser_that_named_a_time_is_not_asked_before_it(
    stage: Stage, provider: ScriptedProvider, writer: ScriptedProvider
) -> None:
    proxy = summarising(stage, writer)
    writer.when(MODEL, status(429, headers={"retry-after": "3600"}), loop=True)
    played = session(stage, provider, proxy)
    played.plays(ASKS)
    until(proxy, upstream_error=1, resting=1)
    assert len(writer.received) == 1
    played.plays(ENDS)
    assert len(writer.received) == 1
    assert "<results>The lexer is written.</results>" in traces(provider)[-1]
