"""openai-python, the SDK most frameworks stand on, in a hand-written agent loop."""

import json
from collections.abc import Iterable
from typing import Any

import pytest
from openai import OpenAI

from llm_test_provider import ScriptedProvider, calls
from tests.clients.serving import Served
from tests.clients.story import CLOSING, assert_the_stack_stayed_hidden, tell

ADD = {
    "name": "add",
    "description": "Adds.",
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
}
Message = dict[str, Any]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_hand_written_loop_does_its_job(provider: ScriptedProvider, proxy: Served, stream: bool) -> None:
    tell(provider, calls("add", a=2))
    history: list[Message] = [{"role": "user", "content": "Add two."}]

    with OpenAI(base_url=proxy.url, api_key="sk-scripted") as client:
        while not (answer := ask(client, history, stream))["content"]:
            history.append(answer)
            history += [{"role": "tool", "tool_call_id": call["id"], "content": "2"} for call in answer["tool_calls"]]

    assert answer["content"] == CLOSING
    assert [call["function"]["name"] for said in history for call in said.get("tool_calls", [])] == ["add"]
    assert_the_stack_stayed_hidden(provider, json.dumps(history))


def ask(client: OpenAI, history: list[Message], stream: bool) -> Message:
    """The assistant's next message, in the form it is sent back in."""
    asked: Any = {"model": "scripted", "messages": history, "tools": [{"type": "function", "function": ADD}]}
    if stream:
        return joined(client.chat.completions.create(**asked, stream=True))
    said = client.chat.completions.create(**asked).choices[0].message
    message: Message = said.model_dump(exclude_none=True, include={"role", "content", "tool_calls"})
    return {"content": None, **message}


def joined(chunks: Iterable[Any]) -> Message:
    """The message a stream adds up to."""
    text, found = "", dict[int, Message]()
    for delta in (choice.delta for chunk in chunks for choice in chunk.choices):
        text += delta.content or ""
        for piece in delta.tool_calls or []:
            blank: Message = {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
            call = found.setdefault(piece.index, blank)
            call["id"] += piece.id or ""
            call["function"]["name"] += piece.function.name or ""
            call["function"]["arguments"] += piece.function.arguments or ""
    message: Message = {"role": "assistant", "content": text or None}
    return {**message, "tool_calls": list(found.values())} if found else message
