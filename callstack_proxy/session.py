"""`Engine`, `Session` and `AsyncSession`: the engine of the proxy for a program that asks its model itself.

An engine runs in a thread of its own, so that sessions can be used from any thread and any event loop. A session serves
one agent loop, one request at a time; the conversation is found by its messages, as the proxy finds it.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
from collections.abc import Coroutine, Iterable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self, TypeVar

import msgspec

from callstack_proxy.engine import PATHS, CallerAnswer, CallerUpstream, Turn, configuration, new_request, open_engine
from callstack_proxy.values import (
    Api,
    Json,
    Refused,
    Step,
    answer_body,
    body_of,
    figures_of,
    refusal_body,
    step_with,
    without_stack_calls,
)
from proxy.errors import BadRequest, NotAllowed, ProxyError

log = logging.getLogger(__name__)

Result = TypeVar("Result")
_SESSION_HEADER = b"x-stack-session"
_ANSWER_FIRST = "There is no request to answer: call context() first, and answer() once for each."


class Engine:
    """The services behind sessions, on one store. `data` is a directory, kept for the next run; without it everything
    is lost at exit. `settings` are those of proxy.yaml, such as `{"folding": "full"}`. Raises InvalidConfiguration and
    StoreError. Close it, or use it as a context manager."""

    def __init__(self, *, data: str | Path | None = None, settings: Mapping[str, object] | None = None) -> None:
        config = configuration(data, settings)
        self._process = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="callstack-engine", daemon=True)
        self._is_closed = False
        self._thread.start()
        with ExitStack() as undo:
            undo.callback(self._stop_thread)
            self.opened = self.run(open_engine(config, CallerUpstream()))
            undo.pop_all()
        atexit.register(self._close_at_exit)

    def session(self, model: str, *, api: Api = "chat", name: str = "") -> Session:
        """A session on this engine, for an agent loop that does not run on an event loop. See Session."""
        return Session(model, api=api, name=name, engine=self)

    def async_session(self, model: str, *, api: Api = "chat", name: str = "") -> AsyncSession:
        """A session on this engine, for coroutines."""
        return AsyncSession(model, api=api, name=name, engine=self)

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """What `work` returns, run on the engine's event loop."""
        return asyncio.run_coroutine_threadsafe(work, self._open_loop(work)).result()

    async def run_async(self, work: Coroutine[Any, Any, Result]) -> Result:
        """The same for a caller on another event loop."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._open_loop(work)))

    def _open_loop(self, work: Coroutine[Any, Any, Result]) -> asyncio.AbstractEventLoop:
        fault = ""
        if self._is_closed:
            fault = "The engine is closed: open another one."
        elif os.getpid() != self._process:
            fault = "The engine was opened before this process was forked: open one in each process."
        if fault:
            work.close()
            raise NotAllowed(fault, code="engine_closed")
        return self._loop

    def close(self) -> None:
        """Write everything to disk. A request that is under way is over, as if its client had left."""
        if self._is_closed or os.getpid() != self._process:
            return
        atexit.unregister(self._close_at_exit)
        try:
            self.run(self._close())
        finally:
            self._is_closed = True
            self._stop_thread()

    def _close_at_exit(self) -> None:
        with suppress(RuntimeError):  # all is written by then, but the interpreter starts no thread to tidy up in
            self.close()

    async def _close(self) -> None:
        running = asyncio.all_tasks() - {asyncio.current_task()}
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
        await self.opened.close()

    def _stop_thread(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _SessionCore:
    """What both kinds of session do. The coroutines run on the engine's event loop."""

    def __init__(  # noqa: PLR0913 - all but the model have a default
        self,
        model: str,
        *,
        data: str | Path | None = None,
        settings: Mapping[str, object] | None = None,
        api: Api = "chat",
        name: str = "",
        engine: Engine | None = None,
    ) -> None:
        """`model` is the name by which prices and windows are looked up. `name` tells two conversations apart that
        begin with the same words. `engine` is shared with other sessions; without it the session opens its own."""
        if api not in PATHS:
            raise BadRequest(f"api: {api!r} is none of {', '.join(PATHS)}.")
        if engine is not None and (data is not None or settings is not None):
            raise BadRequest("data and settings belong to the engine that is given.")
        self.model, self.api = model, api
        self._headers = [(_SESSION_HEADER, name.encode())] if name else []
        self._owns_engine = engine is None
        self.engine = engine or Engine(data=data, settings=settings)
        self._turn: Turn | None = None
        self._is_bypassed = False

    def _request_with(self, messages: Iterable[Any], tools: Iterable[Any] | None) -> Json:
        if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Iterable):
            raise BadRequest("The messages come as a list, the oldest first.")
        rows = "input" if self.api == "responses" else "messages"
        offered = list(tools or ())
        return {"model": self.model, rows: list(messages), **({"tools": offered} if offered else {})}

    def _context_in(self, request: Json, sent: Json) -> tuple[list[Any], list[Any]]:
        rows = "input" if self.api == "responses" else "messages"
        return list(sent[rows]), list(sent.get("tools") or request.get("tools") or ())

    async def _prepare(self, request: Mapping[str, Any], body: bytes) -> Json:
        """The request as it is to be sent to the model."""
        if self._turn is not None and self._turn.request.body == body:
            sent = self._turn.newest_body  # asked again, after an answer of ours or a failure of the caller's
        else:
            await self._leave()
            sent = await self._begin(body)
        self._is_bypassed = sent is None
        if sent is None or sent == body:
            return dict(request)
        kept = {name: request[name] for name in ("stream", "stream_options") if name in request}
        return {**msgspec.json.decode(sent), **kept}

    async def _begin(self, body: bytes) -> bytes | None:
        """None where the engine cannot help. Raises ProxyError where a person or a rule forbids the request."""
        self._turn = turn = Turn(self.engine.opened, new_request(PATHS[self.api], body, self._headers), self.api)
        try:
            sent = await turn.next()
        except ProxyError:
            self._turn = None
            raise
        except Exception:  # the edge of our own work: the agent must not notice
            log.exception("request could not be prepared", extra={"request": turn.request.id})
            sent = None
        if sent is None:
            self._turn = None
            if turn.reply.status >= 400:
                raise Refused(turn.reply.status or 502, turn.reply.body)
        return sent

    async def _answer(self, status: int, body: bytes) -> Step:
        turn = self._turn
        if turn is None:
            if not self._is_bypassed:
                raise NotAllowed(_ANSWER_FIRST, code="no_request")
            self._is_bypassed = False
            if status >= 400:
                raise Refused(status, body)
            return step_with(body, self.api, figures_of({}))
        turn.give(CallerAnswer(status, body))
        try:
            if await turn.next() is not None:
                return Step(again=True)
        except ProxyError:
            self._turn = None
            raise
        except Exception:  # the edge of our own work: the agent must not notice
            log.exception("answer could not be kept", extra={"request": turn.request.id})
            self._turn = None
            return step_with(without_stack_calls(body, self.api), self.api, figures_of({}))
        self._turn = None
        if turn.reply.status >= 400 or turn.reply.was_aborted:
            raise Refused(turn.reply.status or 502, turn.reply.body)
        return step_with(turn.reply.body, self.api, figures_of(turn.reply.header_values))

    async def _leave(self) -> None:
        turn, self._turn = self._turn, None
        if turn is not None:
            await turn.leave()


class Session(_SessionCore):
    """The engine for one agent loop:

        session = Session("gpt-5.4", data="~/.my-agent")
        while True:
            messages, tools = session.context(history, TOOLS)
            step = session.answer(client.chat.completions.create(model="gpt-5.4", messages=messages, tools=tools))
            if step.again:
                continue
            history.append(step.message)
            if not step.calls:
                break
            history.extend(run(call) for call in step.calls)

    Where the engine cannot help (the store is broken, the messages are none that it knows) the application's own
    messages come back as they are. Raises Refused where a person stopped the agent.
    """

    def context(self, messages: Iterable[Any], tools: Iterable[Any] | None = None) -> tuple[list[Any], list[Any]]:
        """The messages and tools to send to the model. Given the same messages again it gives the same, until `answer`
        was called. Raises BadRequest for what are no messages."""
        request = self._request_with(messages, tools)
        return self._context_in(request, self.request(request))

    def request(self, body: Mapping[str, Any]) -> Json:
        """The same for a whole body of the API, with `model`, `system`, `tool_choice` and all else."""
        return self.engine.run(self._prepare(body, body_of(body)))

    def answer(self, answer: Any, usage: Any = None) -> Step:
        """Take what the model answered to the newest context: the message of the assistant, or the whole answer, which
        also tells its usage. Raises BadRequest for what is no answer, and NotAllowed where nothing was asked."""
        return self.engine.run(self._answer(200, answer_body(answer, usage, self.api, self.model)))

    def refused(self, status: int, error: Any) -> Step:
        """Take the provider's refusal of the newest context. `again` says that there is another form, or a shorter one,
        to try. Raises Refused where there is none."""
        return self.engine.run(self._answer(status, refusal_body(error)))

    def close(self) -> None:
        """Leave a request that is under way, and close the engine, unless it was given."""
        if not self._owns_engine:
            self.engine.run(self._leave())
        else:
            self.engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncSession(_SessionCore):
    """As Session, for coroutines. Opening and closing the engine block for some ten milliseconds."""

    async def context(self, messages: Iterable[Any], tools: Iterable[Any] | None = None) -> tuple[list[Any], list[Any]]:
        """See Session.context."""
        request = self._request_with(messages, tools)
        return self._context_in(request, await self.request(request))

    async def request(self, body: Mapping[str, Any]) -> Json:
        """See Session.request."""
        return await self.engine.run_async(self._prepare(body, body_of(body)))

    async def answer(self, answer: Any, usage: Any = None) -> Step:
        """See Session.answer."""
        return await self.engine.run_async(self._answer(200, answer_body(answer, usage, self.api, self.model)))

    async def refused(self, status: int, error: Any) -> Step:
        """See Session.refused."""
        return await self.engine.run_async(self._answer(status, refusal_body(error)))

    async def close(self) -> None:
        """See Session.close."""
        if not self._owns_engine:
            await self.engine.run_async(self._leave())
        else:
            await asyncio.to_thread(self.engine.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
