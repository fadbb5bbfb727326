"""A server that answers one request with given bytes, for client libraries to read from a real socket."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread


@contextmanager
def served(body: bytes, kind: str) -> Iterator[str]:
    """The URL of the server; `kind` is the content type of its answer."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-type", kind)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: the output of tests is theirs."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        answering = Thread(target=server.handle_request)
        answering.start()
        yield f"http://127.0.0.1:{server.server_port}"
        answering.join()
