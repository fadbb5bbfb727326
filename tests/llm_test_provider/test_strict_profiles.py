"""Each strict profile refuses what its provider refuses, in its words, and takes an ordinary tool loop."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from llm_test_provider import ScriptedProvider, calls, says
from llm_test_provider.scenario import ScenarioError, read
from llm_test_provider.strict_profiles import PROFILES, refusal_of

Json = dict[str, Any]
SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}}
SIGNED = {"google": {"thought_signature": "c2ln"}}


def tool(name: str = "bash", schema: Json | None = None, **more: Any) -> Json:
    return {"type": "function", "function": {"name": name, "parameters": schema or SCHEMA, **more}}


def called(ident: str = "abcdefghi", name: str = "bash", **more: Any) -> Json:
    made = {"id": ident, "type": "function", "function": {"name": name, "arguments": "{}"}, "extra_content": SIGNED}
    return {"role": "assistant", "content": None, "tool_calls": [made], **more}


def result(ident: str = "abcdefghi") -> Json:
    return {"role": "tool", "tool_call_id": ident, "content": "a.py"}


SYSTEM, ASK, SAID = ({"role": r, "content": c} for r, c in (("system", "s"), ("user", "u"), ("assistant", "a")))
THOUGHT = {"reasoning_content": "hm"}
NOT_OPENAI = ("cerebras", "groq", "mistral")


def chat(*messages: Json, tools: list[Json] | None = None, **more: Any) -> Json:
    return {"model": "m", "messages": [*messages], "tools": [tool()] if tools is None else tools, **more}


def loop_of(name: str) -> Json:
    thought = THOUGHT if PROFILES[name].required == ("reasoning_content",) else {}
    return chat(SYSTEM, ASK, called(**thought), result())


def responses(*items: Json, **more: Any) -> Json:
    return {"model": "m", "input": [*items], **more}


def messages(*said: Json, **more: Any) -> Json:
    return {"model": "m", "max_tokens": 9, "messages": [*said], **more}


def block(kind: str, **more: Any) -> Json:
    return {"type": kind, **more}


STRICT_TOOL = tool("strict", {**SCHEMA, "required": ["command"], "additionalProperties": False}, strict=True)
CASES = [
    ("openai", "chat", chat(ASK, called(), SAID), "The following tool_call_ids did not have response messages"),
    ("openai", "chat", chat(ASK, result()), "must be a response to a preceeding message"),
    ("openai", "chat", chat(ASK, called(), result(), result()), "must be a response to a preceeding message"),
    ("openai", "chat", chat(ASK, tools=[tool(f"t{n}") for n in range(129)]), "maximum length 128"),
    ("openai", "chat", chat(ASK, tools=[tool(), tool()]), "must be unique"),
    ("openai", "chat", chat(ASK, tools=[tool("a.b")]), "does not match pattern"),
    ("openai", "chat", chat(ASK, tools=[tool(strict=True)]), "'additionalProperties' is required"),
    ("openai", "chat", chat(ASK, top_k=1), "Unrecognized request argument supplied: top_k"),
    ("openai", "chat", chat(ASK, tools=[], tool_choice="auto"), "empty array"),
    ("openai", "chat", chat(ASK, called("x" * 41), result("x" * 41)), "string too long"),
    ("openai", "responses", responses(block("reasoning", id="rs_1"), ASK), "without its required following item"),
    ("openai", "responses", responses(ASK, top_k=1), "Unknown parameter: 'top_k'"),
    ("anthropic", "messages", messages(ASK, frequency_penalty=1), "frequency_penalty: Extra inputs"),
    ("anthropic", "messages", messages({**ASK, "name": "x"}), "messages.0.name: Extra inputs"),
    ("anthropic", "messages", messages({**ASK, "content": [block("text", text="a", id="x")]}), ".id: Extra inputs"),
    ("anthropic", "messages", messages(ASK, tools=[{"name": "a"}, {"name": "a"}]), "Tool names must be unique"),
    ("gemini", "chat", chat(ASK, {**called(), "tool_calls": [{"id": "1", "function": {"name": "ls"}}]}, result("1")),
     "missing a thought_signature in functionCall parts"),
    ("gemini", "chat", chat(ASK, tools=[tool(schema={**SCHEMA, "$schema": "x"})]), 'Unknown name "$schema"'),
    ("gemini", "chat", chat(ASK, SAID, called(), result()), "comes immediately after a user turn"),
    ("gemini", "chat", chat(ASK, {"role": "assistant", "content": ""}, ASK), "must not be empty"),
    ("kimi", "chat", chat(ASK, called(), result()), "is missing in assistant tool call message at index 1"),
    ("kimi", "chat", chat(ASK, {"role": "assistant", "content": ""}, ASK), "with role 'assistant' must not be empty"),
    ("kimi", "chat", chat(ASK, result()), "tool_call_id abcdefghi is not found"),
    ("kimi", "chat", chat(ASK, tools=[tool(), tool()]), "function name bash is duplicated"),
    ("deepseek", "chat", chat(ASK, called(), result()), "must be passed back to the API"),
    ("deepseek", "chat", chat(ASK, called(**THOUGHT), SAID), "insufficient tool messages"),
    ("cerebras", "chat", chat(ASK, tools=[tool(), STRICT_TOOL]), "mixed values for 'strict'"),
    ("cerebras", "chat", chat(ASK, {**SAID, "reasoning": "r"}), "assistant.reasoning' is unsupported"),
    ("groq", "chat", chat(ASK, {**SAID, **THOUGHT}), "property 'reasoning_content' is unsupported"),
    ("groq", "chat", chat(ASK, called(name="rm"), result()), "call tool 'rm' which was not in request.tools"),
    ("mistral", "chat", chat(ASK, called(), result(), ASK), "Unexpected role 'user' after role 'tool'"),
    ("mistral", "chat", chat(ASK, called("call_1"), result("call_1")), "Tool call id was call_1 but must be"),
    ("mistral", "chat", chat(ASK, SAID), "Expected last role User or Tool"),
    ("strict-template", "chat", chat(ASK, SYSTEM), "System message must be at the beginning"),
    ("strict-template", "chat", chat(ASK, called(), result(), ASK), "roles must alternate"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "dialect", "body", "words"), CASES, ids=[f"{c[0]}: {c[3]}" for c in CASES])
def test_what_the_real_one_refuses_is_refused_in_its_words(name: str, dialect: Any, body: Json, words: str) -> None:
    reply = refusal_of(name, dialect, body)
    assert reply is not None
    assert reply.status in (400, 422)
    assert words in json.dumps(json.loads(reply.body), ensure_ascii=False).replace('\\"', '"')


@pytest.mark.parametrize("name", [name for name, profile in PROFILES.items() if "chat" in profile.checks])
def test_an_ordinary_tool_loop_is_taken(name: str) -> None:
    body = loop_of(name)
    if name in NOT_OPENAI:
        body["messages"][2]["tool_calls"][0].pop("extra_content")
    assert refusal_of(name, "chat", body) is None
    assert refusal_of(name, "messages", body) is not None


@pytest.mark.parametrize("kind", ["message", "function_call", "web_search_call", "custom_tool_call"])
def test_an_item_behind_its_reasoning_is_taken(kind: str) -> None:
    made = {**SAID, "type": kind} if kind == "message" else block(kind, id="x_1", call_id="c", name="n")
    assert refusal_of("openai", "responses", responses(ASK, block("reasoning", id="rs_1"), made)) is None


ODD: list[Any] = [None, True, -1, 1.5, "", "x", [], {}, [[]], [None], {"type": []}, {"id": {}}, {"role": ["user"]}]


def odd_forms(value: Any) -> Iterator[Any]:
    """The value with each part of it replaced by each odd one."""
    yield from ODD
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(members):
        for form in odd_forms(inner):
            copy = value.copy()
            copy[key] = form
            yield copy


@pytest.mark.parametrize("name", PROFILES)
def test_no_odd_body_breaks_a_check(name: str) -> None:
    bodies: dict[str, tuple[Any, Json]] = {json.dumps(b): (dialect, b) for of, dialect, b, _ in CASES if of == name}
    for dialect, body in bodies.values():
        for form in odd_forms(body):
            refusal_of(name, dialect, form)


def posted(provider: ScriptedProvider, body: Json) -> tuple[int, Any]:
    request = Request(f"{provider.url}/chat/completions", json.dumps(body).encode())
    try:
        with urlopen(request, timeout=5) as response:
            return response.status, json.load(response)
    except HTTPError as refused:
        with refused:
            return refused.code, json.load(refused)


@pytest.mark.parametrize(("name", "shape"), [("gemini", list), ("cerebras", dict), ("mistral", dict)])
def test_a_provider_refuses_in_its_own_shape_and_spends_no_answer(
    name: str, shape: type[list[Any] | dict[str, Any]]
) -> None:
    with ScriptedProvider(says("Hello."), strict=name) as provider:
        odd = chat(ASK, called("call_1"), ASK, tools=[tool(), STRICT_TOOL, tool(schema={**SCHEMA, "$schema": "x"})])
        status, refused = posted(provider, odd)
        _, taken = posted(provider, chat(ASK))
    assert status == 400
    assert isinstance(refused, shape)
    assert "error" not in list(refused)
    assert taken["choices"][0]["message"]["content"] == "Hello."


@pytest.mark.parametrize(("name", "wanted"), [("mistral", "C00000001"), ("kimi", "call_00000001")])
def test_a_provider_makes_ids_and_reasoning_as_it_wants_them_back(name: str, wanted: str) -> None:
    with ScriptedProvider(calls("bash", command="ls"), strict=name) as provider:
        _, answer = posted(provider, chat(ASK))
    message = answer["choices"][0]["message"]
    assert message["tool_calls"][0]["id"] == wanted
    assert bool(message.get("reasoning_content")) is (name == "kimi")


def test_a_scenario_names_its_profile_and_an_unknown_one_is_told() -> None:
    assert read("strict: groq\nanswers: [{text: Hi}]").strict == "groq"
    with pytest.raises(ScenarioError, match="did you mean 'groq'"):
        read("strict: grok")
    with pytest.raises(ValueError, match="unknown strict profile"):
        ScriptedProvider(strict="grok")
