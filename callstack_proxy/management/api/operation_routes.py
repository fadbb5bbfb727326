"""Routes that are made from operations: each has the path, the input, the view and the words of its operation."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from inspect import Parameter, Signature
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from fastapi.concurrency import run_in_threadpool

from callstack_proxy.management import find_by_id
from callstack_proxy.management.api.base import (
    NOT_FOUND_RESPONSE,
    ApiContext,
    Caller,
    CurrentCaller,
    Error,
    Id,
    JsonResponse,
    ResponseDocs,
    Thread,
    now_ms,
)
from callstack_proxy.management.operations import Decision, Operation, Target
from callstack_proxy.management.views import path_state_of
from proxy.core.ledger import Conversation
from proxy.store import LedgerRecord


def add_operations(router: APIRouter, operations: Iterable[Operation[Any]]) -> None:
    """Adds a route for each."""
    for operation in operations:
        refused: ResponseDocs = {409: {"model": Error, "description": operation.refusal}} if operation.refusal else {}
        router.add_api_route(
            operation.path,
            _endpoint_of(operation),
            methods=[operation.method],
            name=operation.decide.__name__,
            description=operation.decide.__doc__,
            response_model=operation.view,
            responses={**NOT_FOUND_RESPONSE, **refused},
        )


def _endpoint_of(operation: Operation[Any]) -> Callable[..., Any]:
    async def respond(caller: Caller, operation_input: Any = None, thread: str = "", **place: str) -> Response:
        thread = getattr(operation_input, "thread", thread)
        target = await find_target(caller.context, caller.scope, thread=thread, **place)
        return JsonResponse(await perform(caller.context, operation, target, operation_input))

    annotations = {
        "caller": CurrentCaller,
        operation.place: Id,
        "operation_input": Annotated[operation.input_type, Query()] if operation.in_query else operation.input_type,
        "thread": Thread if operation.thread_in_query else None,
    }
    # The framework reads what a request must have from the signature.
    parameters = [
        Parameter(name, Parameter.KEYWORD_ONLY, annotation=kind, default="" if name == "thread" else Parameter.empty)
        for name, kind in annotations.items()
        if kind is not None
    ]
    respond.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return respond


async def find_target(
    context: ApiContext, scope: str | None, *, conversation: str = "", frame: str = "", thread: str = ""
) -> Target:
    """The newest path with a frame, or the path of a thread or the newest one of a conversation. `scope` is the tenant,
    None for an operator. Raises NotFound, ConversationUnreadable."""
    if frame:
        ledger, path_state = await find_by_id.ledger_with_frame(context.store, scope, frame)
    else:
        ledger = await find_by_id.ledger_of(context.store, scope, conversation)
        path_state = await run_in_threadpool(path_state_of, ledger, thread)
    return Target(ledger, path_state, context.config, now_ms(), frame)


async def perform(context: ApiContext, operation: Operation[Any], target: Target, operation_input: Any) -> Any:
    """Decides, and the view when that is durable. Raises what `decide` raises, StoreError."""
    return await carry_out(context, target.ledger.conversation, operation.decide(target, operation_input))


async def carry_out(context: ApiContext, owner: Conversation, decision: Decision) -> Any:
    """Stores the events of a decision, and tells the rest of the proxy; the view. Raises StoreError."""
    if decision.events:
        records = [LedgerRecord(owner.id, event) for event in decision.events]
        await context.store.wait_until_durable(context.store.write(owner.tenant, records))
    context.on_events_stored(owner.tenant, owner.id, decision.events)
    return decision.view
