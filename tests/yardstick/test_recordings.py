"""Recorded agent conversations, replayed through `callstack serve` and measured from outside.

The yardstick counts tokens exactly and so needs a vocabulary, which it takes from a package: it gets an environment
of its own in the folder `CALLSTACK_CLIENTS` names. Savings and recall are judged together, at the defaults: either
alone can be had for free.
"""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.clients.installing import NotInstallable, pip

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"
LIMIT_S = 900
PACKAGES = ("orjson==3.13.0", "tiktoken==0.14.0")
VOCABULARY = ("--no-deps", "litellm==1.108.7")
"""Looked into for its vocabulary, never imported."""
NEVER = (
    "refused",
    "unanswered",
    "wrong_answers",
    "leaks",
    "hidden_wrong",
    "system_cut",
    "newest_cut",
    "tools_cut",
    "fields_changed",
    "rewrites",
)
"""Figures that are zero, whatever is saved."""
SAVED = {
    "all": {"cost_anthropic": 0.548, "tokens": 0.467, "dearer_2pc": 0},
    "interactive": {
        "cost_anthropic": 0.474,
        "cost_openai90": 0.457,
        "tokens": 0.38,
        "peak": 0.52,
        "peak_max": 66_000,
    },
}
"""At most this much of what the untouched run costs and sends, by kind of work. On a machine that does nothing else it
is 0.537 and 0.462; with four workers on two cores, where some requests pass because we are late, it was 0.007 more."""
KEPT = {
    "all": {"far_recall": 0.92, "recall": 0.975, "retrievable": 1.0, "findable": 0.997, "user_facts": 1.0},
    "interactive": {"far_recall": 0.90},
    "single task": {"far_recall": 0.90},
    "subagent": {"far_recall": 0.80},
    "dialogue": {"far_recall": 0.90},
}
"""At least this much of what is needed again is there, or found."""

pytestmark = [
    pytest.mark.yardstick,
    pytest.mark.skipif(not (SHARED / "trajectories").is_dir(), reason="the recordings are not beside this checkout"),
]


@pytest.fixture(scope="module")
def python() -> str:
    """An interpreter that can run the yardstick."""
    folder = os.environ.get("CALLSTACK_CLIENTS")
    if not folder:
        pytest.skip("the yardstick needs packages of its own: set CALLSTACK_CLIENTS to a folder that may keep them")
    try:
        counting = pip(Path(folder) / "yardstick", PACKAGES)
        vocabulary = pip(Path(folder) / "vocabulary", VOCABULARY)
    except NotInstallable as reason:
        pytest.skip(f"the yardstick's packages cannot be installed: {reason}")
    found = next(vocabulary.glob("lib/python*/site-packages/litellm/litellm_core_utils/tokenizers"))
    os.environ["YARDSTICK_VOCABULARY"] = str(found)
    return str(counting / "bin" / "python")


def summary(python: str, tmp_path: Path, *settings: str) -> dict[str, Any]:
    """The figures over all recordings with these settings."""
    chosen = " ".join(f"--set {s}" for s in settings)
    where = f"--port {{port}} --upstream {{upstream}}/v1 --data {tmp_path / 'data'}"
    serve = f"{sys.executable} -m callstack_proxy serve {where} {chosen}"
    figures = tmp_path / "figures.json"
    start = ["--start", f"env PYTHONPATH={shlex.quote(str(ROOT))} {serve}", "--json", str(figures)]
    command = [python, "-m", "yardstick.replay", "--head", "as-recorded", *start]
    done = subprocess.run(command, cwd=SHARED, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert figures.is_file(), done.stdout[-3000:] + done.stderr[-3000:]
    return dict(json.loads(figures.read_text())["summaries"]["proxy"])


def test_recorded_agents_are_served_at_the_defaults(python: str, tmp_path: Path) -> None:
    """L2, L4, L5, L6: threads below 20,000 tokens pass byte for byte, the others wake once, only grow and are folded at
    their tail. What that saves and what it keeps are held together."""
    groups = summary(python, tmp_path)
    dear = {f"{g} {n}": groups[g][n] for g, most in SAVED.items() for n, at in most.items() if groups[g][n] > at}
    lost = {f"{g} {n}": groups[g][n] for g, least in KEPT.items() for n, at in least.items() if groups[g][n] < at}
    assert (dear, lost) == ({}, {})
    told = groups["all"]
    assert told["verbatim"] == 1.0
    assert {name: told[name] for name in NEVER if told[name]} == {}
    assert told["small_identical"] == 1.0
    assert told["excess"] <= 1500
    assert told["own_tools"] <= 800
    assert told["hit_openai90"] >= 0.88


def test_recorded_agents_are_served_awake_from_the_start(python: str, tmp_path: Path) -> None:
    """The same with tools in every conversation: hidden calls work in each of them."""
    told = summary(python, tmp_path, "wake_at_tokens=0")["all"]
    assert {name: told[name] for name in NEVER if told[name]} == {}
    assert told["excess"] <= 1500
    assert told["own_tools"] <= 800


@pytest.mark.rows("S3-36")
def test_shadow_changes_nothing(python: str, tmp_path: Path) -> None:
    """S3-36: what goes up is what came in."""
    told = summary(python, tmp_path, "mode=shadow")["all"]
    assert {name: told[name] for name in (*NEVER, "breaks", "excess") if told[name]} == {}
    assert told["tokens"] == 1.0
