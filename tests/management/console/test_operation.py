"""What the operation page tells of upstreams that refused something."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from html import unescape
from pathlib import Path
from typing import get_args

import pytest

from callstack_proxy.management.console.operation_page import WORDS_BY_TRAIT
from llm_test_provider import ScriptedAnswer, ScriptedProvider, calls, says, status
from proxy.upstream import LearnedTrait, TraitKind
from tests.management.console.conftest import Person
from tests.wire.proxied import ServedProxy
from tests.wire.talking import ask, body_of

REFUSED = status(400, body={"error": {"message": "Unsupported request.", "type": "invalid_request_error"}})
ABOUT_TOOLS = status(400, body={"error": {"message": "tools.3.parameters: unknown keyword"}})
NO_QUESTION = status(
    422, body={"detail": [{"loc": ["body", "stream_options"], "msg": "Extra inputs are not permitted"}]}
)
LIMIT = "This model's maximum context length is 64,000 tokens. However, you requested 70000 tokens."
TOO_LONG = status(400, body={"error": {"message": LIMIT, "code": "context_length_exceeded"}})
PUSH = calls("stack_frame_push", title="A part", successCriteria="it works")
HOUR_S, DAY_S = 3_600, 86_400
LASTING = "the proxy restarts"
TIMES = re.compile(r'<time datetime="([^"]+)"')


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider() as running:
        yield running


@pytest.fixture
def proxy(provider: ScriptedProvider, tmp_path: Path) -> Iterator[ServedProxy]:
    with ServedProxy(provider.url, tmp_path / "data", stack_rounds=2) as running:
        yield running


@dataclass
class Told:
    """A row of the table: texts of its cells, and how long it lasts in seconds, None where no end is named."""

    model: str
    what: str
    seconds: float | None


def page_of(proxy: ServedProxy) -> str:
    person = Person(proxy.origin)
    assert person.open_link().status == 303
    answer = person.get("/console/operation")
    assert answer.status == 200
    return answer.body.decode()


def learned(proxy: ServedProxy) -> list[Told]:
    table = page_of(proxy).partition('class="learned"')[2].partition("</tbody>")[0]
    return [_told(row) for row in table.split("<tr>")[2:]]


def _told(row: str) -> Told:
    model, what, since, until = (
        unescape(re.sub("<(?!time)[^>]+>", "", cell)) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)
    )
    began, ends = (TIMES.search(cell) for cell in (since, until))
    assert began
    if ends is None:
        assert until == LASTING
        return Told(model, what, None)
    return Told(model, what, (datetime.fromisoformat(ends[1]) - datetime.fromisoformat(began[1])).total_seconds())


def test_each_kind_has_words() -> None:
    assert set(WORDS_BY_TRAIT) == set(get_args(TraitKind))


def test_without_a_refusal_nothing_was_learned(proxy: ServedProxy, provider: ScriptedProvider) -> None:
    provider.will(says("Hello."))
    assert ask(proxy.origin, body_of(awake=True)).status == 200

    assert learned(proxy) == []
    assert "no upstream has refused what the proxy adds" in page_of(proxy)


@pytest.mark.parametrize(
    ("refusals", "says_so"),
    [
        ([REFUSED], "no tool of the proxy but stack_recall"),
        ([ABOUT_TOOLS], "cannot ask back what was put away"),
        ([REFUSED, REFUSED], "as the client sent it: nothing is put away"),
    ],
    ids=["mild", "bare", "own"],
)
def test_a_milder_form_is_told_in_words_with_its_hour(
    proxy: ServedProxy, provider: ScriptedProvider, refusals: list[ScriptedAnswer], says_so: str
) -> None:
    provider.will(*refusals, says("Hello."))
    assert ask(proxy.origin, body_of(awake=True)).status == 200

    [row] = learned(proxy)
    assert row.model == "default · m"
    assert says_so in row.what
    assert row.seconds == HOUR_S


def test_a_window_that_a_refusal_named_is_told_for_a_day(proxy: ServedProxy, provider: ScriptedProvider) -> None:
    provider.will(TOO_LONG, TOO_LONG)
    assert ask(proxy.origin, body_of("word " * 70_000, awake=True)).status == 400

    [row] = learned(proxy)
    assert "takes 64\u202f000 tokens" in row.what
    assert row.seconds == DAY_S


def test_a_stream_that_may_not_be_asked_for_its_usage_is_told_until_a_restart(
    proxy: ServedProxy, provider: ScriptedProvider
) -> None:
    provider.will(NO_QUESTION, says("Hello."))
    assert ask(proxy.origin, body_of(awake=True, stream=True)).status == 200

    [row] = learned(proxy)
    assert "is an estimate" in row.what
    assert row.seconds is None


def test_a_model_that_calls_tools_although_it_may_not_is_told_for_an_hour(
    proxy: ServedProxy, provider: ScriptedProvider
) -> None:
    provider.will(PUSH, PUSH, PUSH, says("Hello."))
    assert ask(proxy.origin, body_of(awake=True)).status == 200

    [row] = learned(proxy)
    assert "told to call none" in row.what
    assert row.seconds == HOUR_S


def test_the_name_of_a_model_is_only_text(proxy: ServedProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    trait = LearnedTrait("up", "<script>alert(1)</script>", "mild", 0, 1)
    # Patched: no upstream refuses a model of that name by itself.
    running = dataclasses.replace(proxy.app._running, learned_traits=lambda: [trait])
    monkeypatch.setattr(proxy.app, "_running", running)

    assert "<script>alert" not in page_of(proxy)
    assert [row.model for row in learned(proxy)] == ["up · <script>alert(1)</script>"]
