"""aider, from PyPI: an agent that works by text alone and never offers a tool.

A conversation without tools has no way to ask for what left it, so it never wakes and passes byte for byte (L7). What
is to be shown here is that the proxy keeps its hands off: the edit arrives, and no word of ours is in any request.
"""

import json
from collections.abc import Callable
from pathlib import Path

from llm_test_provider import ScriptedProvider, says
from tests.clients.serving import Served
from tests.clients.story import GREETING

PACKAGE = "aider-chat==0.86.2"
QUIET = ["analytics", "check-update", "show-release-notes", "show-model-warnings", "detect-urls", "gitignore", "pretty"]
EDIT = f"Here it is.\n\ngreeting.txt\n```\n<<<<<<< SEARCH\n=======\n{GREETING}>>>>>>> REPLACE\n```\n"


def test_it_edits_a_file_and_its_requests_pass_untouched(
    provider: ScriptedProvider,
    proxy: Served,
    pip: Callable[..., Path],
    run: Callable[..., str],
    repository: Path,
    home: Path,
) -> None:
    program = pip("aider", PACKAGE) / "bin" / "aider"
    (repository / "greeting.txt").touch()
    know_no_prices(home)
    provider.will(says(EDIT))
    task = ["--yes-always", "--no-git", "--map-tokens", "0", "--message", "Write the greeting", "greeting.txt"]
    model = ["--model", "openai/scripted", "--edit-format", "diff", "--openai-api-base", proxy.url]

    run([str(program), *(f"--no-{one}" for one in QUIET), *model, *task], repository, **SETTINGS)

    assert (repository / "greeting.txt").read_text() == GREETING
    assert len(provider.asked) == 1
    assert b"stack_" not in provider.asked[0].raw
    assert b"stack-context" not in provider.asked[0].raw


SETTINGS = {"OPENAI_API_KEY": "sk-scripted", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}


def know_no_prices(home: Path) -> None:
    """aider looks up prices on the network unless it has done so today."""
    cache = home / ".aider" / "caches" / "model_prices_and_context_window.json"
    cache.parent.mkdir(parents=True)
    cache.write_text(json.dumps({"openai/scripted": {"max_input_tokens": 200_000}}))
