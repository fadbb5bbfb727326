"""The plugs of the library in their frameworks: LiteLLM's callback and LangChain's middleware."""

import json
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from llm_test_provider import ScriptedProvider, call, calls, contains, says, status
from tests.clients.test_langgraph import PACKAGES as LANGGRAPH
from tests.clients.test_litellm_guardrail import LITELLM
from tests.harness import does, pop, push, recall

HOUSE = Path(__file__).resolve().parents[2]
TASKS = ("Fix the rounding in the totals.", "Now write a letter to the accountants, something else entirely.")
FORM = {"error": {"message": "tools: unknown field", "type": "invalid_request_error", "param": "tools"}}
SETTINGS = {"wake_at_tokens": 0, "folding": "full", "assembly_budget_ms": 10_000}
OURS = f"""
import sys
sys.path += [{str(HOUSE)!r}, {sysconfig.get_paths()["purelib"]!r}]
"""
WITH_LITELLM = """
import asyncio, json
import litellm
from callstack_proxy.litellm_callback import CallstackCallback

url, tasks, settings, data = sys.argv[1], *map(json.loads, sys.argv[2:4]), sys.argv[4]
if data:
    litellm.callbacks = [CallstackCallback(data=data, settings=settings)]
TOOLS = [{"type": "function", "function": {"name": "read", "parameters": {"type": "object", "properties": {}}}}]

async def main():
    history, usage = [], []
    for task in tasks:
        history.append({"role": "user", "content": task})
        while True:
            answer = await litellm.acompletion(
                model="openai/gpt-5.4", messages=history, tools=TOOLS, api_base=url, api_key="sk-test"
            )
            usage.append(answer.usage.prompt_tokens)
            message = answer.choices[0].message
            history.append(message.model_dump(exclude_none=True))
            if not message.tool_calls:
                break
            for made in message.tool_calls:
                output = f"{made.function.arguments} " + "some words about totals and rounding " * 300
                history.append({"role": "tool", "tool_call_id": made.id, "content": output})
    said = [(row["role"], row.get("content"), [c["function"] for c in row.get("tool_calls") or ()]) for row in history]
    print(json.dumps({"said": said, "usage": usage}))

asyncio.run(main())
"""
WITH_LANGCHAIN = """
import json
from langchain.agents import create_agent
from langchain_openai import ChatOpenAI
from callstack_proxy.langchain_middleware import CallstackMiddleware

url, tasks, settings, data = sys.argv[1], *map(json.loads, sys.argv[2:4]), sys.argv[4]

def read(path: str) -> str:
    "Reads a file."
    return f"{path} " + "some words about totals and rounding " * 300

model = ChatOpenAI(model="gpt-5.4", base_url=url, api_key="sk-test", max_retries=0)
middleware = [CallstackMiddleware(data=data, settings=settings)] if data else []
agent = create_agent(model, [read], system_prompt="You are careful.", middleware=middleware)
history = []
for task in tasks:
    history = agent.invoke({"messages": [*history, ("user", task)]}, {"recursion_limit": 99})["messages"]
said = [(row.type, row.text, [c["name"] for c in getattr(row, "tool_calls", [])]) for row in history]
usage = [row.usage_metadata["input_tokens"] for row in history if row.type == "ai"]
if data:  # the provider refuses our form, then all
    said.append(agent.invoke({"messages": [("user", "Refuse the form.")]})["messages"][-1].text)
    try:
        agent.invoke({"messages": [("user", "Refuse all.")]})
    except Exception as error:
        said.append(type(error).__name__)
print(json.dumps({"said": said, "usage": usage}))
"""
JOBS = [
    pytest.param("litellm-proxy", (LITELLM,), WITH_LITELLM, id="litellm"),
    pytest.param("langgraph", LANGGRAPH, WITH_LANGCHAIN, id="langchain"),
]


@pytest.mark.long
@pytest.mark.rows("X-67")
@pytest.mark.parametrize(("name", "packages", "job"), JOBS)
def test_a_job_of_twenty_requests_ends_as_without_us(
    provider: ScriptedProvider,
    pip: Callable[..., Path],
    run: Callable[..., str],
    tmp_path: Path,
    name: str,
    packages: tuple[str, ...],
    job: str,
) -> None:
    python = pip(name, *packages) / "bin" / "python"
    reads = [calls("read", path=f"f{number}.py") for number in range(9)]
    direct = [*reads, says("The totals are right."), *reads, says("The letter is written.")]
    hidden = [does(push("Find the bug")), does(call("read", path="a.py")), does(pop("In a.py: marker."))]

    def told(data: str, *more: str) -> dict[str, list[object]]:
        words = [str(python), "-c", OURS + job, f"{provider.url}/v1", json.dumps([*TASKS, *more])]
        environ = {"LANGSMITH_TRACING": "false", "LITELLM_LOCAL_MODEL_COST_MAP": "True", "HOME": str(tmp_path)}
        said = run([*words, json.dumps(SETTINGS), data], tmp_path, **environ)
        return dict(json.loads(said.strip().splitlines()[-1]))

    provider.will(*direct)
    without = told("")
    provider.will(*direct, *hidden, does(recall("Find the bug")), says("It is fixed."))
    provider.when(contains("Refuse all."), status(402))
    provider.when(
        lambda got: b"Refuse the form." in got.raw and b"stack_" in got.raw, status(400, body=FORM), loop=True
    )
    provider.when(contains("Refuse the form."), says("In the milder form."))
    ours = told(str(tmp_path / "data"), "Find the bug.")
    sizes = [len(each.raw) for each in provider.received]

    assert ours["said"][: len(without["said"])] == without["said"]
    assert "stack_" not in json.dumps(ours["said"])
    assert "It is fixed." in json.dumps(ours["said"][len(without["said"]) :])
    assert sum(sizes[20:40]) < 0.9 * sum(sizes[:20])
    recalled = provider.received[44]
    assert "a.py" in dict(recalled.results)[recalled.calls[-1].id]
    if name == "langgraph":
        assert ours["said"][-2:] == ["In the milder form.", "APIStatusError"]
