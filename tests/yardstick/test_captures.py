"""Captured sessions of real clients, replayed through `callstack serve` and judged from outside.

The recordings are other people's, so they stay outside the project: without them these tests skip and say so. What is
gated here is what a captured client must not notice: threads, side requests, pairing, answers, faults, leaks, hidden
calls, required reasoning; growth and asleep bytes are held to zero as well.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.ports import held_port, port_of

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"
LIMIT_S = 300
HELD = ("threads", "side", "asleep", "awake", "verbatim", "pairing", "growth", "growth=b", "answers", "answers=b")
"""Columns that must show no error, beside the yardstick's own gates."""

pytestmark = [
    pytest.mark.yardstick,
    pytest.mark.skipif(not (SHARED / "captures").is_dir(), reason="the captured sessions are not beside this checkout"),
]

Replayed = Callable[..., dict[str, Any]]


@pytest.fixture
def replayed(tmp_path: Path) -> Replayed:
    """Replays the captures with these options, of every dialect unless one is named; the figures, once the yardstick
    has passed them."""

    def replay(*options: str, settings: tuple[str, ...] = (), dialect: str = "all") -> dict[str, Any]:
        chosen = " ".join(f"--set {s}" for s in ("tenancy=credential", *settings))
        where = f"--port {{port}} --upstream {{upstream}} --data {tmp_path / 'data'}"
        serve = f"{sys.executable} -m callstack_proxy serve {where} {chosen}"
        figures = tmp_path / "figures.json"
        start = ["--start", f"env PYTHONPATH={ROOT} {serve}", "--json", str(figures)]
        with held_port() as here, held_port() as there:
            ports = ["--proxy", f"http://127.0.0.1:{port_of(here)}", "--upstream-port", str(port_of(there))]
            command = [sys.executable, "-m", "yardstick.captures", "--dialect", dialect, *ports, *start, *options]
            done = subprocess.run(command, cwd=SHARED, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
        return dict(json.loads(figures.read_text()))

    return replay


def held(figures: dict[str, Any], *but: str) -> dict[str, int]:
    """Errors by column, of the columns that are held to none, `but` these."""
    return {name: figures["total"][name][0] for name in HELD if figures["total"][name][0] and name not in but}


@pytest.mark.rows("X-01", "X-02", "X-03", "X-04", "X-05", "X-07", "X-13", "X-19", "S1-71a")
def test_real_clients_do_not_notice_the_proxy_at_its_defaults(replayed: Replayed) -> None:
    """X-01..X-05, X-07, X-13, X-19: clients with a system text of some size are offered tools with their first request.
    S1-71a: each subagent hangs under the conversation that delegated it."""
    figures = replayed()
    assert held(figures, "asleep") == {}
    assert figures["bodies_with_stack_tools"] > 200
    wrong, checked = figures["total"]["links"]
    assert wrong == 0
    assert checked >= 21


@pytest.mark.rows("X-03")
def test_what_is_small_passes_byte_for_byte(replayed: Replayed) -> None:
    """X-03: below the tokens from which threads wake."""
    figures = replayed(settings=("wake_at_tokens=20000",))
    assert held(figures) == {}
    assert figures["total"]["asleep"][1] > 350


@pytest.mark.rows("S3-36")
def test_real_clients_do_not_notice_shadow(replayed: Replayed) -> None:
    """S3-36: shadow forwards the original."""
    figures = replayed(settings=("mode=shadow",))
    assert held(figures) == {}
    assert figures["bodies_with_stack_tools"] == 0


@pytest.mark.rows("X-08", "X-13")
def test_real_clients_work_awake_from_their_first_request(replayed: Replayed) -> None:
    """X-08, X-13: tools and guidance are there, the client's own bytes and order too."""
    figures = replayed("--wake", "0", settings=("wake_at_tokens=0",))
    assert held(figures) == {}
    assert figures["bodies_with_stack_tools"] > 400


ALONE = ("mirror_plans=false", "infer_requests=false")
"""The yardstick sees a frame by what it injected itself; frames of ours would begin and end inside those."""


@pytest.mark.rows("X-09", "X-10", "X-11")
def test_hidden_calls_are_answered_inside_and_replayed(replayed: Replayed) -> None:
    """X-09, X-10, X-11: push, pop and mixed turns at every second request of a thread."""
    figures = replayed("--wake", "0", "--inject", settings=("wake_at_tokens=0", *ALONE))
    assert held(figures) == {}
    assert figures["total"]["hidden"][1] > 750


@pytest.mark.rows("S1-76")
def test_hidden_calls_and_inferred_frames_go_together(replayed: Replayed) -> None:
    """S1-76: what the client plans is folded among frames that the model pushed. A fold inside an injected frame looks
    like a break to the yardstick, so growth is not held here."""
    figures = replayed("--wake", "0", "--inject", settings=("wake_at_tokens=0",))
    assert {name: errors for name, errors in held(figures).items() if not name.startswith("growth")} == {}
    assert figures["total"]["hidden"][1] > 750


def test_real_clients_work_with_recall_alone(replayed: Replayed) -> None:
    """DESIGN 8, mode passive: frames are seen and folded, and only recall is offered."""
    figures = replayed("--wake", "0", settings=("wake_at_tokens=0", "mode=passive"))
    assert {name: errors for name, errors in held(figures).items() if not name.startswith("growth")} == {}
    assert figures["bodies_with_stack_tools"] > 400


@pytest.mark.rows("X-21")
def test_required_reasoning_is_restored(replayed: Replayed) -> None:
    """X-21, L8: what a provider of chat completions demands back comes back, where the client dropped it too."""
    options = ("--wake", "0", "--inject", "--reasoning", "required")
    figures = replayed(*options, settings=("wake_at_tokens=0", *ALONE), dialect="chat")
    assert held(figures) == {}
    assert figures["total"]["restored"][1] > 200
    assert figures["rounds_refused"] == 0


@pytest.mark.rows("X-21")
@pytest.mark.parametrize("strength", ["bound-error", "bound-drop"])
def test_reasoning_that_is_bound_to_its_prefix_never_goes_behind_another_one(replayed: Replayed, strength: str) -> None:
    """X-21, L8: signed reasoning of the messages and responses APIs goes back as it came or not at all, hidden rounds
    and folds of what the client plans between. Growth is not held here, as in the test of both above."""
    figures = replayed("--wake", "0", "--inject", "--reasoning", strength, settings=("wake_at_tokens=0",))
    assert {name: errors for name, errors in held(figures).items() if not name.startswith("growth")} == {}
    assert [figures["total"][name][0] for name in ("reasoning", "moved", "restored")] == [0, 0, 0]
    assert figures["total"]["reasoning"][1] > 100
    assert figures["rounds_refused"] == 0
