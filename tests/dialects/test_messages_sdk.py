"""Answers of several rounds, read by the provider's own client library from a real socket (H4).

Skipped where the library `anthropic` is not installed.
"""

from __future__ import annotations

from typing import Any

import pytest

from proxy.dialects.messages.response import MessagesResponseWriter
from tests.dialects.messages_streams import (
    FOUND,
    MIXED,
    OWN,
    SEARCHED,
    call,
    ends,
    hidden_round,
    play,
    start,
    text,
    text_round,
    thinking,
)
from tests.dialects.playing import SSE
from tests.dialects.serving import served

anthropic: Any = pytest.importorskip("anthropic", reason="the provider's client library is not installed")
ASKED = {"model": "model-1", "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}]}


def parsed(body: bytes) -> Any:
    """The message that the library makes of a stream."""
    with (
        served(body, SSE) as url,
        anthropic.Anthropic(api_key="x", base_url=url, max_retries=0) as library,
        library.messages.stream(**ASKED) as stream,
    ):
        return stream.get_final_message()


def streamed(*rounds: bytes) -> Any:
    return parsed(play(*rounds).out)


THOUGHT = start("2") + thinking(0, "so") + text(1, "B") + call(2, OWN, '{"cmd":', '"ls"}') + ends("tool_use")
SHOWN = {
    "mixed": ([MIXED], ["thinking", "text", "tool_use", "tool_use"]),
    "hidden_then_text": ([hidden_round(), hidden_round("A", of="2"), text_round("B", of="3")], ["text", "text"]),
    "hidden_then_thought": ([hidden_round("A"), THOUGHT], ["text", "thinking", "text", "tool_use"]),
    "hidden_then_searched": ([hidden_round("A"), SEARCHED], ["text", "server_tool_use", FOUND["type"], "text"]),
}


@pytest.mark.parametrize(("rounds", "kinds"), SHOWN.values(), ids=SHOWN)
def test_h4_the_providers_own_library_reads_rounds_as_one_message(rounds: list[bytes], kinds: list[str]) -> None:
    message = streamed(*rounds)
    assert [block.type for block in message.content] == kinds
    assert [block.input for block in message.content if block.type == "tool_use"][:1] in ([], [{"cmd": "ls"}])
    assert message.stop_reason == ("tool_use" if "tool_use" in kinds else "end_turn")
    assert "stack_" not in message.to_json()


@pytest.mark.rows("S4-02")
def test_s4_02_the_providers_own_library_knows_how_full_the_window_is() -> None:
    usage = streamed(hidden_round("A"), THOUGHT).usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens) == (190, 10, 20)


def test_s4_the_providers_own_library_raises_what_a_stream_of_ours_says_that_broke() -> None:
    answer = MessagesResponseWriter(stream=True, wants_usage=True, intercept=True)
    answer.begin_round(200, SSE)
    body = answer.feed(hidden_round("A")) + answer.closing_error("The provider went away.")
    with pytest.raises(anthropic.APIStatusError, match="The provider went away"):
        parsed(body)
