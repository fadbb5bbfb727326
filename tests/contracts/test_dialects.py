"""What every dialect keeps: one scripted run, played in each of them, comes to the same (X-20, DESIGN 4).

The run has all that moves a line: frames that the model pushes, plans and pops, calls of ours beside the client's,
parallel calls, something asked back, frames seen in the client's own plan, and work that leaves. It is told once, in
the neutral form of `tests.harness`; a new dialect is played by its name in `DIALECTS` and its tongue in
`tests.client_dialects`, and by nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from llm_test_provider import Model, ScriptedProvider, says
from proxy.dialects import DIALECTS
from tests.client_dialects import CHAT, TONGUES, TestDialect
from tests.harness import (
    Conversation,
    RecordingProvider,
    activate,
    bash,
    does,
    op,
    plan,
    pop,
    push,
    recall,
    running_stage,
)
from tests.laws import calls_of, text_of
from tests.scenarios.sessions import TOOLS, Session, portrait

NEAR = 0.02
"""How far two dialects may be apart in what they save, as a share: their envelopes differ in length."""
WORK = """
    user: Build the formatter.
    read spec.md
    todo: [>] Lexer | [ ] Parser
    edit src/lexer.py & read src/tokens.py
    run pytest -q
    todo: [x] Lexer | [>] Parser
    edit src/parser.py
    todo: [x] Lexer | [x] Parser
    says: The formatter is built.
    user: Implement a rate limiter for the public API.
    read src/limit.py
    edit src/limit.py & run pytest -q
    says: There is a token bucket in src/limit.py.
    user: Investigate why the nightly billing export takes five hours.
    run time ./export --sample
    says: Every invoice is read twice, once for its tax.
"""


@dataclass(frozen=True)
class Played:
    """What came of the run in one dialect."""

    trees: list[str]
    """Of each conversation the frames with their origins, statuses, titles and parents, and what each owns."""
    heard: list[tuple[str, int, list[str]]]
    """What the client was told: texts, how many calls, finishes."""
    lines: list[list[tuple[str, int, bool]]]
    """Every line that left, in shape: of each message its role, its calls, and whether we wrote into it."""
    events: list[list[str]]
    """What the receipts tell, less the names of frames."""
    saved: float
    """Tokens saved of those that the client sent, as a share."""
    breaches: list[str]


def play(provider: ScriptedProvider, chat: Conversation) -> None:
    """The part that the model steers; the frames of the other part nobody pushed."""
    provider.will(
        does(plan("Model", "View"), text="First a plan."), does(activate("Model"), bash("ls src"), bash("ls tests")),
        does(op("add_decision", decision="JWT"), bash("cat a.py"), text="Looking.", reasoning="Which file is it?"),
        does(pop("The model is a.py.")), says("The model is done.", reasoning="That was all."),
    )  # fmt: skip
    chat.says("Add a login.")
    chat.returns("a.py b.py", "test_a.py")
    chat.returns("class User: ...")
    provider.will(
        does(push("Tokens", "they expire")),
        does(bash("pytest")),
        does(pop("12 passed.")),
        says("They do."),
    )
    chat.says("And its tokens?")
    chat.returns("12 passed in 0.1 s")
    provider.will(does(recall("Tokens")), says("Twelve."))
    chat.says("How many tests were that?")


def played(tongue: TestDialect, folder: Path) -> Played:
    bound = [Model("scripted-model", binding="error" if tongue.signs else "none")]
    with (
        RecordingProvider(models=bound) as provider,
        running_stage(provider, folder, streamed=True, tongue=tongue) as stage,
    ):
        proxy = stage.proxy()
        play(provider, stage.chat(proxy, tools=TOOLS))
        Session(stage.chat(proxy, tools=TOOLS), provider, padding=3_000).plays(WORK)
        receipts = proxy.receipts()
        answers = [note.answer for note in stage.notes if note.answer]
        total = proxy.get("/stack/totals")["total"]
        return Played(
            sorted(portrait(proxy, row["id"]) for row in proxy.conversations),
            [(answer.text, len(answer.calls), answer.finishes) for answer in answers],
            [[_shape(message) for message in received.messages] for received in provider.asked],
            [[event.split()[0] for event in receipt["events"]] for receipt in receipts],
            total["tokens_saved"] / total["tokens_in"],
            stage.breaches(),
        )


def _shape(message: dict[str, Any]) -> tuple[str, int, bool]:
    return str(message["role"]), len(calls_of(message)), "<stack-context" in text_of(message)


@pytest.fixture(scope="module")
def in_chat(tmp_path_factory: pytest.TempPathFactory) -> Played:
    return played(CHAT, tmp_path_factory.mktemp("chat"))


@pytest.fixture(scope="module", params=sorted(dialect.name for dialect in DIALECTS.values()))
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Played:
    assert request.param in TONGUES, f"{request.param} has no tongue in tests.client_dialects: nobody can play it"
    return played(TONGUES[request.param], tmp_path_factory.mktemp(request.param))


@pytest.mark.rows("X-20", "X-13")
def test_every_dialect_keeps_the_laws(run: Played) -> None:
    """L1 to L8, and what the API itself forbids."""
    assert run.breaches == []


@pytest.mark.rows("X-20")
def test_every_dialect_makes_the_same_tree(run: Played, in_chat: Played) -> None:
    assert run.trees == in_chat.trees
    assert "completed: Model" in run.trees[0]
    assert "plan completed: Lexer" in run.trees[1]


@pytest.mark.rows("X-20")
def test_every_dialect_shows_its_client_the_same(run: Played, in_chat: Played) -> None:
    assert run.heard == in_chat.heard


@pytest.mark.rows("X-20")
def test_every_dialect_sends_lines_of_the_same_shape(run: Played, in_chat: Played) -> None:
    assert len(run.lines) == len(in_chat.lines)
    for at, (line, other) in enumerate(zip(run.lines, in_chat.lines, strict=True)):
        assert line == other, f"upstream request {at}"


def test_every_dialect_decides_the_same_at_the_same_moment(run: Played, in_chat: Played) -> None:
    """What leaves and what comes back, request by request."""
    events, others = ([sorted(set(told) - {"reasoning"}) for told in each.events] for each in (run, in_chat))
    assert events == others
    assert any("folded" in told for told in run.events)


def test_every_dialect_saves_the_same(run: Played, in_chat: Played) -> None:
    assert in_chat.saved > 0.1
    assert abs(run.saved - in_chat.saved) < NEAR
