"""The logs that real clients wrote give the runs they were written in: requests, largest request, untouched cost.

The figures are those of the README beside the logs. An opencode log lacks the request for a title; of gptme's and of
the compacted session's one request left no trace.
"""

import json
from pathlib import Path

import pytest

from callstack_proxy.cli.context import load_settings
from callstack_proxy.replay import ReplayOptions, ReplayResult, find_logs, replay_files

LOGS = Path(__file__).resolve().parents[4] / "shared" / "client-logs"
WITHIN = 0.05
RUNS = {
    "claude-code/resume": (60, 121_712, 1.456),
    "claude-code/compact": (40, 49_295, 0.740),
    "codex/resume": (59, 120_520, 2.561),
    "opencode/job": (21, 42_917, 0.096),
    "pi/resume": (60, 110_531, 0.454),
    "continue/resume": (60, 110_987, 0.467),
    "cline/job": (20, 42_433, 0.093),
    "qwen-code/job": (20, 40_940, 0.085),
    "copilot-cli/job": (20, 47_341, 0.108),
    "mistral-vibe/job": (20, 45_751, 0.101),
    "gptme/job": (23, 34_911, 0.081),
    "mini-swe-agent/job": (22, 44_465, 0.103),
}
WARM_HEAD = {"qwen-code/job"}
"""These receipts took the first request's 17,439 tokens for cached by an earlier session, which receipts do no more
before a provider told of it. This one told the client of none."""


@pytest.mark.skipif(not LOGS.is_dir(), reason="the logs of real clients are not here (../shared/client-logs)")
@pytest.mark.parametrize("run", list(RUNS))
def test_a_log_gives_the_run_it_was_written_in(run: str) -> None:
    files = list(find_logs(Path("/"), [LOGS / run], (), 0.0).files)

    (played,) = replay_files(files, ReplayOptions(load_settings(None, {}, asks_upstreams=False)), 1, lambda share: None)

    assert isinstance(played, ReplayResult)
    requests, largest, cost = RUNS[run]
    assert played.row.requests == pytest.approx(requests, rel=WITHIN)
    assert played.row.peak_in == pytest.approx(largest, rel=WITHIN)
    warm = 0.9 * 17_439 / 1e6 if run in WARM_HEAD else 0.0
    assert played.row.cost_untouched - warm == pytest.approx(cost, rel=WITHIN)
    assert played.unequal == 0
    assert played.assumed_head == 0


@pytest.mark.skipif(not LOGS.is_dir(), reason="the logs of real clients are not here (../shared/client-logs)")
@pytest.mark.rows("X-65")
def test_what_a_log_cost_untouched_is_what_its_provider_counted(tmp_path: Path) -> None:
    """For as long as nothing had left the context, the log tells the untouched bill itself: each answer's input, and
    how much of it was cached, the first request's head not."""
    (written,) = find_logs(Path("/"), [LOGS / "qwen-code/job"], (), 0.0).files
    entries = [json.loads(line) for line in written.read_text().splitlines()]
    counted: list[tuple[int, int]] = []
    for at, entry in enumerate(entries):
        if usage := entry.get("usageMetadata"):
            if counted and usage["promptTokenCount"] < counted[-1][0]:
                entries = entries[:at]  # here something had left
                break
            counted.append((usage["promptTokenCount"], usage["cachedContentTokenCount"]))
    log = tmp_path / "untouched.jsonl"
    log.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    options = ReplayOptions(load_settings(None, {}, asks_upstreams=False))

    (played,) = replay_files([log], options, 1, lambda share: None)

    assert isinstance(played, ReplayResult)
    assert counted[0][1] == 0
    billed = sum(whole - 0.9 * cached for whole, cached in counted) / 1e6
    assert played.row.requests == len(counted) == 12
    assert played.row.cost_untouched == pytest.approx(billed, rel=0.01)
