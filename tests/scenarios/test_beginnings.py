"""A conversation begins where no call was made yet, whoever spoke before: preambles and examples that clients put in
front make it no older."""

from __future__ import annotations

from pathlib import Path

import pytest

from llm_test_provider import Model, ScriptedProvider, Usage, call, says
from proxy.accounting import tariff_for
from tests.bill import charged
from tests.client_dialects import CHAT, TestDialect
from tests.harness import Json, RecordingProvider, Stage, bash, does, running_stage
from tests.scenarios.test_bill import CLOSE
from tests.scenarios.test_money import CACHED_MODELS, charged_without_a_proxy
from tests.scenarios.test_offering import CLIENT, CORE, client_of, words

PREAMBLE = (
    {"role": "user", "content": "This is the workspace. Today is Saturday. My folder holds a.py and b.py."},
    {"role": "assistant", "content": "Got it. Thanks for the context!"},
)
EXAMPLES = tuple(
    {"role": "assistant" if at % 2 else "user", "content": f"{'Answer' if at % 2 else 'Question'} {at // 2}: {said}"}
    for at, said in enumerate(("what is a list?", "a sequence", "and a set?", "it has no order", "a map?", "keys"))
)
OPENINGS: dict[str, tuple[Json, ...]] = {"preamble": PREAMBLE, "examples": EXAMPLES}


@pytest.fixture(params=list(OPENINGS))
def opening(request: pytest.FixtureRequest) -> list[Json]:
    return [dict(message) for message in OPENINGS[request.param]]


@pytest.mark.rows("X-53")
@pytest.mark.parametrize(("head", "ours"), [(1_000, []), (6_000, ["stack_recall"]), (60_000, CORE)])
def test_behind_words_of_an_assistant_a_first_request_is_offered_our_tools(
    stage: Stage, provider: ScriptedProvider, opening: list[Json], head: int, ours: list[str]
) -> None:
    chat = client_of(stage, head)
    chat.history = opening
    provider.will(does(bash("ls")), says("done"))

    assert chat.says("list my files").stack_status == ("full" if ours else "asleep")
    chat.returns("a.py")

    first, second = provider.received
    assert first.tool_names == second.tool_names == CLIENT + ours
    assert first.messages == second.messages[: len(first.messages)]


@pytest.mark.rows("X-53")
def test_after_a_call_a_conversation_has_begun(stage: Stage, provider: ScriptedProvider, opening: list[Json]) -> None:
    """It is in the provider's cache: our tools would have it written anew."""
    chat = client_of(stage, 60_000)
    made = {"id": "call_old", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}
    chat.history = [
        *opening,
        {"role": "user", "content": "list my files"},
        {"role": "assistant", "content": None, "tool_calls": [made]},
        {"role": "tool", "tool_call_id": "call_old", "content": "a.py"},
    ]
    provider.will(says("done"))

    assert chat.asks().stack_status == "asleep"
    assert provider.received[0].tool_names == CLIENT


@pytest.mark.rows("X-53")
def test_after_an_answer_of_ours_a_conversation_has_begun(
    stage: Stage, provider: ScriptedProvider, opening: list[Json]
) -> None:
    """It was small at first, and what is large now stands in the provider's cache."""
    chat = client_of(stage, 1_000)
    chat.history = opening
    provider.will(says("hello"), says("read"))
    chat.says("hello")
    chat.says(f"read this: {words(40_000)}")

    assert [received.tool_names for received in provider.received] == [CLIENT, CLIENT]


@pytest.mark.rows("X-53")
@pytest.mark.parametrize("mode", ["active", "shadow"])
@pytest.mark.parametrize("model", ["gpt-5.4", "claude-opus-4-8"])
def test_the_bill_of_a_conversation_with_a_preamble_is_told_right(
    tmp_path: Path, streamed: bool, tongue: TestDialect, opening: list[Json], model: str, mode: str
) -> None:
    """Nothing is taken as cached in its first request, and what the provider says of its cache counts at once."""
    asks = {"stream_options": {"include_usage": True}} if tongue is CHAT and streamed else {}
    with (
        RecordingProvider(models=[Model(model, cache=CACHED_MODELS[model])]) as provider,
        running_stage(provider, tmp_path, streamed=streamed, tongue=tongue) as stage,
    ):
        chat = client_of(stage, 8_000, mode=mode)
        chat.model, chat.history, chat.options = model, opening, asks
        provider.will(does(bash("ls")), does(bash("cat a.py")), says("done"))
        chat.says("read my files")
        chat.returns("a.py")
        chat.returns("word " * 400)

        receipts, row = chat.proxy.receipts(), tariff_for(model)
        for receipt, received in zip(receipts, provider.asked, strict=True):
            assert received.usage is not None
            assert receipt["cost"] == pytest.approx(charged(received.usage, row))
            assert receipt["basis"] == "reported"
        assert receipts[0]["untouched"]["cached"] == receipts[0]["sent"]["cached"] == 0
        untouched = sum(receipt["cost_untouched"] for receipt in receipts)
        assert untouched == pytest.approx(charged_without_a_proxy(stage, provider, model), rel=CLOSE)


@pytest.mark.rows("X-53")
def test_where_nothing_is_reported_a_first_request_is_not_taken_as_cached(
    stage: Stage, provider: ScriptedProvider, opening: list[Json]
) -> None:
    chat = client_of(stage, 8_000, mode="shadow")
    chat.history = opening
    provider.will(says("done").but(usage=Usage(0, 0)))
    chat.says("read my files")

    (receipt,) = chat.proxy.receipts()
    assert receipt["untouched"]["cached"] == receipt["sent"]["cached"] == 0


@pytest.mark.rows("X-53")
def test_a_subagent_with_a_preamble_is_known_by_its_prompt(
    stage: Stage, provider: ScriptedProvider, opening: list[Json]
) -> None:
    """Its task is the first that it is asked for."""
    task = "Count the lines of every file in src and tell the largest."
    chat = stage.chat(tools=("bash", "task"))
    provider.will(does(call("task", description="Count", prompt=task)), says("a.py has 12 lines"))
    chat.says("which of my files is the largest?")
    agent = stage.chat(chat.proxy)
    agent.history = opening
    agent.says(task)

    parents = {row["id"]: row["parent"] for row in chat.proxy.conversations}
    assert sum(parent in parents for parent in parents.values()) == 1
