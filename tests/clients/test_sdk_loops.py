"""The libraries of two providers, from PyPI, in agent loops written by hand: what they are told goes back as they
hold it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from llm_test_provider import ScriptedProvider, status
from tests.clients.serving import Served
from tests.clients.story import CLOSING, assert_the_stack_stayed_hidden, tell, two_and_a_plan
from tests.clients.test_sdks import PACKAGES

ANTHROPIC = """
import json
import sys

from anthropic import Anthropic

origin, how = sys.argv[1:]
client = Anthropic(base_url=origin, api_key="sk-scripted")
add = {"name": "add", "description": "Adds.", "input_schema": {"type": "object", "properties": {"a": {}}}}
asked = {
    "model": "claude-scripted",
    "max_tokens": 4000,
    "thinking": {"type": "enabled", "budget_tokens": 1024},
    "system": [{"type": "text", "text": "You add.", "cache_control": {"type": "ephemeral"}}],
    "tools": [add],
    "extra_headers": {"anthropic-beta": "a-beta-of-tomorrow"},
}
history = [{"role": "user", "content": "Add two and three."}]
while True:
    if how == "streamed":
        with client.messages.stream(**asked, messages=history) as stream:
            answer = stream.get_final_message()
    else:
        answer = client.messages.create(**asked, messages=history)
    history.append({"role": "assistant", "content": [block.to_dict() for block in answer.content]})
    called = [block for block in answer.content if block.type == "tool_use"]
    if not called:
        break
    results = [{"type": "tool_result", "tool_use_id": each.id, "content": str(each.input["a"])} for each in called]
    history.append({"role": "user", "content": results})
blocks = [block for said in history[1:] for block in said["content"]]
called = [[block["name"], block["input"]] for block in blocks if block["type"] == "tool_use"]
counted = client.messages.count_tokens(model="claude-scripted", messages=history).input_tokens
listed = [model.id for model in client.models.list()]
told = {"text": answer.content[-1].text, "called": called, "history": history, "counted": counted, "listed": listed}
print(json.dumps(told))
"""
OPENAI = """
import json
import sys

from openai import OpenAI

origin, how = sys.argv[1:]
client = OpenAI(base_url=f"{origin}/v1", api_key="sk-scripted")
add = {"type": "function", "name": "add", "description": "Adds.", "parameters": {"type": "object"}, "strict": False}
asked = {"model": "gpt-scripted", "instructions": "You add.", "tools": [add], "store": False}
asked |= {"include": ["reasoning.encrypted_content"], "reasoning": {"effort": "low"}}
history = [{"role": "user", "content": "Add two and three."}]
while True:
    if how == "streamed":
        with client.responses.stream(**asked, input=history) as stream:
            for event in stream:
                pass
            answer = stream.get_final_response()
    else:
        answer = client.responses.create(**asked, input=history)
    history += [item.to_dict() for item in answer.output]
    called = [item for item in answer.output if item.type == "function_call"]
    if not called:
        break
    for each in called:
        result = str(json.loads(each.arguments)["a"])
        history.append({"type": "function_call_output", "call_id": each.call_id, "output": result})
called = [[item["name"], json.loads(item["arguments"])] for item in history if item.get("type") == "function_call"]
listed = [model.id for model in client.models.list()]
print(json.dumps({"text": answer.output_text, "called": called, "history": history, "listed": listed}))
"""
LOOPS = {"messages": ANTHROPIC, "responses": OPENAI}


@pytest.fixture
def looped(
    proxy: Served, pip: Callable[..., Path], run: Callable[..., str], tmp_path: Path
) -> Callable[[str, str], str]:
    """Runs the loop of an API through the proxy, whole or streamed: what it printed."""
    python = pip("sdks", *PACKAGES) / "bin" / "python"
    return lambda api, how: run([str(python), "-c", LOOPS[api], proxy.origin, how], tmp_path)


@pytest.mark.parametrize("how", ["whole", "streamed"])
@pytest.mark.parametrize("api", LOOPS)
def test_a_hand_written_loop_does_its_job(
    provider: ScriptedProvider, looped: Callable[[str, str], str], api: str, how: str
) -> None:
    tell(provider, two_and_a_plan())

    said = looped(api, how)

    told = json.loads(said.strip().splitlines()[-1])
    assert told["text"] == CLOSING
    assert told["called"] == [["add", {"a": 2}], ["add", {"a": 3}]]
    assert_the_stack_stayed_hidden(provider, said)
    assert told["listed"] == ["scripted-model"]
    if api == "messages":
        assert told["counted"] > 0
        assert {each.header("anthropic-beta") for each in provider.asked} == {"a-beta-of-tomorrow"}


@pytest.mark.parametrize("api", LOOPS)
def test_a_request_that_a_library_sends_again_is_one_request_in_the_tree(
    provider: ScriptedProvider, proxy: Served, looped: Callable[[str, str], str], api: str
) -> None:
    """CLIENTS 7: all of them send the same body again after 429 and 500, as soon as the provider says they may."""
    soon = {"retry-after-ms": "5"}
    provider.will(status(429, headers=soon), status(500, headers=soon))
    tell(provider, two_and_a_plan())

    said = looped(api, "streamed")

    assert json.loads(said.strip().splitlines()[-1])["text"] == CLOSING
    assert [each.status for each in provider.asked] == [429, 500, 200, 200, 200, 200]
    [conversation] = proxy.page("/stack/conversations")["conversations"]
    frames = proxy.page(f"/stack/conversations/{conversation['id']}/state")["frames"].values()
    assert [frame["title"] for frame in frames if not frame.get("auto")] == ["Write the greeting", "Check"]
