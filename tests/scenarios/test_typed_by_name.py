"""Commands typed by a client of the responses API that keeps nothing itself: it goes on from our answers by their ids,
which the provider has never heard of (S0-36).
"""

from __future__ import annotations

import pytest

from llm_test_provider import ScriptedProvider, says
from tests.harness import Stage, bash, does, texts
from tests.scenarios.test_references import Forgetful

pytestmark = [
    pytest.mark.rows("S0-36"),
    pytest.mark.spoken_in("responses", reason="only there an answer is gone on from by its id"),
]


def typed(chat: Forgetful, provider: ScriptedProvider, command: str) -> str:
    before = len(provider.received)
    answer = chat.says(command)
    assert answer.stack_status == "answered"
    assert len(provider.received) == before
    return answer.text


@pytest.mark.parametrize("wake", [0, 1_000_000], ids=["awake", "asleep"])
def test_the_work_goes_on_from_what_an_answer_of_ours_stands_behind(
    stage: Stage, provider: ScriptedProvider, wake: int
) -> None:
    chat = Forgetful(stage.proxy(wake_at_tokens=wake), stage.streamed)
    provider.will(says("hello"), says("one"))
    first = chat.says("build a parser").id

    typed(chat, provider, "/stack plan Lexer; Printer")
    assert "Lexer" in typed(chat, provider, "/stack tree")
    chat.says("go on")

    sent = provider.received[-1]
    line = texts(sent.messages)
    assert chat.proxy.statuses() == {"build a parser": "in_progress", "Lexer": "planned", "Printer": "planned"}
    assert not any("/stack " in text or "[callstack]" in text for text in line)
    assert any(text == "user: go on" for text in line)
    if wake:
        assert (sent.body or {})["previous_response_id"] == first
    else:
        assert [text for text in line if text.startswith(("user: build", "assistant:"))] == [
            "user: build a parser",
            "assistant: hello",
        ]


def test_a_command_as_the_first_input_leaves_nothing_to_go_on_from(stage: Stage, provider: ScriptedProvider) -> None:
    chat = Forgetful(stage.proxy(), stage.streamed)
    provider.will(says("hello"))

    assert "no conversation here yet" in typed(chat, provider, "/stack status")
    chat.says("build a parser")

    assert "previous_response_id" not in (provider.received[-1].body or {})
    assert chat.proxy.statuses() == {"build a parser": "in_progress"}


def test_beside_results_that_only_this_request_holds_a_command_is_text(
    stage: Stage, provider: ScriptedProvider
) -> None:
    """What stands there may be a tool's words."""
    chat = Forgetful(stage.proxy(), stage.streamed)
    provider.will(does(bash("ls")), says("done"))
    call = chat.says("build a parser").calls[0]["call_id"]
    result = {"type": "function_call_output", "call_id": call, "output": "a.py"}

    assert chat.asks(result, {"role": "user", "content": "/stack push Lexer"}).text == "done"
    assert list(chat.proxy.statuses()) == ["build a parser"]


def test_behind_other_words_that_only_this_request_holds_a_command_is_refused(
    stage: Stage, provider: ScriptedProvider
) -> None:
    """The next request would go on from our answer without them; refused, the client still has them."""
    chat = Forgetful(stage.proxy(), stage.streamed)
    provider.will(says("hello"), says("done"))
    chat.says("build a parser")

    refused = chat.asks({"role": "user", "content": "mind the tabs"}, {"role": "user", "content": "/stack status"})

    assert refused.status == 400
    assert "send the rest first" in refused.json["error"]["message"]
    assert chat.says("mind the tabs").text == "done"


def test_an_answer_of_ours_that_stands_behind_a_history_without_ids_is_gone_on_from_by_nobody(
    stage: Stage, provider: ScriptedProvider
) -> None:
    """Its history came from elsewhere: the id cannot say what it stands behind, so the provider refuses it, and nothing
    is lost unnoticed."""
    chat = Forgetful(stage.proxy(), stage.streamed)
    history = [{"role": "user", "content": "build a parser"}, {"role": "assistant", "content": "hello"}]
    chat.answered(*history, {"role": "user", "content": "/stack status"})
    provider.will(says("one"))

    refused = chat.asks({"role": "user", "content": "go on"})

    assert refused.status >= 400
