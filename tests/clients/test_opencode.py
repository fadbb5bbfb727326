"""opencode, from npm: a coding agent with tools, a title request beside its first turn, and a session header."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from llm_test_provider import ScriptedProvider, calls
from tests.clients.serving import Served
from tests.clients.story import CLOSING, GREETING, assert_the_stack_stayed_hidden, tell

PACKAGE = "opencode-ai@1.18.33"
QUIET = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS")
"""What opencode would otherwise fetch."""


def test_it_writes_a_file_and_notices_nothing(
    provider: ScriptedProvider,
    proxy: Served,
    npm: Callable[..., Path],
    run: Callable[..., str],
    repository: Path,
    home: Path,
) -> None:
    program = npm("opencode", PACKAGE) / "node_modules" / ".bin" / "opencode"
    target = repository / "greeting.txt"
    (repository / "opencode.json").write_text(json.dumps(settings(proxy.url)))
    tell(provider, calls("write", filePath=str(target), content=GREETING))

    said = run(
        [str(program), "run", "Write greeting.txt"], repository, **{f"OPENCODE_DISABLE_{one}": "1" for one in QUIET}
    )

    assert target.read_text() == GREETING
    assert CLOSING in said
    assert_the_stack_stayed_hidden(provider, said, repository, home)


def settings(url: str) -> dict[str, Any]:
    """The provider as a user would enter it; the adapter it names comes with opencode."""
    model = {"name": "scripted", "limit": {"context": 200_000, "output": 8_000}}
    options = {"baseURL": url, "apiKey": "sk-scripted"}
    entry = {"npm": "@ai-sdk/openai-compatible", "name": "callstack", "options": options, "models": {"scripted": model}}
    return {
        "model": "callstack/scripted",
        "small_model": "callstack/scripted",
        "share": "disabled",
        "permission": {"edit": "allow", "bash": "allow", "webfetch": "deny"},
        "provider": {"callstack": entry},
    }
