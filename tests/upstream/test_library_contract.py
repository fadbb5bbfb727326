"""What `proxy.upstream.http` uses of aiohttp below its sessions. Fails when a new version changes it."""

import asyncio
import inspect
from unittest.mock import Mock

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.helpers import _EXC_SENTINEL
from aiohttp.http import HttpProcessingError
from yarl import URL

METHODS = {
    "is_connected": [],
    "resume_writing": [],
    "close": [],
    "abort": [],
    "data_received": ["data"],
    "set_exception": ["exc", "exc_cause"],
}
RESPONSE_OPTIONS = {
    "skip_payload",
    "read_until_eof",
    "auto_decompress",
    "read_bufsize",
    "max_line_size",
    "max_field_size",
}


async def test_a_connection_has_the_methods_and_state_that_ours_overrides_and_reads() -> None:
    for name, parameters in METHODS.items():
        assert list(inspect.signature(getattr(ResponseHandler, name)).parameters)[1:] == parameters, name
    assert set(inspect.signature(ResponseHandler.set_response_params).parameters) >= RESPONSE_OPTIONS
    protocol = ResponseHandler(asyncio.get_running_loop())
    assert (len(protocol), protocol._reading_paused, protocol.writing_paused) == (0, False, False)
    assert protocol.read_timeout is None
    assert isinstance(ResponseHandler.writing_paused, property)


async def test_an_answer_is_read_from_the_connection_and_what_waits_of_a_body_stays_in_its_buffer() -> None:
    protocol = ResponseHandler(asyncio.get_running_loop())
    protocol.connection_made(Mock())
    protocol.set_response_params(read_until_eof=True, auto_decompress=False, read_bufsize=2048)
    protocol.data_received(b"HTTP/1.1 200 OK\r\nX-A: b\r\nContent-Length: 4\r\n\r\nab")
    message, content = await protocol.read()
    assert (message.code, list(message.raw_headers)) == (200, [(b"X-A", b"b"), (b"Content-Length", b"4")])
    protocol.connection_lost(None)
    assert isinstance(content.exception(), aiohttp.ClientPayloadError)
    assert b"".join(content._buffer) == b"ab"
    assert content.total_bytes == 2


async def test_broken_framing_reaches_the_connection_as_an_error_of_its_own_class() -> None:
    protocol = ResponseHandler(asyncio.get_running_loop())
    protocol.connection_made(Mock())
    protocol.set_response_params(read_until_eof=True, auto_decompress=False, read_bufsize=2048)
    protocol.data_received(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n")
    _, content = await protocol.read()
    protocol.data_received(b"zz\r\n")
    assert isinstance(protocol.exception(), HttpProcessingError)
    assert (content.exception(), content.is_eof()) == (None, False)  # when this changes, ours need not tell the body
    assert inspect.signature(ResponseHandler.set_exception).parameters["exc_cause"].default is _EXC_SENTINEL


async def test_a_connector_makes_connections_by_its_factory_and_finds_them_by_a_request() -> None:
    connector = aiohttp.TCPConnector()
    async with connector:
        made = connector._factory()
        assert isinstance(made, ResponseHandler)
        assert list(inspect.signature(connector.connect).parameters) == ["req", "traces", "timeout"]
        connection = await open_connection(connector)
        assert isinstance(connection.protocol, ResponseHandler)
        connection.close()


async def open_connection(connector: aiohttp.TCPConnector) -> aiohttp.connector.Connection:
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    loop = asyncio.get_running_loop()
    async with server:
        port = server.sockets[0].getsockname()[1]
        where = aiohttp.ClientRequest("GET", URL(f"http://127.0.0.1:{port}"), loop=loop, proxy=None, ssl=True)
        return await connector.connect(where, [], aiohttp.ClientTimeout())
