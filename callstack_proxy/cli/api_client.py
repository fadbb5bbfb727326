"""The management API as the commands call it, and commands that are made from its operations. One path leads to it,
whether a proxy runs on the data directory or not.

Where one runs, it is asked over HTTP, because it keeps conversations in memory. Where none runs, the same application
answers in this process, on the store of the data directory.
"""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from copy import copy
from functools import partial
from inspect import Parameter, Signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlencode

import typer
from pydantic.fields import FieldInfo
from typer.models import ParameterInfo

from callstack_proxy.cli.context import (
    DELETION_TIMEOUT_S,
    AsJson,
    ConfigFile,
    DataDirectory,
    find_running_proxy,
    send_request,
    settings_at,
)
from callstack_proxy.cli.output import print_json, print_line
from proxy.config import Config
from proxy.errors import InvalidConfiguration, NotAllowed, NotFound, ProxyError, StoreError

if TYPE_CHECKING:
    from callstack_proxy.management.operations import Operation
    from proxy.store import Store

ERRORS_BY_STATUS = {400: InvalidConfiguration, 404: NotFound, 409: NotAllowed}


def call(
    settings: Config,
    method: str,
    path: str,
    body: object = None,
    *,
    credentials: Mapping[str, str] | None = None,
    as_text: bool = False,
    read: Callable[[Store], Awaitable[Any]] | None = None,
) -> Any:
    """The API's answer, parsed from JSON. `credentials` are headers of somebody else, who sees what their key may see;
    without them it is the owner of the data directory who asks. `read` makes the same answer of a store, where no proxy
    runs: the API takes 1 s to import. Raises the error that the API answers with, or ProxyError for silence."""
    server = find_running_proxy(settings.data)
    if server is None:
        if credentials is not None and settings.tenancy != "single":
            raise InvalidConfiguration(
                f"no proxy runs on {settings.data}, and only a running one can tell whose key that is; start "
                "`callstack serve` there"
            )
        # The store takes 0.3 s to import, which a command that asks a running proxy does not need.
        from callstack_proxy.cli.store_access import call_in_process, read_store

        if read is not None:
            return asyncio.run(read_store(settings, read))
        parse = partial(parse_answer, as_text=as_text)
        return asyncio.run(call_in_process(settings, method, path, body, parse))
    try:
        status, answer = send_request(server, method, path, body, DELETION_TIMEOUT_S, credentials)
    except (OSError, http.client.HTTPException) as error:
        raise ProxyError(
            f"the proxy at {server.url} did not answer: {error}; start it again", code="proxy_silent"
        ) from None
    return parse_answer(status, answer, as_text=as_text)


def conversation_path(settings: Config, reference: str) -> str:
    """The API path of the conversation with this id, beginning of an id, or of the newest one where it is empty."""
    from callstack_proxy.cli.store_access import find_conversation_id

    return f"/stack/conversations/{asyncio.run(find_conversation_id(settings, reference))}"


def frame_path(settings: Config, reference: str) -> str:
    """The API path of the frame with this id, beginning of an id, or title."""
    from callstack_proxy.cli.store_access import find_frame_id

    return f"/stack/frames/{asyncio.run(find_frame_id(settings, reference))}"


FrameArgument = Annotated[str, typer.Argument(help="Id, its beginning (4 characters or more), or a title.")]
InConversation = Annotated[
    str, typer.Option("--in", help="Id, or its beginning (4 characters or more); default: the newest.")
]
ListFlag = Annotated[bool, typer.Option("--list", help="Only list what there is; with a name, the messages there.")]
Listing = Callable[[Config, str, str], tuple[object, Iterable[str]]]
"""What there is in a conversation, or the one with a name: the value, and a line for each."""


def _parameter(name: str, annotation: Any, *, default: Any = Parameter.empty) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


_PLACES = {
    "frame": _parameter("frame", FrameArgument),
    "conversation": _parameter("conversation", InConversation, default=""),
}
_LISTED = _parameter("listed", ListFlag, default=False)
_COMMON = (
    _parameter("config", ConfigFile, default=None),
    _parameter("data", DataDirectory, default=None),
    _parameter("as_json", AsJson, default=False),
)


def command_of(
    operation: Operation[Any],
    text_of: Callable[[Any, Mapping[str, Any]], str],
    about: str = "",
    listing: Listing | None = None,
) -> Callable[..., None]:
    """A command that asks for an operation, and prints `text_of` its view and the input. Its help is `about`, by
    default what the API says. With a `listing` it has the option `--list`, which lists instead."""

    def run(
        *, config: Path | None, data: Path | None, as_json: bool, listed: bool = False, **operation_input: Any
    ) -> None:
        settings, place = settings_at(config, data), operation_input.pop(operation.place)
        if listed and listing is not None:
            view, lines = listing(settings, place, operation_input["name"])
        else:
            view = _ask(settings, operation, place, operation_input)
            lines = [text_of(view, operation_input)]
        if as_json:
            print_json(view)
            return
        for line in lines:
            print_line(line)

    fields = operation.input_type.model_fields if operation.input_type else {}
    parameters = [_own_parameter(name, field) for name, field in fields.items()]
    parameters += [_PLACES[operation.place], _LISTED if listing else None, *_COMMON]
    run.__doc__ = about or operation.decide.__doc__
    # Typer reads from the signature what a command takes.
    run.__signature__ = Signature(list(filter(None, parameters)))  # type: ignore[attr-defined]
    return run


def _ask(settings: Config, operation: Operation[Any], place: str, operation_input: Mapping[str, Any]) -> Any:
    path = frame_path(settings, place) if operation.place == "frame" else conversation_path(settings, place)
    path += operation.path.partition("}")[2]
    if operation.in_query:
        query = urlencode({name: _query_value(value) for name, value in operation_input.items()})
        return call(settings, operation.method, f"{path}?{query}")
    return call(settings, operation.method, path, operation_input if operation.input_type else None)


def _query_value(value: Any) -> Any:
    """As a query has it; other values stay what they are."""
    return str(value).lower() if isinstance(value, bool) else value


def _own_parameter(name: str, field: FieldInfo) -> Parameter | None:
    """A field as it stands on a command line; None where it does not."""
    for each in field.metadata:
        if isinstance(each, ParameterInfo):
            shown = copy(each)
            shown.help = each.help or f"{field.description}."
            default = Parameter.empty if field.is_required() else field.default
            return _parameter(name, Annotated[field.annotation, shown], default=default)
    return None


def parse_answer(status: int, answer: bytes, *, as_text: bool = False) -> Any:
    """What the API answered: JSON, or text where that was asked for. Raises the error that it answered with."""
    if as_text and status < http.client.BAD_REQUEST:
        return answer.decode("utf-8", "backslashreplace")
    value = json.loads(answer)
    if status < http.client.BAD_REQUEST:
        return value
    raise ERRORS_BY_STATUS.get(status, StoreError)(value["error"]["message"], code=value["error"]["code"])
