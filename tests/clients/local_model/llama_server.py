"""llama.cpp's own HTTP server on a free port of loopback: `python llama_server.py MODEL.gguf [TEMPLATE.jinja]`.

Runs in an environment that has xllamacpp, and prints its address. It has one slot, so each request finds in the prompt
cache what the one before left there. One thread: two would wait for each other on a machine that has other work.
"""

import sys
import threading
from pathlib import Path

import xllamacpp  # type: ignore[import-not-found]

CONTEXT_TOKENS = 8192


def main(model: str, template: str = "") -> None:
    wanted = xllamacpp.CommonParams()
    wanted.model.path = model
    wanted.chat_template = Path(template).read_text() if template else ""
    wanted.hostnames, wanted.port = ["127.0.0.1"], 0
    wanted.n_ctx, wanted.n_parallel, wanted.cache_ram_mib = CONTEXT_TOKENS, 1, 0
    wanted.cpuparams.n_threads = wanted.cpuparams_batch.n_threads = 1
    wanted.warmup, wanted.ui = False, False
    server = xllamacpp.Server(wanted)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    threading.Event().wait()


main(*sys.argv[1:])
