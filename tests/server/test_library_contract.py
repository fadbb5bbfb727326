"""What `proxy.server.runner` uses of uvicorn beyond its documented interface. Fails when a new version changes it."""

import asyncio
import inspect
import subprocess
import sys
from typing import Any, cast
from unittest.mock import Mock

import uvicorn
from uvicorn.protocols.http import httptools_impl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

CALLBACKS = {
    "connection_made": ["transport"],
    "connection_lost": ["exc"],
    "data_received": ["data"],
    "on_message_begin": [],
    "on_headers_complete": [],
    "on_body": ["body"],
    "on_message_complete": [],
    "send_400_response": ["msg"],
    "_unset_keepalive_if_required": [],
}
REQUEST = b"GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def test_a_connection_has_the_callbacks_and_state_that_the_runner_overrides_and_reads() -> None:
    for name, parameters in CALLBACKS.items():
        assert list(inspect.signature(getattr(HttpToolsProtocol, name)).parameters)[1:] == parameters, name
    protocol = connected(nothing)
    assert protocol.cycle is None
    protocol.data_received(REQUEST)
    assert {"loop", "transport", "parser", "flow", "scope", "headers", "url"} <= vars(protocol).keys()
    assert hasattr(protocol.flow, "read_paused")


async def test_the_class_of_an_answer_can_be_replaced_before_it_begins() -> None:
    class Replaced(RequestResponseCycle):
        pass

    ran: list[type] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        ran.append(type(send.__self__))

    protocol = connected(application)
    protocol.data_received(REQUEST)
    assert type(protocol.cycle) is RequestResponseCycle
    protocol.cycle.__class__ = Replaced
    await asyncio.sleep(0)
    assert ran == [Replaced]


async def test_an_answer_with_chunked_encoding_decided_has_no_framing_added_and_its_length_ignored() -> None:
    """So a 304 may announce a length, and an answer to HTTP/1.0 end with its connection."""
    completed = asyncio.Event()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        cycle = send.__self__
        cycle.chunked_encoding = False
        await send({"type": "http.response.start", "status": 304, "headers": [(b"content-length", b"5")]})
        assert (cycle.response_started, cycle.response_complete) == (True, False)
        cycle.expected_content_length = 3
        await send({"type": "http.response.body", "body": b"abc"})
        assert cycle.response_complete
        completed.set()

    protocol = connected(application)
    protocol.data_received(REQUEST)
    await asyncio.wait_for(completed.wait(), 5)
    written = b"".join(call.args[0] for call in cast("Mock", protocol.transport).write.call_args_list)
    assert written.endswith(b"content-length: 5\r\n\r\nabc")
    assert b"transfer-encoding" not in written


def test_status_lines_are_a_table_that_takes_more_of_them() -> None:
    assert STATUS_LINE[200] == b"HTTP/1.1 200 OK\r\n"
    assert httptools_impl.STATUS_LINE is STATUS_LINE
    assert httptools_impl.HEADER_RE.search(b"x odd")
    assert httptools_impl.HEADER_VALUE_RE.search(b"a\x01b")


def test_the_server_can_be_told_to_end() -> None:
    assert {"should_exit", "force_exit", "started"} <= vars(uvicorn.Server(uvicorn.Config(nothing))).keys()
    # in a process of its own: other libraries of these tests put their own function in its place
    asked = "import inspect, uvicorn; print(*inspect.signature(uvicorn.Server.handle_exit).parameters)"
    told = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["self", "sig", "frame"]


async def nothing(scope: Any, receive: Any, send: Any) -> None:
    """Answers nothing."""


def connected(application: Any) -> HttpToolsProtocol:
    config = uvicorn.Config(application, http=HttpToolsProtocol, log_config=None, lifespan="off")
    config.load()
    protocol = HttpToolsProtocol(config, ServerState(), {})
    transport = Mock()
    transport.is_closing.return_value = False
    transport.get_extra_info.return_value = None
    protocol.connection_made(transport)
    return protocol
