"""What the messages API refuses before any model reads the request, in its own words.

`refusal` goes through a request as the API does: the members, then every message and block, then calls and their
results, then cache markers, then thinking. Unknown members and blocks pass.

Its one law: what it refuses, the real one refuses too. It may be more lenient, never stricter, with one exception:
results must stand in the very next message even where the API would first merge two messages of a role.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from llm_test_provider.apis.json import mapping, mappings
from llm_test_provider.apis.messages_request import CHANGES, THINKING, Block, blocks_of, references_in

MOST_MARKERS = 4
LEAST_BUDGET = 1024
"""Tokens manual thinking must be allowed."""
BINDING_BETA = "thinking-binding-controls-2026-08-01"
INLINE_BETA = "inline-tools-2026-09-15"
ROLES = ("user", "assistant", "system")
END: Mapping[str, Any] = {"role": "assistant"}
"""The answer that is asked for stands behind the last message."""
NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
ID = re.compile(r"[a-zA-Z0-9_-]+")
FIELDS: Mapping[str, tuple[str, ...]] = {
    "text": ("text",),
    "thinking": ("thinking", "signature"),
    "redacted_thinking": ("data",),
    "tool_use": ("id", "name", "input"),
    "tool_result": ("tool_use_id",),
}
"""What a block of a type must have; other types are not known here."""
ONLY_FROM: Mapping[str, str] = {"tool_use": "assistant", "tool_result": "user"} | dict.fromkeys(THINKING, "assistant")


def refusal(body: Any, betas: str = "", *, counted: bool = False) -> str:
    """Why this body is refused; empty where it is not. `counted`: only its tokens are asked for."""
    if not isinstance(body, dict):
        return "The request body is not valid JSON."
    return next(_problems(body, betas, counted=counted), "")


def _problems(body: Mapping[str, Any], betas: str, *, counted: bool) -> Iterator[str]:
    yield from _members(body, counted=counted)
    messages = mappings(body["messages"])
    for at, message in enumerate(messages):
        yield from _message(message, f"messages.{at}", is_last=at == len(messages) - 1)
    yield from _tools(mappings(body.get("tools")))
    yield from _references(messages, {str(tool.get("name")) for tool in mappings(body.get("tools"))})
    yield from _system(body.get("system"))
    yield from _pairs(messages)
    yield from _in_between(messages, betas)
    yield from _markers(body)
    yield from _thinking(mapping(body.get("thinking")), body, betas, counted=counted)


# ------------------------------------------------------------------------------------------------------ members, blocks
def _members(body: Mapping[str, Any], *, counted: bool) -> Iterator[str]:
    for name in ("model", "messages") if counted else ("model", "max_tokens", "messages"):
        if body.get(name) is None:
            yield f"{name}: Field required"
    limit = body.get("max_tokens", 1)
    if not isinstance(limit, int) or limit < 1:
        yield "max_tokens: Input should be a valid integer, greater than or equal to 1"
    messages = body["messages"]
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        yield "messages: Input should be a valid list"
    if not messages:
        yield "messages: at least one message is required"
    first = next((message.get("role") for message in mappings(messages) if message.get("role") != "system"), "user")
    if first == "assistant":
        yield 'messages: first message must use the "user" role'


def _message(message: Mapping[str, Any], path: str, *, is_last: bool) -> Iterator[str]:
    role, content = message.get("role"), message.get("content")
    if role not in ROLES:
        yield f"{path}.role: Input should be 'user' or 'assistant'"
    if not isinstance(content, str) and (not isinstance(content, list) or len(mappings(content)) != len(content)):
        yield f"{path}.content: Input should be a valid string or list"
    directive = role == "system" and "output_config" in message
    if not content and not directive and not (is_last and role == "assistant"):
        yield f"{path}: all messages must have non-empty content except for the optional final assistant message"
    if isinstance(content, list):
        for position, block in enumerate(content):
            yield from _block(block, role, f"{path}.content.{position}")
    if is_last and role == "assistant" and content:
        text = str(blocks_of(content)[-1].get("text") or "")
        if text != text.rstrip():
            yield "messages: final assistant content cannot end with trailing whitespace"


def _block(block: Block, role: object, path: str) -> Iterator[str]:
    kind = block.get("type")
    if not isinstance(kind, str):
        yield f"{path}.type: Field required"
        return
    for name in FIELDS.get(kind, ()):
        if name not in block:
            yield f"{path}.{kind}.{name}: Field required"
    if kind == "text":
        yield from _text(block, "messages")
    if role != ONLY_FROM.get(kind, role):
        yield f"{path}: `{kind}` blocks can only be in `{ONLY_FROM[kind]}` messages"
    if kind == "tool_use" and not isinstance(block.get("input"), dict):
        yield f"{path}.tool_use.input: Input should be a valid dictionary"
    if kind == "tool_use" and not ID.fullmatch(str(block.get("id"))):
        yield f"{path}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"
    if kind in THINKING and "cache_control" in block:
        yield f"{path}.{kind}.cache_control: Extra inputs are not permitted"
    if kind == "tool_result" and isinstance(block.get("content"), list):
        for position, inner in enumerate(mappings(block["content"])):
            yield from _block(inner, role, f"{path}.tool_result.content.{position}")


def _text(block: Block, place: str) -> Iterator[str]:
    text = block.get("text")
    if not isinstance(text, str):
        yield f"{place}: text content blocks must hold a string"
    elif not text and block.get("cache_control"):
        yield f"{place}: cache_control cannot be set for empty text blocks"
    elif not text:
        yield f"{place}: text content blocks must be non-empty"
    elif not text.strip():
        yield f"{place}: text content blocks must contain non-whitespace text"


def _tools(tools: Sequence[Block]) -> Iterator[str]:
    names = [str(tool.get("name")) for tool in tools]
    for at, name in enumerate(names):
        if not NAME.fullmatch(name):
            yield f"tools.{at}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"
    if len(set(names)) < len(names):
        yield "tools: Tool names must be unique."


def _references(messages: Sequence[Mapping[str, Any]], offered: Collection[str]) -> Iterator[str]:
    """What a tool search found is offered, and stands alone in its result."""
    for at, message in enumerate(messages):
        for position, block in enumerate(blocks_of(message.get("content"))):
            names = references_in(block)
            for name in names:
                if name not in offered:
                    yield f"messages.{at}.content.{position}: Tool reference '{name}' not found in available tools"
            if names and block.get("type") == "tool_result" and len(names) < len(block["content"]):
                yield f"messages.{at}.content.{position}: tool_reference blocks cannot be mixed with other content"


def _system(system: object) -> Iterator[str]:
    if isinstance(system, list):
        for block in mappings(system):
            yield from _text(block, "system")


# ------------------------------------------------------------------------------------------- system texts in between
def _in_between(messages: Sequence[Mapping[str, Any]], betas: str) -> Iterator[str]:
    """System messages among the others: behind a user message and in front of an assistant's, or at the end. A row of
    them counts as one, and one without content may stand anywhere."""
    for at, message in enumerate(messages):
        if message.get("role") != "system" or not message.get("content"):
            continue
        before: Mapping[str, Any] = next((m for m in reversed(messages[:at]) if m.get("role") != "system"), {})
        behind = next((m for m in messages[at + 1 :] if m.get("role") != "system"), END)
        ends = [str(block.get("type")) for block in blocks_of(before.get("content"))][-1:]
        served = before.get("role") == "assistant" and any(kind.endswith("_tool_result") for kind in ends)
        if before.get("role") != "user" and not served:
            yield (
                f"messages.{at}: role 'system' must follow a 'user' message or an 'assistant' message ending in a "
                "server tool result"
            )
        if behind.get("role") != "assistant":
            yield f"messages.{at}: role 'system' must precede an 'assistant' message or end the array"
        if INLINE_BETA not in betas and any(block.get("type") in CHANGES for block in blocks_of(message["content"])):
            yield f"messages.{at}: tool changes need the beta `{INLINE_BETA}`"


# ---------------------------------------------------------------------------------------------------- calls and results
def _pairs(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Every call is answered in the very next message, before anything else is said there, and nothing else is."""
    seen: set[str] = set()
    called: list[str] = []
    programmed = False
    for at, message in enumerate(messages):
        blocks = blocks_of(message.get("content"))
        yield from _unasked(blocks, called, at)
        if programmed and any(block.get("type") != "tool_result" for block in blocks):
            words = "When responding to programmatic tool calls, the user message must contain only tool_result blocks."
            yield f"messages.{at}: {words}"
        missing = [name for name in called if name not in _leading_results(blocks)]
        if missing:
            yield _without_result(at - 1, missing)
        called = [str(block.get("id")) for block in blocks if block.get("type") == "tool_use"]
        programmed = any(mapping(block.get("caller")).get("tool_id") for block in blocks)
        if seen & set(called) or len(set(called)) < len(called):
            yield "messages: `tool_use` ids must be unique"
        seen |= set(called)
    if called:
        yield _without_result(len(messages) - 1, called)


def _leading_results(blocks: Sequence[Block]) -> list[str]:
    first_other = next((at for at, block in enumerate(blocks) if block.get("type") != "tool_result"), len(blocks))
    return [str(block.get("tool_use_id")) for block in blocks[:first_other]]


def _unasked(blocks: Sequence[Block], called: Sequence[str], at: int) -> Iterator[str]:
    answered: set[str] = set()
    for position, block in enumerate(blocks):
        name = str(block.get("tool_use_id"))
        if block.get("type") != "tool_result":
            continue
        if name not in called:
            yield (
                f"messages.{at}.content.{position}: unexpected `tool_use_id` found in `tool_result` blocks: {name}. "
                "Each `tool_result` block must have a corresponding `tool_use` block in the previous message."
            )
        if name in answered:
            yield (
                f"messages.{at}.content.{position}: each tool_use must have a single result. "
                f"Found multiple `tool_result` blocks with id: {name}"
            )
        answered.add(name)


def _without_result(at: int, names: Sequence[str]) -> str:
    return (
        f"messages.{at}: `tool_use` ids were found without `tool_result` blocks immediately after: {', '.join(names)}. "
        "Each `tool_use` block must have a corresponding `tool_result` block in the next message."
    )


# ------------------------------------------------------------------------------------------------------ cache, thinking
def _markers(body: Mapping[str, Any]) -> Iterator[str]:
    """At most four, and none that lives an hour behind one that lives five minutes."""
    found = [mapping(block["cache_control"]) for block in _markable(body) if block.get("cache_control")]
    total = len(found) + bool(body.get("cache_control"))
    if total > MOST_MARKERS:
        yield f"A maximum of {MOST_MARKERS} blocks with cache_control may be provided. Found {total}."
    lifetimes = [marker.get("ttl", "5m") for marker in found]
    if "5m" in lifetimes and "1h" in lifetimes[lifetimes.index("5m") :]:
        yield "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block"


def _markable(body: Mapping[str, Any]) -> Iterator[Block]:
    """Everything that may carry a marker, in the order in which the API reads it."""
    yield from mappings(body.get("tools"))
    yield from mappings(body.get("system"))
    for message in mappings(body.get("messages")):
        for block in mappings(message.get("content")):
            yield block
            yield from mappings(block.get("content"))


def _thinking(thinking: Mapping[str, Any], body: Mapping[str, Any], betas: str, *, counted: bool) -> Iterator[str]:
    if mapping(thinking.get("block_binding")) and BINDING_BETA not in betas:
        yield "thinking.block_binding: Extra inputs are not permitted"
    if thinking.get("type") != "enabled":
        return
    budget = thinking.get("budget_tokens")
    if not isinstance(budget, int) or budget < LEAST_BUDGET:
        yield f"thinking.enabled.budget_tokens: Input should be greater than or equal to {LEAST_BUDGET}"
    elif not counted and body["max_tokens"] <= budget:
        yield "`max_tokens` must be greater than `thinking.budget_tokens`."
    if mapping(body.get("tool_choice")).get("type") in ("any", "tool"):
        yield "Thinking may not be enabled when tool_choice forces tool use."
    yield from _unopened(mappings(body["messages"]))


def _unopened(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Manual thinking: inside a tool loop the last assistant message must open with what was thought."""
    last = next((at for at in reversed(range(len(messages))) if messages[at].get("role") == "assistant"), None)
    if last is None:
        return
    behind = [block for message in messages[last + 1 :] for block in blocks_of(message.get("content"))]
    first = next((str(block.get("type")) for block in blocks_of(messages[last].get("content"))), "nothing")
    if behind and all(block.get("type") == "tool_result" for block in behind) and first not in THINKING:
        yield (
            f"messages.{last}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{first}`. When "
            "`thinking` is enabled, a final `assistant` message must start with a thinking block (preceding the last "
            "set of `tool_use` and `tool_result` blocks)."
        )
