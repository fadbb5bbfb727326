"""The topology of `deploy/compose.replicas.yaml` as processes: PostgreSQL, several proxies on it, nginx in front.

    python -m tests.replicas_behind_nginx --port 9000 --upstream http://127.0.0.1:8000 --replicas 2 [--set KEY=VALUE]

nginx runs with `deploy/nginx.conf`, in which only the addresses are others. Ends with SIGTERM or SIGINT, and takes all
with it. The judge of the recordings starts it in place of one proxy.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.ports import held_port, port_of
from tests.postgresql_server import PostgresServer

ROOT = Path(__file__).resolve().parents[1]
NGINX_CONF = ROOT / "deploy" / "nginx.conf"
STOP_TIMEOUT_S = 30


def nginx_program() -> str | None:
    return shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")


def write_nginx_conf(folder: Path, ports: Sequence[int], listen: int = 8787) -> Path:
    """The balancer's file with these servers on this machine, and what nginx writes in the folder."""
    text = NGINX_CONF.read_text()
    assert "server callstack:8787;" in text
    assert "listen 8787;" in text
    servers = " ".join(f"server 127.0.0.1:{port};" for port in ports)
    text = text.replace("server callstack:8787;", servers).replace("listen 8787;", f"listen 127.0.0.1:{listen};")
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    places = "".join(f"{kind}_temp_path {folder}/{kind};\n" for kind in kinds)
    text = text.replace("http {\n", f"http {{\naccess_log off;\n{places}", 1)
    file = folder / "nginx.conf"
    # With `tenancy: single` the proxies talk to their own user alone, and nginx started by root would be somebody else.
    user = "user root;\n" if os.geteuid() == 0 else ""
    file.write_text(f"{user}daemon off;\npid {folder}/nginx.pid;\nerror_log {folder}/nginx.log;\n{text}")
    return file


@contextmanager
def running(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[str]]:
    with log.open("a") as output:
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=output, text=True)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.communicate(timeout=STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()


@contextmanager
def nginx(folder: Path, ports: Sequence[int], listen: int) -> Iterator[None]:
    """nginx in front of proxies at these ports."""
    program = nginx_program()
    assert program is not None
    command = [program, "-p", str(folder), "-e", str(folder / "nginx.log"), "-c"]
    with running([*command, str(write_nginx_conf(folder, ports, listen))], folder / "nginx.log"):
        yield


def proxy_command(port: int, upstream: str, folder: Path, store: str, settings: Sequence[str]) -> list[str]:
    own = [f"store={store}", f"data={folder}", f"upstreams.default.url={upstream}", *settings]
    assigned = [word for setting in own for word in ("--set", setting)]
    return [sys.executable, "-m", "callstack_proxy", "serve", "--port", str(port), *assigned]


@contextmanager
def topology(listen: int, upstream: str, replicas: int, settings: Sequence[str]) -> Iterator[list[int]]:
    """All of it, ready to answer; the ports of the proxies."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.chmod(0o755)
        database = PostgresServer()
        stack.callback(database.close)
        store = database.new_database()
        places = [stack.enter_context(held_port()) for _ in range(replicas)]
        ports = [port_of(place) for place in places]
        for port in ports:
            command = proxy_command(port, upstream, folder / f"data{port}", store, settings)
            proxy = stack.enter_context(running(command, folder / "proxy.log"))
            assert proxy.stdout is not None
            ready = any(line.startswith("clients") for line in proxy.stdout)
            assert ready, (folder / "proxy.log").read_text()[-2000:]
        stack.enter_context(nginx(folder, ports, listen))
        yield ports


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--upstream", required=True)
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--set", action="append", default=[], dest="settings", metavar="KEY=VALUE")
    asked = parser.parse_args()
    told_to_end = asyncio.Event()
    for sign in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(sign, told_to_end.set)
    with topology(asked.port, asked.upstream, asked.replicas, asked.settings):
        await told_to_end.wait()


if __name__ == "__main__":
    asyncio.run(main())
