"""Words of an answer that are only known when the request arrives.

`{{source:pattern}}` in a text or in an argument is replaced by what the regular expression finds in an earlier
message: its first group, or all it matched. Sources: `last_tool_result`, `last_user`, `system`, `messages` (newest
first). So a scripted model can name a frame id, a path or a price that it was told before.

Its one law: a template that finds nothing is an error, never an empty string; a script that goes on with a hole in it
would make a test pass for the wrong reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from llm_test_provider.answer import ScriptedAnswer, ScriptedCall

TEMPLATE = re.compile(r"\{\{(\w+):(.+?)\}\}(?!\})", re.DOTALL)


class TemplateError(ValueError):
    """A template names no known source, is no regular expression, or finds nothing."""


def fill(answer: ScriptedAnswer, messages: Sequence[Mapping[str, Any]]) -> ScriptedAnswer:
    """The answer with every template replaced. Raises TemplateError."""

    def one(text: str) -> str:
        return TEMPLATE.sub(lambda match: _found(match[1], match[2], messages), text)

    calls = tuple(replace(call, arguments=_filled_arguments(call, one)) for call in answer.calls)
    return answer.but(text=one(answer.text), reasoning=one(answer.reasoning), calls=calls)


def text_of(content: object) -> str:
    """The words of a message's content: a string, or the text parts of a list, joined."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "".join(str(part.get("text") or "") for part in parts if isinstance(part, Mapping))


def last_text(messages: Sequence[Mapping[str, Any]], *roles: str) -> str | None:
    """Text of the newest message in one of `roles`; `None` where there is none."""
    return next(
        (text_of(message.get("content")) for message in reversed(messages) if message.get("role") in roles), None
    )


def _filled_arguments(call: ScriptedCall, one: Callable[[str], str]) -> Mapping[str, Any] | str:
    filled: Mapping[str, Any] | str = _walk(call.arguments, one)
    return filled


def _walk(value: Any, one: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return one(value)
    if isinstance(value, Mapping):
        return {key: _walk(item, one) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_walk(item, one) for item in value]
    return value


def _found(source: str, pattern: str, messages: Sequence[Mapping[str, Any]]) -> str:
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise TemplateError(f"{{{{{source}:{pattern}}}}}: {error}") from error
    for text in _texts(source, messages):
        match = expression.search(text)
        if match:
            return match[1] if expression.groups else match[0]
    raise TemplateError(f"{{{{{source}:{pattern}}}}} found nothing in this request")


def _texts(source: str, messages: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    roles = {"last_tool_result": ("tool", "function"), "last_user": ("user",), "system": ("system", "developer")}
    if source == "messages":
        return [text_of(message.get("content")) for message in reversed(messages)]
    if source not in roles:
        raise TemplateError(f"unknown source {source!r} in a template; use one of {', '.join([*roles, 'messages'])}")
    text = last_text(messages, *roles[source])
    return [] if text is None else [text]
