"""LangGraph's ready-made agent, from PyPI: asks for no usage, keeps the arguments of calls byte for byte."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from llm_test_provider import ScriptedProvider, calls
from tests.clients.serving import Served
from tests.clients.story import CLOSING, assert_the_stack_stayed_hidden, tell

PACKAGES = ("langchain==1.4.7", "langgraph==1.2.22", "langchain-openai==1.7.3")
JOB = """
import json
import sys

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI


def add(a: int) -> str:
    "Adds."
    return str(a)


url, how = sys.argv[1:]
model = ChatOpenAI(model="scripted", base_url=url, api_key="sk-scripted", streaming=how == "streamed")
messages = create_agent(model, [add]).invoke({"messages": [("user", "Add two.")]})["messages"]
called = [call["name"] for message in messages for call in getattr(message, "tool_calls", [])]
whole = [message.model_dump_json() for message in messages]
print(json.dumps({"text": messages[-1].text, "called": called, "whole": whole}))
"""


@pytest.mark.parametrize("how", ["whole", "streamed"])
def test_an_agent_does_its_job(
    provider: ScriptedProvider,
    proxy: Served,
    pip: Callable[..., Path],
    run: Callable[..., str],
    tmp_path: Path,
    how: str,
) -> None:
    python = pip("langgraph", *PACKAGES) / "bin" / "python"
    tell(provider, calls("add", a=2))

    said = run([str(python), "-c", JOB, proxy.url, how], tmp_path, LANGSMITH_TRACING="false")

    told = json.loads(said.strip().splitlines()[-1])
    assert told["text"] == CLOSING
    assert told["called"] == ["add"]
    assert_the_stack_stayed_hidden(provider, said)
