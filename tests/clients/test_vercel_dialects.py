"""The Vercel AI SDK, from npm, in the other two APIs: signed thinking that must come back in its place, and items
that are named instead of sent, because the provider keeps them."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from llm_test_provider import ScriptedProvider
from tests.clients.serving import Served
from tests.clients.story import CLOSING, THOUGHT, assert_the_stack_stayed_hidden, tell, two_and_a_plan

PACKAGES = ("ai@7.0.173", "@ai-sdk/anthropic@4.0.105", "@ai-sdk/openai@4.0.118", "zod@4.6.7")
JOB = """
import { generateText, stepCountIs, streamText, tool } from 'ai';
import { createAnthropic } from '@ai-sdk/anthropic';
import { createOpenAI } from '@ai-sdk/openai';
import { z } from 'zod';

globalThis.AI_SDK_LOG_WARNINGS = false;
const [baseURL, api, how] = process.argv.slice(2);
const reached = { baseURL, apiKey: 'sk-scripted' };
const model = api === 'messages' ? createAnthropic(reached)('scripted') : createOpenAI(reached).responses('gpt-5');
const providerOptions = {
  anthropic: { thinking: { type: 'enabled', budgetTokens: 1024 } },
  openai: { reasoningSummary: 'auto' },
};
const inputSchema = z.object({ a: z.number() });
const add = tool({ description: 'Adds.', inputSchema, execute: async ({ a }) => String(a) });
const asked = { model, providerOptions, tools: { add }, stopWhen: stepCountIs(5), prompt: 'Add two and three.' };
const run = how === 'streamed' ? streamText(asked) : await generateText(asked);
const steps = await run.steps;
const calls = steps.flatMap((step) => step.toolCalls.map((call) => [call.toolName, call.input]));
const thoughts = steps.map((step) => step.reasoningText ?? '');
console.log(JSON.stringify({ text: await run.text, calls, thoughts, texts: steps.map((step) => step.text) }));
"""


@pytest.mark.parametrize("how", ["whole", "streamed"])
@pytest.mark.parametrize("api", ["messages", "responses"])
def test_an_agent_loop_does_its_job(
    provider: ScriptedProvider, proxy: Served, npm: Callable[..., Path], run: Callable[..., str], api: str, how: str
) -> None:
    folder = npm("vercel-ai-dialects", *PACKAGES)
    (folder / "job.mjs").write_text(JOB)
    tell(provider, two_and_a_plan())

    said = run([shutil.which("node") or "node", "job.mjs", proxy.url, api, how], folder)

    told = json.loads(said.strip().splitlines()[-1])
    assert told["text"] == CLOSING
    assert told["texts"] == ["Both at once.", CLOSING]
    assert told["calls"] == [["add", {"a": 2}], ["add", {"a": 3}]]
    assert told["thoughts"] == [THOUGHT, ""]
    assert_the_stack_stayed_hidden(provider, said)
    assert {each.path for each in provider.asked} == {f"/v1/{api}"}
