"""The tests of providers behind litellm, in an environment of its own: it wants an older openai package than the other
clients' tests do, and the lock has one version of each."""

import subprocess
from collections.abc import Callable
from pathlib import Path

HOUSE = Path(__file__).resolve().parents[2]
PACKAGES = (f"{HOUSE}[litellm-dialects]", "pytest>=8.4", "pytest-asyncio>=1.1", "hypothesis>=6.130")
LIMIT_S = 300


def test_every_test_of_a_provider_behind_litellm_holds_where_litellm_is(pip: Callable[..., Path]) -> None:
    python = pip("litellm", *PACKAGES) / "bin" / "python"
    alone = ["-p", "no:cacheprovider", "-o", "addopts=--import-mode=importlib"]  # nothing there runs tests side by side
    command = [str(python), "-m", "pytest", "-q", "--take", "all", *alone, "tests/upstream/litellm"]
    done = subprocess.run(command, cwd=HOUSE, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout[-5000:]
    assert "litellm is not installed:" not in done.stdout
