"""The Vercel AI SDK, from npm: it reads streams strictly and re-serialises the arguments of calls."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from llm_test_provider import ScriptedProvider, calls
from tests.clients.serving import Served
from tests.clients.story import CLOSING, assert_the_stack_stayed_hidden, tell

PACKAGES = ("ai@6.0.326", "@ai-sdk/openai-compatible@2.0.87", "zod@4.6.7")
JOB = """
import { generateText, stepCountIs, streamText, tool } from 'ai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { z } from 'zod';

const [url, how] = process.argv.slice(2);
const provider = createOpenAICompatible({ name: 'callstack', baseURL: url, apiKey: 'sk-scripted', includeUsage: true });
const inputSchema = z.object({ a: z.number() });
const add = tool({ description: 'Adds.', inputSchema, execute: async ({ a }) => String(a) });
const asked = { model: provider('scripted'), tools: { add }, stopWhen: stepCountIs(5), prompt: 'Add two.' };
const run = how === 'streamed' ? streamText(asked) : await generateText(asked);
console.log(JSON.stringify({ text: await run.text, steps: (await run.steps).map((step) => step.toolCalls) }));
"""


@pytest.mark.parametrize("how", ["whole", "streamed"])
def test_an_agent_loop_does_its_job(
    provider: ScriptedProvider, proxy: Served, npm: Callable[..., Path], run: Callable[..., str], how: str
) -> None:
    folder = npm("vercel-ai", *PACKAGES)
    (folder / "job.mjs").write_text(JOB)
    tell(provider, calls("add", a=2))

    said = run([shutil.which("node") or "node", "job.mjs", proxy.url, how], folder)

    told = json.loads(said.strip().splitlines()[-1])
    assert told["text"] == CLOSING
    assert [call["toolName"] for step in told["steps"] for call in step] == ["add"]
    assert_the_stack_stayed_hidden(provider, said)
