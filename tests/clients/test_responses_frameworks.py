"""Two agent frameworks, from PyPI, in the responses API: openai-agents, whose run dies of a tool it never offered, and
pydantic-ai, which keeps reasoning items by what the provider calls them."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from llm_test_provider import ScriptedProvider
from tests.clients.serving import Served
from tests.clients.story import CLOSING, assert_the_stack_stayed_hidden, tell, two_and_a_plan

AGENTS = """
import asyncio
import json
import sys

from agents import Agent, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI

set_tracing_disabled(True)
url, how = sys.argv[1:]


@function_tool
def add(a: int) -> str:
    "Adds."
    return str(a)


async def main():
    model = OpenAIResponsesModel("gpt-5", AsyncOpenAI(base_url=url, api_key="sk-scripted"))
    agent = Agent(name="Adder", instructions="You add.", tools=[add], model=model)
    if how == "streamed":
        run = Runner.run_streamed(agent, "Add two and three.")
        async for _ in run.stream_events():
            pass
    else:
        run = await Runner.run(agent, "Add two and three.")
    kept = run.to_input_list()
    called = [[item["name"], json.loads(item["arguments"])] for item in kept if item.get("type") == "function_call"]
    print(json.dumps({"text": run.final_output, "called": called, "kept": kept}))


asyncio.run(main())
"""
PYDANTIC = """
import json
import sys

from pydantic_ai import Agent
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.models.openai import OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

url, how = sys.argv[1:]
agent = Agent(OpenAIResponsesModel("gpt-5", provider=OpenAIProvider(base_url=url, api_key="sk-scripted")))


@agent.tool_plain
def add(a: int) -> str:
    "Adds."
    return str(a)


async def listens(context, events):
    async for _ in events:
        pass


run = agent.run_sync("Add two and three.", event_stream_handler=listens if how == "streamed" else None)
parts = [part for message in run.all_messages() for part in message.parts]
called = [[part.tool_name, part.args_as_dict()] for part in parts if isinstance(part, ToolCallPart)]
print(json.dumps({"text": run.output, "called": called, "kept": run.all_messages_json().decode()}))
"""
FRAMEWORKS = {
    "openai-agents": (AGENTS, "openai-agents==0.24.0"),
    "pydantic-ai": (PYDANTIC, "pydantic-ai-slim[openai]==2.68.0"),
}


@pytest.mark.parametrize("how", ["whole", "streamed"])
@pytest.mark.parametrize("name", FRAMEWORKS)
def test_an_agent_does_its_job(
    provider: ScriptedProvider,
    proxy: Served,
    pip: Callable[..., Path],
    run: Callable[..., str],
    tmp_path: Path,
    name: str,
    how: str,
) -> None:
    job, package = FRAMEWORKS[name]
    python = pip(name, package) / "bin" / "python"
    tell(provider, two_and_a_plan())

    said = run([str(python), "-c", job, proxy.url, how], tmp_path)

    told = json.loads(said.strip().splitlines()[-1])
    assert told["text"] == CLOSING
    assert told["called"] == [["add", {"a": 2}], ["add", {"a": 3}]]
    assert_the_stack_stayed_hidden(provider, said)
    assert {(each.path, each.body.get("stream", False)) for each in provider.asked} == {
        ("/v1/responses", how == "streamed")
    }
