"""The logs that real clients wrote give the runs they were written in: requests, largest request, untouched cost.

The figures are those of the README beside the logs. An opencode log lacks the request for a title; of gptme's and of
the compacted session's one request left no trace.
"""

from pathlib import Path

import pytest

from proxy.cli.context import load_settings
from proxy.replay import ReplayOptions, ReplayResult, find_logs, replay_files

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
"""Its receipts count the first request's 17,439 tokens as cached by an earlier one, which the log does not hold."""


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
