"""A callback for LiteLLM: `litellm.callbacks = [CallstackCallback(data="...")]`. Each `litellm.acompletion` that is not
streamed is then asked with a rewritten context, and has its stack calls answered. It needs litellm, so nothing else
imports this module. Tried with litellm 1.108.7 and 1.110.2.

LiteLLM calls `async_pre_call_deployment_hook` before the provider is asked, and `async_run_agentic_loop` behind it.
What that raises, such as the provider's refusal of a further round, reaches the caller with 1.110.2; 1.108.7 logs it,
and shows the first round.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import litellm
import msgspec
from litellm.integrations.custom_logger import CustomLogger

from callstack_proxy.session import AsyncSession, Engine
from callstack_proxy.values import Json, Refused, encoded, plain, refusal_in, without_stack_calls
from proxy.errors import BadRequest

_BODY_KEYS = (
    "messages",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "response_format",
    "max_tokens",
    "n",
    "functions",
)
MAX_PENDING = 1_000
"""Calls that wait for their answer. One that LiteLLM's cache answers is never heard of again."""
_CHAT_CALLS = ("acompletion",)
_ASKS_AGAIN: ContextVar[bool] = ContextVar("asks_again", default=False)
"""Whether the call that is being made is one of our own."""


@dataclass(frozen=True, slots=True)
class _Pending:
    session: AsyncSession
    body: Json
    arguments: Json
    """What LiteLLM was called with."""


class CallstackCallback(CustomLogger):  # type: ignore[misc] # litellm is not there where types are checked
    """The engine behind `litellm.acompletion`. `data` and `settings` are those of Engine."""

    def __init__(
        self,
        *,
        data: str | Path | None = None,
        settings: Mapping[str, object] | None = None,
        engine: Engine | None = None,
    ) -> None:
        super().__init__()
        self.engine = engine or Engine(data=data, settings=settings)
        self._pending: dict[str, _Pending] = {}

    async def async_pre_call_deployment_hook(self, kwargs: Json, call_type: Any) -> Json | None:
        name = kwargs.get("litellm_call_id")
        is_chat = str(getattr(call_type, "value", call_type)) in _CHAT_CALLS
        if _ASKS_AGAIN.get() or not is_chat or kwargs.get("stream") or not isinstance(name, str):
            return None
        session = self.engine.async_session(str(kwargs["model"]))
        body = {"model": session.model, **{key: kwargs[key] for key in _BODY_KEYS if kwargs.get(key) is not None}}
        try:
            sent = await session.request(body)
        except BadRequest:  # messages in a form of its own: LiteLLM says what it thinks of them
            return None
        arguments = {key: value for key, value in kwargs.items() if not key.startswith("litellm_")}
        self._pending[name] = _Pending(session, body, arguments)
        if len(self._pending) > MAX_PENDING:
            del self._pending[next(iter(self._pending))]
        return {**kwargs, **_without_model(sent)}

    async def async_post_call_failure_deployment_hook(self, request_data: Any, exception: Any, call_type: Any) -> None:
        pending = self._pending.pop(str(request_data.get("litellm_call_id")), None)
        if pending is not None:
            await pending.session.close()

    async def async_should_run_agentic_loop(self, *_: Any, **about: Any) -> tuple[bool, Json]:
        return about["kwargs"].get("litellm_call_id") in self._pending, {}

    async def async_run_agentic_loop(self, *_: Any, **about: Any) -> Any:
        pending, response = self._pending.pop(about["kwargs"]["litellm_call_id"]), about["response"]
        usage = plain(response).get("usage", {})
        step = await pending.session.answer(response)
        if step.again:  # some versions show the response as it is where this fails, so it may hold no call of ours
            shown = msgspec.json.decode(without_stack_calls(encoded(response), "chat"))["choices"][0]
            response.choices[0].message = litellm.Message(**shown["message"])
            response.choices[0].finish_reason = shown.get("finish_reason")
        while step.again:
            sent = await pending.session.request(pending.body)
            try:
                response = await _ask_again({**pending.arguments, **_without_model(sent)})
            except Exception as error:  # each provider has its own
                again = False
                with suppress(Refused):
                    again = (await pending.session.refused(*refusal_in(error))).again
                if not again:
                    raise
                continue
            usage = _sum_of(usage, plain(response).get("usage", {}))
            step = await pending.session.answer(response)
        choice = step.response["choices"][0]
        response.choices[0].message = litellm.Message(**step.message)
        response.choices[0].finish_reason = choice.get("finish_reason")
        response.usage = litellm.Usage(**usage)
        return response


async def _ask_again(arguments: Json) -> Any:
    """Ask LiteLLM for a further round. The first call logs and bills all of them."""
    token = _ASKS_AGAIN.set(True)
    try:
        return await litellm.acompletion(**{**arguments, "no-log": True})
    finally:
        _ASKS_AGAIN.reset(token)


def _without_model(body: Json) -> Json:
    return {name: value for name, value in body.items() if name != "model"}


def _sum_of(some: Json, more: Json) -> Json:
    """The numbers of two usages, added up, however deep they stand."""
    added = dict(some)
    for name, value in more.items():
        if isinstance(value, dict):
            added[name] = _sum_of(some.get(name) or {}, value)
        elif isinstance(value, int | float):
            added[name] = (some.get(name) or 0) + value
    return added
