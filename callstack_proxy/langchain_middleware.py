"""A middleware for LangChain's agents: `create_agent(model, tools, middleware=[CallstackMiddleware(data="...")])`. It
needs langchain, so nothing else imports this module. Tried with langchain 1.4.7.

The agent's history stays as it is; only what its model is asked changes, and the model's stack calls are answered
before the agent sees them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, SystemMessage, convert_to_messages, convert_to_openai_messages
from langchain_core.utils.function_calling import convert_to_openai_tool

from callstack_proxy.session import Engine
from callstack_proxy.values import Json, Refused, Step, refusal_in

_NAMES = ("model_name", "model")
"""Where models of LangChain keep their name."""


class CallstackMiddleware(AgentMiddleware):  # type: ignore[misc] # langchain is not there where types are checked
    """The engine around each call of an agent's model. `data` and `settings` are those of Engine."""

    def __init__(
        self,
        *,
        data: str | Path | None = None,
        settings: Mapping[str, object] | None = None,
        engine: Engine | None = None,
    ) -> None:
        super().__init__()
        self.engine = engine or Engine(data=data, settings=settings)

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        if _is_left_alone(request):
            return handler(request)
        session, body = self.engine.session(_model_of(request)), _body_of(request)
        try:
            while True:
                asked = _rewritten(request, body, session.request(body))
                try:
                    response = handler(asked)
                except Exception as error:  # each provider has its own
                    again = False
                    with suppress(Refused):
                        again = session.refused(*refusal_in(error)).again
                    if not again:
                        raise
                    continue
                step = session.answer(*_answer_in(response))
                if not step.again:
                    return _shown(response, step)
        finally:
            session.close()

    async def awrap_model_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        if _is_left_alone(request):
            return await handler(request)
        session, body = self.engine.async_session(_model_of(request)), _body_of(request)
        try:
            while True:
                asked = _rewritten(request, body, await session.request(body))
                try:
                    response = await handler(asked)
                except Exception as error:  # each provider has its own
                    again = False
                    with suppress(Refused):
                        again = (await session.refused(*refusal_in(error))).again
                    if not again:
                        raise
                    continue
                step = await session.answer(*_answer_in(response))
                if not step.again:
                    return _shown(response, step)
        finally:
            await session.close()


def _is_left_alone(request: Any) -> bool:
    """A structured answer comes back as a value, which holds no message for us to read."""
    return request.response_format is not None


def _model_of(request: Any) -> str:
    return next((name for key in _NAMES if isinstance(name := getattr(request.model, key, None), str)), "unknown")


def _body_of(request: Any) -> Json:
    head = [request.system_message] if request.system_message is not None else []
    body: Json = {"model": _model_of(request), "messages": convert_to_openai_messages([*head, *request.messages])}
    if request.tools:
        body["tools"] = [tool if isinstance(tool, dict) else convert_to_openai_tool(tool) for tool in request.tools]
    if isinstance(request.tool_choice, str | dict):
        body["tool_choice"] = request.tool_choice
    return body


def _rewritten(request: Any, body: Json, sent: Json) -> ModelRequest:
    """The request with what is to be sent; a message that did not change is the agent's own."""
    head = [request.system_message] if request.system_message is not None else []
    own = {repr(row): message for row, message in zip(body["messages"], [*head, *request.messages], strict=True)}
    messages = [own.get(repr(row)) or convert_to_messages([row])[0] for row in sent["messages"]]
    system = messages.pop(0) if messages and isinstance(messages[0], SystemMessage) else None
    told = len(body.get("tools", ()))
    is_extended = sent.get("tools", [])[:told] == body.get("tools", [])
    tools = [*request.tools, *sent.get("tools", [])[told:]] if is_extended else sent["tools"]
    choice = sent.get("tool_choice", request.tool_choice)
    return request.override(messages=messages, system_message=system, tools=tools, tool_choice=choice)


def _answer_in(response: Any) -> tuple[Json, Json | None]:
    """The model's message, and its usage."""
    message = next(each for each in reversed(response.result) if isinstance(each, AIMessage))
    told = message.usage_metadata
    if not told:
        return convert_to_openai_messages(message), None
    cached = (told.get("input_token_details") or {}).get("cache_read", 0)
    usage = {"prompt_tokens": told["input_tokens"], "completion_tokens": told["output_tokens"]}
    details = {"total_tokens": told["total_tokens"], "prompt_tokens_details": {"cached_tokens": cached}}
    return convert_to_openai_messages(message), {**usage, **details}


def _shown(response: Any, step: Step) -> ModelResponse:
    """The response with the message that is for the agent."""
    said = next(each for each in reversed(response.result) if isinstance(each, AIMessage))
    shown = convert_to_messages([step.message])[0]
    message = said.model_copy(update={"content": shown.content, "tool_calls": shown.tool_calls})
    kept = said if convert_to_openai_messages(said) == convert_to_openai_messages(message) else message
    result = [kept if each is said else each for each in response.result]
    return ModelResponse(result=result, structured_response=response.structured_response)
