"""Answers in place of a proxy that died, on its port: one plain explanation, in the error form of both vendors."""

from __future__ import annotations

import json
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread

STATUS = HTTPStatus.GONE
"""No client library sends such a request again, so the agent shows the explanation at once."""
CHECK_EVERY_S = 0.2
POLL_S = 0.1


class Explainer:
    """While its `with` block runs, watches the proxy at a port of 127.0.0.1 and answers there once it is gone."""

    def __init__(self, port: int, is_running: Callable[[], bool], explanation: Callable[[], str]) -> None:
        self._port, self._is_running, self._explanation = port, is_running, explanation
        self._left = Event()
        self._thread = Thread(target=self._watch, name="wrap-explainer", daemon=True)
        self.proxy_died = False

    def __enter__(self) -> Explainer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._left.wait(CHECK_EVERY_S):
            if not self._is_running():
                self.proxy_died = True
                self._answer()

    def _answer(self) -> None:
        """Answers until the block ends. Of several agents at one proxy, the first to see its end has the port."""
        try:
            server = ThreadingHTTPServer(("127.0.0.1", self._port), handler_for(self._explanation()))
        except OSError:
            return  # another one answers, for as long as its agent runs; we try again
        server.daemon_threads = True
        with server:
            answering = Thread(target=server.serve_forever, args=(POLL_S,), daemon=True)
            answering.start()
            self._left.wait()
            server.shutdown()


def handler_for(explanation: str) -> type[BaseHTTPRequestHandler]:
    error = {"type": "proxy_ended", "code": "proxy_ended", "message": explanation, "param": None}
    body = json.dumps({"type": "error", "error": error}).encode()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            length = self.headers.get("content-length", "")
            self.rfile.read(int(length) if length.isdigit() else 0)
            self.send_response(STATUS)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.send_header("connection", "close")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_POST = do_HEAD = answer  # noqa: N815 - the library's names

        def log_message(self, *_: object) -> None:
            """The terminal is the agent's."""

    return Handler
