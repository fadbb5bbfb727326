"""What the strictest providers refuse before any model reads the request, in their status, shape and words.

A profile is a row of `PROFILES`: a name, the shape of its errors, and pure checks. `refusal_of` runs them over one
body. The rows are facts about other people's servers, collected from public bug reports and documents up to 2026-11:
what a profile refuses the real one refuses too, or did. The checks that every request to messages and responses passes
anyway stand in `apis/messages_checks.py` and `apis/responses_checks.py`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from llm_test_provider.answer import ApiError, FixedReply, JsonObject, error_reply
from llm_test_provider.apis import Dialect
from llm_test_provider.apis.json import encoded, mapping, mappings
from llm_test_provider.reasoning_binding import Field

Shape = Literal["openai", "google", "flat", "object", "vllm"]
Check = Callable[[JsonObject], Iterator["Refusal"]]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a body is refused. `kind` and `code` are the provider's names for that."""

    message: str
    param: str | None = None
    code: str | None = None
    kind: str = "invalid_request_error"
    status: int = 400


@dataclass(frozen=True, slots=True)
class StrictProfile:
    """One provider. `checks` are those of each API that it has; it answers nothing else."""

    name: str
    model: str
    """A model that it serves."""
    checks: Mapping[Dialect, Sequence[Check]]
    shape: Shape = "openai"
    required: tuple[Field, ...] = ()
    """What its answers with calls carry, because it demands that back."""
    reasoning_field: str = "reasoning_content"
    """Where its answers over chat completions hold their reasoning."""
    call_id: str = ""
    """What its call ids begin with in place of what is usual in the API; eight digits follow."""


def refusal_of(name: str, dialect: Dialect, body: object) -> FixedReply | None:
    """Why the provider of this name refuses a body; None if it takes it. Raises KeyError for an unknown name."""
    profile = PROFILES[name]
    if not isinstance(body, dict):
        return None
    if dialect not in profile.checks:
        return error_reply(404, ApiError(f"{name} has no API of this kind: {dialect}", code="unknown_url"))
    found = next((refused for check in profile.checks[dialect] for refused in check(body)), None)
    return _reply(profile.shape, found) if found else None


def _reply(shape: Shape, refused: Refusal) -> FixedReply:
    told = {"message": refused.message, "type": refused.kind, "param": refused.param, "code": refused.code}
    if shape == "openai":
        return error_reply(refused.status, ApiError(refused.message, refused.kind, refused.code, refused.param))
    bodies: dict[str, Any] = {
        "google": [{"error": {"code": refused.status, "message": refused.message, "status": "INVALID_ARGUMENT"}}],
        "flat": told,
        "object": {"object": "error", **told},
        "vllm": {"error": told | {"type": "BadRequestError", "code": refused.status}},
    }
    return FixedReply(refused.status, encoded(bodies[shape]))


# ------------------------------------------------------------------------------------------------ reading chat requests
def _messages(body: JsonObject) -> list[Mapping[str, Any]]:
    return mappings(body.get("messages"))


def _calls(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return mappings(message.get("tool_calls")) if message.get("role") == "assistant" else []


def _functions(body: JsonObject) -> list[Mapping[str, Any]]:
    return [mapping(tool.get("function")) for tool in mappings(body.get("tools")) if tool.get("type") == "function"]


def _is_empty(message: Mapping[str, Any]) -> bool:
    content = message.get("content")
    if isinstance(content, list):
        return not any(part.get("type") != "text" or str(part.get("text") or "").strip() for part in mappings(content))
    return not str(content or "").strip()


def _unpaired(messages: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, list[str], str]]:
    """Where calls and results do not meet: the position, calls whose results do not follow, a result without a call."""
    at = 0
    while at < len(messages):
        wanted = Counter(str(call.get("id")) for call in _calls(messages[at]))
        opened, at = at, at + 1
        if messages[opened].get("role") == "tool":
            yield opened, [], str(messages[opened].get("tool_call_id"))
        while wanted and at < len(messages) and messages[at].get("role") == "tool":
            answered = str(messages[at].get("tool_call_id"))
            if wanted[answered] <= 0:
                yield at, [], answered
            wanted[answered] -= 1
            at += 1
        if missing := sorted((+wanted).elements()):
            yield opened, missing, ""


def _nodes(schema: object, path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """All schemas in a JSON schema, with their paths. Names of properties are no keywords."""
    if not isinstance(schema, Mapping):
        return
    yield path, schema
    for holder in ("properties", "$defs", "definitions"):
        for name, inner in mapping(schema.get(holder)).items():
            yield from _nodes(inner, f"{path}.{holder}.{name}".lstrip("."))
    yield from _nodes(schema.get("items"), f"{path}.items".lstrip("."))
    for several in ("anyOf", "oneOf", "allOf"):
        for at, inner in enumerate(mappings(schema.get(several))):
            yield from _nodes(inner, f"{path}.{several}[{at}]".lstrip("."))


# ---------------------------------------------------------------------------------------------------- checks of several
def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _pairs(orphan: str, missing: str, *, code: str | None = None, kind: str = "invalid_request_error") -> Check:
    """Calls are followed by their results, and results stand nowhere else."""

    def check(body: JsonObject) -> Iterator[Refusal]:
        for at, calls, result in _unpaired(_messages(body)):
            words = missing.format(ids=", ".join(calls)) if calls else orphan.format(id=result)
            yield Refusal(words, f"messages.[{at}].role", code, kind)

    return check


def _unique_names(words: str) -> Check:
    def check(body: JsonObject) -> Iterator[Refusal]:
        names = Counter(str(function.get("name")) for function in _functions(body))
        for name, count in names.items():
            if count > 1:
                yield Refusal(words.format(name=name), "tools")

    return check


def _known_members(known: Collection[str], words: str, *, code: str | None = None) -> Check:
    def check(body: JsonObject) -> Iterator[Refusal]:
        for name in body:
            if name not in known:
                yield Refusal(words.format(name=name), name, code)

    return check


def _reasoning_comes_back(words: str) -> Check:
    def check(body: JsonObject) -> Iterator[Refusal]:
        for at, message in enumerate(_messages(body)):
            if _calls(message) and not isinstance(message.get("reasoning_content"), str):
                yield Refusal(words.format(at=at))

    return check


def _message_members(words: str, allowed: Mapping[str, Collection[str]], **kind: Any) -> Check:
    """A message has no members but these, by its role."""

    def check(body: JsonObject) -> Iterator[Refusal]:
        for at, message in enumerate(_messages(body)):
            role = str(message.get("role"))
            for name in message:
                if name not in allowed.get(role, ("role", "content", "name")):
                    yield Refusal(words.format(at=at, role=role, name=name), **kind)

    return check


PLAIN_MEMBERS = {
    "assistant": ("role", "content", "name", "tool_calls", "refusal", "function_call", "audio"),
    "tool": ("role", "content", "tool_call_id", "name"),
}
"""Members of chat messages as OpenAI documents them; the other roles have a content and a name."""


# --------------------------------------------------------------------------------------------------------------- openai
MOST_TOOLS = 128
MOST_ID_CHARACTERS = 40
TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
CHAT_MEMBERS = _words(
    """
    audio frequency_penalty function_call functions logit_bias logprobs max_completion_tokens max_tokens
    messages metadata modalities model n parallel_tool_calls prediction presence_penalty prompt_cache_key
    prompt_cache_retention reasoning_effort response_format safety_identifier seed service_tier stop store
    stream stream_options temperature tool_choice tools top_logprobs top_p user verbosity web_search_options
    """
)
RESPONSES_MEMBERS = _words(
    """
    background client_metadata context_management conversation include input instructions max_output_tokens
    max_tool_calls metadata model parallel_tool_calls previous_response_id prompt prompt_cache_key
    prompt_cache_retention reasoning safety_identifier service_tier store stream stream_options temperature text
    tool_choice tools top_logprobs top_p truncation user
    """
)


def _openai_tools(body: JsonObject) -> Iterator[Refusal]:
    """As chat completions and responses check them; in the latter a function stands in the tool itself."""
    tools = mappings(body.get("tools"))
    if len(tools) > MOST_TOOLS:
        words = f"array too long. Expected an array with maximum length {MOST_TOOLS}, but got an array with length"
        yield Refusal(f"Invalid 'tools': {words} {len(tools)} instead.", "tools", "array_above_max_length")
    if body.get("tools") == [] and "messages" in body:
        words = "Invalid 'tools': empty array. Expected an array with minimum length 1, but got an empty array instead."
        yield Refusal(words, "tools", "empty_array")
    for name in ("tool_choice", "parallel_tool_calls"):
        if not tools and body.get(name) is not None and "messages" in body:
            yield Refusal(f"Invalid value for '{name}': '{name}' is only allowed when 'tools' are specified.", name)
    names: set[str] = set()
    for at, tool in enumerate(tools):
        if tool.get("type") not in ("function", "custom"):
            continue
        where = f"tools[{at}]" if "messages" not in body else f"tools[{at}].{tool['type']}"
        described = mapping(tool.get(str(tool["type"]))) if "messages" in body else tool
        name = str(described.get("name"))
        if not TOOL_NAME.fullmatch(name):
            words = "string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."
            yield Refusal(f"Invalid '{where}.name': {words}", f"{where}.name", "invalid_value")
        if name in names:
            yield Refusal(f"Tool names must be unique: '{name}' is defined more than once.", "tools", "invalid_value")
        names.add(name)
        if tool["type"] == "function":
            yield from _openai_schema(name, described, f"{where}.parameters")


def _openai_schema(name: str, function: Mapping[str, Any], where: str) -> Iterator[Refusal]:
    parameters = function.get("parameters")
    told = f"Invalid schema for function '{name}': "
    if parameters is not None and mapping(parameters).get("type") != "object":
        words = (
            f"""schema must be a JSON Schema of 'type: "object"', got 'type: "{mapping(parameters).get("type")}"'."""
        )
        yield Refusal(told + words, where, "invalid_function_parameters")
    for path, schema in _nodes(parameters) if function.get("strict") is True else ():
        context = f"In context=({path!r}), " if path else "In context=(), "
        if schema.get("type") == "object" and schema.get("additionalProperties") is not False:
            words = "'additionalProperties' is required to be supplied and to be false."
            yield Refusal(told + context + words, where, "invalid_function_parameters")
        given = schema.get("required")
        required = given if isinstance(given, list) else []
        left = [name for name in mapping(schema.get("properties")) if name not in required]
        if left:
            words = "'required' is required to be supplied and to be an array including every key in properties."
            yield Refusal(f"{told}{context}{words} Missing '{left[0]}'.", where, "invalid_function_parameters")
    for path, schema in _nodes(parameters):
        if schema.get("type") == "array" and "items" not in schema:
            words = "array schema missing items."
            yield Refusal(f"{told}In context=({path!r}), {words}", where, "invalid_function_parameters")


def _openai_messages(body: JsonObject) -> Iterator[Refusal]:
    for at, message in enumerate(_messages(body)):
        calls = _calls(message)
        if message.get("content") is None and not calls and message.get("role") != "assistant":
            yield Refusal(
                "Invalid value for 'content': expected a string, got null.", f"messages.[{at}].content", "invalid_type"
            )
        if message.get("role") == "assistant" and message.get("tool_calls") == []:
            words = "empty array. Expected an array with minimum length 1, but got an empty array instead."
            yield Refusal(f"Invalid 'messages[{at}].tool_calls': {words}", f"messages[{at}].tool_calls", "empty_array")
        for number, call in enumerate(calls):
            if len(str(call.get("id"))) > MOST_ID_CHARACTERS:
                where = f"messages[{at}].tool_calls[{number}].id"
                words = f"string too long. Expected a string with maximum length {MOST_ID_CHARACTERS}."
                yield Refusal(f"Invalid '{where}': {words}", where, "string_above_max_length")
    if body.get("stream_options") is not None and body.get("stream") is not True:
        yield Refusal("The 'stream_options' parameter is only allowed when 'stream' is enabled.", "stream_options")


MADE_WITH_REASONING = re.compile(r"message|reasoning|\w+_call|mcp_\w+|compaction|program")
"""Types of items that a reasoning item may stand before."""


def _openai_items(body: JsonObject) -> Iterator[Refusal]:
    """Behind a reasoning item stands what was made with it."""
    items = mappings(body.get("input"))
    for at, item in enumerate(items):
        if item.get("type") != "reasoning":
            continue
        following = items[at + 1] if at + 1 < len(items) else {}
        kind = str(following.get("type") or ("message" if "role" in following else ""))
        is_answer = kind != "message" or following.get("role") == "assistant"
        if not (is_answer and MADE_WITH_REASONING.fullmatch(kind)):
            words = f"Item '{item.get('id')}' of type 'reasoning' was provided without its required following item."
            yield Refusal(words, "input")


# ------------------------------------------------------------------------------------------------------------ anthropic
MESSAGES_MEMBERS = _words(
    """
    cache_control container context_management inference_geo max_tokens mcp_servers messages metadata model
    output_config output_format service_tier speed stop_sequences stream system temperature thinking tool_choice
    tools top_k top_p user_profile_id
    """
)
BLOCK_MEMBERS: Mapping[str, Collection[str]] = {
    "text": ("type", "text", "cache_control", "citations"),
    "tool_use": ("type", "id", "name", "input", "cache_control", "caller"),
    "tool_result": ("type", "tool_use_id", "content", "is_error", "cache_control"),
    "thinking": ("type", "thinking", "signature"),
    "redacted_thinking": ("type", "data"),
}


def _anthropic_members(body: JsonObject) -> Iterator[Refusal]:
    for name in body:
        if name not in MESSAGES_MEMBERS:
            yield Refusal(f"{name}: Extra inputs are not permitted")
    ids: set[str] = set()
    for at, message in enumerate(_messages(body)):
        for name in message:
            if name not in ("role", "content") and not (message.get("role") == "system" and name == "output_config"):
                yield Refusal(f"messages.{at}.{name}: Extra inputs are not permitted")
        for place, block in enumerate(mappings(message.get("content"))):
            kind = str(block.get("type"))
            for name in block if kind in BLOCK_MEMBERS else ():
                if name not in BLOCK_MEMBERS[kind]:
                    yield Refusal(f"messages.{at}.content.{place}.{kind}.{name}: Extra inputs are not permitted")
            if kind == "tool_use" and str(block.get("id")) in ids:
                yield Refusal(f"messages.{at}.content.{place}: `tool_use` ids must be unique")
            ids |= {str(block["id"])} if kind == "tool_use" and "id" in block else set()


def _anthropic_tools(body: JsonObject) -> Iterator[Refusal]:
    names = Counter(str(tool.get("name")) for tool in mappings(body.get("tools")) if "name" in tool)
    if any(count > 1 for count in names.values()):
        yield Refusal("tools: Tool names must be unique.")
    for at, tool in enumerate(mappings(body.get("tools"))):
        if tool.get("type", "custom") == "custom" and not re.fullmatch(r"[a-zA-Z0-9_-]{1,128}", str(tool.get("name"))):
            yield Refusal(f"tools.{at}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")


# --------------------------------------------------------------------------------------------------------------- gemini
NO_GEMINI_KEYWORDS = (
    "$schema", "const", "dependentRequired", "dependentSchemas", "else", "exclusiveMaximum", "exclusiveMinimum", "if",
    "not", "patternProperties", "propertyNames", "then", "unevaluatedProperties",
)  # fmt: skip


def _gemini_schemas(body: JsonObject) -> Iterator[Refusal]:
    for at, function in enumerate(_functions(body)):
        for path, schema in _nodes(function.get("parameters")):
            where = f"tools[0].function_declarations[{at}].parameters" + (f".{path}" if path else "")
            for keyword in NO_GEMINI_KEYWORDS:
                if keyword in schema:
                    words = (
                        f"Invalid JSON payload received. Unknown name \"{keyword}\" at '{where}': Cannot find field."
                    )
                    yield Refusal(words)
            if schema.get("enum") and schema.get("type") not in ("string", None):
                yield Refusal(f"{where}.enum: only allowed for STRING type")


def _gemini_turns(body: JsonObject) -> Iterator[Refusal]:
    messages = _messages(body)
    before = ""
    for at, message in enumerate(messages):
        role = str(message.get("role"))
        if _calls(message) and before not in ("user", "tool"):
            yield Refusal(
                "Please ensure that function call turn comes immediately after a user turn or after a function "
                "response turn."
            )
        if role == "assistant" and not _calls(message) and _is_empty(message):
            yield Refusal(f"* GenerateContentRequest.contents[{at}].parts: contents.parts must not be empty.\n")
        before = before if role in ("system", "developer") else role


def _gemini_signatures(body: JsonObject) -> Iterator[Refusal]:
    """On the first call of each step behind the newest words of the user."""
    messages = _messages(body)
    start = max((at for at, message in enumerate(messages) if message.get("role") == "user"), default=0)
    for at in range(start, len(messages)):
        for call in _calls(messages[at])[:1]:
            google = mapping(mapping(call.get("extra_content")).get("google"))
            if not google.get("thought_signature"):
                name = mapping(call.get("function")).get("name")
                yield Refusal(
                    "Function call is missing a thought_signature in functionCall parts. This is required for tools to "
                    "work correctly, and missing thought_signature may lead to degraded model performance. Additional "
                    f"data, function call `default_api:{name}` , position {at}. Please refer to "
                    "https://ai.google.dev/gemini-api/docs/thought-signatures for more details."
                )


# ---------------------------------------------------------------------------------------------------- kimi and the rest
def _kimi_contents(body: JsonObject) -> Iterator[Refusal]:
    for at, message in enumerate(_messages(body)):
        role = str(message.get("role"))
        if role in ("user", "assistant") and not _calls(message) and _is_empty(message):
            yield Refusal(f"Invalid request: the message at position {at} with role '{role}' must not be empty")


def _kimi_schemas(body: JsonObject) -> Iterator[Refusal]:
    told = "Invalid request: tools.function.parameters is not a valid moonshot flavored json schema, details: "
    for function in _functions(body):
        for path, schema in _nodes(function.get("parameters")):
            if "anyOf" in schema and "type" in schema:
                words = "type should be defined in anyOf items instead of the parent schema"
                yield Refusal(f"{told}<At path '{path}': {words}>")


def _cerebras_strictness(body: JsonObject) -> Iterator[Refusal]:
    """A tool that does not say so is not strict."""
    if len({function.get("strict") is True for function in _functions(body)}) > 1:
        yield Refusal(
            "Tools with mixed values for 'strict' are not allowed. Please set all tools to 'strict: true' or "
            "'strict: false'",
            "tools",
            "wrong_api_format",
        )


def _groq_calls(body: JsonObject) -> Iterator[Refusal]:
    offered = {str(function.get("name")) for function in _functions(body)}
    for message in _messages(body):
        for call in _calls(message):
            name = str(mapping(call.get("function")).get("name"))
            if name not in offered:
                words = f"attempted to call tool '{name}' which was not in request.tools"
                yield Refusal(f"tool call validation failed: {words}", code="tool_use_failed")


MISTRAL_ID = re.compile(r"[a-zA-Z0-9]{9}")
AFTER: Mapping[str, Collection[str]] = {
    "": ("system", "user"),
    "system": ("system", "user", "assistant"),
    "user": ("system", "user", "assistant"),
    "assistant": ("system", "user", "assistant"),
    "assistant with calls": ("tool",),
    "tool": ("tool", "assistant"),
}
"""The roles that may follow one."""


def _mistral_order(body: JsonObject) -> Iterator[Refusal]:
    code, kind = "3230", "invalid_request_message_order"
    before, shown = "", ""
    for message in _messages(body):
        role = str(message.get("role"))
        if role not in AFTER[before]:
            yield Refusal(f"Unexpected role '{role}' after role '{shown}'", code=code, kind=kind)
        before, shown = f"{role} with calls" if _calls(message) else role, role
        before = before if before in AFTER else "user"
    if any(True for _ in _unpaired(_messages(body))):
        yield Refusal("Not the same number of function calls and responses", code=code, kind=kind)
    if shown == "assistant":
        words = "Expected last role User or Tool (or Assistant with prefix True) for serving but got assistant"
        yield Refusal(words, code=code, kind=kind)


def _mistral_ids(body: JsonObject) -> Iterator[Refusal]:
    for message in _messages(body):
        named = [call.get("id") for call in _calls(message)]
        named += [message.get("tool_call_id")] if message.get("role") == "tool" else []
        for ident in named:
            if not MISTRAL_ID.fullmatch(str(ident)):
                words = f"Tool call id was {ident} but must be a-z, A-Z, 0-9, with a length of 9."
                yield Refusal(words, code="3280", kind="invalid_function_call")


def _template_order(body: JsonObject) -> Iterator[Refusal]:
    """Calls and results do not count."""
    expected = "user"
    for at, message in enumerate(_messages(body)):
        role = str(message.get("role"))
        if role in ("system", "developer"):
            if at:
                yield Refusal("System message must be at the beginning.")
        elif role != "tool" and not _calls(message):
            if role != expected:
                yield Refusal("Conversation roles must alternate user/assistant/user/assistant/...")
            expected = "assistant" if expected == "user" else "user"


OPENAI_PAIRS = _pairs(
    "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.",
    "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "
    "The following tool_call_ids did not have response messages: {ids}",
)
PROFILES: Mapping[str, StrictProfile] = {
    profile.name: profile
    for profile in (
        StrictProfile(
            "openai",
            "gpt-5.2",
            {
                "chat": (
                    _known_members(CHAT_MEMBERS, "Unrecognized request argument supplied: {name}"),
                    _openai_messages,
                    OPENAI_PAIRS,
                    _openai_tools,
                ),
                "responses": (
                    _known_members(RESPONSES_MEMBERS, "Unknown parameter: '{name}'.", code="unknown_parameter"),
                    _openai_items,
                    _openai_tools,
                ),
            },
        ),
        StrictProfile("anthropic", "claude-opus-4-8", {"messages": (_anthropic_members, _anthropic_tools)}),
        StrictProfile(
            "gemini",
            "gemini-3-pro-preview",
            {
                "chat": (
                    _gemini_schemas,
                    _pairs(
                        "Please ensure that function response turn comes immediately after a function call turn.",
                        "Please ensure that the number of function response parts is equal to the number of function "
                        "call parts of the function call turn.",
                    ),
                    _gemini_turns,
                    _gemini_signatures,
                )
            },
            "google",
            ("thought_signature",),
        ),
        StrictProfile(
            "kimi",
            "kimi-k2.6",
            {
                "chat": (
                    _kimi_contents,
                    _pairs(
                        "Invalid request: tool_call_id {id} is not found",
                        "Invalid request: an assistant message with 'tool_calls' must be followed by tool messages "
                        "responding to each 'tool_call_id'. The following tool_call_ids did not have response "
                        "messages: {ids}",
                    ),
                    _reasoning_comes_back(
                        "thinking is enabled but reasoning_content is missing in assistant tool call message at index "
                        "{at}"
                    ),
                    _unique_names("Invalid request: function name {name} is duplicated"),
                    _kimi_schemas,
                )
            },
            required=("reasoning_content",),
        ),
        StrictProfile(
            "deepseek",
            "deepseek-v4-flash",
            {
                "chat": (
                    _pairs(
                        "Messages with role 'tool' must be a response to a preceding message with 'tool_calls'",
                        "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
                        "'tool_call_id'. (insufficient tool messages following tool_calls message)",
                        code="invalid_request_error",
                    ),
                    _reasoning_comes_back(
                        "The `reasoning_content` in the thinking mode must be passed back to the API."
                    ),
                    _unique_names("Tool names must be unique."),
                )
            },
            required=("reasoning_content",),
        ),
        StrictProfile(
            "cerebras",
            "zai-glm-4.7",
            {
                "chat": (
                    _cerebras_strictness,
                    _message_members(
                        "messages.{at}.{role}.{name}: property 'messages.{at}.{role}.{name}' is unsupported",
                        PLAIN_MEMBERS,
                        param="validation_error",
                        code="wrong_api_format",
                    ),
                    OPENAI_PAIRS,
                )
            },
            "flat",
            reasoning_field="reasoning",
        ),
        StrictProfile(
            "groq",
            "openai/gpt-oss-120b",
            {
                "chat": (
                    _message_members(
                        "'messages.{at}' : for 'role:{role}' the following must be satisfied[('messages.{at}' : "
                        "property '{name}' is unsupported)]",
                        PLAIN_MEMBERS,
                    ),
                    _openai_tools,
                    _groq_calls,
                )
            },
            reasoning_field="reasoning",
        ),
        StrictProfile(
            "mistral",
            "mistral-large-latest",
            {
                "chat": (
                    _message_members(
                        "Extra inputs are not permitted: body.messages.{at}.{role}.{name}",
                        PLAIN_MEMBERS | {"assistant": (*PLAIN_MEMBERS["assistant"], "prefix")},
                        code="extra_forbidden",
                        status=422,
                    ),
                    _mistral_order,
                    _mistral_ids,
                )
            },
            "object",
            call_id="C",
        ),
        StrictProfile(
            "strict-template",
            "some-local-model",
            {"chat": (_template_order, OPENAI_PAIRS)},
            "vllm",
        ),
    )
}
"""By name. One more is one more row."""
